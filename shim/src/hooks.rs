//! The table of hooks: one line each, from which the exports, the address map and the list of names follow.
//!
//! A line reads `role exported_name(arguments) => body;`. The body gets the real function first and then the
//! arguments, so that one body serves every variant with the same signature (plain, `_ptsz`). A new hook is a line
//! here, a line in `exports.txt` and a test.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::AtomicPtr;

use gpucap_core::code::Code;

use crate::entry;
use crate::ffi::{Array, Array3dDescriptor, Array3dDescriptorV1, ArrayDescriptor, ArrayDescriptorV1};
use crate::ffi::{
    CUcontext, CUdevice, CUdeviceptr, CUmemAllocationProp, CUmemLocation, CUmemPoolProps, CUstream, Graph, MemHandle,
    Pool,
};
use crate::ffi::{GraphExec, GraphInstantiateParams, GraphNode, GraphNodeParams, MemAllocNodeParams};
use crate::hooks::binding::EndpointId;
use crate::hooks::interop::GreenContext;
use crate::hooks::module::Module;
use crate::hooks::nvml_info::{Memory, MemoryV2, NvmlDevice};

pub mod array;
pub mod binding;
pub mod capture;
pub mod context;
pub mod graph;
pub mod info;
pub mod init;
pub mod interop;
pub mod linear;
pub mod module;
pub mod nvml_info;
pub mod pool;
pub mod stream_ordered;
pub mod vmm;

/// What a hook is for; decides what happens to it when gpucap must refuse to work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Starts the driver.
    Init,
    /// Takes device memory: refused while the configuration is wrong, and its unknown newer ABIs are guarded.
    Alloc,
    /// Gives device memory back, or changes who refers to it or what calls mean.
    Free,
    /// Creates, holds or ends a context, or what lives in one without being allocated.
    Context,
    /// Reports memory.
    Info,
    /// Hands out functions.
    Lookup,
}

/// One hooked name.
pub struct Hook {
    /// The exported name, as the driver spells it.
    pub name: &'static CStr,
    /// Our function of that name, its signature erased.
    pub addr: unsafe extern "C" fn(),
    /// What it is for.
    pub role: Role,
}

macro_rules! hooks {
    ($( $role:ident $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) => $body:path; )*) => {
        /// Our functions, exported under the driver's names.
        #[allow(non_snake_case, missing_docs)]
        pub mod exports {
            use super::*;
            $(
                /// # Safety
                /// As the driver's function of this name (CUDA driver manual).
                #[cfg_attr(not(test), unsafe(no_mangle))]
                pub unsafe extern "C" fn $name($($arg: $ty),*) -> Code {
                    type Real = unsafe extern "C" fn($($ty),*) -> Code;
                    crate::guard::enter(Id::$name as usize, |real| {
                        // SAFETY: the address was resolved under this very name, so it has this signature (cuda.h).
                        let real: Real = unsafe { core::mem::transmute::<*mut c_void, Real>(real) };
                        // SAFETY: the caller's arguments are handed on under the contract of the driver's function.
                        unsafe { $body(real, $($arg),*) }
                    })
                }
            )*
        }

        /// Index of each hook in [`HOOKS`] and [`REAL`].
        #[allow(non_camel_case_types, missing_docs, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub enum Id { $($name),* }

        /// Every hook, in the order of the table.
        pub static HOOKS: [Hook; COUNT] = [$(
            Hook {
                name: {
                    // The name is a literal without inner NUL, ended by the one added here.
                    match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a hook name holds a NUL"),
                    }
                },
                // SAFETY: only the signature is erased; the address is never called through this type.
                addr: unsafe {
                    core::mem::transmute::<unsafe extern "C" fn($($ty),*) -> Code, unsafe extern "C" fn()>(exports::$name)
                },
                role: Role::$role,
            }
        ),*];

        /// How many hooks there are.
        pub const COUNT: usize = [$(stringify!($name)),*].len();
    };
}

