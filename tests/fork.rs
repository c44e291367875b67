//! Forked processes: a child begins with empty books and its own limit, or with a driver that is dead in it, and never hangs.

use std::time::Duration;

use harness::{MIB, Output, Sim, cc};

const BLOCK: u64 = 2 * MIB;
const LIMIT: u64 = 10 * MIB;

/// What a process says that may have five blocks and has had none.
fn full(who: &str) -> String {
    format!("{who} free {LIMIT} total {LIMIT} had 5 then 2 left 0")
}

/// The same when it already has one.
fn rest(who: &str) -> String {
    format!("{who} free {} total {LIMIT} had 4 then 2 left 0", LIMIT - BLOCK)
}

#[track_caller]
fn run(sim: &Sim, arguments: &[&str]) -> Output {
    sim.run(cc("fork.c", &["-lcuda"]))
        .args(arguments)
        .arg(BLOCK.to_string())
        .capped("10MiB")
        .env("GPUCAP_LOG", "error")
        .env("GPUCAP_OVERHEAD", "0")
        .timeout(Duration::from_secs(60))
        .out()
}

#[test]
fn a_child_of_a_parent_that_has_only_loaded_the_library_has_its_own_limit() {
    let sim = Sim::new();
    let out = run(&sim, &["loaded"]);
    assert_eq!(out.ok().lines(), [full("child"), "ended 0".to_owned(), full("parent")]);
}

#[test]
fn a_child_of_a_started_parent_gets_the_drivers_own_answer_and_the_parent_goes_on() {
    let sim = Sim::new();
    let out = run(&sim, &["started"]);
    assert_eq!(out.ok().lines(), ["child 3 3".to_owned(), "ended 0".to_owned(), rest("parent")]);
}

#[test]
fn no_child_hangs_whatever_other_threads_were_doing_when_it_was_forked() {
    let sim = Sim::new();
    let out = sim
        .run(cc("fork.c", &["-lcuda"]))
        .args(["storm", "200"])
        .capped("10MiB")
        .env("GPUCAP_LOG", "off")
        .timeout(Duration::from_secs(100))
        .out();
    assert_eq!(out.ok().lines(), ["children 200"]);
}

#[test]
fn every_generation_of_forks_begins_at_zero() {
    let sim = Sim::new();
    let out = run(&sim, &["generations", "3"]);
    let expected: Vec<String> = [2, 1, 0]
        .iter()
        .flat_map(|n| [full(&format!("generation {n}")), format!("child of generation {n} 3 3")])
        .collect();
    assert_eq!(out.ok().lines(), expected);
}

#[test]
fn workers_forked_before_the_driver_starts_have_a_limit_each() {
    let sim = Sim::new();
    let mut app = sim
        .run(cc("fork.c", &["-lcuda"]))
        .args(["workers", "4", &BLOCK.to_string()])
        .capped("10MiB")
        .env("GPUCAP_LOG", "error")
        .env("GPUCAP_OVERHEAD", "0")
        .spawn();
    let mut said: Vec<String> = (0..4).map(|_| app.hear()).collect();
    said.sort();
    for (n, line) in said.iter().enumerate() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let pid: u32 = words[2].parse().expect("a pid");
        assert_eq!(*line, full(&format!("worker {n} {pid}")));
        let held = sim.truth().process(pid).expect("it runs").per_device[0];
        assert_eq!(held.blocks, LIMIT, "worker {n}");
    }
    assert_eq!(sim.truth().device(0).used, 4 * LIMIT);
    assert!(sim.truth().process(app.pid()).is_none_or(|parent| parent.per_device[0].peak_blocks == 0));
    assert_eq!(app.ask("end"), "all ended");
    assert_eq!(app.wait().code, Some(0));
    assert_eq!(sim.truth().device(0).used, 0);
}

#[test]
fn a_program_started_by_a_capped_one_has_its_own_limit() {
    for how in ["fork", "vfork", "spawn"] {
        let sim = Sim::new();
        let out = run(&sim, &["exec", how]);
        assert_eq!(out.ok().lines(), [full("filled"), rest("parent")], "{how}");
    }
}
