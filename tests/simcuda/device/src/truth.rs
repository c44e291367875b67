//! What tests read: the books of a simulated machine, from outside the processes that use it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::books::{Books, add_within, find_counter, raise, read, uuid_of};
use crate::knobs::Knobs;
use crate::layout::{COUNTERS, LIVE, Layout, Slot};
use crate::map::Map;
use crate::{audit, process, visible};

/// An open state file.
#[derive(Clone)]
pub struct Truth(Arc<Books>);

/// One device. Bytes, by pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTruth {
    /// Size of the device.
    pub total: u64,
    /// What living processes and [`Truth::take_foreign`] hold.
    pub used: u64,
    /// `total - used`.
    pub free: u64,
    /// Highest `used` ever.
    pub peak: u64,
    /// The part of `used` that no process holds.
    pub foreign: u64,
    /// `GPU-xxxxxxxx-…`.
    pub uuid: String,
}

/// What a process holds on one device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Sum of block sizes; pools by what they reserve.
    pub blocks: u64,
    /// What the device lost to the process, `overhead` included.
    pub pages: u64,
    /// Contexts, modules, local memory.
    pub overhead: u64,
    /// Highest `blocks`.
    pub peak_blocks: u64,
    /// Highest `pages`.
    pub peak_pages: u64,
}

/// One process that called the simulated driver.
#[derive(Clone)]
pub struct ProcessTruth {
    /// As the process itself sees it.
    pub pid: u32,
    /// Whether it still runs; a dead process holds nothing, its peaks and calls stay.
    pub alive: bool,
    /// By device of the machine (not by the ordinal that the process sees).
    pub per_device: Vec<Held>,
    counts: Vec<(String, u64)>,
}

impl ProcessTruth {
    /// How often the process called `name` (an exported name, as `cuMemAlloc_v2`).
    pub fn calls(&self, name: &str) -> u64 {
        self.counts.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count)
    }

    /// Every name that was called, with how often, by name.
    pub fn all_calls(&self) -> &[(String, u64)] {
        &self.counts
    }
}

impl Truth {
    /// Opens the state file of a simulated machine.
    ///
    /// # Panics
    /// If there is none at `path`.
    pub fn open(path: &Path) -> Truth {
        let map = Map::open_existing(path);
        Truth(Arc::new(Books(map.unwrap_or_else(|error| panic!("{}: {error}", path.display())))))
    }

    /// Makes the state file of a new machine, before any process uses it.
    ///
    /// # Errors
    /// If the file cannot be made or mapped.
    pub fn create(path: &Path, knobs: &Knobs) -> io::Result<Truth> {
        Ok(Truth(Arc::new(Books(Map::open(Some(path), knobs)?))))
    }

    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    /// Devices of the machine.
    pub fn devices(&self) -> usize {
        self.0.devices()
    }

    /// The state of device `device`, after the dead gave back.
    pub fn device(&self, device: usize) -> DeviceTruth {
        audit::reap(self.layout());
        let book = &self.layout().device[device];
        let (total, used) = (book.total.load(Relaxed), book.used.load(Acquire));
        DeviceTruth {
            total,
            used,
            free: total - used,
            peak: book.peak.load(Acquire),
            foreign: book.foreign.load(Acquire),
            uuid: visible::uuid_text(uuid_of(book)),
        }
    }

    /// Every process on record, in the order in which they came.
    pub fn processes(&self) -> Vec<ProcessTruth> {
        audit::reap(self.layout());
        let mut slots: Vec<&Slot> =
            self.layout().slots.iter().filter(|slot| slot.state.load(Acquire) >= LIVE).collect();
        slots.sort_by_key(|slot| slot.sequence.load(Relaxed));
        slots.into_iter().map(|slot| self.describe(slot)).collect()
    }

    /// The newest process with this pid.
    pub fn process(&self, pid: u32) -> Option<ProcessTruth> {
        self.processes().into_iter().rev().find(|process| process.pid == pid)
    }

    /// How often all processes together called `name`.
    pub fn calls(&self, name: &str) -> u64 {
        let Some(index) = find_counter(self.layout(), name) else {
            return 0;
        };
        self.layout().slots.iter().map(|slot| slot.calls[index].load(Relaxed)).sum()
    }

    fn describe(&self, slot: &Slot) -> ProcessTruth {
        let mut counts: Vec<(String, u64)> = (0..COUNTERS)
            .filter_map(|index| {
                let count = slot.calls[index].load(Relaxed);
                (count != 0).then(|| (self.name(index), count))
            })
            .collect();
        counts.sort();
        ProcessTruth {
            pid: u32::try_from(slot.owner.load(Relaxed) >> 32).unwrap_or(0),
            alive: slot.state.load(Acquire) == LIVE && process::is_alive(self.layout(), slot),
            per_device: slot.held[..self.devices()].iter().map(read).collect(),
            counts,
        }
    }

    fn name(&self, index: usize) -> String {
        let bytes: Vec<u8> = self.layout().names[index]
            .text
            .iter()
            .map(|cell| cell.load(Relaxed))
            .take_while(|byte| *byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Takes device memory for somebody who is no process of the test: a neighbour, a desktop. False if it does not fit.
    pub fn take_foreign(&self, device: usize, bytes: u64) -> bool {
        audit::reap(self.layout());
        let book = &self.layout().device[device];
        audit::exclusive(self.layout(), || {
            let Some(now) = add_within(&book.used, bytes, book.total.load(Relaxed)) else {
                return false;
            };
            book.foreign.fetch_add(bytes, AcqRel);
            raise(&book.peak, now);
            true
        })
    }

    /// Gives back what [`Truth::take_foreign`] took.
    pub fn give_foreign(&self, device: usize, bytes: u64) {
        let book = &self.layout().device[device];
        audit::exclusive(self.layout(), || {
            book.foreign.fetch_sub(bytes, AcqRel);
            book.used.fetch_sub(bytes, AcqRel);
        });
    }
}
