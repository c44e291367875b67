//! What the log says of the books: a device's limit at its first context, refusals, the sum at the end.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use gpucap_core::limit::format_bytes;
use gpucap_core::policy::{Denial, OverheadRule};

use crate::log::{self, Level};
use crate::nvml;
use crate::state::{self, State};

/// Seconds between two lines about refusals.
const PAUSE: i64 = 10;

/// Says what is in force on a device, when it gets its first context.
pub fn first_context(state: &State, device: u32) {
    let bit = bit(device);
    if state.announced.fetch_or(bit, Ordering::Relaxed) & bit != 0 || !log::enabled(Level::Info) {
        return;
    }
    let at = device as usize;
    if let (Some(rules), Some(how)) = (state.governor.devices().get(at), state.how.get(at)) {
        let limit = limit_text(rules.limit);
        let total = format_bytes(rules.total);
        let overhead = overhead_text(state, rules.overhead, device);
        log::info(format_args!("device {device}: limit {limit} ({how}), device total {total}, {overhead}"));
    }
}

/// What counts beside allocations, and how that is known.
fn overhead_text(state: &State, rule: OverheadRule, device: u32) -> String {
    match rule {
        OverheadRule::None => "only allocations count (overhead 0)".to_owned(),
        OverheadRule::Fixed(bytes) => format!("overhead set to {}", format_bytes(bytes)),
        OverheadRule::Measured if nvml::can_measure(device) => {
            let overhead = state.governor.budget(device).map_or(0, |budget| budget.overhead());
            format!("overhead {} measured by NVML", format_bytes(overhead))
        }
        OverheadRule::Measured => {
            "overhead can't be measured (NVML does not show this process): only allocations count".to_owned()
        }
    }
}

/// Says that an allocation was refused: the first time, then at most every ten seconds.
#[cold]
pub fn denied(state: &State, entry: &str, denial: Denial) {
    static LAST: AtomicI64 = AtomicI64::new(i64::MIN);
    static SILENT: AtomicU32 = AtomicU32::new(0);
    let now = seconds();
    let last = LAST.load(Ordering::Relaxed);
    let due = last == i64::MIN || now - last >= PAUSE;
    if !due || LAST.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        SILENT.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let Denial { device, asked, live, held, overhead, limit } = denial;
    let source = state.limit_source;
    let (asked, live, held) = (format_bytes(asked), format_bytes(live), format_bytes(held));
    let (overhead, limit) = (format_bytes(overhead), format_bytes(limit));
    match SILENT.swap(0, Ordering::Relaxed) {
        0 => log::warn(format_args!(
            "denied {entry} on device {device}: asked {asked}, live {live}, held {held}, overhead {overhead}, limit {limit} (set by {source})"
        )),
        more => log::warn(format_args!(
            "denied {entry} on device {device}: asked {asked}, live {live}, held {held}, overhead {overhead}, limit {limit} (set by {source}); {more} more refused since the last line"
        )),
    }
}

/// Has the readings ended when the process ends, and the sum written, if anybody wants to read it.
pub fn at_exit() {
    // SAFETY: atexit(3) takes a function without arguments; this library is never unloaded (-z nodelete).
    unsafe { libc::atexit(ending) };
}

/// Called before the handlers and destructors of what was loaded before the driver started, the CUDA runtime's too.
extern "C" fn ending() {
    nvml::stop();
    if log::enabled(Level::Info) {
        sums();
    }
}

fn sums() {
    let Some(state) = state::existing() else {
        return;
    };
    let announced = state.announced.load(Ordering::Relaxed);
    for (device, rules) in (0..).zip(state.governor.devices()) {
        let Some(budget) = state.governor.budget(device) else {
            continue;
        };
        // A device without a context has had nothing, and nobody asks about it.
        if announced & bit(device) == 0 && budget.peak() == 0 && budget.denied() == 0 {
            continue;
        }
        let (limit, peak, live) = (limit_text(rules.limit), format_bytes(budget.peak()), format_bytes(budget.live()));
        log::info(format_args!(
            "device {device}: at exit limit {limit}, peak {peak}, live {live}, denied {}",
            budget.denied()
        ));
    }
}

/// A device's bit in `State::announced`.
fn bit(device: u32) -> u64 {
    1 << device.min(63)
}

fn limit_text(limit: u64) -> String {
    if limit == gpucap_core::budget::UNCAPPED { "none".to_owned() } else { format_bytes(limit) }
}

fn seconds() -> i64 {
    // SAFETY: all-zero bytes are a valid timespec.
    let mut now: libc::timespec = unsafe { core::mem::zeroed() };
    // SAFETY: clock_gettime(2) writes the timespec it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec
}
