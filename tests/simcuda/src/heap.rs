//! Every block of device memory of this process: where it lies, what it is, whose it is.
//!
//! The heap places blocks and finds them again; it also moves the books for the blocks of contexts, because what a small
//! block costs (a new page or none) is known here. Its lock is a leaf: nothing is called under it but the books.

mod shared_pages;

use std::sync::LazyLock;

use parking_lot::{Mutex, MutexGuard};
use simdevice::me;

use crate::backing::Arena;
use crate::codes::{CONTEXT_IS_DESTROYED, CUresult, OUT_OF_MEMORY};
use crate::ctx::Context;
use crate::small::{CLASSES, SmallPage};
use crate::units::{LARGE, PAGE, block_size, pages, to_usize};

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// cuMemAlloc, cuMemAllocPitch.
    Linear,
    /// cuMemAllocManaged.
    Managed,
    /// The memory of an array.
    Array,
    /// From the stream-ordered pool with this number; charged by the pool.
    Pool(u64),
    /// Of another interface, imported: it costs nothing here.
    External,
    /// Of a graph's allocation node; charged by the device's graph memory.
    Graph,
}

/// A block, as it is found by an address in it.
#[derive(Clone, Copy)]
pub struct Found {
    pub base: u64,
    /// What was asked for, in bytes.
    pub size: u64,
    pub kind: Kind,
    /// The machine's number.
    pub device: usize,
    /// Who owns it; pools' and graphs' memory belongs to no context.
    pub context: Option<&'static Context>,
}

struct Block {
    first: u32,
    pages: u32,
    asked: u64,
    kind: Kind,
    device: usize,
    owner: Option<(&'static Context, u64)>,
    /// Somebody may have written to it: its host memory is worth giving back.
    dirty: bool,
    small: Option<SmallPage>,
}

/// Shared pages of one context with room, by the class of their longest free run.
struct Shelf {
    key: (u64, Kind),
    pages: [Vec<u32>; CLASSES],
}

/// High or low addresses.
struct Region {
    arena: Arena,
    blocks: Vec<Option<Block>>,
    spare: Vec<u32>,
    shelves: Vec<Shelf>,
    /// Emptied pages' tables, to be used again.
    tables: Vec<SmallPage>,
}

static HIGH: LazyLock<Option<Mutex<Region>>> = LazyLock::new(|| Arena::high().map(Region::new));
/// Made at the first 32-bit call.
static LOW: LazyLock<Option<Mutex<Region>>> = LazyLock::new(|| Arena::low().map(Region::new));

/// Whether low addresses were ever asked for; looking at `LOW` would make them.
static LOW_USED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn region(low: bool) -> Result<&'static Mutex<Region>, CUresult> {
    if low {
        LOW_USED.store(true, std::sync::atomic::Ordering::Release);
    }
    let region = if low { &LOW } else { &HIGH };
    region.as_ref().ok_or(OUT_OF_MEMORY)
}

/// The region that `address` can lie in.
fn region_of(address: u64) -> Option<MutexGuard<'static, Region>> {
    let low = u32::try_from(address).is_ok();
    if low && !LOW_USED.load(std::sync::atomic::Ordering::Acquire) {
        return None;
    }
    Some(region(low).ok()?.lock())
}

/// Allocates for `context`, with 32-bit addresses if `low`.
pub fn allocate(context: &'static Context, bytes: u64, kind: Kind, low: bool) -> Result<u64, CUresult> {
    let size = block_size(bytes).ok_or(OUT_OF_MEMORY)?;
    let region = region(low)?;
    let id = context.id();
    let device = context.device();
    if bytes < LARGE {
        return region.lock().place_small(context, id, bytes, kind);
    }
    if !me().take_block(device, size) {
        return Err(OUT_OF_MEMORY);
    }
    let block = Block {
        first: 0,
        pages: pages(size).unwrap_or(u32::MAX),
        asked: bytes,
        kind,
        device,
        owner: Some((context, id)),
        dirty: kind == Kind::Managed,
        small: None,
    };
    let placed = region.lock().insert(block);
    if placed.is_err() {
        me().give_block(device, size);
    }
    placed
}

/// Addresses for memory that a pool or a graph has charged already.
pub fn place(device: usize, bytes: u64, kind: Kind) -> Result<u64, CUresult> {
    let pages = pages(bytes).filter(|pages| *pages > 0).ok_or(OUT_OF_MEMORY)?;
    let block = Block { first: 0, pages, asked: bytes, kind, device, owner: None, dirty: false, small: None };
    region(false)?.lock().insert(block)
}

