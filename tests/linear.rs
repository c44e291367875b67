//! Memory of the current context, by every function that gives it, against the limit and the truth.

mod calls;

use calls::{Calls, MIB, OUT_OF_MEMORY, take};
use harness::{Sim, cc};

const KINDS: [&str; 5] = ["alloc", "alloc1", "pitch", "pitch1", "managed"];

#[test]
fn a_charge_is_the_size_of_the_drivers_block() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "100MiB");
    calls.holds(0);
    let mut sum = 0;
    let sizes = [
        (1, 512),
        (511, 512),
        (512, 512),
        (513, 1024),
        (MIB - 1, MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 2 * MIB),
        (2 * MIB, 2 * MIB),
        (2 * MIB + 1, 4 * MIB),
    ];
    for kind in ["alloc", "alloc1", "managed"] {
        for (bytes, block) in sizes {
            calls.ok(&take(kind, &format!("{kind}{bytes}"), bytes));
            sum += block;
            calls.holds(sum);
        }
    }
    for kind in ["managed", "alloc", "alloc1"] {
        for (bytes, block) in sizes {
            calls.ok(&format!("free {kind}{bytes}"));
            sum -= block;
            calls.holds(sum);
        }
    }
    calls.holds(0);
    calls.end();
}

#[test]
fn a_limit_of_a_kibibyte_is_two_small_blocks() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "1KiB");
    calls.ok(&take("alloc", "a", 1));
    calls.ok(&take("managed", "b", 512));
    calls.refused(&take("alloc", "c", 1));
    calls.ok("free a");
    calls.refused(&take("alloc", "c", 513));
    calls.ok(&take("alloc", "c", 500));
    calls.holds(1024);
    calls.end();
}

#[test]
fn used_equals_the_sum_over_live_blocks_of_all_kinds() {
    // Field case A18: after a refactoring the count fell to 0 with the second block.
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "1GiB");
    calls.ok(&take("alloc", "A", 100 * MIB));
    calls.holds(100 * MIB);
    calls.ok(&take("alloc", "B", 200 * MIB));
    calls.holds(300 * MIB);
    calls.ok(&take("create", "C", 64 * MIB));
    calls.holds(364 * MIB);
    calls.ok(&take("async", "D", 32 * MIB));
    calls.holds(396 * MIB);
    calls.ok("free B");
    calls.holds(196 * MIB);
    calls.ok("free D");
    calls.ok("sync");
    calls.holds(164 * MIB);
    calls.ok("free A");
    calls.holds(64 * MIB);
    calls.ok("free C");
    calls.holds(0);
    calls.end();
}

#[test]
fn two_ways_of_allocating_share_one_budget() {
    // Field case A01: one allocation path was not counted.
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "100MiB");
    calls.ok("pool_create 0");
    for first in KINDS.iter().chain(&["async", "frompool", "frompool_ptsz", "create"]) {
        for second in KINDS.iter().chain(&["async_ptsz", "frompool", "create", "alloc"]) {
            calls.ok(&take(first, "first", 60 * MIB));
            calls.refused(&take(second, "second", 60 * MIB));
            calls.ok("free first");
            calls.ok("sync");
            calls.ok(&take(second, "second", 60 * MIB));
            calls.ok("free second");
            calls.ok("sync");
            calls.holds(0);
        }
    }
    assert!(calls.peak(0) <= 100 * MIB, "{}", calls.peak(0));
    calls.end();
}

#[test]
fn after_a_refusal_a_free_makes_the_same_allocation_succeed() {
    // Field case A51: torch empties its cache on code 2 and tries again.
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "96MiB");
    calls.ok("pool_create 0");
    for entry in KINDS.iter().chain(&["async", "async_ptsz", "frompool", "frompool_ptsz", "create"]) {
        calls.ok(&take(entry, "kept", 32 * MIB));
        calls.ok(&take(entry, "cached", 64 * MIB));
        for _ in 0..3 {
            calls.refused(&take(entry, "more", 40 * MIB));
        }
        calls.holds(96 * MIB);
        calls.ok("free cached");
        calls.ok("sync");
        calls.ok(&take(entry, "more", 40 * MIB));
        calls.ok("free_all");
        calls.ok("sync");
        calls.holds(0);
    }
    calls.end();
}

#[test]
fn a_pool_pointer_may_be_freed_plainly_and_a_plain_one_in_stream_order() {
    // Field case A11.
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "1GiB");
    calls.ok(&take("async", "d", 64 * MIB));
    calls.ok("sync");
    calls.holds(64 * MIB);
    calls.ok("free_crosswise d");
    calls.ok("sync");
    calls.holds(0);
    calls.ok(&take("alloc", "e", 64 * MIB));
    calls.ok("free_crosswise e");
    calls.ok("sync");
    calls.holds(0);
    calls.ok("free_raw 0");
    calls.end();
}

