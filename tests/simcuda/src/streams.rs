//! Streams: creating, naming, waiting. Work in the simulated driver is done when it is asked for, so a stream carries no
//! queue but that of host functions ([`crate::hostfn`]); what it does carry is its context and its capture.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::api::{self, In, Out, cuda_api};
use crate::capture::{self, Capture};
use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNSUPPORTED};
use crate::ctx::{self, Context};
use crate::{devices, hostfn};

/// A `CUstream`: an address, or one of the two below, or 0 for the default stream of the function called.
pub type Handle = usize;

/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
pub const LEGACY: Handle = 1;
pub const PER_THREAD: Handle = 2;

const NON_BLOCKING: u32 = 1;

/// One stream.
pub struct Stream {
    pub id: u64,
    pub context: &'static Context,
    pub flags: u32,
    pub priority: i32,
    pub capture: Mutex<Option<Arc<Capture>>>,
}

impl Stream {
    fn new(context: &'static Context, flags: u32, priority: i32) -> Arc<Stream> {
        static NEXT: AtomicU64 = AtomicU64::new(8);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Stream { id, context, flags, priority, capture: Mutex::new(None) })
    }

    pub fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }
}

/// What a handle means.
pub enum Target {
    Legacy(&'static Context),
    Stream(Arc<Stream>),
}

impl Target {
    pub fn context(&self) -> &'static Context {
        match self {
            Target::Legacy(context) => context,
            Target::Stream(stream) => stream.context,
        }
    }
}

static STREAMS: LazyLock<Mutex<HashMap<Handle, Arc<Stream>>>> = LazyLock::new(Mutex::default);
/// The per-thread default streams, by context and thread.
type Defaults = HashMap<(u64, i32), Arc<Stream>>;
static DEFAULTS: LazyLock<Mutex<Defaults>> = LazyLock::new(Mutex::default);

/// What `handle` means to the function being called.
pub fn resolve(handle: Handle) -> Result<Target, CUresult> {
    match handle {
        0 if !api::per_thread() => ctx::require().map(Target::Legacy),
        LEGACY => ctx::require().map(Target::Legacy),
        0 | PER_THREAD => {
            let context = ctx::require()?;
            let mut defaults = DEFAULTS.lock();
            let stream = defaults.entry((context.id(), devices::thread_id()));
            Ok(Target::Stream(stream.or_insert_with(|| Stream::new(context, 0, 0)).clone()))
        }
        _ => STREAMS.lock().get(&handle).cloned().map(Target::Stream).ok_or(INVALID_HANDLE),
    }
}

/// The capture that work on `handle` goes into, if any. Using the legacy stream breaks captures of blocking streams; a
/// broken capture refuses work.
pub fn enqueue(handle: Handle) -> Result<Option<Arc<Capture>>, CUresult> {
    match resolve(handle)? {
        Target::Legacy(context) => capture::legacy_stream_used(context.id()).map(|()| None),
        Target::Stream(stream) => match &*stream.capture.lock() {
            Some(capture) if !capture.is_valid() => Err(STREAM_CAPTURE_INVALIDATED),
            capture => Ok(capture.clone()),
        },
    }
}

/// Does `work` now, or at each launch of the graph that `handle` is captured into.
pub fn submit(handle: Handle, what: crate::graphs::Kind, work: impl Fn() + Send + Sync + 'static) -> CUresult {
    match enqueue(handle) {
        // Behind a host function that has not run yet, whatever its stream: order is kept, overlap is not needed.
        Ok(None) if hostfn::busy() => hostfn::push(Box::new(work)),
        Ok(None) => {
            work();
            0
        }
        Ok(Some(capture)) => {
            capture.graph.add(what, Some(Box::new(work)));
            0
        }
        Err(code) => code,
    }
}

/// Streams that had joined a capture are free again after its end.
pub fn leave_capture(id: u64) {
    let leave = |stream: &Arc<Stream>| {
        let mut capture = stream.capture.lock();
        if capture.as_ref().is_some_and(|capture| capture.id == id) {
            *capture = None;
        }
    };
    STREAMS.lock().values().for_each(leave);
    DEFAULTS.lock().values().for_each(leave);
}

/// The streams of a context go with it.
pub fn context_gone(context: u64) {
    STREAMS.lock().retain(|_, stream| stream.context.id() != context);
    DEFAULTS.lock().retain(|key, _| key.0 != context);
}

/// A new stream of `context`.
pub fn create_in(context: &'static Context, flags: u32, priority: i32) -> Handle {
    let stream = Stream::new(context, flags, priority.clamp(-5, 0));
    let handle = Arc::as_ptr(&stream).addr();
    STREAMS.lock().insert(handle, stream);
    handle
}

