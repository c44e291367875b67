//! Graphs that own memory: charged by what the device keeps for graphs, refused before a launch that does not fit.

mod session;

use harness::Sim;
use session::{MIB, OUT_OF_MEMORY, Session};

/// Puts parameters of an allocation node of `bytes` on device 0 into slot `n`.
fn node(session: &mut Session, bytes: u64) {
    session.set("n", &[(0, 4, 1), (8, 4, 1), (12, 4, 0), (104, 8, bytes)]);
}

/// The same as parameters of any node.
fn any_node(session: &mut Session, bytes: u64) {
    session.set("n", &[(0, 4, 10), (16, 4, 1), (24, 4, 1), (28, 4, 0), (120, 8, bytes)]);
}

/// A graph in slot `g` with one allocation of `bytes`, which it leaves allocated; the address in slot `p`.
fn graph(session: &mut Session, bytes: u64) {
    session.ok("cuGraphCreate &g 0");
    node(session, bytes);
    session.ok("cuGraphAddMemAllocNode &node $g null 0 &n");
    let address = session.field("n", 112, 8);
    session.set("p", &[(0, 8, address)]);
}

#[test]
fn memory_that_a_graph_left_allocated_is_freed_by_a_plain_free() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "128MiB");
    graph(&mut session, 64 * MIB);
    session.ok("cuGraphInstantiateWithFlags &x $g 0");
    session.holds(0);
    for _ in 0..8 {
        session.ok("cuGraphLaunch $x null");
        session.holds(64 * MIB);
        session.ok("cuMemFree_v2 $p");
        session.holds(64 * MIB);
    }
    session.ok("cuDeviceGraphMemTrim 0");
    session.holds(0);
    session.ok("cuGraphLaunch $x null");
    session.ok("cuMemFreeAsync $p null");
    session.ok("cuDeviceGraphMemTrim 0");
    session.holds(0);
    assert_eq!(session.peak(), 64 * MIB);
    session.end();
}

#[test]
fn a_launch_that_does_not_fit_is_refused_before_it_and_fits_when_room_was_made() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "128MiB");
    graph(&mut session, 96 * MIB);
    session.ok("cuMemAlloc_v2 &a 64M");
    for entry in ["cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz"] {
        session.ok("cuGraphInstantiateWithFlags &x $g 0");
        session.gets(&format!("{entry} $x null"), OUT_OF_MEMORY);
        assert_eq!(session.process().calls(entry), 0);
        session.holds(64 * MIB);
        session.ok("cuGraphExecDestroy $x");
    }
    session.ok("cuGraphInstantiateWithFlags &x $g 0");
    session.ok("cuMemFree_v2 $a");
    session.ok("cuGraphLaunch $x null");
    session.holds(96 * MIB);
    session.gets("cuMemAlloc_v2 &a 64M", OUT_OF_MEMORY);
    assert_eq!(session.peak(), 96 * MIB);
    session.end();
}

#[test]
fn idle_graph_memory_makes_room_before_any_refusal() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "128MiB");
    session.set("physical", &[(0, 4, 1), (8, 4, 1)]);
    graph(&mut session, 96 * MIB);
    session.ok("cuGraphInstantiateWithFlags &x $g 0");
    for take in ["cuMemAlloc_v2 &a 64M", "cuMemAllocAsync &a 64M null", "cuMemCreate &a 64M &physical 0"] {
        session.ok("cuGraphLaunch $x null");
        session.gets(take, OUT_OF_MEMORY);
        session.ok("cuMemFree_v2 $p");
        session.holds(96 * MIB);
        session.ok(take);
        session.holds(64 * MIB);
        session.ok(if take.contains("Create") { "cuMemRelease $a" } else { "cuMemFree_v2 $a" });
    }
    assert!(session.peak() <= 128 * MIB);
    session.end();
}

#[test]
fn every_function_that_adds_a_node_is_seen() {
    let sim = Sim::with(&[("DRIVER", "13050")]);
    for add in [
        "cuGraphAddMemAllocNode &node $g null 0 &n",
        "cuGraphAddNode &node $g null 0 &n",
        "cuGraphAddNode_v2 &node $g null null 0 &n",
        "cuGraphAddNode_v3 &node $g null null 0 &n",
    ] {
        for instantiate in [
            "cuGraphInstantiate &x $g null null 0",
            "cuGraphInstantiate_v2 &x $g null null 0",
            "cuGraphInstantiateWithFlags &x $g 0",
            "cuGraphInstantiateWithParams &x $g &i",
            "cuGraphInstantiateWithParams_ptsz &x $g &i",
        ] {
            let mut session = Session::capped(&sim, "64MiB");
            session.ok("cuGraphCreate &g 0");
            if add.contains("AddNode") {
                any_node(&mut session, 96 * MIB);
            } else {
                node(&mut session, 96 * MIB);
            }
            session.ok(add);
            session.ok(instantiate);
            session.gets("cuGraphLaunch $x null", OUT_OF_MEMORY);
            session.holds(0);
            session.end();
        }
    }
}

