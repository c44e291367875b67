//! Contexts come and go: their blocks are uncharged when the driver has dropped them.

use super::Governor;
use crate::code::Code;
use crate::contexts::Moved;
use crate::driver::Driver;
use crate::ledger::{Block, Kind};

impl Governor<'_> {
    /// A context was created by the program.
    pub fn context_created<D: Driver>(&self, driver: &D, handle: usize, device: u32) {
        self.contexts.created(handle, device);
        self.read_overhead(driver, device);
    }

    /// `cuCtxAttach` returned this context.
    pub fn context_attached(&self, handle: usize) {
        self.contexts.attached(handle);
    }

    /// `cuCtxDestroy`: the driver's answer, with the context's memory uncharged if it is a success.
    pub fn context_destroy<D: Driver>(&self, driver: &D, handle: usize, call: impl FnOnce() -> Code) -> Code {
        let owner = self.contexts.find(handle);
        let working = self.giving_back();
        let code = call();
        if let (true, Some(owner)) = (code.is_success(), owner) {
            let one = self.ending.lock();
            let dead = self.contexts.destroyed(owner);
            self.forget(owner.device, dead);
            drop(one);
            drop(working);
            self.read_overhead(driver, owner.device);
        }
        code
    }

    /// `cuCtxDetach`: as destroy, when it was the last one.
    pub fn context_detach<D: Driver>(&self, driver: &D, handle: usize, call: impl FnOnce() -> Code) -> Code {
        let owner = self.contexts.find(handle);
        let working = self.giving_back();
        let code = call();
        if let (true, Some(owner)) = (code.is_success(), owner)
            && self.contexts.detached(handle)
        {
            let one = self.ending.lock();
            let dead = self.contexts.destroyed(owner);
            self.forget(owner.device, dead);
            drop(one);
            drop(working);
            self.read_overhead(driver, owner.device);
        }
        code
    }

    /// `cuDevicePrimaryCtxRetain` returned this context.
    pub fn primary_retained<D: Driver>(&self, driver: &D, handle: usize, device: u32) {
        let id = driver.context_id(handle);
        let one = self.ending.lock();
        let dead = self.contexts.primary_retained(handle, device, id);
        self.forget(device, dead);
        drop(one);
        self.read_overhead(driver, device);
    }

    /// `cuDevicePrimaryCtxRelease`: the driver's answer, with the memory uncharged if it was the last one.
    pub fn primary_release<D: Driver>(&self, driver: &D, device: u32, call: impl FnOnce() -> Code) -> Code {
        self.primary_end(driver, device, false, call)
    }

    /// `cuDevicePrimaryCtxReset`: the driver's answer, with all memory of the context uncharged if it is a success.
    pub fn primary_reset<D: Driver>(&self, driver: &D, device: u32, call: impl FnOnce() -> Code) -> Code {
        self.primary_end(driver, device, true, call)
    }

    fn primary_end<D: Driver>(&self, driver: &D, device: u32, all: bool, call: impl FnOnce() -> Code) -> Code {
        let ending = self.contexts.primary_ending(device, all);
        let working = self.giving_back();
        let code = call();
        if !code.is_success() {
            let _one = self.ending.lock();
            self.merge(self.contexts.primary_lives(&ending, all));
            return code;
        }
        let died = loop {
            let retains = self.contexts.retains();
            // Where the driver does not say, our own count of retains has to do.
            let active = driver.primary_is_active(device).unwrap_or_else(|| ending.leaves_it_alive());
            let id = if active {
                self.contexts.primary_handle(device).and_then(|handle| driver.context_id(handle))
            } else {
                None
            };
            let alive = active.then_some(id);
            let _one = self.ending.lock();
            if let Some(ended) = self.contexts.primary_ended(&ending, all, alive, retains) {
                let died = !ended.dead.is_empty() || !active;
                self.merge(ended.moved);
                self.forget(device, ended.dead);
                break died;
            }
        };
        drop(working);
        if died {
            self.read_overhead(driver, device);
        }
        code
    }

    /// A block was kept for an owner whose blocks had been dropped by then: it died with it, or came just after it and
    /// belongs to the context that is current now, which then ends its charge.
    #[cold]
    pub(super) fn kept_late<D: Driver>(&self, driver: &D, address: u64, block: Block) {
        // The address may be another block's by now.
        if !self.ledger.take_exactly(address, block) {
            return;
        }
        let device = self.contexts.device_of(block.owner);
        match self.contexts.owner(driver) {
            Ok(now) if now.slot != block.owner && Some(now.device) == device => {
                let owner = now.slot;
                self.keep(driver, address, Block { owner, ..block });
            }
            _ => self.gone(driver, block),
        }
    }

    fn merge(&self, moved: Option<Moved>) {
        let Some(moved) = moved else { return };
        if !moved.empty {
            self.ledger.change_owner(moved.from, moved.to);
            self.arrays.change_owner(moved.from, moved.to);
        }
        self.contexts.merged(moved);
    }

    /// Ends the charges of what died with its owners, and of what was kept too late for owners that died before.
    fn forget(&self, device: u32, dead: Vec<u16>) {
        let mut owners = self.contexts.to_sweep(device);
        owners.extend(&dead);
        if owners.is_empty() {
            return;
        }
        self.drop_blocks(device, &owners);
        self.contexts.dropped(&dead);
    }

    fn drop_blocks(&self, device: u32, owners: &[u16]) {
        let drop_all = |is: fn(Kind) -> bool| -> u64 {
            let gone = self.ledger.purge(|block| is(block.kind) && owners.contains(&block.owner));
            gone.iter().map(|owner| owner.bytes).sum()
        };
        let managed = drop_all(|kind| kind == Kind::Managed);
        let others = drop_all(|kind| !matches!(kind, Kind::Managed | Kind::Pool));
        if let Some(budget) = self.budget(device) {
            budget.drop_managed(managed);
            budget.release(managed + others + self.arrays.purge(owners));
        }
    }
}
