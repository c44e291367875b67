//! Arrays: charged by their shape to the current context's device, until they are destroyed or their context is.

use super::{Failure, Governor, overhead};
use crate::arrays::Array;
use crate::budget::Lane;
use crate::code::Code;
use crate::driver::Driver;

impl Governor<'_> {
    /// An array of `bytes` by the driver's blocks: reserves, calls the driver, keeps the handle that it gives. `sound`:
    /// asked before a refusal, whether the driver would find nothing else wrong.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn array_create<D: Driver>(
        &self,
        driver: &D,
        lane: Lane,
        bytes: u64,
        sound: impl FnOnce() -> bool,
        call: impl FnOnce() -> Result<u64, Code>,
    ) -> Result<u64, Failure> {
        let owner = self.contexts.owner(driver).map_err(|_| Failure::Forward)?;
        let budget = self.near_budget(owner.device).ok_or(Failure::Forward)?;
        let risk = if self.measures(owner.device) { overhead::risk(bytes) } else { 0 };
        let reservation = match budget.reserve_packed(lane, bytes, risk) {
            Ok(reservation) => reservation,
            Err(_) if !sound() || !self.would_look(driver) => return Err(Failure::Forward),
            Err(_) => self.reserve_hard(driver, lane, owner.device, bytes, risk, false)?,
        };
        let handle = call().map_err(Failure::Driver)?;
        reservation.commit();
        let owner = owner.slot;
        if let Some(dead) = self.arrays.created(handle, Array { bytes, owner }) {
            self.array_gone(dead);
        }
        Ok(handle)
    }

    /// `cuArrayDestroy`, `cuMipmappedArrayDestroy`: the driver's answer, with the charge ended if it is a success.
    pub fn array_destroy(&self, handle: u64, call: impl FnOnce() -> Code) -> Code {
        let array = self.arrays.take(handle);
        let _working = self.giving_back();
        let code = call();
        if let Some(array) = array
            && (code.is_success() || !self.arrays.put_back(handle, array))
        {
            self.array_gone(array);
        }
        code
    }

    fn array_gone(&self, array: Array) {
        let Some(device) = self.contexts.device_of(array.owner) else {
            return;
        };
        if let Some(budget) = self.budget(device) {
            if self.measures(device) && overhead::risk(array.bytes) > 0 {
                // The page may stay with its neighbours.
                budget.suspect(array.bytes);
            }
            budget.release(array.bytes);
        }
    }
}
