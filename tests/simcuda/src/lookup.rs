//! The table of names and `cuGetProcAddress`.

use crate::api::{Out, cuda_api};
use crate::codes::{INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED};
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::LazyLock;

/// One exported name.
pub struct Row {
    /// As exported: `cuMemAlloc_v2`.
    pub name: &'static str,
    /// As `cuGetProcAddress` is asked: `cuMemAlloc`; `-` where it never hands the name out.
    pub base: &'static str,
    /// CUDA version from which on the name is handed out.
    pub version: u32,
    /// Whether its default stream is the thread's own.
    pub per_thread: bool,
    address: *const (),
}

// SAFETY: the pointer is the address of a function.
unsafe impl Sync for Row {}

const fn row(name: &'static str, base: &'static str, version: u32, per_thread: bool, address: *const ()) -> Row {
    Row { name, base, version, per_thread, address }
}

/// A public name that is not simulated.
macro_rules! stub {
    ($name:ident) => {
        cuda_api! { fn $name() -> CUresult { NOT_SUPPORTED } }
    };
}

include!(concat!(env!("OUT_DIR"), "/table.rs"));

/// What became of a look-up, as `CUdriverProcAddressQueryResult` counts.
enum Found {
    At(*const ()),
    NoSuchName,
    TooOld,
}

/// The newest variant of `base` that is not newer than `version`, as driver-surface §2.2 says.
fn find(base: &str, version: u32, per_thread: bool) -> Found {
    let Some(variants) = BY_BASE.get(base) else {
        return Found::NoSuchName;
    };
    let newest = |thread: bool| {
        variants
            .iter()
            .filter(|row| row.per_thread == thread)
            .filter(|row| row.version <= version)
            .max_by_key(|row| row.version)
    };
    let has_thread_kind = variants.iter().any(|row| row.per_thread);
    match if per_thread && has_thread_kind { newest(true) } else { newest(false) } {
        Some(row) => {
            if crate::instrument::tracing() {
                crate::trace::asked_for(row.name);
            }
            Found::At(row.address)
        }
        None => Found::TooOld,
    }
}

/// base → its variants that this driver has.
static BY_BASE: LazyLock<HashMap<&'static str, Vec<&'static Row>>> = LazyLock::new(|| {
    let mut map: HashMap<&str, Vec<&Row>> = HashMap::new();
    let driver = crate::instrument::driver_version();
    for row in
        TABLE.iter().filter(|row| row.base != "-" && row.version <= driver && !crate::instrument::hidden(row.name))
    {
        map.entry(row.base).or_default().push(row);
    }
    map
});

/// Flags that `cuGetProcAddress` knows: legacy stream, per-thread stream.
const KNOWN_FLAGS: u64 = 3;
const PER_THREAD_FLAG: u64 = 2;

fn look_up(symbol: *const c_char, version: i32, flags: u64) -> Found {
    // SAFETY: the driver API takes a C string here, and the real one crashes on null too.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    // -1 and the like count as newest.
    find(symbol.to_str().unwrap_or(""), version.cast_unsigned(), flags & PER_THREAD_FLAG != 0)
}

cuda_api! {
    /// By name and version; what is not found leaves the answer as it was.
    fn cuGetProcAddress(symbol: *const c_char, pfn: Out<*const ()>, version: i32, flags: u64) -> CUresult {
        if flags & !KNOWN_FLAGS != 0 {
            return INVALID_VALUE;
        }
        match look_up(symbol, version, flags) {
            Found::At(address) => pfn.answer(address),
            Found::NoSuchName | Found::TooOld => NOT_FOUND,
        }
    }

    /// By name and version; what is not found is told by the status.
    fn cuGetProcAddress_v2(symbol: *const c_char, pfn: Out<*const ()>, version: i32, flags: u64, status: Out<u32>) -> CUresult {
        if flags & !KNOWN_FLAGS != 0 {
            return INVALID_VALUE;
        }
        let (address, found) = match look_up(symbol, version, flags) {
            Found::At(address) => (address, 0),
            Found::NoSuchName => (std::ptr::null(), 1),
            Found::TooOld => (std::ptr::null(), 2),
        };
        status.set(found);
        pfn.answer(address)
    }
}
