//! The private table that nvidia-smi 535 asks for before anything else. It looks only whether its own version of the table is
//! there, and shows N/A where a function of it is not supported; which function is which is known to NVIDIA alone, so none is.

use std::ffi::c_void;

use simdevice::Knobs;

use crate::api::{Code, NOT_FOUND, NOT_SUPPORTED, Out, enter, nvml_api};

/// A table begins with its size in bytes.
#[repr(C)]
struct Table {
    size: usize,
    functions: [unsafe extern "C" fn() -> Code; FUNCTIONS],
}

/// Of the table in libnvidia-ml 535.309.01, as nvmlInternalGetExportTable gives it.
const FUNCTIONS: usize = 0x7a8 / 8 - 1;

const ID: [u8; 16] = *b"\xc4\xfe\x3e\x6c\xc9\x8f\x6c\x4e\xa3\x27\xee\x69\x6e\x12\xf7\xc4";

static TABLE: Table = Table { size: size_of::<Table>(), functions: [unsupported; FUNCTIONS] };

/// Takes any arguments, as the C calling convention allows.
unsafe extern "C" fn unsupported() -> Code {
    enter("private", || NOT_SUPPORTED)
}

nvml_api! {
    /// Each version of nvidia-smi asks for its own table; the one of another driver is not known.
    fn nvmlInternalGetExportTable(out: Out<*const c_void>, id: Out<[u8; 16]>) -> Code {
        let known = id.get() == Some(ID) && (12000..12030).contains(&Knobs::get().driver);
        out.answer(if known { (&raw const TABLE).cast() } else { std::ptr::null() });
        if known { 0 } else { NOT_FOUND }
    }
}
