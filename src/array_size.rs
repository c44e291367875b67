//! How much memory an array takes: element sizes by format, and an estimate of the driver's block-linear layout.
//!
//! What a GPU really takes is not documented. The estimate: rows are padded to 64 bytes and, where there are several, to a
//! multiple of 8; all levels, layers and slices are summed up and rounded to 64 KiB, and the driver's block for that is
//! taken like any other. Formats are `CUarray_format`, flags `CUDA_ARRAY3D_*` of cuda.h 13.5.

use crate::ledger::block_size;

/// Bytes that a row is a multiple of.
const ROW: u64 = 64;
/// Rows that the layout goes by.
const ROWS: u64 = 8;
/// Bytes that an array is a multiple of.
const TILE: u64 = 64 << 10;

/// `CUDA_ARRAY3D_LAYERED`: the depth counts layers.
const LAYERED: u32 = 0x01;
/// `CUDA_ARRAY3D_CUBEMAP`: the depth counts sides.
const CUBEMAP: u32 = 0x04;
/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: the program maps memory of its own.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// What an array is to be: `CUDA_ARRAY3D_DESCRIPTOR`. Sizes in elements; 0 is no such dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Elements in a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Slices, layers, or sides of cubes.
    pub depth: u64,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

/// How elements of a format lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    /// Elements that one unit has in a row, and its rows; more than one in compressed formats.
    across: u64,
    down: u64,
    /// Bytes of a unit.
    bytes: u64,
    /// Rows of colour for every two rows of the picture, in planar formats.
    colour: u64,
}

impl Layout {
    const fn plain(bytes: u64) -> Layout {
        Layout { across: 1, down: 1, bytes, colour: 0 }
    }

    const fn planar(bytes: u64, colour: u64) -> Layout {
        Layout { across: 1, down: 1, bytes, colour }
    }

    const fn compressed(bytes: u64) -> Layout {
        Layout { across: 4, down: 4, bytes, colour: 0 }
    }

    /// The layout of a format, and whether every driver from CUDA 11.8 on knows it.
    fn of(format: u32, channels: u32) -> (Layout, bool) {
        let channels = u64::from(channels);
        let known = |layout| (layout, true);
        let newer = |layout| (layout, false);
        match format {
            // 8, 16 and 32 bits, and their normalized kinds.
            0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => known(Layout::plain(channels)),
            0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => known(Layout::plain(2 * channels)),
            0x03 | 0x0a | 0x20 => known(Layout::plain(4 * channels)),
            // BC1 and BC4 have 8 bytes for 4 × 4 elements, the others 16.
            0x91 | 0x92 | 0x97 | 0x98 => known(Layout::compressed(8)),
            0x93..=0x96 | 0x99..=0x9e => known(Layout::compressed(16)),
            // NV12, and the same with 10 and 16 bits; a row of colour (two values for two elements) for two rows.
            0xb0 => known(Layout::planar(1, 1)),
            0x53 | 0x59 => newer(Layout::planar(1, 1)),
            0x9f | 0xa1 | 0x54 | 0x5a => newer(Layout::planar(2, 1)),
            // 4:2:2 in planes: a row of colour for each row.
            0xa2 | 0x55 | 0x5b => newer(Layout::planar(1, 2)),
            0xa3 | 0xa4 | 0x56 | 0x5c => newer(Layout::planar(2, 2)),
            // 4:4:4 in planes: two rows.
            0xb2 | 0xb4 | 0x57 | 0x5d => newer(Layout::planar(1, 4)),
            0xb3 | 0xb5 | 0x58 | 0x5e => newer(Layout::planar(2, 4)),
            // 4:2:2 packed: brightness and one colour for each element.
            0xa5 | 0x51 => newer(Layout::plain(2)),
            0xa6 | 0xa7 => newer(Layout::plain(4)),
            // 4:4:4 packed, and 10:10:10:2.
            0xa8 | 0xa9 | 0x50 | 0x52 => newer(Layout::plain(4)),
            0xb1 => newer(Layout::plain(8)),
            // A format of a newer driver counts with the widest channels that there are.
            _ => newer(Layout::plain(4 * channels)),
        }
    }
}

impl Shape {
    /// Bytes of the driver's block for an array of this shape with `levels` levels (1 for one without mipmaps); 0 where
    /// the program brings the memory. `None` beyond 64 bits.
    #[must_use]
    pub fn block(&self, levels: u32) -> Option<u64> {
        if self.flags & WITHOUT_MEMORY != 0 {
            return Some(0);
        }
        let sum = (0..levels.min(self.most_levels()))
            .try_fold(0_u64, |sum, level| sum.checked_add(self.level(level).bytes()?))?;
        block_size(sum.checked_next_multiple_of(TILE)?)
    }

    /// Whether any driver would get as far as looking for memory for it.
    #[must_use]
    pub fn is_sound(&self, levels: u32) -> bool {
        let channels = matches!(self.channels, 1 | 2 | 4) || (self.channels == 3 && self.format >= 0x91);
        self.width > 0 && levels > 0 && channels && Layout::of(self.format, self.channels).1
    }

