//! The functions behind our `dlsym` and `dlvsym`.
//!
//! libc's own are found in its symbol table, so that nothing has to be asked before we can answer. Asking them from our
//! image for the next `dlsym` after us gives another interposer's, where there is one, else libc's again. Objects that
//! were bound past our exports keep the very function that they had: each such function has a slot.

use core::ffi::{CStr, c_char, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{dlsym_for, dlvsym_for};
use crate::images;

/// Slot 0 does what the exports do; the others are for objects bound past them. glibc has at most 16 namespaces, each with a libc of
/// its own.
const SLOTS: usize = 32;

static SYMBOL: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
static VERSIONED: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

type Symbol = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Versioned = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The `dlsym` behind a slot.
#[inline]
pub fn symbol(slot: usize) -> usize {
    match SYMBOL[slot].load(Ordering::Acquire) {
        0 => first(&SYMBOL[0], c"dlsym"),
        known => known,
    }
}

/// The `dlvsym` behind a slot.
#[inline]
pub fn versioned(slot: usize) -> usize {
    match VERSIONED[slot].load(Ordering::Acquire) {
        0 => first(&VERSIONED[0], c"dlvsym"),
        known => known,
    }
}

#[cold]
#[inline(never)]
fn first(slot: &AtomicUsize, name: &CStr) -> usize {
    let own = libc_function(c"dlsym");
    if own == 0 {
        return 0;
    }
    // Found by any thread, the answer is the same.
    let found = match ask(own, libc::RTLD_NEXT, name) {
        0 => libc_function(name),
        next => next,
    };
    slot.store(found, Ordering::Release);
    found
}

/// Address of `dlsym` or `dlvsym` in libc: libdl before glibc 2.34.
pub fn libc_function(name: &CStr) -> usize {
    let mut found = 0;
    images::for_each(|_, object| {
        if matches!(object.called(), b"libc.so.6" | b"libdl.so.2")
            && let Some(address) = object.lookup(name)
        {
            found = address;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}

/// Calls a `dlsym` from our image.
pub fn ask(symbol: usize, handle: *mut c_void, name: &CStr) -> usize {
    if symbol == 0 {
        return 0;
    }
    // SAFETY: `symbol` is the address of a function with the signature of dlsym(3).
    let symbol = unsafe { core::mem::transmute::<usize, Symbol>(symbol) };
    // SAFETY: a handle of the program's or of ours, and a C string, as dlsym(3) wants. The result is used before returning,
    // so this is no tail call and the return address lies in our image.
    let found = unsafe { symbol(handle, name.as_ptr()) };
    core::hint::black_box(found) as usize
}

/// Calls a `dlvsym` from our image.
pub fn ask_versioned(versioned: usize, handle: *mut c_void, name: &CStr, version: &CStr) -> usize {
    if versioned == 0 {
        return 0;
    }
    // SAFETY: `versioned` is the address of a function with the signature of dlvsym(3).
    let versioned = unsafe { core::mem::transmute::<usize, Versioned>(versioned) };
    // SAFETY: as in `ask`.
    let found = unsafe { versioned(handle, name.as_ptr(), version.as_ptr()) };
    core::hint::black_box(found) as usize
}

/// A look-up that succeeds leaves nothing for `dlerror`; some that we make on our own behalf may have failed.
pub fn settle(symbol: usize) {
    ask(symbol, libc::RTLD_DEFAULT, c"dlsym");
}

macro_rules! thunks {
    ($function:ident: $($slot:literal)*) => {
        [$($function::<$slot> as unsafe extern "C" fn()),*]
    };
}

static SYMBOL_THUNKS: [unsafe extern "C" fn(); SLOTS] =
    thunks!(dlsym_for: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
static VERSIONED_THUNKS: [unsafe extern "C" fn(); SLOTS] =
    thunks!(dlvsym_for: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);

/// What a reference to `dlsym` leads to that finds our export.
pub fn own_symbol() -> usize {
    SYMBOL_THUNKS[0] as usize
}

/// What a reference to `dlvsym` leads to that finds our export.
pub fn own_versioned() -> usize {
    VERSIONED_THUNKS[0] as usize
}

/// Our function to put in the place of the `dlsym` at `target`; `None` when all slots are taken.
pub fn in_front_of_symbol(target: usize) -> Option<usize> {
    take(&SYMBOL, &SYMBOL_THUNKS, target)
}

/// Our function to put in the place of the `dlvsym` at `target`.
pub fn in_front_of_versioned(target: usize) -> Option<usize> {
    take(&VERSIONED, &VERSIONED_THUNKS, target)
}

fn take(slots: &[AtomicUsize; SLOTS], thunks: &[unsafe extern "C" fn(); SLOTS], target: usize) -> Option<usize> {
    // Slot 0 belongs to the export: it may hold the same target, but only after it was asked for.
    for (slot, thunk) in slots.iter().zip(thunks).skip(1) {
        let free = slot.compare_exchange(0, target, Ordering::AcqRel, Ordering::Acquire);
        if free.is_ok() || free == Err(target) {
            return Some(*thunk as usize);
        }
    }
    None
}
