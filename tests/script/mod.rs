//! Scripts for `tests/apps/calls.c` on a simulated machine, and what the library says meanwhile.
#![allow(dead_code, missing_docs)] // each test file uses a part

use harness::{Output, Run, Sim};

pub use harness::MIB;
pub const KIB: u64 = 1 << 10;
pub const GIB: u64 = 1 << 30;

/// How a script begins that uses device 0.
pub const START: &str = "init\nretain 0";

/// A run of the commands that are the lines of `commands`, by functions that `dlsym` found; bare as yet.
pub fn script(sim: &Sim, commands: &str) -> Run {
    sim.run(harness::cc("calls.c", &[]))
        .arg("dlsym")
        .stdin(commands)
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
