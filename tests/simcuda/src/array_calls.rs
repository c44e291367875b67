//! Driver functions of arrays and mipmapped arrays, in both ABIs.

use crate::api::{self, In, Out, cuda_api};
use crate::array::{self, Handle, Shape};
use crate::codes::{CUresult, INVALID_VALUE};
use crate::units::to_usize;
use crate::{ctx, devices};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Flat {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR_v1`.
#[derive(Clone, Copy)]
#[repr(C)]
struct OldFlat {
    width: u32,
    height: u32,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v1`.
#[derive(Clone, Copy)]
#[repr(C)]
struct OldShape {
    width: u32,
    height: u32,
    depth: u32,
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
struct Requirements {
    size: usize,
    alignment: usize,
    reserved: [u32; 4],
}

/// `CUDA_ARRAY_SPARSE_PROPERTIES`.
#[repr(C)]
struct SparseProperties {
    tile: [u32; 3],
    tail_level: u32,
    tail_size: u64,
    flags: u32,
    reserved: [u32; 4],
}

/// Sparse memory is bound in tiles of 64 KiB.
const TILE_BYTES: usize = 64 << 10;

fn wide(size: u32) -> usize {
    to_usize(u64::from(size))
}

fn narrow(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn from_flat(flat: Flat) -> Shape {
    let Flat { width, height, format, channels } = flat;
    Shape { width, height, depth: 0, format, channels, flags: 0 }
}

fn from_old(old: OldShape) -> Shape {
    let OldShape { width, height, depth, format, channels, flags } = old;
    Shape { width: wide(width), height: wide(height), depth: wide(depth), format, channels, flags }
}

fn create(out: Out<Handle>, shape: Option<Shape>) -> CUresult {
    let Some(shape) = shape else {
        return INVALID_VALUE;
    };
    if out.is_null() {
        return INVALID_VALUE;
    }
    api::code(array::create(shape).map(|handle| out.set(handle)))
}

/// Answers one fact about an array.
fn tell<T>(out: Out<T>, handle: Handle, fact: impl FnOnce(&Shape) -> T) -> CUresult {
    if out.is_null() {
        return INVALID_VALUE;
    }
    api::code(ctx::require().and_then(|_| array::get(handle)).map(|array| out.set(fact(&array.shape))))
}

/// What an array that brings no memory needs.
fn requirements(out: Out<Requirements>, shape: &Shape, levels: u32, device: i32) -> CUresult {
    let answer = || {
        devices::machine(device)?;
        let (deferred, sparse) = array::without_memory(shape);
        if !deferred && !sparse {
            return Err(INVALID_VALUE);
        }
        let size = to_usize(array::bytes_of(shape, levels)?);
        out.set(Requirements { size, alignment: TILE_BYTES, reserved: [0; 4] });
        Ok(())
    };
    if out.is_null() { INVALID_VALUE } else { api::code(answer()) }
}

fn sparse(out: Out<SparseProperties>, shape: &Shape, levels: u32) -> CUresult {
    if out.is_null() || !array::without_memory(shape).1 {
        return INVALID_VALUE;
    }
    out.answer(SparseProperties { tile: [128, 128, 1], tail_level: levels, tail_size: 0, flags: 0, reserved: [0; 4] })
}

cuda_api! {
    fn cuArrayCreate_v2(out: Out<Handle>, shape: In<Flat>) -> CUresult {
        create(out, shape.get().map(from_flat))
    }

    fn cuArrayCreate(out: Out<Handle>, shape: In<OldFlat>) -> CUresult {
        let flat = |old: OldFlat| Flat {
            width: wide(old.width),
            height: wide(old.height),
            format: old.format,
            channels: old.channels,
        };
        create(out, shape.get().map(flat).map(from_flat))
    }

    fn cuArray3DCreate_v2(out: Out<Handle>, shape: In<Shape>) -> CUresult {
        create(out, shape.get())
    }

    fn cuArray3DCreate(out: Out<Handle>, shape: In<OldShape>) -> CUresult {
        create(out, shape.get().map(from_old))
    }

    fn cuArrayDestroy(handle: Handle) -> CUresult {
        api::code(ctx::require().and_then(|_| array::destroy(handle)))
    }

    fn cuArrayGetDescriptor_v2(out: Out<Flat>, handle: Handle) -> CUresult {
        let flat = |shape: &Shape| Flat {
            width: shape.width,
            height: shape.height,
            format: shape.format,
            channels: shape.channels,
        };
        tell(out, handle, flat)
    }

    fn cuArrayGetDescriptor(out: Out<OldFlat>, handle: Handle) -> CUresult {
        let flat = |shape: &Shape| OldFlat {
            width: narrow(shape.width),
            height: narrow(shape.height),
            format: shape.format,
            channels: shape.channels,
        };
        tell(out, handle, flat)
    }

    fn cuArray3DGetDescriptor_v2(out: Out<Shape>, handle: Handle) -> CUresult {
        tell(out, handle, |shape| *shape)
    }

    fn cuArray3DGetDescriptor(out: Out<OldShape>, handle: Handle) -> CUresult {
        let old = |shape: &Shape| OldShape {
            width: narrow(shape.width),
            height: narrow(shape.height),
            depth: narrow(shape.depth),
            format: shape.format,
            channels: shape.channels,
            flags: shape.flags,
        };
        tell(out, handle, old)
    }

    fn cuArrayGetPlane(out: Out<Handle>, handle: Handle, plane: u32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(ctx::require().and_then(|_| array::plane(handle, plane)).map(|plane| out.set(plane)))
    }

    fn cuArrayGetMemoryRequirements(out: Out<Requirements>, handle: Handle, device: i32) -> CUresult {
        match array::get(handle) {
            Ok(array) => requirements(out, &array.shape, 1, device),
            Err(code) => code,
        }
    }

    fn cuArrayGetSparseProperties(out: Out<SparseProperties>, handle: Handle) -> CUresult {
        match array::get(handle) {
            Ok(array) => sparse(out, &array.shape, 1),
            Err(code) => code,
        }
    }

    fn cuMipmappedArrayCreate(out: Out<Handle>, shape: In<Shape>, levels: u32) -> CUresult {
        let Some(shape) = shape.get() else { return INVALID_VALUE };
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(array::create_mipmap(shape, levels).map(|handle| out.set(handle)))
    }

    fn cuMipmappedArrayGetLevel(out: Out<Handle>, handle: Handle, level: u32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        api::code(ctx::require().and_then(|_| array::level(handle, level)).map(|level| out.set(level)))
    }

    fn cuMipmappedArrayDestroy(handle: Handle) -> CUresult {
        api::code(ctx::require().and_then(|_| array::destroy_mipmap(handle)))
    }

    fn cuMipmappedArrayGetMemoryRequirements(out: Out<Requirements>, handle: Handle, device: i32) -> CUresult {
        match array::mipmap_shape(handle).and_then(|shape| Ok((shape, array::levels(handle)?))) {
            Ok((shape, levels)) => requirements(out, &shape, levels, device),
            Err(code) => code,
        }
    }

    fn cuMipmappedArrayGetSparseProperties(out: Out<SparseProperties>, handle: Handle) -> CUresult {
        match array::mipmap_shape(handle).and_then(|shape| Ok((shape, array::levels(handle)?))) {
            Ok((shape, levels)) => sparse(out, &shape, levels),
            Err(code) => code,
        }
    }
}
