//! Work on streams that is neither a copy nor a launch: host functions, and waiting for or writing words of memory.

use std::ffi::c_void;

use crate::api::{In, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE};
use crate::copies;
use crate::graph_build::{HostParams, host_work};
use crate::graphs::Kind;
use crate::streams::{self, Handle};

/// `CUstreamCallback`, called with (stream, status, data).
type Callback = Option<unsafe extern "C" fn(Handle, CUresult, *mut c_void)>;

fn host_function(handle: Handle, function: usize, data: usize) -> CUresult {
    match host_work(HostParams { function, data }) {
        Some(work) => streams::submit(handle, Kind::Host, work),
        None => INVALID_VALUE,
    }
}

/// Writes a word of 4 or 8 bytes.
fn write(handle: Handle, address: u64, value: u64, bytes: usize) -> CUresult {
    if !copies::is_accessible(address, bytes) {
        return INVALID_VALUE;
    }
    streams::submit(handle, Kind::BatchMemOp, move || {
        // SAFETY: checked above; memory that is freed while work is queued is the program's error.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), copies::at(address), bytes) };
    })
}

/// Waits are taken as fulfilled: nothing runs beside the caller that could fulfil them.
fn wait(handle: Handle, address: u64, bytes: usize) -> CUresult {
    if !copies::is_accessible(address, bytes) {
        return INVALID_VALUE;
    }
    streams::submit(handle, Kind::BatchMemOp, || ())
}

/// `CUstreamBatchMemOpParams`: operation, address, value, and more that changes nothing here.
type MemOp = [u64; 6];

fn batch(handle: Handle, count: u32, ops: In<MemOp>) -> CUresult {
    if count == 0 || count > 256 || ops.is_null() {
        return INVALID_VALUE;
    }
    for [what, address, value, ..] in ops.many(count as usize) {
        let code = match what & 0xffff_ffff {
            1 => wait(handle, address, 4),
            2 => write(handle, address, value, 4),
            4 => wait(handle, address, 8),
            5 => write(handle, address, value, 8),
            // A flush, a barrier.
            3 | 6 => 0,
            _ => INVALID_VALUE,
        };
        if code != 0 {
            return code;
        }
    }
    0
}

cuda_api! {
    fn cuLaunchHostFunc, cuLaunchHostFunc_ptsz(handle: Handle, function: usize, data: usize) -> CUresult {
        host_function(handle, function, data)
    }

    fn cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz(handle: Handle, function: usize, data: usize, _mode: u32) -> CUresult {
        host_function(handle, function, data)
    }

    /// As a host function, which cannot be captured.
    fn cuStreamAddCallback, cuStreamAddCallback_ptsz(handle: Handle, callback: Callback, data: *mut c_void, flags: u32) -> CUresult {
        let Some(callback) = callback else { return INVALID_VALUE };
        if flags != 0 {
            return INVALID_VALUE;
        }
        match streams::enqueue(handle) {
            Ok(None) => {
                let data = data.expose_provenance();
                crate::hostfn::call(Box::new(move || {
                    // SAFETY: the program gave a `CUstreamCallback` and its argument.
                    unsafe { callback(handle, 0, std::ptr::with_exposed_provenance_mut(data)) };
                }))
            }
            Ok(Some(capture)) => {
                crate::capture::break_one(&capture);
                crate::codes::STREAM_CAPTURE_UNSUPPORTED
            }
            Err(code) => code,
        }
    }

    fn cuStreamWriteValue32, cuStreamWriteValue32_ptsz, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz(handle: Handle, address: u64, value: u32, _flags: u32) -> CUresult {
        write(handle, address, u64::from(value), 4)
    }

    fn cuStreamWriteValue64, cuStreamWriteValue64_ptsz, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz(handle: Handle, address: u64, value: u64, _flags: u32) -> CUresult {
        write(handle, address, value, 8)
    }

    fn cuStreamWaitValue32, cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz(handle: Handle, address: u64, _value: u32, _flags: u32) -> CUresult {
        wait(handle, address, 4)
    }

    fn cuStreamWaitValue64, cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz(handle: Handle, address: u64, _value: u64, _flags: u32) -> CUresult {
        wait(handle, address, 8)
    }

    fn cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz(handle: Handle, count: u32, ops: In<MemOp>, _flags: u32) -> CUresult {
        batch(handle, count, ops)
    }
}
