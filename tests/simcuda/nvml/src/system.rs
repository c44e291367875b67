//! Starting and stopping the library, versions, error texts.

use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering;

use simdevice::{Books, Knobs, Nvml};

use crate::api::{
    Code, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, NOT_FOUND, Out, SUCCESS, UNINITIALIZED, USERS, nvml_api, write_text,
};

fn start() -> Code {
    match Knobs::get().nvml {
        Nvml::Absent => LIBRARY_NOT_FOUND,
        Nvml::NotLoaded => DRIVER_NOT_LOADED,
        Nvml::Ok | Nvml::Partial | Nvml::Slow(_) => {
            USERS.fetch_add(1, Ordering::AcqRel);
            SUCCESS
        }
    }
}

/// A driver version of the branch that belongs to the CUDA version.
fn driver() -> &'static str {
    match Knobs::get().driver {
        ..12000 => "520.61.05",
        12000..12030 => "535.309.01",
        12030..13000 => "575.57.08",
        13000..13020 => "580.65.06",
        _ => "615.36.01",
    }
}

/// `nvmlReturn_t` in words.
const TEXTS: &[(Code, &CStr)] = &[
    (0, c"success"),
    (1, c"uninitialized"),
    (2, c"invalid argument"),
    (3, c"not supported"),
    (4, c"no permission"),
    (6, c"not found"),
    (7, c"insufficient size"),
    (9, c"driver not loaded"),
    (12, c"library not found"),
    (13, c"function not found"),
    (25, c"argument version mismatch"),
    (999, c"unknown error"),
];

nvml_api! {
    fn nvmlInit, nvmlInit_v2() -> Code {
        start()
    }

    fn nvmlInitWithFlags(_flags: u32) -> Code {
        start()
    }

    fn nvmlShutdown() -> Code {
        let less = |users: u32| users.checked_sub(1);
        if USERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok() { SUCCESS } else { UNINITIALIZED }
    }

    fn nvmlSystemGetDriverVersion(out: Out<c_char>, room: u32) -> Code {
        write_text(driver(), out, room)
    }

    fn nvmlSystemGetNVMLVersion(out: Out<c_char>, room: u32) -> Code {
        write_text(&format!("{}.{}", Knobs::get().driver / 1000, driver()), out, room)
    }

    fn nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2(out: Out<i32>) -> Code {
        out.answer(Knobs::get().driver.cast_signed())
    }

    /// The name that the kernel has for the process.
    fn nvmlSystemGetProcessName(pid: u32, out: Out<c_char>, room: u32) -> Code {
        match std::fs::read_to_string(format!("/proc/{pid}/cmdline")) {
            Ok(line) => {
                let name = line.split('\0').next().unwrap_or("").to_owned();
                let room = room as usize;
                let fitting = name.get(..name.len().min(room.saturating_sub(1))).unwrap_or("");
                write_text(fitting, out, u32::try_from(room).unwrap_or(0))
            }
            Err(_) => NOT_FOUND,
        }
    }

    fn nvmlDeviceGetCount, nvmlDeviceGetCount_v2(out: Out<u32>) -> Code {
        out.answer(u32::try_from(Books::global().devices()).unwrap_or(0))
    }

    fn nvmlUnitGetCount(out: Out<u32>) -> Code {
        out.answer(0)
    }
}

/// Not a code but a text.
///
/// # Safety
/// None is needed; the signature is C's.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
    TEXTS.iter().find(|row| row.0 == code).map_or(c"unknown error", |row| row.1).as_ptr()
}
