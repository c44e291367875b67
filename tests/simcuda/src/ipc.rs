//! Memory of other processes, opened by `cuIpcOpenMemHandle`.
//!
//! A handle says where the exporter's bytes are: its pid, the descriptor of its arena and the place in it. The importer
//! opens the same file through /proc and maps the pages. It pays nothing, and what it maps stays readable after the
//! exporter has freed it, as memory that another one may have got by then.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;

use crate::api::{self, Out, cuda_api};
use crate::backing::{map_shared_at, unmap};
use crate::codes::{CUresult, INVALID_CONTEXT, INVALID_VALUE, OUT_OF_MEMORY};
use crate::ctx::{self, Context};
use crate::heap::{self, Kind};
use crate::memory::{Allocation, Source};
use crate::{devices, units};

/// `CUipcMemHandle`, as this driver fills its 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct MemHandle {
    magic: u64,
    pid: u32,
    file: i32,
    offset: u64,
    size: u64,
    /// The machine's number.
    device: u64,
    spare: [u64; 3],
}

const MAGIC: u64 = u64::from_ne_bytes(*b"simcuipc");

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the one flag there is, and it must be given.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

struct Opened {
    handle: MemHandle,
    context: &'static Context,
    id: u64,
    times: u64,
    /// What was mapped: whole host pages around the block.
    mapped: (u64, u64),
}

/// By the address that the program got.
static OPENED: Mutex<BTreeMap<u64, Opened>> = Mutex::new(BTreeMap::new());

/// The opened block that `address` lies in.
pub fn find(address: u64) -> Option<Allocation> {
    let opened = OPENED.lock();
    let (base, block) = opened.range(..=address).next_back()?;
    (address - base < block.handle.size).then_some(Allocation {
        base: *base,
        size: block.handle.size,
        source: Source::Ipc,
        device: units::to_usize(block.handle.device),
        context: Some(block.context),
    })
}

/// What a context opened goes with it.
pub fn context_gone(id: u64) {
    OPENED.lock().retain(|_, block| {
        if block.id == id {
            unmap(block.mapped.0, block.mapped.1);
        }
        block.id != id
    });
}

fn export(address: u64) -> Result<MemHandle, CUresult> {
    ctx::require()?;
    let found = heap::find(address).filter(|found| found.kind == Kind::Linear).ok_or(INVALID_VALUE)?;
    let (file, offset) = heap::file_of(found.base).ok_or(INVALID_VALUE)?;
    let device = found.device as u64;
    Ok(MemHandle { magic: MAGIC, pid: std::process::id(), file, offset, size: found.size, device, spare: [0; 3] })
}

fn open(handle: MemHandle, flags: u32) -> Result<u64, CUresult> {
    let context = ctx::require()?;
    if handle.magic != MAGIC || flags != LAZY_ENABLE_PEER_ACCESS {
        return Err(INVALID_VALUE);
    }
    // The exporter already has it, and the driver says so with this code.
    if handle.pid == std::process::id() {
        return Err(INVALID_CONTEXT);
    }
    if !devices::visible().contains(&units::to_usize(handle.device)) {
        return Err(crate::codes::INVALID_DEVICE);
    }
    let mut opened = OPENED.lock();
    let known = opened.iter_mut().find(|(_, block)| block.handle == handle && block.id == context.id());
    if let Some((address, block)) = known {
        block.times += 1;
        return Ok(*address);
    }
    let path = format!("/proc/{}/fd/{}", handle.pid, handle.file);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| INVALID_VALUE)?;
    let inside = handle.offset % 4096;
    let length = (inside + handle.size).next_multiple_of(4096);
    let at = map_shared_at(&OwnedFd::from(file), handle.offset - inside, length).ok_or(OUT_OF_MEMORY)?;
    let block = Opened { handle, context, id: context.id(), times: 1, mapped: (at, length) };
    opened.insert(at + inside, block);
    Ok(at + inside)
}

fn close(address: u64) -> Result<(), CUresult> {
    ctx::require()?;
    let mut opened = OPENED.lock();
    let block = opened.get_mut(&address).ok_or(INVALID_VALUE)?;
    block.times -= 1;
    if block.times == 0 {
        let (at, length) = block.mapped;
        opened.remove(&address);
        unmap(at, length);
    }
    Ok(())
}

cuda_api! {
    fn cuIpcGetMemHandle(out: Out<MemHandle>, address: u64) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(export(address).map(|handle| out.set(handle)))
    }

    /// The 64 bytes of the handle come by value, and so on the stack, as the C ABI has it for structures of this size.
    fn cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2(out: Out<u64>, handle: MemHandle, flags: u32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(open(handle, flags).map(|address| out.set(address)))
    }

    fn cuIpcCloseMemHandle(address: u64) -> CUresult {
        api::code(close(address))
    }
}

/// Keeps the size that the ABI says.
const _: () = assert!(size_of::<MemHandle>() == 64);
