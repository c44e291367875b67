//! Physical memory that is bound to multicast objects and logical endpoints: each binding is one more reference.

use std::collections::BTreeMap;

use super::{Books, Charge, Mapping, Vmm};

/// What memory is bound to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Object {
    /// A multicast object, by its handle.
    Multicast(u64),
    /// A logical endpoint, by its id.
    Endpoint(u64),
}

/// Object, ordinal of the device, offset in bytes.
type Place = (Object, u32, u64);

/// All bindings, by their place.
pub(super) type Bindings = BTreeMap<Place, Mapping>;

/// Bindings that are being removed: settle them when the driver has answered.
#[must_use]
#[derive(Debug)]
pub struct Unbinding {
    removed: Vec<(Place, Mapping)>,
}

impl Vmm {
    /// `bytes` of a handle's memory were bound to an object; without a device, for the one that they lie on.
    pub fn bound(&self, object: Object, device: Option<u32>, offset: u64, bytes: u64, handle: u64) {
        let books = &mut *self.books.lock();
        if let Some(physical) = books.handles.get(&handle).map(|handle| handle.physical) {
            books.bind(object, device, offset, Mapping { bytes, physical });
        }
    }

    /// The memory mapped at `address` was bound to an object.
    pub fn bound_address(&self, object: Object, device: Option<u32>, offset: u64, bytes: u64, address: u64) {
        let books = &mut *self.books.lock();
        let end = address.saturating_add(bytes);
        let inside =
            books.mappings.range(..end).filter(|(start, mapping)| start.saturating_add(mapping.bytes) > address);
        let parts: Vec<(u64, Mapping)> = inside.map(|(start, mapping)| (*start, *mapping)).collect();
        for (start, mapping) in parts {
            let first = start.max(address);
            let bytes = start.saturating_add(mapping.bytes).min(end) - first;
            books.bind(object, device, offset.saturating_add(first - address), Mapping { bytes, ..mapping });
        }
    }

    /// Bindings are about to end: those of a device from `offset` on, `bytes` long.
    pub fn unbinding(&self, object: Object, device: u32, offset: u64, bytes: u64) -> Unbinding {
        let end = offset.saturating_add(bytes);
        self.take(|place| place.0 == object && place.1 == device && (offset..end).contains(&place.2))
    }

    /// An object is about to go, with all its bindings.
    pub fn unbinding_all(&self, object: Object) -> Unbinding {
        self.take(|place| place.0 == object)
    }

    fn take(&self, which: impl Fn(&Place) -> bool) -> Unbinding {
        let books = &mut *self.books.lock();
        let places: Vec<Place> = books.bindings.keys().copied().filter(which).collect();
        let taken = places.into_iter().filter_map(|place| Some((place, books.bindings.remove(&place)?)));
        Unbinding { removed: taken.collect() }
    }

    /// The driver ended them: what to uncharge.
    pub fn unbound(&self, unbinding: Unbinding) -> Vec<Charge> {
        let books = &mut *self.books.lock();
        unbinding.removed.iter().filter_map(|(_, binding)| books.unrefer(binding.physical)).collect()
    }

    /// The driver refused to end them.
    pub fn still_bound(&self, unbinding: Unbinding) {
        self.books.lock().bindings.extend(unbinding.removed);
    }
}

impl Books {
    fn bind(&mut self, object: Object, device: Option<u32>, offset: u64, binding: Mapping) {
        let own = self.physical.get(&binding.physical).map(|physical| physical.charge.device);
        let Some(device) = device.or(own) else { return };
        self.refer(binding.physical);
        self.bindings.insert((object, device, offset), binding);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CHARGE: Charge = Charge { device: 1, bytes: 4096, exported: false };
    const OBJECT: Object = Object::Multicast(9);

    fn released(vmm: &Vmm, handle: u64) -> Option<Charge> {
        let releasing = vmm.releasing(handle)?;
        vmm.released(releasing)
    }

    #[test]
    fn the_charge_outlives_the_handle_while_the_memory_is_bound() {
        let vmm = Vmm::default();
        vmm.created(7, CHARGE);
        vmm.bound(OBJECT, None, 0, 4096, 7);
        assert_eq!(released(&vmm, 7), None);
        let others = vmm.unbinding(OBJECT, 0, 0, 4096);
        assert_eq!(vmm.unbound(others), vec![]);
        let refused = vmm.unbinding(OBJECT, 1, 0, 4096);
        vmm.still_bound(refused);
        let ended = vmm.unbinding(OBJECT, 1, 0, 4096);
        assert_eq!(vmm.unbound(ended), vec![CHARGE]);
    }

    #[test]
    fn an_address_binds_every_mapping_that_it_covers_and_an_object_takes_all_with_it() {
        let vmm = Vmm::default();
        for handle in 0..2 {
            vmm.created(handle, CHARGE);
            vmm.mapped(0x1000 + handle * 0x1000, 4096, handle);
            assert_eq!(released(&vmm, handle), None);
        }
        vmm.bound_address(Object::Endpoint(3), Some(0), 0, 8192, 0x1000);
        let unmapping = vmm.unmapping(0x1000, 8192);
        assert_eq!(vmm.unmapped(unmapping), vec![]);
        let gone = vmm.unbinding_all(Object::Endpoint(3));
        assert_eq!(vmm.unbound(gone), vec![CHARGE, CHARGE]);
    }
}
