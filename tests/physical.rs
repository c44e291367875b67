//! Physical allocations: charged to the device that they name until the last handle and the last mapping are gone.

mod calls;

use calls::{Calls, MIB, take};
use harness::Sim;

#[test]
fn memory_released_before_it_is_unmapped_is_charged_until_then() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "h", 64 * MIB));
    calls.holds(64 * MIB);
    calls.ok("map h m");
    calls.ok("free h");
    calls.holds(64 * MIB);
    calls.refused(&take("create", "more", 2 * MIB));
    calls.ok("unmap m");
    calls.holds(0);
    calls.ok(&take("create", "more", 64 * MIB));
    calls.end();
}

#[test]
fn memory_unmapped_before_it_is_released_is_charged_until_then() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "h", 32 * MIB));
    calls.ok("map h m");
    calls.ok("unmap m");
    calls.holds(32 * MIB);
    calls.ok("map h m");
    calls.holds(32 * MIB);
    calls.ok("unmap m");
    calls.ok("free h");
    calls.holds(0);
    calls.end();
}

#[test]
fn several_mappings_of_one_handle_are_one_charge_until_the_last() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "h", 20 * MIB));
    for name in ["m1", "m2", "m3"] {
        calls.ok(&format!("map h {name}"));
        calls.holds(20 * MIB);
    }
    calls.ok("unmap m2");
    calls.ok("free h");
    calls.holds(20 * MIB);
    calls.ok("unmap m1");
    calls.holds(20 * MIB);
    calls.ok("unmap m3");
    calls.holds(0);
    calls.end();
}

#[test]
fn one_unmap_may_end_several_charges() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "h1", 8 * MIB));
    calls.ok(&take("create", "h2", 16 * MIB));
    calls.ok("map h1 both h2");
    calls.ok("map h2 second");
    calls.ok("free h1");
    calls.ok("free h2");
    calls.holds(24 * MIB);
    calls.ok("unmap both");
    calls.holds(16 * MIB);
    calls.ok("unmap second");
    calls.holds(0);
    calls.end();
}

#[test]
fn a_retained_handle_keeps_the_charge() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "h", 10 * MIB));
    calls.ok("map h m");
    calls.ok("mem_retain m r1");
    calls.ok("mem_retain m r2");
    calls.ok("free h");
    calls.ok("unmap m");
    calls.holds(10 * MIB);
    calls.ok("free r1");
    calls.holds(10 * MIB);
    calls.ok("free r2");
    calls.holds(0);
    calls.end();
}

#[test]
fn a_handle_retained_after_its_release_counts_again() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "h", 10 * MIB));
    calls.ok("map h m");
    calls.ok("free h");
    calls.ok("mem_retain m again");
    calls.ok("map again m2");
    calls.ok("unmap m");
    calls.ok("free again");
    calls.holds(10 * MIB);
    calls.ok("unmap m2");
    calls.holds(0);
    calls.end();
}

#[test]
fn a_handle_value_that_comes_back_is_other_memory() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "first", 10 * MIB));
    calls.ok("same_as first stale");
    calls.ok("free first");
    calls.holds(0);
    calls.ok(&take("create", "second", 4 * MIB));
    calls.ok("same second stale");
    calls.ok(&take("create", "third", 6 * MIB));
    calls.ok("map second m");
    calls.holds(10 * MIB);
    calls.ok("free second");
    calls.holds(10 * MIB);
    calls.ok("unmap m");
    calls.holds(6 * MIB);
    assert_ne!(calls.ask("free stale").code, 0, "the driver knows it no more");
    calls.holds(6 * MIB);
    calls.ok("free third");
    calls.holds(0);
    calls.end();
}

#[test]
fn host_memory_costs_nothing() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "4MiB");
    calls.ok(&format!("create_host h {}", 100 * MIB));
    calls.ok("map h m");
    calls.holds(0);
    calls.ok(&take("create", "d", 4 * MIB));
    calls.ok(&format!("create_host h2 {}", 100 * MIB));
    calls.ok("free h");
    calls.ok("unmap m");
    calls.ok("free h2");
    calls.holds(4 * MIB);
    calls.end();
}

#[test]
fn the_driver_finds_fault_first_even_at_the_limit() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "4MiB");
    calls.ok(&take("create", "h", 4 * MIB));
    calls.refused(&take("create", "more", 2 * MIB));
    // No multiple of the granularity, no such device.
    calls.gets(&take("create", "odd", 3 * MIB), 1);
    calls.gets("take create nowhere 2097152 7", 101);
    calls.holds(4 * MIB);
    calls.end();
}

#[test]
fn what_the_driver_refuses_leaves_the_charge() {
    let sim =
        Sim::with(&[("FAIL", "cuMemRelease:1:700,cuMemUnmap:1:700,cuMemMap:1:700,cuMemRetainAllocationHandle:1:700")]);
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "h", 10 * MIB));
    calls.gets("free h", 700);
    calls.holds(10 * MIB);
    calls.gets("map h m", 700);
    calls.ok("map h m");
    calls.gets("mem_retain m r", 700);
    calls.gets("unmap m", 700);
    calls.ok("free h");
    calls.holds(10 * MIB);
    calls.ok("unmap m");
    calls.holds(0);
    calls.end();
}

#[test]
fn physical_memory_outlives_contexts() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok("ctx 0");
    calls.ok(&take("create", "h", 10 * MIB));
    calls.ok(&take("alloc", "a", 10 * MIB));
    calls.holds(20 * MIB);
    calls.ok("destroy");
    calls.holds(10 * MIB);
    calls.ok("reset 0");
    calls.ok("retain 0");
    calls.holds(10 * MIB);
    calls.ok("free h");
    calls.holds(0);
    calls.end();
}

#[test]
fn physical_memory_needs_no_context_and_the_limit_holds() {
    let sim = Sim::new();
    let mut calls = Calls::without_context(&sim, "10MiB");
    calls.ok(&take("create", "h", 6 * MIB));
    calls.refused(&take("create", "more", 6 * MIB));
    calls.ok("free h");
    assert_eq!(calls.really(0), 0);
    calls.ok(&take("create", "more", 6 * MIB));
    assert_eq!(calls.peak(0), 6 * MIB);
    calls.ok("retain 0");
    calls.holds(6 * MIB);
    calls.end();
}

#[test]
fn a_free_of_a_mapped_address_ends_no_charge() {
    let sim = Sim::new();
    let mut calls = Calls::start(&sim, "64MiB");
    calls.ok(&take("create", "h", 10 * MIB));
    calls.ok("map h m");
    assert_ne!(calls.ask("free_thing m").code, 0);
    calls.holds(10 * MIB);
    calls.end();
}
