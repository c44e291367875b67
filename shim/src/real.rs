//! The driver's own functions that the hooks and the rules call: the only place that calls libcuda besides the hooks'
//! own forwarding.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CString;

use gpucap_core::code::Code;
use gpucap_core::driver::{Driver, PoolLevels};
use gpucap_core::graph_memory;

use crate::ffi::{Array, CUcontext, CUdevice, CUdeviceptr, CUmemAllocationProp, CUstream, Graph, MemHandle, Pool};
use crate::{captures, driver, nvml};

/// One function of the driver, looked up at its first use and kept.
pub struct Function {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Function {
    /// The function of that name; not looked up yet.
    pub const fn new(name: &'static CStr) -> Self {
        Function { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Its address; null where the driver lacks it.
    pub fn get(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = driver::symbol(self.name);
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! functions {
    ($( $(#[$doc:meta])* $rust:ident = $name:ident ( $($arg:ident : $ty:ty),* ); )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are valid for what the driver writes (CUDA driver manual).
        pub unsafe fn $rust($($arg: $ty),*) -> Code {
            static FUNCTION: $crate::real::Function = $crate::real::Function::new(
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a function name holds a NUL"),
                });
            let address = FUNCTION.get();
            if address.is_null() {
                return Code::NOT_FOUND;
            }
            // SAFETY: the address was resolved under this name, which has this signature in cuda.h.
            let function = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> Code>(address) };
            // SAFETY: the caller's promise.
            unsafe { function($($arg),*) }
        }
    )*};
}

pub(crate) use functions;

functions! {
    /// Number of devices.
    device_count = cuDeviceGetCount(count: *mut c_int);
    /// Total bytes of a device.
    device_total = cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    /// UUID of a device, or of the MIG instance that it is.
    device_uuid_v2 = cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
    /// UUID of a device.
    device_uuid = cuDeviceGetUuid(uuid: *mut [u8; 16], device: CUdevice);
    /// The thread's context.
    ctx_current = cuCtxGetCurrent(context: *mut CUcontext);
    /// Device of the thread's context.
    ctx_device = cuCtxGetDevice(device: *mut CUdevice);
    /// Unique id of a context.
    ctx_id = cuCtxGetId(context: CUcontext, id: *mut u64);
    /// Whether a primary context is alive.
    primary_state = cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut u32, active: *mut c_int);
    /// Holds a device's primary context.
    primary_retain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    /// Lets it go.
    primary_release = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    /// Context of a stream.
    stream_ctx = cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    /// Whether a stream captures.
    stream_is_capturing = cuStreamIsCapturing(stream: CUstream, status: *mut u32);
    /// The same with the per-thread meaning of stream 0.
    stream_is_capturing_ptsz = cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut u32);
    /// Waits for a stream.
    stream_synchronize = cuStreamSynchronize(stream: CUstream);
    /// The same with the per-thread meaning of stream 0.
    stream_synchronize_ptsz = cuStreamSynchronize_ptsz(stream: CUstream);
    /// Exchanges the thread's capture mode.
    exchange_capture_mode = cuThreadExchangeStreamCaptureMode(mode: *mut u32);
    /// The pool of `cuMemAllocAsync`.
    device_pool = cuDeviceGetMemPool(pool: *mut Pool, device: CUdevice);
    /// A device's default pool.
    device_default_pool = cuDeviceGetDefaultMemPool(pool: *mut Pool, device: CUdevice);
    /// An attribute of a pool.
    pool_attribute = cuMemPoolGetAttribute(pool: Pool, attribute: u32, value: *mut u64);
    /// Gives back what a pool does not use.
    pool_trim = cuMemPoolTrimTo(pool: Pool, keep: usize);
    /// What a device keeps for graphs.
    graph_attribute = cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: u32, value: *mut u64);
    /// Gives back what graphs do not use.
    graph_trim = cuDeviceGraphMemTrim(device: CUdevice);
    /// The graph that a stream is captured into.
    capture_info_v3 = cuStreamGetCaptureInfo_v3(stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut Graph, after: *mut *const c_void, edges: *mut *const c_void, count: *mut usize);
    /// The same with the per-thread meaning of stream 0.
    capture_info_v3_ptsz = cuStreamGetCaptureInfo_v3_ptsz(stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut Graph, after: *mut *const c_void, edges: *mut *const c_void, count: *mut usize);
    /// The same before CUDA 12.3.
    capture_info_v2 = cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut Graph, after: *mut *const c_void, count: *mut usize);
    /// The same before CUDA 12.3, with the per-thread meaning of stream 0.
    capture_info_v2_ptsz = cuStreamGetCaptureInfo_v2_ptsz(stream: CUstream, status: *mut u32, id: *mut u64, graph: *mut Graph, after: *mut *const c_void, count: *mut usize);
    /// Free and total bytes of the current context's device.
    memory_info = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    /// Step that sizes of physical allocations must be a multiple of.
    allocation_granularity = cuMemGetAllocationGranularity(bytes: *mut usize, prop: *const CUmemAllocationProp, option: u32);
    /// Releases a handle of a physical allocation.
    release = cuMemRelease(handle: MemHandle);
    /// Destroys an array.
    array_destroy = cuArrayDestroy(array: Array);
    /// Destroys a mipmapped array.
    mipmapped_array_destroy = cuMipmappedArrayDestroy(array: Array);
    /// Frees memory.
    free = cuMemFree_v2(address: CUdeviceptr);
    /// Frees memory in stream order.
    free_async = cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    /// The same with the per-thread meaning of stream 0.
    free_async_ptsz = cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream);
}

