//! MIG (`SIMCUDA_MIG=1`): each GPU has one instance, which is all of it and is what CUDA shows.

use std::ffi::c_char;

use simdevice::{Books, Knobs, instance_text, uuid_text};

use crate::api::{Code, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, Out, nvml_api};
use crate::device::{Handle, device, find, handle, with};

/// What the handle of an instance has over that of its GPU.
pub const INSTANCE: usize = 8;

/// UUID of a GPU. The one that the books know is the instance's where there is one; the simulated libcuda has the same rule.
pub fn gpu_text(number: usize) -> String {
    let mut uuid = Books::global().uuid(number);
    uuid[0] ^= if Knobs::get().mig { 0xff } else { 0 };
    uuid_text(uuid)
}

/// UUID of what a handle names.
pub fn text(handle: Handle, number: usize) -> String {
    if is_instance(handle) { instance_text(Books::global().uuid(number)) } else { gpu_text(number) }
}

/// Answers with the instance of this UUID.
pub fn search(text: *const c_char, out: Out<Handle>) -> Code {
    let fits = |number: usize, wanted: &str| Knobs::get().mig && instance_text(Books::global().uuid(number)) == wanted;
    match find(text, out, fits) {
        Ok(number) => out.answer(handle(number) + INSTANCE),
        Err(code) => code,
    }
}

fn is_instance(handle: Handle) -> bool {
    handle % 16 == INSTANCE
}

nvml_api! {
    fn nvmlDeviceGetMigMode(handle: Handle, current: Out<u32>, pending: Out<u32>) -> Code {
        let mode = u32::from(Knobs::get().mig);
        with(handle, |_| {
            current.answer(mode);
            pending.answer(mode);
            if mode == 1 { 0 } else { NOT_SUPPORTED }
        })
    }

    fn nvmlDeviceIsMigDeviceHandle(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(u32::from(is_instance(handle))))
    }

    fn nvmlDeviceGetMaxMigDeviceCount(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(u32::from(Knobs::get().mig && !is_instance(handle))))
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(gpu: Handle, index: u32, out: Out<Handle>) -> Code {
        match device(gpu) {
            Err(code) => code,
            Ok(_) if is_instance(gpu) || !Knobs::get().mig => NOT_SUPPORTED,
            Ok(_) if index > 0 => NOT_FOUND,
            Ok(_) => out.answer(gpu + INSTANCE),
        }
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance: Handle, out: Out<Handle>) -> Code {
        match device(instance) {
            Ok(_) if is_instance(instance) => out.answer(instance - INSTANCE),
            _ => INVALID_ARGUMENT,
        }
    }

    fn nvmlDeviceGetGpuInstanceId, nvmlDeviceGetComputeInstanceId(instance: Handle, out: Out<u32>) -> Code {
        match device(instance) {
            Ok(_) if is_instance(instance) => out.answer(0),
            Ok(_) => NOT_SUPPORTED,
            Err(code) => code,
        }
    }
}
