//! Multicast objects and logical endpoints: memory that is bound to one stays alive until it is unbound.
//!
//! Nothing is sent anywhere; there is what the life of memory depends on.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::api::{self, In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE};
use crate::devices;
use crate::units::PAGE;
use crate::vmm::{self, Handle};

/// Handles of multicast objects; no physical memory has such a one.
const HANDLES: u64 = 0x3000_0000_0000;

#[derive(Default)]
struct Objects {
    made: u64,
    multicast: HashSet<u64>,
    /// By object, ordinal and offset: the memory.
    bound: BTreeMap<(u64, i32, u64), Handle>,
}

static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);

/// Whether `handle` was a multicast object, which is gone now with its bindings.
pub fn release(handle: u64) -> bool {
    let known = OBJECTS.lock().multicast.remove(&handle);
    if known {
        unbind_if(|place| place.0 == handle);
    }
    known
}

fn unbind_if(which: impl Fn(&(u64, i32, u64)) -> bool) -> bool {
    let objects = &mut *OBJECTS.lock();
    let places: Vec<_> = objects.bound.keys().copied().filter(which).collect();
    for place in &places {
        if let Some(handle) = objects.bound.remove(place) {
            vmm::with(|vmm| vmm.unbind(handle));
        }
    }
    !places.is_empty()
}

/// Binds memory to an object at a place; without a device, for the memory's own.
fn bind(
    object: u64,
    device: Option<i32>,
    offset: u64,
    size: u64,
    memory: impl FnOnce() -> Result<Handle, CUresult>,
) -> CUresult {
    let bind = || {
        if object >= HANDLES && !OBJECTS.lock().multicast.contains(&object) {
            return Err(INVALID_HANDLE);
        }
        if size == 0 || !size.is_multiple_of(PAGE) || !offset.is_multiple_of(PAGE) {
            return Err(INVALID_VALUE);
        }
        if let Some(device) = device {
            devices::machine(device)?;
        }
        let handle = memory()?;
        let own = vmm::with(|vmm| vmm.memory(handle).map(|memory| memory.properties.location.id));
        let place = (object, device.unwrap_or_else(|| own.unwrap_or(0)), offset);
        if OBJECTS.lock().bound.contains_key(&place) {
            return Err(INVALID_VALUE);
        }
        vmm::with(|vmm| vmm.bind(handle))?;
        OBJECTS.lock().bound.insert(place, handle);
        Ok(())
    };
    api::code(bind())
}

fn unbind(object: u64, device: i32, offset: u64, size: u64) -> CUresult {
    let end = offset.saturating_add(size);
    let gone = unbind_if(|place| place.0 == object && place.1 == device && (offset..end).contains(&place.2));
    if gone { 0 } else { INVALID_VALUE }
}

/// The memory mapped at an address, which may have no handle any more.
fn mapped(address: u64) -> Result<Handle, CUresult> {
    vmm::with(|vmm| vmm.mapped(address)).ok_or(INVALID_VALUE)
}

cuda_api! {
    fn cuMulticastCreate(out: Out<u64>, properties: In<[u64; 4]>) -> CUresult {
        if out.is_null() || properties.is_null() {
            return INVALID_VALUE;
        }
        let objects = &mut *OBJECTS.lock();
        objects.made += 16;
        let handle = HANDLES + objects.made;
        objects.multicast.insert(handle);
        out.answer(handle)
    }

    fn cuMulticastAddDevice(object: u64, device: i32) -> CUresult {
        if !OBJECTS.lock().multicast.contains(&object) {
            return INVALID_HANDLE;
        }
        api::code(devices::machine(device).map(|_| ()))
    }

    fn cuMulticastBindMem(object: u64, offset: usize, memory: Handle, _from: usize, size: usize, _flags: u64) -> CUresult {
        bind(object, None, offset as u64, size as u64, || Ok(memory))
    }

    fn cuMulticastBindMem_v2(object: u64, device: i32, offset: usize, memory: Handle, _from: usize, size: usize, _flags: u64) -> CUresult {
        bind(object, Some(device), offset as u64, size as u64, || Ok(memory))
    }

    fn cuMulticastBindAddr(object: u64, offset: usize, address: u64, size: usize, _flags: u64) -> CUresult {
        bind(object, None, offset as u64, size as u64, || mapped(address))
    }

    fn cuMulticastBindAddr_v2(object: u64, device: i32, offset: usize, address: u64, size: usize, _flags: u64) -> CUresult {
        bind(object, Some(device), offset as u64, size as u64, || mapped(address))
    }

    fn cuMulticastUnbind(object: u64, device: i32, offset: usize, size: usize) -> CUresult {
        unbind(object, device, offset as u64, size as u64)
    }

    fn cuLogicalEndpointBindMem(endpoint: u32, device: i32, offset: u64, memory: Handle, _from: u64, size: u64, _flags: u64) -> CUresult {
        bind(u64::from(endpoint), Some(device), offset, size, || Ok(memory))
    }

    fn cuLogicalEndpointBindAddr(endpoint: u32, device: i32, offset: u64, address: u64, size: u64, _flags: u64) -> CUresult {
        bind(u64::from(endpoint), Some(device), offset, size, || mapped(address))
    }

    fn cuLogicalEndpointUnbind(endpoint: u32, device: i32, offset: u64, size: u64) -> CUresult {
        unbind(u64::from(endpoint), device, offset, size)
    }

    /// Endpoints need not be made first.
    fn cuLogicalEndpointDestroy(endpoint: u32) -> CUresult {
        unbind_if(|place| place.0 == u64::from(endpoint));
        0
    }
}
