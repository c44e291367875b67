//! The budget's rules, on real atomics.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

#[test]
fn what_fits_is_reserved_and_the_byte_too_many_is_not() {
    let cells = Cells::default();
    let budget = Budget::new(&cells, 10 * MIB);
    budget.set_overhead(3 * MIB);
    budget.reserve(Lane::SHARED, 7 * MIB).unwrap().commit();
    assert_eq!(budget.reserve(Lane::SHARED, 1).unwrap_err(), Refused { held: 7 * MIB, overhead: 3 * MIB });
    budget.release(1);
    budget.reserve(Lane::owned(0), 1).unwrap().commit();
    assert_eq!((budget.held(), budget.peak()), (7 * MIB, 7 * MIB));
}

#[test]
fn a_dropped_reservation_leaves_no_trace_in_held_or_peak() {
    let cells = Cells::default();
    let budget = Budget::new(&cells, 100);
    drop(budget.reserve(Lane::owned(1), 100).unwrap());
    assert_eq!((budget.held(), budget.peak()), (0, 0));
    budget.reserve(Lane::owned(1), 100).unwrap().commit();
}

#[test]
fn sums_beyond_64_bits_are_refused_and_change_nothing() {
    let cells = Cells::default();
    for limit in [UNCAPPED, UNCAPPED - 1, 0] {
        let budget = Budget::new(&cells, limit);
        budget.set_overhead(1);
        assert!(budget.reserve(Lane::SHARED, u64::MAX).is_err());
        assert!(budget.reserve_or_wait(Lane::SHARED, u64::MAX, || panic!("nothing is in flight")).is_err());
        assert_eq!(budget.held(), 0);
    }
}

#[test]
fn a_limit_of_zero_refuses_every_byte_and_admits_none() {
    let cells = Cells::default();
    let budget = Budget::new(&cells, 0);
    budget.set_overhead(5);
    assert!(budget.reserve(Lane::SHARED, 1).is_err());
    budget.reserve(Lane::SHARED, 0).unwrap().commit();
}

#[test]
fn a_commit_of_less_gives_the_rest_back_and_the_peak_is_what_was_given() {
    let cells = Cells::default();
    let budget = Budget::new(&cells, 100);
    budget.reserve(Lane::SHARED, 100).unwrap().commit_as(60).unwrap();
    assert_eq!((budget.held(), budget.peak()), (60, 60));
}

#[test]
fn a_commit_of_more_reserves_the_rest_or_comes_back_whole() {
    let cells = Cells::default();
    let budget = Budget::new(&cells, 100);
    budget.reserve(Lane::SHARED, 40).unwrap().commit_as(60).unwrap();
    assert_eq!((budget.held(), budget.peak()), (60, 60));
    let (whole, refused) = budget.reserve(Lane::SHARED, 40).unwrap().commit_as(41).unwrap_err();
    assert_eq!((whole.bytes(), refused.held, budget.held()), (40, 100, 100));
    drop(whole);
    assert_eq!((budget.held(), budget.peak()), (60, 60));
}

#[test]
fn a_refusal_waits_for_the_reservation_it_leaned_on_and_takes_what_comes_back() {
    let cells = Cells::default();
    let budget = Budget::new(&cells, 100);
    for lane in [Lane::owned(0), Lane::SHARED] {
        let mut first = Some(budget.reserve(lane, 100).unwrap());
        let mut looks = 0;
        let second = budget.reserve_or_wait(Lane::owned(1), 100, || {
            looks += 1;
            if looks == 3 {
                first = None;
            }
            true
        });
        assert!(second.is_ok(), "looked {looks} times");
    }
}

#[test]
fn a_refusal_stands_once_what_it_leaned_on_is_committed() {
    let cells = Cells::default();
    let budget = Budget::new(&cells, 100);
    let mut first = Some(budget.reserve(Lane::owned(0), 1).unwrap());
    let second = budget.reserve_or_wait(Lane::owned(1), 100, || {
        first.take().unwrap().commit();
        true
    });
    assert!(second.is_err());
    assert_eq!(budget.held(), 1);
}

#[test]
fn a_refusal_gives_up_waiting_when_told_so_and_never_waits_in_vain() {
    let cells = Cells::default();
    let budget = Budget::new(&cells, 100);
    let _first = budget.reserve(Lane::owned(0), 1).unwrap();
    assert!(budget.reserve_or_wait(Lane::owned(1), 100, || false).is_err());
    assert!(budget.reserve_or_wait(Lane::owned(1), 101, || panic!("can never fit")).is_err());
    assert!(budget.reserve_or_wait(Lane::owned(0), 100, || panic!("its own")).is_err());
}

