//! Other libraries that cap GPU memory in the same process: two of them would each count only part.

use core::ffi::{CStr, c_int, c_void};

use crate::forks;

/// File names (beginnings) of known ones.
const KNOWN: [&[u8]; 4] = [b"libvgpu.so", b"libvgpu-control.so", b"libcuda-control.so", b"libnvshare.so"];

/// One line about another limiter, if one is mapped.
pub fn other_limiter() -> Option<String> {
    let mut found: Option<String> = None;
    // SAFETY: dl_iterate_phdr(3) calls `look` with valid data while it runs, and `found` outlives the call.
    forks::apart(|| unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) });
    let name = found?;
    Some(format!(
        "{name} limits GPU memory in this process too: use one limiter, so remove one of the two from LD_PRELOAD or /etc/ld.so.preload"
    ))
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record (dl_iterate_phdr(3)).
    let name = unsafe { (*info).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: dlpi_name is a C string.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if !KNOWN.iter().any(|known| file.starts_with(known)) {
        return 0;
    }
    // SAFETY: `found` is the Option passed by other_limiter.
    unsafe { *found.cast::<Option<String>>() = Some(String::from_utf8_lossy(path).into_owned()) };
    1
}
