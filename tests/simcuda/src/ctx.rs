//! Contexts: who owns memory, which one is current to a thread, what one costs.
//!
//! A `CUcontext` is the address of a [`Context`]. They are never deallocated, so a stale handle is told from a live one
//! and never from a stranger; a primary context keeps its handle for ever and gets a new id at each incarnation.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use simdevice::{Knobs, me};

use crate::codes::{CONTEXT_IS_DESTROYED, CUresult, INVALID_CONTEXT, INVALID_DEVICE, OUT_OF_MEMORY};
use crate::devices;

/// A `CUcontext`: an address.
pub type Handle = usize;

/// One context of this process.
pub struct Context {
    /// What the program calls its device.
    ordinal: i32,
    /// The machine's number of its device.
    device: usize,
    primary: bool,
    /// `cuCtxGetId`; of the present incarnation.
    id: AtomicU64,
    alive: AtomicBool,
    /// The thread that is just ending it, by [`this_thread`]; 0 = none.
    ending: AtomicUsize,
    /// Attachments of a created context, retains of a primary one.
    users: AtomicI32,
    flags: AtomicU32,
    api_version: u32,
    /// Modules and local memory, in bytes: given back with the context.
    overhead: AtomicU64,
    launched: AtomicBool,
    /// Values of `cuCtxSetLimit`, by limit; 0 = default.
    pub(crate) limits: [AtomicU64; 16],
    /// `cuCtxSetCacheConfig`, `cuCtxSetSharedMemConfig`.
    pub(crate) preferences: [AtomicU32; 2],
}

impl Context {
    fn new(ordinal: i32, device: usize, primary: bool, flags: u32, api_version: u32) -> &'static Context {
        Box::leak(Box::new(Context {
            ordinal,
            device,
            primary,
            id: AtomicU64::new(0),
            alive: AtomicBool::new(false),
            ending: AtomicUsize::new(0),
            users: AtomicI32::new(0),
            flags: AtomicU32::new(flags),
            api_version,
            overhead: AtomicU64::new(0),
            launched: AtomicBool::new(false),
            limits: Default::default(),
            preferences: Default::default(),
        }))
    }

    /// The `CUcontext`.
    pub fn handle(&'static self) -> Handle {
        std::ptr::from_ref(self).addr()
    }

    /// Unique for the process's life; a primary context that was reset has another.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Acquire)
    }

    /// The machine's number of its device.
    pub fn device(&self) -> usize {
        self.device
    }

    /// What the program calls its device.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    pub fn is_primary(&self) -> bool {
        self.primary
    }

    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether another thread is just ending it: it is active until all that belongs to it is gone.
    pub fn ends_elsewhere(&self) -> bool {
        let ending = self.ending.load(Ordering::Acquire);
        ending != 0 && ending != this_thread()
    }

    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub fn api_version(&self) -> u32 {
        self.api_version
    }

    /// Takes memory for a module or the like. False if the device is full, or the context went meanwhile.
    pub fn take_overhead(&self, bytes: u64) -> bool {
        let contexts = CONTEXTS.lock();
        let taken = self.is_alive() && (bytes == 0 || me().take_overhead(self.device, bytes));
        if taken {
            self.overhead.fetch_add(bytes, Ordering::AcqRel);
        }
        drop(contexts);
        taken
    }

    /// Gives back what [`Context::take_overhead`] took in the incarnation `id`; what went with the context is not given
    /// twice.
    pub fn give_overhead(&self, id: u64, bytes: u64) {
        let contexts = CONTEXTS.lock();
        if self.is_alive() && self.id() == id && bytes > 0 {
            self.overhead.fetch_sub(bytes, Ordering::AcqRel);
            me().give_overhead(self.device, bytes);
        }
        drop(contexts);
    }

    /// A kernel is launched: local memory is taken at the first one (`SIMCUDA_LMEM_MIB`).
    pub fn launch(&self) -> Result<(), CUresult> {
        if self.launched.swap(true, Ordering::AcqRel) || self.take_overhead(Knobs::get().local_memory_bytes) {
            return Ok(());
        }
        self.launched.store(false, Ordering::Release);
        Err(OUT_OF_MEMORY)
    }
}

