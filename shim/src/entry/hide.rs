//! Takes our exports out of the sight of the loader's own `dlsym` while no driver is in global scope.
//!
//! A program without a driver that asks for `cuInit` must be told "undefined symbol: cuInit" by the loader itself, in its own
//! words and with the caller's name. So the symbols get a version index that `dlsym` does not accept for a name without a
//! version (hidden, index 2), while references of linked objects still bind to them (they accept any index below 3).
//! Once a driver is in global scope they are shown again, so that an interposer in front of us that chains with
//! `dlsym(RTLD_NEXT)` of its own finds us.

use core::ffi::CStr;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::elf::Object;
use crate::hooks::HOOKS;
use crate::images::{self, Class};

const HIDDEN: u16 = 0x8002;
const GLOBAL: u16 = 1;

static ANY_HIDDEN: AtomicBool = AtomicBool::new(false);

/// Hides all exports, unless the program came with a driver.
pub fn at_load() {
    images::count_at_start();
    let mut linked = false;
    images::for_each(|_, object| {
        linked |= Class::of(object).is_some();
        if linked { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if let Some(object) = ours().filter(|_| !linked) {
        ANY_HIDDEN.store(true, Ordering::Release);
        HOOKS.iter().for_each(|hook| set_in(&object, hook.name, HIDDEN));
    }
}

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
    set_in(&object, name, value);
}

fn set_in(object: &Object, name: &CStr, value: u16) {
    let Some(index) = object.index_of(name) else {
        return;
    };
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
    // SAFETY: a page of our own mapping in which only the loader's tables lie: build.rs keeps code out of that segment.
    unsafe { libc::mprotect(page as *mut _, PAGE, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}
