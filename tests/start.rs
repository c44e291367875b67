//! Starting: many at once, killed in the middle of it, and with a stderr that is not one.

use std::path::Path;
use std::time::{Duration, Instant};

use harness::{MIB, Output, Sim, cc};

/// Median and 99th percentile of CPU time, wall time and waits of `n` processes that start at once.
#[track_caller]
fn started(sim: &Sim, n: u32, capped: bool) -> [[u64; 2]; 3] {
    let run = sim.run(cc("start.c", &["-lcuda"])).args(["many", &n.to_string()]);
    let run = if capped { run.capped("10MiB") } else { run.bare() };
    // What NVML takes to list the processes is its own affair.
    let run = run.env("GPUCAP_OVERHEAD", "0");
    let out = run.timeout(Duration::from_secs(60)).out();
    let lines = out.ok().lines();
    let numbers = |line: &str| -> [u64; 2] {
        let all: Vec<u64> = line.split(' ').skip(1).map(|n| n.parse().expect("a number")).collect();
        [all[0], all[1]]
    };
    [numbers(lines[0]), numbers(lines[1]), numbers(lines[2])]
}

#[test]
fn three_hundred_that_start_at_once_do_not_wait_for_each_other() {
    let sim = Sim::with(&[("TOTAL_MIB", "16384")]);
    let (bare, few, all) = (started(&sim, 300, false), started(&sim, 20, true), started(&sim, 300, true));
    let said =
        format!("cpu µs, wall µs, waits, each median and 99 %: bare {bare:?}, 20 capped {few:?}, 300 capped {all:?}");
    let [cpu, _, waits] = all;
    assert!(cpu[1] < bare[0][1] + 20_000, "added CPU of the slowest: {said}");
    assert!(cpu[0] < 3 * few[0][0] + 2_000, "grows with their number: {said}");
    assert!(waits[1] <= bare[2][1] + 2, "they wait for something: {said}");
}

#[test]
fn workers_killed_while_they_start_never_hold_up_those_that_replace_them() {
    let sim = Sim::new();
    let worker = || {
        let run = sim.run(cc("start.c", &["-lcuda"])).arg("serve").capped("10MiB").env("GPUCAP_OVERHEAD", "0");
        run.timeout(Duration::from_secs(20)).spawn()
    };
    let mut workers: Vec<_> = (0..8).map(|_| worker()).collect();
    workers.iter_mut().for_each(|worker| assert!(worker.hear().starts_with("up ")));
    for round in 0..50_u64 {
        for k in 0..2 {
            let at = usize::try_from((2 * round + k) % 8).expect("small");
            let mut victim = worker();
            // From before its first instruction to after its start: in steps of 250 µs.
            std::thread::sleep(Duration::from_micros((round * 7 + k * 3) % 40 * 250));
            victim.kill();
            workers[at].kill();
            workers[at] = worker();
            let begun = Instant::now();
            let line = workers[at].hear();
            let micros: u64 = line.strip_prefix("up ").expect("it is up").parse().expect("a number");
            assert!(micros < 1_000_000, "round {round}: {line}, {:?} after its start", begun.elapsed());
        }
    }
    assert_eq!(sim.truth().device(0).used, 8 * 2 * MIB, "the dead hold nothing");
}

#[track_caller]
fn deny(run: harness::Run) -> Output {
    let out = run.capped("10MiB").timeout(Duration::from_secs(20)).out();
    assert_eq!(out.ok().lines()[0], "denied 2 errno kept pending 0 blocked 0 soon", "{out}");
    out
}

#[test]
fn a_line_that_nobody_can_read_does_not_end_the_program_or_hold_it_up() {
    for how in ["closed", "pipe", "socket", "full"] {
        let sim = Sim::new();
        let out = deny(sim.run(cc("start.c", &["-lcuda"])).args(["deny", how]));
        assert_eq!(out.stderr, "", "{how}");
    }
}

#[test]
fn a_file_that_got_the_number_of_a_closed_stderr_is_not_written_to() {
    let sim = Sim::new();
    let data = sim.folder().join("data");
    let app = cc("start.c", &["-lcuda"]);
    let shell = format!("exec '{}' deny data '{}' 2>&-", app.display(), data.display());
    deny(sim.run("/bin/sh").args(["-c", &shell]));
    assert_eq!(read(&data), "data");
}

#[test]
fn a_connection_that_got_the_number_of_stderr_hears_nothing() {
    let sim = Sim::new();
    let out = deny(sim.run(cc("start.c", &["-lcuda"])).args(["deny", "connection"]));
    assert_eq!(out.lines()[1], "heard 0");
}

#[test]
fn a_refusal_is_one_line_on_a_stderr_that_is_read() {
    let sim = Sim::new();
    let out = deny(sim.run(cc("start.c", &["-lcuda"])).args(["deny", "nothing"]));
    let lines: Vec<&str> = out.stderr.lines().collect();
    assert!(lines.len() == 1 && lines[0].contains("cuMemAlloc_v2") && lines[0].contains("GPUCAP_LIMIT"), "{lines:?}");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the program made it")
}
