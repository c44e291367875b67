//! Memory of devices.

use simdevice::{Books, Knobs};

use crate::api::{ARGUMENT_VERSION_MISMATCH, Code, INVALID_ARGUMENT, NOT_SUPPORTED, Out, nvml_api};
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
/// function of that name comes first.
fn linked_v2() -> InfoV2 {
    let function: InfoV2;
    // SAFETY: reads the address that the dynamic linker wrote for this symbol, which has this signature.
    unsafe {
        std::arch::asm!(
            "mov {}, qword ptr [rip + nvmlDeviceGetMemoryInfo_v2@GOTPCREL]",
            out(reg) function,
            options(nostack, preserves_flags, readonly)
        );
    }
    function
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
        let mut memory = MemoryV2 { version: VERSION_2, total: 0, reserved: 0, free: 0, used: 0 };
        // SAFETY: a structure of this version.
        match unsafe { linked_v2()(handle, &raw mut memory) } {
            0 => out.answer(Memory { total: memory.total, free: memory.free, used: memory.used + memory.reserved }),
            code => code,
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
