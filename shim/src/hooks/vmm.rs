//! Physical allocations and who refers to them: `cuMemCreate` and its handles and mappings.

use core::ffi::c_void;

use gpucap_core::code::Code;

use super::linear::answer;
use crate::ffi::{CUdeviceptr, CUmemAllocationProp, MemHandle};
use crate::state::{self, DRIVER};
use crate::{lane, real};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: i32 = 1;

/// `cuMemCreate`: charged to the device that the properties name; host memory costs nothing.
///
/// # Safety
/// As the driver's function.
pub unsafe fn create(
    real: unsafe extern "C" fn(*mut MemHandle, usize, *const CUmemAllocationProp, u64) -> Code,
    handle: *mut MemHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let plain = || unsafe { real(handle, size, prop, flags) };
    if handle.is_null() || prop.is_null() || size == 0 {
        return plain();
    }
    // SAFETY: not null, and the driver reads it just the same.
    let (kind, location) = unsafe { ((*prop).kind, (*prop).location) };
    let (Some(state), Some(device)) = (state::get(), location.device()) else {
        return plain();
    };
    let call = || {
        let mut given = 0;
        // SAFETY: `given` is valid for one handle.
        unsafe { real(&raw mut given, size, prop, flags) }.ok().map(|()| given)
    };
    // What the driver would refuse for another reason must get that answer and not ours.
    let sound = || {
        kind == PINNED
            && flags == 0
            && location.is_a_device()
            && real::granularity(prop).is_none_or(|step| (size as u64).is_multiple_of(step))
    };
    let outcome = state.governor.physical_create(&DRIVER, lane::mine(), device, size as u64, sound, call);
    // SAFETY: the program's pointer, which is not null.
    let accept = |given| unsafe { handle.write(given) };
    // SAFETY: the handle has just come from the driver and nobody else knows it.
    let undo = |given| {
        // SAFETY: the handle has just come from the driver and nobody else knows it.
        real::relaxed(|| unsafe { real::release(given) });
    };
    answer(state, "cuMemCreate", outcome, accept, call, undo)
}

/// `cuMemRelease`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn release(real: unsafe extern "C" fn(MemHandle) -> Code, handle: MemHandle) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(handle) };
    match state::get() {
        Some(state) => state.governor.physical_release(&DRIVER, handle, call),
        None => call(),
    }
}

/// `cuMemRetainAllocationHandle`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn retain(
    real: unsafe extern "C" fn(*mut MemHandle, *mut c_void) -> Code,
    handle: *mut MemHandle,
    addr: *mut c_void,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(handle, addr) };
    if let (true, false, Some(state)) = (code.is_success(), handle.is_null(), state::get()) {
        // SAFETY: the driver has just written it.
        state.governor.physical_retained(unsafe { handle.read() }, addr as u64);
    }
    code
}

/// `cuMemMap`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn map(
    real: unsafe extern "C" fn(CUdeviceptr, usize, usize, MemHandle, u64) -> Code,
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: MemHandle,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(ptr, size, offset, handle, flags) };
    if let (true, Some(state)) = (code.is_success(), state::get()) {
        state.governor.physical_mapped(ptr, size as u64, handle);
    }
    code
}

/// `cuMemUnmap`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn unmap(real: unsafe extern "C" fn(CUdeviceptr, usize) -> Code, ptr: CUdeviceptr, size: usize) -> Code {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(ptr, size) };
    match state::get() {
        Some(state) => state.governor.physical_unmap(&DRIVER, ptr, size as u64, call),
        None => call(),
    }
}

/// `cuMemExportToShareableHandle`: others may hold the memory from now on.
///
/// # Safety
/// As the driver's function.
pub unsafe fn export(
    real: unsafe extern "C" fn(*mut c_void, MemHandle, u32, u64) -> Code,
    out: *mut c_void,
    handle: MemHandle,
    kind: u32,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(out, handle, kind, flags) };
    if let (true, Some(state)) = (code.is_success(), state::get()) {
        state.governor.physical_exported(handle);
    }
    code
}

/// `cuMemImportFromShareableHandle`: memory that another process pays, or one reference more to our own.
///
/// # Safety
/// As the driver's function.
pub unsafe fn import(
    real: unsafe extern "C" fn(*mut MemHandle, *mut c_void, u32) -> Code,
    out: *mut MemHandle,
    os_handle: *mut c_void,
    kind: u32,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(out, os_handle, kind) };
    if let (true, false, Some(state)) = (code.is_success(), out.is_null(), state::get()) {
        // SAFETY: the driver has just written it.
        state.governor.physical_imported(unsafe { out.read() });
    }
    code
}
