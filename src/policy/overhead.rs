//! The overhead: what the process takes from a device beyond its allocations, read where it may have changed and where
//! an allocation comes near the limit.

use super::{Governor, OverheadRule};
use crate::budget::{Budget, Lane, Working};
use crate::driver::Driver;
use crate::ledger::{LARGE_STEP, SMALL_STEP};

/// Blocks below this share pages.
const SHARES_PAGES_BELOW: u64 = 1 << 20;

/// What a launch or a module may take unseen between two readings: readings are due from so far before the limit on.
const LEAST_MARGIN: u64 = 256 << 20;

/// Readings that are spoilt by other threads before one gives up and keeps what it knows.
const TRIES: u32 = 64;

/// Bytes short of the limit from which on every allocation is preceded by a reading: 256 MiB, or 2 % of the device.
pub(super) fn margin(rule: OverheadRule, device_total: u64) -> u64 {
    match rule {
        OverheadRule::Measured => LEAST_MARGIN.max(device_total / 50),
        OverheadRule::None | OverheadRule::Fixed(_) => 0,
    }
}

/// Bytes of the device that a block may take beyond its own size: the rest of a page.
pub(super) fn risk(size: u64) -> u64 {
    debug_assert!(size.is_multiple_of(SMALL_STEP));
    if size < SHARES_PAGES_BELOW { LARGE_STEP - size } else { 0 }
}

impl Governor<'_> {
    /// Whether a device's overhead is measured.
    #[inline]
    pub fn measures(&self, device: u32) -> bool {
        let rules = usize::try_from(device).ok().and_then(|at| self.devices.get(at));
        rules.is_some_and(|rules| rules.overhead == OverheadRule::Measured)
    }

    /// Marks a call that gives memory back as on its way, on every device whose overhead is measured. For calls that are
    /// rare; the free of a block marks its own device.
    pub(super) fn giving_back(&self) -> Vec<Working<'_>> {
        let devices = (0..).zip(&self.devices).filter(|(_, rules)| rules.overhead == OverheadRule::Measured);
        devices.filter_map(|(device, _)| Some(self.budget(device)?.working(Lane::SHARED))).collect()
    }

    /// Reads the process's footprint on a device, where the overhead is measured: after a context came or went, after
    /// modules were loaded, and before an allocation that may cross the limit.
    pub fn read_overhead<D: Driver>(&self, driver: &D, device: u32) {
        if !self.measures(device) {
            return;
        }
        let Some(budget) = self.budget(device) else {
            return;
        };
        for attempt in 0..TRIES {
            // Pools give memory back by themselves when a stream is waited for, so their levels are read around it.
            self.reread_pools(driver, device);
            let Some(quiet) = budget.quiet() else {
                pause(attempt);
                continue;
            };
            let Some(footprint) = driver.footprint(device) else {
                unmeasured(&budget);
                return;
            };
            self.reread_pools(driver, device);
            if budget.settle(&quiet, footprint) {
                return;
            }
            at_least(&budget, footprint);
        }
        if driver.footprint(device).is_none() {
            unmeasured(&budget);
        }
    }
}

/// Without readings only allocations count: nothing would ever settle what is taken to be possible beyond them.
fn unmeasured(budget: &Budget<'_>) {
    budget.unsuspect(budget.possible());
}

/// A reading that raced with allocations still shows what the overhead is at least.
fn at_least(budget: &Budget<'_>, footprint: u64) {
    let least = footprint.saturating_sub(budget.held());
    if least > budget.overhead().saturating_add(budget.possible()) {
        budget.set_overhead(least);
    }
}

fn pause(attempt: u32) {
    match attempt {
        0..16 => std::hint::spin_loop(),
        16..32 => std::thread::yield_now(),
        // A free that waits for the device takes its time.
        _ => std::thread::sleep(std::time::Duration::from_micros(100)),
    }
}
