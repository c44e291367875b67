//! Driver functions of contexts: creating, destroying, the stack of a thread, primary contexts.

use simdevice::Knobs;

use crate::api::{self, In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED};
use crate::ctx::{self, Handle};
use crate::units::to_usize;
use crate::{devices, pool};

/// Every CU_CTX_* flag of 13.5.
const FLAGS: u32 = 0xff;

/// `CUctxCreateParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CreateParams {
    affinity: usize,
    affinities: i32,
    graphics: usize,
}

fn create(out: Out<Handle>, flags: u32, device: i32, api_version: u32) -> CUresult {
    if out.is_null() || flags & !FLAGS != 0 || flags & 7 == 3 || flags & 7 > 4 {
        return INVALID_VALUE;
    }
    match ctx::create(device, flags, api_version) {
        Ok(context) => {
            ctx::push(context);
            out.answer(context.handle())
        }
        Err(code) => code,
    }
}

/// Waits for host functions; pools then give back what is above their thresholds.
fn synchronize() {
    crate::hostfn::drain();
    pool::synchronized();
}

/// Answers one fact about a context.
fn tell<T>(out: Out<T>, handle: Handle, fact: impl FnOnce(&'static ctx::Context) -> T) -> CUresult {
    match ctx::from_handle_or_current(handle) {
        Ok(context) => out.answer(fact(context)),
        Err(code) => code,
    }
}

cuda_api! {
    fn cuCtxCreate, cuCtxCreate_v2(out: Out<Handle>, flags: u32, device: i32) -> CUresult {
        create(out, flags, device, 3020)
    }

    /// Execution affinity is for MPS clients only.
    fn cuCtxCreate_v3(out: Out<Handle>, affinity: In<u8>, affinities: i32, flags: u32, device: i32) -> CUresult {
        if affinities < 0 || affinity.is_null() != (affinities == 0) {
            return INVALID_VALUE;
        }
        if affinities != 0 { NOT_SUPPORTED } else { create(out, flags, device, 3020) }
    }

    fn cuCtxCreate_v4(out: Out<Handle>, params: In<CreateParams>, flags: u32, device: i32) -> CUresult {
        if let Some(params) = params.get() {
            if params.affinities < 0 || (params.affinity == 0) != (params.affinities == 0) {
                return INVALID_VALUE;
            }
            if params.affinities != 0 || params.graphics != 0 {
                return NOT_SUPPORTED;
            }
        }
        create(out, flags, device, 3020)
    }

    fn cuCtxDestroy, cuCtxDestroy_v2(context: Handle) -> CUresult {
        api::code(ctx::destroy(context))
    }

    fn cuCtxAttach(out: Out<Handle>, flags: u32) -> CUresult {
        if out.is_null() || flags != 0 {
            return INVALID_VALUE;
        }
        match ctx::attach() {
            Ok(context) => out.answer(context.handle()),
            Err(code) => code,
        }
    }

    fn cuCtxDetach(context: Handle) -> CUresult {
        api::code(ctx::detach(context))
    }

    fn cuCtxPushCurrent, cuCtxPushCurrent_v2(context: Handle) -> CUresult {
        match ctx::from_handle(context) {
            Ok(context) if context.is_alive() || context.is_primary() => {
                ctx::push(context);
                0
            }
            _ => INVALID_CONTEXT,
        }
    }

    fn cuCtxPopCurrent, cuCtxPopCurrent_v2(out: Out<Handle>) -> CUresult {
        match ctx::pop() {
            Some(context) => {
                out.set(context.handle());
                0
            }
            None => INVALID_CONTEXT,
        }
    }

    fn cuCtxSetCurrent(context: Handle) -> CUresult {
        if context == 0 {
            ctx::set_current(None);
            return 0;
        }
        match ctx::from_handle(context) {
            Ok(context) if context.is_alive() || context.is_primary() => {
                ctx::set_current(Some(context));
                0
            }
            _ => INVALID_CONTEXT,
        }
    }

    fn cuCtxGetCurrent(out: Out<Handle>) -> CUresult {
        out.answer(ctx::current().map_or(0, ctx::Context::handle))
    }

    fn cuCtxGetDevice(out: Out<i32>) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        // Answers for a destroyed context too: it is still current.
        match ctx::current() {
            Some(context) => out.answer(context.ordinal()),
            None => INVALID_CONTEXT,
        }
    }

    fn cuCtxGetDevice_v2(out: Out<i32>, context: Handle) -> CUresult {
        tell(out, context, ctx::Context::ordinal)
    }

    fn cuCtxGetId(context: Handle, out: Out<u64>) -> CUresult {
        tell(out, context, ctx::Context::id)
    }

    fn cuCtxGetFlags(out: Out<u32>) -> CUresult {
        tell(out, 0, ctx::Context::flags)
    }

    fn cuCtxSetFlags(flags: u32) -> CUresult {
        if flags & !FLAGS != 0 {
            return INVALID_VALUE;
        }
        api::code(ctx::require().map(|context| context.set_flags(flags)))
    }

    fn cuCtxGetApiVersion(context: Handle, out: Out<u32>) -> CUresult {
        tell(out, context, ctx::Context::api_version)
    }

    /// Everything is done when it is asked for; pools give back what is above their thresholds.
    fn cuCtxSynchronize() -> CUresult {
        api::code(ctx::require().map(|_| synchronize()))
    }

    fn cuCtxSynchronize_v2(context: Handle) -> CUresult {
        api::code(ctx::from_handle_or_current(context).map(|_| synchronize()))
    }

    fn cuDevicePrimaryCtxRetain(out: Out<Handle>, device: i32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match ctx::retain_primary(device) {
            Ok(context) => out.answer(context.handle()),
            Err(code) => code,
        }
    }

    fn cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2(device: i32) -> CUresult {
        api::code(ctx::release_primary(device))
    }

    fn cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2(device: i32) -> CUresult {
        api::code(ctx::reset_primary(device))
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> CUresult {
        if flags.is_null() || active.is_null() {
            return INVALID_VALUE;
        }
        match ctx::primary(device) {
            Ok(context) => {
                flags.set(context.flags());
                active.answer(i32::from(context.is_alive() || context.ends_elsewhere()))
            }
            Err(code) => code,
        }
    }

    /// Version 1 refused while the context was active.
    fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) -> CUresult {
        match ctx::primary(device) {
            Ok(context) if context.is_alive() && context.flags() != flags => crate::codes::PRIMARY_CONTEXT_ACTIVE,
            Ok(_) if flags & !FLAGS != 0 => INVALID_VALUE,
            Ok(context) => {
                context.set_flags(flags);
                0
            }
            Err(code) => code,
        }
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) -> CUresult {
        match ctx::primary(device) {
            Ok(_) if flags & !FLAGS != 0 => INVALID_VALUE,
            Ok(context) => {
                context.set_flags(flags);
                0
            }
            Err(code) => code,
        }
    }

    fn cuDeviceTotalMem_v2(out: Out<usize>, device: i32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match devices::machine(device) {
            Ok(device) => out.answer(to_usize(simdevice::Books::global().total(device))),
            Err(code) => code,
        }
    }

    /// Version 1 answers in 32 bits; what does not fit is cut to the largest value that does.
    fn cuDeviceTotalMem(out: Out<u32>, device: i32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match devices::machine(device) {
            Ok(device) => {
                let total = simdevice::Books::global().total(device);
                out.answer(u32::try_from(total).unwrap_or(u32::MAX))
            }
            Err(code) => code,
        }
    }

    fn cuCtxGetLimit(out: Out<usize>, limit: u32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        let context = match ctx::require() {
            Ok(context) => context,
            Err(code) => return code,
        };
        let Some(default) = default_limit(limit) else { return crate::codes::UNSUPPORTED_LIMIT };
        let set = context.limits[to_usize(u64::from(limit))].load(std::sync::atomic::Ordering::Relaxed);
        out.answer(to_usize(if set == 0 { default } else { set }))
    }

    fn cuCtxSetLimit(limit: u32, value: usize) -> CUresult {
        let context = match ctx::require() {
            Ok(context) => context,
            Err(code) => return code,
        };
        if default_limit(limit).is_none() || READ_ONLY.contains(&limit) {
            return crate::codes::UNSUPPORTED_LIMIT;
        }
        let slot = &context.limits[to_usize(u64::from(limit))];
        slot.store(value as u64, std::sync::atomic::Ordering::Relaxed);
        0
    }

    fn cuCtxGetCacheConfig(out: Out<u32>) -> CUresult {
        tell(out, 0, |context| context.preferences[0].load(std::sync::atomic::Ordering::Relaxed))
    }

    fn cuCtxSetCacheConfig(config: u32) -> CUresult {
        set_preference(0, config)
    }

    fn cuCtxGetSharedMemConfig(out: Out<u32>) -> CUresult {
        tell(out, 0, |context| context.preferences[1].load(std::sync::atomic::Ordering::Relaxed))
    }

    fn cuCtxSetSharedMemConfig(config: u32) -> CUresult {
        set_preference(1, config)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> CUresult {
        match ctx::require() {
            Ok(_) => {
                least.set(0);
                greatest.set(-5);
                0
            }
            Err(code) => code,
        }
    }

    fn cuCtxResetPersistingL2Cache() -> CUresult {
        api::code(ctx::require().map(|_| ()))
    }

    fn cuCtxGetExecAffinity(_out: Out<[u32; 2]>, _kind: u32) -> CUresult {
        ctx::require().err().unwrap_or(NOT_SUPPORTED)
    }
}

fn set_preference(which: usize, value: u32) -> CUresult {
    if value > 3 {
        return INVALID_VALUE;
    }
    let store = |context: &ctx::Context| context.preferences[which].store(value, std::sync::atomic::Ordering::Relaxed);
    api::code(ctx::require().map(store))
}

/// Limits that can only be asked: those of contexts shared with graphics, which none is. cuBLAS asks.
const READ_ONLY: std::ops::RangeInclusive<u32> = 7..=8;

/// Defaults of the limits that a plain context has, in bytes or counts. Values as an H100 answers.
fn default_limit(limit: u32) -> Option<u64> {
    match limit {
        0 => Some(1024),
        1 => Some(7 << 20),
        2 => Some(8 << 20),
        3 => Some(2),
        4 => Some(2048),
        5 => Some(64),
        6 if Knobs::get().compute_capability >= (8, 0) => Some(0),
        7..=10 => Some(0),
        _ => None,
    }
}
