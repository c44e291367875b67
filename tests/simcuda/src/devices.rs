//! Starting the driver and telling devices apart: `cuInit`, `cuDeviceGet*` but for memory sizes.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

use simdevice::{Books, Knobs};

use crate::api::{self, In, Out, cuda_api};
use crate::attributes;
use crate::codes::{CUresult, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED};
use crate::integrity::DeviceFacts;

/// The devices that this process sees: entry `i` is the machine's number of what it calls device `i`.
pub fn visible() -> &'static [usize] {
    static VISIBLE: OnceLock<Vec<usize>> = OnceLock::new();
    VISIBLE.get_or_init(simdevice::visible_devices)
}

/// The machine's number of a `CUdevice`.
pub fn machine(device: i32) -> Result<usize, CUresult> {
    usize::try_from(device).ok().and_then(|device| visible().get(device).copied()).ok_or(INVALID_DEVICE)
}

/// What identifies the visible devices.
pub fn identities() -> Vec<DeviceFacts> {
    let facts = |&device: &usize| (Books::global().uuid(device), attributes::pci(device).map(i32::cast_unsigned));
    visible().iter().map(facts).collect()
}

/// The calling thread, as the kernel numbers it.
pub fn thread_id() -> i32 {
    // SAFETY: gettid(2) has no preconditions.
    unsafe { libc::gettid() }
}

/// Low half of `pthread_self()`.
pub fn thread_word() -> u32 {
    // SAFETY: pthread_self(3) has no preconditions.
    let whole = unsafe { libc::pthread_self() };
    u32::try_from(whole & u64::from(u32::MAX)).unwrap_or(0)
}

/// A library that a tool asked the driver to load at the start of `cuInit`; whatever goes wrong with it is ignored.
fn inject() {
    let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH") else {
        return;
    };
    let Ok(path) = CString::new(path.into_encoded_bytes()) else {
        return;
    };
    if let Some(start) = symbol_of(&path, c"InitializeInjection") {
        // SAFETY: `int InitializeInjection(void)` is what the CUDA profiling documents agree on.
        let start: extern "C" fn() -> i32 = unsafe { std::mem::transmute(start) };
        start();
    }
}

fn symbol_of(path: &CStr, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlopen(3) and dlsym(3) with C strings; null is handled.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        let found = if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }
}

/// `SIMCUDA_IMPL`: looks another libcuda's cuInit up and calls it, as the stub of WSL does.
fn other_implementation(flags: u32) -> CUresult {
    let Some(path) = &Knobs::get().implementation else {
        return 0;
    };
    let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else {
        return NO_DEVICE;
    };
    match symbol_of(&path, c"cuInit") {
        // Ourselves, asked by the first copy.
        Some(init) if init.cast_const().cast() == cuInit::ADDRESS => 0,
        Some(init) => {
            // SAFETY: cuInit of the driver API.
            let init: extern "C" fn(u32) -> CUresult = unsafe { std::mem::transmute(init) };
            init(flags)
        }
        None => NO_DEVICE,
    }
}

/// The text, cut to what fits and ended by a zero.
fn write_text(text: &str, out: Out<c_char>, len: i32) -> CUresult {
    let Some(room) = usize::try_from(len).ok().filter(|len| *len > 0) else {
        return INVALID_VALUE;
    };
    if out.is_null() {
        return INVALID_VALUE;
    }
    let text = &text.as_bytes()[..text.len().min(room - 1)];
    // SAFETY: the caller gave `len` bytes of room.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out.raw(), text.len());
        out.raw().add(text.len()).write(0);
    }
    0
}

/// A device's UUID, or the one of the GPU that it is a MIG instance of.
fn uuid(out: Out<[u8; 16]>, device: i32, of_gpu: bool) -> CUresult {
    match machine(device) {
        Ok(device) => {
            let mut uuid = Books::global().uuid(device);
            uuid[0] ^= if of_gpu { 0xff } else { 0 };
            out.answer(uuid)
        }
        Err(code) => code,
    }
}

fn pci_text(device: usize) -> String {
    let [domain, bus, slot] = attributes::pci(device);
    format!("{domain:04X}:{bus:02X}:{slot:02X}.0")
}

/// `CUdevprop`.
#[repr(C)]
struct Properties {
    max_threads_per_block: i32,
    max_threads_dim: [i32; 3],
    max_grid_size: [i32; 3],
    shared_mem_per_block: i32,
    total_constant_memory: i32,
    simd_width: i32,
    mem_pitch: i32,
    regs_per_block: i32,
    clock_rate: i32,
    texture_align: i32,
}

