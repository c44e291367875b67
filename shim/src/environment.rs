//! The environment, read straight from the process's own table: no lock that a forked child could find taken.

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// The variables whose name `wanted` accepts, as name and value.
pub fn variables(wanted: impl Fn(&[u8]) -> bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    // SAFETY: environ(7) is null or an array of C strings ended by null. It is read once, at the first call of a hooked
    // function; that no other thread calls setenv(3) meanwhile is what every getenv(3) asks of a program.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            if let Some(split) = entry.iter().position(|byte| *byte == b'=')
                && wanted(&entry[..split])
            {
                found.push((entry[..split].to_vec(), entry[split + 1..].to_vec()));
            }
            at = at.add(1);
        }
    }
    found
}

/// One variable.
pub fn variable(name: &[u8]) -> Option<Vec<u8>> {
    variables(|known| known == name).pop().map(|(_, value)| value)
}
