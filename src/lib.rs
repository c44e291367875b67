//! gpucap's rules, free of FFI, I/O and globals.
#![forbid(unsafe_code)]

pub mod budget;
pub(crate) mod sync;
