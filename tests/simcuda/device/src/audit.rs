//! Recounts the books after a process died, whatever instruction it was at.
//!
//! A change of the books touches two words, the process's and the device's. A process that is killed between them leaves
//! the device's sum wrong, so nobody subtracts a dead process's share: the sum is counted anew from the living. For the
//! moment this takes, changes wait (`busy` of every living slot must be 0), and a dead auditor's place is taken over.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::layout::{DEAD, LIVE, Layout, Slot};
use crate::process::{identity_is_alive, is_alive, own_identity};
use crate::shared;

/// A living process stopped by a debugger inside a change must not stop the others for ever.
const PATIENCE: Duration = Duration::from_secs(2);

/// Gives back what dead processes held. Returns whether there were any.
pub(crate) fn reap(layout: &Layout) -> bool {
    let dead: Vec<&Slot> =
        layout.slots.iter().filter(|slot| slot.state.load(Acquire) == LIVE && !is_alive(layout, slot)).collect();
    if dead.is_empty() && layout.orphans.load(Acquire) == 0 {
        return false;
    }
    exclusive(layout, || recount(layout, &dead))
}

/// Runs `change` while nobody else recounts, and nobody begins a change of the books.
pub(crate) fn exclusive<R>(layout: &Layout, change: impl FnOnce() -> R) -> R {
    while layout.auditor.compare_exchange(0, own_identity(), SeqCst, Relaxed).is_err() {
        wait(layout);
    }
    let result = change();
    layout.auditor.store(0, Release);
    result
}

fn recount(layout: &Layout, dead: &[&Slot]) -> bool {
    let start = Instant::now();
    let quiet = |slot: &Slot| slot.state.load(Acquire) != LIVE || slot.busy.load(SeqCst) == 0;
    for slot in &layout.slots {
        while !quiet(slot) && !dead.iter().any(|gone| std::ptr::eq(*gone, slot)) {
            if !is_alive(layout, slot) {
                break; // died just now: the next audit's
            }
            if start.elapsed() > PATIENCE {
                return false;
            }
            thread::yield_now();
        }
    }
    for slot in dead {
        // Another audit may have come first, and a new process may have the slot now.
        if slot.state.load(Acquire) != LIVE || is_alive(layout, slot) {
            continue;
        }
        for account in &slot.held {
            account.blocks.store(0, Relaxed);
            account.pages.store(0, Relaxed);
            account.overhead.store(0, Relaxed);
        }
        slot.busy.store(0, Relaxed);
        slot.state.store(DEAD, Release);
    }
    shared::recount(layout);
    for (index, device) in layout.device.iter().enumerate() {
        let held = |slot: &Slot| slot.held[index].pages.load(Relaxed);
        let all: u64 = layout.slots.iter().map(held).sum();
        device.used.store(all + device.foreign.load(Relaxed), Release);
    }
    true
}

/// Enters a change of `slot`'s books: from here to [`leave`] no audit counts.
#[inline]
pub(crate) fn enter(layout: &Layout, slot: &Slot) {
    loop {
        slot.busy.fetch_add(1, SeqCst);
        if layout.auditor.load(SeqCst) == 0 {
            return;
        }
        slot.busy.fetch_sub(1, SeqCst);
        wait(layout);
    }
}

/// Ends what [`enter`] began.
#[inline]
pub(crate) fn leave(slot: &Slot) {
    slot.busy.fetch_sub(1, SeqCst);
}

/// Waits until nobody audits.
#[cold]
fn wait(layout: &Layout) {
    for round in 1_u32.. {
        let auditor = layout.auditor.load(Acquire);
        if auditor == 0 {
            return;
        }
        if round.is_multiple_of(1024) && !identity_is_alive(auditor) {
            // It changed nothing that the next audit does not do again.
            let _ = layout.auditor.compare_exchange(auditor, 0, AcqRel, Relaxed);
        }
        thread::yield_now();
    }
}
