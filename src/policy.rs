//! The rules: what is admitted, charged, refused and given back, over any [`Driver`].
//!
//! Every allocation goes the same way: reserve the bytes, let the driver work with no lock held, then commit what it
//! gave or cancel. A refusal comes only after idle pools were trimmed and the sum was taken again, and only where the
//! driver would have got as far as looking for memory; everything else is the driver's to answer ([`Failure::Forward`]).

mod arrays;
mod contexts;
mod graphs;
mod overhead;
mod pools;
mod vmm;

use crate::arrays::Arrays;
use crate::budget::{Budget, Cells, Lane, Refused, Reservation};
use crate::code::Code;
use crate::contexts::Contexts;
use crate::driver::Driver;
use crate::graph_memory::GraphMemory;
use crate::ledger::{Block, Kind, Ledger};
use crate::stream_pools::StreamPools;
use crate::sync::Mutex;
use crate::vmm::Vmm;

/// What is configured for one device.
#[derive(Clone, Debug)]
pub struct DeviceRules {
    /// Limit in bytes; [`crate::budget::UNCAPPED`] for none.
    pub limit: u64,
    /// The device's own total in bytes.
    pub total: u64,
    /// What counts beside allocations.
    pub overhead: OverheadRule,
}

/// What counts beside allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OverheadRule {
    /// Nothing.
    #[default]
    None,
    /// So many bytes, whatever is really taken.
    Fixed(u64),
    /// What is measured.
    Measured,
}

/// Why an allocation did not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The driver's own answer, to be passed on unchanged.
    Driver(Code),
    /// Refused at the limit.
    Denied(Denial),
    /// The rules have no say: make the program's call as it is.
    Forward,
}

/// A refusal, with all that its line in the log names. Bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denial {
    /// Device ordinal.
    pub device: u32,
    /// What was asked, as it would have been charged.
    pub asked: u64,
    /// What the program holds.
    pub live: u64,
    /// What is taken from the driver.
    pub held: u64,
    /// What no allocation accounts for.
    pub overhead: u64,
    /// The limit.
    pub limit: u64,
}

/// What the driver gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Device address, or handle.
    pub address: u64,
    /// Bytes to charge for it.
    pub size: u64,
}

/// The rules and books of one process.
pub struct Governor<'a> {
    cells: &'a [Cells],
    devices: Vec<DeviceRules>,
    /// What each device's short way leaves to the limit, in bytes.
    margins: Vec<u64>,
    contexts: Contexts,
    /// Held while what died is decided and dropped, so that each decision finds the one before it carried out.
    ending: Mutex<()>,
    ledger: Ledger,
    vmm: Vmm,
    arrays: Arrays,
    graphs: GraphMemory,
    pools: StreamPools,
}

impl<'a> Governor<'a> {
    /// Rules for the devices of this process, in the order of their ordinals; `cells` holds one budget's counters each.
    #[must_use]
    pub fn new(cells: &'a [Cells], devices: Vec<DeviceRules>) -> Self {
        for (cells, rules) in cells.iter().zip(&devices) {
            if let OverheadRule::Fixed(bytes) = rules.overhead {
                Budget::new(cells, rules.limit).set_overhead(bytes);
            }
        }
        Governor {
            cells,
            contexts: Contexts::new(devices.len()),
            ending: Mutex::new(()),
            margins: devices.iter().map(|rules| overhead::margin(rules.overhead, rules.total)).collect(),
            devices,
            ledger: Ledger::new(),
            vmm: Vmm::default(),
            arrays: Arrays::default(),
            graphs: GraphMemory::default(),
            pools: StreamPools::default(),
        }
    }

    /// The devices that this process sees.
    #[must_use]
    pub fn devices(&self) -> &[DeviceRules] {
        &self.devices
    }

