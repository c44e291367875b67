//! Threads that race for the last bytes: the limit holds by the driver's own truth, and nothing that fits is refused.

use std::time::Duration;

use harness::{MIB, Sim, cc};

/// Runs `race` under a limit and holds its books against the truth at two points of rest. Returns what it said.
#[track_caller]
fn race(sim: &Sim, limit: u64, arguments: &[&str]) -> Vec<String> {
    let mut app = sim
        .run(cc("race.c", &["-lcuda"]))
        .args(arguments)
        .capped(&format!("{limit}B"))
        .env("GPUCAP_OVERHEAD", "0")
        .timeout(Duration::from_secs(100))
        .spawn();
    let mut said = Vec::new();
    let mut rest = |app: &mut harness::Child, what: &str| loop {
        let line = app.hear();
        if let Some(numbers) = line.strip_prefix(what) {
            let numbers: Vec<u64> = numbers.split_whitespace().map(|n| n.parse().expect("bytes")).collect();
            let held = sim.truth().process(app.pid()).expect("it runs").per_device[0];
            assert_eq!(numbers, [limit - held.blocks, limit], "free and total {what}; truth {held:?}; said {said:?}");
            assert!(held.peak_blocks <= limit, "the limit is {limit}, truth {held:?}");
            return held.blocks;
        }
        said.push(line);
    };
    rest(&mut app, "held ");
    app.say("");
    assert_eq!(rest(&mut app, "freed "), 0, "everything was freed; said {said:?}");
    let out = app.wait();
    assert_eq!(out.code, Some(0), "{out}");
    said
}

/// Failures of the driver, spread over a run: the n-th calls of a function.
fn failures(function: &str, every: usize, last: usize, code: u32) -> String {
    let rules: Vec<String> = (1..=last / every).map(|n| format!("{function}:{}:{code}", n * every)).collect();
    rules.join(",")
}

#[test]
fn of_eight_threads_exactly_those_get_it_for_whom_there_is_room() {
    for (entry, fit) in [("alloc", "3"), ("managed", "1"), ("create", "7"), ("pitch", "5")] {
        let sim = Sim::with(&[("LATENCY_US", "60")]);
        let bytes = (2 * MIB).to_string();
        let limit = fit.parse::<u64>().expect("a number") * 2 * MIB;
        let said = race(&sim, limit, &["last", fit, "250", &bytes, entry]);
        assert!(said.concat().contains("wrong 0"), "{said:?}");
    }
}

#[test]
fn a_thousand_rounds_for_the_last_byte_never_pass_the_limit_and_never_refuse_what_fits() {
    let sim = Sim::with(&[("LATENCY_US", "50")]);
    // 512 bytes each; one byte less than a fifth block.
    let said = race(&sim, 5 * 512 - 1, &["last", "4", "1000", "512", "alloc", "managed"]);
    assert_eq!(said, ["rounds 1000 wrong 0 refused 4000 failed 0"]);
}

#[test]
fn different_entries_race_for_the_same_bytes() {
    let sim = Sim::with(&[("LATENCY_US", "cuMemAlloc_v2=80,cuMemAllocManaged=10,cuMemCreate=150")]);
    let bytes = (2 * MIB).to_string();
    let said = race(&sim, 8 * MIB, &["last", "4", "400", &bytes, "alloc", "managed", "create", "pitch"]);
    assert_eq!(said, ["rounds 400 wrong 0 refused 1600 failed 0"]);
}

#[test]
fn no_request_that_still_fits_is_refused_whatever_sizes_race() {
    let sim = Sim::with(&[("LATENCY_US", "40")]);
    let limit = 9 * MIB + 512;
    let said = race(&sim, limit, &["mixed", "500", &limit.to_string(), "alloc", "managed"]);
    assert!(said.last().expect("a summary").starts_with("rounds 500 wrong 0 "), "{said:?}");
}

#[test]
fn bytes_of_a_call_that_the_driver_fails_go_to_those_who_were_waiting_for_them() {
    // The failing call takes its time, so that others are refused because of it, if they do not wait.
    let fail = [failures("cuMemAlloc_v2", 7, 3000, 999), failures("cuMemCreate", 5, 3000, 999)].join(",");
    let sim = Sim::with(&[("LATENCY_US", "60"), ("FAIL", &fail)]);
    let bytes = (2 * MIB).to_string();
    let said = race(&sim, 4 * MIB, &["last", "2", "400", &bytes, "alloc", "create"]);
    assert!(said.last().expect("a summary").starts_with("rounds 400 wrong 0 "), "{said:?}");
    assert!(!said.concat().contains("failed 0"), "the driver failed some: {said:?}");
}

#[test]
fn stream_ordered_allocations_race_for_whole_steps_of_their_pool() {
    for entry in ["async", "frompool"] {
        let sim = Sim::with(&[("LATENCY_US", "60")]);
        let bytes = (32 * MIB).to_string();
        let said = race(&sim, 96 * MIB, &["last", "3", "250", &bytes, entry]);
        assert_eq!(said, ["rounds 250 wrong 0 refused 1250 failed 0"], "{entry}");
    }
}

#[test]
fn pools_and_plain_memory_race_for_the_same_bytes() {
    let sim = Sim::with(&[("LATENCY_US", "60")]);
    let bytes = (32 * MIB).to_string();
    let said = race(&sim, 96 * MIB, &["last", "3", "250", &bytes, "async", "alloc", "frompool", "create"]);
    assert_eq!(said, ["rounds 250 wrong 0 refused 1250 failed 0"]);
}

#[test]
fn after_any_mix_of_allocations_and_frees_the_books_equal_the_truth() {
    let sim = Sim::new();
    let said = race(&sim, 64 * MIB, &["churn", "12000", "alloc", "managed", "create", "pitch"]);
    assert!(said.concat().contains("failed 0") && !said.concat().contains("refused 0"), "{said:?}");
}

#[test]
fn with_pools_too_the_books_equal_the_truth_at_the_end() {
    let sim = Sim::with(&[("POOL_STEP_MIB", "2")]);
    race(&sim, 64 * MIB, &["churn", "6000", "alloc", "async", "create", "frompool"]);
}

#[test]
fn failures_of_the_driver_leave_no_trace_in_the_books() {
    let codes = [
        ("cuMemAlloc_v2", 3, 2),
        ("cuMemAllocManaged", 4, 999),
        ("cuMemCreate", 3, 801),
        ("cuMemFree_v2", 1_000_000, 1),
    ];
    let mut rules: Vec<String> = codes.iter().map(|(name, every, code)| failures(name, *every, 4000, *code)).collect();
    rules.push(failures("cuMemAllocAsync", 3, 4000, 2));
    rules.retain(|rule| !rule.is_empty());
    let sim = Sim::with(&[("FAIL", &rules.join(",")), ("LATENCY_US", "cuMemAlloc_v2=20"), ("POOL_STEP_MIB", "2")]);
    let said = race(&sim, 64 * MIB, &["churn", "2500", "alloc", "managed", "create", "async"]);
    assert!(!said.concat().contains("failed 0"), "{said:?}");
}
