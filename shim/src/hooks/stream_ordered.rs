//! Stream-ordered allocations and the pools they come from.
//!
//! On a capturing stream such a call becomes a node of a graph and no pool is touched: it is passed on.

use gpucap_core::code::Code;
use gpucap_core::driver::Driver;
use gpucap_core::stream_pools::PoolRef;

use super::graph;
use super::linear::answer;
use crate::ffi::{CUdeviceptr, CUmemPoolProps, CUstream, Graph, Pool};
use crate::state::{self, DRIVER, State};
use crate::{captures, lane, real};

type AllocAsync = unsafe extern "C" fn(*mut CUdeviceptr, usize, CUstream) -> Code;
type AllocFromPool = unsafe extern "C" fn(*mut CUdeviceptr, usize, Pool, CUstream) -> Code;

/// The two meanings of stream 0: legacy default stream, or the thread's own.
#[derive(Clone, Copy)]
pub struct Streams {
    capturing: unsafe fn(CUstream, *mut u32) -> Code,
    free: unsafe fn(CUdeviceptr, CUstream) -> Code,
    synchronize: unsafe fn(CUstream) -> Code,
    graph: fn(CUstream) -> Option<Graph>,
}

impl Streams {
    /// The graph that a stream is captured into, where it is.
    pub fn captures_into(self, stream: CUstream) -> Option<Graph> {
        (self.graph)(stream)
    }
}

/// Stream 0 is the legacy default stream.
pub const LEGACY: Streams = Streams {
    capturing: real::stream_is_capturing,
    free: real::free_async,
    synchronize: real::stream_synchronize,
    graph: real::captured_graph,
};
/// Stream 0 is the thread's own.
pub const PER_THREAD: Streams = Streams {
    capturing: real::stream_is_capturing_ptsz,
    free: real::free_async_ptsz,
    synchronize: real::stream_synchronize_ptsz,
    graph: real::captured_graph_ptsz,
};

/// `cuMemAllocAsync`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc(real: AllocAsync, dptr: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Code {
    // SAFETY: the program's own arguments.
    unsafe { from_current_pool(LEGACY, "cuMemAllocAsync", real, dptr, bytes, stream) }
}

/// `cuMemAllocAsync_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc_ptsz(real: AllocAsync, dptr: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Code {
    // SAFETY: the program's own arguments.
    unsafe { from_current_pool(PER_THREAD, "cuMemAllocAsync_ptsz", real, dptr, bytes, stream) }
}

unsafe fn from_current_pool(
    streams: Streams,
    entry: &str,
    real: AllocAsync,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Code {
    let pool = |state: &State| state.governor.pool_of_stream(&DRIVER, stream);
    // SAFETY: `out` is the program's pointer or one of ours that is valid for one address.
    let call = |out: *mut CUdeviceptr| unsafe { real(out, bytes, stream) };
    ordered(streams, entry, pool, call, dptr, bytes, stream)
}

/// `cuMemAllocFromPoolAsync`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc_from_pool(
    real: AllocFromPool,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    pool: Pool,
    stream: CUstream,
) -> Code {
    // SAFETY: the program's own arguments.
    unsafe { from_named_pool(LEGACY, "cuMemAllocFromPoolAsync", real, dptr, bytes, pool, stream) }
}

/// `cuMemAllocFromPoolAsync_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn alloc_from_pool_ptsz(
    real: AllocFromPool,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    pool: Pool,
    stream: CUstream,
) -> Code {
    // SAFETY: the program's own arguments.
    unsafe { from_named_pool(PER_THREAD, "cuMemAllocFromPoolAsync_ptsz", real, dptr, bytes, pool, stream) }
}

unsafe fn from_named_pool(
    streams: Streams,
    entry: &str,
    real: AllocFromPool,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    pool: Pool,
    stream: CUstream,
) -> Code {
    let named = |state: &State| match state.governor.pool(pool, None) {
        Some(known) => Some(known),
        // A handle that we have not seen created: a device's default pool, if it is one.
        None => (0..u32::try_from(state.governor.devices().len()).ok()?)
            .find(|device| real::default_pool(*device) == Some(pool))
            .and_then(|device| state.governor.pool(pool, Some(device))),
    };
    // SAFETY: `out` is the program's pointer or one of ours that is valid for one address.
    let call = |out: *mut CUdeviceptr| unsafe { real(out, bytes, pool, stream) };
    ordered(streams, entry, named, call, dptr, bytes, stream)
}

