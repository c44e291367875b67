//! Which graphs own memory, how much a launch of each may take, and what launches left allocated.
//!
//! An allocation node fixes an address; memory is taken when the graph is launched or uploaded, from what the device
//! keeps for graphs (`CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`). That level is charged like a pool's, as one more pool
//! of the device which no call names ([`pool_handle`]). Here is what a launch has to reserve: the sum of the nodes'
//! sizes, less what an earlier launch of the same graph left allocated, and never more than the device had reserved
//! after a launch of it.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use crate::sync::{Mutex, Ordering};

/// The handle by which the pools know a device's graph memory: no pointer, so no handle of the driver.
#[must_use]
pub fn pool_handle(device: u32) -> usize {
    usize::MAX - device as usize
}

/// The device whose graph memory goes by this handle; `None` for a pool of the driver.
#[must_use]
pub fn device_of(handle: usize) -> Option<u32> {
    let device = usize::MAX - handle;
    u32::try_from(device).ok().filter(|device| *device < 1 << 16)
}

/// An allocation node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Address of its memory.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Ordinal of the device that it lies on.
    pub device: u32,
}

/// Bytes of graph memory by device ordinal.
pub type Needs = Vec<(u32, u64)>;

/// What a graph does to memory.
#[derive(Clone, Debug, Default)]
struct Effects {
    allocates: Vec<Node>,
    frees: Vec<u64>,
}

#[derive(Debug)]
struct Exec {
    effects: Effects,
    /// What its devices had reserved after a launch of it: it needs no more.
    most: Needs,
}

#[derive(Debug, Default)]
struct Books {
    graphs: HashMap<usize, Effects>,
    execs: HashMap<usize, Exec>,
    /// Memory that launches left allocated, by address.
    live: HashMap<u64, u64>,
}

/// The graphs of the process that own memory.
#[derive(Debug, Default)]
pub struct GraphMemory {
    any: AtomicBool,
    books: Mutex<Books>,
}

impl GraphMemory {
    /// Whether any graph ever owned memory: one relaxed load.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// A graph got an allocation node.
    pub fn allocates(&self, graph: usize, node: Node) {
        self.any.store(true, Ordering::Relaxed);
        self.books.lock().graphs.entry(graph).or_default().allocates.push(node);
    }

    /// A graph got a node that frees an address.
    pub fn frees(&self, graph: usize, address: u64) {
        if self.any() {
            self.books.lock().graphs.entry(graph).or_default().frees.push(address);
        }
    }

    /// A graph got another one as a child.
    pub fn adopts(&self, graph: usize, child: usize) {
        let books = &mut *self.books.lock();
        if let Some(effects) = books.graphs.get(&child).cloned() {
            books.add(graph, effects);
        }
    }

    /// The launch of an executable graph was captured: it is a child of `graph`.
    pub fn adopts_launch(&self, graph: usize, exec: usize) {
        let books = &mut *self.books.lock();
        if let Some(effects) = books.execs.get(&exec).map(|exec| exec.effects.clone()) {
            books.add(graph, effects);
        }
    }

    /// A graph is gone. Its executable form, and what launches of it left allocated, live on.
    pub fn destroyed(&self, graph: usize) {
        self.books.lock().graphs.remove(&graph);
    }

    /// A graph was made executable.
    pub fn instantiated(&self, exec: usize, graph: usize) {
        let books = &mut *self.books.lock();
        // A handle known from an executable graph that ended past us now means this one.
        books.execs.remove(&exec);
        if let Some(effects) = books.graphs.get(&graph).cloned() {
            books.execs.insert(exec, Exec { effects, most: Needs::new() });
        }
    }

    /// An executable graph is gone.
    pub fn exec_destroyed(&self, exec: usize) {
        self.books.lock().execs.remove(&exec);
    }

    /// What an upload of a graph that is made executable may take.
    pub fn needs_of_graph(&self, graph: usize) -> Needs {
        let books = self.books.lock();
        books.graphs.get(&graph).map_or_else(Needs::new, |effects| sum(&effects.allocates))
    }

    /// What an upload of an executable graph may take.
    pub fn needs_of_upload(&self, exec: usize) -> Needs {
        let books = self.books.lock();
        books.execs.get(&exec).map_or_else(Needs::new, |exec| sum(&exec.effects.allocates))
    }