#[test]
fn a_lane_beyond_the_owned_ones_is_the_shared_one() {
    assert_eq!(Lane::owned(Lane::OWNED), Lane::SHARED);
    assert_eq!(Lane::owned(usize::MAX), Lane::SHARED);
    assert_ne!(Lane::owned(Lane::OWNED - 1), Lane::SHARED);
}

/// Eight threads ask for the same few bytes; half of the driver calls fail. Whoever is refused must have been refused by bytes that
/// others really kept: with room for two, a refusal while fewer than two requests of a round ever succeed is a false one.
#[test]
fn threads_racing_to_the_last_bytes_never_pass_together_and_never_all_fail() {
    const ROUNDS: u64 = 2_000;
    const THREADS: usize = 8;
    let cells = Cells::default();
    let budget = Budget::new(&cells, 2);
    let real = std::sync::atomic::AtomicU64::new(0);
    let over = AtomicBool::new(false);
    for round in 0..ROUNDS {
        let got = std::sync::atomic::AtomicU64::new(0);
        let willing = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|s| {
            for t in 0..THREADS {
                let (budget, got, willing, real, over) = (&budget, &got, &willing, &real, &over);
                s.spawn(move || {
                    let lane = if round % 2 == 0 { Lane::owned(t) } else { Lane::SHARED };
                    let fails = !(t as u64 + round).is_multiple_of(2);
                    let deadline = Instant::now() + Duration::from_secs(5);
                    let settle = || {
                        std::thread::yield_now();
                        Instant::now() < deadline
                    };
                    if !fails {
                        willing.fetch_add(1, Relaxed);
                    }
                    if let Ok(reservation) = budget.reserve_or_wait(lane, 1, settle) {
                        std::thread::yield_now();
                        if !fails {
                            over.fetch_or(real.fetch_add(1, AcqRel) >= 2, Relaxed);
                            reservation.commit();
                            got.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(willing.into_inner(), 4);
        assert_eq!(got.load(Relaxed), 2, "round {round}");
        assert_eq!((budget.held(), budget.peak()), (2, 2));
        real.store(0, Relaxed);
        budget.release(2);
    }
    assert!(!over.into_inner());
}

#[derive(Clone, Debug)]
enum Step {
    Commit(u64),
    CommitAs(u64, u64),
    Cancel(u64),
    Release,
    Overhead(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..50u64).prop_map(Step::Commit),
        (0..50u64, 0..60u64).prop_map(|(a, b)| Step::CommitAs(a, b)),
        (0..50u64).prop_map(Step::Cancel),
        Just(Step::Release),
        (0..20u64).prop_map(Step::Overhead),
    ]
}

proptest! {
    #[test]
    fn it_equals_plain_sums(limit in 0..120u64, steps in prop::collection::vec(step(), 0..80)) {
        let cells = Cells::default();
        let budget = Budget::new(&cells, limit);
        let (mut blocks, mut held, mut peak, mut overhead) = (Vec::new(), 0u64, 0u64, 0u64);
        for step in steps {
            let lane = Lane::owned(blocks.len());
            match step {
                Step::Commit(n) | Step::Cancel(n) | Step::CommitAs(n, _) => {
                    let fits = |n: u64| n == 0 || held + overhead + n <= limit;
                    let Ok(r) = budget.reserve(lane, n) else { prop_assert!(!fits(n)); continue };
                    prop_assert!(fits(n));
                    let real = match step {
                        Step::Commit(_) => { r.commit(); n }
                        Step::CommitAs(_, m) => match r.commit_as(m) {
                            Ok(()) => { prop_assert!(m <= n || held + overhead + m <= limit); m }
                            Err((r, _)) => { prop_assert!(m > n && held + overhead + m > limit); drop(r); 0 }
                        },
                        _ => 0,
                    };
                    held += real;
                    peak = peak.max(held);
                    blocks.push(real);
                }
                Step::Release => if let Some(n) = blocks.pop() { budget.release(n); held -= n; },
                Step::Overhead(n) => { budget.set_overhead(n); overhead = n; }
            }
            prop_assert_eq!((budget.held(), budget.peak(), budget.overhead()), (held, peak, overhead));
        }
    }
}
