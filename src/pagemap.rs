//! Device address → value, lock-free: what the driver's live blocks are found by.
//!
//! A radix tree over the address: bits 47..35 choose a region, 34..21 a 2 MiB page in it, 20..15 a 32 KiB group of the page, 14..9
//! one of the group's 64 places. Pages and groups have a cell of their own for any of their blocks and eight more that an address
//! is hashed to: large blocks need nothing below their page, and groups and places exist only where blocks crowd. A block stays in
//! its cell until it is taken by one compare-and-swap, so of any number of takers exactly one wins.
//!
//! Nodes are never freed: an emptied group serves the next blocks at its addresses, and drivers hand out an address again
//! before they move on. Addresses from 2^48 on and those off the 512-byte grid go to a locked map beside the tree.
//!
//! The one thing relied on: the driver has at most one live block at an address, so no two threads insert the same one at once.

#[cfg(all(test, loom))]
mod models;
mod stray;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;

use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Release};
use once_cell::race::OnceBox;
use stray::Stray;
use tree::Root;

/// Bits that a value may use; the other 12 of a word say which of its page's 512-byte steps it is for.
pub const VALUE_BITS: u32 = 52;

const STEP_BITS: u32 = u64::BITS - VALUE_BITS;
const PAGE: u64 = 512 << STEP_BITS;

/// The map. Values are nonzero and below 2^[`VALUE_BITS`].
#[derive(Default)]
pub struct PageMap {
    root: OnceBox<Root>,
    stray: Stray,
}

impl PageMap {
    /// An empty map; it allocates from the first insertion on.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts the value of a block at an address and returns what was there. Something was there only if its owner died without a
    /// free. `size` is the block's bytes, rounded up by less than 2 MiB at most.
    #[inline]
    pub fn insert(&self, address: u64, size: u64, value: u64) -> Option<u64> {
        let Some(word) = word(address, value) else {
            return self.stray.insert(address, value);
        };
        let page = tree::page_or_new(self.root.get_or_init(tree::filled), address);
        // No other block can come into a page that this one covers for certain, so its cell needs no compare-and-swap.
        let covered = address.is_multiple_of(PAGE) && size >= 2 * PAGE;
        let mut free = None;
        let old = tree::find(page, address, |cell, alone| {
            let now = cell.load(Acquire);
            if now == 0 && free.is_none() {
                free = Some((cell, alone || covered));
            }
            if holds(now, address) { replace(cell, now, word) } else { None }
        });
        match (old, free) {
            (Some(_), _) => old,
            // Only a thread that just now put back what it had taken before the address came round could be here too.
            (None, Some((cell, true))) => {
                cell.store(word, Release);
                None
            }
            (None, Some((cell, false))) if claim(cell, word) => None,
            (None, _) => {
                let place = tree::offer(page, address, |cell| claim(cell, word))?;
                Some(place.swap(word, AcqRel) >> STEP_BITS).filter(|&old| old != 0)
            }
        }
    }

    /// Puts a value back that [`PageMap::take`] gave. False if the address has another one by now, which stays.
    pub fn put_back(&self, address: u64, value: u64) -> bool {
        let Some(word) = word(address, value) else {
            return self.stray.put_back(address, value);
        };
        let page = tree::page_or_new(self.root.get_or_init(tree::filled), address);
        tree::find(page, address, |cell, _| look(cell, address)).is_none()
            && tree::offer(page, address, |cell| claim(cell, word)).is_none_or(|place| claim(place, word))
    }

    /// The value at exactly this address.
    #[inline]
    #[must_use]
    pub fn get(&self, address: u64) -> Option<u64> {
        if !in_tree(address) {
            return self.stray.get(address);
        }
        tree::find(tree::page(self.root.get()?, address)?, address, |cell, _| look(cell, address))
    }

    /// Removes the value at exactly this address. Of several takers one gets it.
    #[inline]
    pub fn take(&self, address: u64) -> Option<u64> {
        if !in_tree(address) {
            return self.stray.take(address);
        }
        tree::find(tree::page(self.root.get()?, address)?, address, |cell, _| {
            let mut now = cell.load(Acquire);
            while holds(now, address) {
                match cell.compare_exchange_weak(now, 0, AcqRel, Acquire) {
                    Ok(_) => return Some(now >> STEP_BITS),
                    Err(changed) => now = changed,
                }
            }
            None
        })
    }

