//! The program's stream captures: which are under way, so that no call of ours breaks one.
//!
//! A capture forbids calls that may wait or touch memory, on its thread or on all (cuda.h,
//! cuThreadExchangeStreamCaptureMode). While none is under way our own calls need no care. The gate makes that sure: a
//! call of ours is announced before it looks for captures, and a capture that begins is announced first and then waits
//! until calls that have not seen it are done, for a moment at most.

use core::sync::atomic::{AtomicU64, Ordering};

use gpucap_core::code::Code;
use parking_lot::Mutex;

use crate::ffi::CUstream;
use crate::real;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`.
pub const GLOBAL: u32 = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub const RELAXED: u32 = 2;
/// `CU_STREAM_PER_THREAD`: each thread has another stream of this handle.
const PER_THREAD: CUstream = 2;

/// Looks at the gate before a capture begins all the same: 100 ms in all.
const LOOKS: u32 = 1200;

/// Captures under way, those that are about to begin included.
static ACTIVE: AtomicU64 = AtomicU64::new(0);
/// Calls of ours under way that found no capture.
static CALLS: AtomicU64 = AtomicU64::new(0);
static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());

struct Capture {
    stream: Stream,
    thread: i32,
    mode: u32,
}

/// A stream as all threads may name it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stream {
    handle: CUstream,
    /// Whose, where each thread has its own; else 0.
    thread: i32,
}

impl Stream {
    fn of(handle: CUstream) -> Stream {
        let thread = if handle == PER_THREAD { thread() } else { 0 };
        Stream { handle, thread }
    }
}

fn thread() -> i32 {
    // SAFETY: gettid(2) has no preconditions.
    unsafe { libc::gettid() }
}

/// A call of ours that found no capture, under way.
struct Call;

impl Call {
    /// `None` while a capture is under way.
    fn begin() -> Option<Call> {
        CALLS.fetch_add(1, Ordering::SeqCst);
        let call = Call;
        (ACTIVE.load(Ordering::SeqCst) == 0).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes a call of ours that may wait or give memory back: only while no capture is under way. Whether it was made.
pub fn outside(call: impl FnOnce()) -> bool {
    let gate = Call::begin();
    if gate.is_some() {
        call();
    }
    gate.is_some()
}

/// Makes a call of ours that a capture may forbid, which then is made in the relaxed mode.
pub fn harmless(call: impl FnOnce() -> Code) -> Code {
    let gate = Call::begin();
    if gate.is_some() {
        return call();
    }
    let before = exchange(RELAXED);
    let code = call();
    if let Some(mode) = before {
        exchange(mode);
    }
    code
}

/// Sets the thread's mode; the one before.
fn exchange(mut mode: u32) -> Option<u32> {
    // SAFETY: `mode` is valid for one enum value, written and read by the driver.
    let code = unsafe { real::exchange_capture_mode(&raw mut mode) };
    code.is_success().then_some(mode)
}

/// Whether a capture forbids the calling thread the calls that take memory: the driver then answers with a code of its
/// own, whatever the limit.
pub fn forbid() -> bool {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return false;
    }
    let Some(mode) = exchange(RELAXED) else {
        return false;
    };
    exchange(mode);
    let me = thread();
    CAPTURES.lock().iter().any(|capture| {
        if capture.thread == me {
            capture.mode != RELAXED && mode != RELAXED
        } else {
            capture.mode == GLOBAL && mode == GLOBAL
        }
    })
}

/// A capture of `stream` begins by `call`.
pub fn begin(stream: CUstream, mode: u32, call: impl FnOnce() -> Code) -> Code {
    ACTIVE.fetch_add(1, Ordering::SeqCst);
    for look in 0..LOOKS {
        if CALLS.load(Ordering::SeqCst) == 0 {
            break;
        }
        if look < 200 {
            core::hint::spin_loop();
        } else {
            std::thread::sleep(core::time::Duration::from_micros(100));
        }
    }
    let code = call();
    let stream = Stream::of(stream);
    let ended = if code.is_success() {
        let captures = &mut *CAPTURES.lock();
        // One of a stream that was destroyed meanwhile, whose handle has come back.
        let stale = captures.iter().position(|capture| capture.stream == stream);
        if let Some(at) = stale {
            captures.swap_remove(at);
        }
        captures.push(Capture { stream, thread: thread(), mode });
        stale.is_some()
    } else {
        true
    };
    if ended {
        ACTIVE.fetch_sub(1, Ordering::SeqCst);
    }
    code
}

/// A capture of `stream` may end by `call`: it does so with success, and with the codes of a capture that came to
/// nothing.
pub fn end(stream: CUstream, call: impl FnOnce() -> Code) -> Code {
    let stream = Stream::of(stream);
    let code = call();
    let over = [Code::SUCCESS, Code::STREAM_CAPTURE_INVALIDATED, Code::STREAM_CAPTURE_UNJOINED];
    if over.contains(&code) && take(stream).is_some() {
        ACTIVE.fetch_sub(1, Ordering::SeqCst);
    }
    code
}

/// A stream is destroyed by `call`, and a capture of it with it. It is forgotten first, because the handle may come back
/// at once.
pub fn with_stream(stream: CUstream, call: impl FnOnce() -> Code) -> Code {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return call();
    }
    let taken = take(Stream::of(stream));
    let code = call();
    match taken {
        Some(capture) if !code.is_success() => CAPTURES.lock().push(capture),
        Some(_) => {
            ACTIVE.fetch_sub(1, Ordering::SeqCst);
        }
        None => {}
    }
    code
}

fn take(stream: Stream) -> Option<Capture> {
    let captures = &mut *CAPTURES.lock();
    let at = captures.iter().position(|capture| capture.stream == stream)?;
    Some(captures.swap_remove(at))
}

/// In a forked child there is no driver and so no capture.
pub fn forget() {
    ACTIVE.store(0, Ordering::SeqCst);
    CALLS.store(0, Ordering::SeqCst);
}
