//! Arrays and mipmapped arrays: what they are and how much memory they take.
//!
//! How much a real GPU takes is not documented. The rule here is an estimate of its block-linear layout: rows are padded to
//! 64 bytes and, with more than one row, to a multiple of 8 rows; the sum of all levels, layers and slices is rounded up to
//! 64 KiB, and a block for it is taken like any other. Inside the block the simulated layout is plain: row after row.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY};
use crate::heap::{self, Kind};
use crate::units::round_up;
use crate::{ctx, units};

/// A `CUarray` or `CUmipmappedArray`: [`HANDLES`] + 16 × number, never reused.
pub type Handle = usize;

const HANDLES: usize = 0x7000_0000_0000 >> 1;

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Shape {
    /// In elements; heights and depths of 0 mean that there is no such dimension.
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

/// Flags of arrays without memory of their own, and of cube maps and layers.
const SPARSE: u32 = 0x40;
const DEFERRED: u32 = 0x80;
const LAYERED: u32 = 0x01;

/// What an array of one level looks like in memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Bytes from row to row.
    pub pitch: u64,
    /// Rows from slice to slice.
    pub padded_rows: u64,
    /// Slices or layers.
    pub slices: u64,
}

impl Layout {
    pub fn bytes(&self) -> u64 {
        self.pitch * self.padded_rows * self.slices
    }
}

/// One array, or one level or plane of one.
#[derive(Clone, Copy)]
pub struct Array {
    pub shape: Shape,
    pub layout: Layout,
    /// Where its first byte is; none where the program has to map memory first.
    pub address: Option<u64>,
    context: u64,
    /// What it is a part of; parts are not destroyed.
    part_of: Option<Handle>,
}

/// A mipmapped array.
struct Mipmap {
    shape: Shape,
    address: Option<u64>,
    context: u64,
    /// Handles of the levels, made when they are asked for.
    levels: Vec<Option<Handle>>,
}

#[derive(Default)]
struct Arrays {
    arrays: HashMap<Handle, Array>,
    mipmaps: HashMap<Handle, Mipmap>,
    made: usize,
}

static ARRAYS: LazyLock<Mutex<Arrays>> = LazyLock::new(Mutex::default);

/// Width and height of a format's smallest unit in elements, and its bytes; per element or per block of a compressed format.
fn unit(format: u32, channels: u32) -> Option<(u64, u64, u64)> {
    if !matches!(channels, 1..=4) {
        return None;
    }
    let plain = |bytes: u64| (channels != 3).then_some((1, 1, bytes * u64::from(channels)));
    match format {
        0x01 | 0x08 => plain(1),
        0x02 | 0x09 | 0x10 => plain(2),
        0x03 | 0x0a | 0x20 => plain(4),
        0xc0..=0xc2 | 0xc6..=0xc8 => plain(1),
        0xc3..=0xc5 | 0xc9..=0xcb => plain(2),
        // BC1 and BC4 pack 4×4 elements into 8 bytes, the others into 16.
        0x91 | 0x92 | 0x97 | 0x98 => Some((4, 4, 8)),
        0x93..=0x96 | 0x99..=0x9e => Some((4, 4, 16)),
        // NV12: one byte of brightness an element, and half as many rows of colour below.
        0xb0 => Some((1, 1, 1)),
        _ => None,
    }
}

/// How an array of this shape lies in memory.
fn layout_of(shape: &Shape) -> Result<Layout, CUresult> {
    let (across, down, bytes) = unit(shape.format, shape.channels).ok_or(INVALID_VALUE)?;
    if shape.width == 0 {
        return Err(INVALID_VALUE);
    }
    let height = (shape.height as u64).max(1);
    // The colour rows of NV12.
    let height = if shape.format == 0xb0 { height + height.div_ceil(2) } else { height };
    let row = (shape.width as u64).div_ceil(across).checked_mul(bytes).ok_or(OUT_OF_MEMORY)?;
    let pitch = round_up(row, 64).ok_or(OUT_OF_MEMORY)?;
    let rows = height.div_ceil(down);
    let padded_rows = if shape.height <= 1 { rows } else { round_up(rows, 8).ok_or(OUT_OF_MEMORY)? };
    let slices = (shape.depth as u64).max(1);
    let all = pitch.checked_mul(padded_rows).and_then(|slice| slice.checked_mul(slices));
    all.filter(|all| *all < 1 << 60).ok_or(OUT_OF_MEMORY)?;
    Ok(Layout { pitch, padded_rows, slices })
}