    /// Levels until all dimensions are 1; a program may ask for more and gets these.
    fn most_levels(&self) -> u32 {
        self.width.max(self.height).max(self.depth).max(1).ilog2() + 1
    }

    /// The shape of a level.
    fn level(&self, level: u32) -> Shape {
        let half = |size: u64| if size == 0 { 0 } else { (size >> level).max(1) };
        let layers = self.flags & (LAYERED | CUBEMAP) != 0;
        Shape {
            width: half(self.width),
            height: half(self.height),
            depth: if layers { self.depth } else { half(self.depth) },
            ..*self
        }
    }

    /// Bytes of this level alone.
    fn bytes(&self) -> Option<u64> {
        let (layout, _) = Layout::of(self.format, self.channels);
        let height = self.height.max(1);
        let colour = height.checked_mul(layout.colour)?.div_ceil(2);
        let rows = height.checked_add(colour)?.div_ceil(layout.down);
        let rows = if self.height <= 1 { rows } else { rows.checked_next_multiple_of(ROWS)? };
        let row = self.width.div_ceil(layout.across).checked_mul(layout.bytes)?;
        row.checked_next_multiple_of(ROW)?.checked_mul(rows)?.checked_mul(self.depth.max(1))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const FLOAT: u32 = 0x20;

    fn flat(width: u64, height: u64, format: u32, channels: u32) -> Shape {
        Shape { width, height, format, channels, ..Shape::default() }
    }

    #[test]
    fn elements_are_as_large_as_their_format_and_channels_say() {
        for (format, channels, bytes) in [
            (0x01, 1, 1),
            (0x02, 2, 4),
            (0x03, 4, 16),
            (0x10, 4, 8),
            (FLOAT, 1, 4),
            (0xc2, 4, 4),
            (0xcb, 4, 8),
            (0xb1, 4, 8),
        ] {
            let shape = flat(1024, 1024, format, channels);
            assert_eq!(shape.block(1), Some(bytes * MIB).and_then(block_size), "format {format:#x}");
        }
    }

    #[test]
    fn compressed_formats_count_blocks_of_sixteen_elements() {
        assert_eq!(flat(4096, 4096, 0x91, 4).block(1), Some(8 * MIB));
        assert_eq!(flat(4096, 4096, 0x9e, 4).block(1), Some(16 * MIB));
        assert_eq!(flat(5, 5, 0x93, 4).block(1), Some(64 * KIB));
    }

    #[test]
    fn planar_formats_have_rows_of_colour_below() {
        assert_eq!(flat(4096, 4096, 0xb0, 3).block(1), Some(24 * MIB));
        assert_eq!(flat(4096, 4096, 0x9f, 3).block(1), Some(48 * MIB));
        assert_eq!(flat(4096, 4096, 0xa2, 3).block(1), Some(32 * MIB));
        assert_eq!(flat(4096, 4096, 0xb3, 3).block(1), Some(96 * MIB));
    }

    #[test]
    fn rows_are_padded_to_64_bytes_and_eight_rows_and_the_sum_to_64_kib() {
        assert_eq!(flat(1, 0, 0x01, 1).block(1), Some(64 * KIB));
        assert_eq!(flat(1, 1025, 0x01, 1).block(1), Some(128 * KIB));
        assert_eq!(flat(65, 1024, 0x01, 1).block(1), Some(128 * KIB));
    }

    #[test]
    fn layers_and_sides_of_cubes_stay_as_many_on_every_level_and_slices_do_not() {
        let base = Shape { depth: 256, ..flat(64, 64, FLOAT, 4) };
        let layered = Shape { flags: LAYERED, ..base };
        assert_eq!(base.bytes(), Some(16 * MIB));
        assert_eq!(base.level(1).bytes(), Some(2 * MIB));
        assert_eq!(layered.level(1).bytes(), Some(4 * MIB));
        assert_eq!(base.block(1), layered.block(1));
        assert!(base.block(7) < layered.block(7));
    }

    #[test]
    fn levels_end_where_every_dimension_is_one() {
        let base = flat(1024, 1024, FLOAT, 4);
        assert_eq!(base.block(11), base.block(u32::MAX));
        assert_eq!(base.block(1), Some(16 * MIB));
        assert_eq!(base.block(2), Some(20 * MIB));
    }

    #[test]
    fn sparse_and_deferred_arrays_take_nothing() {
        for flags in [0x40, 0x80] {
            assert_eq!(Shape { flags, ..flat(1024, 1024, FLOAT, 4) }.block(5), Some(0));
        }
    }

    #[test]
    fn impossible_shapes_are_none_and_odd_ones_are_the_drivers_to_judge() {
        assert_eq!(flat(u64::MAX, 2, FLOAT, 4).block(1), None);
        assert_eq!(flat(1 << 63, 0, 0x01, 1).block(64), None);
        assert!(flat(1, 1, FLOAT, 4).is_sound(1));
        assert!(!flat(0, 1, FLOAT, 4).is_sound(1));
        assert!(!flat(1, 1, FLOAT, 3).is_sound(1));
        assert!(!flat(1, 1, FLOAT, 4).is_sound(0));
        assert!(!flat(1, 1, 0x7777, 4).is_sound(1));
    }
}
