//! What every hook does around its body: find the real function, stop at a refused configuration, stop a panic.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpucap_core::code::Code;

use crate::hooks::{HOOKS, REAL, Role};
use crate::images::Class;
use crate::phase::{self, Phase};
use crate::{driver, log, state};

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
    let class = Class::of_name(HOOKS[index].name);
    if REAL[index].load(Ordering::Acquire).is_null() {
        driver::ensure_class(class);
    }
    let real = REAL[index].load(Ordering::Acquire);
    if real.is_null() {
        return without_driver(class, HOOKS[index].role);
    }
    let role = HOOKS[index].role;
    // Anything but a look-up needs the configuration from here on; cuInit reads it in its own body, and so do NVML's hooks,
    // which work without the books: to make those would load libcuda into a program that never asked for it.
    let reads = class == Class::Cuda && !matches!(role, Role::Init | Role::Lookup);
    if phase::settled() == Phase::Enabled && reads {
        let _ = state::get();
    }
    match (phase::now(), role) {
        (Phase::Closed, Role::Init) => Code::INVALID_VALUE,
        (Phase::Closed, Role::Alloc | Role::Context) => Code::NOT_INITIALIZED,
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
fn without_driver(class: Class, role: Role) -> Code {
    /// `NVML_ERROR_LIBRARY_NOT_FOUND`
    const LIBRARY_NOT_FOUND: Code = Code(12);
    /// `NVML_ERROR_FUNCTION_NOT_FOUND`
    const FUNCTION_NOT_FOUND: Code = Code(13);
    match (class, driver::present(class), role) {
        (Class::Cuda, true, _) => Code::NOT_SUPPORTED,
        (Class::Cuda, false, Role::Init) => Code::STUB_LIBRARY,
        (Class::Cuda, false, _) => Code::NOT_INITIALIZED,
        (Class::Nvml, true, _) => FUNCTION_NOT_FOUND,
        (Class::Nvml, false, _) => LIBRARY_NOT_FOUND,
    }
}
