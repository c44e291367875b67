//! The addresses that the tree does not cover: a few locked maps, and a count that spares everybody else the lock.

use crate::sync::Ordering::{Acquire, Release};
use crate::sync::{AtomicU64, Mutex};
use std::collections::BTreeMap;

#[cfg(not(loom))]
const SHARDS: usize = 8;
#[cfg(loom)]
const SHARDS: usize = 1;

#[derive(Default)]
pub(super) struct Stray {
    /// Entries of all shards. Raised before an address can be known to anyone, so zero means that nothing is to be found.
    count: AtomicU64,
    shards: [Mutex<BTreeMap<u64, u64>>; SHARDS],
}

impl Stray {
    #[allow(clippy::cast_possible_truncation)] // below SHARDS
    fn shard(&self, address: u64) -> &Mutex<BTreeMap<u64, u64>> {
        // Multiplying spreads both the high and the low bits into the top ones.
        &self.shards[(address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % SHARDS]
    }

    fn is_empty(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    #[cold]
    pub(super) fn insert(&self, address: u64, value: u64) -> Option<u64> {
        let mut shard = self.shard(address).lock();
        let old = shard.insert(address, value);
        if old.is_none() {
            self.count.fetch_add(1, Release);
        }
        old
    }

    pub(super) fn put_back(&self, address: u64, value: u64) -> bool {
        let mut shard = self.shard(address).lock();
        if shard.contains_key(&address) {
            return false;
        }
        shard.insert(address, value);
        self.count.fetch_add(1, Release);
        true
    }

    #[cold]
    pub(super) fn get(&self, address: u64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        self.shard(address).lock().get(&address).copied()
    }

    #[cold]
    pub(super) fn take(&self, address: u64) -> Option<u64> {
        self.take_if(address, |_| true)
    }

    pub(super) fn take_if(&self, address: u64, accept: impl FnOnce(u64) -> bool) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let mut shard = self.shard(address).lock();
        let value = shard.get(&address).copied().filter(|&value| accept(value))?;
        shard.remove(&address);
        self.count.fetch_sub(1, Release);
        Some(value)
    }

    pub(super) fn for_each(&self, mut each: impl FnMut(u64, u64)) {
        for shard in &self.shards {
            // Copied, so that `each` runs without the lock.
            let entries: Vec<(u64, u64)> = shard.lock().iter().map(|(&a, &v)| (a, v)).collect();
            entries.into_iter().for_each(|(address, value)| each(address, value));
        }
    }

    pub(super) fn change(&self, mut new: impl FnMut(u64) -> Option<u64>) {
        for shard in &self.shards {
            for value in shard.lock().values_mut() {
                *value = new(*value).unwrap_or(*value);
            }
        }
    }

    pub(super) fn purge(&self, mut dies: impl FnMut(u64, u64) -> bool, mut gone: impl FnMut(u64, u64)) {
        self.for_each(|address, value| {
            if dies(address, value) && self.take_if(address, |now| now == value).is_some() {
                gone(address, value);
            }
        });
    }
}
