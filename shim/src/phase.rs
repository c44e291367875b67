//! Whether gpucap works in this process: switched off, refusing, or working. Latched for the process and its children.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use gpucap_core::config;

use crate::{environment, log};

/// The phase of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// `GPUCAP_DISABLE` has not been read yet.
    Unread = 0,
    /// It is not set; the rest of the configuration has not been found right yet, or the driver has not named its devices.
    Enabled = 1,
    /// Hooks do their work.
    Working = 2,
    /// `GPUCAP_DISABLE=1`: every call goes straight to the driver.
    Disabled = 3,
    /// The configuration is wrong and `GPUCAP_ON_ERROR` is not `open`: nothing starts, nothing is allocated.
    Closed = 4,
}

static PHASE: AtomicU8 = AtomicU8::new(Phase::Unread as u8);
static ON_ERROR_OPEN: AtomicBool = AtomicBool::new(false);

/// The phase as it is, without reading anything.
#[inline]
pub fn now() -> Phase {
    match PHASE.load(Ordering::Acquire) {
        0 => Phase::Unread,
        1 => Phase::Enabled,
        2 => Phase::Working,
        3 => Phase::Disabled,
        _ => Phase::Closed,
    }
}

/// The phase, after `GPUCAP_DISABLE` was read: the first look-up or call of a hooked name comes here.
pub fn settled() -> Phase {
    match now() {
        Phase::Unread => {}
        known => return known,
    }
    // Anything that will be written to stderr later is compared with what stderr is now.
    log::remember_stderr();
    let disabled = config::is_disabled(environment::variable(b"GPUCAP_DISABLE").as_deref());
    let next = if disabled { Phase::Disabled } else { Phase::Enabled };
    step(Phase::Unread, next);
    now()
}

/// The books are made: from here on hooks go the short way.
pub fn work() {
    step(Phase::Enabled, Phase::Working);
}

fn step(from: Phase, to: Phase) {
    let _ = PHASE.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire);
}

/// Whether everything goes straight to the driver (`GPUCAP_DISABLE=1`).
pub fn disabled() -> bool {
    settled() == Phase::Disabled
}

/// The configuration turned out wrong, and it is not to be ignored.
pub fn close() {
    PHASE.store(Phase::Closed as u8, Ordering::Release);
}

/// Whether what can't be capped is let through with a warning (`GPUCAP_ON_ERROR=open`).
pub fn on_error_open() -> bool {
    let _ = crate::state::configuration();
    ON_ERROR_OPEN.load(Ordering::Acquire)
}

/// Remembers that `GPUCAP_ON_ERROR` is `open`.
pub fn set_on_error_open(open: bool) {
    ON_ERROR_OPEN.store(open, Ordering::Release);
}
