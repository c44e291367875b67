//! The live blocks of the driver by their address: how large, of which kind, whose.
//!
//! A block is one word of the [page map](crate::pagemap), so keeping and finding it takes no lock and no allocation. Sizes that the
//! word can't express exactly, which no driver block has, are kept beside it.

#[cfg(all(test, not(loom)))]
mod tests;

use crate::pagemap::{PageMap, VALUE_BITS};
use crate::sync::Mutex;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
/// The step of block sizes below 1 MiB.
pub const SMALL_STEP: u64 = 512;
/// The step of block sizes from 1 MiB on, and the page that smaller ones share.
pub const LARGE_STEP: u64 = 2 * MIB;

/// The size of the driver's block for a request: 512-byte steps below 1 MiB, 2 MiB multiples from there. `None` beyond 64 bits.
/// Observed, not documented: small blocks lie at multiples of 512 bytes, large ones at 2 MiB boundaries.
#[inline]
#[must_use]
pub const fn block_size(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(if bytes < MIB { SMALL_STEP } else { LARGE_STEP })
}

/// Which entry point a block came from, as far as its release or its charge depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// cuMemAlloc; `owner` is a context.
    Linear = 1,
    /// cuMemAllocPitch; `owner` is a context.
    Pitch = 2,
    /// cuMemAllocManaged; `owner` is a context.
    Managed = 3,
    /// Stream-ordered; `owner` is a pool, which carries the charge.
    Pool = 4,
}

impl Kind {
    const fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits {
            1 => Self::Linear,
            2 => Self::Pitch,
            3 => Self::Managed,
            4 => Self::Pool,
            _ => return None,
        })
    }
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bytes, as charged.
    pub size: u64,
    /// Where it came from.
    pub kind: Kind,
    /// Slot of the context or pool that it belongs to.
    pub owner: u16,
}

/// What one owner lost in a [`Ledger::purge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purged {
    /// The owner's slot.
    pub owner: u16,
    /// Its blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All live blocks of the process, of every device.
#[derive(Default)]
pub struct Ledger {
    map: PageMap,
    odd: Mutex<Odd>,
}

/// Sizes that a word can't hold, by a number of their own: an address may come round while its last entry is being removed.
#[derive(Default)]
struct Odd {
    next: u64,
    sizes: BTreeMap<u64, u64>,
}

// A word, from its low end: owner, kind (never 0, so no word is), unit, count of units.
const KIND_AT: u32 = 16;
const UNIT_AT: u32 = 20;
const COUNT_AT: u32 = 22;
const COUNT_BITS: u32 = VALUE_BITS - COUNT_AT;
/// What the count counts, by unit. The first does for every block below 512 GiB.
const UNITS: [u64; 3] = [SMALL_STEP, LARGE_STEP, 1];
/// The last unit: the count is a number in [`Odd`].
const ODD: u64 = 3;

impl Ledger {
    /// An empty ledger; it allocates from the first block on.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a block that the driver has just returned. What comes back was at that address and is gone without a free, with its
    /// context: its bytes are the caller's to release.
    #[inline]
    pub fn insert(&self, address: u64, block: Block) -> Option<Block> {
        let old = self.map.insert(address, block.size, self.pack(block))?;
        self.unpack(old, true)
    }

    /// The block that starts at exactly this address.
    #[inline]
    #[must_use]
    pub fn get(&self, address: u64) -> Option<Block> {
        self.unpack(self.map.get(address)?, false)
    }

    /// Removes the block that starts at exactly this address, before the driver is asked to free it. Of several callers one gets it.
    #[inline]
    pub fn take(&self, address: u64) -> Option<Block> {
        self.unpack(self.map.take(address)?, true)
    }

    /// Removes the block that starts at exactly this address if it is this one. Never one of an odd size, which no driver has.
    #[must_use]
    pub fn take_exactly(&self, address: u64, block: Block) -> bool {
        let rest = u64::from(block.owner) | (block.kind as u64) << KIND_AT;
        count(block.size, UNITS[0]).is_some_and(|count| self.map.take_exactly(address, count << COUNT_AT | rest))
    }