#[test]
fn an_unknown_pointer_is_freed_by_the_driver() {
    // Field case A04: the limiter answered -1 without asking the driver.
    let sim = Sim::new();
    let run = || sim.run(cc("calls.c", &[])).arg("dlsym");
    let mut bare = Calls::run(&sim, run().bare());
    let mut capped = Calls::run(&sim, run().capped("1GiB"));
    for calls in [&mut bare, &mut capped] {
        calls.ok("retain 0");
        calls.ok("pool_create 0");
        calls.ok(&take("frompool", "d", 256 * MIB));
        calls.ok("free d");
        calls.ok("sync");
    }
    capped.holds(0);
    for address in ["0", "0x10", "0x7f0000001000", "0xffffffffffffffff"] {
        let command = format!("free_raw {address}");
        assert_eq!(bare.ask(&command).line, capped.ask(&command).line, "{command}");
    }
    capped.holds(0);
    bare.end();
    capped.end();
}

#[test]
fn the_drivers_own_errors_pass_through_and_cost_nothing() {
    for (entry, function) in [
        ("alloc", "cuMemAlloc_v2"),
        ("alloc1", "cuMemAlloc"),
        ("pitch", "cuMemAllocPitch_v2"),
        ("pitch1", "cuMemAllocPitch"),
        ("managed", "cuMemAllocManaged"),
        ("async", "cuMemAllocAsync"),
        ("async_ptsz", "cuMemAllocAsync_ptsz"),
        ("frompool", "cuMemAllocFromPoolAsync"),
        ("frompool_ptsz", "cuMemAllocFromPoolAsync_ptsz"),
        ("create", "cuMemCreate"),
    ] {
        let fail = format!("{function}:1:2,{function}:2:719,{function}:3:999");
        let sim = Sim::with(&[("FAIL", &fail)]);
        let mut calls = Calls::start(&sim, "64MiB");
        calls.ok("pool_create 0");
        for code in [2, 719, 999] {
            let answer = calls.gets(&take(entry, "a", 64 * MIB), code);
            assert!(answer.line.ends_with("ok"), "{}", answer.line);
            calls.holds(0);
        }
        calls.ok(&take(entry, "a", 64 * MIB));
        calls.holds(64 * MIB);
        let out = calls.end();
        assert!(!out.stderr.contains("denied"), "not our refusal: {}", out.stderr);
    }
}

#[test]
fn a_free_that_the_driver_refuses_leaves_the_charge() {
    let sim = Sim::with(&[("FAIL", "cuMemFree_v2:1:700,cuMemFreeAsync:1:700,cuMemFree:1:700")]);
    let mut calls = Calls::start(&sim, "100MiB");
    calls.ok(&take("alloc", "a", 10 * MIB));
    calls.ok(&take("alloc1", "b", 10 * MIB));
    calls.ok(&take("async", "c", 10 * MIB));
    calls.holds(52 * MIB);
    for name in ["a", "b", "c"] {
        calls.gets(&format!("free {name}"), 700);
        calls.holds(52 * MIB);
    }
    for name in ["a", "b", "c"] {
        calls.ok(&format!("free {name}"));
    }
    calls.ok("sync");
    calls.holds(0);
    calls.end();
}

#[test]
fn a_full_device_is_the_drivers_refusal_and_shows_in_free() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000")]);
    let mut calls = Calls::start(&sim, "50%");
    assert_eq!(calls.info(), (500 * MIB, 500 * MIB));
    assert!(sim.truth().take_foreign(0, 700 * MIB), "the device has room");
    assert_eq!(calls.info(), (300 * MIB, 500 * MIB), "a neighbour filled the device");
    calls.ok(&take("alloc", "a", 200 * MIB));
    calls.refused(&take("alloc", "b", 200 * MIB));
    assert_eq!(calls.info(), (100 * MIB, 500 * MIB));
    sim.truth().give_foreign(0, 700 * MIB);
    calls.holds(200 * MIB);
    calls.ok(&take("alloc", "b", 200 * MIB));
    calls.refused(&take("alloc", "c", 101 * MIB));
    let out = calls.end();
    assert_eq!(out.stderr.matches("denied").count(), 1, "{}", out.stderr);
}

#[test]
fn a_limit_of_zero_lets_contexts_be_and_refuses_all_memory() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "0");
    assert_eq!(calls.info(), (0, 0));
    assert_eq!(calls.ok("total 0").values, [0]);
    calls.ok("pool_create 0");
    for entry in KINDS.iter().chain(&["async", "async_ptsz", "frompool", "frompool_ptsz", "create"]) {
        calls.refused(&take(entry, "a", 2 * MIB));
    }
    calls.ok("ctx 0");
    calls.refused(&take("alloc", "a", 1));
    assert_eq!(calls.peak(0), 0);
    calls.end();
}

#[test]
fn without_a_context_the_driver_says_so_even_at_the_limit() {
    let sim = Sim::new();
    let mut bare = Calls::run(&sim, sim.run(cc("calls.c", &[])).arg("dlsym").bare());
    let mut capped = Calls::start(&sim, "2MiB");
    capped.ok(&take("alloc", "a", 2 * MIB));
    capped.ok("no_ctx");
    for entry in KINDS.iter().chain(&["async", "async_ptsz"]) {
        let command = take(entry, "b", 2 * MIB);
        let answer = capped.ask(&command);
        assert_eq!(answer.line, bare.ask(&command).line, "{entry}");
        assert_ne!(answer.code, OUT_OF_MEMORY, "{entry}");
    }
    bare.end();
    capped.end();
}
