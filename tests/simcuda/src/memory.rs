//! Device memory of contexts: `cuMemAlloc`, `cuMemAllocPitch`, `cuMemAllocManaged`, `cuMemFree`, `cuMemGetInfo`,
//! `cuMemGetAddressRange`, in both ABIs; and what the rest of the driver asks about an address.

use simdevice::Books;

use crate::api::{self, Out, cuda_api};
use crate::codes::{CUresult, ILLEGAL_ADDRESS, INVALID_VALUE, OUT_OF_MEMORY};
use crate::ctx::{self, Context};
use crate::heap::{self, Kind};
use crate::units::{round_up, to_usize};
use crate::{graphmem, ipc, pool, vmm};

/// Pitches are multiples of this, as those of every current GPU.
const PITCH_STEP: u64 = 512;

/// Where the memory at an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A block of the heap.
    Block(Kind),
    /// Physical memory mapped by cuMemMap; the handle.
    Mapping(u64),
    /// Another process's, opened by cuIpcOpenMemHandle.
    Ipc,
}

/// The allocation that an address lies in.
#[derive(Clone, Copy)]
pub struct Allocation {
    pub base: u64,
    /// Bytes that may be accessed from `base` on.
    pub size: u64,
    pub source: Source,
    /// The machine's number of the device that holds the bytes.
    pub device: usize,
    /// The context it belongs to; pools', graphs' and mapped memory belongs to none.
    pub context: Option<&'static Context>,
}

/// The allocation of device memory that `address` lies in, whatever kind it is.
pub fn find(address: u64) -> Option<Allocation> {
    let block = |found: heap::Found| Allocation {
        base: found.base,
        size: found.size,
        source: Source::Block(found.kind),
        device: found.device,
        context: found.context,
    };
    heap::find(address).map(block).or_else(|| vmm::find(address)).or_else(|| ipc::find(address))
}

/// Checks that `length` bytes at `address` are device memory, and notes that they may be written to. A device address is
/// the host address of the same byte, so after this an ordinary copy will do.
pub fn touch(address: u64, length: u64) -> Result<(), CUresult> {
    if length == 0 {
        return Ok(());
    }
    let end = address.checked_add(length).ok_or(ILLEGAL_ADDRESS)?;
    if let Some(found) = heap::touch(address) {
        return if end - found.base <= found.size { Ok(()) } else { Err(ILLEGAL_ADDRESS) };
    }
    // Neighbouring mappings are one range to whoever accesses them.
    let mut at = address;
    while at < end {
        let other = || ipc::find(at).map(|found| found.base + found.size);
        at = vmm::accessible_until(at).or_else(other).ok_or(ILLEGAL_ADDRESS)?;
    }
    Ok(())
}

/// Frees what begins at `address`, from wherever it was allocated.
pub fn free(address: u64) -> Result<(), CUresult> {
    let found = heap::remove(address, |found| !matches!(found.kind, Kind::Array | Kind::Graph));
    match found.map(|found| (found.kind, found.size)) {
        // A graph's address stays with its node; only the memory goes.
        None => graphmem::unback(address),
        Some((Kind::Pool(pool), bytes)) => {
            pool::returned(pool, bytes);
            Ok(())
        }
        Some(_) => Ok(()),
    }
}

/// Everything of a context that is gone.
pub fn context_gone(id: u64) {
    heap::context_gone(id);
}

fn allocate(bytes: u64, kind: Kind, low: bool) -> Result<u64, CUresult> {
    let context = ctx::require()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    heap::allocate(context, bytes, kind, low)
}

/// Address and pitch for `height` rows of `width` bytes.
fn allocate_pitch(width: u64, height: u64, element: u32, low: bool) -> Result<(u64, u64), CUresult> {
    ctx::require()?;
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(INVALID_VALUE);
    }
    let pitch = round_up(width, PITCH_STEP).ok_or(OUT_OF_MEMORY)?;
    let bytes = pitch.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
    Ok((allocate(bytes, Kind::Linear, low)?, pitch))
}

