//! A small number for each thread, by which the budget knows whose reservations are in flight.

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

use gpucap_core::budget::Lane;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's number + 1; 0 before it has one. No destructor: numbers are not given back.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread's lane. Threads beyond the owned ones share one.
#[inline]
pub fn mine() -> Lane {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed).min(Lane::OWNED) + 1);
        }
        Lane::owned(number.get() - 1)
    })
}
