//! Building graphs: `cuGraphCreate`, `cuGraphAdd…Node`.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::api::{In, Out, code, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE, NOT_SUPPORTED};
use crate::graphs::{self, Allocation, Graph, Handle, Kind, Work};
use crate::{copies, devices, graphmem, memsets};

/// `CUDA_KERNEL_NODE_PARAMS_v1`, `_v2`: sizes only, launches do nothing.
type KernelParams = [u64; 7];
type KernelParamsV2 = [u64; 9];

/// `CUDA_HOST_NODE_PARAMS_v1`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct HostParams {
    pub function: usize,
    pub data: usize,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AllocParams {
    allocation_type: u32,
    handle_types: u32,
    /// `CU_MEM_LOCATION_TYPE_DEVICE` is 1.
    location: u32,
    device: i32,
    rest: [u64; 9],
    access: usize,
    access_count: usize,
    bytes: usize,
    address: u64,
}

/// `CUgraphNodeParams`: a type, then the parameters of that type at byte 16.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct NodeParams {
    kind: u32,
    reserved: [u32; 3],
    body: [u64; 30],
}

/// The bytes of plain parameters.
pub fn bytes_of<T: Copy>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    // SAFETY: the vector has room for a T, and all T here are plain integers.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast(), bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

/// Where a new node goes.
struct Place {
    out: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
}

impl Place {
    fn check(&self) -> Result<Arc<Graph>, CUresult> {
        if self.out.is_null() || (self.count > 0 && self.after.is_null()) {
            return Err(INVALID_VALUE);
        }
        let graph = graphs::graph(self.graph)?;
        for dependency in self.after.many(self.count) {
            if graphs::node(dependency)?.graph != self.graph {
                return Err(INVALID_VALUE);
            }
        }
        Ok(graph)
    }

    fn add(&self, kind: Kind, work: Option<Work>, params: Vec<u8>) -> CUresult {
        match self.check() {
            Ok(graph) => self.out.answer(graph.add_after(kind, work, self.after.many(self.count), params)),
            Err(code) => code,
        }
    }

    /// Adds a node that needs parameters.
    fn add_with<T: Copy>(&self, kind: Kind, params: In<T>, work: impl FnOnce(T) -> Option<Work>) -> CUresult {
        match params.get() {
            Some(params) => self.add(kind, work(params), bytes_of(&params)),
            None => INVALID_VALUE,
        }
    }

    /// Adds an allocation; its address is known from now on, its memory is taken when the graph is launched.
    fn add_alloc(&self, params: Out<AllocParams>) -> CUresult {
        const DEVICE: u32 = 1;
        let Some(mut wanted) = In::from(params).get() else {
            return INVALID_VALUE;
        };
        let mut allocate = || {
            let graph = self.check()?;
            if wanted.bytes == 0 || wanted.location != DEVICE {
                return Err(INVALID_VALUE);
            }
            let device = devices::machine(wanted.device)?;
            let address = graphmem::reserve(device, wanted.bytes as u64)?;
            wanted.address = address;
            let kind = Kind::MemAlloc(Allocation { address, bytes: wanted.bytes as u64, device });
            params.set(wanted);
            self.out.set(graph.add_after(kind, None, self.after.many(self.count), bytes_of(&wanted)));
            Ok(())
        };
        code(allocate())
    }

    fn add_free(&self, address: u64) -> CUresult {
        if address == 0 {
            return INVALID_VALUE;
        }
        self.add(Kind::MemFree(address), None, bytes_of(&address))
    }

    /// Adds a node of any type.
    fn add_any(&self, params: Out<NodeParams>) -> CUresult {
        let Some(wanted) = In::from(params).get() else {
            return INVALID_VALUE;
        };
        let body = wanted.body;
        let body_at = |params: Out<NodeParams>| {
            // SAFETY: the parameters of a type lie at byte 16 of a CUgraphNodeParams, which is valid for reads and writes.
            unsafe { Out::<AllocParams>::new(params.raw().cast::<u8>().add(16).cast()) }
        };
        match wanted.kind {
            0 => self.add(Kind::Kernel, None, bytes_of(&body)),
            1 => self.add(Kind::Memcpy, None, bytes_of(&body)),
            2 => self.add(Kind::Memset, None, bytes_of(&body)),
            3 => {
                let host = HostParams { function: word(body[0]), data: word(body[1]) };
                self.add(Kind::Host, host_work(host), bytes_of(&host))
            }
            4 => match graphs::graph(word(body[0])) {
                Ok(child) => self.add(Kind::Child(child), None, Vec::new()),
                Err(code) => code,
            },
            5 => self.add(Kind::Empty, None, Vec::new()),
            6 => self.add(Kind::EventWait, None, bytes_of(&body[0])),
            7 => self.add(Kind::EventRecord, None, bytes_of(&body[0])),
            10 => self.add_alloc(body_at(params)),
            11 => self.add_free(body[0]),
            12 => self.add(Kind::BatchMemOp, None, bytes_of(&body)),
            _ => NOT_SUPPORTED,
        }
    }
}

