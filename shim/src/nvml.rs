//! NVML's view of this process: how much of a device it really takes.
//!
//! NVML counts everything: contexts, modules, local memory, page granularity. It knows a process by its number in the
//! host's pid namespace, which a process in a container can't see; there the entry that appears with this process's
//! first context is taken for its own.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};

use gpucap_core::code::Code;

use crate::real::{self, functions};

/// `nvmlDevice_t`.
pub type Handle = *mut c_void;

/// `NVML_ERROR_INSUFFICIENT_SIZE`.
const INSUFFICIENT_SIZE: Code = Code(7);
/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u64 = u64::MAX;
/// Devices whose handles are kept.
const DEVICES: usize = 64;

/// `nvmlProcessInfo_v2_t`, the record of the v2 and v3 functions.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Process {
    /// As NVML numbers it.
    pub pid: u32,
    /// Bytes.
    pub used: u64,
    /// MIG instance.
    pub gpu_instance: u32,
    /// MIG instance.
    pub compute_instance: u32,
}

functions! {
    /// Starts NVML; counted, and never ended by us.
    init = nvmlInit_v2();
    /// A device by its UUID.
    by_uuid = nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Handle);
    /// Processes with a compute context.
    compute = nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: *mut u32, list: *mut Process);
    /// Processes with a graphics context.
    graphics = nvmlDeviceGetGraphicsRunningProcesses_v3(device: Handle, count: *mut u32, list: *mut Process);
    /// The same of older drivers.
    compute_v2 = nvmlDeviceGetComputeRunningProcesses_v2(device: Handle, count: *mut u32, list: *mut Process);
    /// The same of older drivers.
    graphics_v2 = nvmlDeviceGetGraphicsRunningProcesses_v2(device: Handle, count: *mut u32, list: *mut Process);
}

type List = unsafe fn(Handle, *mut u32, *mut Process) -> Code;

/// Each list with the function that newer and older drivers have for it.
const LISTS: [[List; 2]; 2] = [[compute, compute_v2], [graphics, graphics_v2]];

static HANDLES: [AtomicPtr<c_void>; DEVICES] = [const { AtomicPtr::new(core::ptr::null_mut()) }; DEVICES];
/// 0 not tried, 1 works, 2 does not.
static STARTED: AtomicU8 = AtomicU8::new(0);
/// The number by which NVML knows this process, once found; 0 before.
static KNOWN_AS: AtomicU32 = AtomicU32::new(0);

/// The process is ending: NVML's own destructors may have run.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Asks NVML nothing from now on. For the end of the process, where the runtime still unloads modules and releases contexts.
pub fn stop() {
    ENDING.store(true, Ordering::Relaxed);
}

/// Forgets by which number NVML knows this process, in a forked child.
pub fn forget() {
    KNOWN_AS.store(0, Ordering::Relaxed);
}

/// Bytes that this process takes of a device, `None` where NVML can't tell.
pub fn footprint(device: u32) -> Option<u64> {
    let known = KNOWN_AS.load(Ordering::Relaxed);
    let processes = processes(handle(device)?, known)?;
    let of = |pid: u32| {
        let used = processes.iter().filter(|process| process.pid == pid).map(|process| process.used);
        used.filter(|used| *used != NOT_AVAILABLE).max()
    };
    if known != 0 {
        // A process without a context on this device is not in its lists; one that is there may have no number.
        let listed = processes.iter().any(|process| process.pid == known);
        return if listed { of(known) } else { Some(0) };
    }
    let (pid, used) = own_pids().into_iter().find_map(|pid| Some((pid, of(pid)?)))?;
    KNOWN_AS.store(pid, Ordering::Relaxed);
    Some(used)
}

/// The processes that NVML sees on a device, before a context is created there; `None` where this process is known.
pub fn before_context(device: u32) -> Option<Vec<u32>> {
    if KNOWN_AS.load(Ordering::Relaxed) != 0 {
        return None;
    }
    Some(processes(handle(device)?, 0)?.iter().map(|process| process.pid).collect())
}

