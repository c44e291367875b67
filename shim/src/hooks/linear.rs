//! Memory that belongs to a context: `cuMemAlloc`, pitched and managed memory, and every `cuMemFree`.

use gpucap_core::budget::Lane;
use gpucap_core::code::Code;
use gpucap_core::ledger::{Kind, block_size};
use gpucap_core::policy::{Failure, Granted};

use crate::ffi::CUdeviceptr;
use crate::state::{self, DRIVER, State};
use crate::{lane, real, report};

/// Step of a pitch before the driver has told it.
const PITCH: u64 = 512;

/// The answer to the program: the driver's code, our refusal, or what `forward` gets from the driver.
///
/// `accept` hands out what was given. When the rules forward a call that they would have refused, because the driver
/// should find fault with its arguments first, and the driver grants it all the same, `undo` takes it back: it is over
/// the limit.
pub fn answer(
    state: &State,
    entry: &str,
    outcome: Result<u64, Failure>,
    accept: impl FnOnce(u64),
    forward: impl FnOnce() -> Result<u64, Code>,
    undo: impl FnOnce(u64),
) -> Code {
    match outcome {
        Ok(address) => {
            accept(address);
            Code::SUCCESS
        }
        Err(Failure::Driver(code)) => code,
        Err(Failure::Denied(denial)) => {
            report::denied(state, entry, denial);
            Code::OUT_OF_MEMORY
        }
        Err(Failure::Forward) => match forward() {
            Ok(address) => {
                undo(address);
                Code::OUT_OF_MEMORY
            }
            Err(code) => code,
        },
    }
}

/// Frees what must not stay.
fn give_back(address: u64) {
    // SAFETY: the address has just come from the driver and nobody else knows it.
    real::relaxed(|| unsafe { real::free(address) });
}

/// `cuMemAlloc_v2`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize) -> Code,
    dptr: *mut CUdeviceptr,
    bytes: usize,
) -> Code {
    let Some((state, size)) = chargeable(!dptr.is_null(), bytes as u64) else {
        // SAFETY: the program's own arguments.
        return unsafe { real(dptr, bytes) };
    };
    let call = || {
        let mut address = 0;
        // SAFETY: `address` is valid for one pointer.
        unsafe { real(&raw mut address, bytes) }.ok().map(|()| address)
    };
    // SAFETY: the program's pointer, which is not null.
    linear(state, "cuMemAlloc_v2", Kind::Linear, size, call, |address| unsafe { dptr.write_unaligned(address) })
}

/// `cuMemAlloc` of CUDA 2, with 32-bit addresses and sizes.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc_v1(real: unsafe extern "C" fn(*mut u32, u32) -> Code, dptr: *mut u32, bytes: u32) -> Code {
    let Some((state, size)) = chargeable(!dptr.is_null(), u64::from(bytes)) else {
        // SAFETY: the program's own arguments.
        return unsafe { real(dptr, bytes) };
    };
    let call = || {
        let mut address = 0_u32;
        // SAFETY: `address` is valid for one 32-bit pointer.
        unsafe { real(&raw mut address, bytes) }.ok().map(|()| u64::from(address))
    };
    // SAFETY: the program's pointer, which is not null; the address came as 32 bits.
    linear(state, "cuMemAlloc", Kind::Linear, size, call, |address| unsafe { dptr.write_unaligned(low(address)) })
}

/// `cuMemAllocManaged`: charged in full to the current device, wherever its pages are.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc_managed(
    real: unsafe extern "C" fn(*mut CUdeviceptr, usize, u32) -> Code,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    flags: u32,
) -> Code {
    let Some((state, size)) = chargeable(!dptr.is_null() && matches!(flags, 1 | 2), bytes as u64) else {
        // SAFETY: the program's own arguments.
        return unsafe { real(dptr, bytes, flags) };
    };
    let call = || {
        let mut address = 0;
        // SAFETY: `address` is valid for one pointer.
        unsafe { real(&raw mut address, bytes, flags) }.ok().map(|()| address)
    };
    // SAFETY: the program's pointer, which is not null.
    linear(state, "cuMemAllocManaged", Kind::Managed, size, call, |address| unsafe { dptr.write_unaligned(address) })
}