    /// What a launch of an executable graph may take; `None` for one that does nothing to memory.
    pub fn needs_of_launch(&self, exec: usize) -> Option<Needs> {
        let books = self.books.lock();
        let exec = books.execs.get(&exec)?;
        let missing = exec.effects.allocates.iter().copied().filter(|node| !books.live.contains_key(&node.address));
        let mut needs = sum(&missing.collect::<Vec<_>>());
        for (device, bytes) in &mut needs {
            let most = exec.most.iter().find(|(known, _)| known == device);
            *bytes = most.map_or(*bytes, |(_, most)| *most.min(bytes));
        }
        Some(needs)
    }

    /// An executable graph was launched, and the devices have reserved that much since.
    pub fn launched(&self, exec: usize, reserved: &[(u32, u64)]) {
        let books = &mut *self.books.lock();
        let Some(exec) = books.execs.get_mut(&exec) else {
            return;
        };
        for &(device, bytes) in reserved {
            match exec.most.iter_mut().find(|(known, _)| *known == device) {
                Some((_, most)) => *most = bytes.min(*most),
                None => exec.most.push((device, bytes)),
            }
        }
        books.live.extend(exec.effects.allocates.iter().map(|node| (node.address, node.bytes)));
        for address in &exec.effects.frees {
            books.live.remove(address);
        }
    }

    /// The program freed an address that no other book knows.
    pub fn freed(&self, address: u64) {
        self.books.lock().live.remove(&address);
    }
}

impl Books {
    fn add(&mut self, graph: usize, mut effects: Effects) {
        let all = self.graphs.entry(graph).or_default();
        all.allocates.append(&mut effects.allocates);
        all.frees.append(&mut effects.frees);
    }
}

fn sum(nodes: &[Node]) -> Needs {
    let mut needs = Needs::new();
    for node in nodes {
        match needs.iter_mut().find(|(device, _)| *device == node.device) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(node.bytes),
            None => needs.push((node.device, node.bytes)),
        }
    }
    needs
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn with_exec(nodes: &[(u64, u64)], frees: &[u64]) -> GraphMemory {
        let graphs = GraphMemory::default();
        for &(address, bytes) in nodes {
            graphs.allocates(1, Node { address, bytes, device: 0 });
        }
        for address in frees {
            graphs.frees(1, *address);
        }
        graphs.instantiated(2, 1);
        graphs
    }

    #[test]
    fn a_launch_needs_the_sum_of_its_nodes_less_what_an_earlier_one_left() {
        let graphs = with_exec(&[(10, 100), (20, 50)], &[20]);
        assert_eq!(graphs.needs_of_launch(2), Some(vec![(0, 150)]));
        graphs.launched(2, &[(0, 1000)]);
        assert_eq!(graphs.needs_of_launch(2), Some(vec![(0, 50)]));
        graphs.freed(10);
        assert_eq!(graphs.needs_of_launch(2), Some(vec![(0, 150)]));
    }

    #[test]
    fn a_launch_needs_no_more_than_was_reserved_after_one() {
        let graphs = with_exec(&[(10, 100), (20, 100)], &[10, 20]);
        graphs.launched(2, &[(0, 128)]);
        assert_eq!(graphs.needs_of_launch(2), Some(vec![(0, 128)]));
        graphs.launched(2, &[(0, 64)]);
        graphs.launched(2, &[(0, 500)]);
        assert_eq!(graphs.needs_of_launch(2), Some(vec![(0, 64)]));
        assert_eq!(graphs.needs_of_upload(2), vec![(0, 200)]);
    }

    #[test]
    fn an_executable_graph_outlives_its_graph_and_children_count_for_their_parents() {
        let graphs = with_exec(&[(10, 100)], &[]);
        graphs.adopts(7, 1);
        graphs.destroyed(1);
        assert_eq!(graphs.needs_of_graph(1), vec![]);
        assert_eq!(graphs.needs_of_graph(7), vec![(0, 100)]);
        assert_eq!(graphs.needs_of_launch(2), Some(vec![(0, 100)]));
        graphs.adopts_launch(8, 2);
        assert_eq!(graphs.needs_of_graph(8), vec![(0, 100)]);
        graphs.exec_destroyed(2);
        assert_eq!(graphs.needs_of_launch(2), None);
    }

    #[test]
    fn the_handles_of_graph_memory_are_no_pointers() {
        assert_eq!(device_of(pool_handle(3)), Some(3));
        assert_eq!(device_of(0x7f00_0000_0000), None);
    }
}
