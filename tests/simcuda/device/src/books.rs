//! Charging and releasing: the only code that changes what a process holds.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::audit;
use crate::knobs::Knobs;
use crate::layout::{Account, COUNTERS, Device, Layout, NAME_BYTES};
use crate::map::Map;
use crate::process::Process;

/// The books of a simulated machine.
pub struct Books(pub(crate) Map);

impl Books {
    /// The books that the knobs of this process name; opened once, shared with forked children.
    ///
    /// # Panics
    /// If the state file cannot be mapped.
    pub fn global() -> &'static Books {
        static BOOKS: OnceLock<Books> = OnceLock::new();
        BOOKS.get_or_init(|| {
            let knobs = Knobs::get();
            let map = Map::open(knobs.state.as_deref(), knobs);
            Books(map.unwrap_or_else(|error| panic!("simcuda: SIMCUDA_STATE {:?}: {error}", knobs.state)))
        })
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.0
    }

    /// Devices of the machine, whatever `CUDA_VISIBLE_DEVICES` leaves of them.
    pub fn devices(&self) -> usize {
        usize::try_from(self.0.devices.load(Relaxed)).unwrap_or(0)
    }

    /// Bytes of device `device`.
    pub fn total(&self, device: usize) -> u64 {
        self.0.device[device].total.load(Relaxed)
    }

    /// Bytes that nobody holds, by pages, dead processes' share included.
    pub fn free(&self, device: usize) -> u64 {
        audit::reap(&self.0);
        self.free_now(device)
    }

    /// As [`Books::free`], without looking for dead processes first.
    pub fn free_now(&self, device: usize) -> u64 {
        self.total(device).saturating_sub(self.0.device[device].used.load(Acquire))
    }

    /// The device's UUID.
    pub fn uuid(&self, device: usize) -> [u8; 16] {
        uuid_of(&self.0.device[device])
    }

    /// Gives back what dead processes held and makes every sum exact again.
    pub fn audit(&self) {
        audit::reap(&self.0);
    }
}

pub(crate) fn uuid_of(device: &Device) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (bytes, word) in uuid.chunks_exact_mut(8).zip(&device.uuid) {
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    uuid
}

impl Process {
    /// Takes `bytes` of pages from `device`; false, and nothing changed, if the device or this process's MPS limit has
    /// not that much left.
    pub fn take_pages(&self, device: usize, bytes: u64) -> bool {
        // A refusal is only true once the dead have given back.
        self.try_take(device, bytes) || (audit::reap(self.books.layout()) && self.try_take(device, bytes))
    }

    fn try_take(&self, device: usize, bytes: u64) -> bool {
        let layout = self.books.layout();
        let (book, account) = (&layout.device[device], &self.slot.held[device]);
        let limit = Knobs::get().mps_limit.unwrap_or(u64::MAX);
        audit::enter(layout, self.slot);
        // The device first, and last when it is given back: a process's own sum never holds what the device has not granted.
        let all = add_within(&book.used, bytes, book.total.load(Relaxed));
        let mine = all.and_then(|_| add_within(&account.pages, bytes, limit));
        if all.is_some() && mine.is_none() {
            book.used.fetch_sub(bytes, AcqRel);
        }
        audit::leave(self.slot);
        let (Some(mine), Some(all)) = (mine, all) else {
            return false;
        };
        raise(&account.peak_pages, mine);
        raise(&book.peak, all);
        true
    }

    /// Gives `bytes` of pages back.
    pub fn give_pages(&self, device: usize, bytes: u64) {
        let layout = self.books.layout();
        audit::enter(layout, self.slot);
        self.slot.held[device].pages.fetch_sub(bytes, AcqRel);
        layout.device[device].used.fetch_sub(bytes, AcqRel);
        audit::leave(self.slot);
    }

    /// Takes pages for a context, a module or local memory.
    pub fn take_overhead(&self, device: usize, bytes: u64) -> bool {
        let taken = self.take_pages(device, bytes);
        if taken {
            self.slot.held[device].overhead.fetch_add(bytes, AcqRel);
        }
        taken
    }

    /// Gives overhead back.
    pub fn give_overhead(&self, device: usize, bytes: u64) {
        self.slot.held[device].overhead.fetch_sub(bytes, AcqRel);
        self.give_pages(device, bytes);
    }

