//! Redirects the relocations of objects that were bound past our exports: libraries opened with `RTLD_DEEPBIND`, and
//! libraries in a namespace of their own (`dlmopen`).
//!
//! `dlopen` stays the loader's, so this is done the next time we have control: at a look-up of a hooked name, at a look-up on
//! a handle that is new to us, and once a process has shown interest in CUDA at every look-up. Each time the loader's
//! counter is read first, and only when objects were added since is anything looked at.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::images::LinkMap;

mod namespaces;
mod scan;
mod slots;
mod untold;

/// The process has to do with CUDA, or something in it was redirected.
static INTERESTED: AtomicBool = AtomicBool::new(false);

const HANDLES: usize = 256;

/// Handles that were looked at, with their object's dynamic table mixed in, because another object may get the same handle
/// later.
static KNOWN: [AtomicUsize; HANDLES] = [const { AtomicUsize::new(0) }; HANDLES];

/// A look-up of a name that is not hooked. Costs a few nanoseconds unless something was loaded or CUDA is in use.
#[inline]
pub fn notice(handle: *mut c_void) {
    if INTERESTED.load(Ordering::Relaxed) || is_new(handle) {
        look(handle);
    }
}

/// A look-up of a hooked name, or a call that hands out functions.
pub fn refresh(handle: *mut c_void) {
    INTERESTED.store(true, Ordering::Relaxed);
    look(handle);
}

#[cold]
#[inline(never)]
fn look(handle: *mut c_void) {
    let new = is_new(handle);
    let map = if is_scope(handle) { core::ptr::null_mut() } else { handle.cast::<LinkMap>() };
    if scan::scan(map, new) && new {
        KNOWN[place(handle)].store(stamp(handle), Ordering::Relaxed);
    }
}

fn is_scope(handle: *mut c_void) -> bool {
    handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT
}

#[inline]
fn is_new(handle: *mut c_void) -> bool {
    !is_scope(handle) && KNOWN[place(handle)].load(Ordering::Relaxed) != stamp(handle)
}

fn place(handle: *mut c_void) -> usize {
    (handle as usize >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - HANDLES.trailing_zeros())
}

fn stamp(handle: *mut c_void) -> usize {
    // SAFETY: the caller of dlsym passes a handle, which is a link map; libc reads it likewise.
    let dynamic = unsafe { (*handle.cast::<LinkMap>()).dynamic };
    handle as usize ^ dynamic.rotate_left(32)
}