/// All contexts there ever were. Its lock orders creations, destructions and overhead; it is never held while memory is
/// allocated.
#[derive(Default)]
pub(crate) struct Contexts {
    created: Vec<&'static Context>,
    /// By ordinal.
    primaries: Vec<&'static Context>,
}

pub(crate) static CONTEXTS: LazyLock<Mutex<Contexts>> = LazyLock::new(|| {
    let primary =
        |(ordinal, device): (usize, &usize)| Context::new(i32::try_from(ordinal).unwrap_or(0), *device, true, 0, 3020);
    let primaries = devices::visible().iter().enumerate().map(primary).collect();
    Mutex::new(Contexts { created: Vec::new(), primaries })
});

thread_local! {
    /// The current context: the top of the stack.
    static TOP: Cell<Option<&'static Context>> = const { Cell::new(None) };
    /// What lies under it.
    static BELOW: RefCell<Vec<&'static Context>> = const { RefCell::new(Vec::new()) };
}

/// A number for this thread.
fn this_thread() -> usize {
    TOP.with(|top| std::ptr::from_ref(top).addr())
}

/// The context that is current to this thread, dead or alive.
#[inline]
pub fn current() -> Option<&'static Context> {
    TOP.get()
}

/// The current context; INVALID_CONTEXT without one, CONTEXT_IS_DESTROYED if it was destroyed, or is a primary context
/// that is not active.
#[inline]
pub fn require() -> Result<&'static Context, CUresult> {
    let context = TOP.get().ok_or(INVALID_CONTEXT)?;
    if context.is_alive() { Ok(context) } else { Err(CONTEXT_IS_DESTROYED) }
}

/// The handle of [`current`], as the private tables want it.
pub fn current_handle() -> Option<*mut c_void> {
    current().map(as_pointer)
}

/// The handle that the primary context of `ordinal` has or will have.
pub fn primary_handle(ordinal: i32) -> Result<*mut c_void, CUresult> {
    primary(ordinal).map(as_pointer)
}

fn as_pointer(context: &'static Context) -> *mut c_void {
    std::ptr::from_ref(context).cast_mut().cast()
}

/// The primary context of a `CUdevice`, active or not.
pub fn primary(ordinal: i32) -> Result<&'static Context, CUresult> {
    let index = usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?;
    CONTEXTS.lock().primaries.get(index).copied().ok_or(INVALID_DEVICE)
}

/// The context that `handle` names, dead or alive.
pub fn from_handle(handle: Handle) -> Result<&'static Context, CUresult> {
    let contexts = CONTEXTS.lock();
    let mut all = contexts.primaries.iter().chain(&contexts.created);
    all.find(|context| context.handle() == handle).copied().ok_or(INVALID_CONTEXT)
}

/// As [`from_handle`]; 0 is the current context.
pub fn from_handle_or_current(handle: Handle) -> Result<&'static Context, CUresult> {
    if handle == 0 { require() } else { from_handle(handle) }
}

pub fn push(context: &'static Context) {
    if let Some(top) = TOP.replace(Some(context)) {
        BELOW.with_borrow_mut(|below| below.push(top));
    }
}

pub fn pop() -> Option<&'static Context> {
    let next = BELOW.with_borrow_mut(Vec::pop);
    TOP.replace(next)
}

/// `cuCtxSetCurrent`: replaces the top of the stack.
pub fn set_current(context: Option<&'static Context>) {
    match context {
        Some(context) => TOP.set(Some(context)),
        None => {
            pop();
        }
    }
}

/// Makes and starts a context that is not primary.
pub fn create(ordinal: i32, flags: u32, api_version: u32) -> Result<&'static Context, CUresult> {
    let device = devices::machine(ordinal)?;
    let context = Context::new(ordinal, device, false, flags, api_version);
    let mut contexts = CONTEXTS.lock();
    start(&contexts, context)?;
    context.users.store(1, Ordering::Relaxed);
    contexts.created.push(context);
    Ok(context)
}

/// Begins an incarnation. The first live context on a device brings the process's cost there.
fn start(contexts: &MutexGuard<'_, Contexts>, context: &'static Context) -> Result<(), CUresult> {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let cost = Knobs::get().context_bytes;
    if !any_alive_on(contexts, context.device) && cost > 0 && !me().take_overhead(context.device, cost) {
        return Err(OUT_OF_MEMORY);
    }
    context.id.store(NEXT_ID.fetch_add(1, Ordering::Relaxed), Ordering::Release);
    context.launched.store(false, Ordering::Relaxed);
    context.alive.store(true, Ordering::Release);
    Ok(())
}

