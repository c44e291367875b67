//! What the rules ask of a CUDA driver: questions and housekeeping, never the program's own calls.
//!
//! The program's calls are handed to the rules as closures, because each has its own arguments. Everything here may be
//! called from a hook on any thread, with any or no context current; nothing here may change what the program can
//! observe, apart from pools being trimmed. Sizes are bytes, devices are ordinals as the process sees them, handles
//! are the driver's own values.

use crate::code::Code;

/// What a stream-ordered pool holds (`CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, `..._USED_MEM_CURRENT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolLevels {
    /// Bytes that the pool has taken from the device.
    pub reserved: u64,
    /// Bytes of it that are handed out.
    pub used: u64,
}

/// The driver below the rules.
pub trait Driver {
    /// The calling thread's context (`cuCtxGetCurrent`); `None` where there is none.
    ///
    /// # Errors
    /// The driver's code, `NOT_INITIALIZED` before `cuInit`.
    fn current_context(&self) -> Result<Option<usize>, Code>;

    /// Whether the calling thread's context serves calls at all: it is there, it was not destroyed, no error sticks to it.
    fn context_works(&self) -> bool {
        matches!(self.current_context(), Ok(Some(_)))
    }

    /// Device of the calling thread's context (`cuCtxGetDevice`).
    ///
    /// # Errors
    /// The driver's code, `INVALID_CONTEXT` where no context is current.
    fn current_device(&self) -> Result<u32, Code>;

    /// Whether a device's primary context is alive (`cuDevicePrimaryCtxGetState`); `None` where that can't be told.
    fn primary_is_active(&self, device: u32) -> Option<bool>;

    /// A context's unique id (`cuCtxGetId`, CUDA 12.0); `None` on older drivers and for dead contexts. The handle must
    /// be one of a living context, or of a primary one.
    fn context_id(&self, context: usize) -> Option<u64>;

    /// Context that a stream belongs to (`cuStreamGetCtx`); `None` where that can't be told.
    fn stream_context(&self, stream: usize) -> Option<usize>;

    /// The pool that `cuMemAllocAsync` uses on a device now (`cuDeviceGetMemPool`).
    fn current_pool(&self, device: u32) -> Option<usize>;

    /// What a living pool holds.
    fn pool_levels(&self, pool: usize) -> Option<PoolLevels>;

    /// Gives back what a pool holds and nobody uses (`cuMemPoolTrimTo` 0); does nothing while a stream is captured.
    fn trim_pool(&self, pool: usize);

    /// Whether a stream capture forbids the calling thread the calls that take memory of a context: the driver then
    /// answers with a code of its own.
    fn capture_forbids(&self) -> bool {
        false
    }

    /// Bytes that this process really takes from a device, by NVML; `None` where that can't be told.
    fn footprint(&self, device: u32) -> Option<u64>;
}
