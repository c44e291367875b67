//! Physical allocations: charged to the device that the call names, until the last handle and mapping are gone.

use super::{Failure, Governor};
use crate::budget::Lane;
use crate::code::Code;
use crate::driver::Driver;
use crate::vmm::{Charge, Object, Unbinding, Vmm};

impl Governor<'_> {
    /// `cuMemCreate` of `bytes` on `device`: reserves, calls the driver, keeps the handle that it gives. `sound`: asked
    /// before a refusal, whether the driver would find nothing else wrong.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn physical_create<D: Driver>(
        &self,
        driver: &D,
        lane: Lane,
        device: u32,
        bytes: u64,
        sound: impl FnOnce() -> bool,
        call: impl FnOnce() -> Result<u64, Code>,
    ) -> Result<u64, Failure> {
        let budget = self.near_budget(device).ok_or(Failure::Forward)?;
        let reservation = match budget.reserve(lane, bytes) {
            Ok(reservation) => reservation,
            Err(_) if !sound() => return Err(Failure::Forward),
            Err(_) => self.reserve_hard(driver, lane, device, bytes, 0, false)?,
        };
        let handle = call().map_err(Failure::Driver)?;
        reservation.commit();
        self.vmm.created(handle, Charge { device, bytes, exported: false });
        Ok(handle)
    }

    /// `cuMemRelease`: the driver's answer.
    pub fn physical_release<D: Driver>(&self, driver: &D, handle: u64, call: impl FnOnce() -> Code) -> Code {
        // Forgotten first: the value may be another allocation's as soon as the driver has released it.
        let Some(releasing) = self.vmm.releasing(handle) else {
            // Maybe a multicast object's, which goes with its bindings.
            return self.physical_unbind(driver, self.vmm.unbinding_all(Object::Multicast(handle)), call);
        };
        let working = self.giving_back();
        let code = call();
        let mut exported = None;
        if code.is_success() {
            exported = self.uncharge(self.vmm.released(releasing));
        } else {
            self.vmm.kept(releasing);
        }
        drop(working);
        self.may_live_on(driver, exported);
        code
    }

    /// `cuMemRetainAllocationHandle` gave `handle` for the memory at `address`.
    pub fn physical_retained(&self, handle: u64, address: u64) {
        self.vmm.retained(handle, address);
    }

    /// `cuMemMap` mapped `handle` at `address`.
    pub fn physical_mapped(&self, address: u64, bytes: u64, handle: u64) {
        self.vmm.mapped(address, bytes, handle);
    }

    /// `cuMemUnmap`: the driver's answer.
    pub fn physical_unmap<D: Driver>(&self, driver: &D, address: u64, bytes: u64, call: impl FnOnce() -> Code) -> Code {
        let unmapping = self.vmm.unmapping(address, bytes);
        let working = self.giving_back();
        let code = call();
        let mut exported = None;
        if code.is_success() {
            exported = self.uncharge(self.vmm.unmapped(unmapping));
        } else {
            self.vmm.still_mapped(unmapping);
        }
        drop(working);
        self.may_live_on(driver, exported);
        code
    }

    /// What memory is bound to.
    pub fn bindings(&self) -> &Vmm {
        &self.vmm
    }

    /// A call that ends bindings: the driver's answer.
    pub fn physical_unbind<D: Driver>(&self, driver: &D, which: Unbinding, call: impl FnOnce() -> Code) -> Code {
        let working = self.giving_back();
        let code = call();
        let mut exported = None;
        if code.is_success() {
            exported = self.uncharge(self.vmm.unbound(which));
        } else {
            self.vmm.still_bound(which);
        }
        drop(working);
        self.may_live_on(driver, exported);
        code
    }

    /// `cuMemExportToShareableHandle` of a handle.
    pub fn physical_exported(&self, handle: u64) {
        self.vmm.exported(handle);
    }

    /// `cuMemImportFromShareableHandle` gave `handle`.
    pub fn physical_imported(&self, handle: u64) {
        self.vmm.imported(handle);
    }

    /// Ends charges; the device of one whose memory was exported.
    fn uncharge(&self, charges: impl IntoIterator<Item = Charge>) -> Option<u32> {
        let mut exported = None;
        for charge in charges {
            if let Some(budget) = self.budget(charge.device) {
                budget.release(charge.bytes);
            }
            if charge.exported {
                exported = Some(charge.device);
            }
        }
        exported
    }

    /// An importer may keep exported memory alive: what is left of it counts as overhead.
    fn may_live_on<D: Driver>(&self, driver: &D, device: Option<u32>) {
        if let Some(device) = device {
            self.read_overhead(driver, device);
        }
    }
}
