//! What every hook does around its body: find the real function, stop at a refused configuration, stop a panic.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpucap_core::code::Code;

use crate::hooks::{HOOKS, REAL, Role};
use crate::phase::{self, Phase};
use crate::{driver, log};

/// Runs the body of hook `index` with the driver's own function of that name.
#[inline]
pub fn enter(index: usize, body: impl FnOnce(*mut c_void) -> Code) -> Code {
    let real = REAL[index].load(Ordering::Acquire);
    if real.is_null() || phase::now() != Phase::Working {
        return enter_slowly(index, body);
    }
    run(index, real, body)
}

#[cold]
#[inline(never)]
fn enter_slowly(index: usize, body: impl FnOnce(*mut c_void) -> Code) -> Code {
    if REAL[index].load(Ordering::Acquire).is_null() {
        driver::ensure();
    }
    let real = REAL[index].load(Ordering::Acquire);
    if real.is_null() {
        return without_driver(HOOKS[index].role);
    }
    match phase::settled() {
        Phase::Closed if HOOKS[index].role == Role::Init => Code::INVALID_VALUE,
        Phase::Closed if HOOKS[index].role == Role::Alloc => Code::NOT_INITIALIZED,
        _ => run(index, real, body),
    }
}

#[inline]
fn run(index: usize, real: *mut c_void, body: impl FnOnce(*mut c_void) -> Code) -> Code {
    match catch_unwind(AssertUnwindSafe(|| body(real))) {
        Ok(code) => code,
        Err(_) => panicked(index),
    }
}

/// A defect of ours must not unwind into the program: it becomes an error code and, once, a line.
#[cold]
fn panicked(index: usize) -> Code {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        log::error(format_args!(
            "a defect in gpucap stopped {}; please report it",
            HOOKS[index].name.to_string_lossy()
        ));
    }
    Code::UNKNOWN
}

/// What a program is told that calls our functions where no driver is installed, or where the driver lacks this one.
fn without_driver(role: Role) -> Code {
    match (driver::found(), role) {
        (true, _) => Code::NOT_SUPPORTED,
        (false, Role::Init) => Code::STUB_LIBRARY,
        (false, _) => Code::NOT_INITIALIZED,
    }
}