fn any_alive_on(contexts: &Contexts, device: usize) -> bool {
    let mut all = contexts.primaries.iter().chain(&contexts.created);
    all.any(|context| context.device == device && context.is_alive())
}

/// Ends an incarnation: everything that belongs to the context goes. Every part takes its own lock, and refuses what
/// comes for a context that is no longer alive, so that nothing slips in behind.
fn stop(contexts: MutexGuard<'_, Contexts>, context: &'static Context) {
    context.ending.store(this_thread(), Ordering::Release);
    context.alive.store(false, Ordering::Release);
    let id = context.id();
    let overhead = context.overhead.swap(0, Ordering::AcqRel);
    let last = !any_alive_on(&contexts, context.device);
    // Called without the lock: destructors of the runtimes' own state call back into the driver.
    drop(contexts);
    crate::local_storage::context_gone(as_pointer(context));
    crate::streams::context_gone(id);
    crate::events::context_gone(id);
    crate::host::context_gone(id);
    crate::array::context_gone(id);
    crate::ipc::context_gone(id);
    crate::memory::context_gone(id);
    if overhead > 0 {
        me().give_overhead(context.device, overhead);
    }
    let cost = Knobs::get().context_bytes;
    if last && cost > 0 {
        me().give_overhead(context.device, cost);
    }
    context.ending.store(0, Ordering::Release);
}

/// `cuCtxDestroy`.
pub fn destroy(handle: Handle) -> Result<(), CUresult> {
    let contexts = CONTEXTS.lock();
    let found = contexts.created.iter().find(|context| context.handle() == handle);
    let context = found.copied().filter(|context| context.is_alive()).ok_or(INVALID_CONTEXT)?;
    stop(contexts, context);
    if current().is_some_and(|top| top.handle() == handle) {
        pop();
    }
    Ok(())
}

/// `cuCtxAttach`: one user more of the current context.
pub fn attach() -> Result<&'static Context, CUresult> {
    let context = require()?;
    if context.primary {
        return Err(crate::codes::NOT_SUPPORTED);
    }
    context.users.fetch_add(1, Ordering::AcqRel);
    Ok(context)
}

/// `cuCtxDetach`: one user less; the last one destroys.
pub fn detach(handle: Handle) -> Result<(), CUresult> {
    let context = from_handle(handle)?;
    if context.primary || current().is_none_or(|top| top.handle() != handle) || !context.is_alive() {
        return Err(INVALID_CONTEXT);
    }
    if context.users.fetch_sub(1, Ordering::AcqRel) == 1 { destroy(handle) } else { Ok(()) }
}

/// `cuDevicePrimaryCtxRetain`.
pub fn retain_primary(ordinal: i32) -> Result<&'static Context, CUresult> {
    let context = primary(ordinal)?;
    let mut contexts = CONTEXTS.lock();
    while context.ends_elsewhere() {
        MutexGuard::unlocked(&mut contexts, std::thread::yield_now);
    }
    if !context.is_alive() {
        start(&contexts, context)?;
    }
    context.users.fetch_add(1, Ordering::AcqRel);
    Ok(context)
}

/// `cuDevicePrimaryCtxRelease`; the last one resets.
pub fn release_primary(ordinal: i32) -> Result<(), CUresult> {
    let context = primary(ordinal)?;
    let contexts = CONTEXTS.lock();
    if context.users.load(Ordering::Acquire) == 0 {
        return Err(INVALID_CONTEXT);
    }
    if context.users.fetch_sub(1, Ordering::AcqRel) == 1 && context.is_alive() {
        stop(contexts, context);
    }
    Ok(())
}

/// `cuDevicePrimaryCtxReset`: everything in it goes, who retained it still has to release it (documented so).
pub fn reset_primary(ordinal: i32) -> Result<(), CUresult> {
    let context = primary(ordinal)?;
    let contexts = CONTEXTS.lock();
    if context.is_alive() {
        stop(contexts, context);
    }
    Ok(())
}
