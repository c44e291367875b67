//! The program's arrays by their handles: how large, whose. Arrays are rare, so one lock does.
//!
//! Levels and planes of an array have handles of their own, which are not in here: they are other names of the same memory.

use std::collections::HashMap;

use crate::sync::Mutex;

/// One array, with or without mipmaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Array {
    /// Bytes, as charged.
    pub bytes: u64,
    /// Slot of the context that it dies with.
    pub owner: u16,
}

/// All living arrays of the process.
#[derive(Debug, Default)]
pub struct Arrays {
    arrays: Mutex<HashMap<u64, Array>>,
}

impl Arrays {
    /// Keeps an array that the driver has just made; returns the one that the books still had under this handle, which
    /// died past us.
    pub fn created(&self, handle: u64, array: Array) -> Option<Array> {
        self.arrays.lock().insert(handle, array)
    }

    /// Forgets an array that is about to be destroyed: its handle may be another's as soon as the driver has it back.
    pub fn take(&self, handle: u64) -> Option<Array> {
        self.arrays.lock().remove(&handle)
    }

    /// The driver refused to destroy it. False where the handle is another array's by now.
    pub fn put_back(&self, handle: u64, array: Array) -> bool {
        let arrays = &mut *self.arrays.lock();
        let free = !arrays.contains_key(&handle);
        if free {
            arrays.insert(handle, array);
        }
        free
    }

    /// Makes the arrays of one slot another's.
    pub fn change_owner(&self, from: u16, to: u16) {
        for array in self.arrays.lock().values_mut() {
            if array.owner == from {
                array.owner = to;
            }
        }
    }

    /// Forgets the arrays of dead contexts: their bytes.
    pub fn purge(&self, slots: &[u16]) -> u64 {
        let arrays = &mut *self.arrays.lock();
        let dead = |array: &Array| slots.contains(&array.owner);
        let bytes = arrays.values().filter(|array| dead(array)).map(|array| array.bytes).sum();
        arrays.retain(|_, array| !dead(array));
        bytes
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_known_until_it_is_taken_or_its_context_dies() {
        let arrays = Arrays::default();
        let [one, two] = [1, 2].map(|owner| Array { bytes: 100, owner });
        assert_eq!(arrays.created(7, one), None);
        assert_eq!(arrays.created(8, two), None);
        assert_eq!(arrays.take(7), Some(one));
        assert_eq!(arrays.take(7), None);
        assert!(arrays.put_back(7, one));
        assert!(!arrays.put_back(8, one));
        assert_eq!(arrays.purge(&[1]), 100);
        assert_eq!(arrays.created(8, one), Some(two));
    }
}
