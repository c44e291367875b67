//! A 2 MiB page that small blocks share: which units of it are taken, by blocks of what size.

use simdevice::Knobs;

use crate::units::{PAGE, to_usize};

/// Lengths of free runs are told apart by their power of two.
pub const CLASSES: usize = 14;

/// One shared page. A unit is `SIMCUDA_GRAN` bytes.
pub struct SmallPage {
    taken: Box<[u64]>,
    /// What was asked for, by the block's first unit; 0 elsewhere.
    asked: Box<[u32]>,
    /// Units that blocks hold.
    live: u32,
    /// No free run is longer.
    longest: u32,
    /// No free unit lies before it.
    first_free: u32,
    /// Where the page is in the lists of pages with room ([`crate::heap`]).
    pub listed: Option<(usize, usize)>,
}

/// Units of a page.
pub fn units() -> u32 {
    u32::try_from(PAGE / Knobs::get().granularity).unwrap_or(u32::MAX)
}

/// Units that a block of `bytes` takes.
pub fn units_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(Knobs::get().granularity)).unwrap_or(u32::MAX)
}

/// The class of runs of `units` units.
pub fn class(units: u32) -> usize {
    to_usize(u64::from(units.max(1).ilog2()))
}

impl SmallPage {
    pub fn new() -> SmallPage {
        let units = units();
        SmallPage {
            taken: vec![0; to_usize(u64::from(units.div_ceil(64)))].into_boxed_slice(),
            asked: vec![0; to_usize(u64::from(units))].into_boxed_slice(),
            live: 0,
            longest: units,
            first_free: 0,
            listed: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The class of its longest free run, `None` if it is full.
    pub fn class(&self) -> Option<usize> {
        (self.longest > 0 && self.live < units()).then(|| class(self.longest))
    }

    /// Places a block of `bytes`; its offset in bytes.
    pub fn place(&mut self, bytes: u32) -> Option<u64> {
        let wanted = units_of(u64::from(bytes));
        if wanted > self.longest {
            return None;
        }
        let Some(first) = self.find(wanted) else {
            self.longest = wanted - 1;
            return None;
        };
        self.mark(first, wanted, true);
        self.asked[to_usize(u64::from(first))] = bytes;
        self.live += wanted;
        if first == self.first_free {
            self.first_free = first + wanted;
        }
        Some(u64::from(first) * Knobs::get().granularity)
    }

    /// Removes the block that begins at `offset`; what was asked for it.
    pub fn remove(&mut self, offset: u64) -> Option<u32> {
        let granularity = Knobs::get().granularity;
        if !offset.is_multiple_of(granularity) {
            return None;
        }
        let first = u32::try_from(offset / granularity).ok()?;
        let asked = std::mem::take(self.asked.get_mut(to_usize(u64::from(first)))?);
        if asked == 0 {
            return None;
        }
        let length = units_of(u64::from(asked));
        self.mark(first, length, false);
        self.live -= length;
        self.first_free = self.first_free.min(first);
        let end = self.run_end(first + length, false);
        self.longest = self.longest.max(end - self.run_start(first));
        Some(asked)
    }

    /// The block that `offset` lies in: its offset and what was asked for it.
    pub fn find_block(&self, offset: u64) -> Option<(u64, u32)> {
        let granularity = Knobs::get().granularity;
        let unit = to_usize(offset / granularity);
        // A block has 1 MiB at most.
        let lowest = (unit + 1).saturating_sub(to_usize(PAGE / 2 / granularity));
        let first = (lowest..=unit).rev().find(|unit| self.asked[*unit] != 0)?;
        let asked = self.asked[first];
        let start = first as u64 * granularity;
        (offset < start + u64::from(units_of(u64::from(asked))) * granularity).then_some((start, asked))
    }

    /// Sum of the block sizes, for a context that goes with everything in it.
    pub fn live_bytes(&self) -> u64 {
        u64::from(self.live) * Knobs::get().granularity
    }

    /// Forgets every block.
    pub fn clear(&mut self) {
        self.taken.fill(0);
        self.asked.fill(0);
        (self.live, self.longest, self.first_free) = (0, units(), 0);
        self.listed = None;
    }

    fn find(&self, wanted: u32) -> Option<u32> {
        let mut from = self.first_free;
        while from + wanted <= units() {
            let start = self.run_end(from, true);
            let end = self.run_end(start, false);
            if end - start >= wanted {
                return Some(start);
            }
            from = end;
        }
        None
    }

    /// The first unit from `from` on that is not (`taken`): end of a run of equal units.
    fn run_end(&self, from: u32, taken: bool) -> u32 {
        let mut unit = from;
        while unit < units() {
            let word = self.taken[to_usize(u64::from(unit / 64))];
            let other = if taken { !word } else { word } >> (unit % 64);
            if other != 0 {
                return (unit + other.trailing_zeros()).min(units());
            }
            unit = (unit / 64 + 1) * 64;
        }
        units()
    }

    /// The first unit of the free run that ends before `unit`.
    fn run_start(&self, unit: u32) -> u32 {
        let mut start = unit;
        while start > 0 {
            let last = start - 1;
            let word = self.taken[to_usize(u64::from(last / 64))] << (63 - last % 64);
            if word != 0 {
                return start.saturating_sub(word.leading_zeros());
            }
            start = last / 64 * 64;
        }
        0
    }

    fn mark(&mut self, first: u32, length: u32, taken: bool) {
        let mut unit = first;
        let end = first + length;
        while unit < end {
            let bits = (64 - unit % 64).min(end - unit);
            let mask = (u64::MAX >> (64 - bits)) << (unit % 64);
            let word = &mut self.taken[to_usize(u64::from(unit / 64))];
            if taken {
                *word |= mask
            } else {
                *word &= !mask
            }
            unit += bits;
        }
    }
}
