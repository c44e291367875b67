//! The map from the addresses of the driver's functions to the hooks in front of them.
//!
//! An open-addressing table of single words, so that reading and adding need no lock. Nothing is ever removed: the driver
//! stays loaded.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::hooks::COUNT;

const SLOTS: usize = (COUNT * 8).next_power_of_two();

/// Address << 16 | hook + 1; 0 = free. Addresses of programs have 47 bits (48 where a program asked for five-level paging
/// by hint, which no loader does).
static TABLE: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

fn start(address: usize) -> usize {
    // Functions are 16-byte aligned as a rule.
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SLOTS.trailing_zeros())
}

/// Notes that `address` is a function behind hook `index`. The first hook of an address keeps it.
pub fn note(address: usize, index: usize) {
    let entry = address << 16 | (index + 1);
    for step in 0..SLOTS / 2 {
        let slot = &TABLE[(start(address) + step) % SLOTS];
        match slot.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(other) if other >> 16 == address => return,
            Err(_) => {}
        }
    }
}

/// The hook in front of the function at `address`.
pub fn hook_at(address: usize) -> Option<usize> {
    for step in 0..SLOTS / 2 {
        let entry = TABLE[(start(address) + step) % SLOTS].load(Ordering::Acquire);
        if entry == 0 {
            return None;
        }
        if entry >> 16 == address {
            return Some((entry & 0xffff) - 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_its_first_hook_and_unknown_ones_to_none() {
        for index in 0..COUNT {
            note(0x7f12_3456_0000 + 16 * index, index);
            note(0x7f12_3456_0000 + 16 * index, index + 1);
        }
        for index in 0..COUNT {
            assert_eq!(hook_at(0x7f12_3456_0000 + 16 * index), Some(index));
            assert_eq!(hook_at(0x7f12_3456_0008 + 16 * index), None);
        }
    }
}
