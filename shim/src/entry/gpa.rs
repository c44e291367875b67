//! `cuGetProcAddress`: the driver answers, and its function is replaced by the hook in front of that very function.
//!
//! Going by the address and not by name, version and flags makes the ABI right whatever a driver hands out.

use core::ffi::{CStr, c_char, c_int, c_void};

use gpucap_core::code::Code;

use super::unlisted;
use crate::driver;
use crate::hooks::{HOOKS, Id};
use crate::images::{self, Class};
use crate::{phase, reloc};

/// `cuGetProcAddress` of CUDA 11.3.
pub type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> Code;
/// `cuGetProcAddress` of CUDA 12.0.
pub type RealV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut u32) -> Code;

/// `CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT`
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// # Safety
/// As `cuGetProcAddress` in the CUDA driver manual.
pub unsafe fn get_proc_address(
    real: Real,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Code {
    let before = if pfn.is_null() {
        core::ptr::null_mut()
    } else {
        // SAFETY: the caller's out-parameter.
        unsafe { *pfn }
    };
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(symbol, pfn, version, flags) };
    let own = || {
        let mut found = core::ptr::null_mut();
        // SAFETY: the driver's own function of this name, with arguments that it just took.
        let own = unsafe { core::mem::transmute::<usize, Option<Real>>(driver::own(Id::cuGetProcAddress as usize)) }?;
        // SAFETY: as above.
        let code = unsafe { own(symbol, &raw mut found, version, flags) };
        (code == Code::SUCCESS).then_some(found as usize)
    };
    // SAFETY: after success the driver has read and written both.
    if code == Code::SUCCESS && unsafe { replace(symbol, pfn, own) }.is_err() {
        // SAFETY: as above.
        unsafe { *pfn = before };
        return Code::NOT_FOUND;
    }
    code
}

/// # Safety
/// As `cuGetProcAddress` in the CUDA driver manual.
pub unsafe fn get_proc_address_v2(
    real: RealV2,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut u32,
) -> Code {
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(symbol, pfn, version, flags, status) };
    let own = || {
        let mut found = core::ptr::null_mut();
        // SAFETY: the driver's own function of this name, with arguments that it just took.
        let own =
            unsafe { core::mem::transmute::<usize, Option<RealV2>>(driver::own(Id::cuGetProcAddress_v2 as usize)) }?;
        // SAFETY: as above; the driver takes a null status.
        let code = unsafe { own(symbol, &raw mut found, version, flags, core::ptr::null_mut()) };
        (code == Code::SUCCESS).then_some(found as usize)
    };
    // SAFETY: after success the driver has read and written both.
    if code == Code::SUCCESS && unsafe { replace(symbol, pfn, own) }.is_err() {
        // SAFETY: the caller's out-parameters; the driver takes a null status.
        unsafe {
            *pfn = core::ptr::null_mut();
            if !status.is_null() {
                *status = VERSION_NOT_SUFFICIENT;
            }
        }
    }
    code
}

/// A function that can't be handed out.
struct Refused;

/// Puts the hook in the place of the driver's function in `pfn`. `own` asks the driver itself, past any interposer.
///
/// # Safety
/// `symbol` is a C string and `pfn` may be read and written.
unsafe fn replace(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    own: impl FnOnce() -> Option<usize>,
) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    let address = unsafe { *pfn } as usize;
    if address == 0 || phase::disabled() {
        return Ok(());
    }
    reloc::refresh(core::ptr::null_mut());
    // SAFETY: the caller's promise.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    if let Some(index) = hook_of(address, symbol, own) {
        // SAFETY: the caller's promise.
        unsafe { *pfn = HOOKS[index].addr as *mut c_void };
        return Ok(());
    }
    if unlisted::is_guarded(symbol.to_bytes())
        && !images::is_own(address)
        && driver::contains(Class::Cuda, address)
        && !unlisted::unknown_abi_passes(symbol)
    {
        return Err(Refused);
    }
    Ok(())
}

/// The hook in front of the function that the driver hands out as `symbol`.
fn hook_of(address: usize, symbol: &CStr, own: impl FnOnce() -> Option<usize>) -> Option<usize> {
    if let Some(index) = known(address, symbol) {
        return Some(index);
    }
    if driver::contains(Class::Cuda, address) || !HOOKS.iter().any(|hook| is_base(hook.name, symbol)) {
        return None;
    }
    // Another library answers for the driver: its implementation (WSL), or an interposer behind us.
    let image = images::owner(address)?;
    if images::is_ours(&image.object) {
        return None;
    }
    driver::adopt_part(&image.object);
    // Or with a function that it keeps to itself: then the driver's own answer tells which one it stands for.
    known(address, symbol).or_else(|| known(own()?, symbol))
}

/// The hook in front of an address that was noted.
fn known(address: usize, symbol: &CStr) -> Option<usize> {
    let index = driver::hook_at(address)?;
    if is_named(index, symbol) { Some(index) } else { sibling(address, symbol) }
}

/// Link editors may fold functions with the same body into one address; then the name decides.
fn sibling(address: usize, symbol: &CStr) -> Option<usize> {
    (0..HOOKS.len()).find(|index| driver::own(*index) == address && is_named(*index, symbol))
}

fn is_named(index: usize, symbol: &CStr) -> bool {
    is_base(HOOKS[index].name, symbol)
}

fn is_base(name: &CStr, symbol: &CStr) -> bool {
    unlisted::base(name.to_bytes()) == symbol.to_bytes()
}
