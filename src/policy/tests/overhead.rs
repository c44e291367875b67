//! The measured overhead.

use super::*;

fn measured(cells: &[Cells; 1], limit: u64) -> Governor<'_> {
    let rules = DeviceRules { limit, total: 1 << 30, overhead: OverheadRule::Measured };
    Governor::new(cells, vec![rules])
}

/// Takes a block of which the simulated device loses `lost` bytes.
fn take_of(governor: &Governor<'_>, driver: &Fake, size: u64, lost: u64) -> Result<u64, Failure> {
    let call = || {
        driver.footprint.set(driver.footprint.get() + lost);
        Ok(Granted { address: driver.fresh(), size })
    };
    governor.allocate(driver, LANE, Kind::Linear, size, call, |_| panic!("nothing to undo"))
}

#[test]
fn a_measured_overhead_counts() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = measured(&cells, 1000 * MIB);
    driver.footprint.set(300 * MIB);
    governor.context_created(&driver, 0x10, 0);
    assert_eq!(governor.memory_info(0, 1 << 40), Some((700 * MIB, 1000 * MIB)));
    take_of(&governor, &driver, 700 * MIB, 700 * MIB).unwrap();
    assert!(
        matches!(take_of(&governor, &driver, 2 * MIB, 2 * MIB), Err(Failure::Denied(Denial { overhead, .. })) if overhead == 300 * MIB)
    );
}

#[test]
fn a_fixed_overhead_counts_whatever_is_measured() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let rules = DeviceRules { limit: 10 * MIB, total: 1 << 30, overhead: OverheadRule::Fixed(4 * MIB) };
    let governor = Governor::new(&cells, vec![rules]);
    assert_eq!(governor.memory_info(0, 1 << 40), Some((6 * MIB, 10 * MIB)));
    take_of(&governor, &driver, 6 * MIB, 6 * MIB).unwrap();
    assert!(take_of(&governor, &driver, 512, 512).is_err());
    assert_eq!(driver.readings.get(), 0);
}

#[test]
fn what_launches_took_unseen_is_found_before_the_limit_is_crossed() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = measured(&cells, 1000 * MIB);
    governor.context_created(&driver, 0x10, 0);
    take_of(&governor, &driver, 700 * MIB, 700 * MIB).unwrap();
    driver.footprint.set(driver.footprint.get() + 250 * MIB);
    assert!(take_of(&governor, &driver, 100 * MIB, 100 * MIB).is_err());
    take_of(&governor, &driver, 50 * MIB, 50 * MIB).unwrap();
}

#[test]
fn far_from_the_limit_nothing_is_read() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = measured(&cells, 1 << 40);
    governor.context_created(&driver, 0x10, 0);
    let before = driver.readings.get();
    for _ in 0..1000 {
        take_of(&governor, &driver, MIB / 16, 0).unwrap();
    }
    assert_eq!(driver.readings.get(), before);
}

#[test]
fn small_blocks_that_share_pages_are_settled_by_a_reading() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = measured(&cells, 600 * MIB);
    governor.context_created(&driver, 0x10, 0);
    // 64 KiB each, 32 of them in a page: 300 MiB in truth, 9600 MiB if each had a page of its own.
    for n in 0..4800 {
        take_of(&governor, &driver, MIB / 16, if n % 32 == 0 { 2 * MIB } else { 0 }).unwrap();
    }
    take_of(&governor, &driver, 300 * MIB, 300 * MIB).unwrap();
    assert!(take_of(&governor, &driver, 2 * MIB, 2 * MIB).is_err());
    assert_eq!(driver.footprint.get(), 600 * MIB);
}

#[test]
fn freed_small_blocks_leave_their_page_behind_until_a_reading() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = measured(&cells, 600 * MIB);
    governor.context_created(&driver, 0x10, 0);
    // Two blocks of 512 KiB to a page, the second freed: the page stays.
    for _ in 0..100 {
        take_of(&governor, &driver, MIB / 2, 2 * MIB).unwrap();
        let second = take_of(&governor, &driver, MIB / 2, 0).unwrap();
        governor.free(&driver, LANE, second, || Code::SUCCESS);
    }
    assert!(take_of(&governor, &driver, 402 * MIB, 402 * MIB).is_err());
    take_of(&governor, &driver, 400 * MIB, 400 * MIB).unwrap();
}

#[test]
fn without_a_reading_small_blocks_cost_no_more_than_they_are() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = measured(&cells, 1000 * MIB);
    driver.footprint.set(NO_READING);
    governor.context_created(&driver, 0x10, 0);
    // As pages of their own they would be 4 GiB.
    for _ in 0..2000 {
        let address = take_of(&governor, &driver, 512, 0).unwrap();
        assert_eq!(governor.free(&driver, LANE, address, || Code::SUCCESS), Code::SUCCESS);
    }
    take_of(&governor, &driver, 1000 * MIB, 0).unwrap();
}

#[test]
fn managed_memory_that_died_with_its_context_holds_no_overhead_up() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    let governor = measured(&cells, 1000 * MIB);
    driver.footprint.set(300 * MIB);
    governor.context_created(&driver, 0x10, 0);
    let call = || Ok(Granted { address: driver.fresh(), size: 100 * MIB });
    let undo = |_| panic!("nothing to undo");
    governor.allocate(&driver, LANE, Kind::Managed, 100 * MIB, call, undo).unwrap();
    driver.footprint.set(0);
    assert_eq!(governor.context_destroy(&driver, 0x10, || Code::SUCCESS), Code::SUCCESS);
    assert_eq!(governor.memory_info(0, 1 << 40), Some((1000 * MIB, 1000 * MIB)));
}

#[test]
fn a_pool_that_grows_by_more_than_was_expected_is_refused_at_the_limit_and_not_before() {
    let (cells, driver) = ([Cells::default()], Fake::new());
    // Readings are due from 744 MiB on.
    let governor = measured(&cells, 1000 * MIB);
    driver.footprint.set(300 * MIB);
    governor.context_created(&driver, 0x10, 0);
    governor.pool_created(0x99, Some(0));
    let set = |reserved, used| driver.pools.borrow_mut().insert(0x99, PoolLevels { reserved, used });
    set(0, 0);
    let pool = governor.pool(0x99, None).unwrap();
    let call = || {
        set(448 * MIB, 416 * MIB);
        Ok(driver.fresh())
    };
    let undo = |_| {
        set(448 * MIB, 0);
    };
    governor.pool_allocate(&driver, LANE, pool, 416 * MIB, call, undo).unwrap();
    assert_eq!(governor.memory_info(0, 1 << 40), Some((252 * MIB, 1000 * MIB)));
}
