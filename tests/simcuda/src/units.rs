//! Sizes: conversions and the driver's block sizes.

use simdevice::{Knobs, MIB};

/// What the device hands out: pages that small blocks share, and the step of large ones.
pub const PAGE: u64 = 2 * MIB;
/// From here on a block has pages to itself.
pub const LARGE: u64 = MIB;

/// A `usize` of the same value; the simulator is for 64-bit machines only.
#[allow(clippy::cast_possible_truncation, reason = "usize has 64 bits here")]
pub const fn to_usize(value: u64) -> usize {
    const { assert!(usize::BITS == 64) };
    value as usize
}

/// `bytes` rounded up to a multiple of `step`; `None` past the end of numbers.
pub fn round_up(bytes: u64, step: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(step)
}

/// The size of the driver's block for `bytes`: steps of `SIMCUDA_GRAN` below 1 MiB, 2 MiB multiples from there.
pub fn block_size(bytes: u64) -> Option<u64> {
    round_up(bytes, if bytes < LARGE { Knobs::get().granularity } else { PAGE })
}

/// Whole pages of `bytes`.
pub fn pages(bytes: u64) -> Option<u32> {
    u32::try_from(bytes.div_ceil(PAGE)).ok()
}
