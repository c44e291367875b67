//! Contexts own memory: what dies with one is uncharged, and nothing else is.

mod calls;

use calls::{Calls, MIB, OUT_OF_MEMORY, take};
use harness::{Sim, cc, cuda_wheel};

/// Memory that a context owns.
const OWNED: [&str; 5] = ["alloc", "alloc1", "pitch", "pitch1", "managed"];

#[test]
fn memory_dies_with_its_context_however_it_was_made_and_ended() {
    let sim = Sim::new();
    for create in ["ctx1 0", "ctx 0", "ctx3 0", "ctx4 0"] {
        for end in ["destroy1", "destroy", "detach"] {
            let mut calls = Calls::start(&sim, "100MiB");
            calls.ok(&take("alloc", "stays", 10 * MIB));
            calls.ok(create);
            for entry in OWNED {
                calls.ok(&take(entry, entry, 10 * MIB));
            }
            calls.ok(&take("create", "h", 4 * MIB));
            calls.ok(&take("async", "p", 2 * MIB));
            calls.holds(96 * MIB);
            calls.ok(end);
            calls.holds(46 * MIB);
            calls.ok("free p");
            calls.ok("free h");
            calls.ok("sync");
            calls.holds(10 * MIB);
            calls.ok("free stays");
            calls.holds(0);
            calls.end();
        }
    }
}

#[test]
fn a_full_limit_is_all_there_again_in_the_next_context() {
    let sim = Sim::new();
    let mut calls = Calls::without_context(&sim, "100MiB");
    for _ in 0..5 {
        calls.ok("ctx 0");
        for entry in ["alloc", "managed"] {
            let filled = calls.gets(&format!("fill {entry} {}", 10 * MIB), OUT_OF_MEMORY);
            assert_eq!(filled.values[0], if entry == "alloc" { 10 } else { 0 });
        }
        calls.holds(100 * MIB);
        calls.ok("destroy");
        calls.ok("forget_all");
        assert_eq!(calls.really(0), 0);
    }
    calls.end();
}

#[test]
fn an_attached_context_lives_until_the_last_detach() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "100MiB");
    calls.ok("ctx 0");
    calls.ok(&take("alloc", "a", 10 * MIB));
    calls.ok("attach");
    calls.ok("attach");
    calls.ok("detach");
    calls.ok("detach");
    calls.holds(10 * MIB);
    calls.ok("detach");
    calls.holds(0);
    // Destroyed at once, however often it was attached.
    calls.ok("ctx 0");
    calls.ok(&take("alloc", "a", 10 * MIB));
    calls.ok("attach");
    calls.ok("destroy");
    calls.holds(0);
    calls.end();
}

#[test]
fn two_contexts_on_one_device_own_their_own_memory() {
    let sim = Sim::new();
    let mut calls = Calls::without_context(&sim, "100MiB");
    for name in ["x", "y"] {
        calls.ok("ctx 0");
        calls.ok(&format!("keep_ctx {name}"));
        calls.ok(&take("alloc", &format!("in_{name}"), 10 * MIB));
        calls.ok(&take("alloc", &format!("also_in_{name}"), 20 * MIB));
    }
    calls.holds(60 * MIB);
    // Freed under another context, it is the memory that counts.
    calls.ok("free also_in_x");
    calls.holds(40 * MIB);
    calls.ok("use_ctx x");
    calls.ok("free also_in_y");
    calls.holds(20 * MIB);
    calls.ok("use_ctx y");
    calls.ok("destroy");
    calls.ok("use_ctx x");
    calls.holds(10 * MIB);
    calls.ok("free in_x");
    calls.holds(0);
    calls.end();
}

#[test]
fn a_primary_context_lives_until_its_last_release() {
    // Field case A14: the charge was dropped at the first of several releases.
    let sim = Sim::new();
    for release in ["release1 0", "release 0"] {
        let mut calls = Calls::start(&sim, "100MiB");
        calls.ok("retain_only 0");
        calls.ok(&take("alloc", "a", 10 * MIB));
        calls.holds(10 * MIB);
        calls.ok(release);
        calls.holds(10 * MIB);
        calls.ok(release);
        assert_eq!(calls.really(0), 0);
        assert_ne!(calls.ask("info").code, 0, "no context is active");
        calls.ok("retain 0");
        calls.holds(0);
        calls.ok(&take("alloc", "b", 100 * MIB));
        calls.holds(100 * MIB);
        calls.end();
    }
}

#[test]
fn a_reset_ends_all_memory_of_the_primary_context_and_new_memory_is_charged_once() {
    let sim = Sim::new();
    for reset in ["reset1 0", "reset 0"] {
        let mut calls = Calls::start(&sim, "100MiB");
        calls.ok("retain_only 0");
        for entry in OWNED {
            calls.ok(&take(entry, entry, 20 * MIB));
        }
        calls.holds(100 * MIB);
        calls.ok(reset);
        assert_eq!(calls.really(0), 0);
        calls.ok("retain 0");
        calls.holds(0);
        assert_ne!(calls.ask("free alloc").code, 0, "an old pointer is forgotten");
        calls.holds(0);
        calls.ok(&take("alloc", "new", 100 * MIB));
        calls.holds(100 * MIB);
        // Those who retained it before still have to release it.
        calls.ok("release 0");
        calls.ok("release 0");
        calls.holds(100 * MIB);
        calls.ok("release 0");
        assert_eq!(calls.really(0), 0);
        calls.ok("retain 0");
        calls.holds(0);
        calls.end();
    }
}

