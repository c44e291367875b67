//! Contexts: they own memory, so their end gives it back.

use core::ffi::{c_int, c_void};

use gpucap_core::code::Code;

use crate::ffi::{CUcontext, CUdevice};
use crate::state::{self, DRIVER, State};
use crate::{nvml, report};

/// `cuCtxCreate` and `cuCtxCreate_v2`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn create(
    real: unsafe extern "C" fn(*mut CUcontext, u32, CUdevice) -> Code,
    pctx: *mut CUcontext,
    flags: u32,
    device: CUdevice,
) -> Code {
    // SAFETY: the program's own arguments.
    created(pctx, device, || unsafe { real(pctx, flags, device) })
}

/// `cuCtxCreate_v3` (execution affinity).
///
/// # Safety
/// As the driver's function.
pub unsafe fn create_v3(
    real: unsafe extern "C" fn(*mut CUcontext, *mut c_void, c_int, u32, CUdevice) -> Code,
    pctx: *mut CUcontext,
    params: *mut c_void,
    count: c_int,
    flags: u32,
    device: CUdevice,
) -> Code {
    // SAFETY: the program's own arguments.
    created(pctx, device, || unsafe { real(pctx, params, count, flags, device) })
}

/// `cuCtxCreate_v4` (parameters).
///
/// # Safety
/// As the driver's function.
pub unsafe fn create_v4(
    real: unsafe extern "C" fn(*mut CUcontext, *mut c_void, u32, CUdevice) -> Code,
    pctx: *mut CUcontext,
    params: *mut c_void,
    flags: u32,
    device: CUdevice,
) -> Code {
    // SAFETY: the program's own arguments.
    created(pctx, device, || unsafe { real(pctx, params, flags, device) })
}

/// A call that creates a context and writes it to `pctx`.
pub(super) fn created(pctx: *mut CUcontext, device: CUdevice, call: impl FnOnce() -> Code) -> Code {
    let before = before(device);
    let code = call();
    if let Some((state, context, device)) = new_context(code, pctx, device) {
        nvml::after_context(device, before);
        state.governor.context_created(&DRIVER, context, device);
        report::first_context(state, device);
    }
    code
}

/// The processes that NVML sees before a context is created, where that is needed to find out which of them we are.
pub(super) fn before(device: CUdevice) -> Option<Vec<u32>> {
    let (state, device) = known(device)?;
    if state.governor.measures(device) { nvml::before_context(device) } else { None }
}

/// The context that a successful call has written, and its device.
fn new_context(code: Code, pctx: *mut CUcontext, device: CUdevice) -> Option<(&'static State, CUcontext, u32)> {
    if !code.is_success() || pctx.is_null() {
        return None;
    }
    // SAFETY: the driver has just written the program's pointer.
    let context = unsafe { pctx.read_unaligned() };
    Some((state::get()?, context, u32::try_from(device).ok()?))
}

/// `cuCtxDestroy` in both versions.
///
/// # Safety
/// As the driver's function.
pub unsafe fn destroy(real: unsafe extern "C" fn(CUcontext) -> Code, ctx: CUcontext) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(ctx) };
    match state::get() {
        Some(state) => state.governor.context_destroy(&DRIVER, ctx, call),
        None => call(),
    }
}

/// `cuCtxAttach`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn attach(
    real: unsafe extern "C" fn(*mut CUcontext, u32) -> Code,
    pctx: *mut CUcontext,
    flags: u32,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(pctx, flags) };
    if let (true, false, Some(state)) = (code.is_success(), pctx.is_null(), state::get()) {
        // SAFETY: the driver has just written it.
        state.governor.context_attached(unsafe { pctx.read_unaligned() });
    }
    code
}

/// `cuCtxDetach`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn detach(real: unsafe extern "C" fn(CUcontext) -> Code, ctx: CUcontext) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(ctx) };
    match state::get() {
        Some(state) => state.governor.context_detach(&DRIVER, ctx, call),
        None => call(),
    }
}

/// `cuDevicePrimaryCtxRetain`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn primary_retain(
    real: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> Code,
    pctx: *mut CUcontext,
    device: CUdevice,
) -> Code {
    let before = before(device);
    // SAFETY: the program's own arguments.
    let code = unsafe { real(pctx, device) };
    if let Some((state, context, device)) = new_context(code, pctx, device) {
        nvml::after_context(device, before);
        state.governor.primary_retained(&DRIVER, context, device);
        report::first_context(state, device);
    }
    code
}

/// `cuDevicePrimaryCtxRelease` in both versions.
///
/// # Safety
/// As the driver's function.
pub unsafe fn primary_release(real: unsafe extern "C" fn(CUdevice) -> Code, device: CUdevice) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(device) };
    match known(device) {
        Some((state, device)) => state.governor.primary_release(&DRIVER, device, call),
        None => call(),
    }
}

/// `cuDevicePrimaryCtxReset` in both versions.
///
/// # Safety
/// As the driver's function.
pub unsafe fn primary_reset(real: unsafe extern "C" fn(CUdevice) -> Code, device: CUdevice) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(device) };
    match known(device) {
        Some((state, device)) => state.governor.primary_reset(&DRIVER, device, call),
        None => call(),
    }
}

fn known(device: CUdevice) -> Option<(&'static State, u32)> {
    Some((state::get()?, u32::try_from(device).ok()?))
}
