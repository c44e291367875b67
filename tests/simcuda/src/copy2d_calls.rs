//! Driver functions that copy rectangles and boxes.

use crate::api::{In, Out, code, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE, NOT_SUPPORTED};
use crate::copies::{Copy3d, Side3d};
use crate::streams::Handle;

/// One side of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Side2d {
    x_bytes: usize,
    y: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: usize,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy2d {
    from: Side2d,
    to: Side2d,
    width_bytes: usize,
    height: usize,
}

impl From<Side2d> for Side3d {
    fn from(side: Side2d) -> Side3d {
        let Side2d { x_bytes, y, kind, host, device, array, pitch } = side;
        Side3d { x_bytes, y, z: 0, lod: 0, kind, host, device, array, context: 0, pitch, height: 0 }
    }
}

fn flat(copy: In<Copy2d>, stream: Option<Handle>) -> CUresult {
    let Some(copy) = copy.get() else {
        return INVALID_VALUE;
    };
    let Copy2d { from, to, width_bytes, height } = copy;
    code(Copy3d { from: from.into(), to: to.into(), width_bytes, height, depth: 1 }.submit(stream))
}

fn solid(copy: In<Copy3d>, stream: Option<Handle>) -> CUresult {
    copy.get().map_or(INVALID_VALUE, |copy| code(copy.submit(stream)))
}

cuda_api! {
    fn cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds(copy: In<Copy2d>) -> CUresult {
        flat(copy, None)
    }

    fn cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz(copy: In<Copy2d>, stream: Handle) -> CUresult {
        flat(copy, Some(stream))
    }

    fn cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, cuMemcpy3DPeer, cuMemcpy3DPeer_ptds(copy: In<Copy3d>) -> CUresult {
        solid(copy, None)
    }

    fn cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz(copy: In<Copy3d>, stream: Handle) -> CUresult {
        solid(copy, Some(stream))
    }

    fn cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz(_count: usize, _list: In<u8>, failed: Out<usize>, _flags: u64, _stream: Handle) -> CUresult {
        failed.set(usize::MAX);
        NOT_SUPPORTED
    }
}