#[test]
fn a_reset_leaves_other_contexts_alone() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "100MiB");
    calls.ok(&take("alloc", "primary", 10 * MIB));
    calls.ok("ctx 0");
    calls.ok(&take("alloc", "other", 20 * MIB));
    calls.ok("reset 0");
    calls.holds(20 * MIB);
    calls.ok("free other");
    calls.holds(0);
    calls.end();
}

#[test]
fn the_runtimes_reset_ends_all_memory() {
    let sim = Sim::new();
    for version in ["11.8", "12.9", "13.5"] {
        let way = format!("cudart:{}", cuda_wheel(version).display());
        let run = sim.run(cc("calls.c", &[])).arg(&way).capped("100MiB");
        let mut calls = Calls::run(&sim, run);
        for _ in 0..3 {
            calls.ok(&take("alloc", "a", 60 * MIB));
            calls.ok(&take("managed", "b", 40 * MIB));
            calls.holds(100 * MIB);
            calls.refused(&take("alloc", "c", 1));
            calls.ok("reset");
            calls.holds(0);
        }
        calls.end();
    }
}

#[test]
fn what_the_driver_refuses_ends_and_begins_nothing() {
    // Field case A14: the context was charged though the call had failed.
    let fail = [
        "cuCtxDestroy_v2",
        "cuCtxDestroy",
        "cuCtxDetach",
        "cuCtxAttach",
        "cuDevicePrimaryCtxReset_v2",
        "cuDevicePrimaryCtxReset",
        "cuDevicePrimaryCtxRelease_v2",
        "cuDevicePrimaryCtxRelease",
        "cuCtxCreate_v2",
    ];
    let fail: Vec<String> = fail.iter().map(|name| format!("{name}:1:700")).collect();
    let fail = format!("{},cuDevicePrimaryCtxRetain:2:700", fail.join(","));
    let sim = Sim::with(&[("FAIL", &fail)]);
    let mut calls = Calls::start(&sim, "100MiB");
    calls.ok(&take("alloc", "primary", 10 * MIB));
    calls.gets("ctx 0", 700);
    calls.gets("retain_only 0", 700);
    calls.holds(10 * MIB);
    for (command, code) in [("release 0", 700), ("release1 0", 700), ("reset 0", 700), ("reset1 0", 700)] {
        calls.gets(command, code);
        calls.holds(10 * MIB);
        calls.ok(&take("alloc", "more", 20 * MIB));
        calls.holds(30 * MIB);
        calls.ok("free more");
    }
    calls.ok("ctx 0");
    calls.ok(&take("alloc", "own", 20 * MIB));
    for command in ["attach", "detach", "destroy", "destroy1"] {
        calls.gets(command, 700);
        calls.holds(30 * MIB);
    }
    calls.ok("destroy");
    calls.holds(10 * MIB);
    // One retain, so one release ends it.
    calls.ok("release 0");
    assert_eq!(calls.really(0), 0);
    calls.ok("retain 0");
    calls.holds(0);
    calls.end();
}

#[test]
fn eight_threads_that_retain_at_once_are_eight_retains_of_one_context() {
    let sim = Sim::with(&[("LATENCY_US", "cuDevicePrimaryCtxRetain=2000")]);
    let mut calls = Calls::without_context(&sim, "100MiB");
    calls.ok("retain_in_threads 0");
    calls.ok("retain 0");
    calls.ok(&take("alloc", "a", 10 * MIB));
    for _ in 0..8 {
        calls.ok("release 0");
        calls.holds(10 * MIB);
    }
    calls.ok("release 0");
    assert_eq!(calls.really(0), 0);
    calls.ok("retain 0");
    calls.holds(0);
    calls.end();
}

#[test]
fn contexts_that_come_and_go_leave_no_trace() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "10MiB");
    for round in 0..1100 {
        calls.ok("ctx 0");
        calls.ok(&take("alloc", "a", 10 * MIB));
        calls.ok("destroy");
        calls.ok("forget_all");
        if round % 100 == 0 {
            calls.holds(0);
            calls.ok("reset 0");
            calls.ok("retain_only 0");
        }
    }
    calls.holds(0);
    calls.end();
}

#[test]
fn what_a_context_costs_is_not_counted_where_only_allocations_are() {
    let sim = Sim::with(&[("CTX_MIB", "300"), ("TOTAL_MIB", "1000")]);
    let mut calls = Calls::start(&sim, "100MiB");
    assert_eq!(calls.info(), (100 * MIB, 100 * MIB));
    calls.ok(&take("alloc", "a", 100 * MIB));
    calls.refused(&take("alloc", "b", 1));
    calls.end();
    // But free never says more than the device has.
    let mut calls = Calls::start(&sim, "900MiB");
    assert_eq!(calls.info(), (700 * MIB, 900 * MIB));
    calls.end();
}

#[test]
fn a_forked_child_has_no_driver_and_its_parents_books_stay() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "100MiB");
    calls.ok(&take("alloc", "a", 10 * MIB));
    calls.gets("alloc_in_child", 3);
    calls.holds(10 * MIB);
    calls.ok("free a");
    calls.holds(0);
    calls.end();
}