const POOL_RESERVED_CURRENT: u32 = 5;
const POOL_USED_CURRENT: u32 = 7;
const GRAPH_USED_CURRENT: u32 = 0;
const GRAPH_RESERVED_CURRENT: u32 = 2;

/// A device as the driver names it.
pub struct Device {
    /// Ordinal in this process.
    pub ordinal: u32,
    /// `GPU-…` or `MIG-…`; empty where the driver gives none.
    pub uuid: String,
    /// Bytes.
    pub total: u64,
}

/// The devices of this process, by ordinal; `None` before `cuInit`.
pub fn devices() -> Option<Vec<Device>> {
    let mut count = 0;
    // SAFETY: `count` is valid for one int.
    unsafe { device_count(&raw mut count) }.ok().ok()?;
    let all = (0..count).map(|device| {
        let mut bytes = 0;
        // SAFETY: `bytes` is valid for one size_t.
        let code = unsafe { device_total(&raw mut bytes, device) };
        Device {
            ordinal: u32::try_from(device).unwrap_or(0),
            uuid: uuid(device),
            // Of an unknown total every fraction is nothing.
            total: if code.is_success() { bytes as u64 } else { 0 },
        }
    });
    Some(all.collect())
}

/// A MIG instance has a UUID of its own, which only the newer function gives; the older one gives its GPU's.
fn uuid(device: CUdevice) -> String {
    let (mut own, mut gpu) = ([0_u8; 16], [0_u8; 16]);
    // SAFETY: both are valid for a CUuuid (16 bytes).
    let (own_code, gpu_code) = unsafe { (device_uuid_v2(&raw mut own, device), device_uuid(&raw mut gpu, device)) };
    let (kind, bytes) = match (own_code.is_success(), gpu_code.is_success()) {
        (true, true) if own != gpu => ("MIG", own),
        (true, _) => ("GPU", own),
        (false, true) => ("GPU", gpu),
        (false, false) => return String::new(),
    };
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{kind}-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The name by which NVML knows a device.
pub fn uuid_of(device: u32) -> Option<CString> {
    let uuid = uuid(CUdevice::try_from(device).ok()?);
    if uuid.is_empty() { None } else { CString::new(uuid).ok() }
}

/// The driver, as the rules see it.
#[derive(Clone, Copy)]
pub struct Real;

impl Driver for Real {
    fn current_context(&self) -> Result<Option<usize>, Code> {
        let mut context = 0;
        // SAFETY: `context` is valid for one handle.
        unsafe { ctx_current(&raw mut context) }.ok()?;
        Ok((context != 0).then_some(context))
    }

    fn context_works(&self) -> bool {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are valid for one size_t. The cheapest question that a destroyed context answers with its error.
        relaxed(|| unsafe { memory_info(&raw mut free, &raw mut total) }).is_success()
    }

    fn current_device(&self) -> Result<u32, Code> {
        let mut device = 0;
        // SAFETY: `device` is valid for one int.
        unsafe { ctx_device(&raw mut device) }.ok()?;
        u32::try_from(device).map_err(|_| Code::INVALID_CONTEXT)
    }

    fn primary_is_active(&self, device: u32) -> Option<bool> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: both are valid for one int.
        unsafe { primary_state(CUdevice::try_from(device).ok()?, &raw mut flags, &raw mut active) }.ok().ok()?;
        Some(active != 0)
    }

    fn context_id(&self, context: usize) -> Option<u64> {
        let mut id = 0;
        // SAFETY: `id` is valid for one u64; the handle is alive or a primary one (trait contract).
        unsafe { ctx_id(context, &raw mut id) }.ok().ok()?;
        Some(id)
    }

    fn stream_context(&self, stream: usize) -> Option<usize> {
        let mut context = 0;
        // SAFETY: `context` is valid for one handle; the stream is the program's own argument.
        relaxed(|| unsafe { stream_ctx(stream, &raw mut context) }).ok().ok()?;
        Some(context)
    }

    fn current_pool(&self, device: u32) -> Option<usize> {
        let mut pool = 0;
        let ordinal = CUdevice::try_from(device).ok()?;
        // SAFETY: `pool` is valid for one handle.
        let code = relaxed(|| unsafe { device_pool(&raw mut pool, ordinal) });
        // Where the driver does not say, it is the one that nobody has changed.
        if code.is_success() { Some(pool) } else { default_pool(device) }
    }

    fn pool_levels(&self, pool: usize) -> Option<PoolLevels> {
        let graphs = graph_memory_of(pool);
        let read = |of_pool, of_graphs, value: *mut u64| match graphs {
            // SAFETY: the value of these attributes is one cuuint64_t (cuda.h).
            Some(device) => unsafe { graph_attribute(device, of_graphs, value) },
            // SAFETY: as above; the rules ask only for living pools.
            None => unsafe { pool_attribute(pool, of_pool, value) },
        };
        let mut levels = PoolLevels::default();
        relaxed(|| {
            let code = read(POOL_RESERVED_CURRENT, GRAPH_RESERVED_CURRENT, &raw mut levels.reserved);
            if !code.is_success() {
                return code;
            }
            read(POOL_USED_CURRENT, GRAPH_USED_CURRENT, &raw mut levels.used)
        })
        .ok()
        .ok()?;
        Some(levels)
    }

    fn capture_forbids(&self) -> bool {
        captures::forbid()
    }

    fn footprint(&self, device: u32) -> Option<u64> {
        nvml::footprint(device)
    }

    fn trim_pool(&self, pool: usize) {
        captures::outside(|| {
            // A failure leaves the pool as it is; the level is read again.
            let _ = match graph_memory_of(pool) {
                // SAFETY: a device of this process.
                Some(device) => unsafe { graph_trim(device) },
                // SAFETY: the rules trim only living pools.
                None => unsafe { pool_trim(pool, 0) },
            };
        });
    }
}

