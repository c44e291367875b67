//! Green contexts: parts of a device that are really all of it. One retains the device's primary context, and streams in
//! it are streams of that.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::api::{In, Out, code, cuda_api};
use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE};
use crate::{attributes, ctx, devices, streams};

/// A `CUgreenCtx`.
type Handle = usize;

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;

/// `CUdevResource`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Resource {
    kind: u32,
    padding: [u32; 23],
    count: u32,
    smallest: u32,
    alignment: u32,
    flags: u32,
    rest: [u64; 4],
}

/// By handle: the ordinal of the device.
static GREEN: LazyLock<Mutex<HashMap<Handle, i32>>> = LazyLock::new(Mutex::default);

fn device_of(handle: Handle) -> Result<i32, CUresult> {
    GREEN.lock().get(&handle).copied().ok_or(INVALID_HANDLE)
}

/// All multiprocessors of a device.
fn whole(ordinal: i32, kind: u32, out: Out<Resource>) -> Result<(), CUresult> {
    const COUNT: i32 = 16;
    if out.is_null() || kind != MULTIPROCESSORS {
        return Err(INVALID_VALUE);
    }
    let count = attributes::value(COUNT, devices::machine(ordinal)?).unwrap_or(0).cast_unsigned();
    out.set(Resource { kind, padding: [0; 23], count, smallest: 8, alignment: 8, flags: 0, rest: [0; 4] });
    Ok(())
}

cuda_api! {
    fn cuDeviceGetDevResource(device: i32, out: Out<Resource>, kind: u32) -> CUresult {
        code(whole(device, kind, out))
    }

    fn cuCtxGetDevResource(context: ctx::Handle, out: Out<Resource>, kind: u32) -> CUresult {
        code(ctx::from_handle_or_current(context).and_then(|context| whole(context.ordinal(), kind, out)))
    }

    fn cuGreenCtxGetDevResource(handle: Handle, out: Out<Resource>, kind: u32) -> CUresult {
        code(device_of(handle).and_then(|device| whole(device, kind, out)))
    }

    /// A description is any number but 0.
    fn cuDevResourceGenerateDesc(out: Out<usize>, resources: In<Resource>, count: u32) -> CUresult {
        if resources.is_null() || count == 0 { INVALID_VALUE } else { out.answer(1) }
    }

    /// Groups of the least size, and what is left.
    fn cuDevSmResourceSplitByCount(out: Out<Resource>, groups: Out<u32>, input: In<Resource>, rest: Out<Resource>, _flags: u32, least: u32) -> CUresult {
        let (Some(whole), Some(room)) = (input.get(), In::from(groups).get()) else { return INVALID_VALUE };
        let size = least.max(1).next_multiple_of(whole.alignment.max(1));
        if whole.kind != MULTIPROCESSORS || size > whole.count {
            return INVALID_VALUE;
        }
        let possible = whole.count / size;
        let made = if out.is_null() { possible } else { room.min(possible) };
        for i in 0..if out.is_null() { 0 } else { made } {
            // SAFETY: the caller gave room for `groups` entries.
            unsafe { out.raw().add(i as usize).write(Resource { count: size, ..whole }) };
        }
        rest.set(Resource { count: whole.count - made * size, ..whole });
        groups.answer(made)
    }

    fn cuGreenCtxCreate(out: Out<Handle>, description: usize, device: i32, flags: u32) -> CUresult {
        const DEFAULT_STREAM: u32 = 1;
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        if out.is_null() || description == 0 || flags != DEFAULT_STREAM {
            return INVALID_VALUE;
        }
        code(ctx::retain_primary(device).map(|_| {
            let handle = 0x6000_0000_0000 + 16 * NEXT.fetch_add(1, Ordering::Relaxed);
            GREEN.lock().insert(handle, device);
            out.set(handle);
        }))
    }

    fn cuGreenCtxDestroy(handle: Handle) -> CUresult {
        let device = GREEN.lock().remove(&handle);
        code(device.ok_or(INVALID_HANDLE).and_then(ctx::release_primary))
    }

    fn cuCtxFromGreenCtx(out: Out<ctx::Handle>, handle: Handle) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        code(device_of(handle).and_then(ctx::primary).map(|context| out.set(context.handle())))
    }

    fn cuGreenCtxGetId(handle: Handle, out: Out<u64>) -> CUresult {
        device_of(handle).map_or_else(|code| code, |_| out.answer(handle as u64))
    }

    fn cuGreenCtxStreamCreate(out: Out<streams::Handle>, handle: Handle, flags: u32, priority: i32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        code(device_of(handle).and_then(ctx::primary).map(|context| out.set(streams::create_in(context, flags, priority))))
    }

    fn cuFlushGPUDirectRDMAWrites(_target: u32, _scope: u32) -> CUresult {
        ctx::require().err().unwrap_or(0)
    }
}
