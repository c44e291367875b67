//! What a copy is: two sides, checked, and rows moved between them.

use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE};
use crate::graphs::Kind;
use crate::{array, capture, codes, ctx, host, hostfn, memory, modules, streams};

/// The byte behind a device address.
pub fn at(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(crate::units::to_usize(address))
}

/// Whether the driver knows all of `bytes` bytes from `address`: device memory, pinned, or a global.
pub fn is_accessible(address: u64, bytes: usize) -> bool {
    let bytes = bytes as u64;
    let Some(end) = address.checked_add(bytes) else {
        return false;
    };
    let inside = |(base, size): (u64, u64)| base <= address && end <= base + size;
    memory::touch(address, bytes).is_ok()
        || host::find(address).is_some_and(inside)
        || modules::is_global(address, bytes)
}

/// One side of a plain copy.
#[derive(Clone, Copy)]
pub enum Side {
    /// Memory of the program, which the driver does not check.
    Host(u64),
    /// Memory that the driver must know.
    Device(u64),
    /// Either: pageable memory is recognised by being unknown.
    Any(u64),
}

impl Side {
    fn address(self) -> u64 {
        match self {
            Side::Host(address) | Side::Device(address) | Side::Any(address) => address,
        }
    }

    fn check(self, bytes: usize) -> Result<(), CUresult> {
        let known = match self {
            Side::Host(address) => address != 0,
            Side::Device(address) => is_accessible(address, bytes),
            Side::Any(address) => address != 0 && (memory::find(address).is_none() || is_accessible(address, bytes)),
        };
        if known { Ok(()) } else { Err(INVALID_VALUE) }
    }
}

fn move_bytes(to: u64, from: u64, bytes: usize) {
    // SAFETY: both sides were checked, or are the program's own memory, for which it answers as with the real driver.
    unsafe { std::ptr::copy(at(from), at(to), bytes) };
}

/// Copies when the caller waits: through the default stream, after everything that is queued.
pub fn sync(work: impl FnOnce()) -> Result<(), CUresult> {
    match streams::enqueue(0)? {
        Some(own) => {
            capture::break_one(&own);
            Err(codes::STREAM_CAPTURE_UNSUPPORTED)
        }
        None => {
            hostfn::drain();
            work();
            Ok(())
        }
    }
}

/// Copies `bytes` bytes; without a stream the caller waits.
pub fn plain(to: Side, from: Side, bytes: usize, stream: Option<streams::Handle>) -> Result<(), CUresult> {
    ctx::require()?;
    if bytes == 0 {
        return stream.map_or(Ok(()), |stream| streams::resolve(stream).map(|_| ()));
    }
    to.check(bytes)?;
    from.check(bytes)?;
    let (to, from) = (to.address(), from.address());
    submit(stream, move || move_bytes(to, from, bytes))
}

/// Does `work` on a stream, or at once.
fn submit(stream: Option<streams::Handle>, work: impl Fn() + Send + Sync + 'static) -> Result<(), CUresult> {
    match stream {
        None => sync(work),
        Some(stream) => match streams::submit(stream, Kind::Memcpy, work) {
            0 => Ok(()),
            code => Err(code),
        },
    }
}

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

/// One side of `CUDA_MEMCPY3D`; peer copies have a context where plain ones have nothing.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Side3d {
    pub x_bytes: usize,
    pub y: usize,
    pub z: usize,
    pub lod: usize,
    pub kind: u32,
    pub host: u64,
    pub device: u64,
    pub array: usize,
    pub context: usize,
    pub pitch: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`, `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Copy3d {
    pub from: Side3d,
    pub to: Side3d,
    pub width_bytes: usize,
    pub height: usize,
    pub depth: usize,
}

/// Where rows begin and how far they are apart, in bytes.
#[derive(Clone, Copy)]
struct Rows {
    start: u64,
    pitch: u64,
    slice: u64,
}

impl Side3d {
    fn rows(&self, copy: &Copy3d) -> Result<Rows, CUresult> {
        let (base, pitch, height, checked) = match self.kind {
            HOST => (self.host, self.pitch, self.height, false),
            DEVICE => (self.device, self.pitch, self.height, true),
            UNIFIED => (self.device, self.pitch, self.height, memory::find(self.device).is_some()),
            ARRAY => {
                let layout = array::layout(self.array).ok_or(INVALID_HANDLE)?;
                if self.x_bytes + copy.width_bytes > layout.pitch || self.y + copy.height > layout.height.max(1) {
                    return Err(INVALID_VALUE);
                }
                (layout.base, layout.pitch, layout.height.max(1), true)
            }
            _ => return Err(INVALID_VALUE),
        };
        let pitch = if pitch == 0 { copy.width_bytes } else { pitch };
        let height = if height == 0 { copy.height } else { height };
        if base == 0 || (copy.height > 1 && pitch < copy.width_bytes) {
            return Err(INVALID_VALUE);
        }
        let [x, y, z, pitch, height] = [self.x_bytes, self.y, self.z, pitch, height].map(|value| value as u64);
        let slice = pitch.checked_mul(height).ok_or(INVALID_VALUE)?;
        let offset = z.checked_mul(slice).and_then(|z| z.checked_add(y.checked_mul(pitch)?)?.checked_add(x));
        let start = offset.and_then(|offset| base.checked_add(offset)).ok_or(INVALID_VALUE)?;
        let rows = Rows { start, pitch, slice };
        if checked && self.kind != ARRAY {
            let last = rows.row(copy.height - 1, copy.depth - 1) - start;
            if !is_accessible(start, crate::units::to_usize(last) + copy.width_bytes) {
                return Err(INVALID_VALUE);
            }
        }
        Ok(rows)
    }
}

impl Rows {
    fn row(&self, y: usize, z: usize) -> u64 {
        self.start.wrapping_add(z as u64 * self.slice).wrapping_add(y as u64 * self.pitch)
    }
}

impl Copy3d {
    /// Copies at once.
    pub fn run(&self) -> Result<(), CUresult> {
        if [self.width_bytes, self.height, self.depth].contains(&0) {
            return Ok(());
        }
        let (to, from) = (self.to.rows(self)?, self.from.rows(self)?);
        for z in 0..self.depth {
            for y in 0..self.height {
                move_bytes(to.row(y, z), from.row(y, z), self.width_bytes);
            }
        }
        Ok(())
    }

    /// Copies on a stream; without one the caller waits.
    pub fn submit(self, stream: Option<streams::Handle>) -> Result<(), CUresult> {
        ctx::require()?;
        if ![self.width_bytes, self.height, self.depth].contains(&0) {
            self.to.rows(&self)?;
            self.from.rows(&self)?;
        }
        submit(stream, move || {
            // Checked above; what became wrong since is the program's error.
            let _ = self.run();
        })
    }
}
