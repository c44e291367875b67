//! The program's stream-ordered pools, charged by what each reserves: a level, not a sum of allocations.
//!
//! A pool takes memory from the device in steps of its own and keeps what is freed, so its charge is what it reserves
//! now, read after each call. Readings of several threads may arrive in any order; each takes a ticket before it asks
//! the driver, and a reading with an older ticket than the last one applied is dropped: the newer one saw all that the
//! older one's thread had done. A destroyed pool can no longer be asked; it keeps its last level until the last block
//! from it is freed.

use crate::budget::{Budget, Reservation};
use crate::sync::Mutex;

/// How a pool grew before we have seen it grow: the step of NVIDIA's default pools (see README of tests/gpu).
const USUAL_STEP: u64 = 32 << 20;

#[derive(Debug)]
struct Pool {
    handle: usize,
    /// Device ordinal; `None` for pools of host memory, which cost nothing.
    device: Option<u32>,
    /// The handle is valid and means this pool.
    open: bool,
    /// In use by the books at all.
    known: bool,
    /// Bytes charged.
    level: u64,
    /// Greatest common divisor of all growth seen; 0 before any.
    step: u64,
    blocks: u64,
    ticket: u64,
    applied: u64,
}

/// A pool as the calls name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolRef {
    /// Slot number, as the ledger keeps it.
    pub slot: u16,
    /// The driver's handle.
    pub handle: usize,
    /// Device ordinal whose memory it takes.
    pub device: u32,
}

/// Order of a reading among all readings of its pool: taken before the driver is asked.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Ticket(u64);

/// Every pool of the process that takes device memory.
#[derive(Debug, Default)]
pub struct StreamPools {
    pools: Mutex<Vec<Pool>>,
}

impl StreamPools {
    /// A pool that lives on `device`, or on the host; known from now on. A recycled handle means the new pool.
    pub fn created(&self, handle: usize, device: Option<u32>) {
        let pools = &mut *self.pools.lock();
        for old in pools.iter_mut().filter(|p| p.open && p.handle == handle) {
            old.open = false;
        }
        enter(pools, handle, device);
    }

    /// The pool of a handle; one that we have not seen before is taken to be a default pool of `device`. `None` for
    /// pools that cost no device memory.
    pub fn find(&self, handle: usize, device: Option<u32>) -> Option<PoolRef> {
        let pools = &mut *self.pools.lock();
        let at = match pools.iter().position(|p| p.open && p.handle == handle) {
            Some(at) => at,
            None => enter(pools, handle, Some(device?)),
        };
        let device = pools[at].device?;
        Some(PoolRef {
            slot: u16::try_from(at).ok()?,
            handle,
            device,
        })
    }

    /// Device of a pool by its slot.
    pub fn device_of(&self, slot: u16) -> Option<u32> {
        self.pools.lock().get(usize::from(slot))?.device
    }

    /// Pools of a device that can be asked and trimmed.
    pub fn on_device(&self, device: u32) -> Vec<PoolRef> {
        let pools = self.pools.lock();
        let refs = pools
            .iter()
            .enumerate()
            .filter(|(_, p)| p.open && p.device == Some(device));
        refs.filter_map(|(at, p)| {
            Some(PoolRef {
                slot: u16::try_from(at).ok()?,
                handle: p.handle,
                device,
            })
        })
        .collect()
    }

    /// Bytes by which the pool may grow to serve `bytes` with `spare` bytes of it unused: whole steps as far as they
    /// have shown (`exact`: without assuming a step that has not).
    pub fn growth(&self, pool: PoolRef, bytes: u64, spare: u64, exact: bool) -> u64 {
        let missing = bytes.saturating_sub(spare);
        let step = match self
            .pools
            .lock()
            .get(usize::from(pool.slot))
            .map_or(0, |p| p.step)
        {
            0 if exact => 1,
            0 => USUAL_STEP,
            shown => shown,
        };
        missing.checked_next_multiple_of(step).unwrap_or(u64::MAX)
    }

    /// A ticket for a reading that is about to be made.
    pub fn ticket(&self, pool: PoolRef) -> Ticket {
        self.pools
            .lock()
            .get_mut(usize::from(pool.slot))
            .map_or(Ticket(0), |p| {
                p.ticket += 1;
                Ticket(p.ticket)
            })
    }

