//! What every exported function of the simulated driver has in common: the macro that defines one, and what happens before
//! and after its body (fork and initialisation check, count, latency, injected failure, capture rules, trace).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::codes::{CUresult, INVALID_VALUE, NOT_INITIALIZED, NOT_PERMITTED};

/// Defines functions of the driver.
///
/// ```text
/// cuda_api! {
///     /// What the simulated one does.
///     fn cuMemAllocAsync, cuMemAllocAsync_ptsz(dptr: Out<u64>, bytes: usize, stream: Stream) -> CUresult { … }
/// }
/// ```
///
/// Each name becomes an exported `extern "C"` function and a type of the same name with its `ADDRESS` and its `body` (for
/// calls from inside, neither counted nor traced). Names that share a body differ in their default stream: [`per_thread`] tells.
/// `build.rs` reads these blocks: a definition begins on its own line, with its names on that line.
macro_rules! cuda_api {
    ($( $(#[$doc:meta])* fn $($name:ident),+ ($($args:tt)*) -> CUresult $body:block )*) => {
        $( $crate::api::cuda_api! { @each [$($name),+] [$(#[$doc])*] ($($args)*) $body } )*
    };
    (@each [$($name:ident),+] $doc:tt $args:tt $body:tt) => {
        $( $crate::api::cuda_api! { @one $name $doc $args $body } )+
    };
    (@one $name:ident [$(#[$doc:meta])*] ($($arg:ident : $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[allow(non_camel_case_types)]
        pub enum $name {}

        impl $name {
            const CALL: &'static $crate::api::Call = {
                static CALL: $crate::api::Call = $crate::api::Call::new(stringify!($name));
                &CALL
            };

            /// Address of the exported function.
            pub const ADDRESS: *const () = $name as *const ();

            /// The body alone, for calls from inside.
            ///
            /// # Safety
            /// As the exported function.
            #[allow(clippy::too_many_arguments, unused_unsafe, dead_code, private_interfaces)]
            #[inline(never)]
            pub unsafe fn body($($arg: $type),*) -> $crate::codes::CUresult $body
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// Pointers are null or valid as the driver API says.
        #[allow(non_snake_case, clippy::too_many_arguments, private_interfaces)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::codes::CUresult {
            let code = match $crate::api::begin($name::CALL) {
                // SAFETY: the arguments are the caller's, who keeps the contract of the driver API.
                Ok(outer) => $crate::api::leave(outer, unsafe { $name::body($($arg),*) }),
                Err(code) => code,
            };
            $crate::instrument::after($name::CALL, code);
            code
        }
    };
}
pub(crate) use cuda_api;

/// One exported function, as its calls are counted.
pub struct Call {
    /// The exported name.
    pub name: &'static str,
    /// Index of its counter in the books + 1; 0 until the first call.
    counter: AtomicUsize,
}

impl Call {
    pub const fn new(name: &'static str) -> Self {
        Self { name, counter: AtomicUsize::new(0) }
    }

    /// Index of its counter in the books.
    pub fn counter(&self) -> usize {
        match self.counter.load(Ordering::Relaxed) {
            0 => {
                let counter = simdevice::me().counter(self.name);
                self.counter.store(counter + 1, Ordering::Relaxed);
                counter
            }
            known => known - 1,
        }
    }
}

/// Names that work before `cuInit` and in a forked child.
const STATELESS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
];

static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the function being called is a `_ptsz` or `_ptds` one, whose default stream is the thread's own.
pub fn per_thread() -> bool {
    PER_THREAD.get()
}

/// `cuInit` has succeeded: calls work from here on, in this process and not in its forked children.
pub fn set_initialised() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    if !INITIALISED.swap(true, Ordering::AcqRel) {
        // SAFETY: pthread_atfork takes a function that may run in the child; it only stores an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Whether `cuInit` has succeeded in this process.
pub fn initialised() -> bool {
    INITIALISED.load(Ordering::Acquire)
}

/// Whether this process was forked from one that had called `cuInit`: the driver is dead in it.
pub fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// What comes before a function's body. `Err`: the body must not run, the function returns this code. `Ok` goes to
/// [`leave`].
pub fn begin(call: &'static Call) -> Result<bool, CUresult> {
    let failure = crate::instrument::before(call);
    let stateless = || STATELESS.contains(&call.name);
    if (forked() || !initialised()) && !stateless() {
        return Err(NOT_INITIALIZED);
    }
    if crate::hostfn::in_callback() && !stateless() {
        return Err(NOT_PERMITTED);
    }
    if let Some(code) = failure.or_else(|| crate::capture::refuses(call.name)) {
        return Err(code);
    }
    Ok(PER_THREAD.replace(call.name.ends_with("_ptsz") || call.name.ends_with("_ptds")))
}

/// What comes after a function's body.
pub fn leave(outer: bool, code: CUresult) -> CUresult {
    PER_THREAD.set(outer);
    code
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
    /// # Safety
    /// `pointer` is null or valid for one write.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub const fn null() -> Self {
        Self(std::ptr::null_mut())
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The pointer itself.
    pub fn raw(self) -> *mut T {
        self.0
    }

    /// Writes, where there is somewhere to write to.
    pub fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the type's invariant; the driver API does not promise alignment of what it is given.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Writes and returns 0; `INVALID_VALUE` if the pointer is null.
    pub fn answer(self, value: T) -> CUresult {
        if self.0.is_null() {
            return INVALID_VALUE;
        }
        self.set(value);
        0
    }
}

/// A pointer from which a function reads: null, or valid for one read. Only a C caller makes one.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

/// For what is read and then written.
impl<T> From<Out<T>> for In<T> {
    fn from(out: Out<T>) -> Self {
        Self(out.0)
    }
}

impl<T: Copy> In<T> {
    /// # Safety
    /// `pointer` is null or valid for one read.
    pub unsafe fn new(pointer: *const T) -> Self {
        Self(pointer)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The pointer itself.
    pub fn raw(self) -> *const T {
        self.0
    }

    /// What it points to; `None` if null.
    pub fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the type's invariant.
        Some(unsafe { self.0.read_unaligned() })
    }

    /// The first `n` values from it; empty if null.
    pub fn many(self, n: usize) -> Vec<T> {
        if self.0.is_null() {
            return Vec::new();
        }
        // SAFETY: a caller who gives a count gives an array of that many.
        (0..n).map(|i| unsafe { self.0.add(i).read_unaligned() }).collect()
    }
}

/// The result of an inner function as the driver's code.
pub fn code(result: Result<(), CUresult>) -> CUresult {
    result.err().unwrap_or(0)
}
