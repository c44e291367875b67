//! Which context owns a block: contexts and incarnations of primary contexts as small slot numbers.
//!
//! Memory from `cuMemAlloc` dies with its context, so each block remembers its owner. A context is one slot. A primary
//! context keeps its handle for ever but dies and comes back, so it has a slot for each incarnation: before a call that
//! may end one, later allocations are moved to a fresh slot (`retired` holds the old one until the driver's answer is
//! known), and then exactly the blocks of the dead incarnation are dropped, whatever other threads allocated meanwhile.
//!
//! A slot is dropped by one thread only, is marked before that (so that a block kept afterwards is noticed), and rests for
//! a while before it means another context; it means one of the same device then, so that no charge changes devices.

mod primary;

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::code::Code;
use crate::driver::Driver;
use crate::sync::Mutex;

pub use primary::{Ended, Ending, Moved};

/// Contexts that can be told apart at one time; more share the last slot's fate of being found by no handle.
const SLOTS: usize = 1024;

/// Slots of a device that rest before the first of them is used again.
const RESTING: usize = 8;

/// Beside a slot's device: its blocks are being dropped, or it is free.
const OVER: u32 = 1 << 31;

/// Beside a slot's device: somebody was told to allocate for it since it was opened. Only kept while it is [`Slot::new`].
const USED: u32 = 1 << 30;

/// A slot's device without the marks beside it.
fn device_in(word: u32) -> u32 {
    word & !(OVER | USED)
}

/// Owner of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Slot number, as the ledger keeps it.
    pub slot: u16,
    /// Ordinal of the context's device.
    pub device: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Current,
    Retired,
    /// Its blocks are being dropped.
    Dropping,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    device: u32,
    primary: bool,
    /// Retains of a primary context, attaches of another, as far as we saw them.
    usage: u32,
    id: Option<u64>,
    /// When it became free, in frees of slots.
    freed: u64,
    /// Free, and not looked through for late blocks since.
    unswept: bool,
    /// Opened by a call that may have ended the incarnation before, which is not known yet.
    new: bool,
}

const EMPTY: Slot =
    Slot { state: State::Free, device: 0, primary: false, usage: 0, id: None, freed: 0, unswept: false, new: false };

/// The process's contexts. Reads take no lock.
#[derive(Debug)]
pub struct Contexts {
    /// Slot number + 1 of the only context of the only device; 0 where the current context must be asked for.
    only: AtomicU32,
    one_device: bool,
    /// Handle and device of each slot; handle 0 where the slot is found by no handle, [`OVER`] and [`USED`] beside the
    /// device.
    handles: Box<[(AtomicUsize, AtomicU32)]>,
    /// How many slots can be told apart; behind them one for each device, for contexts that are too many.
    single: usize,
    slots: Mutex<Vec<Slot>>,
    /// How often primary contexts were retained.
    retains: AtomicU64,
}

impl Contexts {
    /// Books for a process that sees `devices` devices.
    #[must_use]
    pub fn new(devices: usize) -> Self {
        let single = SLOTS.saturating_sub(devices.max(1));
        let device = |at: usize| u32::from(slot_number(at.saturating_sub(single)));
        Contexts {
            only: AtomicU32::new(0),
            one_device: devices == 1,
            handles: (0..SLOTS).map(|at| (AtomicUsize::new(0), AtomicU32::new(device(at)))).collect(),
            single,
            slots: Mutex::new(Vec::new()),
            retains: AtomicU64::new(0),
        }
    }

    /// Owner of what the calling thread allocates now.
    ///
    /// # Errors
    /// The driver's code where no context is current.
    pub fn owner(&self, driver: &impl Driver) -> Result<Owner, Code> {
        match self.only.load(Ordering::Acquire) {
            0 => self.owner_of_current(driver),
            only => Ok(Owner { slot: slot_number(only as usize - 1), device: 0 }),
        }
    }

    #[cold]
    fn owner_of_current(&self, driver: &impl Driver) -> Result<Owner, Code> {
        let handle = driver.current_context()?.ok_or(Code::INVALID_CONTEXT)?;
        if let Some(owner) = self.find(handle) {
            let word = &self.handles[usize::from(owner.slot)].1;
            if word.load(Ordering::Relaxed) & USED == 0 {
                word.fetch_or(USED, Ordering::AcqRel);
            }
            return Ok(owner);
        }
        // A context that was made past us, or by a call that we do not hook.
        let device = driver.current_device()?;
        let mut slots = self.slots.lock();
        let other = self.scan(handle);
        Ok(other.unwrap_or_else(|| self.enter(&mut slots, handle, device)))
    }