/// Answers an address in 32 bits; the low arena gives no other.
fn short(address: u64) -> u32 {
    u32::try_from(address).unwrap_or(0)
}

/// A size in 32 bits, cut to the largest that fits.
fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn info() -> Result<(u64, u64), CUresult> {
    let device = ctx::require()?.device();
    let books = Books::global();
    Ok((books.free(device), books.total(device)))
}

/// Base and size of the allocation that `address` lies in.
fn range(address: u64) -> Result<(u64, u64), CUresult> {
    ctx::require()?;
    match find(address) {
        // Arrays have no linear addresses.
        Some(found) if found.source != Source::Block(Kind::Array) => Ok((found.base, found.size)),
        _ => Err(crate::codes::NOT_FOUND),
    }
}

cuda_api! {
    fn cuMemAlloc_v2(out: Out<u64>, bytes: usize) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(allocate(bytes as u64, Kind::Linear, false).map(|address| out.set(address)))
    }

    /// The first ABI: addresses of 32 bits.
    fn cuMemAlloc(out: Out<u32>, bytes: u32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(allocate(u64::from(bytes), Kind::Linear, true).map(|address| out.set(short(address))))
    }

    fn cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) -> CUresult {
        if out.is_null() || pitch.is_null() {
            return INVALID_VALUE;
        }
        let answer = |(address, step): (u64, u64)| {
            out.set(address);
            pitch.set(to_usize(step));
        };
        api::code(allocate_pitch(width as u64, height as u64, element, false).map(answer))
    }

    fn cuMemAllocPitch(out: Out<u32>, pitch: Out<u32>, width: u32, height: u32, element: u32) -> CUresult {
        if out.is_null() || pitch.is_null() {
            return INVALID_VALUE;
        }
        let answer = |(address, step): (u64, u64)| {
            out.set(short(address));
            pitch.set(saturated(step));
        };
        api::code(allocate_pitch(u64::from(width), u64::from(height), element, true).map(answer))
    }

    /// Takes the whole size on the current device at once; nothing migrates.
    fn cuMemAllocManaged(out: Out<u64>, bytes: usize, flags: u32) -> CUresult {
        const GLOBAL: u32 = 1;
        const HOST: u32 = 2;
        if out.is_null() || !matches!(flags, GLOBAL | HOST) {
            return INVALID_VALUE;
        }
        api::code(allocate(bytes as u64, Kind::Managed, false).map(|address| out.set(address)))
    }

    fn cuMemFree_v2(address: u64) -> CUresult {
        match ctx::require() {
            Ok(_) if address == 0 => 0,
            Ok(_) => api::code(free(address)),
            Err(code) => code,
        }
    }

    fn cuMemFree(address: u32) -> CUresult {
        match ctx::require() {
            Ok(_) if address == 0 => 0,
            Ok(_) => api::code(free(u64::from(address))),
            Err(code) => code,
        }
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> CUresult {
        let answer = |(left, all): (u64, u64)| {
            free.set(to_usize(left));
            total.set(to_usize(all));
        };
        api::code(info().map(answer))
    }

    fn cuMemGetInfo(free: Out<u32>, total: Out<u32>) -> CUresult {
        let answer = |(left, all): (u64, u64)| {
            free.set(saturated(left));
            total.set(saturated(all));
        };
        api::code(info().map(answer))
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) -> CUresult {
        let answer = |(start, length): (u64, u64)| {
            base.set(start);
            size.set(to_usize(length));
        };
        api::code(range(address).map(answer))
    }

    fn cuMemGetAddressRange(base: Out<u32>, size: Out<u32>, address: u32) -> CUresult {
        let answer = |(start, length): (u64, u64)| {
            base.set(short(start));
            size.set(saturated(length));
        };
        api::code(range(u64::from(address)).map(answer))
    }
}
