//! The budget's races, explored by loom.

use super::*;
use loom::sync::Arc;
use loom::thread::{spawn, yield_now};

fn wait() -> bool {
    yield_now();
    true
}

/// Runs `a` and `b` on two threads over one set of counters and a limit.
fn race<A: Send + 'static, B>(
    limit: u64,
    cells: &Arc<Cells>,
    a: impl FnOnce(Budget<'_>) -> A + Send + 'static,
    b: impl FnOnce(Budget<'_>) -> B,
) -> (A, B) {
    let theirs = Arc::clone(cells);
    let thread = spawn(move || a(Budget::new(&theirs, limit)));
    let b = b(Budget::new(cells, limit));
    (thread.join().unwrap(), b)
}

fn take(budget: Budget<'_>, lane: Lane, bytes: u64) -> bool {
    budget.reserve(lane, bytes).map(Reservation::commit).is_ok()
}

fn take_or_wait(budget: Budget<'_>, lane: Lane, bytes: u64) -> bool {
    budget.reserve_or_wait(lane, bytes, wait).map(Reservation::commit).is_ok()
}

#[test]
fn of_two_on_the_last_bytes_exactly_one_passes() {
    loom::model(|| {
        let cells = Arc::new(Cells::default());
        let (a, b) = race(3, &cells, |x| take(x, Lane::owned(0), 2), |x| take(x, Lane::owned(1), 2));
        assert!(a != b);
        let budget = Budget::new(&cells, 3);
        assert_eq!((budget.held(), budget.peak()), (2, 2));
    });
}

#[test]
fn a_reservation_beside_a_release_sees_all_of_it_or_nothing() {
    loom::model(|| {
        let cells = Arc::new(Cells::default());
        assert!(take(Budget::new(&cells, 2), Lane::owned(0), 2));
        let ((), b) = race(2, &cells, |x| x.release(2), |x| take(x, Lane::owned(1), 2));
        assert_eq!(Budget::new(&cells, 2).held(), if b { 2 } else { 0 });
    });
}

/// The shared lane or an owned one, for the reservation that fails.
fn a_failing_one_refuses_nobody(lane: Lane) {
    loom::model(move || {
        let cells = Arc::new(Cells::default());
        let ((), b) = race(2, &cells, move |x| drop(x.reserve(lane, 2)), |x| take_or_wait(x, Lane::owned(1), 2));
        assert!(b);
        let budget = Budget::new(&cells, 2);
        assert_eq!((budget.held(), budget.peak()), (2, 2));
    });
}

#[test]
fn a_reservation_that_is_cancelled_refuses_nobody() {
    a_failing_one_refuses_nobody(Lane::owned(0));
}

#[test]
fn a_reservation_on_the_shared_lane_that_is_cancelled_refuses_nobody() {
    a_failing_one_refuses_nobody(Lane::SHARED);
}

#[test]
fn a_reservation_that_shrinks_refuses_nobody() {
    loom::model(|| {
        let cells = Arc::new(Cells::default());
        let (a, b) = race(
            2,
            &cells,
            |x| x.reserve(Lane::owned(0), 2).map(|r| r.commit_as(1).is_ok()),
            |x| take_or_wait(x, Lane::owned(1), 1),
        );
        assert!(b);
        assert!(matches!(a, Ok(true) | Err(_)));
        assert_eq!(Budget::new(&cells, 2).held(), if a.is_ok() { 2 } else { 1 });
    });
}

#[test]
fn two_on_the_bytes_that_a_failing_one_gives_back_have_exactly_one_winner() {
    loom::model(|| {
        let cells = Arc::new(Cells::default());
        let (a, b) = race(
            1,
            &cells,
            |x| take_or_wait(x, Lane::owned(0), 1),
            |x| {
                drop(x.reserve(Lane::owned(1), 1));
                take_or_wait(x, Lane::owned(1), 1)
            },
        );
        assert!(a != b);
        assert_eq!(Budget::new(&cells, 1).held(), 1);
    });
}

#[test]
fn the_peak_is_never_below_what_was_committed_at_once() {
    loom::model(|| {
        let cells = Arc::new(Cells::default());
        let (together, ()) = race(
            UNCAPPED,
            &cells,
            |x| {
                assert!(take(x, Lane::owned(0), 1));
                let held = x.held();
                x.release(1);
                held
            },
            |x| {
                assert!(take(x, Lane::owned(1), 2));
                x.release(2);
            },
        );
        // Held may count the other one in flight; both do commit here.
        assert!(Budget::new(&cells, UNCAPPED).peak() >= together);
    });
}