    /// A device's budget; `None` for an ordinal that does not exist.
    #[inline]
    #[must_use]
    pub fn budget(&self, device: u32) -> Option<Budget<'a>> {
        let at = usize::try_from(device).ok()?;
        Some(Budget::new(self.cells.get(at)?, self.devices.get(at)?.limit))
    }

    /// A device's budget for the short way: with a measured overhead it ends where readings are due.
    #[inline]
    fn near_budget(&self, device: u32) -> Option<Budget<'a>> {
        let margin = *self.margins.get(usize::try_from(device).ok()?)?;
        Some(self.budget(device)?.short_of(margin))
    }

    /// Memory of the current context: reserves `size` bytes, calls the driver, keeps the block in the ledger.
    ///
    /// `call` makes the driver's call and says what it gave. Where that is more than reserved and does not fit, `undo`
    /// gives it back to the driver.
    ///
    /// # Errors
    /// See [`Failure`].
    #[inline]
    pub fn allocate<D: Driver>(
        &self,
        driver: &D,
        lane: Lane,
        kind: Kind,
        size: u64,
        call: impl FnOnce() -> Result<Granted, Code>,
        undo: impl FnOnce(u64),
    ) -> Result<u64, Failure> {
        let owner = self.contexts.owner(driver).map_err(|_| Failure::Forward)?;
        let budget = self.near_budget(owner.device).ok_or(Failure::Forward)?;
        let risk = if self.measures(owner.device) { overhead::risk(size) } else { 0 };
        let reservation = match budget.reserve_packed(lane, size, risk) {
            Ok(reservation) => reservation,
            Err(_) if !self.would_look(driver) => return Err(Failure::Forward),
            Err(_) => {
                let spills = kind == Kind::Managed;
                self.reserve_hard(driver, lane, owner.device, size, risk, spills)?
            }
        };
        let granted = call().map_err(Failure::Driver)?;
        let committed = if granted.size == size {
            reservation.commit();
            Ok(())
        } else {
            reservation.commit_as(granted.size)
        };
        if let Err((reservation, refused)) = committed {
            undo(granted.address);
            drop(reservation);
            return Err(Failure::Denied(deny(&budget, owner.device, granted.size, refused)));
        }
        if kind == Kind::Managed {
            budget.hold_managed(granted.size);
        }
        let owner = self.contexts.still(driver, owner);
        let block = Block { size: granted.size, kind, owner: owner.slot };
        self.keep(driver, granted.address, block);
        if self.contexts.is_over(owner.slot) {
            self.kept_late(driver, granted.address, block);
        }
        Ok(granted.address)
    }

    /// Whether the driver would look for memory: it asks for a context that works first, and for captures.
    #[cold]
    fn would_look<D: Driver>(&self, driver: &D) -> bool {
        driver.context_works() && !driver.capture_forbids()
    }

    /// The long way to a reservation, once the short one has failed: read the overhead, trim, take the sum again, wait
    /// for what is in flight. `spills` says that the driver may find room outside the device too.
    #[cold]
    fn reserve_hard<D: Driver>(
        &self,
        driver: &D,
        lane: Lane,
        device: u32,
        size: u64,
        risk: u64,
        spills: bool,
    ) -> Result<Reservation<'a>, Failure> {
        let budget = self.budget(device).ok_or(Failure::Forward)?;
        if self.measures(device) {
            for _ in 0..READINGS {
                self.read_overhead(driver, device);
                if let Ok(reservation) = budget.reserve_packed(lane, size, risk) {
                    return Ok(reservation);
                }
                if budget.possible() == 0 {
                    break;
                }
            }
        }
        if self.could_fit(device, size) {
            self.trim_pools(driver, device);
            self.read_overhead(driver, device);
        }
        budget.reserve_packed_or_wait(lane, size, risk, patience()).map_err(|refused| match spills {
            false => self.refusal(&budget, device, size, refused),
            true => Failure::Denied(deny(&budget, device, size, refused)),
        })
    }

    /// Whether an idle device could give `size` bytes: only then anything is moved to make room for them.
    fn could_fit(&self, device: u32, size: u64) -> bool {
        let rules = usize::try_from(device).ok().and_then(|at| self.devices.get(at));
        let within = |budget: Budget<'_>| size.checked_add(budget.overhead()).is_some_and(|sum| sum <= budget.limit());
        rules.is_some_and(|rules| size <= rules.total) && self.budget(device).is_some_and(within)
    }

    /// What becomes of a request that does not fit. Where the limit is all of the device the driver is asked nevertheless:
    /// that there is no room is then its own answer, and not ours in the log. (What it should find room for after all is
    /// taken back.)
    fn refusal(&self, budget: &Budget<'_>, device: u32, asked: u64, refused: Refused) -> Failure {
        let rules = usize::try_from(device).ok().and_then(|at| self.devices.get(at));
        if rules.is_some_and(|rules| rules.limit >= rules.total) {
            Failure::Forward
        } else {
            Failure::Denied(deny(budget, device, asked, refused))
        }
    }

    /// A free of any kind of address: the driver's answer, with the charge ended if it is a success.
    #[inline]
    pub fn free<D: Driver>(&self, driver: &D, lane: Lane, address: u64, call: impl FnOnce() -> Code) -> Code {
        // Out of the ledger first: the address may be another thread's as soon as the driver has it back.
        let block = self.ledger.take(address);
        let _working = block.and_then(|block| {
            let device = if block.kind == Kind::Pool {
                self.pools.device_of(block.owner)
            } else {
                self.contexts.device_of(block.owner)
            };
            Some(self.budget(device.filter(|device| self.measures(*device))?)?.working(lane))
        });
        let code = call();
        let Some(block) = block else {
            if self.graphs.any() && code.is_success() {
                self.graphs.freed(address);
            }
            return code;
        };
        if code.is_success() || !self.ledger.put_back(address, block) {
            self.gone(driver, block);
        }
        code
    }

    /// Keeps a block that the driver has just given. What the ledger still had at that address died without a free.
    #[inline]
    fn keep<D: Driver>(&self, driver: &D, address: u64, block: Block) {
        if let Some(dead) = self.ledger.insert(address, block) {
            self.gone(driver, dead);
        }
    }

    /// Ends the charge of a block that is out of the ledger.
    #[inline]
    fn gone<D: Driver>(&self, driver: &D, block: Block) {
        if block.kind == Kind::Pool {
            self.pool_block_freed(driver, block);
        } else if let Some(device) = self.contexts.device_of(block.owner)
            && let Some(budget) = self.budget(device)
        {
            if self.measures(device) {
                if overhead::risk(block.size) > 0 {
                    // The page may stay with its neighbours.
                    budget.suspect(block.size);
                }
                if block.kind == Kind::Managed {
                    budget.drop_managed(block.size);
                }
            }
            budget.release(block.size);
        }
    }

    /// Free and total bytes to report for a device that has `device_free` bytes free; `None` for an unknown device.
    #[must_use]
    pub fn memory_info(&self, device: u32, device_free: u64) -> Option<(u64, u64)> {
        let budget = self.budget(device)?;
        let used = budget.held().saturating_add(budget.overhead());
        let free = crate::meminfo::free(budget.limit(), used, budget.cached(), device_free);
        Some((free, self.total(device)?))
    }

    /// Total bytes to report for a device.
    #[must_use]
    pub fn total(&self, device: u32) -> Option<u64> {
        let rules = self.devices.get(usize::try_from(device).ok()?)?;
        Some(crate::meminfo::total(rules.limit, rules.total))
    }

    /// Device of the calling thread's context.
    ///
    /// # Errors
    /// The driver's code where no context is current.
    pub fn current_device<D: Driver>(&self, driver: &D) -> Result<u32, Code> {
        self.contexts.owner(driver).map(|owner| owner.device)
    }
}

/// Counts a refusal and describes it.
fn deny(budget: &Budget<'_>, device: u32, asked: u64, refused: Refused) -> Denial {
    budget.note_denied(asked);
    let live = refused.held.saturating_sub(budget.cached());
    Denial { device, asked, live, held: refused.held, overhead: refused.overhead, limit: budget.limit() }
}

/// Readings before a refusal: each settles what other threads made possible meanwhile.
const READINGS: u32 = 4;

/// How long a refusal waits for reservations in flight: a short spin, then sleeps, 100 ms in all.
fn patience() -> impl FnMut() -> bool {
    let mut looks = 0_u32;
    move || {
        looks += 1;
        if looks < 200 {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        looks < 1200
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
