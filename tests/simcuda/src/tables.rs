//! The private tables that the runtime libraries ask for (`cuGetExportTable`), as far as they need them to start.
//!
//! What is in them and which slots are called: `reference/simulated-driver.md` b.3. A table lives for ever at one address,
//! because the runtime hashes addresses. Slots that nobody is known to call answer 0.

use std::ffi::c_void;
use std::ptr::{null, without_provenance};

use crate::api::{In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE};
use crate::{ctx, devices, integrity, local_storage};

/// One word of a table: an address, or the table's size.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Word(*const ());

// SAFETY: addresses of functions, and sizes.
unsafe impl Sync for Word {}

extern "C" fn nothing() -> CUresult {
    0
}

/// A table whose first word is its size in bytes.
const fn sized<const N: usize>(slots: &[(usize, *const ())]) -> [Word; N] {
    let mut table = [Word(nothing as *const ()); N];
    table[0] = Word(without_provenance(8 * N));
    let mut i = 0;
    while i < slots.len() {
        table[slots[i].0] = Word(slots[i].1);
        i += 1;
    }
    table
}

static CUDART_INTERFACE: [Word; 13] = sized(&[(2, primary_context as *const ())]);
static TOOLS_HOOKS: [Word; 7] = sized(&[(2, callback_buffer as *const ()), (6, domain_buffer as *const ())]);
static TOOLS_TLS: [Word; 4] = sized(&[]);
static CONTEXT_LOCAL_STORAGE: [Word; 4] = [
    Word(local_storage::put as *const ()),
    Word(local_storage::delete as *const ()),
    Word(local_storage::get as *const ()),
    Word(null()),
];
static CONTEXT_CHECKS: [Word; 4] = sized(&[(2, check_context as *const ())]);
static INTEGRITY_CHECK: [Word; 3] = sized(&[(1, check_integrity as *const ())]);
/// Present is enough for libcudart 13.5, cuBLAS and cuDNN.
static UNNAMED: [Word; 77] = sized(&[]);
static CUFFT: [Word; 88] = sized(&[]);
static CUPTI: [Word; 68] = sized(&[(67, choose_own as *const ())]);
static CUPTI_OPTIONAL: [Word; 9] = sized(&[(3, write_zero as *const ())]);

const fn id(text: u128) -> [u8; 16] {
    text.to_be_bytes()
}

/// The table that an id names. NVRTC's (da9151d3…) is left out on purpose: a fake one breaks nvrtcGetCUBIN.
fn table(wanted: [u8; 16]) -> Option<&'static [Word]> {
    const TABLES: &[([u8; 16], &[Word])] = &[
        (id(0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9), &CUDART_INTERFACE),
        (id(0xa094798c_2e74_2e74_93f2_0800200c0a66), &TOOLS_HOOKS),
        (id(0x42d85a81_23f6_cb47_8298_f6e78a3aecdc), &TOOLS_TLS),
        (id(0xc693336e_1121_df11_a8c3_68f355d89593), &CONTEXT_LOCAL_STORAGE),
        (id(0x263e8860_7cd2_6143_92f6_bbd5006dfa7e), &CONTEXT_CHECKS),
        (id(0xd4082055_bde6_704b_8d34_ba123c66e1f2), &INTEGRITY_CHECK),
        (id(0x21318c60_9714_3248_8ca6_41ff7324c8f2), &UNNAMED),
        (id(0x6e163fbe_b958_444d_835c_e182aff1991e), &CUFFT),
        (id(0x7cb63f9b_9ca4_8e42_a484_beb66e6aed7f), &CUPTI),
        (id(0xd7bd8af8_e7ac_ca4a_bdbc_fb1f1b3fcf33), &CUPTI_OPTIONAL),
    ];
    TABLES.iter().find(|row| row.0 == wanted).map(|row| row.1)
}

cuda_api! {
    /// A private table by its id; an unknown one is INVALID_VALUE and null.
    fn cuGetExportTable(out: Out<*const c_void>, wanted: In<[u8; 16]>) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        let found = wanted.get().and_then(table);
        out.set(found.map_or(null(), |words| words.as_ptr().cast()));
        if found.is_some() { 0 } else { INVALID_VALUE }
    }
}

/// CUDART_INTERFACE 2: the handle that a primary context has or will have, without retaining it.
extern "C" fn primary_context(out: Out<*mut c_void>, device: i32) -> CUresult {
    match ctx::primary_handle(device) {
        Ok(handle) => out.answer(handle),
        Err(code) => code,
    }
}

/// TOOLS_HOOKS 2: words that an attached tool would set; zero means that there is none.
extern "C" fn callback_buffer(buffer: Out<*const u32>, count: Out<usize>) {
    static WORDS: [u32; 1024] = [0; 1024];
    buffer.set(WORDS.as_ptr());
    count.set(WORDS.len());
}

/// TOOLS_HOOKS 6: as above, by domain.
extern "C" fn domain_buffer(buffer: Out<*const u32>, count: Out<usize>) {
    static WORDS: [u32; 14] = [0; 14];
    buffer.set(WORDS.as_ptr());
    count.set(WORDS.len());
}

/// CONTEXT_CHECKS 2: nothing is wrong with the context.
extern "C" fn check_context(_context: *mut c_void, result: Out<u32>, _detail: Out<*mut c_void>) -> CUresult {
    result.set(0);
    0
}

/// CUPTI 67: which copy of a function CUPTI should use, of its own list; another answer than its own means to it that
/// another tool is attached. (From watching libcupti 13.2 and 13.5 call it.)
extern "C" fn choose_own(out: Out<usize>, own: In<usize>, index: u32, count: u32) -> CUresult {
    if own.is_null() || index >= count || count > 4096 {
        return INVALID_VALUE;
    }
    out.answer(own.many(index as usize + 1)[index as usize])
}

/// CUPTI_OPTIONAL 3.
extern "C" fn write_zero(out: Out<i32>) -> CUresult {
    out.set(0);
    0
}

/// INTEGRITY_CHECK 1: the value that libcudart compares with its own.
extern "C" fn check_integrity(version: u32, seconds: u64, out: Out<[u64; 2]>) -> CUresult {
    let address = |words: &'static [Word]| words.as_ptr().addr() as u64;
    let facts = integrity::Facts {
        driver_version: crate::instrument::driver_version(),
        version,
        pid: std::process::id(),
        thread: devices::thread_word(),
        cudart_table: address(&CUDART_INTERFACE),
        integrity_table: address(&INTEGRITY_CHECK),
        function: INTEGRITY_CHECK[1].0.addr() as u64,
        seconds,
    };
    out.answer(integrity::answer(&facts, &devices::identities()))
}
