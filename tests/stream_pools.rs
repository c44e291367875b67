//! Stream-ordered pools are charged by what they reserve: in steps, until they give it back.

mod calls;

use calls::{Calls, MIB, take};
use harness::Sim;

#[test]
fn a_pool_is_charged_by_the_steps_that_it_reserves() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "1GiB");
    for (name, held) in [("a", 32), ("b", 32), ("c", 64)] {
        calls.ok(&take("async", name, 15 * MIB));
        calls.holds(held * MIB);
    }
    calls.ok("free a");
    calls.ok("free b");
    calls.ok("free c");
    assert!(calls.held() <= 64 * MIB);
    calls.ok("sync");
    calls.holds(0);
    calls.end();
}

#[test]
fn a_pool_that_keeps_its_reserve_stays_charged() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "1GiB");
    calls.ok("pool_create 0");
    calls.ok("pool_keep 18446744073709551615");
    calls.ok(&take("frompool", "a", 100 * MIB));
    calls.ok("free a");
    calls.ok("sync");
    calls.holds(128 * MIB);
    assert_eq!(calls.ok("pool_reserved").values, [128 * MIB]);
    calls.ok(&take("frompool", "a", 128 * MIB));
    calls.holds(128 * MIB);
    calls.ok("free a");
    calls.ok("sync");
    calls.ok(&format!("pool_trim {}", 64 * MIB));
    calls.holds(64 * MIB);
    calls.ok("pool_trim 0");
    calls.holds(0);
    calls.end();
}

#[test]
fn idle_pools_are_trimmed_before_anything_is_refused() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "256MiB");
    for entry in ["alloc", "pitch", "managed", "create", "async"] {
        calls.ok("pool_create 0");
        calls.ok("pool_keep 18446744073709551615");
        calls.ok(&take("frompool", "idle", 200 * MIB));
        calls.ok("free idle");
        calls.ok("sync");
        calls.holds(224 * MIB);
        calls.ok(&take(entry, "other", 128 * MIB));
        calls.holds(128 * MIB);
        calls.ok("free other");
        calls.ok("sync");
        calls.holds(0);
        calls.ok("pool_destroy");
    }
    assert!(calls.peak(0) <= 256 * MIB);
    let out = calls.end();
    assert!(!out.stderr.contains("denied"), "{}", out.stderr);
}

#[test]
fn a_request_that_can_never_fit_takes_no_pools_reserve_away() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "256MiB");
    calls.ok("pool_create 0");
    calls.ok("pool_keep 18446744073709551615");
    calls.ok(&take("frompool", "idle", 64 * MIB));
    calls.ok("free idle");
    calls.ok("sync");
    calls.refused(&take("alloc", "a", 257 * MIB));
    calls.holds(64 * MIB);
    calls.end();
}

#[test]
fn a_destroyed_pool_is_charged_until_its_last_block_is_freed() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "1GiB");
    calls.ok("pool_create 0");
    calls.ok(&take("frompool", "a", 40 * MIB));
    calls.ok(&take("frompool", "b", 40 * MIB));
    calls.holds(96 * MIB);
    calls.ok("pool_destroy");
    calls.holds(96 * MIB);
    calls.ok("free a");
    calls.ok("sync");
    calls.holds(96 * MIB);
    // Another pool is another charge, whatever its handle.
    calls.ok("pool_create 0");
    calls.ok(&take("frompool", "c", 32 * MIB));
    calls.holds(128 * MIB);
    calls.ok("free_crosswise b");
    calls.ok("sync");
    calls.holds(32 * MIB);
    calls.ok("free c");
    calls.ok("pool_destroy");
    calls.holds(0);
    calls.end();
}

#[test]
fn destroying_a_pool_that_the_driver_keeps_changes_nothing() {
    let sim = Sim::with(&[("FAIL", "cuMemPoolDestroy:1:700")]);
    let mut calls = Calls::start(&sim, "1GiB");
    calls.ok("pool_create 0");
    calls.ok(&take("frompool", "a", 40 * MIB));
    calls.gets("pool_destroy", 700);
    calls.holds(64 * MIB);
    calls.ok(&take("frompool", "b", 40 * MIB));
    calls.holds(96 * MIB);
    calls.ok("free_all");
    calls.ok("pool_destroy");
    calls.holds(0);
    calls.end();
}

