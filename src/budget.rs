//! One device's budget: bytes are reserved before the driver is asked, then committed or cancelled, and no two callers can both
//! pass on the last ones.
//!
//! The counters are taken by reference, because a group's budget lives in memory that its processes share. A reservation costs one
//! compare-and-swap, a commit none unless the peak moves, a release one. Nothing that fits is refused because of a race: a refusal
//! may have leaned on a reservation whose driver call then fails, so [`Budget::reserve_or_wait`] lets those that were in flight end
//! and tries again if one of them gave bytes back.

mod lanes;
#[cfg(all(test, loom))]
mod models;
mod settle;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::sync::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
pub use lanes::Lane;
use lanes::Lanes;
pub use settle::{Quiet, Working};

/// The limit of a device that has none.
pub const UNCAPPED: u64 = u64::MAX;

/// One device's counters, in bytes but for the counts. All zero is a valid start.
///
/// Three cache lines: what every allocation writes, what it reads and seldom writes, and what only refusals and cancellations touch.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Cells {
    every: Every,
    seldom: Seldom,
    refusals: Refusals,
    lanes: Lanes,
}

#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Every {
    held: AtomicU64,
    /// See [`settle`].
    possible: AtomicU64,
}

#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Seldom {
    overhead: AtomicU64,
    peak: AtomicU64,
    cached: AtomicU64,
    managed: AtomicU64,
    /// The overhead of the last good reading while no managed memory was held.
    floor: AtomicU64,
}

#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Refusals {
    /// How often a reservation gave bytes back.
    given_back: AtomicU64,
    denied: AtomicU64,
    denied_bytes: AtomicU64,
}

/// What a refusal saw, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Taken from the driver or reserved at that moment.
    pub held: u64,
    /// The overhead at that moment.
    pub overhead: u64,
}

/// The counters of a device with its limit. Copy it freely; it is two words.
#[derive(Clone, Copy, Debug)]
pub struct Budget<'a> {
    cells: &'a Cells,
    limit: u64,
    /// What a reservation may reach; less than the limit where a reading is due before it is approached.
    bound: u64,
}

impl<'a> Budget<'a> {
    /// A budget of `limit` bytes ([`UNCAPPED`] for none) over these counters.
    #[must_use]
    pub const fn new(cells: &'a Cells, limit: u64) -> Self {
        Self { cells, limit, bound: limit }
    }

    /// The same budget for reservations that leave `margin` bytes to the limit.
    #[must_use]
    pub const fn short_of(&self, margin: u64) -> Self {
        let bound = if self.limit == UNCAPPED { UNCAPPED } else { self.limit.saturating_sub(margin) };
        Self { bound, ..*self }
    }