    /// Counts a block of `bytes` that now lies in pages taken before.
    pub fn add_block(&self, device: usize, bytes: u64) {
        let account = &self.slot.held[device];
        let now = account.blocks.fetch_add(bytes, AcqRel) + bytes;
        raise(&account.peak_blocks, now);
    }

    /// Uncounts a block; its pages go back after this, so that blocks never exceed pages.
    pub fn remove_block(&self, device: usize, bytes: u64) {
        self.slot.held[device].blocks.fetch_sub(bytes, AcqRel);
    }

    /// Takes a block that has its pages to itself: both sums at once.
    pub fn take_block(&self, device: usize, bytes: u64) -> bool {
        let taken = self.take_pages(device, bytes);
        if taken {
            self.add_block(device, bytes);
        }
        taken
    }

    /// Gives back what [`Process::take_block`] took.
    pub fn give_block(&self, device: usize, bytes: u64) {
        self.remove_block(device, bytes);
        self.give_pages(device, bytes);
    }

    /// What this process holds on `device`.
    pub fn held(&self, device: usize) -> crate::truth::Held {
        read(&self.slot.held[device])
    }

    /// Bytes of pages that this process holds, overhead included: what NVML reports for it.
    pub fn pages(&self, device: usize) -> u64 {
        self.slot.held[device].pages.load(Acquire)
    }

    /// Adds one to the counter `index` (from [`counter`]); returns how many there are now.
    #[inline]
    pub fn count(&self, index: usize) -> u64 {
        self.slot.calls[index].fetch_add(1, Relaxed) + 1
    }

    /// The index of the counter called `name`, for [`Process::count`]. Keep it: this hashes and probes.
    pub fn counter(&self, name: &str) -> usize {
        counter(self.books.layout(), name).unwrap_or(COUNTERS - 1)
    }
}

/// The index of `name` among the counters, taken if it is new; `None` when the table is full.
fn counter(layout: &Layout, name: &str) -> Option<usize> {
    let hash = hash(name);
    for index in probe(hash) {
        let entry = &layout.names[index];
        let found = match entry.hash.compare_exchange(0, hash, AcqRel, Acquire) {
            Ok(_) => hash,
            Err(found) => found,
        };
        if found == hash {
            // Idempotent: whoever comes writes the same bytes, so a writer that died half way does no harm.
            for (byte, cell) in name.bytes().take(NAME_BYTES).zip(&entry.text) {
                cell.store(byte, Relaxed);
            }
            return Some(index);
        }
    }
    None
}

/// The index of `name` if anybody counted it.
pub(crate) fn find_counter(layout: &Layout, name: &str) -> Option<usize> {
    let hash = hash(name);
    for index in probe(hash) {
        match layout.names[index].hash.load(Acquire) {
            0 => return None,
            found if found == hash => return Some(index),
            _ => {}
        }
    }
    None
}

/// The last entry is left for what finds no place.
fn probe(hash: u64) -> impl Iterator<Item = usize> {
    let places = COUNTERS - 1;
    let first = usize::try_from(hash % (places as u64)).unwrap_or(0);
    (first..places).chain(0..first)
}

/// FNV-1a, never 0.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

/// Adds `bytes` unless the sum would pass `limit`; the new sum.
#[inline]
pub(crate) fn add_within(sum: &AtomicU64, bytes: u64, limit: u64) -> Option<u64> {
    let mut now = sum.load(Acquire);
    loop {
        let next = now.checked_add(bytes).filter(|next| *next <= limit)?;
        match sum.compare_exchange_weak(now, next, AcqRel, Acquire) {
            Ok(_) => return Some(next),
            Err(other) => now = other,
        }
    }
}

/// Raises a high-water mark; the common case is one load.
#[inline]
pub(crate) fn raise(mark: &AtomicU64, value: u64) {
    if mark.load(Relaxed) < value {
        mark.fetch_max(value, Release);
    }
}

/// What one account says at this moment.
pub(crate) fn read(account: &Account) -> crate::truth::Held {
    crate::truth::Held {
        blocks: account.blocks.load(Acquire),
        pages: account.pages.load(Acquire),
        overhead: account.overhead.load(Acquire),
        peak_blocks: account.peak_blocks.load(Acquire),
        peak_pages: account.peak_pages.load(Acquire),
    }
}
