//! Driver functions of stream-ordered allocation: `cuMemAllocAsync`, `cuMemFreeAsync`, `cuMemPool*`.

use std::sync::Arc;

use crate::api::{self, In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE};
use crate::graphs::{Allocation, Kind};
use crate::pool::{self, Handle, Location, Pool};
use crate::{ctx, devices, graphmem, memory, streams};

/// `CUmemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location: Location,
    security: usize,
    max_size: usize,
    usage: u16,
    reserved: [u8; 54],
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Access {
    location: Location,
    flags: u32,
}

/// Read and write.
const READ_WRITE: u32 = 3;

/// Allocates in stream order; a stream that is being captured gets an allocation node instead.
fn allocate(
    out: Out<u64>,
    bytes: u64,
    pool: impl FnOnce() -> Result<Arc<Pool>, CUresult>,
    stream: streams::Handle,
) -> CUresult {
    if out.is_null() {
        return INVALID_VALUE;
    }
    let work = || {
        let capture = streams::enqueue(stream)?;
        let pool = pool()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        match (capture, pool.device) {
            (Some(capture), Some(device)) => {
                let address = graphmem::reserve(device, bytes)?;
                capture.graph.add(Kind::MemAlloc(Allocation { address, bytes, device }), None);
                Ok(address)
            }
            _ => pool::allocate(&pool, bytes),
        }
    };
    api::code(work().map(|address| out.set(address)))
}

/// The pool from which the device of `stream` allocates now.
fn current(stream: streams::Handle) -> Result<Arc<Pool>, CUresult> {
    let context = streams::resolve(stream)?.context();
    pool::current_of(Location { kind: pool::DEVICE, id: context.ordinal() }, pool::PINNED)
}

fn on_device(device: i32) -> Result<Location, CUresult> {
    devices::machine(device).map(|_| Location { kind: pool::DEVICE, id: device })
}

/// Answers with the handle of a pool.
fn answer(out: Out<Handle>, pool: impl FnOnce() -> Result<Arc<Pool>, CUresult>) -> CUresult {
    if out.is_null() {
        return INVALID_VALUE;
    }
    api::code(pool().map(|pool| out.set(pool.handle())))
}

fn get_attribute(pool: &Pool, attribute: u32, out: Out<u64>) -> CUresult {
    let level = pool.level.lock();
    // Half of the attributes are ints: four bytes are all that may be written.
    let int = |value: i32| {
        // SAFETY: the driver API says `int` for these attributes; valid for four bytes.
        unsafe { Out::<i32>::new(out.raw().cast()) }.answer(value)
    };
    match attribute {
        1 => int(level.reuse[0]),
        2 => int(level.reuse[1]),
        3 => int(level.reuse[2]),
        4 => out.answer(level.threshold),
        5 => out.answer(level.reserved),
        6 => out.answer(level.reserved_high),
        7 => out.answer(level.used),
        8 => out.answer(level.used_high),
        9 => int(pool.kind.cast_signed()),
        10 => int(pool.handle_types.cast_signed()),
        11 => int(pool.location.id),
        12 => int(pool.location.kind.cast_signed()),
        13 => out.answer(pool.max_size),
        14 => int(i32::from(pool.usage & 2 != 0)),
        15 => int(-1),
        _ => INVALID_VALUE,
    }
}

fn set_attribute(pool: &Pool, attribute: u32, value: In<u64>) -> CUresult {
    let mut level = pool.level.lock();
    match attribute {
        1..=3 => {
            // SAFETY: as in `get_attribute`.
            let set = unsafe { In::<i32>::new(value.raw().cast()) }.get();
            level.reuse[crate::units::to_usize(u64::from(attribute - 1))] = i32::from(set.unwrap_or(0) != 0);
            0
        }
        4 => {
            level.threshold = value.get().unwrap_or(0);
            0
        }
        6 if value.get() == Some(0) => {
            level.reserved_high = level.reserved;
            0
        }
        8 if value.get() == Some(0) => {
            level.used_high = level.used;
            0
        }
        _ => INVALID_VALUE,
    }
}

