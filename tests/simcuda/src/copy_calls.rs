//! Driver functions that copy a run of bytes.

use crate::api::{In, Out, code, cuda_api};
use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE};
use crate::copies::{Side, plain};
use crate::streams::Handle;
use crate::{array, ctx};

/// A place in an array: rows lie behind each other, whatever their padding.
fn in_array(handle: usize, offset: usize, bytes: usize) -> Result<Side, CUresult> {
    ctx::require()?;
    let layout = array::layout(handle).ok_or(INVALID_HANDLE)?;
    if offset.checked_add(bytes).is_none_or(|end| end > layout.pitch * layout.height.max(1)) {
        return Err(INVALID_VALUE);
    }
    Ok(Side::Host(layout.base + offset as u64))
}

/// Copies a list; the first entry that fails ends it.
fn batch(to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, failed: Out<usize>, stream: Handle) -> CUresult {
    // The legacy stream has no batches.
    if to.is_null() || from.is_null() || sizes.is_null() || count == 0 || stream < 2 {
        failed.set(usize::MAX);
        return INVALID_VALUE;
    }
    let entries = to.many(count).into_iter().zip(from.many(count)).zip(sizes.many(count));
    for (i, ((to, from), bytes)) in entries.enumerate() {
        if let Err(code) = plain(Side::Any(to), Side::Any(from), bytes, Some(stream)) {
            failed.set(i);
            return code;
        }
    }
    0
}

cuda_api! {
    fn cuMemcpyHtoD(to: u32, from: u64, bytes: u32) -> CUresult {
        code(plain(Side::Device(to.into()), Side::Host(from), bytes as usize, None))
    }

    fn cuMemcpyHtoDAsync(to: u32, from: u64, bytes: u32, stream: Handle) -> CUresult {
        code(plain(Side::Device(to.into()), Side::Host(from), bytes as usize, Some(stream)))
    }

    fn cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds(to: u64, from: u64, bytes: usize) -> CUresult {
        code(plain(Side::Device(to), Side::Host(from), bytes, None))
    }

    fn cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) -> CUresult {
        code(plain(Side::Device(to), Side::Host(from), bytes, Some(stream)))
    }

    fn cuMemcpyDtoH(to: u64, from: u32, bytes: u32) -> CUresult {
        code(plain(Side::Host(to), Side::Device(from.into()), bytes as usize, None))
    }

    fn cuMemcpyDtoHAsync(to: u64, from: u32, bytes: u32, stream: Handle) -> CUresult {
        code(plain(Side::Host(to), Side::Device(from.into()), bytes as usize, Some(stream)))
    }

    fn cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds(to: u64, from: u64, bytes: usize) -> CUresult {
        code(plain(Side::Host(to), Side::Device(from), bytes, None))
    }

    fn cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) -> CUresult {
        code(plain(Side::Host(to), Side::Device(from), bytes, Some(stream)))
    }

    fn cuMemcpyDtoD(to: u32, from: u32, bytes: u32) -> CUresult {
        code(plain(Side::Device(to.into()), Side::Device(from.into()), bytes as usize, None))
    }

    fn cuMemcpyDtoDAsync(to: u32, from: u32, bytes: u32, stream: Handle) -> CUresult {
        code(plain(Side::Device(to.into()), Side::Device(from.into()), bytes as usize, Some(stream)))
    }

    fn cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize) -> CUresult {
        code(plain(Side::Device(to), Side::Device(from), bytes, None))
    }

    fn cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) -> CUresult {
        code(plain(Side::Device(to), Side::Device(from), bytes, Some(stream)))
    }

    fn cuMemcpy, cuMemcpy_ptds(to: u64, from: u64, bytes: usize) -> CUresult {
        code(plain(Side::Any(to), Side::Any(from), bytes, None))
    }

    fn cuMemcpyAsync, cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) -> CUresult {
        code(plain(Side::Any(to), Side::Any(from), bytes, Some(stream)))
    }

    fn cuMemcpyPeer, cuMemcpyPeer_ptds(to: u64, _to_context: usize, from: u64, _from_context: usize, bytes: usize) -> CUresult {
        code(plain(Side::Device(to), Side::Device(from), bytes, None))
    }

    fn cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz(to: u64, _to_context: usize, from: u64, _from_context: usize, bytes: usize, stream: Handle) -> CUresult {
        code(plain(Side::Device(to), Side::Device(from), bytes, Some(stream)))
    }

    fn cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz(to: u64, from: u64, bytes: usize, _attributes: In<u64>, stream: Handle) -> CUresult {
        code(plain(Side::Any(to), Side::Any(from), bytes, Some(stream)))
    }

    fn cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz(to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, _attributes: In<u64>, _indices: In<usize>, _attribute_count: usize, failed: Out<usize>, stream: Handle) -> CUresult {
        batch(to, from, sizes, count, failed, stream)
    }

    fn cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz(to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, _attributes: In<u64>, _indices: In<usize>, _attribute_count: usize, stream: Handle) -> CUresult {
        batch(to, from, sizes, count, Out::null(), stream)
    }

    fn cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds(to: u64, array: usize, offset: usize, bytes: usize) -> CUresult {
        code(in_array(array, offset, bytes).and_then(|from| plain(Side::Device(to), from, bytes, None)))
    }

    fn cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds(array: usize, offset: usize, from: u64, bytes: usize) -> CUresult {
        code(in_array(array, offset, bytes).and_then(|to| plain(to, Side::Device(from), bytes, None)))
    }

    fn cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds(to: u64, array: usize, offset: usize, bytes: usize) -> CUresult {
        code(in_array(array, offset, bytes).and_then(|from| plain(Side::Host(to), from, bytes, None)))
    }

    fn cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds(array: usize, offset: usize, from: u64, bytes: usize) -> CUresult {
        code(in_array(array, offset, bytes).and_then(|to| plain(to, Side::Host(from), bytes, None)))
    }

    fn cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz(to: u64, array: usize, offset: usize, bytes: usize, stream: Handle) -> CUresult {
        code(in_array(array, offset, bytes).and_then(|from| plain(Side::Host(to), from, bytes, Some(stream))))
    }

    fn cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz(array: usize, offset: usize, from: u64, bytes: usize, stream: Handle) -> CUresult {
        code(in_array(array, offset, bytes).and_then(|to| plain(to, Side::Host(from), bytes, Some(stream))))
    }

    fn cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds(to: usize, to_offset: usize, from: usize, from_offset: usize, bytes: usize) -> CUresult {
        code(in_array(to, to_offset, bytes).and_then(|to| plain(to, in_array(from, from_offset, bytes)?, bytes, None)))
    }
}
