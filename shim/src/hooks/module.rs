//! Code on the device: never refused, but what it takes is counted at once where the overhead is measured.

use core::ffi::{c_char, c_int, c_uint, c_void};

use gpucap_core::code::Code;

use crate::state::{self, DRIVER};

/// Opaque handle of a module or library.
pub type Module = usize;

/// Passes a call on and reads the overhead after it.
fn then_read(call: impl FnOnce() -> Code) -> Code {
    let code = call();
    if let (true, Some(state)) = (code.is_success(), state::get())
        && let Ok(device) = state.governor.current_device(&DRIVER)
    {
        state.governor.read_overhead(&DRIVER, device);
    }
    code
}

/// `cuModuleLoad`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn load(
    real: unsafe extern "C" fn(*mut Module, *const c_char) -> Code,
    module: *mut Module,
    file: *const c_char,
) -> Code {
    // SAFETY: the program's own arguments.
    then_read(|| unsafe { real(module, file) })
}

/// `cuModuleLoadData`, `cuModuleLoadFatBinary`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn load_data(
    real: unsafe extern "C" fn(*mut Module, *const c_void) -> Code,
    module: *mut Module,
    image: *const c_void,
) -> Code {
    // SAFETY: the program's own arguments.
    then_read(|| unsafe { real(module, image) })
}

/// `cuModuleLoadDataEx`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn load_data_ex(
    real: unsafe extern "C" fn(*mut Module, *const c_void, c_uint, *mut c_int, *mut *mut c_void) -> Code,
    module: *mut Module,
    image: *const c_void,
    count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> Code {
    // SAFETY: the program's own arguments.
    then_read(|| unsafe { real(module, image, count, options, values) })
}

/// `cuLibraryLoadData`, `cuLibraryLoadFromFile`.
///
/// # Safety
/// As the driver's function.
#[expect(clippy::too_many_arguments, reason = "the driver's own signature")]
pub unsafe fn library_load(
    real: unsafe extern "C" fn(
        *mut Module,
        *const c_void,
        *mut c_int,
        *mut *mut c_void,
        c_uint,
        *mut c_int,
        *mut *mut c_void,
        c_uint,
    ) -> Code,
    library: *mut Module,
    code: *const c_void,
    jit: *mut c_int,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: c_uint,
) -> Code {
    // SAFETY: the program's own arguments.
    then_read(|| unsafe { real(library, code, jit, jit_values, jit_count, options, values, count) })
}

/// `cuModuleUnload`, `cuLibraryUnload`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn unload(real: unsafe extern "C" fn(Module) -> Code, module: Module) -> Code {
    // SAFETY: the program's own argument.
    then_read(|| unsafe { real(module) })
}

/// `cuCtxSetLimit`: stacks, heaps and queues on the device.
///
/// # Safety
/// As the driver's function.
pub unsafe fn set_limit(real: unsafe extern "C" fn(c_int, usize) -> Code, limit: c_int, value: usize) -> Code {
    // SAFETY: the program's own arguments.
    then_read(|| unsafe { real(limit, value) })
}
