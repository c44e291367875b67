//! `cuInit`: where the configuration is read, and where a wrong one stops the program's CUDA.

use gpucap_core::code::Code;

use crate::phase::{self, Phase};
use crate::state;

/// `cuInit`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn init(real: unsafe extern "C" fn(u32) -> Code, flags: u32) -> Code {
    if phase::settled() == Phase::Enabled {
        let _ = state::configuration();
    }
    if phase::now() == Phase::Closed {
        return Code::INVALID_VALUE;
    }
    // SAFETY: the program's own argument.
    let code = unsafe { real(flags) };
    if code.is_success() {
        // Limits are resolved now: a wrong one is found before anything is allocated.
        if state::get().is_none() && phase::now() == Phase::Enabled {
            state::no_devices();
        }
        if phase::now() == Phase::Closed {
            return Code::INVALID_VALUE;
        }
    }
    code
}
