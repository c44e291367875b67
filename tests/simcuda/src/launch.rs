//! Launches: checked, counted, and done without any work.

use std::ffi::{c_char, c_void};

use crate::api::{In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE, NOT_SUPPORTED};
use crate::ctx::{self, Context};
use crate::graphs::Kind;
use crate::modules::{self, Handle};
use crate::streams;

/// `CUfunction_attribute`: the most threads, registers, versions of code, dynamic shared memory.
const MAX_THREADS: u32 = 0;
const REGISTERS: u32 = 4;
const PTX_VERSION: u32 = 5;
const BINARY_VERSION: u32 = 6;
const MAX_DYNAMIC_SHARED: u32 = 8;
const CARVEOUT: u32 = 9;
const ATTRIBUTES: u32 = 16;

/// A kernel runs in `context`, or in the current one: local memory is taken for the first.
pub fn first_launch(context: Option<&'static Context>) -> Result<(), CUresult> {
    context.map_or_else(ctx::require, Ok)?.launch()
}

/// Grid, block, dynamic shared memory.
type Shape = ([u32; 3], [u32; 3], u32);

fn launch(function: Handle, (grid, block, shared): Shape, stream: streams::Handle) -> CUresult {
    let run = || {
        modules::function(function)?;
        let context = streams::resolve(stream)?.context();
        let threads: u64 = block.iter().map(|side| u64::from(*side)).product();
        if grid.contains(&0) || threads == 0 || threads > 1024 || shared > 232_448 {
            return Err(INVALID_VALUE);
        }
        match streams::enqueue(stream)? {
            Some(capture) => {
                capture.graph.add(Kind::Kernel, None);
                Ok(())
            }
            None => first_launch(Some(context)),
        }
    };
    crate::api::code(run())
}

fn attribute(function: Handle, attribute: u32) -> Result<i32, CUresult> {
    let function = modules::function(function)?;
    if let Some(set) = function.attributes.lock().get(&attribute) {
        return Ok(*set);
    }
    let (major, minor) = simdevice::Knobs::get().compute_capability;
    Ok(match attribute {
        MAX_THREADS => 1024,
        REGISTERS => 32,
        PTX_VERSION | BINARY_VERSION => (10 * major + minor).cast_signed(),
        MAX_DYNAMIC_SHARED => 49152,
        CARVEOUT => -1,
        known if known < ATTRIBUTES => 0,
        _ => return Err(INVALID_VALUE),
    })
}

fn get_attribute(out: Out<i32>, which: u32, function: Handle) -> CUresult {
    if out.is_null() {
        return INVALID_VALUE;
    }
    attribute(function, which).map_or_else(|code| code, |value| out.answer(value))
}

fn set_attribute(function: Handle, which: u32, value: i32) -> CUresult {
    match modules::function(function) {
        Ok(_) if !(MAX_DYNAMIC_SHARED..ATTRIBUTES).contains(&which) => INVALID_VALUE,
        Ok(function) => {
            function.attributes.lock().insert(which, value);
            0
        }
        Err(code) => code,
    }
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: streams::Handle,
    attributes: usize,
    count: u32,
}

cuda_api! {
    fn cuLaunchKernel, cuLaunchKernel_ptsz(function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: streams::Handle, _params: *const c_void, _extra: *const c_void) -> CUresult {
        launch(function, ([gx, gy, gz], [bx, by, bz], shared), stream)
    }

    fn cuLaunchKernelEx, cuLaunchKernelEx_ptsz(config: In<Config>, function: Handle, _params: *const c_void, _extra: *const c_void) -> CUresult {
        match config.get() {
            Some(config) => launch(function, (config.grid, config.block, config.shared), config.stream),
            None => INVALID_VALUE,
        }
    }

    fn cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz(function: Handle, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: streams::Handle, _params: *const c_void) -> CUresult {
        launch(function, ([gx, gy, gz], [bx, by, bz], shared), stream)
    }

    /// The oldest way: the shape comes with a call of its own and is not kept.
    fn cuLaunch(function: Handle) -> CUresult {
        launch(function, ([1; 3], [1; 3], 0), 0)
    }

    fn cuLaunchGrid(function: Handle, width: i32, height: i32) -> CUresult {
        launch(function, ([width.unsigned_abs(), height.unsigned_abs(), 1], [1; 3], 0), 0)
    }

    fn cuFuncSetBlockShape(function: Handle, x: i32, y: i32, z: i32) -> CUresult {
        if x < 1 || y < 1 || z < 1 { INVALID_VALUE } else { modules::function(function).err().unwrap_or(0) }
    }

    fn cuFuncSetSharedSize, cuParamSetSize(function: Handle, _bytes: u32) -> CUresult {
        modules::function(function).err().unwrap_or(0)
    }

    fn cuParamSeti(function: Handle, _offset: i32, _value: u32) -> CUresult {
        modules::function(function).err().unwrap_or(0)
    }

    fn cuParamSetv(function: Handle, _offset: i32, _value: *const c_void, _bytes: u32) -> CUresult {
        modules::function(function).err().unwrap_or(0)
    }

    fn cuFuncGetAttribute(out: Out<i32>, which: u32, function: Handle) -> CUresult {
        get_attribute(out, which, function)
    }

    fn cuFuncSetAttribute(function: Handle, which: u32, value: i32) -> CUresult {
        set_attribute(function, which, value)
    }

    fn cuKernelGetAttribute(out: Out<i32>, which: u32, kernel: Handle, device: i32) -> CUresult {
        crate::devices::machine(device).err().unwrap_or_else(|| get_attribute(out, which, kernel))
    }

    fn cuKernelSetAttribute(which: u32, value: i32, kernel: Handle, device: i32) -> CUresult {
        crate::devices::machine(device).err().unwrap_or_else(|| set_attribute(kernel, which, value))
    }

    fn cuFuncSetCacheConfig, cuFuncSetSharedMemConfig(function: Handle, _config: u32) -> CUresult {
        modules::function(function).err().unwrap_or(0)
    }

    fn cuFuncGetName, cuKernelGetName(out: Out<*const c_char>, function: Handle) -> CUresult {
        // The text lives as long as the function.
        modules::function(function).map_or_else(|code| code, |function| out.answer(function.name.as_ptr()))
    }

    /// Always loaded.
    fn cuFuncIsLoaded(out: Out<u32>, function: Handle) -> CUresult {
        modules::function(function).map_or_else(|code| code, |_| out.answer(1))
    }

    fn cuFuncLoad(function: Handle) -> CUresult {
        modules::function(function).err().unwrap_or(0)
    }

    fn cuLaunchCooperativeKernelMultiDevice(_list: *const c_void, _count: u32, _flags: u32) -> CUresult {
        NOT_SUPPORTED
    }
}
