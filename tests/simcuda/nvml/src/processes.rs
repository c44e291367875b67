//! Who holds how much: the processes that have memory on a device.

use std::collections::BTreeMap;

use simdevice::{Knobs, Nvml, Truth};

use crate::api::{
    ARGUMENT_VERSION_MISMATCH, Code, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED, Out, SUCCESS, nvml_api,
};
use crate::device::{Handle, device};

/// The first structure had two fields.
#[repr(C)]
struct Process {
    pid: u32,
    used: u64,
}

/// `nvmlProcessInfo_v2_t`, which version 3 of the functions uses as well.
#[repr(C)]
struct ProcessV2 {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// `nvmlProcessDetail_v1_t`.
#[repr(C)]
struct Detail {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
    protected: u64,
}

/// `nvmlProcessDetailList_v1_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct DetailList {
    version: u32,
    mode: u32,
    count: u32,
    entries: *mut Detail,
}

/// No instance: the device is not divided.
const NONE: u32 = u32::MAX;

/// Pid and bytes of every living process that holds memory on the device.
fn holders(handle: Handle) -> Result<Vec<(u32, u64)>, Code> {
    let device = device(handle)?;
    if Knobs::get().nvml == Nvml::Partial {
        return Err(NOT_SUPPORTED);
    }
    let mut held = BTreeMap::<u32, u64>::new();
    // Without a state file no other process can be seen, and ours is in another library's books.
    if let Some(path) = Knobs::get().state.as_ref().filter(|path| path.exists()) {
        for process in Truth::open(path).processes().into_iter().filter(|process| process.alive) {
            *held.entry(process.pid + Knobs::get().nvml_pids).or_default() +=
                process.per_device.get(device).map_or(0, |held| held.pages);
        }
    }
    Ok(held.into_iter().filter(|(_, bytes)| *bytes > 0).collect())
}

/// Answers in two steps: without enough room, how many there are; with it, the entries.
fn list<T>(handle: Handle, count: Out<u32>, out: Out<T>, entry: impl Fn(u32, u64) -> T) -> Code {
    let Some(room) = count.get() else {
        return INVALID_ARGUMENT;
    };
    let holders = match holders(handle) {
        Ok(holders) => holders,
        Err(code) => return code,
    };
    count.answer(u32::try_from(holders.len()).unwrap_or(0));
    if holders.len() > room as usize {
        return INSUFFICIENT_SIZE;
    }
    if out.is_null() && !holders.is_empty() {
        return INVALID_ARGUMENT;
    }
    for (i, (pid, used)) in holders.into_iter().enumerate() {
        // SAFETY: the caller gave room for `room` entries.
        unsafe { out.raw().add(i).write_unaligned(entry(pid, used)) };
    }
    SUCCESS
}

/// No process draws, and none runs under MPS.
fn nobody(handle: Handle, count: Out<u32>) -> Code {
    device(handle).map_or_else(|code| code, |_| count.answer(0))
}

nvml_api! {
    fn nvmlDeviceGetComputeRunningProcesses(handle: Handle, count: Out<u32>, out: Out<Process>) -> Code {
        list(handle, count, out, |pid, used| Process { pid, used })
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3(handle: Handle, count: Out<u32>, out: Out<ProcessV2>) -> Code {
        list(handle, count, out, |pid, used| ProcessV2 { pid, used, gpu_instance: NONE, compute_instance: NONE })
    }

    fn nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3(handle: Handle, count: Out<u32>, _out: Out<u8>) -> Code {
        nobody(handle, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3(handle: Handle, count: Out<u32>, _out: Out<u8>) -> Code {
        nobody(handle, count)
    }

    fn nvmlDeviceGetRunningProcessDetailList(handle: Handle, asked: Out<DetailList>) -> Code {
        const VERSION_1: u32 = 0x0100_0018;
        const COMPUTE: u32 = 0;
        let Some(mut wanted) = asked.get() else { return INVALID_ARGUMENT };
        if wanted.version != VERSION_1 {
            return ARGUMENT_VERSION_MISMATCH;
        }
        let holders = match holders(handle) {
            Ok(holders) if wanted.mode == COMPUTE => holders,
            Ok(_) => Vec::new(),
            Err(code) => return code,
        };
        let room = wanted.count as usize;
        wanted.count = u32::try_from(holders.len()).unwrap_or(0);
        asked.answer(wanted);
        if holders.len() > room || (wanted.entries.is_null() && !holders.is_empty()) {
            return INSUFFICIENT_SIZE;
        }
        for (i, (pid, used)) in holders.into_iter().enumerate() {
            let detail = Detail { pid, used, gpu_instance: NONE, compute_instance: NONE, protected: 0 };
            // SAFETY: the caller gave room for `room` entries.
            unsafe { wanted.entries.add(i).write_unaligned(detail) };
        }
        SUCCESS
    }
}
