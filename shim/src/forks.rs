//! Forking: what must not be under way when the process forks, and what a child forgets.
//!
//! In a child the C library makes the loader's locks free again, but for the one that `dl_iterate_phdr` takes (seen with
//! glibc 2.36: `_dl_load_write_lock`). A child of a process in which another thread was inside it could never look
//! at the list of objects again: its look-ups of hooked names would hang, where they would not without us. So a fork waits
//! until no thread of ours is in there, and threads wait to get in while a fork is under way. Both wait a moment only, because
//! other handlers of the same fork may wait for one of these threads: then the child takes its chance.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Threads that are looking at the loader's list.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Forks under way.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// Looks of 20 µs that a fork waits for threads, at most.
const FORK_LOOKS: u32 = 2500;
/// Looks of 20 µs that a thread waits for a fork, at most.
const THREAD_LOOKS: u32 = 500;

/// At load: has forks told to us.
pub fn at_load() {
    // SAFETY: pthread_atfork(3) takes functions without arguments; this library is never unloaded (-z nodelete), and the
    // child's calls only what is safe there: atomic stores.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// Does `work`, which takes the loader's list lock, at no time at which the process forks.
pub fn apart<R>(work: impl FnOnce() -> R) -> R {
    let _inside = Inside::enter();
    work()
}

struct Inside;

impl Inside {
    fn enter() -> Inside {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) != 0 {
            Inside::leave();
            wait(THREAD_LOOKS, || FORKING.load(Ordering::SeqCst) == 0);
            INSIDE.fetch_add(1, Ordering::SeqCst);
        }
        Inside
    }

    /// Not below 0: a child starts from there, whoever was inside in its parent.
    fn leave() {
        let less = |inside: usize| Some(inside.saturating_sub(1));
        let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        Inside::leave();
    }
}

extern "C" fn prepare() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    wait(FORK_LOOKS, || INSIDE.load(Ordering::SeqCst) == 0);
}

extern "C" fn parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

extern "C" fn child() {
    FORKING.store(0, Ordering::SeqCst);
    INSIDE.store(0, Ordering::SeqCst);
    crate::forget();
}

fn wait(looks: u32, done: impl Fn() -> bool) {
    for _ in 0..looks {
        if done() {
            return;
        }
        std::thread::sleep(core::time::Duration::from_micros(20));
    }
}
