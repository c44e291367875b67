//! Filling memory with a value: `cuMemset…`.

use crate::api::{code, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE};
use crate::graphs::Kind;
use crate::streams::{self, Handle};
use crate::{copies, ctx, units};

/// What is filled, with what: `height` rows of `width` elements.
#[derive(Clone, Copy)]
struct Fill {
    address: u64,
    pitch: usize,
    value: u32,
    /// Bytes of an element: 1, 2 or 4.
    element: usize,
    width: usize,
    height: usize,
}

impl Fill {
    fn line(address: u64, value: u32, element: usize, width: usize) -> Fill {
        Fill { address, pitch: 0, value, element, width, height: 1 }
    }

    fn check(&self) -> Result<(), CUresult> {
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        let row = self.width.checked_mul(self.element).ok_or(INVALID_VALUE)?;
        let aligned = self.address.is_multiple_of(self.element as u64) && self.pitch.is_multiple_of(self.element);
        if !aligned || (self.height > 1 && self.pitch < row) {
            return Err(INVALID_VALUE);
        }
        let bytes =
            self.pitch.checked_mul(self.height - 1).and_then(|rows| rows.checked_add(row)).ok_or(INVALID_VALUE)?;
        if copies::is_accessible(self.address, bytes) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    fn run(&self) {
        let bytes = self.value.to_le_bytes();
        for y in 0..self.height {
            let row = copies::at(self.address + y as u64 * self.pitch as u64);
            // SAFETY: `check` saw that all rows lie in memory that the driver knows, aligned for the element.
            unsafe {
                match self.element {
                    1 => row.write_bytes(bytes[0], self.width),
                    2 => std::slice::from_raw_parts_mut(row.cast(), self.width).fill([bytes[0], bytes[1]]),
                    _ => std::slice::from_raw_parts_mut(row.cast(), self.width).fill(bytes),
                }
            }
        }
    }

    /// Fills on a stream; without one the caller waits.
    fn submit(self, stream: Option<Handle>) -> Result<(), CUresult> {
        ctx::require()?;
        self.check()?;
        match stream {
            None => copies::sync(|| self.run()),
            Some(stream) => match streams::submit(stream, Kind::Memset, move || self.run()) {
                0 => Ok(()),
                code => Err(code),
            },
        }
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NodeParams {
    address: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

impl NodeParams {
    /// Fills at once.
    pub fn run(&self) -> Result<(), CUresult> {
        let NodeParams { address, pitch, value, element, width, height } = *self;
        let fill = Fill { address, pitch, value, element: units::to_usize(element.into()), width, height };
        fill.check()?;
        fill.run();
        Ok(())
    }
}

cuda_api! {
    fn cuMemsetD8(address: u32, value: u8, count: u32) -> CUresult {
        code(Fill::line(address.into(), value.into(), 1, count as usize).submit(None))
    }

    fn cuMemsetD8_v2, cuMemsetD8_v2_ptds(address: u64, value: u8, count: usize) -> CUresult {
        code(Fill::line(address, value.into(), 1, count).submit(None))
    }

    fn cuMemsetD8Async, cuMemsetD8Async_ptsz(address: u64, value: u8, count: usize, stream: Handle) -> CUresult {
        code(Fill::line(address, value.into(), 1, count).submit(Some(stream)))
    }

    fn cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds(address: u64, pitch: usize, value: u8, width: usize, height: usize) -> CUresult {
        code(Fill { address, pitch, value: value.into(), element: 1, width, height }.submit(None))
    }

    fn cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz(address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) -> CUresult {
        code(Fill { address, pitch, value: value.into(), element: 1, width, height }.submit(Some(stream)))
    }

    fn cuMemsetD16(address: u32, value: u16, count: u32) -> CUresult {
        code(Fill::line(address.into(), value.into(), 2, count as usize).submit(None))
    }

    fn cuMemsetD16_v2, cuMemsetD16_v2_ptds(address: u64, value: u16, count: usize) -> CUresult {
        code(Fill::line(address, value.into(), 2, count).submit(None))
    }

    fn cuMemsetD16Async, cuMemsetD16Async_ptsz(address: u64, value: u16, count: usize, stream: Handle) -> CUresult {
        code(Fill::line(address, value.into(), 2, count).submit(Some(stream)))
    }

    fn cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds(address: u64, pitch: usize, value: u16, width: usize, height: usize) -> CUresult {
        code(Fill { address, pitch, value: value.into(), element: 2, width, height }.submit(None))
    }

    fn cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz(address: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) -> CUresult {
        code(Fill { address, pitch, value: value.into(), element: 2, width, height }.submit(Some(stream)))
    }

    fn cuMemsetD32(address: u32, value: u32, count: u32) -> CUresult {
        code(Fill::line(address.into(), value, 4, count as usize).submit(None))
    }

    fn cuMemsetD32_v2, cuMemsetD32_v2_ptds(address: u64, value: u32, count: usize) -> CUresult {
        code(Fill::line(address, value, 4, count).submit(None))
    }

    fn cuMemsetD32Async, cuMemsetD32Async_ptsz(address: u64, value: u32, count: usize, stream: Handle) -> CUresult {
        code(Fill::line(address, value, 4, count).submit(Some(stream)))
    }

    fn cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds(address: u64, pitch: usize, value: u32, width: usize, height: usize) -> CUresult {
        code(Fill { address, pitch, value, element: 4, width, height }.submit(None))
    }

    fn cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz(address: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) -> CUresult {
        code(Fill { address, pitch, value, element: 4, width, height }.submit(Some(stream)))
    }
}
