//! Memory of graphs: addresses are fixed when an allocation node is made, memory is taken at launch and kept for the
//! device's graphs until it is trimmed.
//!
//! As a pool's, the charge is a level: `reserved` grows in steps when more is in use than was reserved, and
//! falls only by `cuDeviceGraphMemTrim`.

use std::collections::HashMap;

use parking_lot::Mutex;
use simdevice::{Knobs, me};

use crate::api::{self, Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE, OUT_OF_MEMORY};
use crate::devices;
use crate::graphs::Allocation;
use crate::heap::{self, Kind};
use crate::units::round_up;

/// One device's graph memory, in bytes.
#[derive(Clone, Copy, Default)]
struct Level {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
}

#[derive(Default)]
struct Graphs {
    levels: [Level; simdevice::MAX_DEVICES],
    /// Addresses of live nodes, with whether memory is behind them, their device and their size.
    nodes: Option<HashMap<u64, Node>>,
}

#[derive(Clone, Copy)]
struct Node {
    device: usize,
    bytes: u64,
    backed: bool,
    /// Its graph is gone; the address goes with the memory.
    forgotten: bool,
}

static GRAPHS: Mutex<Graphs> = Mutex::new(Graphs {
    levels: [Level { used: 0, used_high: 0, reserved: 0, reserved_high: 0 }; simdevice::MAX_DEVICES],
    nodes: None,
});

impl Graphs {
    fn nodes(&mut self) -> &mut HashMap<u64, Node> {
        self.nodes.get_or_insert_default()
    }

    /// Reserves so that `more` bytes can be used.
    fn grow(&mut self, device: usize, more: u64) -> Result<(), CUresult> {
        let level = &mut self.levels[device];
        let missing = (level.used + more).saturating_sub(level.reserved);
        let step = round_up(missing, Knobs::get().pool_step).ok_or(OUT_OF_MEMORY)?;
        if step > 0 && !me().take_block(device, step) {
            return Err(OUT_OF_MEMORY);
        }
        level.reserved += step;
        level.reserved_high = level.reserved_high.max(level.reserved);
        Ok(())
    }
}

/// Bytes that a node of `bytes` uses.
fn rounded(bytes: u64) -> u64 {
    round_up(bytes, Knobs::get().granularity).unwrap_or(bytes)
}

/// An address for an allocation node.
pub fn reserve(device: usize, bytes: u64) -> Result<u64, CUresult> {
    let address = heap::place(device, bytes, Kind::Graph)?;
    GRAPHS.lock().nodes().insert(address, Node { device, bytes: rounded(bytes), backed: false, forgotten: false });
    Ok(address)
}

/// Takes memory for a node that is being executed.
pub fn back(allocation: Allocation) -> Result<(), CUresult> {
    let mut graphs = GRAPHS.lock();
    let node = graphs.nodes().get(&allocation.address).copied().ok_or(INVALID_VALUE)?;
    if node.backed {
        return Err(INVALID_VALUE);
    }
    graphs.grow(node.device, node.bytes)?;
    let level = &mut graphs.levels[node.device];
    level.used += node.bytes;
    level.used_high = level.used_high.max(level.used);
    graphs.nodes().insert(allocation.address, Node { backed: true, ..node });
    Ok(())
}

/// Gives a node's memory back to the device's graphs.
pub fn unback(address: u64) -> Result<(), CUresult> {
    let mut graphs = GRAPHS.lock();
    let node = graphs.nodes().get(&address).copied().filter(|node| node.backed).ok_or(INVALID_VALUE)?;
    graphs.levels[node.device].used -= node.bytes;
    if node.forgotten {
        graphs.nodes().remove(&address);
        heap::remove(address, |found| found.kind == Kind::Graph);
    } else {
        graphs.nodes().insert(address, Node { backed: false, ..node });
    }
    Ok(())
}

/// Whether memory is behind the address of a node.
pub fn is_backed(address: u64) -> bool {
    GRAPHS.lock().nodes().get(&address).is_some_and(|node| node.backed)
}

/// Reserves for a graph that is uploaded.
pub fn reserve_for(allocations: &[Allocation]) -> Result<(), CUresult> {
    let mut graphs = GRAPHS.lock();
    for device in 0..simdevice::MAX_DEVICES {
        let on_device = allocations.iter().filter(|allocation| allocation.device == device);
        let more: u64 = on_device.map(|allocation| rounded(allocation.bytes)).sum();
        if more > 0 {
            graphs.grow(device, more)?;
        }
    }
    Ok(())
}

/// The node's graph is gone. Memory that a launch left allocated lives on until the program frees it.
pub fn forget(allocation: Allocation) {
    let mut graphs = GRAPHS.lock();
    let Some(node) = graphs.nodes().get_mut(&allocation.address) else {
        return;
    };
    node.forgotten = true;
    if !node.backed {
        graphs.nodes().remove(&allocation.address);
        heap::remove(allocation.address, |found| found.kind == Kind::Graph);
    }
}

/// `CUgraphMem_attribute`: used, its high-water mark, reserved, its high-water mark.
const HIGH: [u32; 2] = [1, 3];

cuda_api! {
    fn cuDeviceGraphMemTrim(device: i32) -> CUresult {
        let trim = |device: usize| {
            let mut graphs = GRAPHS.lock();
            let level = &mut graphs.levels[device];
            let keep = round_up(level.used, Knobs::get().pool_step).unwrap_or(level.reserved).min(level.reserved);
            let less = level.reserved - keep;
            level.reserved = keep;
            if less > 0 {
                me().give_block(device, less);
            }
        };
        api::code(devices::machine(device).map(trim))
    }

    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, out: Out<u64>) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match devices::machine(device) {
            Ok(device) => {
                let level = GRAPHS.lock().levels[device];
                match attribute {
                    0 => out.answer(level.used),
                    1 => out.answer(level.used_high),
                    2 => out.answer(level.reserved),
                    3 => out.answer(level.reserved_high),
                    _ => INVALID_VALUE,
                }
            }
            Err(code) => code,
        }
    }

    /// High-water marks can be set to 0, nothing else can be set.
    fn cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: crate::api::In<u64>) -> CUresult {
        match devices::machine(device) {
            Ok(device) if HIGH.contains(&attribute) && value.get() == Some(0) => {
                let mut graphs = GRAPHS.lock();
                let level = &mut graphs.levels[device];
                if attribute == 1 { level.used_high = level.used } else { level.reserved_high = level.reserved }
                0
            }
            Ok(_) => INVALID_VALUE,
            Err(code) => code,
        }
    }
}