    /// Owner of what the driver has given by now to a thread that began as `owner`: the next one on the same device if that
    /// one may have died meanwhile. What died with it is then charged for too long and never for too short a time.
    #[inline]
    pub fn still(&self, driver: &impl Driver, owner: Owner) -> Owner {
        let handle = self.handles.get(usize::from(owner.slot)).map(|(handle, _)| handle);
        if handle.is_some_and(|handle| handle.load(Ordering::Acquire) != 0) {
            return owner;
        }
        let now = self.owner(driver).ok();
        now.filter(|now| now.device == owner.device).unwrap_or(owner)
    }

    /// Owner that a context handle stands for.
    pub fn find(&self, handle: usize) -> Option<Owner> {
        // A handle that moves to a slot that was looked at already is missed, but not while nothing moves.
        self.scan(handle).or_else(|| {
            let _still = self.slots.lock();
            self.scan(handle)
        })
    }

    fn scan(&self, handle: usize) -> Option<Owner> {
        let at = self.handles.iter().position(|(known, _)| known.load(Ordering::Acquire) == handle)?;
        Some(Owner { slot: slot_number(at), device: device_in(self.handles[at].1.load(Ordering::Acquire)) })
    }

    /// Device of a slot, in use or not.
    pub fn device_of(&self, slot: u16) -> Option<u32> {
        self.handles.get(usize::from(slot)).map(|(_, word)| device_in(word.load(Ordering::Acquire)))
    }

    /// Whether a slot's blocks were dropped, or are being so: a block that is kept for it now comes too late.
    #[inline]
    pub fn is_over(&self, slot: u16) -> bool {
        self.handles.get(usize::from(slot)).is_some_and(|(_, word)| word.load(Ordering::Acquire) & OVER != 0)
    }

    /// Slots of a device that became free since this was asked last: what was kept for them late is dead too.
    pub fn to_sweep(&self, device: u32) -> Vec<u16> {
        let mut slots = self.slots.lock();
        let late = slots.iter_mut().enumerate().filter(|(_, s)| s.unswept && s.device == device);
        late.map(|(at, slot)| {
            slot.unswept = false;
            slot_number(at)
        })
        .collect()
    }

    /// A context was created. A handle known from a dead context now means this one.
    pub fn created(&self, handle: usize, device: u32) -> Owner {
        let mut slots = self.slots.lock();
        if let Some(old) = self.scan(handle) {
            self.handles[usize::from(old.slot)].0.store(0, Ordering::Release);
        }
        self.enter(&mut slots, handle, device)
    }

    fn enter(&self, slots: &mut Vec<Slot>, handle: usize, device: u32) -> Owner {
        let at = self.open(slots, handle, Slot { state: State::Current, device, usage: 1, ..EMPTY });
        self.recount(slots);
        Owner { slot: slot_number(at), device }
    }

    /// `cuCtxAttach` succeeded: one more detach until the context ends.
    pub fn attached(&self, handle: usize) {
        let mut slots = self.slots.lock();
        if let Some(slot) = self.scan(handle).and_then(|owner| slots.get_mut(usize::from(owner.slot))) {
            slot.usage += 1;
        }
    }

    /// `cuCtxDetach` succeeded: whether that was the last one.
    pub fn detached(&self, handle: usize) -> bool {
        let mut slots = self.slots.lock();
        self.scan(handle).and_then(|owner| slots.get_mut(usize::from(owner.slot))).is_some_and(|slot| {
            slot.usage = slot.usage.saturating_sub(1);
            slot.usage == 0
        })
    }

    /// A context's owner was destroyed by the driver. Returns its slot, whose blocks are gone.
    pub fn destroyed(&self, owner: Owner) -> Vec<u16> {
        let mut slots = self.slots.lock();
        let at = usize::from(owner.slot);
        let lives = |slot: &&Slot| matches!(slot.state, State::Current | State::Retired);
        if at >= self.single || slots.get(at).filter(lives).is_none() {
            return Vec::new();
        }
        self.handles[at].0.store(0, Ordering::Release);
        self.end(&mut slots, at);
        self.recount(&mut slots);
        vec![owner.slot]
    }

