//! Virtual memory management: physical memory with handles, reserved addresses, and mappings between them.
//!
//! Physical memory is a file of its own, mapped where the program says. It lives until its last reference is released
//! and its last mapping is gone, whatever becomes of contexts.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use simdevice::me;

use crate::backing::{map_shared, unmap};
use crate::codes::{CUresult, INVALID_VALUE, OUT_OF_MEMORY};
use crate::exports;
use crate::memory::{Allocation, Source};
use crate::pool::Location;
use crate::units::PAGE;

/// A `CUmemGenericAllocationHandle`: [`HANDLES`] + 16 × number, never reused.
pub type Handle = u64;

const HANDLES: Handle = 0x6000_0000_0000;

/// `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Properties {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
    pub security: usize,
    pub compression: u8,
    pub rdma: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// Physical memory.
pub struct Memory {
    pub properties: Properties,
    pub size: u64,
    /// Its number in the books, for all processes.
    pub number: u64,
    /// The machine's number of the device that this process pays for; none for host memory and for imports.
    pub device: Option<usize>,
    /// The machine's number of the device that holds the bytes.
    on: usize,
    pub file: OwnedFd,
    references: u64,
    mappings: u64,
    /// Whether other processes may hold it too.
    pub shared: bool,
}

struct Mapping {
    size: u64,
    handle: Handle,
    /// Flags by location, as cuMemSetAccess gave them.
    access: HashMap<Location, u32>,
}

#[derive(Default)]
pub struct Vmm {
    memories: HashMap<Handle, Memory>,
    /// Size by base.
    reservations: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    handles: Handle,
    /// Handles of memory that is gone: the next ones to be given out.
    spare: Vec<Handle>,
}

static VMM: Mutex<Option<Vmm>> = Mutex::new(None);

/// Works on the tables, under their lock.
pub fn with<R>(work: impl FnOnce(&mut Vmm) -> R) -> R {
    work(VMM.lock().get_or_insert_default())
}

/// The mapping that `address` lies in.
pub fn find(address: u64) -> Option<Allocation> {
    with(|vmm| {
        let (base, mapping) = vmm.mapping(address)?;
        let memory = vmm.memories.get(&mapping.handle)?;
        let source = Source::Mapping(mapping.handle);
        Some(Allocation { base, size: mapping.size, source, device: memory.on, context: None })
    })
}

/// The end of the mapping that `address` lies in, if anybody was given access to it.
pub fn accessible_until(address: u64) -> Option<u64> {
    with(|vmm| {
        let (base, mapping) = vmm.mapping(address)?;
        mapping.access.values().any(|flags| *flags != 0).then_some(base + mapping.size)
    })
}

/// Whether `value` is a positive multiple of the granularity.
fn is_whole(value: u64) -> bool {
    value > 0 && value.is_multiple_of(PAGE)
}

