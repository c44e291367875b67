//! What every exported function has in common: the macro that defines one, the checks and delays before its body.

use std::ffi::c_char;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use simdevice::{Knobs, Nvml};

/// `nvmlReturn_t`.
pub type Code = u32;

pub const SUCCESS: Code = 0;
pub const UNINITIALIZED: Code = 1;
pub const INVALID_ARGUMENT: Code = 2;
pub const NOT_SUPPORTED: Code = 3;
pub const NOT_FOUND: Code = 6;
pub const INSUFFICIENT_SIZE: Code = 7;
pub const DRIVER_NOT_LOADED: Code = 9;
pub const LIBRARY_NOT_FOUND: Code = 12;
pub const FUNCTION_NOT_FOUND: Code = 13;
pub const ARGUMENT_VERSION_MISMATCH: Code = 25;

/// Times that the library was initialised and not shut down.
pub static USERS: AtomicU32 = AtomicU32::new(0);

/// Names that work without `nvmlInit`.
const STATELESS: &[&str] = &["nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown", "nvmlErrorString"];

/// Defines exported functions; names that share a body stand before the same bracket.
macro_rules! nvml_api {
    ($( $(#[$doc:meta])* fn $($name:ident),+ ($($args:tt)*) -> Code $body:block )*) => {
        $( $crate::api::nvml_api! { @each [$($name),+] [$(#[$doc])*] ($($args)*) $body } )*
    };
    (@each [$($name:ident),+] $doc:tt $args:tt $body:tt) => {
        $( $crate::api::nvml_api! { @one $name $doc $args $body } )+
    };
    (@one $name:ident [$(#[$doc:meta])*] ($($arg:ident : $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or valid as the NVML manual says.
        #[allow(non_snake_case, private_interfaces)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::api::Code {
            $crate::api::enter(stringify!($name), || $body)
        }
    };
}
pub(crate) use nvml_api;

/// Runs a body after what all functions have in common.
pub fn enter(name: &str, body: impl FnOnce() -> Code) -> Code {
    if let Nvml::Slow(millis) = Knobs::get().nvml {
        std::thread::sleep(Duration::from_millis(millis));
    }
    let code = if USERS.load(Ordering::Acquire) == 0 && !STATELESS.contains(&name) { UNINITIALIZED } else { body() };
    trace(name, code);
    code
}

/// A line in the trace of calls, as the simulated libcuda writes them; the way in is always `nvml`.
fn trace(name: &str, code: Code) {
    use std::io::Write as _;
    let Some(path) = &Knobs::get().trace else {
        return;
    };
    if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {
        // SAFETY: gettid(2) has no preconditions.
        let thread = unsafe { libc::gettid() };
        let _ = file.write_all(format!("{} {thread} {name} nvml {code}\n", std::process::id()).as_bytes());
    }
}

/// A pointer through which a function answers: null, or valid for one write. Only a C caller makes one.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn raw(self) -> *mut T {
        self.0
    }

    /// Writes; INVALID_ARGUMENT if there is nowhere to.
    pub fn answer(self, value: T) -> Code {
        if self.0.is_null() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: the type's invariant.
        unsafe { self.0.write_unaligned(value) };
        SUCCESS
    }
}

impl<T: Copy> Out<T> {
    /// What is there now; for what is read and then written.
    pub fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the type's invariant.
        Some(unsafe { self.0.read_unaligned() })
    }
}

/// Writes a text with its final zero, if it fits into `room` bytes.
pub fn write_text(text: &str, out: Out<c_char>, room: u32) -> Code {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() + 1 > room as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller gave `room` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out.raw(), text.len());
        out.raw().add(text.len()).write(0);
    }
    SUCCESS
}

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