/// Removes the block that begins at `address`, if `which` agrees; the books of contexts' blocks are settled. What it was.
pub fn remove(address: u64, which: impl FnOnce(&Found) -> bool) -> Option<Found> {
    let mut region = region_of(address)?;
    let found = region.find(address).filter(|found| found.base == address)?;
    if !which(&found) {
        return None;
    }
    let number = region.arena.owner(address)?;
    if region.block(number)?.small.is_some() {
        region.remove_small(number, address);
    } else {
        let block = region.take_out(number)?;
        if block.dirty {
            region.arena.punch(block.first, block.pages);
        }
        region.arena.give(block.first, block.pages);
        drop(region);
        settle(&block);
    }
    Some(found)
}

/// The block that `address` lies in.
pub fn find(address: u64) -> Option<Found> {
    region_of(address)?.find(address)
}

/// As [`find`], for somebody who is going to access the bytes.
pub fn touch(address: u64) -> Option<Found> {
    let mut region = region_of(address)?;
    let found = region.find(address)?;
    let number = region.arena.owner(address)?;
    if let Some(block) = region.blocks.get_mut(to_usize(u64::from(number))).and_then(Option::as_mut) {
        block.dirty = true;
    }
    Some(found)
}

/// The file and offset behind `address`, for another process.
pub fn file_of(address: u64) -> Option<(i32, u64)> {
    Some(region_of(address)?.arena.place(address))
}

/// Everything of the context with this id goes.
pub fn context_gone(id: u64) {
    for low in [false, true] {
        if low && !LOW_USED.load(std::sync::atomic::Ordering::Acquire) {
            continue;
        }
        let Ok(region) = region(low) else { continue };
        let mut region = region.lock();
        for number in 0..region.blocks.len() {
            let Ok(number) = u32::try_from(number) else {
                break;
            };
            let its = |block: &Block| block.owner.is_some_and(|(_, owner)| owner == id);
            if !region.block(number).is_some_and(its) {
                continue;
            }
            let Some(mut block) = region.take_out(number) else {
                continue;
            };
            if block.dirty {
                region.arena.punch(block.first, block.pages);
            }
            region.arena.give(block.first, block.pages);
            settle(&block);
            if let Some(mut table) = block.small.take() {
                table.clear();
                region.tables.push(table);
            }
        }
        region.shelves.retain(|shelf| shelf.key.0 != id);
    }
}

/// The books of a block of a context that is gone; pools and graphs keep their own.
fn settle(block: &Block) {
    if block.owner.is_none() {
        return;
    }
    match &block.small {
        Some(page) => {
            me().remove_block(block.device, page.live_bytes());
            me().give_pages(block.device, PAGE);
        }
        None => me().give_block(block.device, u64::from(block.pages) * PAGE),
    }
}

impl Region {
    fn new(arena: Arena) -> Mutex<Region> {
        Mutex::new(Region { arena, blocks: Vec::new(), spare: Vec::new(), shelves: Vec::new(), tables: Vec::new() })
    }

    fn block(&self, number: u32) -> Option<&Block> {
        self.blocks.get(to_usize(u64::from(number)))?.as_ref()
    }

    /// Gives `block` addresses, unless its context went meanwhile.
    fn insert(&mut self, mut block: Block) -> Result<u64, CUresult> {
        // Under the lock that `context_gone` takes after the context was marked: no block slips in behind it.
        if block.owner.is_some_and(|(context, id)| !context.is_alive() || context.id() != id) {
            return Err(CONTEXT_IS_DESTROYED);
        }
        block.first = self.arena.take(block.pages).ok_or(OUT_OF_MEMORY)?;
        let number = match self.spare.pop() {
            Some(number) => number,
            None => {
                self.blocks.push(None);
                u32::try_from(self.blocks.len() - 1).map_err(|_| OUT_OF_MEMORY)?
            }
        };
        self.arena.set_owner(block.first, block.pages, Some(number));
        let address = self.arena.address(block.first);
        self.blocks[to_usize(u64::from(number))] = Some(block);
        Ok(address)
    }

    /// Takes a block out of every table but the free runs.
    fn take_out(&mut self, number: u32) -> Option<Block> {
        let block = self.blocks.get_mut(to_usize(u64::from(number)))?.take()?;
        self.arena.set_owner(block.first, block.pages, None);
        self.spare.push(number);
        Some(block)
    }

    fn find(&self, address: u64) -> Option<Found> {
        let block = self.block(self.arena.owner(address)?)?;
        let start = self.arena.address(block.first);
        let (base, size) = match &block.small {
            None => (start, block.asked),
            Some(page) => {
                let (offset, asked) = page.find_block(address - start)?;
                (start + offset, u64::from(asked))
            }
        };
        // Beyond what was asked for lies nothing that anybody may use.
        let inside = address - base < size;
        let context = block.owner.map(|(context, _)| context);
        inside.then_some(Found { base, size, kind: block.kind, device: block.device, context })
    }
}