/// The shape of level `level`.
fn level_shape(shape: &Shape, level: u32) -> Shape {
    let half = |size: usize| {
        if size == 0 { 0 } else { (size >> level.min(63)).max(1) }
    };
    // Layers and the sides of cubes stay as many.
    let depth = if shape.flags & LAYERED != 0 || shape.flags & 4 != 0 { shape.depth } else { half(shape.depth) };
    Shape { width: half(shape.width), height: half(shape.height), depth, ..*shape }
}

/// Takes memory for `bytes`, unless the program brings it.
fn allocate(shape: &Shape, bytes: u64) -> Result<(Option<u64>, u64), CUresult> {
    let context = ctx::require()?;
    if shape.flags & (SPARSE | DEFERRED) != 0 {
        return Ok((None, context.id()));
    }
    let bytes = round_up(bytes, 64 << 10).ok_or(OUT_OF_MEMORY)?;
    heap::allocate(context, bytes, Kind::Array, false).map(|address| (Some(address), context.id()))
}

impl Arrays {
    fn handle(&mut self) -> Handle {
        self.made += 16;
        HANDLES + self.made
    }
}

/// Makes an array.
pub fn create(shape: Shape) -> Result<Handle, CUresult> {
    ctx::require()?;
    let layout = layout_of(&shape)?;
    let (address, context) = allocate(&shape, layout.bytes())?;
    let mut arrays = ARRAYS.lock();
    let handle = arrays.handle();
    arrays.arrays.insert(handle, Array { shape, layout, address, context, part_of: None });
    Ok(handle)
}

/// Makes a mipmapped array; more levels than the shape can have are cut.
pub fn create_mipmap(shape: Shape, levels: u32) -> Result<Handle, CUresult> {
    ctx::require()?;
    if levels == 0 {
        return Err(INVALID_VALUE);
    }
    let largest = shape.width.max(shape.height).max(shape.depth).max(1);
    let levels = levels.min(largest.ilog2() + 1);
    let sizes = (0..levels).map(|level| layout_of(&level_shape(&shape, level)).map(|layout| layout.bytes()));
    let bytes = sizes.sum::<Result<u64, CUresult>>()?;
    let (address, context) = allocate(&shape, bytes)?;
    let mut arrays = ARRAYS.lock();
    let handle = arrays.handle();
    let levels = vec![None; units::to_usize(u64::from(levels))];
    arrays.mipmaps.insert(handle, Mipmap { shape, address, context, levels });
    Ok(handle)
}

/// The array that a handle names.
pub fn get(handle: Handle) -> Result<Array, CUresult> {
    ARRAYS.lock().arrays.get(&handle).copied().ok_or(INVALID_HANDLE)
}

/// Where an array's bytes are, for copies: row after row, slice after slice.
pub struct Place {
    pub base: u64,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Rows from slice to slice.
    pub height: usize,
}

/// Where the bytes of the array that `handle` names are; `None` without such an array, or without memory.
pub fn layout(handle: Handle) -> Option<Place> {
    let array = get(handle).ok()?;
    let [pitch, height] = [array.layout.pitch, array.layout.padded_rows].map(units::to_usize);
    Some(Place { base: array.address?, pitch, height })
}

/// The shape of a mipmapped array.
pub fn mipmap_shape(handle: Handle) -> Result<Shape, CUresult> {
    ARRAYS.lock().mipmaps.get(&handle).map(|mipmap| mipmap.shape).ok_or(INVALID_HANDLE)
}

/// Bytes that a shape of `levels` levels takes.
pub fn bytes_of(shape: &Shape, levels: u32) -> Result<u64, CUresult> {
    let sizes = (0..levels).map(|level| layout_of(&level_shape(shape, level)).map(|layout| layout.bytes()));
    round_up(sizes.sum::<Result<u64, CUresult>>()?, 64 << 10).ok_or(OUT_OF_MEMORY)
}

