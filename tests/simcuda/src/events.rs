//! Events: a time, or a place in a capture.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::api::{Out, cuda_api};
use crate::capture::{self, Capture};
use crate::codes::{CUresult, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, NOT_SUPPORTED};
use crate::streams::{self, Target};
use crate::{ctx, hostfn};

/// A `CUevent`: an address.
type Handle = usize;

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
/// `CUDA_ERROR_CAPTURED_EVENT`.
const CAPTURED_EVENT: CUresult = 907;

/// `CUipcEventHandle`.
#[derive(Clone, Copy)]
#[repr(C)]
struct IpcHandle {
    reserved: [u64; 8],
}

struct Event {
    context: u64,
    flags: u32,
    state: Mutex<State>,
}

#[derive(Clone)]
enum State {
    Never,
    At(Instant),
    /// Recorded in a capture.
    Captured(Arc<Capture>),
}

static EVENTS: LazyLock<Mutex<HashMap<Handle, Arc<Event>>>> = LazyLock::new(Mutex::default);

fn event(handle: Handle) -> Result<Arc<Event>, CUresult> {
    EVENTS.lock().get(&handle).cloned().ok_or(INVALID_HANDLE)
}

/// The events of a context go with it.
pub fn context_gone(context: u64) {
    EVENTS.lock().retain(|_, event| event.context != context);
}

fn record(handle: Handle, stream: streams::Handle) -> Result<(), CUresult> {
    let event = event(handle)?;
    let capture = streams::enqueue(stream)?;
    if streams::resolve(stream)?.context().id() != event.context {
        return Err(INVALID_HANDLE);
    }
    *event.state.lock() = match capture {
        Some(capture) => State::Captured(capture),
        None => State::At(Instant::now()),
    };
    Ok(())
}

/// A stream that waits for an event of a capture joins it.
fn wait(stream: streams::Handle, handle: Handle) -> Result<(), CUresult> {
    let event = event(handle)?;
    streams::enqueue(stream)?;
    let state = event.state.lock().clone();
    if let (State::Captured(capture), Target::Stream(stream)) = (state, streams::resolve(stream)?) {
        stream.capture.lock().get_or_insert(capture);
    }
    Ok(())
}

/// Waiting for, or asking after, an event of a capture breaks the capture.
fn settle(handle: Handle) -> Result<(), CUresult> {
    match &*event(handle)?.state.lock() {
        State::Captured(capture) => {
            capture::break_one(capture);
            Err(CAPTURED_EVENT)
        }
        State::Never | State::At(_) => Ok(()),
    }
}

fn elapsed(start: Handle, end: Handle) -> Result<f32, CUresult> {
    let (start, end) = (event(start)?, event(end)?);
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(INVALID_HANDLE);
    }
    let states = (start.state.lock().clone(), end.state.lock().clone());
    let (State::At(start), State::At(end)) = states else {
        return Err(INVALID_HANDLE);
    };
    Ok(end.saturating_duration_since(start).as_secs_f32() * 1000.0)
}

cuda_api! {
    fn cuEventCreate(out: Out<Handle>, flags: u32) -> CUresult {
        let lacks_timing_off = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
        if out.is_null() || flags > 7 || lacks_timing_off {
            return INVALID_VALUE;
        }
        match ctx::require() {
            Ok(context) => {
                let event = Arc::new(Event { context: context.id(), flags, state: Mutex::new(State::Never) });
                let handle = Arc::as_ptr(&event).addr();
                EVENTS.lock().insert(handle, event);
                out.answer(handle)
            }
            Err(code) => code,
        }
    }

    fn cuEventDestroy, cuEventDestroy_v2(handle: Handle) -> CUresult {
        if EVENTS.lock().remove(&handle).is_some() { 0 } else { INVALID_HANDLE }
    }

    fn cuEventRecord, cuEventRecord_ptsz(handle: Handle, stream: streams::Handle) -> CUresult {
        crate::api::code(record(handle, stream))
    }

    fn cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz(handle: Handle, stream: streams::Handle, flags: u32) -> CUresult {
        if flags > 1 { INVALID_VALUE } else { crate::api::code(record(handle, stream)) }
    }

    fn cuEventQuery(handle: Handle) -> CUresult {
        match settle(handle) {
            Ok(()) if hostfn::busy() => NOT_READY,
            result => crate::api::code(result),
        }
    }

    fn cuEventSynchronize(handle: Handle) -> CUresult {
        crate::api::code(settle(handle).map(|()| {
            hostfn::drain();
            crate::pool::synchronized();
        }))
    }

    fn cuEventElapsedTime, cuEventElapsedTime_v2(millis: Out<f32>, start: Handle, end: Handle) -> CUresult {
        if millis.is_null() {
            return INVALID_VALUE;
        }
        elapsed(start, end).map_or_else(|code| code, |time| millis.answer(time))
    }

    fn cuStreamWaitEvent, cuStreamWaitEvent_ptsz(stream: streams::Handle, handle: Handle, flags: u32) -> CUresult {
        if flags > 1 { INVALID_VALUE } else { crate::api::code(wait(stream, handle)) }
    }

    fn cuCtxRecordEvent, cuCtxWaitEvent(context: usize, handle: Handle) -> CUresult {
        match event(handle) {
            Ok(_) if context == 0 && ctx::current().is_none() => INVALID_CONTEXT,
            Ok(event) => {
                *event.state.lock() = State::At(Instant::now());
                0
            }
            Err(code) => code,
        }
    }

    /// The handle names the event in this process; work is done at once, so an event of another process has happened.
    fn cuIpcGetEventHandle(out: Out<IpcHandle>, handle: Handle) -> CUresult {
        match event(handle) {
            Ok(event) if event.flags & INTERPROCESS == 0 => NOT_SUPPORTED,
            Ok(_) => out.answer(IpcHandle { reserved: [handle as u64, 0, 0, 0, 0, 0, 0, 0] }),
            Err(code) => code,
        }
    }

    fn cuIpcOpenEventHandle(out: Out<Handle>, _handle: IpcHandle) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match ctx::require() {
            Ok(context) => {
                let flags = DISABLE_TIMING | INTERPROCESS;
                let event = Arc::new(Event { context: context.id(), flags, state: Mutex::new(State::Never) });
                let handle = Arc::as_ptr(&event).addr();
                EVENTS.lock().insert(handle, event);
                out.answer(handle)
            }
            Err(code) => code,
        }
    }
}
