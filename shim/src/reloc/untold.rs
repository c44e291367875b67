//! References to `dlsym` that were not called yet, in a process with another interposer of `dlsym`.
//!
//! Without `RTLD_DEEPBIND` they end at the first of us in the program's scope, with it at libc. The loader does not show which
//! it will be, so it is made to bind them: the PLT entry is called once, for a look-up that changes nothing.

use core::cell::Cell;
use core::ffi::{c_char, c_void};

use crate::images;

const MOST: usize = 32;

/// PLT entries, and whether they are `dlvsym`'s.
#[derive(Default)]
pub struct Untold {
    entries: [Cell<(usize, bool)>; MOST],
}

impl Untold {
    /// Notes one. More than there is room for wait until the next time.
    pub fn note(&self, entry: usize, versioned: bool) {
        if let Some(free) = self.entries.iter().find(|place| place.get().0 == 0) {
            free.set((entry, versioned));
        }
    }

    /// How many were noted.
    pub fn count(&self) -> usize {
        self.entries.iter().filter(|place| place.get().0 != 0).count()
    }

    /// Has the loader bind them. Returns whether there were any. Must be called without the loader's lock.
    pub fn bind(&self) -> bool {
        let mut any = false;
        for (entry, versioned) in self.entries.iter().map(Cell::take).filter(|(entry, _)| *entry != 0) {
            any = true;
            // Held open, so that the entry stays while it is called.
            let Some(image) = images::owner(entry) else {
                continue;
            };
            let held = image.open();
            if held.is_none() && !image.object.path().is_empty() {
                continue;
            }
            // SAFETY: an unbound PLT entry of `dlsym` or `dlvsym`, as its relocation says: calling it calls that function.
            unsafe {
                if versioned {
                    type Function = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
                    let function = core::mem::transmute::<usize, Function>(entry);
                    function(libc::RTLD_DEFAULT, c"dlsym".as_ptr(), c"GLIBC_2.2.5".as_ptr());
                } else {
                    type Function = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
                    let function = core::mem::transmute::<usize, Function>(entry);
                    function(libc::RTLD_DEFAULT, c"dlsym".as_ptr());
                }
            }
        }
        any
    }
}