/// Levels of a mipmapped array.
pub fn levels(handle: Handle) -> Result<u32, CUresult> {
    let arrays = ARRAYS.lock();
    let mipmap = arrays.mipmaps.get(&handle).ok_or(INVALID_HANDLE)?;
    Ok(u32::try_from(mipmap.levels.len()).unwrap_or(u32::MAX))
}

/// Whether the shape leaves memory to the program: (deferred, sparse).
pub fn without_memory(shape: &Shape) -> (bool, bool) {
    (shape.flags & DEFERRED != 0, shape.flags & SPARSE != 0)
}

/// Destroys an array that is not a part of another.
pub fn destroy(handle: Handle) -> Result<(), CUresult> {
    let mut arrays = ARRAYS.lock();
    match arrays.arrays.get(&handle) {
        Some(array) if array.part_of.is_none() => {}
        _ => return Err(INVALID_HANDLE),
    }
    let address = arrays.arrays.remove(&handle).and_then(|array| array.address);
    arrays.arrays.retain(|_, part| part.part_of != Some(handle));
    drop(arrays);
    give(address);
    Ok(())
}

/// Destroys a mipmapped array and the handles of its levels.
pub fn destroy_mipmap(handle: Handle) -> Result<(), CUresult> {
    let mut arrays = ARRAYS.lock();
    let mipmap = arrays.mipmaps.remove(&handle).ok_or(INVALID_HANDLE)?;
    arrays.arrays.retain(|_, part| part.part_of != Some(handle));
    drop(arrays);
    give(mipmap.address);
    Ok(())
}

fn give(address: Option<u64>) {
    if let Some(address) = address {
        heap::remove(address, |found| found.kind == Kind::Array);
    }
}

/// The array that level `level` of a mipmapped array is; the same handle each time.
pub fn level(handle: Handle, level: u32) -> Result<Handle, CUresult> {
    let mut arrays = ARRAYS.lock();
    let mipmap = arrays.mipmaps.get(&handle).ok_or(INVALID_HANDLE)?;
    let index = units::to_usize(u64::from(level));
    if let Some(known) = *mipmap.levels.get(index).ok_or(INVALID_VALUE)? {
        return Ok(known);
    }
    let (shape, context) = (level_shape(&mipmap.shape, level), mipmap.context);
    let before =
        (0..level).map(|above| layout_of(&level_shape(&mipmap.shape, above)).map_or(0, |layout| layout.bytes()));
    let address = mipmap.address.map(|address| address + before.sum::<u64>());
    let part = Array { shape, layout: layout_of(&shape)?, address, context, part_of: Some(handle) };
    let made = arrays.handle();
    arrays.arrays.insert(made, part);
    if let Some(mipmap) = arrays.mipmaps.get_mut(&handle) {
        mipmap.levels[index] = Some(made);
    }
    Ok(made)
}

/// The array that a plane of an NV12 array is.
pub fn plane(handle: Handle, plane: u32) -> Result<Handle, CUresult> {
    let whole = get(handle)?;
    if whole.shape.format != 0xb0 || plane > 1 {
        return Err(INVALID_VALUE);
    }
    let rows = whole.shape.height.max(1);
    let shape = if plane == 0 {
        Shape { format: 1, channels: 1, ..whole.shape }
    } else {
        Shape { format: 1, channels: 2, width: whole.shape.width.div_ceil(2), height: rows.div_ceil(2), ..whole.shape }
    };
    let offset = if plane == 0 { 0 } else { rows as u64 * whole.layout.pitch };
    let slice = Layout { pitch: whole.layout.pitch, ..layout_of(&shape)? };
    let address = whole.address.map(|address| address + offset);
    let mut arrays = ARRAYS.lock();
    let made = arrays.handle();
    arrays.arrays.insert(made, Array { shape, layout: slice, address, context: whole.context, part_of: Some(handle) });
    Ok(made)
}

/// The arrays of a context go with it; their memory is the heap's to free.
pub fn context_gone(id: u64) {
    let mut arrays = ARRAYS.lock();
    arrays.arrays.retain(|_, array| array.context != id);
    arrays.mipmaps.retain(|_, mipmap| mipmap.context != id);
}
