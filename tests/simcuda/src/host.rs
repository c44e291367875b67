//! Host memory that the driver knows: pinned by it, or registered with it. It costs no device memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::api::{Out, code, cuda_api};
use crate::codes::{
    CUresult, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY,
};
use crate::ctx;

/// Flags of `cuMemHostAlloc`: portable, mapped, write-combined; of `cuMemHostRegister`: portable, mapped, I/O memory,
/// read-only.
const ALLOC_FLAGS: u32 = 7;
const REGISTER_FLAGS: u32 = 15;
const PAGE: usize = 4096;

#[derive(Clone, Copy)]
struct Range {
    bytes: usize,
    flags: u32,
    /// Whether it is ours to free.
    pinned: bool,
    context: u64,
}

/// By address.
static RANGES: LazyLock<Mutex<BTreeMap<u64, Range>>> = LazyLock::new(Mutex::default);

fn range_of(address: u64) -> Option<(u64, Range)> {
    let ranges = RANGES.lock();
    let (base, range) = ranges.range(..=address).next_back()?;
    (address < *base + range.bytes as u64).then_some((*base, *range))
}

/// The range that `address` lies in: where it begins, how long it is.
pub fn find(address: u64) -> Option<(u64, u64)> {
    range_of(address).map(|(base, range)| (base, range.bytes as u64))
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, PAGE).ok()
}

fn allocate(out: Out<u64>, bytes: usize, flags: u32) -> Result<(), CUresult> {
    if out.is_null() || flags & !ALLOC_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let context = ctx::require()?.id();
    if bytes == 0 {
        out.set(0);
        return Ok(());
    }
    let layout = layout(bytes).ok_or(OUT_OF_MEMORY)?;
    // SAFETY: the layout has a size.
    let address = unsafe { alloc_zeroed(layout) }.expose_provenance() as u64;
    if address == 0 {
        return Err(OUT_OF_MEMORY);
    }
    RANGES.lock().insert(address, Range { bytes, flags, pinned: true, context });
    out.set(address);
    Ok(())
}

fn free_memory(address: u64, bytes: usize) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: allocated by `allocate` with this layout, and just taken out of the table.
        unsafe { dealloc(crate::copies::at(address), layout) };
    }
}

fn free(address: u64) -> Result<(), CUresult> {
    ctx::require()?;
    if address == 0 {
        return Ok(());
    }
    let mut ranges = RANGES.lock();
    match ranges.get(&address) {
        Some(range) if range.pinned => {
            let bytes = range.bytes;
            ranges.remove(&address);
            drop(ranges);
            free_memory(address, bytes);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

fn register(address: u64, bytes: usize, flags: u32) -> Result<(), CUresult> {
    let context = ctx::require()?.id();
    let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
    if address == 0 || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let mut ranges = RANGES.lock();
    let overlaps = ranges.range(..end).next_back().is_some_and(|(base, range)| base + range.bytes as u64 > address);
    if overlaps {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    ranges.insert(address, Range { bytes, flags, pinned: false, context });
    Ok(())
}

fn unregister(address: u64) -> Result<(), CUresult> {
    ctx::require()?;
    if address == 0 {
        return Err(INVALID_VALUE);
    }
    let mut ranges = RANGES.lock();
    match ranges.get(&address) {
        Some(range) if !range.pinned => {
            ranges.remove(&address);
            Ok(())
        }
        _ => Err(HOST_MEMORY_NOT_REGISTERED),
    }
}

/// Pinned memory goes with its context; what was only registered is forgotten.
pub fn context_gone(context: u64) {
    let mut gone = Vec::new();
    RANGES.lock().retain(|address, range| {
        if range.context == context && range.pinned {
            gone.push((*address, range.bytes));
        }
        range.context != context
    });
    for (address, bytes) in gone {
        free_memory(address, bytes);
    }
}

cuda_api! {
    fn cuMemHostAlloc(out: Out<u64>, bytes: usize, flags: u32) -> CUresult {
        code(allocate(out, bytes, flags))
    }

    fn cuMemAllocHost_v2(out: Out<u64>, bytes: usize) -> CUresult {
        code(allocate(out, bytes, 0))
    }

    fn cuMemAllocHost(out: Out<u64>, bytes: u32) -> CUresult {
        code(allocate(out, bytes as usize, 0))
    }

    fn cuMemFreeHost(address: u64) -> CUresult {
        code(free(address))
    }

    fn cuMemHostRegister, cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) -> CUresult {
        code(register(address, bytes, flags))
    }

    fn cuMemHostUnregister(address: u64) -> CUresult {
        code(unregister(address))
    }

    fn cuMemHostGetDevicePointer_v2(out: Out<u64>, address: u64, flags: u32) -> CUresult {
        if out.is_null() || flags != 0 {
            return INVALID_VALUE;
        }
        match ctx::require() {
            Ok(_) if find(address).is_some() => out.answer(address),
            Ok(_) => INVALID_VALUE,
            Err(code) => code,
        }
    }

    fn cuMemHostGetFlags(out: Out<u32>, address: u64) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        range_of(address).map_or(INVALID_VALUE, |(_, range)| out.answer(range.flags))
    }
}
