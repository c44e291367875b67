//! One pool's account: what it holds, what its calls under way may make it hold, and who has paid for that.

use super::Ticket;
use crate::budget::Budget;
use crate::driver::PoolLevels;

/// How a pool grew before we have seen it grow: the step of NVIDIA's default pools (see README of tests/gpu).
const USUAL_STEP: u64 = 32 << 20;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) handle: usize,
    /// Device ordinal; `None` for pools of host memory, which cost nothing.
    pub(super) device: Option<u32>,
    /// The handle is valid and means this pool.
    pub(super) open: bool,
    /// In use by the books at all.
    pub(super) known: bool,
    /// Bytes charged, beside what calls under way have reserved.
    pub(super) level: u64,
    /// What the last reading that was applied said it holds, in bytes.
    pub(super) seen: u64,
    /// Greatest common divisor of all growth seen; 0 before any.
    pub(super) step: u64,
    /// It grew past the limit, by a greater step than was assumed.
    pub(super) surprised: bool,
    /// Blocks handed out, and their bytes.
    pub(super) blocks: u64,
    pub(super) live: u64,
    /// Bytes in use by the last reading at rest that no block accounts for: made past us, or lost to rounding.
    pub(super) unknown: u64,
    /// Calls under way: how many, what they ask for, what is reserved for them; both in bytes.
    pub(super) calls: u64,
    pub(super) asked: u64,
    pub(super) reserved: u64,
    pub(super) ticket: u64,
    pub(super) applied: u64,
    /// Questions of ours about it that the driver has not answered yet.
    pub(super) questions: u64,
}

/// By which steps a pool is expected to grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The one that it has shown, or that of NVIDIA's default pools before.
    Shown,
    /// The smallest that it may have; before a refusal.
    Least,
}

impl Pool {
    pub(super) fn new(handle: usize, device: Option<u32>, ticket: u64) -> Pool {
        Pool {
            handle,
            device,
            open: true,
            known: true,
            level: 0,
            seen: 0,
            step: 0,
            surprised: false,
            blocks: 0,
            live: 0,
            unknown: 0,
            calls: 0,
            asked: 0,
            reserved: 0,
            ticket,
            applied: ticket,
            questions: 0,
        }
    }

    /// What it may hold once all calls under way and one for `more` bytes have been served, in bytes.
    pub(super) fn future(&self, more: u64, step: u64) -> u64 {
        let used = [self.live, self.unknown, self.asked, more].into_iter();
        let used = used.fold(0, u64::saturating_add);
        let growth = used.saturating_sub(self.seen);
        growth.checked_next_multiple_of(step).and_then(|growth| self.seen.checked_add(growth)).unwrap_or(u64::MAX)
    }

    /// What a call for `bytes` has to reserve.
    pub(super) fn growth(&self, bytes: u64, step: Step) -> u64 {
        let step = match (self.step, step) {
            // Assumed less, it would be over the limit before anybody knows.
            (0, _) => USUAL_STEP,
            // What was seen may be several steps of several calls.
            (shown, Step::Least) if !self.surprised => gcd(shown, USUAL_STEP),
            (shown, _) => shown,
        };
        self.future(bytes, step).saturating_sub(self.level + self.reserved)
    }

    /// The level that is right when `own` bytes of reservation are on top of it and go into it, as far as needed.
    pub(super) fn share(&self, own: u64) -> u64 {
        let step = if self.step == 0 { USUAL_STEP } else { self.step };
        let covered = self.level + own + self.reserved;
        let right = covered.min(self.future(0, step)).max(self.seen);
        right.saturating_sub(self.reserved)
    }

    pub(super) fn enter(&mut self, bytes: u64, reserved: u64) {
        self.calls += 1;
        self.asked += bytes;
        self.reserved += reserved;
    }

    pub(super) fn leave(&mut self, bytes: u64, reserved: u64) {
        self.calls = self.calls.saturating_sub(1);
        self.asked = self.asked.saturating_sub(bytes);
        self.reserved = self.reserved.saturating_sub(reserved);
    }

    pub(super) fn apply(&mut self, reading: Option<(Ticket, PoolLevels)>) {
        let Some((ticket, levels)) = reading.filter(|(ticket, _)| ticket.0 > self.applied) else {
            return;
        };
        if levels.reserved > self.seen {
            self.step = gcd(self.step, levels.reserved - self.seen);
        }
        self.seen = levels.reserved;
        self.applied = ticket.0;
        if self.calls == 0 {
            self.unknown = levels.used.saturating_sub(self.live);
        }
    }

    /// Makes the charge `bytes`, whatever the limit.
    pub(super) fn level_at(&mut self, bytes: u64, budget: &Budget<'_>) {
        match bytes.checked_sub(self.level) {
            Some(growth) => budget.charge(growth),
            None => budget.release(self.level - bytes),
        }
        self.level = bytes;
    }

    /// Leaves the books if no block of it is left and nobody asks for one: device and bytes to uncharge.
    pub(super) fn end_if_empty(&mut self) -> Option<(u32, u64)> {
        if self.blocks > 0 || self.calls > 0 {
            return None;
        }
        self.known = false;
        Some((self.device?, std::mem::take(&mut self.level)))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
