//! Graphs that own memory: their nodes, their executable forms, and the launches that take it.
//!
//! Until the first graph owns memory, a launch costs one relaxed load.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use gpucap_core::code::Code;
use gpucap_core::graph_memory::{Node, pool_handle};
use gpucap_core::policy::Failure;

use super::stream_ordered::{LEGACY, PER_THREAD, Streams};
use crate::ffi::{
    CUdevice, CUdeviceptr, CUstream, Graph, GraphExec, GraphInstantiateParams, GraphNode, GraphNodeParams,
    MemAllocNodeParams, NODE_CHILD_GRAPH, NODE_MEM_ALLOC, NODE_MEM_FREE,
};
use crate::state::{self, DRIVER, State};
use crate::{lane, report};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;

/// Whether any graph ever owned memory.
static MEMORY: AtomicBool = AtomicBool::new(false);

/// The books, once a graph owns memory.
fn books() -> Option<&'static State> {
    if MEMORY.load(Ordering::Relaxed) { state::get() } else { None }
}

/// A graph got a node that allocates `bytes` at `address`.
pub fn allocates(state: &State, graph: Graph, device: Option<u32>, address: u64, bytes: u64) {
    // As the driver rounds them. Host memory costs nothing.
    let (Some(device), Some(bytes)) = (device, bytes.checked_next_multiple_of(512)) else {
        return;
    };
    state.governor.graphs().allocates(graph, Node { address, bytes, device });
    MEMORY.store(true, Ordering::Relaxed);
}

/// A graph got a node that frees `address`.
pub fn frees(state: &State, graph: Graph, address: u64) {
    state.governor.graphs().frees(graph, address);
}

/// `cuGraphAddMemAllocNode`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn add_mem_alloc(
    real: unsafe extern "C" fn(*mut GraphNode, Graph, *const GraphNode, usize, *mut MemAllocNodeParams) -> Code,
    out: *mut GraphNode,
    graph: Graph,
    after: *const GraphNode,
    count: usize,
    params: *mut MemAllocNodeParams,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(out, graph, after, count, params) };
    if code.is_success() {
        // SAFETY: the driver has just read it and written the address.
        unsafe { added_alloc(graph, params) };
    }
    code
}

/// Notes an allocation node.
///
/// # Safety
/// The driver has just accepted `params`.
unsafe fn added_alloc(graph: Graph, params: *const MemAllocNodeParams) {
    // SAFETY: this function's contract.
    if let (Some(params), Some(state)) = (unsafe { params.as_ref() }, state::get()) {
        allocates(state, graph, params.props.location.device(), params.address, params.bytes as u64);
    }
}

/// `cuGraphAddMemFreeNode`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn add_mem_free(
    real: unsafe extern "C" fn(*mut GraphNode, Graph, *const GraphNode, usize, CUdeviceptr) -> Code,
    out: *mut GraphNode,
    graph: Graph,
    after: *const GraphNode,
    count: usize,
    address: CUdeviceptr,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(out, graph, after, count, address) };
    if let (true, Some(state)) = (code.is_success(), books()) {
        frees(state, graph, address);
    }
    code
}

/// `cuGraphAddNode`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn add_node(
    real: unsafe extern "C" fn(*mut GraphNode, Graph, *const GraphNode, usize, *mut GraphNodeParams) -> Code,
    out: *mut GraphNode,
    graph: Graph,
    after: *const GraphNode,
    count: usize,
    params: *mut GraphNodeParams,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(out, graph, after, count, params) };
    // SAFETY: the driver has just accepted them.
    unsafe { added(code, graph, params) }
}

/// `cuGraphAddNode_v2`, `cuGraphAddNode_v3`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn add_node_v2(
    real: unsafe extern "C" fn(
        *mut GraphNode,
        Graph,
        *const GraphNode,
        *const c_void,
        usize,
        *mut GraphNodeParams,
    ) -> Code,
    out: *mut GraphNode,
    graph: Graph,
    after: *const GraphNode,
    edges: *const c_void,
    count: usize,
    params: *mut GraphNodeParams,
) -> Code {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(out, graph, after, edges, count, params) };
    // SAFETY: the driver has just accepted them.
    unsafe { added(code, graph, params) }
}

/// Notes a node of any kind, if the driver made it.
///
/// # Safety
/// With success, the driver has just accepted `params`.
unsafe fn added(code: Code, graph: Graph, params: *const GraphNodeParams) -> Code {
    if !code.is_success() {
        return code;
    }
    // SAFETY: this function's contract.
    let Some(params) = (unsafe { params.as_ref() }) else {
        return code;
    };
    match params.kind {
        // SAFETY: the driver reads the body of a node of this kind as these parameters (cuda.h, CUgraphNodeParams).
        NODE_MEM_ALLOC => unsafe { added_alloc(graph, (&raw const params.body).cast()) },
        NODE_MEM_FREE => {
            if let Some(state) = books() {
                frees(state, graph, params.body[0]);
            }
        }
        NODE_CHILD_GRAPH => {
            if let (Some(state), Ok(child)) = (books(), Graph::try_from(params.body[0])) {
                state.governor.graphs().adopts(graph, child);
            }
        }
        _ => {}
    }
    code
}

/// `cuGraphDestroy`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn destroy(real: unsafe extern "C" fn(Graph) -> Code, graph: Graph) -> Code {
    // Before the call: the handle may be another graph's as soon as the driver has it back. One that the driver does not
    // know is none that the books know.
    if let Some(state) = books() {
        state.governor.graphs().destroyed(graph);
    }
    // SAFETY: the program's own argument.
    unsafe { real(graph) }
}