fn ordered(
    streams: Streams,
    entry: &str,
    pool: impl FnOnce(&State) -> Option<PoolRef>,
    call: impl Fn(*mut CUdeviceptr) -> Code,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Code {
    if dptr.is_null() || bytes == 0 {
        return call(dptr);
    }
    let Some(state) = state::get() else {
        return call(dptr);
    };
    match way(streams, stream) {
        Way::Pool => {}
        Way::Graph => return captured(state, streams, pool, call, dptr, bytes, stream),
        Way::PassedOn => return call(dptr),
    }
    let Some(pool) = pool(state) else {
        return call(dptr);
    };
    let given = || {
        let mut address = 0;
        call(&raw mut address).ok().map(|()| address)
    };
    let undo = |address| {
        // SAFETY: the address has just come from the driver on this stream, and nobody else knows it.
        unsafe { (streams.free)(address, stream) };
        captures::outside(|| {
            // SAFETY: the program's stream. The pool has the memory back once the stream has come this far.
            unsafe { (streams.synchronize)(stream) };
        });
    };
    let outcome = state.governor.pool_allocate(&DRIVER, lane::mine(), pool, bytes as u64, given, undo);
    // SAFETY: the program's pointer, which is not null.
    answer(state, entry, outcome, |address| unsafe { dptr.write_unaligned(address) }, given, undo)
}

/// An allocation on a captured stream is a node of its graph.
fn captured(
    state: &State,
    streams: Streams,
    pool: impl FnOnce(&State) -> Option<PoolRef>,
    call: impl Fn(*mut CUdeviceptr) -> Code,
    dptr: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Code {
    let code = call(dptr);
    if let (true, Some(graph)) = (code.is_success(), streams.captures_into(stream)) {
        let device = pool(state).map(|pool| pool.device);
        // SAFETY: the program's pointer, which is not null and which the driver has just written to.
        graph::allocates(state, graph, device, unsafe { dptr.read_unaligned() }, bytes as u64);
    }
    code
}

/// What a call on a stream means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Something with a pool.
    Pool,
    /// A node of a graph: the stream is captured.
    Graph,
    /// Nothing that is counted: the driver can't say because another stream's capture would be broken by it, or it is no
    /// stream, or there is no context for it that lives.
    PassedOn,
}

/// Any other error of the question is no answer, and the call is counted.
fn way(streams: Streams, stream: CUstream) -> Way {
    let mut status = 0;
    // SAFETY: `status` is valid for one enum value; the stream is the program's own argument.
    let code = unsafe { (streams.capturing)(stream, &raw mut status) };
    if code.is_success() {
        return if status == 0 { Way::Pool } else { Way::Graph };
    }
    let never = [Code::STREAM_CAPTURE_IMPLICIT, Code::INVALID_HANDLE, Code::CONTEXT_IS_DESTROYED];
    if never.contains(&code) || !matches!(DRIVER.current_context(), Ok(Some(_))) { Way::PassedOn } else { Way::Pool }
}

/// `cuMemFreeAsync`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn free(
    real: unsafe extern "C" fn(CUdeviceptr, CUstream) -> Code,
    dptr: CUdeviceptr,
    stream: CUstream,
) -> Code {
    // SAFETY: the program's own arguments.
    unsafe { freed(LEGACY, real, dptr, stream) }
}

/// `cuMemFreeAsync_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn free_ptsz(
    real: unsafe extern "C" fn(CUdeviceptr, CUstream) -> Code,
    dptr: CUdeviceptr,
    stream: CUstream,
) -> Code {
    // SAFETY: the program's own arguments.
    unsafe { freed(PER_THREAD, real, dptr, stream) }
}

unsafe fn freed(
    streams: Streams,
    real: unsafe extern "C" fn(CUdeviceptr, CUstream) -> Code,
    dptr: CUdeviceptr,
    stream: CUstream,
) -> Code {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(dptr, stream) };
    let Some(state) = state::get() else {
        return call();
    };
    match way(streams, stream) {
        Way::Pool => state.governor.free(&DRIVER, lane::mine(), dptr, call),
        Way::Graph => {
            let code = call();
            if let (true, Some(graph)) = (code.is_success(), streams.captures_into(stream)) {
                graph::frees(state, graph, dptr);
            }
            code
        }
        Way::PassedOn => call(),
    }
}

/// `cuMemPoolCreate`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn pool_create(
    real: unsafe extern "C" fn(*mut Pool, *const CUmemPoolProps) -> Code,
    pool: *mut Pool,
    props: *const CUmemPoolProps,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(pool, props) };
    if !code.is_success() || pool.is_null() || props.is_null() {
        return code;
    }
    if let Some(state) = state::get() {
        // SAFETY: the driver has just read `props` and written `pool`.
        let (handle, location) = unsafe { (pool.read_unaligned(), (&raw const (*props).location).read_unaligned()) };
        state.governor.pool_created(handle, location.device());
    }
    code
}

/// `cuMemPoolDestroy`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn pool_destroy(real: unsafe extern "C" fn(Pool) -> Code, pool: Pool) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(pool) };
    match state::get() {
        Some(state) => state.governor.pool_destroy(&DRIVER, pool, call),
        None => call(),
    }
}

/// `cuMemPoolTrimTo`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn pool_trim(real: unsafe extern "C" fn(Pool, usize) -> Code, pool: Pool, keep: usize) -> Code {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(pool, keep) };
    match state::get() {
        Some(state) => state.governor.pool_trim(&DRIVER, pool, call),
        None => call(),
    }
}