/// The device whose graph memory the rules know by this handle.
fn graph_memory_of(pool: usize) -> Option<CUdevice> {
    graph_memory::device_of(pool).and_then(|device| CUdevice::try_from(device).ok())
}

/// The graph that a stream is captured into, where it is; `v3` and `v2` are the driver's functions for that.
fn captured_into(
    v3: unsafe fn(CUstream, *mut u32, *mut u64, *mut Graph, *mut *const c_void, *mut *const c_void, *mut usize) -> Code,
    v2: unsafe fn(CUstream, *mut u32, *mut u64, *mut Graph, *mut *const c_void, *mut usize) -> Code,
    stream: CUstream,
) -> Option<Graph> {
    let (mut status, mut id, mut graph, mut count) = (0, 0, 0, 0);
    let (mut after, mut edges) = (core::ptr::null(), core::ptr::null());
    let (status_out, id_out, graph_out, count_out) = (&raw mut status, &raw mut id, &raw mut graph, &raw mut count);
    // SAFETY: all are valid for what the driver writes; the stream is the program's own argument.
    let code = unsafe { v3(stream, status_out, id_out, graph_out, &raw mut after, &raw mut edges, count_out) };
    if code == Code::NOT_FOUND {
        // SAFETY: as above.
        let _ = unsafe { v2(stream, status_out, id_out, graph_out, &raw mut after, count_out) };
    }
    // 1: active.
    (status == 1 && graph != 0).then_some(graph)
}

/// The graph that a stream is captured into, where it is.
pub fn captured_graph(stream: CUstream) -> Option<Graph> {
    captured_into(capture_info_v3, capture_info_v2, stream)
}

/// The same with the per-thread meaning of stream 0.
pub fn captured_graph_ptsz(stream: CUstream) -> Option<Graph> {
    captured_into(capture_info_v3_ptsz, capture_info_v2_ptsz, stream)
}

/// A device's default pool, where it has one.
pub fn default_pool(device: u32) -> Option<Pool> {
    let mut pool = 0;
    let device = CUdevice::try_from(device).ok()?;
    // SAFETY: `pool` is valid for one handle.
    relaxed(|| unsafe { device_default_pool(&raw mut pool, device) }).ok().ok()?;
    Some(pool)
}

/// Step in bytes that sizes for `prop` must be a multiple of; `None` where the driver does not say.
///
/// `prop` must be a pointer that the program passed to `cuMemCreate`, and not null.
pub fn granularity(prop: *const CUmemAllocationProp) -> Option<u64> {
    let mut bytes = 0;
    // SAFETY: `bytes` is valid for one size_t, `prop` is what the driver is about to read anyway; 0 asks for the minimum.
    relaxed(|| unsafe { allocation_granularity(&raw mut bytes, prop, 0) }).ok().ok()?;
    (bytes > 0).then_some(bytes as u64)
}

/// Makes calls of ours so that no capture of the program is broken by them.
pub fn relaxed(call: impl FnOnce() -> Code) -> Code {
    captures::harmless(call)
}
