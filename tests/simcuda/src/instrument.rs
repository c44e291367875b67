//! What a test may ask of every call: counts, delays, failures, a trace.

use crate::api::Call;
use crate::codes::CUresult;

/// Counts the call, waits, and says with which code it fails without having any effect.
pub fn before(_call: &'static Call) -> Option<CUresult> {
    None
}

/// Traces the call.
pub fn after(_call: &'static Call, _gpa: bool, _code: CUresult) {}

/// Whether calls are traced.
pub fn tracing() -> bool {
    false
}

/// What `cuDriverGetVersion` reports; newer names are absent.
pub fn driver_version() -> u32 {
    13000
}

/// Whether a test took this name away.
pub fn hidden(_name: &str) -> bool {
    false
}
