//! Graphs and their nodes: what a capture or a program puts into them. Functions of the driver are in the files beside.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE};

/// A `CUgraph`, a `CUgraphNode`: an address.
pub type Handle = usize;

/// What a node is.
#[derive(Clone)]
pub enum Kind {
    Kernel,
    Memcpy,
    Memset,
    Host,
    Child(Arc<Graph>),
    Empty,
    EventWait,
    EventRecord,
    MemAlloc(Allocation),
    /// Address of what it frees.
    MemFree(u64),
    BatchMemOp,
}

/// What a memory allocation node allocates.
#[derive(Clone, Copy)]
pub struct Allocation {
    /// Fixed when the node is made.
    pub address: u64,
    pub bytes: u64,
    /// The machine's number.
    pub device: usize,
}

impl Kind {
    /// `CUgraphNodeType`.
    pub fn number(&self) -> u32 {
        match self {
            Kind::Kernel => 0,
            Kind::Memcpy => 1,
            Kind::Memset => 2,
            Kind::Host => 3,
            Kind::Child(_) => 4,
            Kind::Empty => 5,
            Kind::EventWait => 6,
            Kind::EventRecord => 7,
            Kind::MemAlloc(_) => 10,
            Kind::MemFree(_) => 11,
            Kind::BatchMemOp => 12,
        }
    }
}

/// What a node does when its graph is launched.
pub type Work = Box<dyn Fn() + Send + Sync>;

/// One node.
pub struct Node {
    pub graph: Handle,
    pub local_id: u32,
    pub kind: Kind,
    pub work: Option<Work>,
    /// The parameters as the program gave them, for `cuGraph…NodeGetParams`.
    pub params: Mutex<Vec<u8>>,
    pub dependencies: Mutex<Vec<Handle>>,
}

/// One graph.
pub struct Graph {
    pub id: u32,
    pub nodes: Mutex<Vec<Arc<Node>>>,
    /// Whether an executable form of it lives: a graph that allocates may have one only.
    pub instantiated: AtomicBool,
    /// Objects that live as long as the graph, with how often.
    pub objects: Mutex<HashMap<usize, u32>>,
}

static GRAPHS: LazyLock<Mutex<HashMap<Handle, Arc<Graph>>>> = LazyLock::new(Mutex::default);
static NODES: LazyLock<Mutex<HashMap<Handle, Arc<Node>>>> = LazyLock::new(Mutex::default);

impl Graph {
    /// A new graph that handles can name.
    pub fn create() -> Arc<Graph> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let graph = Arc::new(Graph {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            nodes: Mutex::default(),
            instantiated: AtomicBool::new(false),
            objects: Mutex::default(),
        });
        GRAPHS.lock().insert(graph.handle(), graph.clone());
        graph
    }

    pub fn handle(self: &Arc<Self>) -> Handle {
        Arc::as_ptr(self).addr()
    }

    /// Adds a node that follows the last one.
    pub fn add(self: &Arc<Self>, kind: Kind, work: Option<Work>) -> Handle {
        let last: Vec<Handle> = self.nodes.lock().last().map(handle_of).into_iter().collect();
        self.add_after(kind, work, last, Vec::new())
    }

    /// Adds a node that follows `dependencies`.
    pub fn add_after(self: &Arc<Self>, kind: Kind, work: Option<Work>, after: Vec<Handle>, params: Vec<u8>) -> Handle {
        let mut nodes = self.nodes.lock();
        let node = Arc::new(Node {
            graph: self.handle(),
            local_id: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            kind,
            work,
            params: Mutex::new(params),
            dependencies: Mutex::new(after),
        });
        let handle = handle_of(&node);
        NODES.lock().insert(handle, node.clone());
        nodes.push(node);
        handle
    }

    /// What it allocates when it is launched, its children's too.
    pub fn allocations(&self) -> Vec<Allocation> {
        let nodes = self.nodes.lock();
        let of = |node: &Arc<Node>| match &node.kind {
            Kind::MemAlloc(allocation) => vec![*allocation],
            Kind::Child(child) => child.allocations(),
            _ => Vec::new(),
        };
        nodes.iter().flat_map(of).collect()
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        for node in self.nodes.get_mut().drain(..) {
            NODES.lock().remove(&handle_of(&node));
            if let Kind::MemAlloc(allocation) = node.kind {
                crate::graphmem::forget(allocation);
            }
        }
        for (object, count) in self.objects.get_mut().drain() {
            crate::user_objects::release(object, count);
        }
    }
}

/// A node's handle.
pub fn handle_of(node: &Arc<Node>) -> Handle {
    Arc::as_ptr(node).addr()
}

/// The graph that a handle names.
pub fn graph(handle: Handle) -> Result<Arc<Graph>, CUresult> {
    if handle == 0 {
        return Err(INVALID_VALUE);
    }
    GRAPHS.lock().get(&handle).cloned().ok_or(INVALID_HANDLE)
}

/// The node that a handle names.
pub fn node(handle: Handle) -> Result<Arc<Node>, CUresult> {
    if handle == 0 {
        return Err(INVALID_VALUE);
    }
    NODES.lock().get(&handle).cloned().ok_or(INVALID_HANDLE)
}

/// Takes a graph's name away; it lives on in what was made from it.
pub fn destroy(handle: Handle) -> Result<(), CUresult> {
    let graph = GRAPHS.lock().remove(&handle);
    graph.map(drop).ok_or(INVALID_HANDLE)
}

/// Takes a node out of its graph.
pub fn destroy_node(handle: Handle) -> Result<(), CUresult> {
    let node = node(handle)?;
    if matches!(node.kind, Kind::MemAlloc(_) | Kind::MemFree(_)) {
        return Err(crate::codes::NOT_SUPPORTED);
    }
    let graph = graph(node.graph)?;
    graph.nodes.lock().retain(|other| handle_of(other) != handle);
    for other in graph.nodes.lock().iter() {
        other.dependencies.lock().retain(|dependency| *dependency != handle);
    }
    NODES.lock().remove(&handle);
    Ok(())
}
