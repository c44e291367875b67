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

/// Total and free bytes, dead processes' share given back; a device that shares the host's memory has none of its own.
fn sizes(handle: Handle) -> Result<(u64, u64), Code> {
    let device = device(handle)?;
    if Knobs::get().integrated {
        return Err(NOT_SUPPORTED);
    }
    let books = Books::global();
    Ok((books.total(device), books.free(device)))
}

nvml_api! {
    fn nvmlDeviceGetMemoryInfo(handle: Handle, out: Out<Memory>) -> Code {
        if out.is_null() {
            return INVALID_ARGUMENT;
        }
        sizes(handle).map_or_else(|code| code, |(total, free)| out.answer(Memory { total, free, used: total - free }))
    }

    fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, out: Out<MemoryV2>) -> Code {
        match out.get() {
            None => INVALID_ARGUMENT,
            Some(asked) if asked.version != VERSION_2 => ARGUMENT_VERSION_MISMATCH,
            Some(_) => sizes(handle).map_or_else(
                |code| code,
                |(total, free)| out.answer(MemoryV2 { version: VERSION_2, total, reserved: 0, free, used: total - free }),
            ),
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
