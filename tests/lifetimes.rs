//! Contexts, pools and physical memory that come and go on many threads at once leave the books equal to the truth.

use harness::{MIB, Sim, cc};

/// Runs a thread for each of `kinds`, under 40 MiB on the first device and 64 on the second.
#[track_caller]
fn ends_with_nothing_held(rounds: &str, latency: &str, kinds: &[&str]) {
    let resets = kinds.iter().any(|kind| kind.starts_with("reset"));
    let sim = Sim::with(&[("DEVICES", "2"), ("LATENCY_US", latency)]);
    let run = sim.run(cc("lifetimes.c", &["-lcuda"])).arg(rounds).args(kinds);
    let run = run.env("GPUCAP_OVERHEAD", "0");
    let out = run.capped("0=40MiB,1=64MiB").out();
    let lines = |limit: u64| format!("end {} {}\nfilled {}\n", limit * MIB, limit * MIB, limit / 2);
    assert_eq!(out.ok().stdout, lines(40) + &lines(64), "{out}");
    let process = sim.truth().process(out.pid).expect("it called the driver");
    for (held, limit) in process.per_device.iter().zip([40 * MIB, 64 * MIB]) {
        // Of a block that comes while its context is reset only the driver knows whether it died.
        assert!(held.peak_blocks == limit || resets, "{held:?} {out}");
    }
    assert!(!out.stderr.contains("defect"), "{out}");
}

#[test]
fn contexts_of_many_threads_come_and_go_with_their_memory() {
    let kinds = ["own:0", "own:0", "own:1", "own:1", "own:0", "own:1"];
    ends_with_nothing_held("300", "", &kinds);
    ends_with_nothing_held("40", "cuCtxDestroy_v2=200,cuMemAlloc_v2=100", &kinds);
}

#[test]
fn primary_contexts_die_and_come_back_between_threads() {
    let kinds = ["shared:0", "shared:0", "shared:0", "doomed:1", "doomed:1", "doomed:1"];
    ends_with_nothing_held("300", "", &kinds);
    let slow = "cuDevicePrimaryCtxRelease_v2=200,cuDevicePrimaryCtxRetain=100,cuMemAllocManaged=50";
    ends_with_nothing_held("60", slow, &kinds);
}

#[test]
fn a_primary_context_is_reset_while_threads_allocate_in_it() {
    let kinds = ["doomed:0", "doomed:0", "reset:0", "doomed:1", "reset:1", "own:1"];
    ends_with_nothing_held("300", "", &kinds);
    ends_with_nothing_held("60", "cuDevicePrimaryCtxReset_v2=300,cuMemAlloc_v2=50", &kinds);
}

#[test]
fn pools_are_destroyed_with_memory_in_use_beside_everything_else() {
    let kinds = ["pool:0", "pool:1", "pool:1", "physical:0", "physical:1", "own:0", "shared:1", "shared:0"];
    ends_with_nothing_held("200", "", &kinds);
    ends_with_nothing_held("40", "cuMemPoolDestroy=200,cuMemRelease=100,cuMemUnmap=100", &kinds);
}

#[test]
fn physical_memory_of_many_threads_is_mapped_and_released_in_any_order() {
    let kinds = ["physical:0", "physical:0", "physical:1", "physical:1"];
    ends_with_nothing_held("400", "", &kinds);
    ends_with_nothing_held("60", "cuMemRelease=100,cuMemUnmap=100,cuMemMap=50", &kinds);
}
