//! The rules over a driver that answers what a test wants.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::*;
use crate::driver::PoolLevels;

mod overhead;

const MIB: u64 = 1 << 20;
const LANE: Lane = Lane::SHARED;
/// A footprint that can't be read.
const NO_READING: u64 = u64::MAX;

/// A driver with one context current on each test's thread, and pools with levels.
#[derive(Default)]
struct Fake {
    context: Cell<Option<usize>>,
    pools: RefCell<HashMap<usize, PoolLevels>>,
    trims: Cell<u32>,
    footprint: Cell<u64>,
    readings: Cell<u32>,
    next: Cell<u64>,
}

impl Driver for Fake {
    fn current_context(&self) -> Result<Option<usize>, Code> {
        Ok(self.context.get())
    }
    fn current_device(&self) -> Result<u32, Code> {
        Ok(0)
    }
    fn primary_is_active(&self, _: u32) -> Option<bool> {
        Some(false)
    }
    fn context_id(&self, _: usize) -> Option<u64> {
        None
    }
    fn stream_context(&self, _: usize) -> Option<usize> {
        None
    }
    fn current_pool(&self, _: u32) -> Option<usize> {
        Some(0x99)
    }
    fn pool_levels(&self, pool: usize) -> Option<PoolLevels> {
        self.pools.borrow().get(&pool).copied()
    }
    fn footprint(&self, _: u32) -> Option<u64> {
        self.readings.set(self.readings.get() + 1);
        Some(self.footprint.get()).filter(|bytes| *bytes != NO_READING)
    }
    fn trim_pool(&self, pool: usize) {
        self.trims.set(self.trims.get() + 1);
        if let Some(levels) = self.pools.borrow_mut().get_mut(&pool) {
            levels.reserved = levels.used;
        }
    }
}

impl Fake {
    fn new() -> Fake {
        Fake { context: Cell::new(Some(0x10)), ..Fake::default() }
    }

    fn fresh(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get() * (1 << 30)
    }

    /// A pool that grows by 32 MiB steps.
    fn take_from_pool(&self, pool: usize, bytes: u64) -> u64 {
        let mut pools = self.pools.borrow_mut();
        let levels = pools.get_mut(&pool).unwrap();
        levels.used += bytes;
        levels.reserved = levels.reserved.max(levels.used.next_multiple_of(32 * MIB));
        self.fresh()
    }
}

fn governor(cells: &[Cells; 1], limit: u64) -> Governor<'_> {
    Governor::new(cells, vec![DeviceRules { limit, total: 1 << 40, overhead: OverheadRule::None }])
}

fn take(governor: &Governor<'_>, driver: &Fake, size: u64) -> Result<u64, Failure> {
    let call = || Ok(Granted { address: driver.fresh(), size });
    governor.allocate(driver, LANE, Kind::Linear, size, call, |_| panic!("nothing to undo"))
}

fn held(governor: &Governor<'_>) -> u64 {
    governor.budget(0).unwrap().held()
}

#[test]
fn an_allocation_is_charged_until_it_is_freed() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 10 * MIB);
    let address = take(&governor, &driver, 10 * MIB).unwrap();
    assert_eq!(held(&governor), 10 * MIB);
    assert_eq!(governor.free(&driver, LANE, address, || Code::SUCCESS), Code::SUCCESS);
    assert_eq!(held(&governor), 0);
}

#[test]
fn over_the_limit_the_driver_is_not_asked() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 10 * MIB);
    take(&governor, &driver, 8 * MIB).unwrap();
    let call = || panic!("the driver must not be asked");
    let refused = governor.allocate(&driver, LANE, Kind::Linear, 4 * MIB, call, |_| {});
    let denial = Denial { device: 0, asked: 4 * MIB, live: 8 * MIB, held: 8 * MIB, overhead: 0, limit: 10 * MIB };
    assert_eq!(refused, Err(Failure::Denied(denial)));
    assert_eq!(governor.budget(0).unwrap().denied(), 1);
}

#[test]
fn what_the_driver_refuses_is_not_charged() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 10 * MIB);
    let refused = governor.allocate(&driver, LANE, Kind::Linear, MIB, || Err(Code::OUT_OF_MEMORY), |_| {});
    assert_eq!(refused, Err(Failure::Driver(Code::OUT_OF_MEMORY)));
    assert_eq!((held(&governor), governor.budget(0).unwrap().denied()), (0, 0));
}

#[test]
fn without_a_context_the_driver_answers() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 0);
    driver.context.set(None);
    assert_eq!(take(&governor, &driver, MIB), Err(Failure::Forward));
    driver.context.set(Some(0x10));
    assert!(matches!(take(&governor, &driver, MIB), Err(Failure::Denied(_))));
    driver.context.set(None);
    assert_eq!(take(&governor, &driver, MIB), Err(Failure::Forward), "the context is known, but not current");
}

