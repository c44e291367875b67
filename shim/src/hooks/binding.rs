//! Bindings of physical memory to multicast objects and logical endpoints, which keep it alive.

use gpucap_core::code::Code;
use gpucap_core::vmm::Object::{Endpoint, Multicast};

use crate::ffi::{CUdevice, CUdeviceptr, MemHandle};
use crate::state::{self, DRIVER};

/// Number of a logical endpoint (`CUlogicalEndpointId`).
pub type EndpointId = u32;

/// The ordinal that a device argument means.
fn ordinal(device: CUdevice) -> Option<u32> {
    u32::try_from(device).ok()
}

/// `cuMulticastBindMem`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn multicast_mem(
    real: unsafe extern "C" fn(MemHandle, usize, MemHandle, usize, usize, u64) -> Code,
    object: MemHandle,
    offset: usize,
    memory: MemHandle,
    from: usize,
    size: usize,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(object, offset, memory, from, size, flags) };
    if let (true, Some(state)) = (code.is_success(), state::get()) {
        state.governor.bindings().bound(Multicast(object), None, offset as u64, size as u64, memory);
    }
    code
}

/// `cuMulticastBindMem_v2`.
///
/// # Safety
/// As the driver's function.
#[expect(clippy::too_many_arguments, reason = "the driver's own signature")]
pub unsafe fn multicast_mem_v2(
    real: unsafe extern "C" fn(MemHandle, CUdevice, usize, MemHandle, usize, usize, u64) -> Code,
    object: MemHandle,
    device: CUdevice,
    offset: usize,
    memory: MemHandle,
    from: usize,
    size: usize,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(object, device, offset, memory, from, size, flags) };
    if let (true, Some(state)) = (code.is_success(), state::get()) {
        state.governor.bindings().bound(Multicast(object), ordinal(device), offset as u64, size as u64, memory);
    }
    code
}

/// `cuMulticastBindAddr`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn multicast_addr(
    real: unsafe extern "C" fn(MemHandle, usize, CUdeviceptr, usize, u64) -> Code,
    object: MemHandle,
    offset: usize,
    address: CUdeviceptr,
    size: usize,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(object, offset, address, size, flags) };
    if let (true, Some(state)) = (code.is_success(), state::get()) {
        state.governor.bindings().bound_address(Multicast(object), None, offset as u64, size as u64, address);
    }
    code
}

/// `cuMulticastBindAddr_v2`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn multicast_addr_v2(
    real: unsafe extern "C" fn(MemHandle, CUdevice, usize, CUdeviceptr, usize, u64) -> Code,
    object: MemHandle,
    device: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    size: usize,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(object, device, offset, address, size, flags) };
    if let (true, Some(state)) = (code.is_success(), state::get()) {
        let device = ordinal(device);
        state.governor.bindings().bound_address(Multicast(object), device, offset as u64, size as u64, address);
    }
    code
}

/// `cuMulticastUnbind`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn multicast_unbind(
    real: unsafe extern "C" fn(MemHandle, CUdevice, usize, usize) -> Code,
    object: MemHandle,
    device: CUdevice,
    offset: usize,
    size: usize,
) -> Code {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(object, device, offset, size) };
    match (state::get(), ordinal(device)) {
        (Some(state), Some(device)) => {
            let which = state.governor.bindings().unbinding(Multicast(object), device, offset as u64, size as u64);
            state.governor.physical_unbind(&DRIVER, which, call)
        }
        _ => call(),
    }
}

/// `cuLogicalEndpointBindMem`.
///
/// # Safety
/// As the driver's function.
#[expect(clippy::too_many_arguments, reason = "the driver's own signature")]
pub unsafe fn endpoint_mem(
    real: unsafe extern "C" fn(EndpointId, CUdevice, u64, MemHandle, u64, u64, u64) -> Code,
    endpoint: EndpointId,
    device: CUdevice,
    offset: u64,
    memory: MemHandle,
    from: u64,
    size: u64,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(endpoint, device, offset, memory, from, size, flags) };
    if let (true, Some(state)) = (code.is_success(), state::get()) {
        state.governor.bindings().bound(Endpoint(u64::from(endpoint)), ordinal(device), offset, size, memory);
    }
    code
}

/// `cuLogicalEndpointBindAddr`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn endpoint_addr(
    real: unsafe extern "C" fn(EndpointId, CUdevice, u64, CUdeviceptr, u64, u64) -> Code,
    endpoint: EndpointId,
    device: CUdevice,
    offset: u64,
    address: CUdeviceptr,
    size: u64,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(endpoint, device, offset, address, size, flags) };
    if let (true, Some(state)) = (code.is_success(), state::get()) {
        state.governor.bindings().bound_address(Endpoint(u64::from(endpoint)), ordinal(device), offset, size, address);
    }
    code
}

/// `cuLogicalEndpointUnbind`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn endpoint_unbind(
    real: unsafe extern "C" fn(EndpointId, CUdevice, u64, u64) -> Code,
    endpoint: EndpointId,
    device: CUdevice,
    offset: u64,
    size: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(endpoint, device, offset, size) };
    match (state::get(), ordinal(device)) {
        (Some(state), Some(device)) => {
            let which = state.governor.bindings().unbinding(Endpoint(u64::from(endpoint)), device, offset, size);
            state.governor.physical_unbind(&DRIVER, which, call)
        }
        _ => call(),
    }
}

/// `cuLogicalEndpointDestroy`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn endpoint_destroy(real: unsafe extern "C" fn(EndpointId) -> Code, endpoint: EndpointId) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(endpoint) };
    match state::get() {
        Some(state) => {
            let which = state.governor.bindings().unbinding_all(Endpoint(u64::from(endpoint)));
            state.governor.physical_unbind(&DRIVER, which, call)
        }
        None => call(),
    }
}
