//! Who is between a reservation and its outcome, written with plain stores, so that a refusal can wait for those it leaned on.
//!
//! A *lane* is one word: the low 16 bits count the reservations in flight on it, the rest counts how often it has come back to
//! none. A thread that owns a lane writes it with two plain stores on a cache line of its own; threads without one share the last
//! lane and pay two read-modify-writes. Once the count of returns has moved, every reservation that was in flight before has been
//! committed or cancelled.

use crate::sync::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Lanes of one device, a power of two: all but the last belong to one thread each.
#[cfg(not(loom))]
pub(super) const LANES: usize = 32;
#[cfg(loom)]
pub(super) const LANES: usize = 4;

const ONE: u64 = 1;
const RETURN: u64 = 1 << 16;
const DEPTH: u64 = RETURN - 1;

/// A lane by its number. `Lane::SHARED` is right for everybody; an owned one is cheaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(usize);

impl Lane {
    /// How many lanes can be owned.
    pub const OWNED: usize = LANES - 1;
    /// The lane that any number of threads may use at once.
    pub const SHARED: Lane = Lane(Self::OWNED);

    /// The `index`-th owned lane; at most one thread at a time may use it. From [`Lane::OWNED`] on it is the shared one.
    /// Breaking the rule can make a refusal wait in vain or not long enough; it never makes the budget wrong.
    #[must_use]
    pub const fn owned(index: usize) -> Lane {
        if index < Self::OWNED { Lane(index) } else { Self::SHARED }
    }
}

#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Word(AtomicU64);

/// All lanes of one device. All zero is a valid start.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Lanes([Word; LANES]);

impl Lanes {
    #[inline]
    fn word(&self, lane: Lane) -> &AtomicU64 {
        &self.0[lane.0 & (LANES - 1)].0
    }

    /// Before the compare-and-swap of a reservation: whoever sees its bytes sees it in flight, or its outcome.
    #[inline]
    pub(super) fn enter(&self, lane: Lane) {
        let word = self.word(lane);
        if lane == Lane::SHARED {
            word.fetch_add(ONE, Relaxed);
        } else {
            word.store(word.load(Relaxed) + ONE, Relaxed);
        }
    }

    /// After the outcome is visible in the counters.
    #[inline]
    pub(super) fn leave(&self, lane: Lane) {
        let word = self.word(lane);
        if lane == Lane::SHARED {
            let _ = word.fetch_update(Release, Relaxed, |now| Some(left(now)));
        } else {
            word.store(left(word.load(Relaxed)), Release);
        }
    }

    /// Every lane's count of returns, if nothing is in flight on any.
    pub(super) fn idle(&self) -> Option<[u64; LANES]> {
        let seen: [u64; LANES] = std::array::from_fn(|i| self.0[i].0.load(Acquire));
        seen.iter().all(|word| word & DEPTH == 0).then_some(seen)
    }

    /// Waits until everything that is in flight now is over, but for what is on the caller's own lane, calling `settle` before
    /// each further look. False when `settle` gave up.
    pub(super) fn wait(&self, own: Lane, mut settle: impl FnMut() -> bool) -> bool {
        let seen: [u64; LANES] = std::array::from_fn(|i| self.0[i].0.load(Acquire));
        for (i, seen) in seen.into_iter().enumerate() {
            if seen & DEPTH == 0 || (i == own.0 && own != Lane::SHARED) {
                continue;
            }
            loop {
                let now = self.0[i].0.load(Acquire);
                if now & DEPTH == 0 || now / RETURN != seen / RETURN {
                    break;
                }
                if !settle() {
                    return false;
                }
            }
        }
        true
    }
}

/// One fewer in flight; the last one counts the return.
#[inline]
fn left(word: u64) -> u64 {
    let word = word.wrapping_sub(ONE);
    if word & DEPTH == 0 { word.wrapping_add(RETURN) } else { word }
}
