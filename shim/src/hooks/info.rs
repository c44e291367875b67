//! What the program is told about memory: the limit in place of the device.

use gpucap_core::code::Code;
use gpucap_core::config::Report;
use gpucap_core::meminfo::saturated;

use crate::ffi::CUdevice;
use crate::real;
use crate::state::{self, DRIVER, State};

/// The books, where query calls are answered from them.
fn reporting() -> Option<&'static State> {
    state::get().filter(|state| state.report == Report::Cap)
}

/// Free and total bytes of the current device as the program is told, when the driver says `device_free`.
fn view(state: &State, device_free: u64) -> Option<(u64, u64)> {
    let device = state.governor.current_device(&DRIVER).ok()?;
    state.governor.reread_pools(&DRIVER, device);
    state.governor.memory_info(device, device_free)
}

/// `cuMemGetInfo_v2`. Either half may be null.
///
/// # Safety
/// As the driver's function.
pub unsafe fn mem_get_info(
    real: unsafe extern "C" fn(*mut usize, *mut usize) -> Code,
    free: *mut usize,
    total: *mut usize,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(free, total) };
    if !code.is_success() || (free.is_null() && total.is_null()) {
        return code;
    }
    let Some(state) = reporting() else {
        return code;
    };
    // SAFETY: a pointer that is not null has just been written to by the driver.
    let device_free = if free.is_null() { 0 } else { unsafe { free.read_unaligned() } };
    let Some((seen_free, seen_total)) = view(state, device_free as u64) else {
        return code;
    };
    // SAFETY: non-null pointers of the program that the driver has just written to.
    unsafe {
        if !free.is_null() {
            free.write_unaligned(usize::try_from(seen_free).unwrap_or(usize::MAX));
        }
        if !total.is_null() {
            total.write_unaligned(total.read_unaligned().min(usize::try_from(seen_total).unwrap_or(usize::MAX)));
        }
    }
    code
}

/// `cuMemGetInfo` of CUDA 2, 32-bit.
///
/// # Safety
/// As the driver's function.
pub unsafe fn mem_get_info_v1(
    real: unsafe extern "C" fn(*mut u32, *mut u32) -> Code,
    free: *mut u32,
    total: *mut u32,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(free, total) };
    if !code.is_success() || (free.is_null() && total.is_null()) {
        return code;
    }
    let Some(state) = reporting() else {
        return code;
    };
    let (mut device_free, mut device_total) = (0, 0);
    // SAFETY: both are valid for one size_t.
    if !unsafe { real::memory_info(&raw mut device_free, &raw mut device_total) }.is_success() {
        return code;
    }
    let Some((seen_free, seen_total)) = view(state, device_free as u64) else {
        return code;
    };
    // SAFETY: non-null pointers of the program that the driver has just written to.
    unsafe {
        if !free.is_null() {
            free.write_unaligned(free.read_unaligned().min(saturated(seen_free)));
        }
        if !total.is_null() {
            total.write_unaligned(total.read_unaligned().min(saturated(seen_total)));
        }
    }
    code
}

/// `cuDeviceTotalMem_v2`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn device_total_mem(
    real: unsafe extern "C" fn(*mut usize, CUdevice) -> Code,
    bytes: *mut usize,
    device: CUdevice,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(bytes, device) };
    if let (true, false, Some(total)) = (code.is_success(), bytes.is_null(), total_of(device)) {
        // SAFETY: the driver has just written it.
        unsafe { bytes.write_unaligned(bytes.read_unaligned().min(usize::try_from(total).unwrap_or(usize::MAX))) };
    }
    code
}

/// `cuDeviceTotalMem` of CUDA 2, 32-bit.
///
/// # Safety
/// As the driver's function.
pub unsafe fn device_total_mem_v1(
    real: unsafe extern "C" fn(*mut u32, CUdevice) -> Code,
    bytes: *mut u32,
    device: CUdevice,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(bytes, device) };
    if let (true, false, Some(total)) = (code.is_success(), bytes.is_null(), total_of(device)) {
        // SAFETY: the driver has just written it.
        unsafe { bytes.write_unaligned(bytes.read_unaligned().min(saturated(total))) };
    }
    code
}

fn total_of(device: CUdevice) -> Option<u64> {
    reporting()?.governor.total(u32::try_from(device).ok()?)
}
