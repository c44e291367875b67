//! Stream-ordered allocations: admitted by how much their pool may grow, charged by how much it did.

use super::{Failure, Governor, deny, patience};
use crate::budget::Lane;
use crate::code::Code;
use crate::driver::{Driver, PoolLevels};
use crate::ledger::{Block, Kind};
use crate::stream_pools::PoolRef;

impl Governor<'_> {
    /// A pool was created on `device`, or (`None`) on the host.
    pub fn pool_created(&self, handle: usize, device: Option<u32>) {
        self.pools.created(handle, device);
    }

    /// The pool of a handle that an allocation names; `device`: whose pool an unknown handle is taken for.
    pub fn pool(&self, handle: usize, device: Option<u32>) -> Option<PoolRef> {
        self.pools.find(handle, device)
    }

    /// The pool that `cuMemAllocAsync` on this stream takes from; `None` where that costs no device memory.
    pub fn pool_of_stream<D: Driver>(&self, driver: &D, stream: usize) -> Option<PoolRef> {
        // 0, 1 and 2 stand for the default streams of the current context.
        let device = match stream {
            0..=2 => self.current_device(driver).ok()?,
            _ if self.devices.len() == 1 => 0,
            _ => match driver
                .stream_context(stream)
                .and_then(|context| self.contexts.find(context))
            {
                Some(owner) => owner.device,
                None => self.current_device(driver).ok()?,
            },
        };
        self.pools.find(driver.current_pool(device)?, Some(device))
    }

    /// An allocation of `bytes` from a pool. `call` makes the driver's call; `undo` gives back what must not stay: it
    /// frees the address and waits until the pool has it.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn pool_allocate<D: Driver>(
        &self,
        driver: &D,
        lane: Lane,
        pool: PoolRef,
        bytes: u64,
        call: impl FnOnce() -> Result<u64, Code>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, Failure> {
        let budget = self.budget(pool.device).ok_or(Failure::Forward)?;
        let near = self.near_budget(pool.device).ok_or(Failure::Forward)?;
        let levels = driver.pool_levels(pool.handle).ok_or(Failure::Forward)?;
        let growth = |levels: PoolLevels, exact| {
            let spare = levels.reserved.saturating_sub(levels.used);
            self.pools.growth(pool, bytes, spare, exact)
        };
        let reservation = match near.reserve(lane, growth(levels, false)) {
            Ok(reservation) => reservation,
            Err(_) => {
                self.trim_pools(driver, pool.device);
                self.read_overhead(driver, pool.device);
                let levels = driver.pool_levels(pool.handle).ok_or(Failure::Forward)?;
                let asked = growth(levels, true);
                budget
                    .reserve_or_wait(lane, asked, patience())
                    .map_err(|refused| {
                        Failure::Denied(deny(&budget, pool.device, asked, refused))
                    })?
            }
        };
        let address = call().map_err(Failure::Driver)?;
        self.pools.block_taken(pool.slot);
        self.keep(
            driver,
            address,
            Block {
                size: bytes,
                kind: Kind::Pool,
                owner: pool.slot,
            },
        );
        let ticket = self.pools.ticket(pool);
        let Some(grown) = driver.pool_levels(pool.handle) else {
            return Ok(address);
        };
        let settled = self
            .pools
            .settle(pool, ticket, grown.reserved, &budget, reservation);
        let Err(reservation) = settled else {
            return Ok(address);
        };
        // It grew past the limit all the same: undo it, and take from the pool what it no longer needs.
        self.ledger.take(address);
        self.pools.block_freed(pool.slot);
        let _working = self.giving_back();
        undo(address);
        driver.trim_pool(pool.handle);
        let ticket = self.pools.ticket(pool);
        if let Some(levels) = driver.pool_levels(pool.handle) {
            self.pools.force(pool, ticket, levels.reserved, &budget);
        }
        let asked = grown.reserved.saturating_sub(levels.reserved);
        let refused = crate::budget::Refused {
            held: budget.held(),
            overhead: budget.overhead(),
        };
        drop(reservation);
        Err(Failure::Denied(deny(&budget, pool.device, asked, refused)))
    }

    /// `cuMemPoolDestroy`: the driver's answer.
    pub fn pool_destroy<D: Driver>(
        &self,
        driver: &D,
        handle: usize,
        call: impl FnOnce() -> Code,
    ) -> Code {
        let Some(pool) = self.pools.find(handle, None) else {
            return call();
        };
        let _working = self.giving_back();
        // The last reading: afterwards the handle means nothing, or another pool.
        driver.trim_pool(handle);
        self.reread(driver, pool);
        self.pools.destroying(pool);
        let code = call();
        if code.is_success() {
            self.release(self.pools.destroyed(pool));
        } else {
            self.pools.lives(pool);
        }
        code
    }

    /// A call of the program that may take memory from a pool: the driver's answer, and the level read again.
    pub fn pool_trim<D: Driver>(
        &self,
        driver: &D,
        handle: usize,
        call: impl FnOnce() -> Code,
    ) -> Code {
        let _working = self.giving_back();
        let code = call();
        if let Some(pool) = self.pools.find(handle, None) {
            self.reread(driver, pool);
        }
        code
    }

    /// Reads the levels of all pools of a device again.
    pub fn reread_pools<D: Driver>(&self, driver: &D, device: u32) {
        for pool in self.pools.on_device(device) {
            self.reread(driver, pool);
        }
    }

    /// Takes from all pools of a device what they hold idle, and sums up again.
    pub(super) fn trim_pools<D: Driver>(&self, driver: &D, device: u32) {
        let _working = self.giving_back();
        for pool in self.pools.on_device(device) {
            driver.trim_pool(pool.handle);
            self.reread(driver, pool);
        }
    }

    pub(super) fn pool_block_freed<D: Driver>(&self, driver: &D, slot: u16) {
        let (gone, pool) = self.pools.block_freed(slot);
        self.release(gone);
        if let Some(pool) = pool {
            self.reread(driver, pool);
        }
    }

    fn reread<D: Driver>(&self, driver: &D, pool: PoolRef) {
        let ticket = self.pools.ticket(pool);
        if let (Some(levels), Some(budget)) =
            (driver.pool_levels(pool.handle), self.budget(pool.device))
        {
            self.pools.force(pool, ticket, levels.reserved, &budget);
        }
    }

    fn release(&self, charge: Option<(u32, u64)>) {
        if let Some((device, bytes)) = charge
            && let Some(budget) = self.budget(device)
        {
            budget.release(bytes);
        }
    }
}