    /// The blocks of these slots were dropped: the slots may be used again.
    pub fn dropped(&self, dead: &[u16]) {
        let mut slots = self.slots.lock();
        for &slot in dead {
            self.close(&mut slots, usize::from(slot));
        }
        self.recount(&mut slots);
    }

    /// Moves a current slot's handle to a fresh slot; the old one waits to be dropped.
    fn retire(&self, slots: &mut Vec<Slot>, at: usize) {
        let handle = self.handles[at].0.load(Ordering::Relaxed);
        let next = Slot { id: None, new: true, ..slots[at] };
        slots[at].state = State::Retired;
        // The successor is there before the old slot loses its handle, so that no reader finds neither.
        self.open(slots, handle, next);
        self.handles[at].0.store(0, Ordering::Release);
    }

    fn open(&self, slots: &mut Vec<Slot>, handle: usize, slot: Slot) -> usize {
        let full = slots.len() >= self.single;
        let at = match reusable(slots, slot.device, full) {
            Some(at) => at,
            None if !full => {
                slots.push(EMPTY);
                slots.len() - 1
            }
            // A program with over a thousand living contexts: the rest share a slot that is found by no handle and that is
            // never dropped.
            None => return (self.single + slot.device as usize).min(SLOTS - 1),
        };
        slots[at] = slot;
        self.handles[at].1.store(slot.device, Ordering::Release);
        self.handles[at].0.store(handle, Ordering::Release);
        at
    }

    /// Marks a slot before its blocks are dropped.
    fn end(&self, slots: &mut [Slot], at: usize) {
        slots[at].state = State::Dropping;
        self.handles[at].1.fetch_or(OVER, Ordering::AcqRel);
    }

    /// Marks the retired slots of a device that are dead, for the caller alone to drop their blocks.
    fn end_retired(&self, slots: &mut [Slot], device: u32, is_dead: impl Fn(usize, &Slot) -> bool) -> Vec<u16> {
        let dead: Vec<usize> = slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.state == State::Retired && slot.device == device)
            .filter(|(at, slot)| is_dead(*at, slot))
            .map(|(at, _)| at)
            .collect();
        for &at in &dead {
            self.end(slots, at);
        }
        dead.into_iter().map(slot_number).collect()
    }

    fn close(&self, slots: &mut [Slot], at: usize) {
        let frees = slots.iter().map(|slot| slot.freed).max().unwrap_or(0);
        if let Some(slot) = slots.get_mut(at) {
            *slot = Slot { device: slot.device, freed: frees + 1, unswept: true, ..EMPTY };
        }
    }

    fn recount(&self, slots: &mut [Slot]) {
        for at in 0..slots.len() {
            let device = slots[at].device;
            let pending = |s: &Slot| s.state == State::Retired && s.device == device;
            slots[at].new = slots[at].new && slots.iter().any(pending);
        }
        let mut current = slots.iter().enumerate().filter(|(_, s)| s.state == State::Current);
        let only = match (current.next(), current.next()) {
            // A new one is told to those who ask for it one by one, so that it is known whether it was.
            (Some((at, slot)), None) if self.one_device && !slot.new => u32::from(slot_number(at)) + 1,
            _ => 0,
        };
        self.only.store(only, Ordering::Release);
    }
}

/// The free slot of a device that has rested for the longest time, if enough of them rest.
fn reusable(slots: &[Slot], device: u32, full: bool) -> Option<usize> {
    let free = |s: &Slot| s.state == State::Free && s.device == device && !s.unswept;
    let resting = || slots.iter().enumerate().filter(|(_, slot)| free(slot));
    if !full && resting().count() < RESTING {
        return None;
    }
    resting().min_by_key(|(_, slot)| slot.freed).map(|(at, _)| at)
}

/// The slot that a device's primary context has now.
fn current_primary(slots: &[Slot], device: u32) -> Option<usize> {
    slots.iter().position(|s| s.primary && s.state == State::Current && s.device == device)
}

fn slot_number(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests;
