//! Memory of devices.

use simdevice::{Books, Knobs};

use crate::api::{ARGUMENT_VERSION_MISMATCH, Code, FUNCTION_NOT_FOUND, INVALID_ARGUMENT, NOT_SUPPORTED, Out, nvml_api};
use crate::device::{Handle, device};

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`, in bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `NVML_STRUCT_VERSION(Memory, 2)`.
const VERSION_2: u32 = 0x0200_0028;

type InfoV2 = unsafe extern "C" fn(Handle, *mut MemoryV2) -> Code;

/// Our own exported function as the dynamic linker bound it: the real library too calls itself so, and a preloaded
/// function of that name comes first. `None` in a library that lacks it.
fn linked_v2() -> Option<InfoV2> {
    let address: usize;
    // SAFETY: reads the address that the dynamic linker wrote for this symbol.
    unsafe {
        std::arch::asm!(
            "mov {}, qword ptr [rip + nvmlDeviceGetMemoryInfo_v2@GOTPCREL]",
            out(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    // SAFETY: null, or a function of that name, which has this signature.
    unsafe { std::mem::transmute::<usize, Option<InfoV2>>(address) }
}

/// Memory of a device, dead processes' share given back; a device that shares the host's memory has none of its own.
fn memory(handle: Handle) -> Result<MemoryV2, Code> {
    let (device, knobs) = (device(handle)?, Knobs::get());
    if knobs.integrated {
        return Err(NOT_SUPPORTED);
    }
    let books = Books::global();
    let (total, free, reserved) = (books.total(device), books.free(device), knobs.reserved);
    Ok(MemoryV2 { version: VERSION_2, total: total + reserved, reserved, free, used: total - free })
}

nvml_api! {
    fn nvmlDeviceGetMemoryInfo(handle: Handle, out: Out<Memory>) -> Code {
        if out.is_null() {
            return INVALID_ARGUMENT;
        }
        let mut asked = MemoryV2 { version: VERSION_2, total: 0, reserved: 0, free: 0, used: 0 };
        // SAFETY: a handle of the caller and a structure of this version (nvml.h).
        let code = linked_v2().map_or(FUNCTION_NOT_FOUND, |function| unsafe { function(handle, &raw mut asked) });
        let answer = match code {
            0 => Ok(asked),
            FUNCTION_NOT_FOUND => memory(handle),
            code => Err(code),
        };
        match answer {
            Ok(MemoryV2 { total, free, used, reserved, .. }) => out.answer(Memory { total, free, used: used + reserved }),
            Err(code) => code,
        }
    }

    fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, out: Out<MemoryV2>) -> Code {
        match out.get() {
            None => INVALID_ARGUMENT,
            Some(asked) if asked.version != VERSION_2 => ARGUMENT_VERSION_MISMATCH,
            Some(_) => memory(handle).map_or_else(|code| code, |memory| out.answer(memory)),
        }
    }

    fn nvmlDeviceGetBAR1MemoryInfo(handle: Handle, out: Out<Memory>) -> Code {
        let total = 128 << 30;
        device(handle).map_or_else(|code| code, |_| out.answer(Memory { total, free: total, used: 0 }))
    }

    fn nvmlDeviceGetMemoryBusWidth(handle: Handle, out: Out<u32>) -> Code {
        device(handle).map_or_else(|code| code, |_| out.answer(5120))
    }
}