#[test]
fn a_pool_of_host_memory_costs_nothing() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok("pool_create_host");
    calls.ok(&take("frompool", "a", 100 * MIB));
    calls.ok(&take("frompool_ptsz", "b", 100 * MIB));
    calls.holds(0);
    calls.ok(&take("alloc", "c", 64 * MIB));
    calls.ok("free a");
    calls.ok("free b");
    calls.holds(64 * MIB);
    calls.end();
}

#[test]
fn several_pools_share_the_limit_and_each_has_its_level() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "160MiB");
    for n in 0..5 {
        calls.ok("pool_create 0");
        calls.ok(&take("frompool", &format!("p{n}"), MIB));
        calls.holds((n + 1) * 32 * MIB);
    }
    calls.ok("pool_create 0");
    calls.refused(&take("frompool", "one_too_many", MIB));
    calls.refused(&take("async", "one_too_many", MIB));
    calls.ok("free p2");
    calls.ok(&take("frompool", "p6", MIB));
    calls.holds(160 * MIB);
    calls.ok("free_all");
    calls.ok("sync");
    calls.holds(0);
    assert_eq!(calls.peak(0), 160 * MIB);
    calls.end();
}

#[test]
fn the_pool_that_a_device_was_given_serves_plain_stream_ordered_allocations() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "1GiB");
    calls.ok("pool_create 0");
    calls.ok("pool_use 0");
    calls.ok("pool_keep 18446744073709551615");
    calls.ok(&take("async", "a", 40 * MIB));
    assert_eq!(calls.ok("pool_reserved").values, [64 * MIB]);
    calls.holds(64 * MIB);
    calls.ok("free a");
    calls.ok("sync");
    calls.holds(64 * MIB);
    calls.ok("pool_destroy");
    calls.holds(0);
    calls.ok(&take("async", "b", 10 * MIB));
    calls.holds(32 * MIB);
    calls.end();
}

#[test]
fn a_default_pool_named_by_its_handle_is_the_same_pool() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok("pool_default 0");
    calls.ok(&take("frompool", "a", 20 * MIB));
    calls.ok(&take("async", "b", 12 * MIB));
    calls.holds(32 * MIB);
    calls.ok(&take("async_ptsz", "c", 32 * MIB));
    calls.refused(&take("frompool", "d", MIB));
    calls.holds(64 * MIB);
    calls.ok("free_all");
    calls.ok("sync");
    calls.holds(0);
    calls.end();
}

#[test]
fn a_pool_stays_under_the_limit_even_before_its_step_is_known() {
    let sim = Sim::with(&[("POOL_STEP_MIB", "64")]);
    let mut calls = Calls::start(&sim, "100MiB");
    calls.ok(&take("alloc", "a", 50 * MIB));
    // 50 MiB are left and 10 are asked, but the pool would take 64.
    calls.refused(&take("async", "b", 10 * MIB));
    calls.holds(50 * MIB);
    calls.ok("free a");
    calls.ok(&take("async", "b", 10 * MIB));
    calls.holds(64 * MIB);
    calls.ok(&take("alloc", "a", 36 * MIB));
    calls.refused(&take("async", "c", 60 * MIB));
    calls.holds(100 * MIB);
    calls.end();
}

#[test]
fn pools_outlive_contexts_and_stay_charged() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "1GiB");
    calls.ok(&take("async", "a", 40 * MIB));
    calls.ok(&take("alloc", "b", 10 * MIB));
    calls.holds(74 * MIB);
    calls.ok("reset 0");
    calls.ok("retain 0");
    calls.holds(64 * MIB);
    calls.ok("free a");
    calls.ok("sync");
    calls.holds(0);
    calls.end();
}

#[test]
fn streams_of_the_program_are_charged_like_the_default_stream() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "96MiB");
    calls.ok("stream");
    calls.ok("pool_create 0");
    for entry in ["async", "async_ptsz", "frompool", "frompool_ptsz"] {
        let filled = calls.gets(&format!("fill {entry} {}", 8 * MIB), 2);
        assert_eq!(filled.values, [12], "{entry}");
        calls.holds(96 * MIB);
        calls.ok("free_all");
        calls.ok("sync");
        calls.holds(0);
    }
    calls.end();
}
