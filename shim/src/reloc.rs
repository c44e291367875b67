//! stub
use core::ffi::c_void;
/// A look-up of a name of no interest.
pub fn notice(_handle: *mut c_void) {}
/// A look-up of interest.
pub fn refresh(_handle: *mut c_void) {}