    /// The limit in bytes.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Reserves `bytes` if held + overhead + bytes is within the limit at one instant. Zero bytes always fit. Threads that have
    /// no lane of their own pass [`Lane::SHARED`].
    #[inline]
    pub fn reserve(&self, lane: Lane, bytes: u64) -> Result<Reservation<'a>, Refused> {
        self.reserve_packed(lane, bytes, 0)
    }

    /// As [`Budget::reserve`], for a block that may take up to `risk` bytes of the device beyond its own.
    #[inline]
    pub fn reserve_packed(&self, lane: Lane, bytes: u64, risk: u64) -> Result<Reservation<'a>, Refused> {
        self.cells.lanes.enter(lane);
        if risk > 0 {
            self.suspect(risk);
        }
        match self.try_add(bytes) {
            Ok(after) => Ok(Reservation { budget: *self, lane, bytes, risk, after }),
            Err(refused) => {
                self.unsuspect(risk);
                self.cells.lanes.leave(lane);
                Err(refused)
            }
        }
    }

    /// As [`Budget::reserve`], but a refusal is final only if every byte it counted stayed: it waits for the reservations that were
    /// in flight, and tries again if any of them gave bytes back. `settle` is called between looks (yield, or sleep a little) and
    /// ends the wait by returning false: the refusal then stands. A request beyond the limit by itself does not wait.
    ///
    /// Not while the caller has a reservation of this budget on the shared lane: it would wait for itself.
    pub fn reserve_or_wait(
        &self,
        lane: Lane,
        bytes: u64,
        settle: impl FnMut() -> bool,
    ) -> Result<Reservation<'a>, Refused> {
        self.reserve_packed_or_wait(lane, bytes, 0, settle)
    }

    /// As [`Budget::reserve_or_wait`], for a block that may take up to `risk` bytes of the device beyond its own.
    pub fn reserve_packed_or_wait(
        &self,
        lane: Lane,
        bytes: u64,
        risk: u64,
        mut settle: impl FnMut() -> bool,
    ) -> Result<Reservation<'a>, Refused> {
        loop {
            // Read first: a reservation that `held` still counts can't have given back before this.
            let before = self.cells.refusals.given_back.load(Acquire);
            let refused = match self.reserve_packed(lane, bytes, risk) {
                Ok(reservation) => return Ok(reservation),
                Err(refused) => refused,
            };
            let alone = bytes.checked_add(refused.overhead).is_some_and(|sum| sum <= self.limit);
            if !alone
                || !self.cells.lanes.wait(lane, &mut settle)
                || self.cells.refusals.given_back.load(Acquire) == before
            {
                return Err(refused);
            }
        }
    }

    /// Adds to held if it fits and returns held afterwards (0 for zero bytes, which always fit); the caller owes a [`Budget::release`]. For charges that are levels
    /// and not blocks; everything else reserves.
    #[inline]
    pub fn try_add(&self, bytes: u64) -> Result<u64, Refused> {
        let cell = &self.cells.every.held;
        if bytes == 0 {
            return Ok(0);
        }
        let mut held = cell.load(Acquire);
        loop {
            let overhead = self.cells.seldom.overhead.load(Relaxed);
            let beside = overhead.saturating_add(self.cells.every.possible.load(Relaxed));
            let after = held.checked_add(bytes);
            let Some(after) = after.filter(|a| a.checked_add(beside).is_some_and(|used| used <= self.bound)) else {
                return Err(Refused { held, overhead });
            };
            match cell.compare_exchange_weak(held, after, AcqRel, Acquire) {
                Ok(_) => return Ok(after),
                Err(now) => held = now,
            }
        }
    }

    /// Adds bytes that the driver has already given, even beyond the limit: what is there must be counted.
    pub fn charge(&self, bytes: u64) {
        if bytes > 0 {
            let after = self.cells.every.held.fetch_add(bytes, AcqRel).wrapping_add(bytes);
            self.raise_peak(after);
        }
    }

    /// Takes committed bytes off held, once the driver has them back.
    #[inline]
    pub fn release(&self, bytes: u64) {
        let before = self.cells.every.held.fetch_sub(bytes, AcqRel);
        debug_assert!(before >= bytes, "released {bytes} of {before} held");
    }

    /// Raises the peak to `held`, a value that [`Budget::try_add`] returned, once the driver has really given it.
    #[inline]
    pub fn raise_peak(&self, held: u64) {
        if held > self.cells.seldom.peak.load(Relaxed) {
            self.cells.seldom.peak.fetch_max(held, Release);
        }
    }

    /// Bytes of a reservation that come back unused. Counted, so that those refused because of them try again.
    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.release(bytes);
            self.cells.refusals.given_back.fetch_add(1, Release);
        }
    }

    /// Counts one refusal of `bytes`.
    pub fn note_denied(&self, bytes: u64) {
        self.cells.refusals.denied.fetch_add(1, Relaxed);
        self.cells.refusals.denied_bytes.fetch_add(bytes, Relaxed);
    }

    /// Sets the device memory of the process that no allocation call accounts for.
    pub fn set_overhead(&self, bytes: u64) {
        self.cells.seldom.overhead.store(bytes, Release);
    }

    /// Moves held bytes from live to cached.
    pub fn cache(&self, bytes: u64) {
        self.cells.seldom.cached.fetch_add(bytes, AcqRel);
    }

    /// Moves held bytes from cached to live (or, with a release after it, out).
    pub fn uncache(&self, bytes: u64) {
        let before = self.cells.seldom.cached.fetch_sub(bytes, AcqRel);
        debug_assert!(before >= bytes, "uncached {bytes} of {before} cached");
    }

    /// Bytes taken from the driver and not given back, reservations in flight included.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.cells.every.held.load(Acquire)
    }

    /// Held bytes that nobody uses.
    #[must_use]
    pub fn cached(&self) -> u64 {
        self.cells.seldom.cached.load(Acquire)
    }

    /// Bytes that the program holds: held − cached.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.held().saturating_sub(self.cached())
    }

    /// The overhead last set.
    #[must_use]
    pub fn overhead(&self) -> u64 {
        self.cells.seldom.overhead.load(Acquire)
    }

    /// The high-water mark of held: never below what the driver had given at any instant, above it only by what was in flight
    /// beside a committed reservation and then failed.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.cells.seldom.peak.load(Acquire)
    }

    /// Refusals so far.
    #[must_use]
    pub fn denied(&self) -> u64 {
        self.cells.refusals.denied.load(Relaxed)
    }

    /// Bytes refused so far.
    #[must_use]
    pub fn denied_bytes(&self) -> u64 {
        self.cells.refusals.denied_bytes.load(Relaxed)
    }
}

/// Bytes set aside while the driver is asked. Dropped, it is cancelled.
#[must_use = "dropping a reservation cancels it"]
#[derive(Debug)]
pub struct Reservation<'a> {
    budget: Budget<'a>,
    lane: Lane,
    bytes: u64,
    risk: u64,
    /// Held as this reservation's own compare-and-swap left it. The last to reserve of any set of blocks that exist together saw
    /// them all, so this is what the peak is taken from: held at commit may have fallen since.
    after: u64,
}

impl<'a> Reservation<'a> {
    /// The bytes set aside.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The driver gave it: the bytes stay in held until a [`Budget::release`].
    #[inline]
    pub fn commit(self) {
        self.budget.raise_peak(self.after);
        self.budget.cells.lanes.leave(self.lane);
        std::mem::forget(self);
    }

    /// The driver gave `actual` bytes. Less than reserved: the rest goes back. More: the rest is reserved too; where it does not
    /// fit, the reservation comes back as it was, for the caller to undo what the driver did and drop it.
    pub fn commit_as(mut self, actual: u64) -> Result<(), (Self, Refused)> {
        if actual > self.bytes {
            match self.budget.try_add(actual - self.bytes) {
                Ok(after) => self.after = after,
                Err(refused) => return Err((self, refused)),
            }
        } else {
            let rest = self.bytes - actual;
            self.after -= rest;
            self.budget.give_back(rest);
        }
        self.bytes = actual;
        self.commit();
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    // By value into the cold part, so that the hot one keeps the reservation in registers.
    #[inline]
    fn drop(&mut self) {
        cancel(self.budget, self.lane, self.bytes, self.risk);
    }
}

#[cold]
fn cancel(budget: Budget<'_>, lane: Lane, bytes: u64, risk: u64) {
    budget.unsuspect(risk);
    budget.give_back(bytes);
    budget.cells.lanes.leave(lane);
}
