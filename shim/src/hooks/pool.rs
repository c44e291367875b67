//! Pools that the driver names for a place: since CUDA 13.0 host memory and managed memory have them too.

use gpucap_core::code::Code;

use crate::ffi::{CUmemLocation, Pool};
use crate::state;

/// `cuMemGetDefaultMemPool`, `cuMemGetMemPool`: hand out pools that nobody created; the place tells whose memory they
/// take.
///
/// # Safety
/// As the driver's function.
pub unsafe fn of_place(
    real: unsafe extern "C" fn(*mut Pool, *mut CUmemLocation, u32) -> Code,
    out: *mut Pool,
    location: *mut CUmemLocation,
    kind: u32,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(out, location, kind) };
    if !code.is_success() || out.is_null() || location.is_null() {
        return code;
    }
    if let Some(state) = state::get() {
        // SAFETY: the driver has just written the one and read the other.
        let (pool, location) = unsafe { (out.read(), location.read()) };
        state.governor.pool_learned(pool, location.device());
    }
    code
}
