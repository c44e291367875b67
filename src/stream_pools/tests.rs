//! Levels of pools, in and out of order.

use super::*;
use crate::budget::{Cells, Lane};

const MIB: u64 = 1 << 20;

fn pool(pools: &StreamPools) -> PoolRef {
    pools.created(7, Some(0));
    pools.find(7, None).unwrap()
}

#[test]
fn growth_is_a_whole_step_once_one_has_shown() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 1 << 30);
    let pool = pool(&pools);
    assert_eq!(
        pools.growth(pool, 5 * MIB, 0, false),
        32 * MIB,
        "assumed before"
    );
    assert_eq!(pools.growth(pool, 5 * MIB, 0, true), 5 * MIB);
    let ticket = pools.ticket(pool);
    let reservation = budget.reserve(Lane::SHARED, 5 * MIB).unwrap();
    assert!(
        pools
            .settle(pool, ticket, 8 * MIB, &budget, reservation)
            .is_ok()
    );
    assert_eq!((budget.held(), pools.charged(0)), (8 * MIB, 8 * MIB));
    assert_eq!(pools.growth(pool, 9 * MIB, 0, true), 16 * MIB);
    assert_eq!(
        pools.growth(pool, 9 * MIB, 9 * MIB, true),
        0,
        "served from what it has"
    );
}

#[test]
fn an_older_reading_never_replaces_a_newer_one() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 1 << 30);
    let pool = pool(&pools);
    let (older, newer) = (pools.ticket(pool), pools.ticket(pool));
    pools.force(pool, newer, 64 * MIB, &budget);
    pools.force(pool, older, 32 * MIB, &budget);
    assert_eq!(budget.held(), 64 * MIB);
}

#[test]
fn growth_past_the_limit_leaves_the_charge_and_hands_the_reservation_back() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 20 * MIB);
    let pool = pool(&pools);
    let ticket = pools.ticket(pool);
    let reservation = budget.reserve(Lane::SHARED, 2 * MIB).unwrap();
    let Err(reservation) = pools.settle(pool, ticket, 32 * MIB, &budget, reservation) else {
        panic!("32 MiB can't fit");
    };
    assert_eq!(
        (reservation.bytes(), budget.held(), pools.charged(0)),
        (2 * MIB, 2 * MIB, 0)
    );
    drop(reservation);
    let ticket = pools.ticket(pool);
    pools.force(pool, ticket, 0, &budget);
    assert_eq!(budget.held(), 0);
}

#[test]
fn a_destroyed_pool_is_charged_until_its_last_block_is_freed() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 1 << 30);
    let pool = pool(&pools);
    let ticket = pools.ticket(pool);
    pools.force(pool, ticket, 32 * MIB, &budget);
    pools.block_taken(pool.slot);
    pools.block_taken(pool.slot);
    pools.destroying(pool);
    assert_eq!(
        pools.find(7, None),
        None,
        "the handle means nothing any more"
    );
    assert_eq!(pools.destroyed(pool), None);
    assert_eq!(pools.block_freed(pool.slot), (None, None));
    assert_eq!(pools.block_freed(pool.slot), (Some((0, 32 * MIB)), None));
    assert_eq!(pools.charged(0), 0);
}

#[test]
fn host_pools_cost_nothing() {
    let pools = StreamPools::default();
    pools.created(9, None);
    assert_eq!(pools.find(9, Some(0)), None);
}

#[test]
fn a_recycled_handle_is_a_new_pool() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 1 << 30);
    let old = pool(&pools);
    let ticket = pools.ticket(old);
    pools.force(old, ticket, 32 * MIB, &budget);
    pools.block_taken(old.slot);
    let new = pool(&pools);
    assert_ne!(old.slot, new.slot);
    assert_eq!(pools.block_freed(old.slot), (Some((0, 32 * MIB)), None));
}