/// `cuMemAllocPitch_v2`: the pitch, and so the size, is known after the call.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc_pitch(
    real: unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, usize, usize, u32) -> Code,
    dptr: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Code {
    let sound = !dptr.is_null() && !pitch.is_null() && matches!(element, 4 | 8 | 16);
    let Some((state, size)) = pitched(width as u64, height as u64).and_then(|bytes| chargeable(sound, bytes)) else {
        // SAFETY: the program's own arguments.
        return unsafe { real(dptr, pitch, width, height, element) };
    };
    let mut given = 0_usize;
    let call = || {
        let mut address = 0;
        // SAFETY: both are valid for what the driver writes.
        unsafe { real(&raw mut address, &raw mut given, width, height, element) }.ok()?;
        Ok(granted(address, (given as u64).checked_mul(height as u64), size))
    };
    let outcome = state.governor.allocate(&DRIVER, lane::mine(), Kind::Pitch, size, call, give_back);
    let accept = |address| {
        // SAFETY: the program's pointers, which are not null.
        unsafe {
            dptr.write_unaligned(address);
            pitch.write_unaligned(given);
        }
    };
    let forward = || {
        let (mut address, mut unused) = (0, 0);
        // SAFETY: both are valid for what the driver writes.
        unsafe { real(&raw mut address, &raw mut unused, width, height, element) }.ok().map(|()| address)
    };
    answer(state, "cuMemAllocPitch_v2", outcome, accept, forward, give_back)
}

/// `cuMemAllocPitch` of CUDA 2, all 32-bit.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc_pitch_v1(
    real: unsafe extern "C" fn(*mut u32, *mut u32, u32, u32, u32) -> Code,
    dptr: *mut u32,
    pitch: *mut u32,
    width: u32,
    height: u32,
    element: u32,
) -> Code {
    let sound = !dptr.is_null() && !pitch.is_null() && matches!(element, 4 | 8 | 16);
    let Some((state, size)) = pitched(u64::from(width), u64::from(height)).and_then(|bytes| chargeable(sound, bytes))
    else {
        // SAFETY: the program's own arguments.
        return unsafe { real(dptr, pitch, width, height, element) };
    };
    let mut given = 0_u32;
    let call = || {
        let mut address = 0_u32;
        // SAFETY: both are valid for what the driver writes.
        unsafe { real(&raw mut address, &raw mut given, width, height, element) }.ok()?;
        Ok(granted(u64::from(address), u64::from(given).checked_mul(u64::from(height)), size))
    };
    let outcome = state.governor.allocate(&DRIVER, lane::mine(), Kind::Pitch, size, call, give_back);
    let accept = |address| {
        // SAFETY: the program's pointers, which are not null.
        unsafe {
            dptr.write_unaligned(low(address));
            pitch.write_unaligned(given);
        }
    };
    let forward = || {
        let (mut address, mut unused) = (0_u32, 0_u32);
        // SAFETY: both are valid for what the driver writes.
        unsafe { real(&raw mut address, &raw mut unused, width, height, element) }.ok().map(|()| u64::from(address))
    };
    answer(state, "cuMemAllocPitch", outcome, accept, forward, give_back)
}

/// `cuMemFree_v2`: memory of any kind.
///
/// # Safety
/// As the driver's function.
pub unsafe fn free(real: unsafe extern "C" fn(CUdeviceptr) -> Code, dptr: CUdeviceptr) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(dptr) };
    match state::get() {
        Some(state) => state.governor.free(&DRIVER, lane::mine(), dptr, call),
        None => call(),
    }
}

/// `cuMemFree` of CUDA 2.
///
/// # Safety
/// As the driver's function.
pub unsafe fn free_v1(real: unsafe extern "C" fn(u32) -> Code, dptr: u32) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(dptr) };
    match state::get() {
        Some(state) => state.governor.free(&DRIVER, lane::mine(), u64::from(dptr), call),
        None => call(),
    }
}

/// The books and the driver's block for `bytes`, where the call is one that the driver would look for memory for.
#[inline]
fn chargeable(sound: bool, bytes: u64) -> Option<(&'static State, u64)> {
    if !sound || bytes == 0 {
        return None;
    }
    Some((state::get()?, block_size(bytes)?))
}

/// Bytes that a pitched allocation takes at least; `None` where they overflow.
fn pitched(width: u64, height: u64) -> Option<u64> {
    width.checked_next_multiple_of(PITCH)?.checked_mul(height)
}

/// What the driver gave for a pitched allocation that was expected to take `expected` bytes.
fn granted(address: u64, bytes: Option<u64>, expected: u64) -> Granted {
    Granted { address, size: bytes.and_then(block_size).unwrap_or(expected) }
}

#[inline]
fn linear(
    state: &State,
    entry: &str,
    kind: Kind,
    size: u64,
    call: impl Fn() -> Result<u64, Code>,
    accept: impl FnOnce(u64),
) -> Code {
    let lane: Lane = lane::mine();
    let grant = || call().map(|address| Granted { address, size });
    let outcome = state.governor.allocate(&DRIVER, lane, kind, size, grant, give_back);
    answer(state, entry, outcome, accept, call, give_back)
}

fn low(address: u64) -> u32 {
    u32::try_from(address).unwrap_or(u32::MAX)
}