cuda_api! {
    /// Starts the driver in this process; a forked child of a started one stays dead.
    fn cuInit(flags: u32) -> CUresult {
        if api::forked() {
            return NOT_INITIALIZED;
        }
        if flags != 0 {
            return INVALID_VALUE;
        }
        if !api::initialised() {
            inject();
            let code = other_implementation(flags);
            if code != 0 {
                return code;
            }
            if visible().is_empty() {
                return NO_DEVICE;
            }
            api::set_initialised();
        }
        0
    }

    fn cuDriverGetVersion(version: Out<i32>) -> CUresult {
        version.answer(crate::instrument::driver_version().cast_signed())
    }

    fn cuDeviceGetCount(count: Out<i32>) -> CUresult {
        count.answer(i32::try_from(visible().len()).unwrap_or(0))
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> CUresult {
        if device.is_null() {
            return INVALID_VALUE;
        }
        match machine(ordinal) {
            Ok(_) => device.answer(ordinal),
            Err(code) => code,
        }
    }

    fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) -> CUresult {
        match machine(device) {
            Ok(device) => write_text(Knobs::get().name(device), name, len),
            Err(code) => code,
        }
    }

    fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) -> CUresult {
        uuid(out, device, Knobs::get().mig)
    }

    fn cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) -> CUresult {
        uuid(out, device, false)
    }

    fn cuDeviceGetAttribute(out: Out<i32>, attribute: i32, device: i32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match machine(device) {
            Ok(device) => attributes::value(attribute, device).map_or(INVALID_VALUE, |value| out.answer(value)),
            Err(code) => code,
        }
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> CUresult {
        if major.is_null() || minor.is_null() {
            return INVALID_VALUE;
        }
        if let Err(code) = machine(device) {
            return code;
        }
        let (first, second) = Knobs::get().compute_capability;
        major.set(first.cast_signed());
        minor.answer(second.cast_signed())
    }

    fn cuDeviceGetProperties(out: Out<Properties>, device: i32) -> CUresult {
        let device = match machine(device) {
            Ok(device) => device,
            Err(code) => return code,
        };
        let value = |attribute| attributes::value(attribute, device).unwrap_or(0);
        out.answer(Properties {
            max_threads_per_block: value(1),
            max_threads_dim: [value(2), value(3), value(4)],
            max_grid_size: [value(5), value(6), value(7)],
            shared_mem_per_block: value(8),
            total_constant_memory: value(9),
            simd_width: value(10),
            mem_pitch: value(11),
            regs_per_block: value(12),
            clock_rate: value(13),
            texture_align: value(14),
        })
    }

    fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, device: i32) -> CUresult {
        match machine(device) {
            Ok(device) => write_text(&pci_text(device), text, len),
            Err(code) => code,
        }
    }

    fn cuDeviceGetByPCIBusId(device: Out<i32>, text: *const c_char) -> CUresult {
        if device.is_null() || text.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: a C string, by the driver API.
        let wanted = unsafe { CStr::from_ptr(text) }.to_string_lossy().to_uppercase();
        let same = |device: &usize| {
            let full = pci_text(*device);
            full == wanted || full.trim_end_matches(".0") == wanted || full.trim_start_matches("0000:") == wanted
        };
        match visible().iter().position(same) {
            Some(ordinal) => device.answer(i32::try_from(ordinal).unwrap_or(0)),
            None => INVALID_DEVICE,
        }
    }

    fn cuDeviceGetTexture1DLinearMaxWidth(width: Out<usize>, _format: u32, channels: u32, device: i32) -> CUresult {
        match machine(device) {
            Ok(_) if (1..=4).contains(&channels) => width.answer(1 << 28),
            Ok(_) => INVALID_VALUE,
            Err(code) => code,
        }
    }

    fn cuDeviceGetExecAffinitySupport(out: Out<i32>, _kind: u32, device: i32) -> CUresult {
        match machine(device) {
            Ok(_) => out.answer(0),
            Err(code) => code,
        }
    }

    fn cuDeviceGetNvSciSyncAttributes(_list: *mut c_void, device: i32, _flags: i32) -> CUresult {
        machine(device).err().unwrap_or(crate::codes::NOT_SUPPORTED)
    }

    /// Logs are never written.
    fn cuLogsRegisterCallback(callback: *const c_void, _data: *mut c_void, handle: Out<*mut c_void>) -> CUresult {
        if callback.is_null() {
            return INVALID_VALUE;
        }
        handle.set(std::ptr::without_provenance_mut(1));
        0
    }

    fn cuLogsUnregisterCallback(_handle: *mut c_void) -> CUresult {
        0
    }

    fn cuLogsCurrent(position: Out<u32>, _flags: u32) -> CUresult {
        position.answer(0)
    }

    fn cuProfilerStart, cuProfilerStop() -> CUresult {
        0
    }

    /// Memory checkpoints are not simulated; a process is always running.
    fn cuCheckpointProcessGetState(_pid: i32, state: Out<u32>) -> CUresult {
        state.answer(0)
    }

    fn cuCoredumpGetAttribute, cuCoredumpGetAttributeGlobal(_attribute: u32, value: In<u8>, size: Out<usize>) -> CUresult {
        if value.is_null() || size.is_null() { INVALID_VALUE } else { crate::codes::NOT_SUPPORTED }
    }
}