impl Vmm {
    fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.size).then_some((*base, mapping))
    }

    fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (base, size) = self.reservations.range(..=address).next_back()?;
        (address - base < *size).then_some((*base, *size))
    }

    /// The memory that a live handle names.
    pub fn memory(&mut self, handle: Handle) -> Result<&mut Memory, CUresult> {
        self.memories.get_mut(&handle).filter(|memory| memory.references > 0).ok_or(INVALID_VALUE)
    }

    /// Makes a handle for `memory`.
    fn add(&mut self, memory: Memory) -> Handle {
        let handle = self.spare.pop().unwrap_or_else(|| {
            self.handles += 16;
            HANDLES + self.handles
        });
        self.memories.insert(handle, memory);
        handle
    }

    /// Takes physical memory.
    pub fn create(&mut self, size: u64, properties: Properties, device: Option<usize>) -> Result<Handle, CUresult> {
        if !is_whole(size) {
            return Err(INVALID_VALUE);
        }
        if let Some(device) = device
            && !me().take_block(device, size)
        {
            return Err(OUT_OF_MEMORY);
        }
        let Some((file, number)) = exports::new_file(size, &properties, device) else {
            if let Some(device) = device {
                me().give_block(device, size);
            }
            return Err(OUT_OF_MEMORY);
        };
        let on = device.unwrap_or(0);
        let memory = Memory { properties, size, number, device, on, file, references: 1, mappings: 0, shared: false };
        Ok(self.add(memory))
    }

    /// Takes in memory that another process made; that one pays.
    pub fn import(
        &mut self,
        size: u64,
        properties: Properties,
        on: usize,
        file: OwnedFd,
        number: u64,
        shared: bool,
    ) -> Handle {
        self.add(Memory { properties, size, number, device: None, on, file, references: 1, mappings: 0, shared })
    }

    /// The handle of the memory with this number, if this process has it already; one reference more.
    pub fn retain_number(&mut self, number: u64) -> Option<Handle> {
        let (handle, memory) = self.memories.iter_mut().find(|(_, memory)| memory.number == number)?;
        memory.references += 1;
        Some(*handle)
    }

    pub fn retain(&mut self, address: u64) -> Result<Handle, CUresult> {
        let handle = self.mapping(address).ok_or(INVALID_VALUE)?.1.handle;
        let memory = self.memories.get_mut(&handle).ok_or(INVALID_VALUE)?;
        memory.references += 1;
        Ok(handle)
    }

    /// Memory is bound to something that keeps it alive.
    pub fn bind(&mut self, handle: Handle) -> Result<(), CUresult> {
        self.memories.get_mut(&handle).ok_or(INVALID_VALUE)?.mappings += 1;
        Ok(())
    }

    pub fn unbind(&mut self, handle: Handle) {
        if let Some(memory) = self.memories.get_mut(&handle) {
            memory.mappings -= 1;
            self.settle(handle);
        }
    }

    /// The memory that is mapped at an address.
    pub fn mapped(&self, address: u64) -> Option<Handle> {
        self.mapping(address).map(|(_, mapping)| mapping.handle)
    }

    pub fn release(&mut self, handle: Handle) -> Result<(), CUresult> {
        self.memory(handle)?.references -= 1;
        self.settle(handle);
        Ok(())
    }

    /// Memory that nothing refers to goes.
    fn settle(&mut self, handle: Handle) {
        let gone = |memory: &Memory| memory.references == 0 && memory.mappings == 0;
        if !self.memories.get(&handle).is_some_and(gone) {
            return;
        }
        let Some(memory) = self.memories.remove(&handle) else { return };
        self.spare.push(handle);
        // Closed first: what counts from here on is who else has it open.
        drop(memory.file);
        if memory.shared {
            me().drop_shared(memory.number, memory.device.is_some());
        } else if let Some(device) = memory.device {
            me().give_block(device, memory.size);
        }
    }

    pub fn reserve(&mut self, size: u64, alignment: u64, hint: u64) -> Result<u64, CUresult> {
        if !is_whole(size) || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(INVALID_VALUE);
        }
        let alignment = alignment.max(PAGE);
        if hint.is_multiple_of(alignment)
            && hint != 0
            && map_shared(hint, size, libc::MAP_FIXED_NOREPLACE, None) == Some(hint)
        {
            self.reservations.insert(hint, size);
            return Ok(hint);
        }
        let room = size.checked_add(alignment).ok_or(OUT_OF_MEMORY)?;
        let from = map_shared(0, room, 0, None).ok_or(OUT_OF_MEMORY)?;
        let base = from.next_multiple_of(alignment);
        unmap(from, base - from);
        unmap(base + size, from + room - base - size);
        self.reservations.insert(base, size);
        Ok(base)
    }

    pub fn free_address(&mut self, base: u64, size: u64) -> Result<(), CUresult> {
        let mapped = self.mappings.range(base..base.saturating_add(size)).next().is_some();
        if self.reservations.get(&base) != Some(&size) || mapped {
            return Err(INVALID_VALUE);
        }
        self.reservations.remove(&base);
        unmap(base, size);
        Ok(())
    }

    pub fn map(&mut self, base: u64, size: u64, offset: u64, handle: Handle) -> Result<(), CUresult> {
        let end = base.checked_add(size).ok_or(INVALID_VALUE)?;
        let (start, room) = self.reservation(base).ok_or(INVALID_VALUE)?;
        let overlaps = self.mapping(base).is_some() || self.mappings.range(base..end).next().is_some();
        if !is_whole(size) || !base.is_multiple_of(PAGE) || end > start + room || overlaps {
            return Err(INVALID_VALUE);
        }
        let memory = self.memory(handle)?;
        // The driver takes no other offset yet.
        if offset != 0 || size > memory.size {
            return Err(INVALID_VALUE);
        }
        map_shared(base, size, libc::MAP_FIXED, Some(&memory.file)).ok_or(OUT_OF_MEMORY)?;
        memory.mappings += 1;
        self.mappings.insert(base, Mapping { size, handle, access: HashMap::new() });
        Ok(())
    }

    /// Removes the mappings that make up exactly this range.
    pub fn unmap(&mut self, base: u64, size: u64) -> Result<(), CUresult> {
        let bases = self.exactly(base, size)?;
        for at in bases {
            let Some(mapping) = self.mappings.remove(&at) else {
                continue;
            };
            map_shared(at, mapping.size, libc::MAP_FIXED, None).ok_or(OUT_OF_MEMORY)?;
            if let Some(memory) = self.memories.get_mut(&mapping.handle) {
                memory.mappings -= 1;
            }
            self.settle(mapping.handle);
        }
        Ok(())
    }

    /// The bases of the mappings that make up exactly this range.
    fn exactly(&self, base: u64, size: u64) -> Result<Vec<u64>, CUresult> {
        let end = base.checked_add(size).filter(|end| *end > base).ok_or(INVALID_VALUE)?;
        let mut at = base;
        while at < end {
            at += self.mappings.get(&at).ok_or(INVALID_VALUE)?.size;
        }
        if at != end {
            return Err(INVALID_VALUE);
        }
        Ok(self.mappings.range(base..end).map(|(start, _)| *start).collect())
    }

    pub fn set_access(&mut self, base: u64, size: u64, location: Location, flags: u32) -> Result<(), CUresult> {
        for at in self.exactly(base, size)? {
            let mapping = self.mappings.get_mut(&at).ok_or(INVALID_VALUE)?;
            mapping.access.insert(location, flags);
        }
        Ok(())
    }

    pub fn access(&self, address: u64, location: Location) -> Result<u32, CUresult> {
        let (_, mapping) = self.mapping(address).ok_or(INVALID_VALUE)?;
        Ok(mapping.access.get(&location).copied().unwrap_or(0))
    }
}
