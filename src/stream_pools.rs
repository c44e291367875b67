//! The program's stream-ordered pools, charged by what each reserves: a level, not a sum of allocations.
//!
//! A pool takes memory from the device in steps of its own and keeps what is freed, so its charge is what it reserves
//! now, read after each call. Calls that are under way make that a question of who pays for what: of several threads the
//! first to read the level sees the growth of them all. So a pool's calls share what was reserved for them. At every
//! moment *level* (settled) + *reserved* (by calls under way) covers what the pool holds now and what it will hold once
//! all calls under way have got what they asked for; each call reserves what is missing to that when it starts, and
//! settles what is too much when it ends, from the newest reading and the sizes of the blocks, whatever the order.
//!
//! Readings may arrive in any order; each takes a ticket before it asks the driver, and one with an older ticket than
//! the last one applied is dropped: the newer one saw all that the older one's thread had done. A destroyed pool can no
//! longer be asked; it keeps its last level until the last block from it is freed.

mod account;

use crate::budget::{Budget, Lane, Refused, Reservation};
use crate::driver::PoolLevels;
use crate::sync::Mutex;
use account::Pool;
pub use account::Step;

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

    /// A pool that lives on `device`, or on the host, and may be known already.
    pub fn learned(&self, handle: usize, device: Option<u32>) {
        let pools = &mut *self.pools.lock();
        if !pools.iter().any(|p| p.open && p.handle == handle) {
            enter(pools, handle, device);
        }
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
        Some(PoolRef { slot: u16::try_from(at).ok()?, handle, device })
    }

    /// Device of a pool by its slot.
    pub fn device_of(&self, slot: u16) -> Option<u32> {
        self.pools.lock().get(usize::from(slot))?.device
    }

    /// Pools of a device that can be asked and trimmed.
    pub fn on_device(&self, device: u32) -> Vec<PoolRef> {
        let pools = self.pools.lock();
        let refs = pools.iter().enumerate().filter(|(_, p)| p.open && p.device == Some(device));
        refs.filter_map(|(at, p)| Some(PoolRef { slot: u16::try_from(at).ok()?, handle: p.handle, device })).collect()
    }

    /// Starts a call that asks the pool for `bytes`: reserves what the pool may grow by.
    ///
    /// # Errors
    /// The growth that does not fit the budget, and what the refusal saw.
    pub fn start<'b>(
        &self,
        pool: PoolRef,
        bytes: u64,
        budget: &Budget<'b>,
        lane: Lane,
        step: Step,
    ) -> Result<Reservation<'b>, (u64, Refused)> {
        let pools = &mut *self.pools.lock();
        let Some(entry) = entry_of(pools, pool) else {
            return budget.reserve(lane, bytes).map_err(|r| (bytes, r));
        };
        let growth = entry.growth(bytes, step);
        // Under the lock, so that nobody counts on a call that has nothing reserved yet.
        let reservation = budget.reserve(lane, growth).map_err(|r| (growth, r))?;
        entry.enter(bytes, growth);
        Ok(reservation)
    }

    /// As [`start`](Self::start), with a reservation that was made for an earlier answer of it.
    ///
    /// # Errors
    /// The reservation, where the pool would grow by more than that by now.
    pub fn start_with<'b>(
        &self,
        pool: PoolRef,
        bytes: u64,
        reservation: Reservation<'b>,
    ) -> Result<Reservation<'b>, Reservation<'b>> {
        let pools = &mut *self.pools.lock();
        let Some(entry) = entry_of(pools, pool) else {
            return Ok(reservation);
        };
        if entry.growth(bytes, Step::Least) > reservation.bytes() {
            return Err(reservation);
        }
        entry.enter(bytes, reservation.bytes());
        Ok(reservation)
    }

    /// What a call for `bytes` would have to reserve at least.
    pub fn growth(&self, pool: PoolRef, bytes: u64) -> u64 {
        entry_of(&mut self.pools.lock(), pool).map_or(0, |entry| entry.growth(bytes, Step::Least))
    }

    /// A ticket for a reading that is about to be made.
    pub fn ticket(&self, pool: PoolRef) -> Ticket {
        self.pools.lock().get_mut(usize::from(pool.slot)).map_or(Ticket(0), |p| {
            p.ticket += 1;
            Ticket(p.ticket)
        })
    }

    /// Ends a call that got a block of `bytes`, with the reading that was made after it. Pays from `reservation`.
    ///
    /// # Errors
    /// The reservation, still held, where the pool holds more than fits the budget; the call is then still under way.
    pub fn settle<'b>(
        &self,
        pool: PoolRef,
        bytes: u64,
        reading: Option<(Ticket, PoolLevels)>,
        budget: &Budget<'b>,
        reservation: Reservation<'b>,
    ) -> Result<(), Reservation<'b>> {
        let pools = &mut *self.pools.lock();
        let Some(entry) = entry_of(pools, pool) else {
            return Ok(());
        };
        let own = reservation.bytes();
        entry.leave(bytes, own);
        entry.blocks += 1;
        entry.live += bytes;
        entry.apply(reading);
        // What others reserved pays first, as theirs is paid by us.
        let missing = entry.seen.saturating_sub(entry.level + own + entry.reserved);
        let keep = entry.share(own + missing);
        let paid = match keep.checked_sub(entry.level) {
            Some(more) => reservation.commit_as(more),
            None => {
                budget.release(entry.level - keep);
                reservation.commit_as(0)
            }
        };
        match paid {
            Ok(()) => {
                entry.level = keep;
                Ok(())
            }
            Err((reservation, _)) => {
                entry.surprised = true;
                entry.enter(bytes, own);
                entry.blocks -= 1;
                entry.live -= bytes;
                Err(reservation)
            }
        }
    }

    /// Ends a call that got nothing.
    pub fn cancel<'b>(
        &self,
        pool: PoolRef,
        bytes: u64,
        reading: Option<(Ticket, PoolLevels)>,
        budget: &Budget<'b>,
        reservation: Reservation<'b>,
    ) {
        let pools = &mut *self.pools.lock();
        if let Some(entry) = entry_of(pools, pool) {
            entry.leave(bytes, reservation.bytes());
            entry.apply(reading);
            entry.level_at(entry.share(reservation.bytes()), budget);
            if !entry.open
                && let Some((_, level)) = entry.end_if_empty()
            {
                budget.release(level);
            }
        }
        // After the level: what others count on must not be anybody's in between.
        drop(reservation);
    }

    /// Ends a call that put `bytes` to use without a block of ours: a launch of a graph.
    pub fn used<'b>(
        &self,
        pool: PoolRef,
        bytes: u64,
        reading: Option<(Ticket, PoolLevels)>,
        budget: &Budget<'b>,
        reservation: Reservation<'b>,
    ) {
        let pools = &mut *self.pools.lock();
        if let Some(entry) = entry_of(pools, pool) {
            entry.leave(bytes, reservation.bytes());
            // Until a reading at rest tells what is in use.
            entry.unknown = entry.unknown.saturating_add(bytes);
            entry.apply(reading);
            entry.level_at(entry.share(reservation.bytes()), budget);
        }
        // After the level, as in `cancel`.
        drop(reservation);
    }

    /// Takes a reading as it is, even beyond the limit: the memory is there.
    pub fn observe(&self, pool: PoolRef, ticket: Ticket, levels: PoolLevels, budget: &Budget<'_>) {
        let pools = &mut *self.pools.lock();
        if let Some(entry) = entry_of(pools, pool) {
            entry.apply(Some((ticket, levels)));
            entry.level_at(entry.share(0), budget);
        }
    }

    /// Device of the pool in a slot, and the pool itself where it can still be asked.
    pub fn in_slot(&self, slot: u16) -> Option<(u32, Option<PoolRef>)> {
        let pools = self.pools.lock();
        let entry = pools.get(usize::from(slot)).filter(|p| p.known)?;
        let (handle, device) = (entry.handle, entry.device?);
        let pool = entry.open.then_some(PoolRef { slot, handle, device });
        Some((device, pool))
    }

    /// A block was freed, and the pool was read after that if it can still be asked. Both count at once: between them an
    /// older reading could pass for one of what is left.
    pub fn block_freed(&self, slot: u16, bytes: u64, reading: Option<(Ticket, PoolLevels)>, budget: &Budget<'_>) {
        let pools = &mut *self.pools.lock();
        let Some(entry) = pools.get_mut(usize::from(slot)).filter(|p| p.known) else {
            return;
        };
        entry.blocks = entry.blocks.saturating_sub(1);
        entry.live = entry.live.saturating_sub(bytes);
        entry.apply(reading);
        entry.level_at(entry.share(0), budget);
        if !entry.open
            && let Some((_, level)) = entry.end_if_empty()
        {
            budget.release(level);
        }
    }

    /// Asks the driver about a pool, unless it is being destroyed: its handle then may mean nothing, or another pool.
    pub fn ask<T>(&self, pool: PoolRef, question: impl FnOnce() -> T) -> Option<T> {
        let same = |entry: &&mut Pool| entry.open && entry.handle == pool.handle;
        let at = usize::from(pool.slot);
        self.pools.lock().get_mut(at).filter(same)?.questions += 1;
        let answer = question();
        if let Some(entry) = self.pools.lock().get_mut(at) {
            entry.questions -= 1;
        }
        Some(answer)
    }

    /// A pool is about to be destroyed: its handle may be handed out again from now on. Waits for the driver's answers to
    /// questions of other threads about it, calling `settle` between looks; that ends the wait by returning false.
    pub fn destroying(&self, pool: PoolRef, mut settle: impl FnMut() -> bool) {
        loop {
            if let Some(entry) = self.pools.lock().get_mut(usize::from(pool.slot)) {
                entry.open = false;
                if entry.questions == 0 {
                    return;
                }
            }
            if !settle() {
                return;
            }
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
        self.pools.lock().get_mut(usize::from(pool.slot)).and_then(Pool::end_if_empty)
    }

    /// Bytes charged now on a device.
    pub fn charged(&self, device: u32) -> u64 {
        self.pools.lock().iter().filter(|p| p.known && p.device == Some(device)).map(|p| p.level).sum()
    }
}

/// The pool that a reference means, if the books still have it.
fn entry_of(pools: &mut [Pool], pool: PoolRef) -> Option<&mut Pool> {
    pools.get_mut(usize::from(pool.slot)).filter(|p| p.known && p.handle == pool.handle)
}

fn enter(pools: &mut Vec<Pool>, handle: usize, device: Option<u32>) -> usize {
    // Tickets of the slot's former pool stay older than any of the new one.
    let fresh = |ticket| Pool::new(handle, device, ticket);
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

#[cfg(all(test, not(loom)))]
mod tests;
