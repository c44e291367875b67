//! gpucap's rules, free of FFI, I/O and globals.
#![forbid(unsafe_code)]

pub mod budget;
pub mod config;
pub mod decimal;
pub mod device_key;
pub mod limit;
pub(crate) mod sync;
