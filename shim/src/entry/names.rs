//! Is this name hooked? A perfect-enough hash table made at compile time from the table of hooks.

use core::ffi::{CStr, c_char};

use crate::hooks::{COUNT, HOOKS};

const SLOTS: usize = {
    assert!(COUNT < 256, "the table of names must stay less than half full");
    512
};

/// Hook index + 1 by hash of its name; 0 = free.
static TABLE: [u16; SLOTS] = build();

const fn build() -> [u16; SLOTS] {
    let mut table = [0_u16; SLOTS];
    let mut index: u16 = 0;
    while (index as usize) < COUNT {
        let mut slot = hash(HOOKS[index as usize].name.to_bytes());
        while table[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        index += 1;
        table[slot] = index;
    }
    table
}

/// FNV-1a, folded to a slot.
const fn hash(name: &[u8]) -> usize {
    let mut hash: u32 = 0x811c_9dc5;
    let mut index = 0;
    while index < name.len() {
        hash = (hash ^ name[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    (hash ^ hash >> 15) as usize % SLOTS
}

/// The hook of an exported name.
pub fn index_of(name: &CStr) -> Option<usize> {
    let mut slot = hash(name.to_bytes());
    loop {
        let index = usize::from(TABLE[slot]).checked_sub(1)?;
        if HOOKS[index].name == name {
            return Some(index);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// Whether a name begins as every hooked name does; nearly all look-ups of a process end here.
///
/// # Safety
/// `name` is null or a C string.
#[inline]
pub unsafe fn may_be_hooked(name: *const c_char) -> bool {
    if name.is_null() {
        return false;
    }
    let name = name.cast::<u8>();
    // SAFETY: a C string has a first byte, and each next one while none before it is NUL.
    unsafe {
        match *name {
            b'c' => *name.add(1) == b'u',
            b'n' => *name.add(1) == b'v' && *name.add(2) == b'm' && *name.add(3) == b'l',
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_is_found_by_its_name_and_no_other() {
        for (index, hook) in HOOKS.iter().enumerate() {
            assert_eq!(index_of(hook.name), Some(index));
            // SAFETY: a C string.
            assert!(unsafe { may_be_hooked(hook.name.as_ptr()) });
        }
        assert_eq!(index_of(c"cuMemcpyHtoD_v2"), None);
        assert_eq!(index_of(c"cu"), None);
    }
}
