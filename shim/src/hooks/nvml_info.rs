//! What the program is told about memory by NVML: the limit in place of the device, as the CUDA calls tell it.
//!
//! NVML is also asked by programs that never start CUDA (nvidia-smi), and before it is started. Then there are no books, the
//! limit is found from the configuration alone, and this process holds nothing.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};

use gpucap_core::budget::UNCAPPED;
use gpucap_core::code::Code;
use gpucap_core::config::{Config, Report};
use gpucap_core::device_key::{DeviceId, DeviceKey};
use gpucap_core::meminfo;
use gpucap_core::visible::Machine;
use once_cell::race::OnceBox;

use crate::phase::{self, Phase};
use crate::state::{self, DRIVER, State};
use crate::{driver, environment, real};

/// `nvmlDevice_t`.
pub type NvmlDevice = *mut c_void;

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`, in bytes.
#[repr(C)]
pub struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2` (nvml.h): the size of the structure, and 2 in the highest byte.
const VERSION_2: u32 = 0x0200_0028;
const _: () = assert!(size_of::<MemoryV2>() == 0x28 && size_of::<Memory>() == 24);

/// `nvmlDeviceGetMemoryInfo`.
///
/// # Safety
/// As NVML's function.
pub unsafe fn memory_info(
    real: unsafe extern "C" fn(NvmlDevice, *mut Memory) -> Code,
    device: NvmlDevice,
    memory: *mut Memory,
) -> Code {
    // SAFETY: the program's own arguments.
    let (code, nested) = outermost(|| unsafe { real(device, memory) });
    if nested || !code.is_success() || memory.is_null() {
        return code;
    }
    // SAFETY: not null, and NVML has just written it.
    let memory = unsafe { &mut *memory };
    if let Some((free, total)) = view(device, memory.free, memory.total) {
        let used = total - free;
        *memory = Memory { total, free, used };
    }
    code
}

/// `nvmlDeviceGetMemoryInfo_v2`.
///
/// # Safety
/// As NVML's function.
pub unsafe fn memory_info_v2(
    real: unsafe extern "C" fn(NvmlDevice, *mut MemoryV2) -> Code,
    device: NvmlDevice,
    memory: *mut MemoryV2,
) -> Code {
    // SAFETY: the program's own arguments.
    let (code, nested) = outermost(|| unsafe { real(device, memory) });
    // SAFETY: the pointer is not null, and NVML has just read the version there and accepted it.
    if nested || !code.is_success() || memory.is_null() || unsafe { (*memory).version } != VERSION_2 {
        return code;
    }
    // SAFETY: of this version, so all of it has just been written by NVML.
    let memory = unsafe { &mut *memory };
    if let Some((free, total)) = view(device, memory.free, memory.total) {
        memory.total = total;
        memory.free = free;
        memory.used = total - free;
        memory.reserved = 0;
    }
    code
}

/// Makes NVML's call, and says whether that was from inside another one: libnvidia-ml calls its own functions by way of our
/// exports, and what it asks itself is answered with the device's numbers, so that nothing is replaced twice.
fn outermost(call: impl FnOnce() -> Code) -> (Code, bool) {
    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }
    let nested = INSIDE.replace(true);
    let code = call();
    INSIDE.set(nested);
    (code, nested)
}

/// Free and total bytes that the program is told, for a device of which NVML says these; `None` where NVML's own stand.
fn view(device: NvmlDevice, device_free: u64, device_total: u64) -> Option<(u64, u64)> {
    if phase::disabled() {
        return None;
    }
    let config = state::configuration();
    if phase::now() == Phase::Closed || config.report != Report::Cap {
        return None;
    }
    let uuid = uuid_of(device)?;
    let books = state::existing().and_then(|state| Some((state, ordinal(state, &uuid)?)));
    let (free, total) = match books {
        Some((state, ordinal)) => counted(state, ordinal, device_free)?,
        None => configured(config, &uuid, device_free, device_total)?,
    };
    let total = total.min(device_total);
    Some((free.min(total), total))
}

/// What the books say, of a device that the process uses by CUDA.
fn counted(state: &State, device: u32, device_free: u64) -> Option<(u64, u64)> {
    let rules = state.governor.devices().get(device as usize)?;
    if rules.limit == UNCAPPED {
        return None;
    }
    state.governor.reread_pools(&DRIVER, device);
    state.governor.memory_info(device, device_free)
}

