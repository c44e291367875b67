//! Textures, surfaces and tensor maps: handles that nothing looks at, since no kernel runs.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::{Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE};
use crate::ctx;

fn handle() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn create(out: Out<u64>, resource: *const c_void) -> CUresult {
    if out.is_null() || resource.is_null() {
        return INVALID_VALUE;
    }
    match ctx::require() {
        Ok(_) => out.answer(handle()),
        Err(code) => code,
    }
}

cuda_api! {
    fn cuTexObjectCreate(out: Out<u64>, resource: *const c_void, texture: *const c_void, _view: *const c_void) -> CUresult {
        if texture.is_null() { INVALID_VALUE } else { create(out, resource) }
    }

    fn cuSurfObjectCreate(out: Out<u64>, resource: *const c_void) -> CUresult {
        create(out, resource)
    }

    fn cuTexObjectDestroy, cuSurfObjectDestroy(object: u64) -> CUresult {
        if object == 0 { INVALID_VALUE } else { 0 }
    }

    fn cuTensorMapEncodeTiled(out: Out<[u64; 16]>, _kind: u32, rank: u32, address: *const c_void, _dim: *const u64, _strides: *const u64, _box: *const u32, _element: *const u32, _interleave: u32, _swizzle: u32, _promotion: u32, _fill: u32) -> CUresult {
        if rank == 0 || rank > 5 || address.is_null() { INVALID_VALUE } else { out.answer([0; 16]) }
    }
}
