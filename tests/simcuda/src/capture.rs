//! Stream captures under way, and what they forbid other calls.
//!
//! The rules are those of `cuThreadExchangeStreamCaptureMode` in the driver's manual, read strictly: a potentially unsafe
//! call is refused and ends the capture that forbids it, from whichever thread it comes; a wait for the whole context ends
//! every capture in it. Each such call is noted in the books as `capture violation`, so that a test of an interposer can
//! ask for zero.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::codes::{CUresult, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_UNSUPPORTED};
use crate::graphs::Graph;
use crate::{ctx, devices, instrument};

/// `CUstreamCaptureMode`; 1 is thread-local.
pub const GLOBAL: u32 = 0;
pub const RELAXED: u32 = 2;

/// One capture: what a stream and those that joined it put into a graph.
pub struct Capture {
    pub id: u64,
    pub mode: u32,
    /// Thread that began it.
    pub thread: i32,
    /// Context of the stream.
    pub context: u64,
    /// Handle of the stream that began it.
    pub origin: usize,
    /// Whether that stream waits for the legacy stream.
    pub blocking: bool,
    pub graph: Arc<Graph>,
    valid: AtomicBool,
}

static ACTIVE: AtomicUsize = AtomicUsize::new(0);
static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Sets this thread's mode; the one before.
pub fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

impl Capture {
    /// Begins a capture into `graph`.
    pub fn begin(mode: u32, context: u64, origin: usize, blocking: bool, graph: Arc<Graph>) -> Arc<Capture> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let thread = devices::thread_id();
        let capture =
            Arc::new(Capture { id, mode, thread, context, origin, blocking, graph, valid: AtomicBool::new(true) });
        CAPTURES.lock().push(capture.clone());
        ACTIVE.fetch_add(1, Ordering::SeqCst);
        capture
    }

    /// Ends it, whether or not it is still valid.
    pub fn end(&self) {
        let mut all = CAPTURES.lock();
        let before = all.len();
        all.retain(|capture| capture.id != self.id);
        ACTIVE.fetch_sub(before - all.len(), Ordering::SeqCst);
    }

    /// Whether nothing has broken it yet.
    pub fn is_valid(&self) -> bool {
        self.valid.load(Ordering::Acquire)
    }

    pub fn invalidate(&self) {
        self.valid.store(false, Ordering::Release);
    }
}

/// Calls whose safety depends on the mode: they take or give memory, or may wait. (Physical handles and their mappings are
/// not among them: PyTorch's expandable segments use them in captures.)
const UNSAFE: &[&str] = &[
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemFree",
    "cuMemAllocHost",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuArrayDestroy",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuMemPoolSetAttribute",
    "cuMemPoolGetAttribute",
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleUnload",
    "cuIpcOpenMemHandle",
    "cuIpcCloseMemHandle",
    "cuDeviceGraphMemTrim",
];

/// Calls that wait for, or order themselves after, everything in the current context.
const WHOLE_CONTEXT: &[&str] = &["cuCtxSynchronize", "cuCtxRecordEvent", "cuCtxWaitEvent"];

/// Whether a capture that is under way forbids a call of `name`, and with which code. The capture is broken then.
pub fn refuses(name: &str) -> Option<CUresult> {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return None;
    }
    let base = instrument::base(name);
    if UNSAFE.contains(&base) {
        let (mode, thread) = (MODE.get(), devices::thread_id());
        return break_all(|capture| {
            let own = capture.thread == thread && capture.mode != RELAXED;
            let others = capture.thread != thread && capture.mode == GLOBAL;
            (mode != RELAXED && own) || (mode == GLOBAL && others)
        })
        .then_some(STREAM_CAPTURE_UNSUPPORTED);
    }
    let context = ctx::current().map(|context| context.id());
    if WHOLE_CONTEXT.contains(&base) {
        return break_all(|capture| Some(capture.context) == context).then_some(STREAM_CAPTURE_UNSUPPORTED);
    }
    None
}

/// The legacy stream of `context` is about to be used: it waits for every blocking stream, so a capture in one of these
/// breaks.
pub fn legacy_stream_used(context: u64) -> Result<(), CUresult> {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let broken = break_all(|capture| capture.context == context && capture.blocking);
    if broken { Err(STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}

/// Whether a blocking stream of `context` is being captured.
pub fn blocking_capture(context: u64) -> bool {
    let all = CAPTURES.lock();
    all.iter().any(|capture| capture.context == context && capture.blocking && capture.is_valid())
}

/// Breaks the captures that `which` names; whether there were any.
fn break_all(which: impl Fn(&Capture) -> bool) -> bool {
    let mut any = false;
    for capture in CAPTURES.lock().iter().filter(|capture| which(capture)) {
        capture.invalidate();
        any = true;
    }
    if any {
        instrument::note("capture violation");
    }
    any
}

/// A capture broke by a call on one of its own streams or events.
pub fn break_one(capture: &Capture) {
    capture.invalidate();
    instrument::note("capture violation");
}
