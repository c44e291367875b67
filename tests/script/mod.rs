//! Scripts for `tests/apps/calls.c` on a simulated machine, and what the library says meanwhile.
#![allow(dead_code, unused_imports, missing_docs)] // each test file uses a part

use harness::{Output, Run, Sim};

pub use harness::MIB;
pub const KIB: u64 = 1 << 10;
pub const GIB: u64 = 1 << 30;

/// How a script begins that uses device 0.
pub const START: &str = "init\nretain 0";

/// A run of the commands that are the lines of `commands`, by functions that `dlsym` found; bare as yet. Once it is capped
/// only allocations count, so that numbers are exact to the block; a test of anything else sets the variable anew.
pub fn script(sim: &Sim, commands: &str) -> Run {
    sim.run(harness::cc("calls.c", &[])).arg("dlsym").env("GPUCAP_OVERHEAD", "0").stdin(commands)
}

/// As [`script`], after [`START`].
pub fn started(sim: &Sim, commands: &str) -> Run {
    script(sim, &format!("{START}\n{commands}"))
}

/// What the `nth` command (from 0) of that name printed after its name.
#[track_caller]
pub fn answer(out: &Output, command: &str, nth: usize) -> String {
    let start = format!("{command} ");
    let mut answers = out.stdout.lines().filter_map(|line| line.strip_prefix(&start));
    answers.nth(nth).unwrap_or_else(|| panic!("no {command} number {nth}: {out}")).to_owned()
}

/// As [`answer`], as numbers; words among them are left out.
#[track_caller]
pub fn numbers(out: &Output, command: &str, nth: usize) -> Vec<u64> {
    answer(out, command, nth).split(' ').filter_map(|word| word.parse().ok()).collect()
}

/// The lines that the library wrote, without their `gpucap[pid]: `.
///
/// # Panics
/// If anything else is on stderr, or a line has another pid.
#[track_caller]
pub fn said(out: &Output) -> Vec<String> {
    let start = format!("gpucap[{}]: ", out.pid);
    let line = |line: &str| line.strip_prefix(&start).unwrap_or_else(|| panic!("a foreign line: {out}")).to_owned();
    out.stderr.lines().map(line).collect()
}

/// The one line that the library wrote.
#[track_caller]
pub fn said_once(out: &Output) -> String {
    match said(out).as_slice() {
        [line] => line.clone(),
        lines => panic!("{} lines: {out}", lines.len()),
    }
}

/// Requires that nothing was written on stderr.
#[track_caller]
pub fn silent(out: &Output) -> &Output {
    assert_eq!(out.stderr, "", "{out}");
    out
}

/// What the process held at most on a device, in bytes by blocks; 0 if it never used the driver.
pub fn peak(sim: &Sim, out: &Output, device: usize) -> u64 {
    sim.truth().process(out.pid).map_or(0, |process| process.per_device[device].peak_blocks)
}

/// Requires that cuInit failed with INVALID_VALUE and nothing was allocated; gives the one line about it.
#[track_caller]
pub fn closed(sim: &Sim, out: &Output) -> String {
    out.ok();
    assert_eq!(answer(out, "init", 0), "1", "{out}");
    for line in out.stdout.lines().filter(|line| line.starts_with("take ") || line.starts_with("fill ")) {
        assert_ne!(line.split(' ').nth(1), Some("0"), "{line}: {out}");
    }
    assert_eq!(peak(sim, out, 0), 0, "{out}");
    for entry in ["cuMemAlloc_v2", "cuMemCreate", "cuMemAllocAsync", "cuMemAllocManaged"] {
        assert_eq!(sim.truth().calls(entry), 0, "{entry}: {out}");
    }
    let line = said_once(out);
    line.strip_prefix("error: ").unwrap_or_else(|| panic!("{out}")).to_owned()
}

/// A run with `name=value` set, and a limit of 1 GiB unless that is the name.
pub fn with(sim: &Sim, commands: &str, name: &str, value: &str) -> Run {
    let run = started(sim, commands).preload();
    let run = if name == "GPUCAP_LIMIT" { run } else { run.env("GPUCAP_LIMIT", "1GiB") };
    run.env(name, value)
}

/// The totals of both devices under this limit, and the lines.
#[track_caller]
pub fn totals(run: Run) -> ([u64; 2], Vec<String>) {
    let out = run.out();
    out.ok();
    ([numbers(&out, "total", 0)[1], numbers(&out, "total", 1)[1]], said(&out))
}

/// Asks for both.
pub const BOTH: &str = "init\ntotal 0\ntotal 1";

/// A run of a script of `tests/clients`; bare as yet, and as [`script`].
pub fn client(sim: &Sim, name: &str) -> Run {
    let path = harness::root().join("tests/clients").join(name);
    sim.run(harness::python()).arg(path).env("PYTHONDONTWRITEBYTECODE", "1").env("GPUCAP_OVERHEAD", "0")
}
