//! What a test may ask of every call: counts, delays, failures, a trace (`SIMCUDA_LATENCY_US`, `_FAIL`, `_TRACE`, `_HIDE`,
//! `_DRIVER`).

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use simdevice::{Failure, Knobs, me};

use crate::api::Call;
use crate::codes::CUresult;

/// `SIMCUDA_FAIL=*:n:code` counts the calls of these: whatever may take device memory.
const ALLOCATING: &[&str] = &[
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemCreate",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
    "cuGraphAddMemAllocNode",
    "cuGraphInstantiate",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cuGraphLaunch",
    "cuGraphUpload",
];

static ALLOCATING_CALLS: AtomicU64 = AtomicU64::new(0);

/// Whether any rule delays or fails calls; without, a call costs a count only.
static RULES: LazyLock<bool> = LazyLock::new(|| !Knobs::get().latency.is_empty() || !Knobs::get().fail.is_empty());

/// Counts the call, waits, and says with which code it fails without having any effect.
pub fn before(call: &'static Call) -> Option<CUresult> {
    let nth = me().count(call.counter());
    if *RULES { apply(call.name, nth) } else { None }
}

#[cold]
fn apply(name: &str, nth: u64) -> Option<CUresult> {
    let micros: u64 = Knobs::get()
        .latency
        .iter()
        .filter(|rule| rule.function.as_deref().is_none_or(|function| function == name))
        .map(|rule| rule.micros)
        .sum();
    if micros > 0 {
        std::thread::sleep(Duration::from_micros(micros));
    }
    let allocates = ALLOCATING.contains(&base(name));
    let nth_allocating = if allocates { ALLOCATING_CALLS.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
    let fails = |rule: &&Failure| match &rule.function {
        Some(function) => function == name && rule.nth.is_none_or(|wanted| wanted == nth),
        None => allocates && rule.nth.is_none_or(|wanted| wanted == nth_allocating),
    };
    Knobs::get().fail.iter().find(fails).map(|rule| rule.code)
}

/// The name without what tells variants apart: `cuMemAlloc_v2` → `cuMemAlloc`.
pub fn base(name: &str) -> &str {
    let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    ["_v2", "_v3", "_v4"].iter().find_map(|tail| name.strip_suffix(tail)).unwrap_or(name)
}

/// Notes something that a test wants to know and no call tells, beside the counts of calls.
pub fn note(what: &str) {
    me().count(me().counter(what));
}

/// Traces the call.
pub fn after(call: &'static Call, code: CUresult) {
    if tracing() {
        crate::trace::line(call.name, code);
    }
}

/// Whether calls are traced.
pub fn tracing() -> bool {
    static TRACING: LazyLock<bool> = LazyLock::new(|| Knobs::get().trace.is_some());
    *TRACING
}

/// What `cuDriverGetVersion` reports; newer names are absent.
pub fn driver_version() -> u32 {
    Knobs::get().driver
}

/// Whether a test took this name away.
pub fn hidden(name: &str) -> bool {
    Knobs::get().hide.iter().any(|hidden| hidden == name)
}
