//! Memory of other interfaces (Vulkan, Direct3D), imported by `cuImportExternalMemory`: addresses for it, and no cost.
//!
//! Nothing of the other interface is there; the bytes behind the addresses are as good as any.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::api::{self, In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE};
use crate::ctx;
use crate::heap::{self, Kind};

/// A `CUexternalMemory`.
type Handle = usize;

const HANDLES: usize = 0x4000_0000_0000;
/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FD: u32 = 1;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Description {
    kind: u32,
    handle: [u64; 2],
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Buffer {
    offset: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

#[derive(Default)]
struct Imported {
    sizes: HashMap<Handle, u64>,
    made: usize,
}

static IMPORTED: LazyLock<Mutex<Imported>> = LazyLock::new(Mutex::default);

fn map(memory: Handle, buffer: Buffer) -> Result<u64, CUresult> {
    let device = ctx::require()?.device();
    let size = IMPORTED.lock().sizes.get(&memory).copied().ok_or(INVALID_HANDLE)?;
    let end = buffer.offset.checked_add(buffer.size).ok_or(INVALID_VALUE)?;
    if buffer.size == 0 || end > size || buffer.flags != 0 {
        return Err(INVALID_VALUE);
    }
    heap::place(device, buffer.size, Kind::External)
}

cuda_api! {
    fn cuImportExternalMemory(out: Out<Handle>, description: In<Description>) -> CUresult {
        let Some(wanted) = description.get() else { return INVALID_VALUE };
        if out.is_null() || wanted.kind != OPAQUE_FD || wanted.size == 0 {
            return INVALID_VALUE;
        }
        let import = |_| {
            let imported = &mut *IMPORTED.lock();
            imported.made += 16;
            let handle = HANDLES + imported.made;
            imported.sizes.insert(handle, wanted.size);
            out.set(handle);
        };
        api::code(ctx::require().map(import))
    }

    fn cuExternalMemoryGetMappedBuffer(out: Out<u64>, memory: Handle, buffer: In<Buffer>) -> CUresult {
        let Some(buffer) = buffer.get() else { return INVALID_VALUE };
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(map(memory, buffer).map(|address| out.set(address)))
    }

    /// Mapped addresses stay until they are freed.
    fn cuDestroyExternalMemory(memory: Handle) -> CUresult {
        api::code(IMPORTED.lock().sizes.remove(&memory).map(|_| ()).ok_or(INVALID_HANDLE))
    }
}
