//! The few CUDA driver types that the hooks look into, as plain integers and `repr(C)` structs.
//!
//! Enums of the driver are integers here: a newer driver or a careless program may pass a value that no Rust enum
//! has. Layouts are checked against cudarc's generated types when this file is compiled.

use core::ffi::c_void;

/// Address of device memory, in bytes (`CUdeviceptr`, 64-bit ABIs).
pub type CUdeviceptr = u64;
/// Device ordinal as the process sees it (`CUdevice`).
pub type CUdevice = i32;
/// Opaque handle of a context; 0 is none.
pub type CUcontext = usize;
/// Opaque handle of a stream; 0, 1 and 2 are the default streams.
pub type CUstream = usize;
/// Opaque handle of a stream-ordered memory pool.
pub type Pool = usize;
/// Handle of a physical allocation (`CUmemGenericAllocationHandle`).
pub type MemHandle = u64;

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: i32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST`, `..._HOST_NUMA`, `..._HOST_NUMA_CURRENT`.
pub const LOCATION_HOST: core::ops::RangeInclusive<i32> = 2..=4;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN` (13.4): the id is a pair of bytes, device first.
pub const LOCATION_DEVICE_LOCALITY_DOMAIN: i32 = 6;

/// Where memory lies (`CUmemLocation`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUmemLocation {
    /// `CUmemLocationType`.
    pub kind: i32,
    /// Meaning depends on `kind`; for a device its ordinal.
    pub id: i32,
}

impl CUmemLocation {
    /// Whether this is a kind of device memory that we know: of any other the driver may know nothing either.
    pub fn is_a_device(self) -> bool {
        matches!(self.kind, LOCATION_DEVICE | LOCATION_DEVICE_LOCALITY_DOMAIN)
    }

    /// Ordinal of the device whose memory this is; `None` for host memory. A kind of a newer driver is taken to name a
    /// device, so that it is counted rather than missed.
    pub fn device(self) -> Option<u32> {
        match self.kind {
            kind if LOCATION_HOST.contains(&kind) => None,
            LOCATION_DEVICE_LOCALITY_DOMAIN => Some(u32::from(self.id.to_ne_bytes()[0])),
            _ => u32::try_from(self.id).ok(),
        }
    }
}

/// Beginning of `CUmemAllocationProp`; the rest is passed through untouched.
#[repr(C)]
pub struct CUmemAllocationProp {
    /// `CUmemAllocationType`.
    pub kind: i32,
    /// `CUmemAllocationHandleType` bits.
    pub handle_types: i32,
    /// Where the memory is to lie.
    pub location: CUmemLocation,
    /// Windows only.
    pub win32: *mut c_void,
    /// Compression, RDMA and usage flags.
    pub flags: [u8; 8],
}

/// Beginning of `CUmemPoolProps`; the rest is passed through untouched.
#[repr(C)]
pub struct CUmemPoolProps {
    /// `CUmemAllocationType`.
    pub kind: i32,
    /// `CUmemAllocationHandleType` bits.
    pub handle_types: i32,
    /// Where the pool's memory is to lie.
    pub location: CUmemLocation,
}

/// Opaque handle of a graph (`CUgraph`).
pub type Graph = usize;
/// Opaque handle of an executable graph (`CUgraphExec`).
pub type GraphExec = usize;
/// Opaque handle of a node (`CUgraphNode`).
pub type GraphNode = usize;
/// Opaque handle of an array or a mipmapped array (`CUarray`, `CUmipmappedArray`).
pub type Array = usize;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
pub struct ArrayDescriptor {
    /// In elements.
    pub width: usize,
    /// Rows; 0 is none.
    pub height: usize,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR_v1`.
#[repr(C)]
pub struct ArrayDescriptorV1 {
    /// In elements.
    pub width: u32,
    /// Rows; 0 is none.
    pub height: u32,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
pub struct Array3dDescriptor {
    /// In elements.
    pub width: usize,
    /// Rows; 0 is none.
    pub height: usize,
    /// Slices, layers or sides; 0 is none.
    pub depth: usize,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v1`.
#[repr(C)]
pub struct Array3dDescriptorV1 {
    /// In elements.
    pub width: u32,
    /// Rows; 0 is none.
    pub height: u32,
    /// Slices, layers or sides; 0 is none.
    pub depth: u32,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

/// `CU_GRAPH_NODE_TYPE_GRAPH`.
pub const NODE_CHILD_GRAPH: u32 = 4;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
pub const NODE_MEM_ALLOC: u32 = 10;
/// `CU_GRAPH_NODE_TYPE_MEM_FREE`.
pub const NODE_MEM_FREE: u32 = 11;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
pub struct MemAllocNodeParams {
    /// Beginning of the `CUmemPoolProps`.
    pub props: CUmemPoolProps,
    rest: [u64; 9],
    access: *const c_void,
    access_count: usize,
    /// Size.
    pub bytes: usize,
    /// Address, which the driver gives.
    pub address: CUdeviceptr,
}

/// Beginning of `CUgraphNodeParams`; the rest is passed through untouched.
#[repr(C)]
pub struct GraphNodeParams {
    /// `CUgraphNodeType`.
    pub kind: u32,
    reserved: [u32; 3],
    /// Parameters of that kind of node.
    pub body: [u64; 29],
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`; all but the flags is passed through untouched.
#[repr(C)]
pub struct GraphInstantiateParams {
    /// `CUgraphInstantiate_flags`.
    pub flags: u64,
}

const _: () = {
    use core::mem::{offset_of, size_of};
    use cudarc::driver::sys;
    assert!(size_of::<CUmemLocation>() == size_of::<sys::CUmemLocation>());
    assert!(size_of::<CUmemAllocationProp>() == size_of::<sys::CUmemAllocationProp>());
    assert!(offset_of!(CUmemAllocationProp, location) == offset_of!(sys::CUmemAllocationProp, location));
    assert!(offset_of!(CUmemPoolProps, location) == offset_of!(sys::CUmemPoolProps, location));
    assert!(size_of::<CUdeviceptr>() == size_of::<sys::CUdeviceptr>());
    assert!(size_of::<CUdevice>() == size_of::<sys::CUdevice>());
    assert!(size_of::<CUcontext>() == size_of::<sys::CUcontext>());
    assert!(size_of::<CUstream>() == size_of::<sys::CUstream>());
    assert!(size_of::<Pool>() == size_of::<sys::CUmemoryPool>());
    assert!(size_of::<MemAllocNodeParams>() == size_of::<sys::CUDA_MEM_ALLOC_NODE_PARAMS_v1>());
    assert!(offset_of!(MemAllocNodeParams, bytes) == offset_of!(sys::CUDA_MEM_ALLOC_NODE_PARAMS_v1, bytesize));
    assert!(offset_of!(GraphNodeParams, body) == 16);
    assert!(size_of::<Array>() == size_of::<sys::CUarray>());
    assert!(size_of::<ArrayDescriptor>() == size_of::<sys::CUDA_ARRAY_DESCRIPTOR>());
    assert!(size_of::<Array3dDescriptor>() == size_of::<sys::CUDA_ARRAY3D_DESCRIPTOR>());
    assert!(offset_of!(Array3dDescriptor, flags) == offset_of!(sys::CUDA_ARRAY3D_DESCRIPTOR, Flags));
    assert!(size_of::<MemHandle>() == size_of::<sys::CUmemGenericAllocationHandle>());
};
