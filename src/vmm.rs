//! Physical allocations of the virtual memory functions: who still refers to each, and when its charge ends.
//!
//! `cuMemCreate` makes a physical allocation; handles (created, retained) and mappings refer to it. Its charge ends when
//! the last of both is gone, whichever goes last. The driver may hand out a handle's value again as soon as it is
//! released, even while the memory stays mapped, so a value is forgotten before the driver is asked to release it, and
//! remembered again if the driver refuses. Memory that costs nothing (host locations, imports, multicast objects) is
//! unknown here, and every call on it is a plain pass-through.

mod bindings;

use std::collections::{BTreeMap, HashMap};

use crate::sync::Mutex;
use bindings::Bindings;
pub use bindings::{Object, Unbinding};

/// Memory whose last reference is gone: what to uncharge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    /// Device ordinal.
    pub device: u32,
    /// Bytes.
    pub bytes: u64,
    /// It was exported: others may keep the memory alive.
    pub exported: bool,
}

#[derive(Debug)]
struct Physical {
    charge: Charge,
    /// Handles, mappings and bindings together: the charge ends with the last of them.
    references: u64,
}

#[derive(Clone, Copy, Debug)]
struct Handle {
    physical: u64,
    /// Creates and retains not yet released under this value.
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    physical: u64,
}

#[derive(Debug, Default)]
struct Books {
    next: u64,
    physical: HashMap<u64, Physical>,
    handles: HashMap<u64, Handle>,
    mappings: BTreeMap<u64, Mapping>,
    bindings: Bindings,
}

/// All charged physical allocations of the process.
#[derive(Debug, Default)]
pub struct Vmm {
    books: Mutex<Books>,
}

/// A handle that is being released: settle it when the driver has answered.
#[must_use]
#[derive(Debug)]
pub struct Releasing {
    handle: u64,
    physical: u64,
}

/// Mappings that are being removed: settle them when the driver has answered.
#[must_use]
#[derive(Debug)]
pub struct Unmapping {
    removed: Vec<(u64, Mapping)>,
}

impl Vmm {
    /// A new physical allocation of `charge.bytes` was created.
    pub fn created(&self, handle: u64, charge: Charge) {
        let books = &mut *self.books.lock();
        books.next += 1;
        let physical = books.next;
        books.physical.insert(physical, Physical { charge, references: 1 });
        books.handles.insert(handle, Handle { physical, count: 1 });
    }

    /// A handle's memory was exported.
    pub fn exported(&self, handle: u64) {
        let books = &mut *self.books.lock();
        let physical = books.handles.get(&handle).map(|handle| handle.physical);
        if let Some(entry) = physical.and_then(|physical| books.physical.get_mut(&physical)) {
            entry.charge.exported = true;
        }
    }

    /// An import gave `handle`. Where that is one of ours, the process imported what it had exported, and has one
    /// reference more; any other costs nothing here.
    pub fn imported(&self, handle: u64) {
        let books = &mut *self.books.lock();
        if let Some(entry) = books.handles.get_mut(&handle) {
            entry.count += 1;
            let physical = entry.physical;
            books.refer(physical);
        }
    }

    /// `cuMemRetainAllocationHandle` gave `handle` for the memory mapped at `address`.
    pub fn retained(&self, handle: u64, address: u64) {
        let books = &mut *self.books.lock();
        let Some(physical) = books.mapped_at(address) else {
            return;
        };
        let entry = books.handles.entry(handle).or_insert(Handle { physical, count: 0 });
        // The same value for other memory: the old one ended without us.
        if entry.physical != physical {
            *entry = Handle { physical, count: 0 };
        }
        entry.count += 1;
        books.refer(physical);
    }

    /// A handle is about to be released; `None` where it is none of ours.
    pub fn releasing(&self, handle: u64) -> Option<Releasing> {
        let books = &mut *self.books.lock();
        let entry = books.handles.get_mut(&handle)?;
        entry.count -= 1;
        let physical = entry.physical;
        if entry.count == 0 {
            books.handles.remove(&handle);
        }
        Some(Releasing { handle, physical })
    }

    /// The driver released it: what to uncharge, if that was the last reference.
    pub fn released(&self, releasing: Releasing) -> Option<Charge> {
        self.books.lock().unrefer(releasing.physical)
    }

    /// The driver refused to release it.
    pub fn kept(&self, releasing: Releasing) {
        let books = &mut *self.books.lock();
        let physical = releasing.physical;
        books.handles.entry(releasing.handle).or_insert(Handle { physical, count: 0 }).count += 1;
    }

    /// `cuMemMap` put `bytes` of a handle's memory at `address`.
    pub fn mapped(&self, address: u64, bytes: u64, handle: u64) {
        let books = &mut *self.books.lock();
        let Some(&Handle { physical, .. }) = books.handles.get(&handle) else {
            return;
        };
        books.refer(physical);
        books.mappings.insert(address, Mapping { bytes, physical });
    }

    /// A range is about to be unmapped, which may cover several mappings.
    pub fn unmapping(&self, address: u64, bytes: u64) -> Unmapping {
        let books = &mut *self.books.lock();
        let end = address.saturating_add(bytes);
        let inside: Vec<u64> = books
            .mappings
            .range(address..end)
            .filter(|(start, mapping)| start.saturating_add(mapping.bytes) <= end)
            .map(|(start, _)| *start)
            .collect();
        let removed = inside.iter().filter_map(|start| books.mappings.remove(start).map(|m| (*start, m))).collect();
        Unmapping { removed }
    }

