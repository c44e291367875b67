//! Arrays and mipmapped arrays, in both ABIs.

use gpucap_core::array_size::Shape;
use gpucap_core::code::Code;

use super::linear::answer;
use crate::ffi::{Array, Array3dDescriptor, Array3dDescriptorV1, ArrayDescriptor, ArrayDescriptorV1};
use crate::state::{self, DRIVER};
use crate::{lane, real};

/// `cuArrayCreate_v2`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn create(
    real: unsafe extern "C" fn(*mut Array, *const ArrayDescriptor) -> Code,
    out: *mut Array,
    descriptor: *const ArrayDescriptor,
) -> Code {
    // SAFETY: asked only for a call that the driver answers by reading it just the same.
    let shape = || {
        // SAFETY: as said above; read only where the call gets as far as the driver's own look at it.
        unsafe { read(descriptor) }.map(|d| Shape {
            width: d.width as u64,
            height: d.height as u64,
            format: d.format,
            channels: d.channels,
            ..Shape::default()
        })
    };
    // SAFETY: `out` is the program's pointer or one of ours that is valid for one handle.
    let call = |out| unsafe { real(out, descriptor) };
    made("cuArrayCreate_v2", shape, 1, out, call, real::array_destroy)
}

/// `cuArrayCreate` of CUDA 2, with 32-bit sizes.
///
/// # Safety
/// As the driver's function.
pub unsafe fn create_v1(
    real: unsafe extern "C" fn(*mut Array, *const ArrayDescriptorV1) -> Code,
    out: *mut Array,
    descriptor: *const ArrayDescriptorV1,
) -> Code {
    // SAFETY: asked only for a call that the driver answers by reading it just the same.
    let shape = || {
        // SAFETY: as said above; read only where the call gets as far as the driver's own look at it.
        unsafe { read(descriptor) }.map(|d| Shape {
            width: u64::from(d.width),
            height: u64::from(d.height),
            format: d.format,
            channels: d.channels,
            ..Shape::default()
        })
    };
    // SAFETY: `out` is the program's pointer or one of ours that is valid for one handle.
    let call = |out| unsafe { real(out, descriptor) };
    made("cuArrayCreate", shape, 1, out, call, real::array_destroy)
}

/// `cuArray3DCreate_v2`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn create_3d(
    real: unsafe extern "C" fn(*mut Array, *const Array3dDescriptor) -> Code,
    out: *mut Array,
    descriptor: *const Array3dDescriptor,
) -> Code {
    // SAFETY: asked only for a call that the driver answers by reading it just the same.
    let shape = || unsafe { shape_of(descriptor) };
    // SAFETY: `out` is the program's pointer or one of ours that is valid for one handle.
    let call = |out| unsafe { real(out, descriptor) };
    made("cuArray3DCreate_v2", shape, 1, out, call, real::array_destroy)
}

/// `cuArray3DCreate` of CUDA 2, with 32-bit sizes.
///
/// # Safety
/// As the driver's function.
pub unsafe fn create_3d_v1(
    real: unsafe extern "C" fn(*mut Array, *const Array3dDescriptorV1) -> Code,
    out: *mut Array,
    descriptor: *const Array3dDescriptorV1,
) -> Code {
    // SAFETY: asked only for a call that the driver answers by reading it just the same.
    let shape = || {
        // SAFETY: as said above; read only where the call gets as far as the driver's own look at it.
        unsafe { read(descriptor) }.map(|d| Shape {
            width: u64::from(d.width),
            height: u64::from(d.height),
            depth: u64::from(d.depth),
            format: d.format,
            channels: d.channels,
            flags: d.flags,
        })
    };
    // SAFETY: `out` is the program's pointer or one of ours that is valid for one handle.
    let call = |out| unsafe { real(out, descriptor) };
    made("cuArray3DCreate", shape, 1, out, call, real::array_destroy)
}

/// `cuMipmappedArrayCreate`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn create_mipmapped(
    real: unsafe extern "C" fn(*mut Array, *const Array3dDescriptor, u32) -> Code,
    out: *mut Array,
    descriptor: *const Array3dDescriptor,
    levels: u32,
) -> Code {
    // SAFETY: asked only for a call that the driver answers by reading it just the same.
    let shape = || unsafe { shape_of(descriptor) };
    // SAFETY: `out` is the program's pointer or one of ours that is valid for one handle.
    let call = |out| unsafe { real(out, descriptor, levels) };
    made("cuMipmappedArrayCreate", shape, levels, out, call, real::mipmapped_array_destroy)
}

/// `cuArrayDestroy`, `cuMipmappedArrayDestroy`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn destroy(real: unsafe extern "C" fn(Array) -> Code, array: Array) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(array) };
    match state::get() {
        Some(state) => state.governor.array_destroy(array as u64, call),
        None => call(),
    }
}

/// The shape that a descriptor asks for.
///
/// # Safety
/// A pointer that is not null is valid, as the driver requires.
unsafe fn shape_of(descriptor: *const Array3dDescriptor) -> Option<Shape> {
    // SAFETY: this function's contract.
    let d = unsafe { read(descriptor) }?;
    Some(Shape {
        width: d.width as u64,
        height: d.height as u64,
        depth: d.depth as u64,
        format: d.format,
        channels: d.channels,
        flags: d.flags,
    })
}

/// What a pointer of the program leads to; it may be at any address, as the driver takes it.
///
/// # Safety
/// A pointer that is not null is valid, as the driver requires.
unsafe fn read<T>(at: *const T) -> Option<T> {
    // SAFETY: this function's contract; descriptors are plain integers.
    (!at.is_null()).then(|| unsafe { at.read_unaligned() })
}

fn made(
    entry: &str,
    shape: impl FnOnce() -> Option<Shape>,
    levels: u32,
    out: *mut Array,
    call: impl Fn(*mut Array) -> Code,
    destroy: unsafe fn(Array) -> Code,
) -> Code {
    if out.is_null() {
        return call(out);
    }
    let Some(state) = state::get() else {
        return call(out);
    };
    let shape = shape();
    let bytes = shape.and_then(|shape| shape.block(levels));
    // Nothing to charge, or nothing that can be: the driver's to answer.
    let (Some(shape), Some(bytes @ 1..)) = (shape, bytes) else {
        return call(out);
    };
    let given = || {
        let mut array = 0;
        call(&raw mut array).ok().map(|()| array as u64)
    };
    let sound = || shape.is_sound(levels);
    let outcome = state.governor.array_create(&DRIVER, lane::mine(), bytes, sound, given);
    // SAFETY: the program's pointer, which is not null.
    let accept = |array| unsafe { out.write_unaligned(handle(array)) };
    let undo = |array| {
        // SAFETY: the handle has just come from the driver and nobody else knows it.
        real::relaxed(|| unsafe { destroy(handle(array)) });
    };
    answer(state, entry, outcome, accept, given, undo)
}

/// A handle as the driver spells it, from the books' spelling.
fn handle(array: u64) -> Array {
    usize::try_from(array).unwrap_or(0)
}
