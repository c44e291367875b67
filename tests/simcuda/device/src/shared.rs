//! Memory that several processes hold: who pays, and when it goes.
//!
//! Exported physical memory lives while any process holds it, or holds a descriptor of it open. The exporter
//! pays (in pages; its blocks end with its own last reference) until it dies; then one that still holds it does. All of
//! this is rare, so it is done while nobody recounts the books, and a recount puts right what a killed process left.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::audit;
use crate::layout::{LIVE, Layout, Object, SLOTS};
use crate::process::Process;

/// What the names of files with device memory begin with, before their number and a colon; /proc shows it.
pub const FILE_NAME: &str = "simcuda-memory:";

impl Process {
    /// A number for physical memory, unique on this machine; it goes into its file's name.
    pub fn new_object(&self) -> u64 {
        self.books.layout().object_numbers.fetch_add(1, Relaxed) + 1
    }

    /// From now on other processes may hold object `number`, which this process has taken as a block of `bytes`.
    /// False if there is no room to note it.
    pub fn share(&self, number: u64, device: usize, bytes: u64) -> bool {
        let layout = self.books.layout();
        audit::exclusive(layout, || {
            let Some(object) = layout.objects.iter().find(|object| object.number.load(Acquire) == 0) else {
                return false;
            };
            object.bytes.store(bytes, Relaxed);
            object.device.store(device as u64, Relaxed);
            object.payer.store(self.index() as u64, Relaxed);
            object.holders.iter().for_each(|word| word.store(0, Relaxed));
            object.hold(self.index());
            object.number.store(number, Release);
            true
        })
    }

    /// This process holds object `number` too. False if it is gone, or was never shared.
    pub fn hold_shared(&self, number: u64) -> bool {
        let layout = self.books.layout();
        audit::exclusive(layout, || {
            let object = find(layout, number);
            if let Some(object) = object {
                let was_orphan = !object.is_held();
                object.hold(self.index());
                layout.orphans.fetch_sub(u32::from(was_orphan), AcqRel);
            }
            object.is_some()
        })
    }

    /// This process no longer holds object `number`; its own descriptors are closed. `made`: it is the one that shared it,
    /// and its block ends here.
    pub fn drop_shared(&self, number: u64, made: bool) {
        let layout = self.books.layout();
        audit::exclusive(layout, || {
            let Some(object) = find(layout, number) else { return };
            if made {
                self.remove_block(object.device(), object.bytes.load(Relaxed));
            }
            object.release(self.index());
            if object.is_held() {
                return;
            }
            if is_open(number) {
                layout.orphans.fetch_add(1, AcqRel);
            } else {
                free(layout, object);
            }
        });
    }

    fn index(&self) -> usize {
        let slots = &self.books.layout().slots;
        slots.iter().position(|slot| std::ptr::eq(slot, self.slot)).unwrap_or(0)
    }
}

impl Object {
    fn device(&self) -> usize {
        usize::try_from(self.device.load(Relaxed)).unwrap_or(0)
    }

    fn word(&self, slot: usize) -> (&AtomicU64, u64) {
        (&self.holders[slot / 64], 1 << (slot % 64))
    }

    fn hold(&self, slot: usize) {
        let (word, bit) = self.word(slot);
        word.fetch_or(bit, AcqRel);
    }

    fn release(&self, slot: usize) {
        let (word, bit) = self.word(slot);
        word.fetch_and(!bit, AcqRel);
    }

    fn is_held(&self) -> bool {
        self.holders.iter().any(|word| word.load(Acquire) != 0)
    }

    fn first_holder(&self) -> Option<usize> {
        (0..SLOTS).find(|slot| {
            let (word, bit) = self.word(*slot);
            word.load(Acquire) & bit != 0
        })
    }
}

fn find(layout: &Layout, number: u64) -> Option<&Object> {
    layout.objects.iter().find(|object| object.number.load(Acquire) == number)
}

/// Gives the pages of an object back for whoever pays.
fn free(layout: &Layout, object: &Object) {
    let (device, bytes) = (object.device(), object.bytes.load(Relaxed));
    let payer = usize::try_from(object.payer.load(Relaxed)).unwrap_or(0);
    layout.device[device].used.fetch_sub(bytes, AcqRel);
    layout.slots[payer].held[device].pages.fetch_sub(bytes, AcqRel);
    object.number.store(0, Release);
}

/// Whether any process has a descriptor of object `number` open.
fn is_open(number: u64) -> bool {
    let wanted = format!("/memfd:{FILE_NAME}{number}:");
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let numbered = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit());
    processes.flatten().filter(numbered).any(|process| {
        fs::read_dir(process.path().join("fd")).is_ok_and(|files| {
            let links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
            links.into_iter().any(|link| link.to_string_lossy().starts_with(&wanted))
        })
    })
}

/// Part of a recount, after the accounts of the dead were emptied: nobody dead holds or pays any more. What the recount
/// sums up afterwards includes what is moved here.
pub(crate) fn recount(layout: &Layout) {
    let alive = |slot: usize| layout.slots[slot].state.load(Acquire) == LIVE;
    let mut orphans = 0;
    for object in layout.objects.iter().filter(|object| object.number.load(Acquire) != 0) {
        (0..SLOTS).filter(|slot| !alive(*slot)).for_each(|slot| object.release(slot));
        let payer = usize::try_from(object.payer.load(Relaxed)).unwrap_or(0);
        let pages = |slot: usize| &layout.slots[slot].held[object.device()].pages;
        let bytes = object.bytes.load(Relaxed);
        match (alive(payer), object.first_holder()) {
            (true, Some(_)) => {}
            (true, None) if is_open(object.number.load(Relaxed)) => orphans += 1,
            (true, None) => {
                pages(payer).fetch_sub(bytes, AcqRel);
                object.number.store(0, Release);
            }
            (false, Some(heir)) => {
                pages(heir).fetch_add(bytes, AcqRel);
                object.payer.store(heir as u64, Relaxed);
            }
            (false, None) => object.number.store(0, Release),
        }
    }
    layout.orphans.store(orphans, Release);
}
