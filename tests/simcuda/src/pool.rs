//! Stream-ordered memory pools: what they reserve, what of it is used, when they give back.
//!
//! A pool's charge is a level. `reserved` grows in steps (`SIMCUDA_POOL_STEP_MIB`) when more is used than was reserved; it
//! shrinks at a synchronisation to the release threshold, by `cuMemPoolTrimTo`, and with the destroyed pool's last block.
//! Work is done when it is asked for, so a freed block can be used again at once. A pool is never fragmented: the real
//! driver maps physical memory to wherever the addresses are, and the simulated one does not count otherwise.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use simdevice::{Knobs, me};

use crate::codes::{CUresult, INVALID_VALUE, OUT_OF_MEMORY};
use crate::devices;
use crate::heap::{self, Kind};
use crate::units::{PAGE, round_up};

/// A `CUmemoryPool`: [`HANDLES`] + 16 × number, never reused.
pub type Handle = usize;

/// Where handles begin; no memory lies there.
const HANDLES: usize = 0x5000_0000_0000;

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`, `_HOST`, `_HOST_NUMA`, `_HOST_NUMA_CURRENT`.
pub const DEVICE: u32 = 1;
pub const HOST: u32 = 2;
pub const HOST_NUMA: u32 = 3;
pub const HOST_NUMA_CURRENT: u32 = 4;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `_MANAGED`.
pub const PINNED: u32 = 1;
pub const MANAGED: u32 = 2;

/// One pool.
pub struct Pool {
    pub number: u64,
    pub location: Location,
    pub kind: u32,
    pub handle_types: u32,
    /// The machine's number of the device that pays; none for host memory.
    pub device: Option<usize>,
    /// A device's own pool, which cannot be destroyed.
    pub is_default: bool,
    /// Bytes that it may reserve; 0 = any.
    pub max_size: u64,
    pub usage: u16,
    pub level: Mutex<Level>,
}

/// What a pool holds, in bytes, and what can be set about it.
#[derive(Default)]
pub struct Level {
    pub reserved: u64,
    pub reserved_high: u64,
    pub used: u64,
    pub used_high: u64,
    /// Blocks that are live.
    blocks: u64,
    pub threshold: u64,
    /// The three REUSE_* attributes.
    pub reuse: [i32; 3],
    destroyed: bool,
    /// Access by other devices' ordinals, as cuMemPoolSetAccess gave it.
    pub access: HashMap<Location, u32>,
}

#[derive(Default)]
struct Pools {
    all: HashMap<u64, Arc<Pool>>,
    defaults: HashMap<(Location, u32), Arc<Pool>>,
    current: HashMap<(Location, u32), Arc<Pool>>,
}

static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Pool {
    /// The `CUmemoryPool`.
    pub fn handle(&self) -> Handle {
        handle_of(self.number)
    }

    /// Takes `more` bytes of reserve.
    fn take(&self, more: u64) -> bool {
        self.device.is_none_or(|device| me().take_block(device, more))
    }

    fn give(&self, less: u64) {
        if let Some(device) = self.device
            && less > 0
        {
            me().give_block(device, less);
        }
    }

    /// Gives back what is reserved above `keep` and not used.
    pub fn shrink(&self, keep: u64) {
        let mut level = self.level.lock();
        let step = Knobs::get().pool_step;
        let needed = round_up(level.used, step).unwrap_or(u64::MAX);
        let target = needed.max(round_up(keep, step).unwrap_or(u64::MAX)).min(level.reserved);
        let less = level.reserved - target;
        level.reserved = target;
        self.give(less);
    }
}

/// The `CUmemoryPool` of the pool with this number.
pub fn handle_of(number: u64) -> Handle {
    HANDLES + crate::units::to_usize(number) * 16
}

/// Makes a pool.
pub fn create(
    location: Location,
    kind: u32,
    handle_types: u32,
    max_size: u64,
    usage: u16,
) -> Result<Arc<Pool>, CUresult> {
    let pool = new(location, kind, handle_types, max_size, usage, false)?;
    POOLS.lock().all.insert(pool.number, pool.clone());
    Ok(pool)
}

fn new(
    location: Location,
    kind: u32,
    handle_types: u32,
    max_size: u64,
    usage: u16,
    is_default: bool,
) -> Result<Arc<Pool>, CUresult> {
    if !matches!(kind, PINNED | MANAGED) {
        return Err(INVALID_VALUE);
    }
    let device = match location.kind {
        DEVICE => Some(devices::machine(location.id)?),
        HOST | HOST_NUMA | HOST_NUMA_CURRENT => None,
        // Managed memory may live anywhere.
        0 if kind == MANAGED => None,
        _ => return Err(INVALID_VALUE),
    };
    Ok(Arc::new(Pool {
        number: NEXT.fetch_add(1, Ordering::Relaxed),
        location,
        kind,
        handle_types,
        device,
        is_default,
        max_size: if max_size == 0 { 0 } else { round_up(max_size, PAGE).ok_or(INVALID_VALUE)? },
        usage,
        level: Mutex::new(Level { reuse: [1; 3], ..Level::default() }),
    }))
}

/// The pool that `handle` names.
pub fn get(handle: Handle) -> Result<Arc<Pool>, CUresult> {
    let offset = handle.checked_sub(HANDLES).filter(|offset| offset % 16 == 0).ok_or(INVALID_VALUE)?;
    let pool = POOLS.lock().all.get(&(offset as u64 / 16)).cloned().ok_or(INVALID_VALUE)?;
    if pool.level.lock().destroyed { Err(INVALID_VALUE) } else { Ok(pool) }
}

/// The pool that a location has from the start.
pub fn default_of(location: Location, kind: u32) -> Result<Arc<Pool>, CUresult> {
    let mut pools = POOLS.lock();
    if let Some(pool) = pools.defaults.get(&(location, kind)) {
        return Ok(pool.clone());
    }
    let pool = new(location, kind, 0, 0, 0, true)?;
    pools.defaults.insert((location, kind), pool.clone());
    pools.all.insert(pool.number, pool.clone());
    Ok(pool)
}

/// The pool from which a location allocates now.
pub fn current_of(location: Location, kind: u32) -> Result<Arc<Pool>, CUresult> {
    let current = POOLS.lock().current.get(&(location, kind)).cloned();
    current.map_or_else(|| default_of(location, kind), Ok)
}

/// Makes `pool` the one from which its location allocates.
pub fn set_current(location: Location, kind: u32, pool: Arc<Pool>) -> Result<(), CUresult> {
    if pool.location != location || pool.kind != kind {
        return Err(INVALID_VALUE);
    }
    POOLS.lock().current.insert((location, kind), pool);
    Ok(())
}

/// Destroys a pool; what it holds goes with its last block.
pub fn destroy(handle: Handle) -> Result<(), CUresult> {
    let pool = get(handle)?;
    if pool.is_default {
        return Err(INVALID_VALUE);
    }
    POOLS.lock().current.retain(|_, current| current.number != pool.number);
    let mut level = pool.level.lock();
    if std::mem::replace(&mut level.destroyed, true) {
        return Err(INVALID_VALUE);
    }
    finish(&pool, &mut level);
    Ok(())
}

/// A destroyed pool without blocks gives everything back.
fn finish(pool: &Pool, level: &mut Level) {
    if level.destroyed && level.blocks == 0 {
        pool.give(std::mem::take(&mut level.reserved));
        POOLS.lock().all.remove(&pool.number);
    }
}

/// Bytes that a block of `bytes` uses.
fn rounded(bytes: u64) -> Option<u64> {
    round_up(bytes, Knobs::get().granularity)
}

/// Allocates from a pool.
pub fn allocate(pool: &Pool, bytes: u64) -> Result<u64, CUresult> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let size = rounded(bytes).ok_or(OUT_OF_MEMORY)?;
    let mut level = pool.level.lock();
    if level.destroyed {
        return Err(INVALID_VALUE);
    }
    let used = level.used.checked_add(size).ok_or(OUT_OF_MEMORY)?;
    let mut more = round_up(used.saturating_sub(level.reserved), Knobs::get().pool_step).ok_or(OUT_OF_MEMORY)?;
    if pool.max_size > 0 {
        // The last step may be a short one.
        more = more.min(pool.max_size.saturating_sub(level.reserved));
        if level.reserved + more < used {
            return Err(OUT_OF_MEMORY);
        }
    }
    if more > 0 && !pool.take(more) {
        return Err(OUT_OF_MEMORY);
    }
    let address = match heap::place(pool.device.unwrap_or(0), bytes, Kind::Pool(pool.number)) {
        Ok(address) => address,
        Err(code) => {
            pool.give(more);
            return Err(code);
        }
    };
    level.reserved += more;
    level.reserved_high = level.reserved_high.max(level.reserved);
    level.used = used;
    level.used_high = level.used_high.max(used);
    level.blocks += 1;
    Ok(address)
}

/// A block of `bytes` from pool `number` was freed; its addresses are gone already.
pub fn returned(number: u64, bytes: u64) {
    let pool = POOLS.lock().all.get(&number).cloned();
    if let Some(pool) = pool {
        let mut level = pool.level.lock();
        level.used -= rounded(bytes).unwrap_or(0);
        level.blocks -= 1;
        finish(&pool, &mut level);
    }
}

/// A stream, an event or a context was waited for: pools above their release threshold give back.
pub fn synchronized() {
    let pools: Vec<Arc<Pool>> = POOLS.lock().all.values().cloned().collect();
    for pool in pools {
        let (reserved, threshold, destroyed) = {
            let level = pool.level.lock();
            (level.reserved, level.threshold, level.destroyed)
        };
        // A destroyed pool gives everything back at once, with its last block.
        if reserved > threshold && !destroyed {
            // Down to the threshold, not below it: a step that straddles it goes too.
            pool.shrink(threshold / Knobs::get().pool_step * Knobs::get().pool_step);
        }
    }
}
