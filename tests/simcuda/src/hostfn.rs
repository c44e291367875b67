//! Host functions: run one after the other on a thread of their own, from which the driver must not be called, together
//! with the work that was queued behind them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::LazyLock;

use parking_lot::{Condvar, Mutex};

use crate::codes::{CUresult, UNKNOWN};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Queued or running.
    pending: usize,
    started: bool,
}

static QUEUE: LazyLock<(Mutex<Queue>, Condvar)> = LazyLock::new(Default::default);

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is running a host function.
pub fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Runs the program's `function` after all that was queued before.
pub fn call(function: Job) -> CUresult {
    push(Box::new(|| {
        IN_CALLBACK.set(true);
        function();
        IN_CALLBACK.set(false);
    }))
}

/// Runs `job` after all that was queued before.
pub fn push(job: Job) -> CUresult {
    let (queue, changed) = &*QUEUE;
    let mut inner = queue.lock();
    if !inner.started {
        let worker = std::thread::Builder::new().name("simcuda-host".to_owned());
        if worker.spawn(work).is_err() {
            return UNKNOWN;
        }
        inner.started = true;
    }
    inner.jobs.push_back(job);
    inner.pending += 1;
    changed.notify_all();
    0
}

fn work() {
    let (queue, changed) = &*QUEUE;
    let mut inner = queue.lock();
    loop {
        match inner.jobs.pop_front() {
            Some(job) => {
                parking_lot::MutexGuard::unlocked(&mut inner, job);
                inner.pending -= 1;
                changed.notify_all();
            }
            None => changed.wait(&mut inner),
        }
    }
}

/// Whether any is queued or running.
pub fn busy() -> bool {
    QUEUE.0.lock().pending > 0
}

/// Waits until none is.
pub fn drain() {
    let (queue, changed) = &*QUEUE;
    let mut inner = queue.lock();
    while inner.pending > 0 {
        changed.wait(&mut inner);
    }
}