fn word(value: u64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Calls a host function.
pub fn host_work(params: HostParams) -> Option<Work> {
    (params.function != 0).then(|| -> Work {
        Box::new(move || {
            crate::hostfn::call(Box::new(move || {
                // SAFETY: the program gave a `CUhostFn` and its argument.
                unsafe {
                    let function: unsafe extern "C" fn(*mut c_void) = std::mem::transmute(params.function);
                    function(std::ptr::with_exposed_provenance_mut(params.data));
                }
            }));
        })
    })
}

cuda_api! {
    fn cuGraphCreate(out: Out<Handle>, flags: u32) -> CUresult {
        if out.is_null() || flags != 0 {
            return INVALID_VALUE;
        }
        out.answer(Graph::create().handle())
    }

    fn cuGraphDestroy(graph: Handle) -> CUresult {
        code(graphs::destroy(graph))
    }

    fn cuGraphDestroyNode(node: Handle) -> CUresult {
        code(graphs::destroy_node(node))
    }

    fn cuGraphAddKernelNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<KernelParams>) -> CUresult {
        Place { out, graph, after, count }.add_with(Kind::Kernel, params, |_| None)
    }

    fn cuGraphAddKernelNode_v2(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<KernelParamsV2>) -> CUresult {
        Place { out, graph, after, count }.add_with(Kind::Kernel, params, |_| None)
    }

    fn cuGraphAddMemcpyNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<copies::Copy3d>, _context: usize) -> CUresult {
        Place { out, graph, after, count }.add_with(Kind::Memcpy, params, |copy| {
            Some(Box::new(move || {
                let _ = copy.run();
            }))
        })
    }

    fn cuGraphAddMemsetNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<memsets::NodeParams>, _context: usize) -> CUresult {
        Place { out, graph, after, count }.add_with(Kind::Memset, params, |set| {
            Some(Box::new(move || {
                let _ = set.run();
            }))
        })
    }

    fn cuGraphAddHostNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<HostParams>) -> CUresult {
        Place { out, graph, after, count }.add_with(Kind::Host, params, host_work)
    }

    fn cuGraphAddChildGraphNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, child: Handle) -> CUresult {
        match graphs::graph(child) {
            // A graph that allocates cannot be copied, and a child is a copy.
            Ok(child) if !child.allocations().is_empty() => NOT_SUPPORTED,
            Ok(child) => Place { out, graph, after, count }.add(Kind::Child(child), None, Vec::new()),
            Err(code) => code,
        }
    }

    fn cuGraphAddEmptyNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize) -> CUresult {
        Place { out, graph, after, count }.add(Kind::Empty, None, Vec::new())
    }

    fn cuGraphAddEventRecordNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: usize) -> CUresult {
        Place { out, graph, after, count }.add(Kind::EventRecord, None, bytes_of(&event))
    }

    fn cuGraphAddEventWaitNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: usize) -> CUresult {
        Place { out, graph, after, count }.add(Kind::EventWait, None, bytes_of(&event))
    }

    fn cuGraphAddBatchMemOpNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<[u64; 4]>) -> CUresult {
        Place { out, graph, after, count }.add_with(Kind::BatchMemOp, params, |_| None)
    }

    fn cuGraphAddMemAllocNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: Out<AllocParams>) -> CUresult {
        Place { out, graph, after, count }.add_alloc(params)
    }

    fn cuGraphAddMemFreeNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, address: u64) -> CUresult {
        Place { out, graph, after, count }.add_free(address)
    }

    fn cuGraphAddNode(out: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: Out<NodeParams>) -> CUresult {
        Place { out, graph, after, count }.add_any(params)
    }

    /// With data on the edges, which change nothing here.
    fn cuGraphAddNode_v2, cuGraphAddNode_v3(out: Out<Handle>, graph: Handle, after: In<Handle>, _edges: *const c_void, count: usize, params: Out<NodeParams>) -> CUresult {
        Place { out, graph, after, count }.add_any(params)
    }

    /// A copy; what was allocated by nodes cannot be copied.
    fn cuGraphClone(out: Out<Handle>, original: Handle) -> CUresult {
        match graphs::graph(original) {
            Ok(_) if out.is_null() => INVALID_VALUE,
            Ok(graph) if !graph.allocations().is_empty() => NOT_SUPPORTED,
            Ok(graph) => {
                // The clone does the original's work, of which it is the only node.
                let clone = Graph::create();
                clone.add(Kind::Child(graph), None);
                out.answer(clone.handle())
            }
            Err(code) => code,
        }
    }

    fn cuGraphDebugDotPrint(graph: Handle, path: *const c_char, _flags: u32) -> CUresult {
        match graphs::graph(graph) {
            Ok(_) if path.is_null() => INVALID_VALUE,
            Ok(_) => 0,
            Err(code) => code,
        }
    }
}