/// What the configuration says, of a device on which this process holds nothing.
fn configured(config: &Config, uuid: &str, device_free: u64, total: u64) -> Option<(u64, u64)> {
    let by_index = config.limits.entries().iter().any(|(key, _)| matches!(key, DeviceKey::Index(_)));
    let foreseen = if by_index && state::existing().is_none() { foresee(uuid) } else { None };
    let ordinal = foreseen.unwrap_or(DeviceId::UNSEEN);
    let (resolved, _, _) = config.resolve(&[DeviceId { ordinal, uuid, total }]);
    let limit = resolved.first()?.limit?;
    Some((meminfo::free(limit, 0, 0, device_free), meminfo::total(limit, total)))
}

/// The ordinal of the device with this UUID, once CUDA has started. Devices are never matched by NVML's index: CUDA numbers
/// them by `CUDA_VISIBLE_DEVICES` and in its own order.
fn ordinal(state: &State, uuid: &str) -> Option<u32> {
    static UUIDS: OnceBox<Vec<String>> = OnceBox::new();
    if state.governor.devices().is_empty() {
        return None;
    }
    let read = || Ok::<_, ()>(Box::new(real::devices().ok_or(())?.into_iter().map(|device| device.uuid).collect()));
    let position = UUIDS.get_or_try_init(read).ok()?.iter().position(|other| other.eq_ignore_ascii_case(uuid))?;
    u32::try_from(position).ok()
}

/// The ordinal that CUDA will give to the device with this UUID, for entries of the limit that are by ordinal.
fn foresee(uuid: &str) -> Option<u32> {
    let text = |name: &[u8]| environment::variable(name).and_then(|value| String::from_utf8(value).ok());
    let by_bus = text(b"CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID");
    machine(by_bus)?.ordinal(uuid, text(b"CUDA_VISIBLE_DEVICES").as_deref())
}

/// What NVML says there is.
fn machine(by_bus: bool) -> Option<Machine> {
    type Count = unsafe extern "C" fn(*mut u32) -> Code;
    type ByIndex = unsafe extern "C" fn(u32, *mut NvmlDevice) -> Code;
    // SAFETY: the signatures of these functions in nvml.h.
    let (count, by_index) = unsafe {
        (function::<Count>(c"nvmlDeviceGetCount_v2")?, function::<ByIndex>(c"nvmlDeviceGetHandleByIndex_v2")?)
    };
    let mut devices = 0;
    // SAFETY: room for one number.
    unsafe { count(&raw mut devices) }.ok().ok()?;
    let (mut uuids, mut names) = (Vec::new(), Vec::new());
    for index in 0..devices {
        let mut device = core::ptr::null_mut();
        // SAFETY: room for one handle.
        unsafe { by_index(index, &raw mut device) }.ok().ok()?;
        uuids.push(uuid_of(device)?);
        names.push(text_of(c"nvmlDeviceGetName", device));
    }
    let alike = names.iter().all(|name| name.is_some() && *name == names[0]);
    Some(Machine { uuids, in_order: by_bus || alike })
}

/// `GPU-…`, or `MIG-…` for an instance.
fn uuid_of(device: NvmlDevice) -> Option<String> {
    text_of(c"nvmlDeviceGetUUID", device)
}

/// A text about a device.
fn text_of(name: &CStr, device: NvmlDevice) -> Option<String> {
    type Text = unsafe extern "C" fn(NvmlDevice, *mut c_char, u32) -> Code;
    // More than NVML's longest (NVML_DEVICE_UUID_V2_BUFFER_SIZE, NVML_DEVICE_NAME_V2_BUFFER_SIZE: 96).
    let mut text = [0_u8; 128];
    // SAFETY: the signature that `name` has in nvml.h.
    let function = unsafe { function::<Text>(name) }?;
    // SAFETY: the buffer is as long as is said; the handle is one that NVML has just given or accepted.
    unsafe { function(device, text.as_mut_ptr().cast(), 128) }.ok().ok()?;
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    Some(text.to_str().ok()?.to_owned())
}

/// A function of the process's NVML; `None` where it lacks it.
///
/// # Safety
/// `F` is the type of a pointer to that function.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = driver::symbol(name);
    // SAFETY: not null, of the size of a pointer, and of that type by the caller's promise.
    (!address.is_null()).then(|| unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) })
}
