//! Levels of pools: readings in and out of order, calls that overlap.

use super::*;
use crate::budget::{Cells, Lane};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn pool(pools: &StreamPools) -> PoolRef {
    pools.created(7, Some(0));
    pools.find(7, None).unwrap()
}

fn levels(reserved: u64, used: u64) -> PoolLevels {
    PoolLevels { reserved, used }
}

/// A call for `bytes` from start to end, after which the driver says that the pool holds `reserved`.
fn one_call(pools: &StreamPools, pool: PoolRef, budget: &Budget<'_>, bytes: u64, reserved: u64) {
    let reservation = pools.start(pool, bytes, budget, Lane::SHARED, Step::Shown).unwrap();
    let reading = Some((pools.ticket(pool), levels(reserved, bytes)));
    assert!(pools.settle(pool, bytes, reading, budget, reservation).is_ok());
}

#[test]
fn growth_is_a_whole_step_once_one_has_shown() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 1 << 30);
    let pool = pool(&pools);
    let first = pools.start(pool, 5 * MIB, &budget, Lane::SHARED, Step::Shown).unwrap();
    assert_eq!(first.bytes(), 32 * MIB, "assumed before");
    pools.cancel(pool, 5 * MIB, None, &budget, first);
    assert_eq!(pools.growth(pool, 5 * MIB), 32 * MIB, "before a refusal too");
    one_call(&pools, pool, &budget, 5 * MIB, 8 * MIB);
    assert_eq!((budget.held(), pools.charged(0)), (8 * MIB, 8 * MIB));
    assert_eq!(pools.growth(pool, 9 * MIB), 8 * MIB);
    assert_eq!(pools.growth(pool, 3 * MIB), 0, "served from what it has");
}

#[test]
fn an_older_reading_never_replaces_a_newer_one() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 1 << 30);
    let pool = pool(&pools);
    let (older, newer) = (pools.ticket(pool), pools.ticket(pool));
    pools.observe(pool, newer, levels(64 * MIB, 0), &budget);
    pools.observe(pool, older, levels(32 * MIB, 0), &budget);
    assert_eq!(budget.held(), 64 * MIB);
}

#[test]
fn growth_past_the_limit_hands_the_reservation_back_and_leaves_the_call_under_way() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 40 * MIB);
    let pool = pool(&pools);
    let reservation = pools.start(pool, 2 * MIB, &budget, Lane::SHARED, Step::Least).unwrap();
    let reading = Some((pools.ticket(pool), levels(64 * MIB, 2 * MIB)));
    let Err(reservation) = pools.settle(pool, 2 * MIB, reading, &budget, reservation) else {
        panic!("64 MiB can't fit");
    };
    assert_eq!((reservation.bytes(), budget.held(), pools.charged(0)), (32 * MIB, 32 * MIB, 0));
    let reading = Some((pools.ticket(pool), levels(0, 0)));
    pools.cancel(pool, 2 * MIB, reading, &budget, reservation);
    assert_eq!(budget.held(), 0);
    assert_eq!(pools.growth(pool, 2 * MIB), 64 * MIB, "it is known by now");
}

#[test]
fn the_first_to_read_sees_the_growth_of_all_and_pays_its_own() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 96 * MIB);
    let pool = pool(&pools);
    let start = || pools.start(pool, 32 * MIB, &budget, Lane::SHARED, Step::Shown);
    let calls = [start(), start(), start()];
    assert!(start().is_err(), "three fit");
    let reading = Some((pools.ticket(pool), levels(96 * MIB, 96 * MIB)));
    for call in calls {
        assert!(pools.settle(pool, 32 * MIB, reading, &budget, call.unwrap()).is_ok());
        assert_eq!(budget.held(), 96 * MIB);
    }
    assert_eq!(pools.charged(0), 96 * MIB);
}

#[test]
fn two_calls_do_not_count_on_the_same_idle_bytes() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 1 << 30);
    let pool = pool(&pools);
    one_call(&pools, pool, &budget, 32 * MIB, 32 * MIB);
    pools.block_freed(pool.slot, 32 * MIB, None, &budget);
    let start = || pools.start(pool, 32 * MIB, &budget, Lane::SHARED, Step::Shown).unwrap().bytes();
    assert_eq!((start(), start()), (0, 32 * MIB));
}

#[test]
fn a_destroyed_pool_is_charged_until_its_last_block_is_freed() {
    let (pools, cells) = (StreamPools::default(), Cells::default());
    let budget = Budget::new(&cells, 1 << 30);
    let pool = pool(&pools);
    one_call(&pools, pool, &budget, MIB, 32 * MIB);
    one_call(&pools, pool, &budget, MIB, 32 * MIB);
    pools.destroying(pool, || false);
    assert_eq!(pools.find(7, None), None, "the handle means nothing any more");
    assert_eq!(pools.destroyed(pool), None);
    assert_eq!(pools.in_slot(pool.slot), Some((0, None)));
    pools.block_freed(pool.slot, MIB, None, &budget);
    assert_eq!(budget.held(), 32 * MIB);
    pools.block_freed(pool.slot, MIB, None, &budget);
    assert_eq!((budget.held(), pools.charged(0)), (0, 0));
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
    one_call(&pools, old, &budget, MIB, 32 * MIB);
    let new = pool(&pools);
    assert_ne!(old.slot, new.slot);
    pools.block_freed(old.slot, MIB, None, &budget);
    assert_eq!(budget.held(), 0);
}