fn create(out: Out<Handle>, flags: u32, priority: i32) -> CUresult {
    if out.is_null() || flags & !NON_BLOCKING != 0 {
        return INVALID_VALUE;
    }
    match ctx::require() {
        Ok(context) => out.answer(create_in(context, flags, priority)),
        Err(code) => code,
    }
}

/// Waiting for, or asking after, a stream that is being captured breaks the capture.
fn settle(handle: Handle) -> CUresult {
    match resolve(handle) {
        Ok(Target::Legacy(context)) => api::code(capture::legacy_stream_used(context.id())),
        Ok(Target::Stream(stream)) => match &*stream.capture.lock() {
            Some(capture) => {
                capture::break_one(capture);
                STREAM_CAPTURE_UNSUPPORTED
            }
            None => 0,
        },
        Err(code) => code,
    }
}

/// Answers one fact about a stream.
fn tell<T>(handle: Handle, out: Out<T>, fact: impl FnOnce(&Target) -> T) -> CUresult {
    if out.is_null() {
        return INVALID_VALUE;
    }
    match resolve(handle) {
        Ok(target) => out.answer(fact(&target)),
        Err(code) => code,
    }
}

cuda_api! {
    fn cuStreamCreate(out: Out<Handle>, flags: u32) -> CUresult {
        create(out, flags, 0)
    }

    fn cuStreamCreateWithPriority(out: Out<Handle>, flags: u32, priority: i32) -> CUresult {
        create(out, flags, priority)
    }

    fn cuStreamDestroy, cuStreamDestroy_v2(handle: Handle) -> CUresult {
        match STREAMS.lock().remove(&handle) {
            Some(stream) => {
                if let Some(capture) = stream.capture.lock().take() {
                    capture.invalidate();
                    capture.end();
                }
                0
            }
            None => INVALID_HANDLE,
        }
    }

    fn cuStreamSynchronize, cuStreamSynchronize_ptsz(handle: Handle) -> CUresult {
        match settle(handle) {
            0 => {
                hostfn::drain();
                crate::pool::synchronized();
                0
            }
            code => code,
        }
    }

    fn cuStreamQuery, cuStreamQuery_ptsz(handle: Handle) -> CUresult {
        match settle(handle) {
            0 if hostfn::busy() => crate::codes::NOT_READY,
            code => code,
        }
    }

    fn cuStreamGetFlags, cuStreamGetFlags_ptsz(handle: Handle, out: Out<u32>) -> CUresult {
        tell(handle, out, |target| match target {
            Target::Legacy(_) => 0,
            Target::Stream(stream) => stream.flags,
        })
    }

    fn cuStreamGetPriority, cuStreamGetPriority_ptsz(handle: Handle, out: Out<i32>) -> CUresult {
        tell(handle, out, |target| match target {
            Target::Legacy(_) => 0,
            Target::Stream(stream) => stream.priority,
        })
    }

    fn cuStreamGetId, cuStreamGetId_ptsz(handle: Handle, out: Out<u64>) -> CUresult {
        tell(handle, out, |target| match target {
            Target::Legacy(_) => 1,
            Target::Stream(stream) => stream.id,
        })
    }

    fn cuStreamGetCtx, cuStreamGetCtx_ptsz(handle: Handle, out: Out<usize>) -> CUresult {
        tell(handle, out, |target| target.context().handle())
    }

    fn cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz(handle: Handle, out: Out<usize>, green: Out<usize>) -> CUresult {
        green.set(0);
        tell(handle, out, |target| target.context().handle())
    }

    fn cuStreamGetDevice, cuStreamGetDevice_ptsz(handle: Handle, out: Out<i32>) -> CUresult {
        tell(handle, out, |target| target.context().ordinal())
    }

    /// No stream belongs to a green context.
    fn cuStreamGetGreenCtx(handle: Handle, out: Out<usize>) -> CUresult {
        tell(handle, out, |_| 0)
    }

    /// Attributes are accepted and forgotten.
    fn cuStreamSetAttribute, cuStreamSetAttribute_ptsz(handle: Handle, _attribute: u32, value: In<u64>) -> CUresult {
        if value.is_null() { INVALID_VALUE } else { resolve(handle).err().unwrap_or(0) }
    }

    fn cuStreamGetAttribute, cuStreamGetAttribute_ptsz(handle: Handle, _attribute: u32, out: Out<[u64; 8]>) -> CUresult {
        tell(handle, out, |_| [0; 8])
    }

    fn cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz(to: Handle, from: Handle) -> CUresult {
        resolve(to).and(resolve(from)).err().unwrap_or(0)
    }

    fn cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz(handle: Handle, _ptr: u64, _length: usize, _flags: u32) -> CUresult {
        resolve(handle).err().unwrap_or(0)
    }
}