#[test]
fn a_free_that_the_driver_refuses_leaves_the_charge() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 10 * MIB);
    let address = take(&governor, &driver, 2 * MIB).unwrap();
    assert_eq!(governor.free(&driver, LANE, address, || Code(700)), Code(700));
    assert_eq!(held(&governor), 2 * MIB);
    governor.free(&driver, LANE, address, || Code::SUCCESS);
    assert_eq!(held(&governor), 0);
}

#[test]
fn an_unknown_pointer_is_freed_by_the_driver() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 10 * MIB);
    assert_eq!(governor.free(&driver, LANE, 0x1234_5678, || Code(1)), Code(1));
    assert_eq!(governor.free(&driver, LANE, 0, || Code::SUCCESS), Code::SUCCESS);
    assert_eq!(held(&governor), 0);
}

#[test]
fn what_is_larger_than_expected_and_does_not_fit_is_undone() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 10 * MIB);
    let undone = Cell::new(0);
    let call = || Ok(Granted { address: 0x4000, size: 12 * MIB });
    let refused = governor.allocate(&driver, LANE, Kind::Pitch, 8 * MIB, call, |address| undone.set(address));
    assert!(matches!(refused, Err(Failure::Denied(Denial { asked, .. })) if asked == 12 * MIB));
    assert_eq!((undone.get(), held(&governor)), (0x4000, 0));
}

#[test]
fn memory_dies_with_its_context() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 100 * MIB);
    governor.context_created(&driver, 0x10, 0);
    governor.context_created(&driver, 0x20, 0);
    take(&governor, &driver, 2 * MIB).unwrap();
    driver.context.set(Some(0x20));
    take(&governor, &driver, 4 * MIB).unwrap();
    assert_eq!(governor.context_destroy(&driver, 0x10, || Code(201)), Code(201));
    assert_eq!(held(&governor), 6 * MIB, "refused: nothing died");
    assert_eq!(governor.context_destroy(&driver, 0x10, || Code::SUCCESS), Code::SUCCESS);
    assert_eq!(held(&governor), 4 * MIB);
}

#[test]
fn a_pool_is_charged_by_what_it_reserves() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 64 * MIB);
    driver.pools.borrow_mut().insert(0x99, PoolLevels::default());
    let pool = governor.pool_of_stream(&driver, 0).unwrap();
    let ask =
        |bytes| governor.pool_allocate(&driver, LANE, pool, bytes, || Ok(driver.take_from_pool(0x99, bytes)), |_| {});
    ask(MIB).unwrap();
    assert_eq!(held(&governor), 32 * MIB);
    ask(31 * MIB).unwrap();
    assert_eq!(held(&governor), 32 * MIB, "served from what the pool has");
    ask(MIB).unwrap();
    assert_eq!(held(&governor), 64 * MIB);
    assert!(matches!(ask(64 * MIB), Err(Failure::Denied(_))));
    assert_eq!(held(&governor), 33 * MIB, "idle memory was trimmed before the refusal");
}

#[test]
fn a_pool_that_grows_past_the_limit_is_undone() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 40 * MIB);
    driver.pools.borrow_mut().insert(0x99, PoolLevels::default());
    let pool = governor.pool_of_stream(&driver, 0).unwrap();
    let undo = |_| driver.pools.borrow_mut().get_mut(&0x99).unwrap().used -= 40 * MIB;
    let refused = governor.pool_allocate(
        &driver,
        LANE,
        pool,
        MIB,
        // More than any step that was to be expected.
        || Ok(driver.take_from_pool(0x99, 40 * MIB)),
        undo,
    );
    assert!(matches!(refused, Err(Failure::Denied(_))));
    assert_eq!(held(&governor), 0);
}

#[test]
fn idle_pools_are_trimmed_before_anything_is_refused() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 32 * MIB);
    driver.pools.borrow_mut().insert(0x99, PoolLevels::default());
    let pool = governor.pool_of_stream(&driver, 0).unwrap();
    let address =
        governor.pool_allocate(&driver, LANE, pool, MIB, || Ok(driver.take_from_pool(0x99, MIB)), |_| {}).unwrap();
    let free = || {
        driver.pools.borrow_mut().get_mut(&0x99).unwrap().used -= MIB;
        Code::SUCCESS
    };
    governor.free(&driver, LANE, address, free);
    assert_eq!(held(&governor), 32 * MIB, "the pool keeps it");
    take(&governor, &driver, 32 * MIB).unwrap();
    assert_eq!((held(&governor), driver.trims.get()), (32 * MIB, 1));
}

#[test]
fn a_limit_of_zero_admits_nothing_and_reports_nothing() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = governor(&cells, 0);
    assert!(matches!(take(&governor, &driver, 512), Err(Failure::Denied(_))));
    assert_eq!(governor.memory_info(0, 1 << 40), Some((0, 0)));
}