/// `cuGraphExecDestroy`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn exec_destroy(real: unsafe extern "C" fn(GraphExec) -> Code, exec: GraphExec) -> Code {
    if let Some(state) = books() {
        state.governor.graphs().exec_destroyed(exec);
    }
    // SAFETY: the program's own argument.
    unsafe { real(exec) }
}

/// `cuGraphInstantiate`, `cuGraphInstantiate_v2`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn instantiate(
    real: unsafe extern "C" fn(*mut GraphExec, Graph, *mut GraphNode, *mut c_char, usize) -> Code,
    out: *mut GraphExec,
    graph: Graph,
    error: *mut GraphNode,
    log: *mut c_char,
    room: usize,
) -> Code {
    // SAFETY: the program's own arguments.
    made(out, graph, false, "", || unsafe { real(out, graph, error, log, room) })
}

/// `cuGraphInstantiateWithFlags`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn instantiate_with_flags(
    real: unsafe extern "C" fn(*mut GraphExec, Graph, u64) -> Code,
    out: *mut GraphExec,
    graph: Graph,
    flags: u64,
) -> Code {
    // SAFETY: the program's own arguments.
    made(out, graph, false, "", || unsafe { real(out, graph, flags) })
}

/// `cuGraphInstantiateWithParams`, `cuGraphInstantiateWithParams_ptsz`: may upload.
///
/// # Safety
/// As the driver's function.
pub unsafe fn instantiate_with_params(
    real: unsafe extern "C" fn(*mut GraphExec, Graph, *mut GraphInstantiateParams) -> Code,
    out: *mut GraphExec,
    graph: Graph,
    params: *mut GraphInstantiateParams,
) -> Code {
    // SAFETY: a graph owns memory, so the driver has started and reads a pointer that is not null just the same.
    let upload = books().is_some() && unsafe { params.as_ref() }.is_some_and(|params| params.flags & UPLOAD != 0);
    // SAFETY: the program's own arguments.
    made(out, graph, upload, "cuGraphInstantiateWithParams", || unsafe { real(out, graph, params) })
}

fn made(out: *mut GraphExec, graph: Graph, upload: bool, entry: &str, call: impl Fn() -> Code) -> Code {
    let Some(state) = books() else {
        return call();
    };
    let graphs = state.governor.graphs();
    let needs = if upload { graphs.needs_of_graph(graph) } else { Vec::new() };
    let done = state.governor.graph_work(&DRIVER, lane::mine(), &needs, || call().ok());
    let code = answer(state, entry, done, call);
    if code.is_success() {
        // SAFETY: the driver has just written it.
        graphs.instantiated(unsafe { out.read() }, graph);
    }
    code
}

fn answer(state: &State, entry: &str, done: Result<(), Failure>, call: impl FnOnce() -> Code) -> Code {
    match done {
        Ok(()) => Code::SUCCESS,
        Err(Failure::Driver(code)) => code,
        Err(Failure::Denied(denial)) => {
            report::denied(state, entry, denial);
            Code::OUT_OF_MEMORY
        }
        Err(Failure::Forward) => call(),
    }
}

/// `cuGraphLaunch`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn launch(
    real: unsafe extern "C" fn(GraphExec, CUstream) -> Code,
    exec: GraphExec,
    stream: CUstream,
) -> Code {
    // SAFETY: the program's own arguments.
    launched(LEGACY, "cuGraphLaunch", exec, stream, || unsafe { real(exec, stream) })
}

/// `cuGraphLaunch_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn launch_ptsz(
    real: unsafe extern "C" fn(GraphExec, CUstream) -> Code,
    exec: GraphExec,
    stream: CUstream,
) -> Code {
    // SAFETY: the program's own arguments.
    launched(PER_THREAD, "cuGraphLaunch_ptsz", exec, stream, || unsafe { real(exec, stream) })
}

fn launched(streams: Streams, entry: &str, exec: GraphExec, stream: CUstream, call: impl Fn() -> Code) -> Code {
    let Some(state) = books() else {
        return call();
    };
    let graphs = state.governor.graphs();
    if graphs.needs_of_launch(exec).is_none() {
        return call();
    }
    if let Some(graph) = streams.captures_into(stream) {
        let code = call();
        if code.is_success() {
            graphs.adopts_launch(graph, exec);
        }
        return code;
    }
    match state.governor.graph_launch(&DRIVER, lane::mine(), exec, &call) {
        Some(done) => answer(state, entry, done, call),
        None => call(),
    }
}

/// `cuGraphUpload`, `cuGraphUpload_ptsz`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn upload(
    real: unsafe extern "C" fn(GraphExec, CUstream) -> Code,
    exec: GraphExec,
    stream: CUstream,
) -> Code {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(exec, stream) };
    let Some(state) = books() else {
        return call();
    };
    let needs = state.governor.graphs().needs_of_upload(exec);
    let done = state.governor.graph_work(&DRIVER, lane::mine(), &needs, || call().ok());
    answer(state, "cuGraphUpload", done, call)
}

/// `cuDeviceGraphMemTrim`.
///
/// # Safety
/// As the driver's function.
pub unsafe fn trim(real: unsafe extern "C" fn(CUdevice) -> Code, device: CUdevice) -> Code {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(device) };
    match (books(), u32::try_from(device)) {
        (Some(state), Ok(device)) => state.governor.pool_trim(&DRIVER, pool_handle(device), call),
        _ => call(),
    }
}
