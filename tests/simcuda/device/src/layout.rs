//! The layout of the shared file: plain atomics, valid when all zero.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The most devices that a simulated machine can have.
pub const MAX_DEVICES: usize = 16;
/// Processes whose records are kept; the oldest dead one makes room for a new one.
pub(crate) const SLOTS: usize = 512;
/// Distinct counter names (every driver function, and a few of our own).
pub(crate) const COUNTERS: usize = 2048;
/// Exported memory objects that can be alive at once.
pub(crate) const OBJECTS: usize = 1024;
/// Longest counter name that can be listed; longer ones are cut (they are still counted apart, by hash).
pub(crate) const NAME_BYTES: usize = 56;

/// "simcuda" and the layout's version.
pub(crate) const MAGIC: u64 = 0x7369_6d63_7564_6102;

/// [`Slot::state`]: never used.
pub(crate) const FREE: u32 = 0;
/// [`Slot::state`]: being filled by a process that attaches.
pub(crate) const CLAIMED: u32 = 1;
/// [`Slot::state`]: its process may hold memory.
pub(crate) const LIVE: u32 = 2;
/// [`Slot::state`]: the process died and everything was given back; counts and peaks stay readable.
pub(crate) const DEAD: u32 = 3;

/// The whole file.
#[repr(C)]
pub(crate) struct Layout {
    pub magic: AtomicU64,
    pub devices: AtomicU32,
    /// Order in which processes attached.
    pub sequence: AtomicU32,
    /// Who recounts the books at this moment ([`crate::audit`]), 0 for nobody.
    pub auditor: AtomicU64,
    /// Pid namespace of the creator: only from there can every process be seen.
    pub namespace: AtomicU64,
    /// Last number given to physical memory.
    pub object_numbers: AtomicU64,
    /// Shared objects that no process holds, but a descriptor somewhere keeps alive.
    pub orphans: AtomicU32,
    pub device: [Device; MAX_DEVICES],
    pub objects: [Object; OBJECTS],
    pub names: [Name; COUNTERS],
    pub slots: [Slot; SLOTS],
}

/// One simulated device.
#[repr(C, align(128))]
pub(crate) struct Device {
    /// Bytes; constant after creation.
    pub total: AtomicU64,
    /// UUID, bytes 0..8 and 8..16, native order.
    pub uuid: [AtomicU64; 2],
    /// Bytes taken through [`crate::Truth::take_foreign`].
    pub foreign: AtomicU64,
    pub pad: [AtomicU64; 4],
    /// Bytes that all processes and `foreign` hold, by pages; never above `total`.
    pub used: AtomicU64,
    /// Highest `used` ever.
    pub peak: AtomicU64,
}

/// Physical memory that was exported ([`crate::shared`]).
#[repr(C)]
pub(crate) struct Object {
    /// 0: nothing here.
    pub number: AtomicU64,
    pub bytes: AtomicU64,
    pub device: AtomicU64,
    /// Index of the slot whose pages it is counted in.
    pub payer: AtomicU64,
    /// A bit for each slot.
    pub holders: [AtomicU64; SLOTS / 64],
}

/// One counter's name. The hash decides the index, so two processes that register the same name agree without a lock.
#[repr(C)]
pub(crate) struct Name {
    pub hash: AtomicU64,
    pub text: [AtomicU8; NAME_BYTES],
}

/// One process.
#[repr(C, align(128))]
pub(crate) struct Slot {
    pub state: AtomicU32,
    pub sequence: AtomicU32,
    /// Pid in the upper half, low bits of the start time below: an identity that a reused pid does not share.
    pub owner: AtomicU64,
    /// The program that the process was when it attached; execve(2) keeps pid and start time.
    pub image: AtomicU64,
    /// Pid namespace of the process (inode).
    pub namespace: AtomicU64,
    /// Changes of the books that are under way; an audit waits for 0.
    pub busy: AtomicU64,
    pub held: [Account; MAX_DEVICES],
    pub calls: [AtomicU64; COUNTERS],
}

/// What one process holds on one device, in bytes.
#[repr(C, align(128))]
pub(crate) struct Account {
    pub blocks: AtomicU64,
    pub peak_blocks: AtomicU64,
    pub pages: AtomicU64,
    pub peak_pages: AtomicU64,
    /// The part of `pages` that contexts, modules and local memory take.
    pub overhead: AtomicU64,
}