/// A context was created: if NVML does not list any number that we know ourselves by, and one process is new since
/// `before`, it is this one, unless that number is a neighbour's in our own pid namespace.
pub fn after_context(device: u32, before: Option<Vec<u32>>) {
    let (Some(before), None) = (before, footprint(device)) else {
        return;
    };
    let Some(now) = handle(device).and_then(|device| processes(device, 0)) else {
        return;
    };
    let mut new: Vec<u32> = now.iter().map(|process| process.pid).filter(|pid| !before.contains(pid)).collect();
    new.sort_unstable();
    new.dedup();
    if let [only] = new[..]
        && !exists(only)
    {
        KNOWN_AS.store(only, Ordering::Relaxed);
    }
}

/// Whether a process has that number where we live.
fn exists(pid: u32) -> bool {
    // SAFETY: kill(2) with signal 0 only looks; errno is this thread's own.
    i32::try_from(pid).is_ok_and(|pid| unsafe { libc::kill(pid, 0) == 0 || *libc::__errno_location() != libc::ESRCH })
}

/// Whether the footprint of this process on a device can be read.
pub fn can_measure(device: u32) -> bool {
    KNOWN_AS.load(Ordering::Relaxed) != 0 || footprint(device).is_some()
}

fn handle(device: u32) -> Option<Handle> {
    if ENDING.load(Ordering::Relaxed) {
        return None;
    }
    let slot = HANDLES.get(device as usize)?;
    let kept = slot.load(Ordering::Acquire);
    if !kept.is_null() {
        return Some(kept);
    }
    if STARTED.load(Ordering::Acquire) == 0 {
        // SAFETY: nvmlInit_v2 takes nothing and may be called more than once (NVML manual).
        let works = unsafe { init() }.is_success();
        STARTED.store(if works { 1 } else { 2 }, Ordering::Release);
    }
    if STARTED.load(Ordering::Acquire) != 1 {
        return None;
    }
    let uuid = real::uuid_of(device)?;
    let mut found: Handle = core::ptr::null_mut();
    // SAFETY: a C string, and room for one handle.
    unsafe { by_uuid(uuid.as_ptr(), &raw mut found) }.ok().ok()?;
    slot.store(found, Ordering::Release);
    (!found.is_null()).then_some(found)
}

/// The processes on a device; `None` if no list can be had. The lists after the one that has `wanted` are not asked for.
fn processes(device: Handle, wanted: u32) -> Option<Vec<Process>> {
    let mut all = Vec::new();
    let mut any = false;
    for functions in LISTS {
        if let Some(list) = functions.iter().find_map(|function| read(*function, device)) {
            any = true;
            all.extend(list);
        }
        if wanted != 0 && all.iter().any(|process: &Process| process.pid == wanted) {
            break;
        }
    }
    any.then_some(all)
}

fn read(function: List, device: Handle) -> Option<Vec<Process>> {
    let mut room = 64;
    loop {
        let mut list = vec![Process::default(); room];
        let mut count = u32::try_from(room).ok()?;
        // SAFETY: `list` has room for `count` records of this layout (nvml.h).
        let code = unsafe { function(device, &raw mut count, list.as_mut_ptr()) };
        if code == INSUFFICIENT_SIZE && room < 1 << 16 {
            room = (count as usize).clamp(room, 1 << 16) * 2;
            continue;
        }
        code.ok().ok()?;
        list.truncate(count as usize);
        return Some(list);
    }
}

/// The numbers of this process, in its own pid namespace and in those around it as far as /proc shows them.
fn own_pids() -> Vec<u32> {
    // SAFETY: getpid(2) has no preconditions.
    let mut pids = vec![unsafe { libc::getpid() }.unsigned_abs()];
    let mut text = [0_u8; 4096];
    let path: &CStr = c"/proc/self/status";
    // SAFETY: a C string; the descriptor is closed below.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return pids;
    }
    // SAFETY: the buffer is valid for its length.
    let read = unsafe { libc::read(fd, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: opened above.
    unsafe { libc::close(fd) };
    let text = &text[..usize::try_from(read).unwrap_or(0)];
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"));
    let words = line.and_then(|line| core::str::from_utf8(line).ok()).unwrap_or("");
    pids.extend(words.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    pids.dedup();
    pids
}
