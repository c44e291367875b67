//! How much of the device a kernel could fill: plain sums over 2048 threads and 32 blocks a multiprocessor.

use crate::api::{In, Out, cuda_api};
use crate::attributes;
use crate::codes::{CUresult, INVALID_VALUE};
use crate::ctx;
use crate::launch::Config;
use crate::modules::{self, Handle};

const THREADS: i32 = 2048;
const BLOCKS: i32 = 32;

fn multiprocessors() -> i32 {
    const COUNT: i32 = 16;
    ctx::current().and_then(|context| attributes::value(COUNT, context.device())).unwrap_or(1)
}

fn active_blocks(out: Out<i32>, function: Handle, block: i32) -> CUresult {
    if out.is_null() || !(1..=1024).contains(&block) {
        return INVALID_VALUE;
    }
    modules::function(function).map_or_else(|code| code, |_| out.answer((THREADS / block).min(BLOCKS)))
}

fn best_block(grid: Out<i32>, block: Out<i32>, function: Handle, limit: i32) -> CUresult {
    if grid.is_null() || block.is_null() {
        return INVALID_VALUE;
    }
    let size = if limit > 0 { limit.min(1024) } else { 1024 };
    match modules::function(function) {
        Ok(_) => {
            grid.set(multiprocessors() * (THREADS / size).min(BLOCKS));
            block.answer(size)
        }
        Err(code) => code,
    }
}

cuda_api! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, function: Handle, block: i32, _shared: usize) -> CUresult {
        active_blocks(out, function, block)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Out<i32>, function: Handle, block: i32, _shared: usize, _flags: u32) -> CUresult {
        active_blocks(out, function, block)
    }

    fn cuOccupancyMaxPotentialBlockSize(grid: Out<i32>, block: Out<i32>, function: Handle, _shared_of: usize, _shared: usize, limit: i32) -> CUresult {
        best_block(grid, block, function, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(grid: Out<i32>, block: Out<i32>, function: Handle, _shared_of: usize, _shared: usize, limit: i32, _flags: u32) -> CUresult {
        best_block(grid, block, function, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(out: Out<usize>, function: Handle, _blocks: i32, _block: i32) -> CUresult {
        modules::function(function).map_or_else(|code| code, |_| out.answer(49152))
    }

    fn cuOccupancyMaxPotentialClusterSize(out: Out<i32>, function: Handle, _config: In<Config>) -> CUresult {
        modules::function(function).map_or_else(|code| code, |_| out.answer(8))
    }

    /// cuBLAS 13 asks without a function.
    fn cuOccupancyMaxActiveClusters(out: Out<i32>, function: Handle, _config: In<Config>) -> CUresult {
        if function == 0 {
            return out.answer(multiprocessors());
        }
        modules::function(function).map_or_else(|code| code, |_| out.answer(multiprocessors()))
    }
}