    /// Sets the pool's charge to what it reserved when `ticket`'s reading was made, paying growth from `reservation`.
    ///
    /// # Errors
    /// The reservation, still held, where the growth does not fit the budget; the charge is then as before.
    pub fn settle<'b>(
        &self,
        pool: PoolRef,
        ticket: Ticket,
        reserved: u64,
        budget: &Budget<'b>,
        reservation: Reservation<'b>,
    ) -> Result<(), Reservation<'b>> {
        let pools = &mut *self.pools.lock();
        let Some(entry) = pools
            .get_mut(usize::from(pool.slot))
            .filter(|p| p.known && p.applied < ticket.0)
        else {
            return Ok(());
        };
        if let Some(growth) = reserved
            .checked_sub(entry.level)
            .filter(|growth| *growth > 0)
        {
            reservation
                .commit_as(growth)
                .map_err(|(reservation, _)| reservation)?;
            entry.step = gcd(entry.step, growth);
        } else {
            budget.release(entry.level - reserved);
        }
        entry.level = reserved;
        entry.applied = ticket.0;
        Ok(())
    }

    /// As [`settle`](Self::settle), but takes what the driver says even beyond the limit: the memory is there.
    pub fn force(&self, pool: PoolRef, ticket: Ticket, reserved: u64, budget: &Budget<'_>) {
        let pools = &mut *self.pools.lock();
        let Some(entry) = pools
            .get_mut(usize::from(pool.slot))
            .filter(|p| p.known && p.applied < ticket.0)
        else {
            return;
        };
        match reserved.checked_sub(entry.level) {
            Some(growth) => budget.charge(growth),
            None => budget.release(entry.level - reserved),
        }
        entry.level = reserved;
        entry.applied = ticket.0;
    }

    /// A block was handed out.
    pub fn block_taken(&self, slot: u16) {
        if let Some(entry) = self.pools.lock().get_mut(usize::from(slot)) {
            entry.blocks += 1;
        }
    }

    /// A block was freed. Returns the device and bytes to uncharge if it was the last one of a destroyed pool, and the
    /// pool itself where it can still be asked.
    pub fn block_freed(&self, slot: u16) -> (Option<(u32, u64)>, Option<PoolRef>) {
        let pools = &mut *self.pools.lock();
        let Some(entry) = pools.get_mut(usize::from(slot)).filter(|p| p.known) else {
            return (None, None);
        };
        entry.blocks = entry.blocks.saturating_sub(1);
        if entry.open {
            let pool = entry.device.map(|device| PoolRef {
                slot,
                handle: entry.handle,
                device,
            });
            return (None, pool);
        }
        (leave_if_empty(entry), None)
    }

    /// A pool is about to be destroyed: its handle may be handed out again from now on.
    pub fn destroying(&self, pool: PoolRef) {
        if let Some(entry) = self.pools.lock().get_mut(usize::from(pool.slot)) {
            entry.open = false;
        }
    }

    /// The driver refused to destroy it.
    pub fn lives(&self, pool: PoolRef) {
        if let Some(entry) = self.pools.lock().get_mut(usize::from(pool.slot)) {
            entry.open = true;
        }
    }

    /// The driver destroyed it: device and bytes to uncharge now, if no block of it is left.
    pub fn destroyed(&self, pool: PoolRef) -> Option<(u32, u64)> {
        self.pools
            .lock()
            .get_mut(usize::from(pool.slot))
            .and_then(leave_if_empty)
    }

    /// Bytes charged now on a device.
    pub fn charged(&self, device: u32) -> u64 {
        self.pools
            .lock()
            .iter()
            .filter(|p| p.known && p.device == Some(device))
            .map(|p| p.level)
            .sum()
    }
}

fn enter(pools: &mut Vec<Pool>, handle: usize, device: Option<u32>) -> usize {
    // Tickets of the slot's former pool stay older than any of the new one.
    let fresh = |ticket| Pool {
        handle,
        device,
        open: true,
        known: true,
        level: 0,
        step: 0,
        blocks: 0,
        ticket,
        applied: ticket,
    };
    match pools.iter().position(|p| !p.known) {
        Some(at) => {
            pools[at] = fresh(pools[at].ticket);
            at
        }
        None => {
            pools.push(fresh(0));
            pools.len() - 1
        }
    }
}

fn leave_if_empty(entry: &mut Pool) -> Option<(u32, u64)> {
    if entry.blocks > 0 {
        return None;
    }
    entry.known = false;
    Some((entry.device?, std::mem::take(&mut entry.level)))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(all(test, not(loom)))]
mod tests;
