//! Hints for managed memory: accepted for what is managed, without effect. It is all on its device from the start.

use crate::api::{In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE};
use crate::heap::Kind;
use crate::memory::{self, Source};
use crate::pool::{self, Location};
use crate::{devices, streams};

/// `CU_DEVICE_CPU`, `CU_DEVICE_INVALID`.
const CPU: i32 = -1;
const NO_DEVICE: i32 = -2;

/// Whether all of a range is managed memory.
fn check(address: u64, bytes: usize) -> Result<(), CUresult> {
    let end = address.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
    match memory::find(address) {
        Some(found) if bytes == 0 || found.source != Source::Block(Kind::Managed) || end > found.base + found.size => {
            Err(INVALID_VALUE)
        }
        Some(_) => Ok(()),
        None => Err(INVALID_VALUE),
    }
}

fn check_device(device: i32) -> Result<(), CUresult> {
    if device == CPU { Ok(()) } else { devices::machine(device).map(|_| ()) }
}

fn check_location(location: Location) -> Result<(), CUresult> {
    match location.kind {
        pool::DEVICE => check_device(location.id),
        pool::HOST | pool::HOST_NUMA | pool::HOST_NUMA_CURRENT => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}

fn hint(address: u64, bytes: usize, place: Result<(), CUresult>) -> CUresult {
    crate::api::code(check(address, bytes).and(place))
}

/// A hint in stream order.
fn queue(address: u64, bytes: usize, place: Result<(), CUresult>, stream: streams::Handle) -> CUresult {
    match hint(address, bytes, place) {
        0 => streams::enqueue(stream).err().unwrap_or(0),
        code => code,
    }
}

/// Hints for several ranges.
fn batch(addresses: In<u64>, sizes: In<usize>, count: usize, stream: streams::Handle) -> CUresult {
    if addresses.is_null() || sizes.is_null() || count == 0 {
        return INVALID_VALUE;
    }
    let ranges = addresses.many(count).into_iter().zip(sizes.many(count));
    let bad = ranges.filter_map(|(address, bytes)| check(address, bytes).err()).next();
    bad.unwrap_or_else(|| streams::enqueue(stream).err().unwrap_or(0))
}

/// `CUmem_range_attribute`: nothing is read-mostly, preferred, or was prefetched.
fn attribute(out: Out<i32>, bytes: usize, attribute: u32) -> CUresult {
    const PREFERRED_LOCATION: u32 = 2;
    const ACCESSED_BY: u32 = 3;
    const LAST_PREFETCH_LOCATION: u32 = 4;
    const LAST: u32 = 8;
    let words = bytes / 4;
    if out.is_null() || !bytes.is_multiple_of(4) || words == 0 || !(1..=LAST).contains(&attribute) {
        return INVALID_VALUE;
    }
    if attribute != ACCESSED_BY && words != 1 {
        return INVALID_VALUE;
    }
    let nowhere = matches!(attribute, PREFERRED_LOCATION | ACCESSED_BY | LAST_PREFETCH_LOCATION);
    for i in 0..words {
        // SAFETY: the caller gave `bytes` bytes.
        unsafe { out.raw().add(i).write_unaligned(if nowhere { NO_DEVICE } else { 0 }) };
    }
    0
}

cuda_api! {
    fn cuMemAdvise(address: u64, bytes: usize, _advice: u32, device: i32) -> CUresult {
        hint(address, bytes, check_device(device))
    }

    fn cuMemAdvise_v2(address: u64, bytes: usize, _advice: u32, location: Location) -> CUresult {
        hint(address, bytes, check_location(location))
    }

    fn cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz(address: u64, bytes: usize, device: i32, stream: streams::Handle) -> CUresult {
        queue(address, bytes, check_device(device), stream)
    }

    fn cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz(address: u64, bytes: usize, location: Location, _flags: u32, stream: streams::Handle) -> CUresult {
        queue(address, bytes, check_location(location), stream)
    }

    fn cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz(addresses: In<u64>, sizes: In<usize>, count: usize, _places: In<Location>, _indices: In<usize>, _place_count: usize, _flags: u64, stream: streams::Handle) -> CUresult {
        batch(addresses, sizes, count, stream)
    }

    fn cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz(addresses: In<u64>, sizes: In<usize>, count: usize, _places: In<Location>, _indices: In<usize>, _place_count: usize, _flags: u64, stream: streams::Handle) -> CUresult {
        batch(addresses, sizes, count, stream)
    }

    fn cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz(addresses: In<u64>, sizes: In<usize>, count: usize, _flags: u64, stream: streams::Handle) -> CUresult {
        batch(addresses, sizes, count, stream)
    }

    fn cuMemRangeGetAttribute(out: Out<i32>, room: usize, which: u32, address: u64, bytes: usize) -> CUresult {
        check(address, bytes).err().unwrap_or_else(|| attribute(out, room, which))
    }

    fn cuMemRangeGetAttributes(out: In<Out<i32>>, rooms: In<usize>, which: In<u32>, count: usize, address: u64, bytes: usize) -> CUresult {
        if out.is_null() || rooms.is_null() || which.is_null() || count == 0 {
            return INVALID_VALUE;
        }
        if let Err(code) = check(address, bytes) {
            return code;
        }
        let all = out.many(count).into_iter().zip(rooms.many(count)).zip(which.many(count));
        all.map(|((out, room), which)| attribute(out, room, which)).find(|code| *code != 0).unwrap_or(0)
    }
}