#[test]
fn an_upload_while_a_graph_is_made_executable_is_refused_at_the_limit() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "64MiB");
    graph(&mut session, 96 * MIB);
    session.set("i", &[(0, 8, 2)]);
    session.refused("cuGraphInstantiateWithParams &out $g &i");
    session.ok("cuGraphDestroy $g");
    graph(&mut session, 64 * MIB);
    session.ok("cuGraphInstantiateWithParams &x $g &i");
    session.holds(64 * MIB);
    session.ok("cuGraphLaunch $x null");
    session.holds(64 * MIB);
    session.end();
}

#[test]
fn allocations_on_a_captured_stream_are_taken_at_the_launch_and_stop_at_the_limit() {
    let sim = Sim::new();
    for (alloc, free, end) in [
        ("cuMemAllocAsync", "cuMemFreeAsync", "cuStreamEndCapture"),
        ("cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz", "cuStreamEndCapture_ptsz"),
    ] {
        let mut session = Session::capped(&sim, "128MiB");
        session.ok("cuStreamCreate &s 1");
        for (bytes, code) in [(96 * MIB, 0), (160 * MIB, OUT_OF_MEMORY)] {
            session.ok("cuStreamBeginCapture_v2 $s 0");
            session.ok(&format!("{alloc} &a {bytes} $s"));
            session.ok(&format!("{free} $a $s"));
            session.ok(&format!("{end} $s &g"));
            session.holds(0);
            session.ok("cuGraphInstantiateWithFlags &x $g 0");
            for _ in 0..3 {
                session.gets("cuGraphLaunch $x $s", code);
            }
            session.holds(if code == 0 { 96 * MIB } else { 0 });
            session.ok("cuGraphExecDestroy $x");
            session.ok("cuGraphDestroy $g");
            session.ok("cuDeviceGraphMemTrim 0");
            session.holds(0);
        }
        assert_eq!(session.process().calls("capture violation"), 0);
        session.end();
    }
}

#[test]
fn a_graph_that_frees_at_its_next_launch_what_the_last_one_left_never_needs_room_twice() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "96MiB");
    graph(&mut session, 64 * MIB);
    session.ok("cuGraphInstantiateWithFlags &x $g 1");
    for _ in 0..5 {
        session.ok("cuGraphLaunch $x null");
        session.holds(64 * MIB);
    }
    session.end();
}

#[test]
fn graphs_share_the_devices_graph_memory_and_one_limit_with_everything_else() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "128MiB");
    graph(&mut session, 64 * MIB);
    session.ok("cuGraphInstantiateWithFlags &x $g 0");
    session.set("q", &[(0, 8, 0)]);
    let first = session.value("p");
    graph(&mut session, 64 * MIB);
    session.ok("cuGraphInstantiateWithFlags &y $g 0");
    session.ok("cuGraphLaunch $x null");
    session.ok("cuGraphLaunch $y null");
    session.holds(128 * MIB);
    session.gets("cuMemAlloc_v2 &a 2M", OUT_OF_MEMORY);
    session.ok(&format!("cuMemFree_v2 {first}"));
    session.ok("cuMemAlloc_v2 &a 32M");
    session.holds(96 * MIB);
    session.gets("cuGraphLaunch $x null", OUT_OF_MEMORY);
    session.ok("cuMemFree_v2 $p");
    session.ok("cuGraphLaunch $x null");
    assert_eq!(session.peak(), 128 * MIB);
    session.held();
    session.end();
}

#[test]
fn the_memory_of_graphs_outlives_their_context() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "128MiB");
    session.ok("cuCtxCreate_v2 &other 0 0");
    graph(&mut session, 64 * MIB);
    session.ok("cuGraphInstantiateWithFlags &x $g 0");
    session.ok("cuGraphLaunch $x null");
    session.ok("cuMemFree_v2 $p");
    session.ok("cuCtxDestroy_v2 $other");
    session.ok("cuCtxSetCurrent $c");
    session.held();
    session.ok("cuMemAlloc_v2 &a 128M");
    session.holds(128 * MIB);
    session.end();
}