hooks! {
    Init    cuInit(flags: u32) => init::init;
    Lookup  cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64) => entry::get_proc_address;
    Lookup  cuGetProcAddress_v2(symbol: *const c_char, pfn: *mut *mut c_void, version: c_int, flags: u64, status: *mut u32) => entry::get_proc_address_v2;

    Alloc   cuMemAlloc(dptr: *mut u32, bytes: u32) => linear::alloc_v1;
    Alloc   cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytes: usize) => linear::alloc;
    Alloc   cuMemAllocPitch(dptr: *mut u32, pitch: *mut u32, width: u32, height: u32, element: u32) => linear::alloc_pitch_v1;
    Alloc   cuMemAllocPitch_v2(dptr: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: u32) => linear::alloc_pitch;
    Alloc   cuMemAllocManaged(dptr: *mut CUdeviceptr, bytes: usize, flags: u32) => linear::alloc_managed;
    Free    cuMemFree(dptr: u32) => linear::free_v1;
    Free    cuMemFree_v2(dptr: CUdeviceptr) => linear::free;

    Info    cuMemGetInfo(free: *mut u32, total: *mut u32) => info::mem_get_info_v1;
    Info    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => info::mem_get_info;
    Info    cuDeviceTotalMem(bytes: *mut u32, device: CUdevice) => info::device_total_mem_v1;
    Info    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) => info::device_total_mem;
    Info    nvmlDeviceGetMemoryInfo(device: NvmlDevice, memory: *mut Memory) => nvml_info::memory_info;
    Info    nvmlDeviceGetMemoryInfo_v2(device: NvmlDevice, memory: *mut MemoryV2) => nvml_info::memory_info_v2;

    Context cuCtxCreate(pctx: *mut CUcontext, flags: u32, device: CUdevice) => context::create;
    Context cuCtxCreate_v2(pctx: *mut CUcontext, flags: u32, device: CUdevice) => context::create;
    Context cuCtxCreate_v3(pctx: *mut CUcontext, params: *mut c_void, count: c_int, flags: u32, device: CUdevice) => context::create_v3;
    Context cuCtxCreate_v4(pctx: *mut CUcontext, params: *mut c_void, flags: u32, device: CUdevice) => context::create_v4;
    Context cuCtxDestroy(ctx: CUcontext) => context::destroy;
    Context cuCtxDestroy_v2(ctx: CUcontext) => context::destroy;
    Context cuCtxAttach(pctx: *mut CUcontext, flags: u32) => context::attach;
    Context cuCtxDetach(ctx: CUcontext) => context::detach;
    Context cuGLCtxCreate(pctx: *mut CUcontext, flags: u32, device: CUdevice) => context::create;
    Context cuGLCtxCreate_v2(pctx: *mut CUcontext, flags: u32, device: CUdevice) => context::create;
    Context cuVDPAUCtxCreate(pctx: *mut CUcontext, flags: u32, device: CUdevice, vdp_device: u32, vdp_lookup: *const c_void) => interop::vdpau_create;
    Context cuVDPAUCtxCreate_v2(pctx: *mut CUcontext, flags: u32, device: CUdevice, vdp_device: u32, vdp_lookup: *const c_void) => interop::vdpau_create;
    Context cuGreenCtxCreate(green: *mut GreenContext, description: usize, device: CUdevice, flags: u32) => interop::green_create;
    Context cuGreenCtxDestroy(green: GreenContext) => interop::green_destroy;
    Context cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, device: CUdevice) => context::primary_retain;
    Context cuDevicePrimaryCtxRelease(device: CUdevice) => context::primary_release;
    Context cuDevicePrimaryCtxRelease_v2(device: CUdevice) => context::primary_release;
    Context cuDevicePrimaryCtxReset(device: CUdevice) => context::primary_reset;
    Context cuDevicePrimaryCtxReset_v2(device: CUdevice) => context::primary_reset;

    Context cuModuleLoad(module: *mut Module, file: *const c_char) => module::load;
    Context cuModuleLoadData(module: *mut Module, image: *const c_void) => module::load_data;
    Context cuModuleLoadDataEx(module: *mut Module, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void) => module::load_data_ex;
    Context cuModuleLoadFatBinary(module: *mut Module, image: *const c_void) => module::load_data;
    Context cuModuleUnload(module: Module) => module::unload;
    Context cuLibraryLoadData(library: *mut Module, code: *const c_void, jit: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int, values: *mut *mut c_void, count: c_uint) => module::library_load;
    Context cuLibraryLoadFromFile(library: *mut Module, file: *const c_void, jit: *mut c_int, jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int, values: *mut *mut c_void, count: c_uint) => module::library_load;
    Context cuLibraryUnload(library: Module) => module::unload;
    Context cuCtxSetLimit(limit: c_int, value: usize) => module::set_limit;

    Alloc   cuMemAllocAsync(dptr: *mut CUdeviceptr, bytes: usize, stream: CUstream) => stream_ordered::alloc;
    Alloc   cuMemAllocAsync_ptsz(dptr: *mut CUdeviceptr, bytes: usize, stream: CUstream) => stream_ordered::alloc_ptsz;
    Alloc   cuMemAllocFromPoolAsync(dptr: *mut CUdeviceptr, bytes: usize, pool: Pool, stream: CUstream) => stream_ordered::alloc_from_pool;
    Alloc   cuMemAllocFromPoolAsync_ptsz(dptr: *mut CUdeviceptr, bytes: usize, pool: Pool, stream: CUstream) => stream_ordered::alloc_from_pool_ptsz;
    Free    cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream) => stream_ordered::free;
    Free    cuMemFreeAsync_ptsz(dptr: CUdeviceptr, stream: CUstream) => stream_ordered::free_ptsz;
    Free    cuMemPoolCreate(pool: *mut Pool, props: *const CUmemPoolProps) => stream_ordered::pool_create;
    Free    cuMemPoolDestroy(pool: Pool) => stream_ordered::pool_destroy;
    Free    cuMemPoolTrimTo(pool: Pool, keep: usize) => stream_ordered::pool_trim;

    Alloc   cuMemCreate(handle: *mut MemHandle, size: usize, prop: *const CUmemAllocationProp, flags: u64) => vmm::create;
    Free    cuMemRelease(handle: MemHandle) => vmm::release;
    Free    cuMemRetainAllocationHandle(handle: *mut MemHandle, addr: *mut c_void) => vmm::retain;
    Free    cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: MemHandle, flags: u64) => vmm::map;
    Free    cuMemUnmap(ptr: CUdeviceptr, size: usize) => vmm::unmap;
    Free    cuMulticastBindMem(object: MemHandle, offset: usize, memory: MemHandle, from: usize, size: usize, flags: u64) => binding::multicast_mem;
    Free    cuMulticastBindMem_v2(object: MemHandle, device: CUdevice, offset: usize, memory: MemHandle, from: usize, size: usize, flags: u64) => binding::multicast_mem_v2;
    Free    cuMulticastBindAddr(object: MemHandle, offset: usize, address: CUdeviceptr, size: usize, flags: u64) => binding::multicast_addr;
    Free    cuMulticastBindAddr_v2(object: MemHandle, device: CUdevice, offset: usize, address: CUdeviceptr, size: usize, flags: u64) => binding::multicast_addr_v2;
    Free    cuMulticastUnbind(object: MemHandle, device: CUdevice, offset: usize, size: usize) => binding::multicast_unbind;
    Free    cuLogicalEndpointBindMem(endpoint: EndpointId, device: CUdevice, offset: u64, memory: MemHandle, from: u64, size: u64, flags: u64) => binding::endpoint_mem;
    Free    cuLogicalEndpointBindAddr(endpoint: EndpointId, device: CUdevice, offset: u64, address: CUdeviceptr, size: u64, flags: u64) => binding::endpoint_addr;
    Free    cuLogicalEndpointUnbind(endpoint: EndpointId, device: CUdevice, offset: u64, size: u64) => binding::endpoint_unbind;
    Free    cuLogicalEndpointDestroy(endpoint: EndpointId) => binding::endpoint_destroy;
    Free    cuMemExportToShareableHandle(out: *mut c_void, handle: MemHandle, kind: u32, flags: u64) => vmm::export;
    Free    cuMemImportFromShareableHandle(handle: *mut MemHandle, os_handle: *mut c_void, kind: u32) => vmm::import;
    Free    cuMemGetDefaultMemPool(pool: *mut Pool, location: *mut CUmemLocation, kind: u32) => pool::of_place;
    Free    cuMemGetMemPool(pool: *mut Pool, location: *mut CUmemLocation, kind: u32) => pool::of_place;

    Alloc   cuArrayCreate(array: *mut Array, descriptor: *const ArrayDescriptorV1) => array::create_v1;
    Alloc   cuArrayCreate_v2(array: *mut Array, descriptor: *const ArrayDescriptor) => array::create;
    Alloc   cuArray3DCreate(array: *mut Array, descriptor: *const Array3dDescriptorV1) => array::create_3d_v1;
    Alloc   cuArray3DCreate_v2(array: *mut Array, descriptor: *const Array3dDescriptor) => array::create_3d;
    Alloc   cuMipmappedArrayCreate(array: *mut Array, descriptor: *const Array3dDescriptor, levels: u32) => array::create_mipmapped;
    Free    cuArrayDestroy(array: Array) => array::destroy;
    Free    cuMipmappedArrayDestroy(array: Array) => array::destroy;

    Free    cuStreamBeginCapture(stream: CUstream) => capture::begin;
    Free    cuStreamBeginCapture_ptsz(stream: CUstream) => capture::begin_ptsz;
    Free    cuStreamBeginCapture_v2(stream: CUstream, mode: u32) => capture::begin_v2;
    Free    cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: u32) => capture::begin_v2_ptsz;
    Free    cuStreamBeginCaptureToGraph(stream: CUstream, graph: Graph, after: *const c_void, edges: *const c_void, count: usize, mode: u32) => capture::begin_to_graph;
    Free    cuStreamBeginCaptureToGraph_ptsz(stream: CUstream, graph: Graph, after: *const c_void, edges: *const c_void, count: usize, mode: u32) => capture::begin_to_graph_ptsz;
    Free    cuStreamBeginRecaptureToGraph(stream: CUstream, mode: u32, graph: Graph, callback: *const c_void, data: *mut c_void) => capture::recapture;
    Free    cuStreamBeginRecaptureToGraph_ptsz(stream: CUstream, mode: u32, graph: Graph, callback: *const c_void, data: *mut c_void) => capture::recapture_ptsz;
    Free    cuStreamBeginCaptureToCig(stream: CUstream, params: *const c_void) => capture::begin_to_cig;
    Free    cuStreamBeginCaptureToCig_ptsz(stream: CUstream, params: *const c_void) => capture::begin_to_cig_ptsz;
    Free    cuStreamEndCapture(stream: CUstream, graph: *mut Graph) => capture::end;
    Free    cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut Graph) => capture::end_ptsz;
    Free    cuStreamEndCaptureToCig(stream: CUstream) => capture::end_to_cig;
    Free    cuStreamEndCaptureToCig_ptsz(stream: CUstream) => capture::end_to_cig_ptsz;
    Free    cuStreamDestroy(stream: CUstream) => capture::stream_destroy;
    Free    cuStreamDestroy_v2(stream: CUstream) => capture::stream_destroy;

    Alloc   cuGraphAddMemAllocNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *mut MemAllocNodeParams) => graph::add_mem_alloc;
    Alloc   cuGraphAddNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *mut GraphNodeParams) => graph::add_node;
    Alloc   cuGraphAddNode_v2(node: *mut GraphNode, graph: Graph, after: *const GraphNode, edges: *const c_void, count: usize, params: *mut GraphNodeParams) => graph::add_node_v2;
    Alloc   cuGraphAddNode_v3(node: *mut GraphNode, graph: Graph, after: *const GraphNode, edges: *const c_void, count: usize, params: *mut GraphNodeParams) => graph::add_node_v2;
    Free    cuGraphAddMemFreeNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, address: CUdeviceptr) => graph::add_mem_free;
    Free    cuGraphInstantiate(exec: *mut GraphExec, graph: Graph, error: *mut GraphNode, log: *mut c_char, room: usize) => graph::instantiate;
    Free    cuGraphInstantiate_v2(exec: *mut GraphExec, graph: Graph, error: *mut GraphNode, log: *mut c_char, room: usize) => graph::instantiate;
    Free    cuGraphInstantiateWithFlags(exec: *mut GraphExec, graph: Graph, flags: u64) => graph::instantiate_with_flags;
    Free    cuGraphInstantiateWithParams(exec: *mut GraphExec, graph: Graph, params: *mut GraphInstantiateParams) => graph::instantiate_with_params;
    Free    cuGraphInstantiateWithParams_ptsz(exec: *mut GraphExec, graph: Graph, params: *mut GraphInstantiateParams) => graph::instantiate_with_params;
    Free    cuGraphLaunch(exec: GraphExec, stream: CUstream) => graph::launch;
    Free    cuGraphLaunch_ptsz(exec: GraphExec, stream: CUstream) => graph::launch_ptsz;
    Free    cuGraphUpload(exec: GraphExec, stream: CUstream) => graph::upload;
    Free    cuGraphUpload_ptsz(exec: GraphExec, stream: CUstream) => graph::upload;
    Free    cuGraphDestroy(graph: Graph) => graph::destroy;
    Free    cuGraphExecDestroy(exec: GraphExec) => graph::exec_destroy;
    Free    cuDeviceGraphMemTrim(device: CUdevice) => graph::trim;
}

/// The driver's own functions behind the hooks; null until the driver is known, or where it lacks the name.
pub static REAL: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT];

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Vec<&'static str> {
        let lines = include_str!("../exports.txt").lines();
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    }

    #[test]
    fn the_table_and_the_golden_list_name_the_same_functions() {
        let mut table: Vec<&str> = HOOKS.iter().map(|hook| hook.name.to_str().unwrap()).collect();
        table.extend(["dlsym", "dlvsym"]);
        table.sort_unstable();
        let mut golden = listed();
        golden.sort_unstable();
        assert_eq!(table, golden);
    }

    #[test]
    fn no_name_is_hooked_twice() {
        let mut names: Vec<&CStr> = HOOKS.iter().map(|hook| hook.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNT);
    }
}