/// Bytes of a call, what is reserved for it, and the reading after it.
type Served<'b> = (u64, Reservation<'b>, Option<(Ticket, PoolLevels)>);

/// The driver's pool, and the calls under way by how far they are.
struct World<'b> {
    pools: StreamPools,
    pool: PoolRef,
    budget: Budget<'b>,
    real: PoolLevels,
    step: u64,
    /// Started, not yet with the driver.
    started: Vec<(u64, Reservation<'b>)>,
    /// Served by the driver; with the reading where it was made already.
    served: Vec<Served<'b>>,
    live: Vec<u64>,
    /// Freed by the driver, not yet in the books; with the reading where it was made already.
    freed: Vec<(u64, Option<(Ticket, PoolLevels)>)>,
}

impl<'b> World<'b> {
    fn read(&self) -> Option<(Ticket, PoolLevels)> {
        Some((self.pools.ticket(self.pool), self.real))
    }

    fn trim(&mut self) {
        let needed = self.real.used.next_multiple_of(self.step);
        self.real.reserved = self.real.reserved.min(needed);
    }

    fn pick(&self, of: usize, by: u64) -> usize {
        usize::try_from(by).unwrap() % of
    }

    fn act(&mut self, event: u8, number: u64) {
        match event {
            0..=2 => {
                let bytes = (number % (3 * self.step)).next_multiple_of(512).max(512);
                let started = self.pools.start(self.pool, bytes, &self.budget, Lane::SHARED, Step::Shown);
                self.started.extend(started.map(|call| (bytes, call)));
            }
            3..=5 if !self.started.is_empty() => {
                let at = self.pick(self.started.len(), number);
                let (bytes, call) = self.started.swap_remove(at);
                self.real.used += bytes;
                let needed = self.real.used.next_multiple_of(self.step);
                self.real.reserved = self.real.reserved.max(needed);
                self.served.push((bytes, call, None));
            }
            6 if !self.started.is_empty() => {
                let at = self.pick(self.started.len(), number);
                let (bytes, call) = self.started.swap_remove(at);
                let reading = self.read();
                self.pools.cancel(self.pool, bytes, reading, &self.budget, call);
            }
            7 if !self.served.is_empty() => {
                let (at, reading) = (self.pick(self.served.len(), number), self.read());
                self.served[at].2 = reading;
            }
            8..=10 if !self.served.is_empty() => {
                let at = self.pick(self.served.len(), number);
                let (bytes, call, reading) = self.served.swap_remove(at);
                let reading = reading.or_else(|| self.read());
                let settled = self.pools.settle(self.pool, bytes, reading, &self.budget, call);
                assert!(settled.is_ok(), "what was reserved was enough");
                self.live.push(bytes);
            }
            11 if !self.live.is_empty() => {
                let at = self.pick(self.live.len(), number);
                let bytes = self.live.swap_remove(at);
                self.real.used -= bytes;
                self.freed.push((bytes, None));
            }
            12 if !self.freed.is_empty() => {
                let (at, reading) = (self.pick(self.freed.len(), number), self.read());
                self.freed[at].1 = reading;
            }
            13 if !self.freed.is_empty() => {
                let at = self.pick(self.freed.len(), number);
                let (bytes, reading) = self.freed.swap_remove(at);
                let reading = reading.or_else(|| self.read());
                self.pools.block_freed(self.pool.slot, bytes, reading, &self.budget);
            }
            14 => self.trim(),
            15 => self.observe(),
            _ => {}
        }
    }

    fn observe(&self) {
        let (ticket, levels) = self.read().unwrap();
        self.pools.observe(self.pool, ticket, levels, &self.budget);
    }
}

proptest! {
    #[test]
    fn calls_in_any_order_keep_the_pool_covered_and_leave_its_level(
        events in prop::collection::vec((0..16_u8, any::<u64>()), 1..200),
        megabytes in 1..40_u64,
    ) {
        let cells = Cells::default();
        let pools = StreamPools::default();
        let pool = pool(&pools);
        let (step, limit) = (megabytes * MIB, 400 * MIB);
        let budget = Budget::new(&cells, limit);
        // The step has shown itself.
        one_call(&pools, pool, &budget, 512, step);
        let mut world = World {
            pools, pool, budget, step,
            real: levels(step, 512),
            started: Vec::new(), served: Vec::new(), live: vec![512], freed: Vec::new(),
        };
        for (event, number) in events {
            world.act(event, number);
            prop_assert!(world.real.reserved <= budget.held(), "{:?} of {}", world.real, budget.held());
            prop_assert!(budget.held() <= limit);
        }
        while !(world.started.is_empty() && world.served.is_empty() && world.freed.is_empty()) {
            world.act(3, 0);
            world.act(8, 0);
            world.act(13, 0);
        }
        world.observe();
        prop_assert_eq!(budget.held(), world.real.reserved);
    }
}

#[test]
fn a_pool_that_is_being_destroyed_is_not_asked_and_waits_for_questions_under_way() {
    let pools = StreamPools::default();
    let pool = pool(&pools);
    let looks = std::cell::Cell::new(0);
    let answer = pools.ask(pool, || {
        pools.destroying(pool, || {
            looks.set(looks.get() + 1);
            looks.get() < 3
        });
        7
    });
    assert_eq!((answer, looks.get()), (Some(7), 3), "it waited as long as it was told to");
    assert_eq!(pools.ask(pool, || 7), None);
    pools.lives(pool);
    assert_eq!(pools.ask(pool, || 7), Some(7));
}
