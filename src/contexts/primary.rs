//! Primary contexts: they die and come back under one handle, and the driver's answers tell which incarnation a block is of.

use std::sync::atomic::Ordering;

use super::{Contexts, EMPTY, Slot, State, USED, current_primary, slot_number};

/// A primary context that a call may end: what to settle once the driver has answered.
#[must_use]
#[derive(Debug)]
pub struct Ending {
    device: u32,
    retired: Option<usize>,
}

/// What a call has ended.
#[must_use]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Slots whose blocks are gone.
    pub dead: Vec<u16>,
    /// Two slots that have turned out to be one.
    pub moved: Option<Moved>,
}

/// Blocks that belong to another slot from now on; the old one is to be dropped then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Whose they were.
    pub from: u16,
    /// Whose they are.
    pub to: u16,
    /// There are none.
    pub empty: bool,
}

impl Ending {
    /// Whether others hold the context still, as far as we saw it retained.
    pub fn leaves_it_alive(&self) -> bool {
        self.retired.is_none()
    }
}

impl Contexts {
    /// Handle of a device's primary context, once it has been retained.
    pub fn primary_handle(&self, device: u32) -> Option<usize> {
        let slots = self.slots.lock();
        let at = current_primary(&slots, device)?;
        Some(self.handles[at].0.load(Ordering::Acquire)).filter(|handle| *handle != 0)
    }

    /// A primary context was retained. Returns the slots of incarnations that this shows to be dead.
    pub fn primary_retained(&self, handle: usize, device: u32, id: Option<u64>) -> Vec<u16> {
        let mut slots = self.slots.lock();
        self.retains.fetch_add(1, Ordering::Release);
        let mut dead = Vec::new();
        let at = match self.scan(handle) {
            Some(owner) => {
                let at = usize::from(owner.slot);
                let known = slots.get(at).and_then(|slot| slot.id);
                if known.is_some() && id.is_some() && known != id {
                    self.retire(&mut slots, at);
                    dead = self.end_retired(&mut slots, device, |_, slot| slot.id != id);
                }
                self.scan(handle).map_or(at, |owner| usize::from(owner.slot))
            }
            None => self.open(&mut slots, handle, Slot { state: State::Current, device, ..EMPTY }),
        };
        if let Some(slot) = slots.get_mut(at) {
            slot.primary = true;
            slot.usage += 1;
            slot.id = id.or(slot.id);
        }
        self.recount(&mut slots);
        dead
    }

    /// A primary context is about to be released, or reset (`all`): allocations from now on belong to the next one.
    pub fn primary_ending(&self, device: u32, all: bool) -> Ending {
        let mut slots = self.slots.lock();
        let current = current_primary(&slots, device);
        let mut ending = Ending { device, retired: None };
        if let Some(at) = current {
            let last = slots[at].usage <= 1;
            if !all {
                slots[at].usage = slots[at].usage.saturating_sub(1);
            }
            if last || all {
                self.retire(&mut slots, at);
                ending.retired = Some(at);
            }
        }
        self.recount(&mut slots);
        ending
    }

    /// The driver refused to release or reset: nothing ended.
    pub fn primary_lives(&self, ending: &Ending, all: bool) -> Option<Moved> {
        let mut slots = self.slots.lock();
        let current = current_primary(&slots, ending.device)?;
        if !all {
            slots[current].usage += 1;
        }
        let retired = ending.retired.filter(|at| slots[*at].state == State::Retired);
        let moved = retired.map(|retired| self.lived(&mut slots, retired, current));
        self.recount(&mut slots);
        moved
    }

    /// How often primary contexts were retained, to tell whether the driver's answer about one is still true.
    pub fn retains(&self) -> u64 {
        self.retains.load(Ordering::Acquire)
    }

    /// The driver released or reset: what became of the slots. `alive`: the context's id (if the driver has ids) where it
    /// is alive, asked after `retains` was read; `None` is returned where that answer is too old, and it must be asked
    /// again. The id tells a context that lived on from one that died and came back at once.
    pub fn primary_ended(&self, ending: &Ending, all: bool, alive: Option<Option<u64>>, retains: u64) -> Option<Ended> {
        let mut slots = self.slots.lock();
        if self.retains() != retains {
            return None;
        }
        let device = ending.device;
        let mut ended = Ended::default();
        let current = current_primary(&slots, device);
        if let Some(id) = alive {
            let other = |slot: &Slot| slot.id.is_some() && id.is_some() && slot.id != id;
            ended.dead =
                self.end_retired(&mut slots, device, |at, slot| (all && ending.retired == Some(at)) || other(slot));
            let lived = ending.retired.filter(|at| slots[*at].state == State::Retired);
            if let (Some(retired), Some(current)) = (lived, current) {
                ended.moved = Some(self.lived(&mut slots, retired, current));
            }
        } else {
            // Whoever we thought held it, and whatever came into it meanwhile: it is all gone.
            if let Some(at) = current {
                self.retire(&mut slots, at);
            }
            ended.dead = self.end_retired(&mut slots, device, |_, _| true);
        }
        self.recount(&mut slots);
        Some(ended)
    }

    /// The incarnation of a retired slot lives on: one of the two slots takes in what the other has. The older one stays,
    /// which has most.
    fn lived(&self, slots: &mut [Slot], retired: usize, current: usize) -> Moved {
        let (from, to) =
            if slots[current].new && !slots[retired].new { (current, retired) } else { (retired, current) };
        slots[to].state = State::Current;
        slots[to].usage = slots[current].usage;
        slots[to].id = slots[to].id.or(slots[from].id);
        let handle = self.handles[current].0.load(Ordering::Relaxed);
        self.handles[to].0.store(handle, Ordering::Release);
        if from != to {
            self.handles[from].0.store(0, Ordering::Release);
        }
        let empty = slots[from].new && self.handles[from].1.load(Ordering::Acquire) & USED == 0;
        if !empty {
            self.handles[to].1.fetch_or(USED, Ordering::AcqRel);
        }
        self.end(slots, from);
        Moved { from: slot_number(from), to: slot_number(to), empty }
    }

    /// The blocks of a slot are another's: it may be used again.
    pub fn merged(&self, moved: Moved) {
        let mut slots = self.slots.lock();
        let at = usize::from(moved.from);
        self.close(&mut slots, at);
        slots[at].unswept = false;
    }
}