    /// Keeps a block again that the driver refused to free. False if the address has another one by now: then this one is gone.
    pub fn put_back(&self, address: u64, block: Block) -> bool {
        let value = self.pack(block);
        let kept = self.map.put_back(address, value);
        if !kept {
            self.unpack(value, true);
        }
        kept
    }

    /// Removes all blocks that `dies` accepts, and says what each owner lost, by owner.
    pub fn purge(&self, mut dies: impl FnMut(&Block) -> bool) -> Vec<Purged> {
        let mut sums = BTreeMap::<u16, (u64, u64)>::new();
        self.map.purge(
            |_, value| self.unpack(value, false).is_some_and(|block| dies(&block)),
            |_, value| {
                if let Some(block) = self.unpack(value, true) {
                    let (blocks, bytes) = sums.entry(block.owner).or_default();
                    *blocks += 1;
                    *bytes += block.size;
                }
            },
        );
        sums.into_iter().map(|(owner, (blocks, bytes))| Purged { owner, blocks, bytes }).collect()
    }

    /// Makes the blocks of one owner another's; those that come meanwhile may be missed. Not those of pools.
    pub fn change_owner(&self, from: u16, to: u16) {
        self.map.change(|value| {
            let pool = value >> KIND_AT & 0xf == Kind::Pool as u64;
            (value & 0xffff == u64::from(from) && !pool).then(|| value & !0xffff | u64::from(to))
        });
    }

    /// Calls `each` with every block and its address; those that come or go meanwhile may be missed or seen.
    pub fn for_each(&self, mut each: impl FnMut(u64, Block)) {
        self.map.for_each(|address, value| {
            if let Some(block) = self.unpack(value, false) {
                each(address, block);
            }
        });
    }

    #[inline]
    fn pack(&self, block: Block) -> u64 {
        let rest = u64::from(block.owner) | (block.kind as u64) << KIND_AT;
        let size = match count(block.size, UNITS[0]) {
            Some(count) => count << COUNT_AT,
            None => self.pack_unusual(block.size),
        };
        size | rest
    }

    #[cold]
    fn pack_unusual(&self, size: u64) -> u64 {
        let fits = (0u64..).zip(UNITS).find_map(|(unit, bytes)| Some((unit, count(size, bytes)?)));
        let (unit, count) = fits.unwrap_or_else(|| (ODD, self.keep_odd(size)));
        count << COUNT_AT | unit << UNIT_AT
    }

    /// The block of a word; `gone` when the word was removed, so that nothing of it stays.
    #[inline]
    fn unpack(&self, value: u64, gone: bool) -> Option<Block> {
        let (count, unit) = (value >> COUNT_AT, value >> UNIT_AT & 3);
        let size = if unit == 0 { count * UNITS[0] } else { self.unpack_unusual(count, unit, gone)? };
        let owner = (value & 0xffff) as u16;
        Some(Block { size, kind: Kind::from_bits(value >> KIND_AT & 0xf)?, owner })
    }

    #[cold]
    fn unpack_unusual(&self, count: u64, unit: u64, gone: bool) -> Option<u64> {
        match unit {
            1 => Some(count * UNITS[1]),
            2 => Some(count * UNITS[2]),
            _ => self.odd_size(count, gone),
        }
    }

    fn keep_odd(&self, size: u64) -> u64 {
        let mut odd = self.odd.lock();
        let number = odd.next;
        // Comes round after 2^30 odd blocks; the oldest is long gone then.
        odd.next = (number + 1) & ((1 << COUNT_BITS) - 1);
        odd.sizes.insert(number, size);
        number
    }

    fn odd_size(&self, number: u64, gone: bool) -> Option<u64> {
        let mut odd = self.odd.lock();
        if gone { odd.sizes.remove(&number) } else { odd.sizes.get(&number).copied() }
    }
}

/// A size in units, if it is a whole number of them that fits.
#[inline]
fn count(size: u64, unit: u64) -> Option<u64> {
    let count = size / unit;
    (size.is_multiple_of(unit) && count >> COUNT_BITS == 0).then_some(count)
}
