//! Devices: finding and naming them.

use std::ffi::{CStr, c_char};

use simdevice::{Books, Knobs};

use crate::api::{Code, INVALID_ARGUMENT, NOT_FOUND, Out, SUCCESS, nvml_api, write_text};
use crate::mig::{self, INSTANCE};

/// An `nvmlDevice_t`: 16 × (number of the device + 1), and [`INSTANCE`] more for the MIG instance on it.
pub type Handle = usize;

/// The machine's number of the device that a handle names, be it the GPU or the instance on it.
pub fn device(handle: Handle) -> Result<usize, Code> {
    let number = (handle / 16).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
    let known = handle.is_multiple_of(16) || (Knobs::get().mig && handle % 16 == INSTANCE);
    if known && number < Books::global().devices() { Ok(number) } else { Err(INVALID_ARGUMENT) }
}

/// The handle of a GPU.
pub fn handle(number: usize) -> Handle {
    16 * (number + 1)
}

/// PCI bus of a device; the simulated libcuda has the same rule.
fn bus(number: usize) -> u32 {
    1 + u32::try_from(number).unwrap_or(0)
}

fn bus_id(number: usize) -> String {
    format!("00000000:{:02X}:00.0", bus(number))
}

/// Answers with the first GPU that fits a text.
fn search(text: *const c_char, out: Out<Handle>, fits: impl Fn(usize, &str) -> bool) -> Code {
    match find(text, out, fits) {
        Ok(number) => out.answer(handle(number)),
        Err(code) => code,
    }
}

/// The first device that fits a text.
pub fn find(text: *const c_char, out: Out<Handle>, fits: impl Fn(usize, &str) -> bool) -> Result<usize, Code> {
    if text.is_null() || out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: a C string, by the NVML manual.
    let wanted = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    (0..Books::global().devices()).find(|number| fits(*number, &wanted)).ok_or(NOT_FOUND)
}

/// Answers from a device.
pub fn with(handle: Handle, answer: impl FnOnce(usize) -> Code) -> Code {
    device(handle).map_or_else(|code| code, answer)
}

/// `nvmlPciInfo_t`.
#[repr(C)]
struct PciInfo {
    bus_id_legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    bus_id: [u8; 32],
}

impl PciInfo {
    fn of(number: usize) -> PciInfo {
        let text = bus_id(number);
        let (mut long, mut short) = ([0; 32], [0; 16]);
        long[..text.len()].copy_from_slice(text.as_bytes());
        // The old field has four digits of the domain.
        short[..text.len() - 4].copy_from_slice(&text.as_bytes()[4..]);
        let (device_id, subsystem_id) = (0x2330_10de, 0x16c1_10de);
        PciInfo { bus_id_legacy: short, domain: 0, bus: bus(number), device: 0, device_id, subsystem_id, bus_id: long }
    }
}

/// `nvmlUtilization_t`.
#[repr(C)]
struct Utilization {
    gpu: u32,
    memory: u32,
}

nvml_api! {
    fn nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2(index: u32, out: Out<Handle>) -> Code {
        let index = index as usize;
        if index < Books::global().devices() { out.answer(handle(index)) } else { INVALID_ARGUMENT }
    }

    fn nvmlDeviceGetHandleByUUID(text: *const c_char, out: Out<Handle>) -> Code {
        match search(text, out, |number, wanted| mig::gpu_text(number) == wanted) {
            NOT_FOUND => mig::search(text, out),
            code => code,
        }
    }

    fn nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2(text: *const c_char, out: Out<Handle>) -> Code {
        search(text, out, |number, wanted| {
            let (full, wanted) = (bus_id(number), wanted.to_uppercase());
            full == wanted || full[4..] == wanted || full[9..] == wanted
        })
    }

    fn nvmlDeviceGetIndex(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |number| out.answer(u32::try_from(number).unwrap_or(0)))
    }

    fn nvmlDeviceGetMinorNumber(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |number| out.answer(u32::try_from(number).unwrap_or(0)))
    }

    fn nvmlDeviceGetUUID(handle: Handle, out: Out<c_char>, room: u32) -> Code {
        with(handle, |number| write_text(&mig::text(handle, number), out, room))
    }

    fn nvmlDeviceGetName(handle: Handle, out: Out<c_char>, room: u32) -> Code {
        with(handle, |number| write_text(Knobs::get().name(number), out, room))
    }

    fn nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3(handle: Handle, out: Out<PciInfo>) -> Code {
        with(handle, |number| out.answer(PciInfo::of(number)))
    }

    fn nvmlDeviceGetCudaComputeCapability(handle: Handle, major: Out<i32>, minor: Out<i32>) -> Code {
        with(handle, |_| {
            let (first, second) = Knobs::get().compute_capability;
            major.answer(first.cast_signed()).max(minor.answer(second.cast_signed()))
        })
    }

    /// Idle: no kernel runs.
    fn nvmlDeviceGetUtilizationRates(handle: Handle, out: Out<Utilization>) -> Code {
        with(handle, |_| out.answer(Utilization { gpu: 0, memory: 0 }))
    }

    fn nvmlDeviceGetTemperature(handle: Handle, sensor: u32, out: Out<u32>) -> Code {
        with(handle, |_| if sensor == 0 { out.answer(30) } else { INVALID_ARGUMENT })
    }

    /// Milliwatts.
    fn nvmlDeviceGetPowerUsage(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(70_000))
    }

    fn nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimit(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(700_000))
    }

    fn nvmlDeviceGetPerformanceState, nvmlDeviceGetPowerState(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(0))
    }

    fn nvmlDeviceGetPersistenceMode(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(1))
    }

    fn nvmlDeviceGetDisplayActive, nvmlDeviceGetDisplayMode, nvmlDeviceGetComputeMode(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(0))
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkGeneration(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(5))
    }

    fn nvmlDeviceGetMaxPcieLinkWidth, nvmlDeviceGetCurrPcieLinkWidth(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(16))
    }

    /// Every device reaches every other.
    fn nvmlDeviceGetP2PStatus(handle: Handle, other: Handle, _kind: u32, out: Out<u32>) -> Code {
        with(handle, |_| with(other, |_| out.answer(0)))
    }

    fn nvmlDeviceGetTopologyCommonAncestor(handle: Handle, other: Handle, out: Out<u32>) -> Code {
        with(handle, |_| with(other, |_| out.answer(20)))
    }

    fn nvmlDeviceGetVirtualizationMode(handle: Handle, out: Out<u32>) -> Code {
        with(handle, |_| out.answer(0))
    }

    fn nvmlDeviceValidateInforom(handle: Handle) -> Code {
        with(handle, |_| SUCCESS)
    }
}
