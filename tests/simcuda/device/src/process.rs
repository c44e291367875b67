//! The record of one process: attaching to a slot, telling the living from the dead.

use std::fs;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::sync::{Mutex, Once, PoisonError};

use crate::books::Books;
use crate::knobs::Knobs;
use crate::layout::{CLAIMED, DEAD, FREE, LIVE, Layout, Slot};

/// This process's own record in the books.
pub struct Process {
    pub(crate) books: &'static Books,
    pub(crate) slot: &'static Slot,
}

static ME: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// This process's record; the first call reads the knobs, opens the books and takes a slot. A forked child gets a
/// record of its own.
///
/// # Panics
/// If the state file cannot be mapped or every slot belongs to a living process: a test set-up error, said loudly.
pub fn me() -> &'static Process {
    let me = ME.load(Acquire);
    if me.is_null() {
        return attach();
    }
    // SAFETY: a non-null ME was leaked by `attach` and is never freed.
    unsafe { &*me }
}

#[cold]
fn attach() -> &'static Process {
    static LOCK: Mutex<()> = Mutex::new(());
    static AT_FORK: Once = Once::new();
    let _one_at_a_time = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let me = ME.load(Acquire);
    if !me.is_null() {
        // SAFETY: as in `me`.
        return unsafe { &*me };
    }
    AT_FORK.call_once(|| {
        // SAFETY: pthread_atfork(3) with a handler that only stores to an atomic, as a child handler must.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    });
    let books = Books::global();
    // What this process held before an execve(2).
    let former = |slot: &Slot| {
        slot.owner.load(Relaxed) == own_identity()
            && slot.image.load(Relaxed) != own_image()
            && slot.state.load(Acquire) == LIVE
    };
    if books.layout().slots.iter().any(former) {
        crate::audit::reap(books.layout());
    }
    let Some(slot) = claim(books.layout()) else {
        panic!("simcuda: {} living processes share one device already", crate::layout::SLOTS);
    };
    let me: &'static Process = Box::leak(Box::new(Process { books, slot }));
    ME.store(ptr::from_ref(me).cast_mut(), Release);
    me
}

unsafe extern "C" fn forget() {
    ME.store(ptr::null_mut(), Release);
}

/// Takes a slot that was never used, else the one of the process that attached first among the dead.
fn claim(layout: &'static Layout) -> Option<&'static Slot> {
    loop {
        let fresh = layout.slots.iter().find(|slot| slot.state.load(Acquire) == FREE);
        let slot = match fresh {
            Some(slot) => slot,
            None => {
                crate::audit::reap(layout);
                layout
                    .slots
                    .iter()
                    .filter(|slot| slot.state.load(Acquire) == DEAD)
                    .min_by_key(|slot| slot.sequence.load(Relaxed))?
            }
        };
        let state = slot.state.load(Acquire);
        if (state != FREE && state != DEAD) || slot.state.compare_exchange(state, CLAIMED, AcqRel, Relaxed).is_err() {
            continue;
        }
        slot.owner.store(own_identity(), Relaxed);
        slot.image.store(own_image(), Relaxed);
        slot.namespace.store(namespace(), Relaxed);
        slot.busy.store(0, Relaxed);
        for account in &slot.held {
            account.peak_blocks.store(0, Relaxed);
            account.peak_pages.store(0, Relaxed);
        }
        if state == DEAD {
            slot.calls.iter().for_each(|count| count.store(0, Relaxed));
        }
        slot.sequence.store(layout.sequence.fetch_add(1, Relaxed), Relaxed);
        slot.state.store(LIVE, Release);
        return Some(slot);
    }
}

/// Whether the process of `slot` can still hold memory. A zombie cannot: its descriptors and mappings are gone.
pub(crate) fn is_alive(layout: &Layout, slot: &Slot) -> bool {
    let (owner, theirs) = (slot.owner.load(Relaxed), slot.namespace.load(Relaxed));
    if owner == own_identity() {
        // What this process held before it became another program went with the descriptors.
        return slot.image.load(Relaxed) == own_image();
    }
    let here = namespace();
    if theirs == here {
        return identity_is_alive(owner);
    }
    // Their pid means nothing here. The creator's namespace sees everybody under some pid; others see too little to
    // call anyone dead.
    let start = owner & u64::from(u32::MAX);
    let inner = owner >> 32;
    let seen = fs::read_dir("/proc").is_ok_and(|proc| {
        proc.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).any(|pid| {
            namespace_of(&pid.to_string()) == theirs
                && innermost_pid(pid) == Some(inner)
                && start_time(pid) == Some(start)
        })
    });
    seen || here != layout.namespace.load(Relaxed)
}

/// Whether the process that [`own_identity`] named so is alive; only for identities of this pid namespace.
pub(crate) fn identity_is_alive(owner: u64) -> bool {
    let pid = u32::try_from(owner >> 32).unwrap_or(0);
    start_time(pid) == Some(owner & u64::from(u32::MAX))
}

/// Pid and start time of this process as one word.
pub(crate) fn own_identity() -> u64 {
    static CACHE: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let cached = CACHE.load(Relaxed);
    if cached >> 32 == u64::from(pid) {
        return cached;
    }
    let identity = u64::from(pid) << 32 | start_time(pid).unwrap_or(0);
    CACHE.store(identity, Relaxed);
    identity
}

/// A number that is another one after each execve(2): the random bytes that the kernel gives to a program (getauxval(3)).
fn own_image() -> u64 {
    // SAFETY: getauxval(3) has no preconditions.
    let bytes = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const [u8; 8];
    // SAFETY: AT_RANDOM is null or the address of 16 bytes of the program's stack that nothing writes to.
    unsafe { bytes.as_ref() }.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Start time in clock ticks, cut to 32 bits; `None` for processes that are gone. Fields of proc(5).
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may hold blanks and brackets; what follows its last bracket is regular.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let (state, threads) = (*fields.first()?, *fields.get(17)?);
    // A zombie leader with other threads is a process whose main thread ended: it lives on.
    if matches!(state, "Z" | "X") && threads == "1" {
        return None;
    }
    let ticks: u64 = fields.get(19)?.parse().ok()?;
    Some(ticks & u64::from(u32::MAX))
}

fn innermost_pid(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// The inode that names this process's pid namespace; 0 where it cannot be read.
pub(crate) fn namespace() -> u64 {
    static CACHE: AtomicU64 = AtomicU64::new(0);
    // No process changes its own pid namespace, and a child that is made in another one starts by exec or fork: the
    // word keeps the pid beside the inode to notice the latter.
    let (pid, cached) = (u64::from(std::process::id()), CACHE.load(Relaxed));
    if cached >> 32 == pid {
        return cached & u64::from(u32::MAX);
    }
    let inode = namespace_of("self") & u64::from(u32::MAX);
    CACHE.store(pid << 32 | inode, Relaxed);
    inode
}

fn namespace_of(pid: &str) -> u64 {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap_or_default();
    let text = link.to_string_lossy();
    text.trim_start_matches("pid:[").trim_end_matches(']').parse().unwrap_or(0)
}

impl Process {
    /// The knobs that this process reads from its environment, once.
    pub fn knobs(&self) -> &'static Knobs {
        Knobs::get()
    }
}
