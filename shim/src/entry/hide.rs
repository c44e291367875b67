//! Takes our exports out of the sight of the loader's `dlsym` while nothing else defines them.
//!
//! A program without a driver that asks for `cuInit` must be told "undefined symbol: cuInit" by the loader itself, in its own
//! words and with the caller's name. So the symbol gets a version index that `dlsym` does not accept for a name without a
//! version (hidden, index 2), while references of linked objects still bind to it (they accept any index below 3).

use core::ffi::CStr;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::elf::Object;
use crate::images;

const HIDDEN: u16 = 0x8002;
const GLOBAL: u16 = 1;

static ANY_HIDDEN: AtomicBool = AtomicBool::new(false);

/// Hides one of our exports.
pub fn hide(name: &CStr) {
    ANY_HIDDEN.store(true, Ordering::Release);
    set(name, HIDDEN);
}

/// Shows it again.
pub fn show(name: &CStr) {
    if ANY_HIDDEN.load(Ordering::Acquire) {
        set(name, GLOBAL);
    }
}

fn set(name: &CStr, value: u16) {
    let Some(object) = ours() else { return };
    let Some(index) = object.index_of(name) else { return };
    let at = object.versions + 2 * index;
    if object.versions == 0 || !object.contains(at) || !make_writable(at) {
        return;
    }
    // SAFETY: this symbol's entry of our own version table, two bytes and aligned, just made writable; the loader only
    // reads it.
    unsafe { AtomicU16::from_ptr(at as *mut u16) }.store(value, Ordering::Release);
}

/// Our own object as loaded.
fn ours() -> Option<Object> {
    let mut found = None;
    images::for_each(|_, object| {
        if images::is_ours(object) {
            found = Some(*object);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}

/// The page stays writable: making it read-only again could cross another thread's store.
fn make_writable(address: usize) -> bool {
    const PAGE: usize = 4096;
    let page = address & !(PAGE - 1);
    // SAFETY: a page of our own mapping that holds tables and, should the link editor have put them together with code,
    // nothing that reading, writing and running it forbids.
    unsafe {
        libc::mprotect(page as *mut _, PAGE, libc::PROT_READ | libc::PROT_WRITE) == 0
    }
}