    /// Removes the value at an address if it is exactly this one.
    #[cold]
    pub fn take_exactly(&self, address: u64, value: u64) -> bool {
        let Some(word) = word(address, value) else {
            return self.stray.take_if(address, |now| now == value).is_some();
        };
        let page = self.root.get().and_then(|root| tree::page(root, address));
        page.is_some_and(|page| {
            tree::find(page, address, |cell, _| cell.compare_exchange(word, 0, AcqRel, Acquire).ok()).is_some()
        })
    }

    /// Calls `each` with every address and value; those that come or go meanwhile may be missed or seen.
    pub fn for_each(&self, mut each: impl FnMut(u64, u64)) {
        self.walk(|page, cell| {
            let now = cell.load(Acquire);
            if now != 0 {
                each(address(page, now), now >> STEP_BITS);
            }
        });
        self.stray.for_each(each);
    }

    /// Gives every value the one that `new` has for it, if any.
    pub fn change(&self, mut new: impl FnMut(u64) -> Option<u64>) {
        self.walk(|_, cell| {
            let mut now = cell.load(Acquire);
            while now != 0
                && let Some(value) = new(now >> STEP_BITS)
            {
                let word = value << STEP_BITS | now & ((1 << STEP_BITS) - 1);
                match cell.compare_exchange(now, word, AcqRel, Acquire) {
                    Ok(_) => break,
                    Err(changed) => now = changed,
                }
            }
        });
        self.stray.change(new);
    }

    /// Removes every value that `dies` accepts and calls `gone` with each that this call removed.
    pub fn purge(&self, mut dies: impl FnMut(u64, u64) -> bool, mut gone: impl FnMut(u64, u64)) {
        self.walk(|page, cell| {
            let mut now = cell.load(Acquire);
            while now != 0 && dies(address(page, now), now >> STEP_BITS) {
                match cell.compare_exchange(now, 0, AcqRel, Acquire) {
                    Ok(_) => {
                        gone(address(page, now), now >> STEP_BITS);
                        break;
                    }
                    Err(changed) => now = changed,
                }
            }
        });
        self.stray.purge(dies, gone);
    }

    /// Every cell of the tree, with the address of its page.
    fn walk(&self, each: impl FnMut(u64, &AtomicU64)) {
        if let Some(root) = self.root.get() {
            tree::walk(root, each);
        }
    }
}

/// Whether the tree covers this address.
#[inline]
fn in_tree(address: u64) -> bool {
    address >> 48 == 0 && address & 511 == 0
}

/// Which 512-byte step of its page an address is.
#[inline]
fn step(address: u64) -> u64 {
    (address >> 9) & ((1 << STEP_BITS) - 1)
}

/// What a cell holds for this value at this address; `None` if the tree does not cover it.
#[inline]
fn word(address: u64, value: u64) -> Option<u64> {
    debug_assert!(value != 0 && value >> VALUE_BITS == 0);
    in_tree(address).then_some(value << STEP_BITS | step(address))
}

/// The address that a cell's word in a page is for.
fn address(page: u64, word: u64) -> u64 {
    page + (word & ((1 << STEP_BITS) - 1)) * 512
}

#[inline]
fn holds(word: u64, address: u64) -> bool {
    word != 0 && word & ((1 << STEP_BITS) - 1) == step(address)
}

#[inline]
fn look(cell: &AtomicU64, address: u64) -> Option<u64> {
    let now = cell.load(Acquire);
    holds(now, address).then_some(now >> STEP_BITS)
}

/// Replaces a word that a cell held for the same address; `None` if that one was purged meanwhile.
#[cold]
fn replace(cell: &AtomicU64, old: u64, word: u64) -> Option<u64> {
    cell.compare_exchange(old, word, AcqRel, Acquire).ok().map(|old| old >> STEP_BITS)
}

/// Puts a word in a cell that is free.
#[inline]
fn claim(cell: &AtomicU64, word: u64) -> bool {
    cell.load(Acquire) == 0 && cell.compare_exchange(0, word, AcqRel, Acquire).is_ok()
}