    /// The driver unmapped them: what to uncharge.
    pub fn unmapped(&self, unmapping: Unmapping) -> Vec<Charge> {
        let books = &mut *self.books.lock();
        unmapping.removed.iter().filter_map(|(_, mapping)| books.unrefer(mapping.physical)).collect()
    }

    /// The driver refused to unmap them.
    pub fn still_mapped(&self, unmapping: Unmapping) {
        self.books.lock().mappings.extend(unmapping.removed);
    }

    /// Bytes charged now, summed by device ordinal.
    #[must_use]
    pub fn charged(&self, device: u32) -> u64 {
        let books = self.books.lock();
        books.physical.values().filter(|p| p.charge.device == device).map(|p| p.charge.bytes).sum()
    }
}

impl Books {
    fn mapped_at(&self, address: u64) -> Option<u64> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some(mapping.physical)
    }

    fn refer(&mut self, physical: u64) {
        if let Some(entry) = self.physical.get_mut(&physical) {
            entry.references += 1;
        }
    }

    fn unrefer(&mut self, physical: u64) -> Option<Charge> {
        let entry = self.physical.get_mut(&physical)?;
        entry.references -= 1;
        if entry.references > 0 {
            return None;
        }
        self.physical.remove(&physical).map(|p| p.charge)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CHARGE: Charge = Charge { device: 0, bytes: 2 << 20, exported: false };

    #[test]
    fn the_charge_ends_with_the_release_when_nothing_is_mapped() {
        let vmm = Vmm::default();
        vmm.created(7, CHARGE);
        let releasing = vmm.releasing(7).unwrap();
        assert_eq!(vmm.released(releasing), Some(CHARGE));
        assert!(vmm.releasing(7).is_none());
    }

    #[test]
    fn the_charge_outlives_the_handle_while_it_is_mapped() {
        let vmm = Vmm::default();
        vmm.created(7, CHARGE);
        vmm.mapped(0x1000, 100, 7);
        vmm.mapped(0x2000, 100, 7);
        let releasing = vmm.releasing(7).unwrap();
        assert_eq!(vmm.released(releasing), None);
        let first = vmm.unmapping(0x1000, 100);
        assert_eq!(vmm.unmapped(first), vec![]);
        let second = vmm.unmapping(0x2000, 100);
        assert_eq!(vmm.unmapped(second), vec![CHARGE]);
    }

    #[test]
    fn a_handle_value_may_come_back_while_its_old_memory_is_still_mapped() {
        let vmm = Vmm::default();
        vmm.created(7, CHARGE);
        vmm.mapped(0x1000, 100, 7);
        let releasing = vmm.releasing(7).unwrap();
        assert_eq!(vmm.released(releasing), None);
        vmm.created(7, Charge { device: 1, bytes: 4 << 20, exported: false });
        let unmapping = vmm.unmapping(0x1000, 100);
        assert_eq!(vmm.unmapped(unmapping), vec![CHARGE]);
        assert_eq!(vmm.charged(1), 4 << 20);
    }

    #[test]
    fn retain_takes_a_reference_that_a_release_ends() {
        let vmm = Vmm::default();
        vmm.created(7, CHARGE);
        vmm.mapped(0x1000, 100, 7);
        vmm.retained(7, 0x1000 + 99);
        vmm.retained(9, 0x1000);
        let unmapping = vmm.unmapping(0x1000, 100);
        assert_eq!(vmm.unmapped(unmapping), vec![]);
        for (handle, end) in [(7, None), (9, None), (7, Some(CHARGE))] {
            let releasing = vmm.releasing(handle).unwrap();
            assert_eq!(vmm.released(releasing), end, "release of {handle}");
        }
    }

    #[test]
    fn an_import_of_what_the_process_exported_is_one_reference_more() {
        let vmm = Vmm::default();
        vmm.created(7, CHARGE);
        vmm.exported(7);
        vmm.imported(7);
        vmm.imported(8);
        let releasing = vmm.releasing(7).unwrap();
        assert_eq!(vmm.released(releasing), None);
        let releasing = vmm.releasing(7).unwrap();
        assert_eq!(vmm.released(releasing), Some(Charge { exported: true, ..CHARGE }));
        assert!(vmm.releasing(8).is_none());
    }

    #[test]
    fn what_the_driver_refuses_changes_nothing() {
        let vmm = Vmm::default();
        vmm.created(7, CHARGE);
        vmm.mapped(0x1000, 100, 7);
        let releasing = vmm.releasing(7).unwrap();
        vmm.kept(releasing);
        let unmapping = vmm.unmapping(0x1000, 100);
        vmm.still_mapped(unmapping);
        assert_eq!(vmm.charged(0), CHARGE.bytes);
        let releasing = vmm.releasing(7).unwrap();
        assert_eq!(vmm.released(releasing), None);
    }

    #[test]
    fn one_unmap_may_cover_several_mappings() {
        let vmm = Vmm::default();
        for handle in 0..4 {
            vmm.created(handle, CHARGE);
            vmm.mapped(0x1000 + handle * 0x100, 0x100, handle);
            let releasing = vmm.releasing(handle).unwrap();
            assert_eq!(vmm.released(releasing), None);
        }
        let unmapping = vmm.unmapping(0x1000, 0x300);
        assert_eq!(vmm.unmapped(unmapping).len(), 3);
        assert_eq!(vmm.charged(0), CHARGE.bytes);
    }

    #[test]
    fn memory_that_costs_nothing_is_unknown() {
        let vmm = Vmm::default();
        vmm.mapped(0x1000, 100, 5);
        vmm.retained(5, 0x1000);
        assert!(vmm.releasing(5).is_none());
        let unmapping = vmm.unmapping(0x1000, 100);
        assert_eq!(vmm.unmapped(unmapping), vec![]);
    }
}
