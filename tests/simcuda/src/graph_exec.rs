//! Running graphs: `cuGraphInstantiate…`, `cuGraphLaunch`, `cuGraphUpload`.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use crate::api::{In, Out, code, cuda_api};
use crate::codes::{CUresult, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use crate::graphs::{self, Graph, Handle, Kind};
use crate::{graphmem, launch, streams};

const AUTO_FREE_ON_LAUNCH: u64 = 1;
const UPLOAD: u64 = 2;
const KNOWN_FLAGS: u64 = 15;

/// An executable graph.
struct Exec {
    graph: Mutex<Arc<Graph>>,
    flags: u64,
    /// Whether a launch left memory allocated that neither the graph nor the program has freed.
    allocates: bool,
    launched: AtomicBool,
}

static EXECS: LazyLock<Mutex<HashMap<Handle, Arc<Exec>>>> = LazyLock::new(Mutex::default);

fn exec(handle: Handle) -> Result<Arc<Exec>, CUresult> {
    if handle == 0 {
        return Err(INVALID_VALUE);
    }
    EXECS.lock().get(&handle).cloned().ok_or(INVALID_HANDLE)
}

/// Makes the executable form. A graph that allocates memory can have one at a time.
fn instantiate(out: Out<Handle>, graph: Handle, flags: u64) -> CUresult {
    if out.is_null() || flags & !KNOWN_FLAGS != 0 {
        return INVALID_VALUE;
    }
    let make = || {
        let graph = graphs::graph(graph)?;
        let allocates = !graph.allocations().is_empty();
        if allocates && graph.instantiated.swap(true, Ordering::AcqRel) {
            return Err(NOT_SUPPORTED);
        }
        let exec = Arc::new(Exec { graph: Mutex::new(graph), flags, allocates, launched: AtomicBool::new(false) });
        let handle = Arc::as_ptr(&exec).addr();
        EXECS.lock().insert(handle, exec);
        out.set(handle);
        Ok(())
    };
    code(make())
}

/// Does a graph's work in the order in which its nodes were added, which respects every dependency that a program can
/// have given.
fn run(graph: &Graph) -> Result<(), CUresult> {
    let nodes: Vec<_> = graph.nodes.lock().clone();
    for node in nodes {
        match &node.kind {
            Kind::Child(child) => run(child)?,
            Kind::MemAlloc(allocation) => graphmem::back(*allocation)?,
            Kind::MemFree(address) => graphmem::unback(*address)?,
            Kind::Kernel => launch::first_launch(None)?,
            _ => {}
        }
        if let Some(work) = &node.work {
            work();
        }
    }
    Ok(())
}

fn launch_now(exec: &Exec) -> Result<(), CUresult> {
    let graph = exec.graph.lock().clone();
    if exec.allocates && exec.launched.swap(true, Ordering::AcqRel) {
        for allocation in graph.allocations().into_iter().filter(|allocation| graphmem::is_backed(allocation.address)) {
            // A second launch with memory of the first still allocated is an error, unless it was asked to free it.
            if exec.flags & AUTO_FREE_ON_LAUNCH == 0 {
                return Err(INVALID_VALUE);
            }
            graphmem::unback(allocation.address)?;
        }
    }
    run(&graph)
}

fn upload(exec: &Exec, stream: streams::Handle) -> Result<(), CUresult> {
    streams::resolve(stream)?;
    graphmem::reserve_for(&exec.graph.lock().allocations())
}

fn launch_on(handle: Handle, stream: streams::Handle) -> CUresult {
    let launch = || {
        let exec = exec(handle)?;
        match streams::enqueue(stream)? {
            Some(capture) => {
                let child = exec.graph.lock().clone();
                capture.graph.add(Kind::Child(child), None);
                Ok(())
            }
            None => launch_now(&exec),
        }
    };
    code(launch())
}

/// Accepts new parameters for a node of an executable graph.
fn accept(handle: Handle, node: Handle) -> CUresult {
    exec(handle).map(|_| ()).and(graphs::node(node).map(|_| ())).err().unwrap_or(0)
}

fn update(handle: Handle, graph: Handle) -> Result<bool, CUresult> {
    let (exec, graph) = (exec(handle)?, graphs::graph(graph)?);
    let kinds = |graph: &Graph| graph.nodes.lock().iter().map(|node| node.kind.number()).collect::<Vec<_>>();
    let mut current = exec.graph.lock();
    let same = kinds(&current) == kinds(&graph) && !exec.allocates;
    if same {
        *current = graph;
    }
    Ok(same)
}

/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`, `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED`.
const UPDATE_FAILURE: CUresult = 910;
const TOPOLOGY_CHANGED: u32 = 2;

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct InstantiateParams {
    flags: u64,
    upload_stream: streams::Handle,
    error_node: Handle,
    result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
struct UpdateInfo {
    result: u32,
    error_node: Handle,
    error_from: Handle,
}

cuda_api! {
    fn cuGraphInstantiate, cuGraphInstantiate_v2(out: Out<Handle>, graph: Handle, error: Out<Handle>, log: Out<c_char>, room: usize) -> CUresult {
        error.set(0);
        if room > 0 {
            log.set(0);
        }
        instantiate(out, graph, 0)
    }

    fn cuGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, flags: u64) -> CUresult {
        instantiate(out, graph, flags)
    }

    fn cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz(out: Out<Handle>, graph: Handle, params: Out<InstantiateParams>) -> CUresult {
        let Some(wanted) = In::from(params).get() else { return INVALID_VALUE };
        let code = match instantiate(out, graph, wanted.flags) {
            0 if wanted.flags & UPLOAD != 0 => {
                let made = In::from(out).get().map_or(Err(INVALID_VALUE), exec);
                made.and_then(|exec| upload(&exec, wanted.upload_stream)).err().unwrap_or(0)
            }
            code => code,
        };
        // CUDA_GRAPH_INSTANTIATE_SUCCESS is 0, _ERROR 1.
        params.set(InstantiateParams { error_node: 0, result: u32::from(code != 0), ..wanted });
        code
    }

    fn cuGraphLaunch, cuGraphLaunch_ptsz(exec: Handle, stream: streams::Handle) -> CUresult {
        launch_on(exec, stream)
    }

    fn cuGraphUpload, cuGraphUpload_ptsz(handle: Handle, stream: streams::Handle) -> CUresult {
        code(exec(handle).and_then(|exec| upload(&exec, stream)))
    }

    fn cuGraphExecDestroy(handle: Handle) -> CUresult {
        match EXECS.lock().remove(&handle) {
            Some(exec) => {
                exec.graph.lock().instantiated.store(false, Ordering::Release);
                0
            }
            None => INVALID_HANDLE,
        }
    }

    fn cuGraphExecGetFlags(handle: Handle, flags: Out<u64>) -> CUresult {
        exec(handle).map_or_else(|code| code, |exec| flags.answer(exec.flags))
    }

    fn cuGraphExecGetId(handle: Handle, id: Out<u32>) -> CUresult {
        exec(handle).map_or_else(|code| code, |exec| id.answer(exec.graph.lock().id))
    }

    fn cuGraphExecUpdate(handle: Handle, graph: Handle, error: Out<Handle>, result: Out<u32>) -> CUresult {
        error.set(0);
        match update(handle, graph) {
            Ok(true) => result.answer(0),
            Ok(false) => {
                result.set(TOPOLOGY_CHANGED);
                UPDATE_FAILURE
            }
            Err(code) => code,
        }
    }

    fn cuGraphExecUpdate_v2(handle: Handle, graph: Handle, info: Out<UpdateInfo>) -> CUresult {
        let answer = |result| UpdateInfo { result, error_node: 0, error_from: 0 };
        match update(handle, graph) {
            Ok(true) => info.answer(answer(0)),
            Ok(false) => {
                info.set(answer(TOPOLOGY_CHANGED));
                UPDATE_FAILURE
            }
            Err(code) => code,
        }
    }

    fn cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, _params: *const c_void) -> CUresult {
        accept(exec, node)
    }

    fn cuGraphExecMemcpyNodeSetParams, cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, _params: *const c_void, _context: usize) -> CUresult {
        accept(exec, node)
    }

    fn cuGraphExecHostNodeSetParams, cuGraphExecNodeSetParams, cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, _params: *const c_void) -> CUresult {
        accept(exec, node)
    }

    fn cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventWaitNodeSetEvent(exec: Handle, node: Handle, _event: usize) -> CUresult {
        accept(exec, node)
    }

    fn cuGraphNodeSetEnabled(exec: Handle, node: Handle, _enabled: u32) -> CUresult {
        accept(exec, node)
    }

    fn cuGraphNodeGetEnabled(exec: Handle, node: Handle, enabled: Out<u32>) -> CUresult {
        match accept(exec, node) {
            0 => enabled.answer(1),
            code => code,
        }
    }
}
