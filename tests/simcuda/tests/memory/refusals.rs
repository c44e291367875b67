use std::time::{Duration, Instant};

use crate::Bench;

#[test]
fn hostile_arguments_get_the_drivers_codes_and_write_nothing() {
    let bench = Bench::new(&[]);
    let out = bench.expect(&[
        ("set x 0 8 7", "set"),
        ("cuMemAlloc_v2 &x 0", "cuMemAlloc_v2 1 x=7"),
        ("cuMemAlloc_v2 null 100", "cuMemAlloc_v2 1"),
        ("cuMemAlloc_v2 &x -1", "cuMemAlloc_v2 2 x=7"),
        ("cuMemAlloc_v2 &x 100G", "cuMemAlloc_v2 2 x=7"),
        ("cuMemAlloc_v2 &x 0x7fffffffffffffff", "cuMemAlloc_v2 2 x=7"),
        ("cuMemAlloc &x 0", "cuMemAlloc 1 x=7"),
        ("cuMemAllocPitch_v2 &x &x 0 10 4", "cuMemAllocPitch_v2 1 x=7 x=7"),
        ("cuMemAllocPitch_v2 &x &x 10 0 4", "cuMemAllocPitch_v2 1 x=7 x=7"),
        ("cuMemAllocPitch_v2 &x &x 10 10 5", "cuMemAllocPitch_v2 1 x=7 x=7"),
        ("cuMemAllocPitch_v2 &x null 10 10 4", "cuMemAllocPitch_v2 1 x=7"),
        ("cuMemAllocPitch_v2 &x &x -1 -1 4", "cuMemAllocPitch_v2 2 x=7 x=7"),
        ("cuMemAllocManaged &x 100 0", "cuMemAllocManaged 1 x=7"),
        ("cuMemAllocManaged &x 0 1", "cuMemAllocManaged 1 x=7"),
        ("cuMemFree_v2 0", "cuMemFree_v2 0"),
        ("cuMemFree_v2 1234", "cuMemFree_v2 1"),
        ("cuMemFree_v2 &x", "cuMemFree_v2 1 x=7"),
        ("cuMemGetInfo_v2 null null", "cuMemGetInfo_v2 0"),
    ]);
    let held = bench.held(out.pid);
    assert_eq!((held.peak_blocks, held.peak_pages), (0, 0));
}

#[test]
fn stale_and_interior_pointers_are_refused() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    for bytes in ["100", "4M"] {
        session.code(&format!("cuMemAlloc_v2 &a {bytes}"), 0);
        session.code("cuMemFree_v2 $a+1", 1);
        session.code("cuMemFree_v2 $a+64", 1);
        session.code("cuMemFree_v2 $a", 0);
        session.code("cuMemFree_v2 $a", 1);
    }
    assert_eq!(bench.mib(session.pid()), (0, 0));
}

#[test]
fn without_a_context_or_before_init_nothing_is_allocated() {
    let bench = Bench::new(&[]);
    let driver = harness::cc("driver.c", &[]);
    let out = bench
        .sim
        .run(driver)
        .args([
            "cuMemAlloc_v2 &a 100",
            "cuInit 0",
            "cuMemAlloc_v2 &a 100",
            "cuMemFree_v2 0",
            "cuMemGetInfo_v2 &a &a",
            "cuMemAllocAsync &a 100 0",
        ])
        .out();
    assert_eq!(
        out.ok().lines(),
        [
            "cuMemAlloc_v2 3 a=0",
            "cuInit 0",
            "cuMemAlloc_v2 201 a=0",
            "cuMemFree_v2 201",
            "cuMemGetInfo_v2 201 a=0 a=0",
            "cuMemAllocAsync 201 a=0"
        ]
    );
}

#[test]
fn an_injected_failure_has_no_effect_and_latency_delays() {
    let bench = Bench::new(&[("FAIL", "cuMemAlloc_v2:2:999"), ("LATENCY_US", "cuMemFree_v2=30000")]);
    let mut session = bench.session();
    session.code("cuMemAlloc_v2 &a 4M", 0);
    session.code("cuMemAlloc_v2 &b 4M", 999);
    session.code("cuMemAlloc_v2 &b 4M", 0);
    assert_eq!(bench.mib(session.pid()), (8, 8));
    let calls = bench.sim.truth().process(session.pid()).expect("it ran").calls("cuMemAlloc_v2");
    assert_eq!(calls, 3);
    let start = Instant::now();
    session.code("cuMemFree_v2 $a", 0);
    assert!(start.elapsed() >= Duration::from_millis(30));
}
