//! The overhead as a reading of the process's footprint shows it, and what is possible beyond it between readings.
//!
//! Blocks below 1 MiB share the driver's 2 MiB pages, so a sum of blocks does not say what the device has lost. Between
//! readings each new small block is taken to need a page of its own, and a freed one to leave its page behind: that is
//! `possible`, counted in the limit but not in held. A reading replaces the guess by what was measured. It is good only
//! if nothing was in flight from before it to after it; otherwise it is taken again.

use super::lanes::{LANES, Lane};
use super::{Budget, Cells};
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::fence;

/// What a reading must find unchanged when it is over.
#[derive(Debug, PartialEq, Eq)]
pub struct Quiet {
    lanes: [u64; LANES],
    held: u64,
    possible: u64,
}

/// A free that is on its way: while it lives, no reading is believed.
#[derive(Debug)]
pub struct Working<'a> {
    cells: &'a Cells,
    lane: Lane,
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.cells.lanes.leave(self.lane);
    }
}

impl<'a> Budget<'a> {
    /// Marks a free as on its way, from before the driver is asked until its bytes are released.
    #[inline]
    pub fn working(&self, lane: Lane) -> Working<'a> {
        self.cells.lanes.enter(lane);
        // A reader must see the mark before the driver can have given anything back.
        fence(SeqCst);
        Working { cells: self.cells, lane }
    }

    /// The counters as they are while nothing is in flight; `None` while something is.
    #[must_use]
    pub fn quiet(&self) -> Option<Quiet> {
        Some(Quiet { lanes: self.cells.lanes.idle()?, held: self.held(), possible: self.possible() })
    }

    /// Takes the footprint in bytes that was measured since `quiet`: false if something moved meanwhile, so that it
    /// must be taken again. While managed memory is held the overhead is at least what it was without, because what is
    /// not resident of it hides as much of the overhead.
    pub fn settle(&self, quiet: &Quiet, footprint: u64) -> bool {
        if self.quiet().as_ref() != Some(quiet) {
            return false;
        }
        let measured = footprint.saturating_sub(quiet.held);
        let floor = &self.cells.seldom.floor;
        let known = if self.cells.seldom.managed.load(Acquire) > 0 {
            floor.load(Acquire)
        } else {
            floor.store(measured, Release);
            0
        };
        // The overhead first: for a moment both count, never neither.
        self.set_overhead(measured.max(known));
        let settled = self.cells.every.possible.compare_exchange(quiet.possible, 0, AcqRel, Acquire);
        settled.is_ok()
    }

    /// Bytes that may be in use beyond held and overhead.
    #[must_use]
    pub fn possible(&self) -> u64 {
        self.cells.every.possible.load(Acquire)
    }

    /// Counts bytes that may be in use from now on.
    #[inline]
    pub fn suspect(&self, bytes: u64) {
        self.cells.every.possible.fetch_add(bytes, AcqRel);
    }

    /// Takes back what an allocation made possible that then did not happen. A reading may have settled it already.
    pub fn unsuspect(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let _ = self.cells.every.possible.fetch_update(Release, Relaxed, |now| Some(now.saturating_sub(bytes)));
    }

    /// Counts managed memory that is held.
    pub fn hold_managed(&self, bytes: u64) {
        self.cells.seldom.managed.fetch_add(bytes, AcqRel);
    }

    /// Managed memory is gone.
    pub fn drop_managed(&self, bytes: u64) {
        let _ = self.cells.seldom.managed.fetch_update(Release, Relaxed, |now| Some(now.saturating_sub(bytes)));
    }
}
