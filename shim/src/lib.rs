//! libgpucap.so: the library that is preloaded into a CUDA program and keeps its device memory within a limit.
//!
//! The story of one `cuMemAlloc(1 GiB)`:
//!
//! 1. The program asks `dlsym` or `cuGetProcAddress` for the function, or the loader binds it. [`entry`] and the
//!    exports of [`hooks`] see to it that the answer is ours, whatever way it took.
//! 2. [`guard`] finds the driver's own function behind the hook and stops at a configuration that is wrong.
//! 3. The body in `hooks/linear.rs` looks at the pointers and hands over to the rules in `gpucap_core::policy`, over
//!    the books in [`state`].
//! 4. The rules reserve the bytes, have the body call the driver, and commit or cancel.
//! 5. The program gets the driver's code, or `CUDA_ERROR_OUT_OF_MEMORY` and a line in the log ([`report`]).
//!
//! A process that never looks up or calls a hooked name reads no variable, opens no file and starts no thread.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("gpucap works on x86-64 Linux; other targets need their own entry.rs");

mod captures;
mod driver;
mod elf;
mod entry;
mod environment;
mod ffi;
mod forks;
mod guard;
mod hooks;
mod images;
mod lane;
mod log;
mod nvml;
mod others;
mod phase;
mod real;
mod reloc;
mod report;
mod state;

/// All that happens at load: a closed stderr is noticed, forks will be told to us, and our exports step out of the way of
/// look-ups where no driver is loaded.
#[ctor::ctor(unsafe)]
fn at_load() {
    log::at_load();
    forks::at_load();
    entry::at_load();
}

/// What a forked child must not have from its parent.
fn forget() {
    captures::forget();
    state::forget();
    nvml::forget();
}
