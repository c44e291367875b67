//! Asking graphs and nodes: what they are, what they depend on, with which parameters.

use std::ffi::c_void;

use crate::api::{In, Out, cuda_api};
use crate::codes::{CUresult, INVALID_VALUE, NOT_SUPPORTED};
use crate::graphs::{self, Handle, Kind};

/// Answers with a list in two steps: without room for it, how long it is; with room, as much as fits.
fn list<const COLUMNS: usize>(
    rows: &[[Handle; COLUMNS]],
    columns: [Out<Handle>; COLUMNS],
    count: Out<usize>,
) -> CUresult {
    let Some(room) = In::from(count).get() else {
        return INVALID_VALUE;
    };
    if columns.iter().all(|column| column.is_null()) {
        return count.answer(rows.len());
    }
    for (i, row) in rows.iter().take(room).enumerate() {
        for (column, value) in columns.iter().zip(row) {
            if !column.is_null() {
                // SAFETY: the caller gave room for `room` entries in each column that is not null.
                unsafe { column.raw().add(i).write(*value) };
            }
        }
    }
    // What lies beyond the list is cleared, as the manual says.
    for i in rows.len()..room {
        for column in columns.iter().filter(|column| !column.is_null()) {
            // SAFETY: as above.
            unsafe { column.raw().add(i).write(0) };
        }
    }
    count.answer(rows.len().min(room))
}