cuda_api! {
    fn cuMemAllocAsync, cuMemAllocAsync_ptsz(out: Out<u64>, bytes: usize, stream: streams::Handle) -> CUresult {
        allocate(out, bytes as u64, || current(stream), stream)
    }

    fn cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz(out: Out<u64>, bytes: usize, pool: Handle, stream: streams::Handle) -> CUresult {
        allocate(out, bytes as u64, || pool::get(pool), stream)
    }

    /// Frees in stream order, whatever allocated the address; a captured stream gets a free node.
    fn cuMemFreeAsync, cuMemFreeAsync_ptsz(address: u64, stream: streams::Handle) -> CUresult {
        let work = || match streams::enqueue(stream)? {
            _ if address == 0 => Err(INVALID_VALUE),
            Some(capture) => {
                memory::find(address).filter(|found| found.base == address).ok_or(INVALID_VALUE)?;
                capture.graph.add(Kind::MemFree(address), None);
                Ok(())
            }
            None => memory::free(address),
        };
        api::code(work())
    }

    fn cuMemPoolCreate(out: Out<Handle>, properties: In<Properties>) -> CUresult {
        let Some(wanted) = properties.get() else { return INVALID_VALUE };
        answer(out, || {
            pool::create(wanted.location, wanted.kind, wanted.handle_types, wanted.max_size as u64, wanted.usage)
        })
    }

    fn cuMemPoolDestroy(pool: Handle) -> CUresult {
        api::code(pool::destroy(pool))
    }

    fn cuMemPoolTrimTo(pool: Handle, keep: usize) -> CUresult {
        api::code(pool::get(pool).map(|pool| pool.shrink(keep as u64)))
    }

    fn cuMemPoolGetAttribute(pool: Handle, attribute: u32, out: Out<u64>) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match pool::get(pool) {
            Ok(pool) => get_attribute(&pool, attribute, out),
            Err(code) => code,
        }
    }

    fn cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: In<u64>) -> CUresult {
        if value.is_null() {
            return INVALID_VALUE;
        }
        match pool::get(pool) {
            Ok(pool) => set_attribute(&pool, attribute, value),
            Err(code) => code,
        }
    }

    fn cuMemPoolSetAccess(pool: Handle, map: In<Access>, count: usize) -> CUresult {
        if count > 0 && map.is_null() {
            return INVALID_VALUE;
        }
        let set = |pool: Arc<Pool>| {
            for access in map.many(count) {
                on_device(access.location.id).and_then(|location| {
                    // Its own device cannot be shut out.
                    let own = location == pool.location && access.flags != READ_WRITE;
                    if own || access.location.kind != pool::DEVICE { Err(INVALID_VALUE) } else { Ok(()) }
                })?;
                pool.level.lock().access.insert(access.location, access.flags);
            }
            Ok(())
        };
        api::code(pool::get(pool).and_then(set))
    }

    fn cuMemPoolGetAccess(out: Out<u32>, pool: Handle, location: In<Location>) -> CUresult {
        let Some(location) = location.get() else { return INVALID_VALUE };
        match pool::get(pool) {
            Ok(pool) if location == pool.location => out.answer(READ_WRITE),
            Ok(pool) => out.answer(pool.level.lock().access.get(&location).copied().unwrap_or(0)),
            Err(code) => code,
        }
    }

    fn cuDeviceGetDefaultMemPool(out: Out<Handle>, device: i32) -> CUresult {
        answer(out, || pool::default_of(on_device(device)?, pool::PINNED))
    }

    fn cuDeviceGetMemPool(out: Out<Handle>, device: i32) -> CUresult {
        answer(out, || pool::current_of(on_device(device)?, pool::PINNED))
    }

    fn cuDeviceSetMemPool(device: i32, pool: Handle) -> CUresult {
        let set = || pool::set_current(on_device(device)?, pool::PINNED, pool::get(pool)?);
        api::code(set())
    }

    fn cuMemGetDefaultMemPool(out: Out<Handle>, location: In<Location>, kind: u32) -> CUresult {
        let Some(location) = location.get() else { return INVALID_VALUE };
        answer(out, || pool::default_of(location, kind))
    }

    fn cuMemGetMemPool(out: Out<Handle>, location: In<Location>, kind: u32) -> CUresult {
        let Some(location) = location.get() else { return INVALID_VALUE };
        answer(out, || pool::current_of(location, kind))
    }

    fn cuMemSetMemPool(location: In<Location>, kind: u32, pool: Handle) -> CUresult {
        let Some(location) = location.get() else { return INVALID_VALUE };
        let set = || pool::set_current(location, kind, pool::get(pool)?);
        api::code(ctx::require().and_then(|_| set()))
    }
}
