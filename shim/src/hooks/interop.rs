//! Contexts that are made by other names: for OpenGL and VDPAU, and green contexts, which hold the primary one.

use core::ffi::c_void;

use gpucap_core::code::Code;
use parking_lot::Mutex;

use super::context;
use crate::ffi::{CUcontext, CUdevice};
use crate::state::{self, DRIVER};
use crate::{nvml, real, report};

/// Opaque handle of a green context (`CUgreenCtx`).
pub type GreenContext = usize;

/// The living green contexts, with the ordinals of their devices.
static GREEN: Mutex<Vec<(GreenContext, u32)>> = Mutex::new(Vec::new());

type VdpauCreate = unsafe extern "C" fn(*mut CUcontext, u32, CUdevice, u32, *const c_void) -> Code;

/// `cuVDPAUCtxCreate` in both versions.
///
/// # Safety
/// As the driver's function.
pub unsafe fn vdpau_create(
    real: VdpauCreate,
    pctx: *mut CUcontext,
    flags: u32,
    device: CUdevice,
    vdp_device: u32,
    vdp_lookup: *const c_void,
) -> Code {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(pctx, flags, device, vdp_device, vdp_lookup) };
    context::created(pctx, device, call)
}

/// `cuGreenCtxCreate`: holds the device's primary context, and may have made it.
///
/// # Safety
/// As the driver's function.
pub unsafe fn green_create(
    real: unsafe extern "C" fn(*mut GreenContext, usize, CUdevice, u32) -> Code,
    out: *mut GreenContext,
    description: usize,
    device: CUdevice,
    flags: u32,
) -> Code {
    let before = context::before(device);
    // SAFETY: the program's own arguments.
    let code = unsafe { real(out, description, device, flags) };
    if !code.is_success() || out.is_null() {
        return code;
    }
    let mut primary = 0;
    // SAFETY: `primary` is valid for one handle. The context is alive, so holding it for a moment changes nothing.
    let held = unsafe { real::primary_retain(&raw mut primary, device) }.is_success();
    if let (true, Some(state), Ok(ordinal)) = (held, state::get(), u32::try_from(device)) {
        // SAFETY: the driver has just written it.
        GREEN.lock().push((unsafe { out.read() }, ordinal));
        nvml::after_context(ordinal, before);
        state.governor.primary_retained(&DRIVER, primary, ordinal);
        report::first_context(state, ordinal);
    }
    if held {
        // SAFETY: ends the hold of above.
        unsafe { real::primary_release(device) };
    }
    code
}

/// `cuGreenCtxDestroy`: lets the primary context go, maybe as the last one that holds it.
///
/// # Safety
/// As the driver's function.
pub unsafe fn green_destroy(real: unsafe extern "C" fn(GreenContext) -> Code, green: GreenContext) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(green) };
    let known = {
        let all = &mut *GREEN.lock();
        let at = all.iter().position(|(known, _)| *known == green);
        at.map(|at| all.swap_remove(at))
    };
    let (Some((green, device)), Some(state)) = (known, state::get()) else {
        return call();
    };
    let code = state.governor.primary_release(&DRIVER, device, call);
    if !code.is_success() {
        GREEN.lock().push((green, device));
    }
    code
}