fn edges(graph: &graphs::Graph) -> Vec<[Handle; 2]> {
    let nodes = graph.nodes.lock();
    let into = |node: &std::sync::Arc<graphs::Node>| {
        let to = graphs::handle_of(node);
        node.dependencies.lock().iter().map(move |from| [*from, to]).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(into).collect()
}

/// Answers from a graph, or with why there is none.
fn with_graph(handle: Handle, answer: impl FnOnce(&graphs::Graph) -> CUresult) -> CUresult {
    graphs::graph(handle).map_or_else(|code| code, |graph| answer(&graph))
}

fn with_node(handle: Handle, answer: impl FnOnce(&graphs::Node) -> CUresult) -> CUresult {
    graphs::node(handle).map_or_else(|code| code, |node| answer(&node))
}

/// Adds or removes dependencies.
fn link(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize, add: bool) -> CUresult {
    if count > 0 && (from.is_null() || to.is_null()) {
        return INVALID_VALUE;
    }
    with_graph(graph, |_| {
        for (from, to) in from.many(count).into_iter().zip(to.many(count)) {
            let Ok(node) = graphs::node(to) else {
                return INVALID_VALUE;
            };
            let mut dependencies = node.dependencies.lock();
            dependencies.retain(|dependency| *dependency != from);
            if add {
                dependencies.push(from);
            }
        }
        0
    })
}

/// Copies a node's parameters out, if it is of the type asked for.
fn params(node: Handle, kind: u32, out: Out<u8>) -> CUresult {
    with_node(node, |node| {
        if out.is_null() || node.kind.number() != kind {
            return INVALID_VALUE;
        }
        let bytes = node.params.lock();
        // SAFETY: the caller gave a structure of the node's type, whose size was kept.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out.raw(), bytes.len()) };
        0
    })
}

/// Replaces a node's parameters; what it does at a launch stays, as nothing here can see the difference.
fn replace(node: Handle, kind: u32, from: In<u8>) -> CUresult {
    with_node(node, |node| {
        if from.is_null() || node.kind.number() != kind {
            return INVALID_VALUE;
        }
        let mut bytes = node.params.lock();
        let length = bytes.len();
        *bytes = from.many(length);
        0
    })
}

cuda_api! {
    fn cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) -> CUresult {
        with_graph(graph, |graph| {
            let all: Vec<_> = graph.nodes.lock().iter().map(|node| [graphs::handle_of(node)]).collect();
            list(&all, [nodes], count)
        })
    }

    fn cuGraphGetRootNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) -> CUresult {
        with_graph(graph, |graph| {
            let nodes_now = graph.nodes.lock();
            let roots = nodes_now.iter().filter(|node| node.dependencies.lock().is_empty());
            let roots: Vec<_> = roots.map(|node| [graphs::handle_of(node)]).collect();
            list(&roots, [nodes], count)
        })
    }

    fn cuGraphGetEdges(graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) -> CUresult {
        with_graph(graph, |graph| list(&edges(graph), [from, to], count))
    }

    fn cuGraphGetEdges_v2(graph: Handle, from: Out<Handle>, to: Out<Handle>, _data: *mut c_void, count: Out<usize>) -> CUresult {
        with_graph(graph, |graph| list(&edges(graph), [from, to], count))
    }

    fn cuGraphNodeGetDependencies(node: Handle, out: Out<Handle>, count: Out<usize>) -> CUresult {
        with_node(node, |node| list(&node.dependencies.lock().iter().map(|one| [*one]).collect::<Vec<_>>(), [out], count))
    }

    fn cuGraphNodeGetDependencies_v2(node: Handle, out: Out<Handle>, _data: *mut c_void, count: Out<usize>) -> CUresult {
        with_node(node, |node| list(&node.dependencies.lock().iter().map(|one| [*one]).collect::<Vec<_>>(), [out], count))
    }

    fn cuGraphNodeGetDependentNodes(node: Handle, out: Out<Handle>, count: Out<usize>) -> CUresult {
        with_node(node, |found| with_graph(found.graph, |graph| {
            let to: Vec<_> = edges(graph).into_iter().filter(|edge| edge[0] == node).map(|edge| [edge[1]]).collect();
            list(&to, [out], count)
        }))
    }

    fn cuGraphNodeGetDependentNodes_v2(node: Handle, out: Out<Handle>, _data: *mut c_void, count: Out<usize>) -> CUresult {
        with_node(node, |found| with_graph(found.graph, |graph| {
            let to: Vec<_> = edges(graph).into_iter().filter(|edge| edge[0] == node).map(|edge| [edge[1]]).collect();
            list(&to, [out], count)
        }))
    }

    fn cuGraphAddDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) -> CUresult {
        link(graph, from, to, count, true)
    }

    fn cuGraphAddDependencies_v2(graph: Handle, from: In<Handle>, to: In<Handle>, _data: *const c_void, count: usize) -> CUresult {
        link(graph, from, to, count, true)
    }

    fn cuGraphRemoveDependencies(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) -> CUresult {
        link(graph, from, to, count, false)
    }

    fn cuGraphRemoveDependencies_v2(graph: Handle, from: In<Handle>, to: In<Handle>, _data: *const c_void, count: usize) -> CUresult {
        link(graph, from, to, count, false)
    }

    fn cuGraphNodeGetType(node: Handle, out: Out<u32>) -> CUresult {
        with_node(node, |node| out.answer(node.kind.number()))
    }

    fn cuGraphNodeGetContainingGraph(node: Handle, out: Out<Handle>) -> CUresult {
        with_node(node, |node| out.answer(node.graph))
    }

    fn cuGraphNodeGetLocalId(node: Handle, out: Out<u32>) -> CUresult {
        with_node(node, |node| out.answer(node.local_id))
    }

    fn cuGraphNodeGetToolsId(node: Handle, out: Out<u64>) -> CUresult {
        with_node(node, |_| out.answer(node as u64))
    }

    fn cuGraphGetId(graph: Handle, out: Out<u32>) -> CUresult {
        with_graph(graph, |graph| out.answer(graph.id))
    }

    fn cuGraphChildGraphNodeGetGraph(node: Handle, out: Out<Handle>) -> CUresult {
        with_node(node, |node| match &node.kind {
            Kind::Child(child) => out.answer(child.handle()),
            _ => INVALID_VALUE,
        })
    }

    fn cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2(node: Handle, out: Out<u8>) -> CUresult {
        params(node, 0, out)
    }

    fn cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2(node: Handle, from: In<u8>) -> CUresult {
        replace(node, 0, from)
    }

    fn cuGraphMemcpyNodeGetParams(node: Handle, out: Out<u8>) -> CUresult {
        params(node, 1, out)
    }

    fn cuGraphMemcpyNodeSetParams(node: Handle, from: In<u8>) -> CUresult {
        replace(node, 1, from)
    }

    fn cuGraphMemsetNodeGetParams(node: Handle, out: Out<u8>) -> CUresult {
        params(node, 2, out)
    }

    fn cuGraphMemsetNodeSetParams(node: Handle, from: In<u8>) -> CUresult {
        replace(node, 2, from)
    }

    fn cuGraphHostNodeGetParams(node: Handle, out: Out<u8>) -> CUresult {
        params(node, 3, out)
    }

    fn cuGraphHostNodeSetParams(node: Handle, from: In<u8>) -> CUresult {
        replace(node, 3, from)
    }

    fn cuGraphEventRecordNodeGetEvent(node: Handle, out: Out<u8>) -> CUresult {
        params(node, 7, out)
    }

    fn cuGraphEventWaitNodeGetEvent(node: Handle, out: Out<u8>) -> CUresult {
        params(node, 6, out)
    }

    fn cuGraphMemAllocNodeGetParams(node: Handle, out: Out<u8>) -> CUresult {
        params(node, 10, out)
    }

    fn cuGraphMemFreeNodeGetParams(node: Handle, out: Out<u8>) -> CUresult {
        params(node, 11, out)
    }

    fn cuGraphKernelNodeCopyAttributes(to: Handle, from: Handle) -> CUresult {
        with_node(to, |_| with_node(from, |_| 0))
    }

    fn cuGraphKernelNodeSetAttribute(node: Handle, _attribute: u32, value: In<u64>) -> CUresult {
        if value.is_null() { INVALID_VALUE } else { with_node(node, |_| 0) }
    }

    fn cuGraphKernelNodeGetAttribute(node: Handle, _attribute: u32, out: Out<[u64; 8]>) -> CUresult {
        with_node(node, |_| out.answer([0; 8]))
    }

    fn cuGraphNodeFindInClone(_out: Out<Handle>, _node: Handle, clone: Handle) -> CUresult {
        with_graph(clone, |_| NOT_SUPPORTED)
    }
}
