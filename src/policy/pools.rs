//! Stream-ordered allocations: admitted by how much their pool may grow, charged by how much it did.

use super::{Failure, Governor, deny, patience};
use crate::budget::{Budget, Lane, Refused, Reservation};
use crate::code::Code;
use crate::driver::{Driver, PoolLevels};
use crate::ledger::{Block, Kind, SMALL_STEP};
use crate::stream_pools::{PoolRef, Step, Ticket};

/// How often a call counts again before it is refused.
const ROUNDS: u32 = 16;

impl<'a> Governor<'a> {
    /// A pool was created on `device`, or (`None`) on the host.
    pub fn pool_created(&self, handle: usize, device: Option<u32>) {
        self.pools.created(handle, device);
    }

    /// A pool that the driver named for a device, or (`None`) for the host. One that is known stays what it is.
    pub fn pool_learned(&self, handle: usize, device: Option<u32>) {
        self.pools.learned(handle, device);
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
            _ => match driver.stream_context(stream).and_then(|context| self.contexts.find(context)) {
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
        call: impl Fn() -> Result<u64, Code>,
        undo: impl Fn(u64),
    ) -> Result<u64, Failure> {
        let budget = self.budget(pool.device).ok_or(Failure::Forward)?;
        // As the driver rounds them; where that overflows it has the answer.
        let bytes = bytes.checked_next_multiple_of(SMALL_STEP).ok_or(Failure::Forward)?;
        let mut reservation = self.pool_start(driver, lane, pool, bytes, &budget)?;
        // A first try may have been held to less than the limit, because a reading was due.
        let mut last = !self.measures(pool.device);
        loop {
            let address = match call() {
                Ok(address) => address,
                Err(code) => {
                    let reading = self.read(driver, pool);
                    self.pools.cancel(pool, bytes, reading, &budget, reservation);
                    return Err(Failure::Driver(code));
                }
            };
            let block = Block { size: bytes, kind: Kind::Pool, owner: pool.slot };
            self.keep(driver, address, block);
            let reading = self.read(driver, pool);
            let Err(unpaid) = self.pools.settle(pool, bytes, reading, &budget, reservation) else {
                return Ok(address);
            };
            // It grew past that all the same: undo it, and take from the pool what it no longer needs.
            self.ledger.take(address);
            let working = self.giving_back();
            undo(address);
            driver.trim_pool(pool.handle);
            let refused = Refused { held: budget.held(), overhead: budget.overhead() };
            let reading = self.read(driver, pool);
            self.pools.cancel(pool, bytes, reading, &budget, unpaid);
            drop(working);
            if last {
                return Err(Failure::Denied(deny(&budget, pool.device, bytes, refused)));
            }
            last = true;
            reservation = self.pool_start_hard(driver, lane, pool, bytes, &budget)?;
        }
    }

    /// Reserves what a pool may grow by for `bytes`.
    pub(super) fn pool_start<D: Driver>(
        &self,
        driver: &D,
        lane: Lane,
        pool: PoolRef,
        bytes: u64,
        budget: &Budget<'a>,
    ) -> Result<Reservation<'a>, Failure> {
        let near = self.near_budget(pool.device).ok_or(Failure::Forward)?;
        match self.pools.start(pool, bytes, &near, lane, Step::Shown) {
            Ok(reservation) => Ok(reservation),
            Err(_) => self.pool_start_hard(driver, lane, pool, bytes, budget),
        }
    }

    /// The long way to a pool's reservation, once the short one has failed: trim, count without assumptions, wait for
    /// what is in flight, and count again as long as that makes it less.
    #[cold]
    fn pool_start_hard<D: Driver>(
        &self,
        driver: &D,
        lane: Lane,
        pool: PoolRef,
        bytes: u64,
        budget: &Budget<'a>,
    ) -> Result<Reservation<'a>, Failure> {
        driver.pool_levels(pool.handle).ok_or(Failure::Forward)?;
        let mut rounds = 0;
        loop {
            if self.could_fit(pool.device, bytes) {
                self.trim_pools(driver, pool.device);
            }
            self.read_overhead(driver, pool.device);
            let started = self.pools.start(pool, bytes, budget, lane, Step::Least);
            let (growth, _) = match started {
                Ok(reservation) => return Ok(reservation),
                Err(refused) => refused,
            };
            let waited = budget.reserve_or_wait(lane, growth, patience());
            let refused = match waited.map(|ours| self.pools.start_with(pool, bytes, ours)) {
                Ok(Ok(reservation)) => return Ok(reservation),
                // It would grow by more than that by now.
                Ok(Err(_)) => None,
                Err(refused) => Some(refused),
            };
            rounds += 1;
            let less = self.pools.growth(pool, bytes) < growth;
            if let Some(refused) = refused.filter(|_| !less || rounds >= ROUNDS) {
                return Err(self.refusal(budget, pool.device, growth, refused));
            }
        }
    }

    /// `cuMemPoolDestroy`: the driver's answer.
    pub fn pool_destroy<D: Driver>(&self, driver: &D, handle: usize, call: impl FnOnce() -> Code) -> Code {
        let Some(pool) = self.pools.find(handle, None) else {
            return call();
        };
        let _working = self.giving_back();
        // The last reading: afterwards the handle means nothing, or another pool. Nothing is trimmed: the driver may refuse,
        // and what a destroyed pool holds it keeps until its last block is freed.
        self.reread(driver, pool);
        self.pools.destroying(pool, patience());
        let code = call();
        if code.is_success() {
            self.release(self.pools.destroyed(pool));
        } else {
            self.pools.lives(pool);
        }
        code
    }

    /// A call of the program that may take memory from a pool: the driver's answer, and the level read again.
    pub fn pool_trim<D: Driver>(&self, driver: &D, handle: usize, call: impl FnOnce() -> Code) -> Code {
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
            let _ = self.pools.ask(pool, || driver.trim_pool(pool.handle));
            self.reread(driver, pool);
        }
    }

    pub(super) fn pool_block_freed<D: Driver>(&self, driver: &D, block: Block) {
        let Some((device, pool)) = self.pools.in_slot(block.owner) else {
            return;
        };
        let reading = pool.and_then(|pool| self.read(driver, pool));
        if let Some(budget) = self.budget(device) {
            self.pools.block_freed(block.owner, block.size, reading, &budget);
        }
    }

    fn reread<D: Driver>(&self, driver: &D, pool: PoolRef) {
        if let (Some((ticket, levels)), Some(budget)) = (self.read(driver, pool), self.budget(pool.device)) {
            self.pools.observe(pool, ticket, levels, &budget);
        }
    }

    pub(super) fn read<D: Driver>(&self, driver: &D, pool: PoolRef) -> Option<(Ticket, PoolLevels)> {
        let ticket = self.pools.ticket(pool);
        Some((ticket, self.pools.ask(pool, || driver.pool_levels(pool.handle))??))
    }

    fn release(&self, charge: Option<(u32, u64)>) {
        if let Some((device, bytes)) = charge
            && let Some(budget) = self.budget(device)
        {
            budget.release(bytes);
        }
    }
}
