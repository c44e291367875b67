//! The trace says which function was called, in which way it was found, and what it answered.

use std::fs;

use harness::{Sim, cc, cuda_wheel, python, root};

fn trace(via: &[&str], flags: &[&str], calls: &[&str]) -> Vec<String> {
    let sim = Sim::new();
    let file = sim.folder().join("trace");
    let out = sim.run(cc("driver.c", flags)).args(via).args(calls).env("SIMCUDA_TRACE", &file).out();
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}\n{}", out.ok()));
    let own = format!("{} ", out.pid);
    let lines = text.lines().map(|line| line.strip_prefix(&own).unwrap_or_else(|| panic!("another process: {line}")));
    // Without the thread.
    lines.map(|line| line.split_once(' ').expect("more follows").1.to_owned()).collect()
}

#[test]
fn a_symbol_and_a_pointer_from_cu_get_proc_address_are_told_apart() {
    let calls = ["cuInit 0", "cuMemGetInfo_v2 null null"];
    assert_eq!(trace(&["--via", "dlsym"], &[], &calls), ["cuInit dlsym 0", "cuMemGetInfo_v2 dlsym 201"]);
    let by_pointer = trace(&["--via", "gpa2"], &[], &["cuInit 0", "cuMemGetInfo null null"]);
    let called: Vec<&String> = by_pointer.iter().filter(|line| !line.starts_with("cuGetProcAddress")).collect();
    assert_eq!(called, ["cuInit gpa 0", "cuMemGetInfo_v2 gpa 201"]);
}

#[test]
fn a_stub_library_hands_over_to_another_implementation() {
    let sim = Sim::new();
    let other = sim.folder().join("other.so");
    fs::copy(sim.libcuda(), &other).expect("the folder is writable");
    let out = sim.run(cc("driver.c", &[])).arg("cuInit 0").env("SIMCUDA_IMPL", &other).out();
    assert_eq!(out.ok().stdout, "cuInit 0\n");
    assert_eq!(sim.truth().calls("cuInit"), 2, "both libraries were asked");
}

#[test]
fn a_linked_program_is_seen_as_such() {
    let sim = Sim::new();
    let file = sim.folder().join("trace");
    let out = sim.run(cc("linked_trace.c", &["-lcuda"])).env("SIMCUDA_TRACE", &file).out();
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}\n{}", out.ok()));
    assert!(text.contains(" cuInit linked 0\n") && text.contains(" cuDeviceGetCount linked 0\n"), "{text}");
}

#[test]
fn libcudart_reaches_everything_through_cu_get_proc_address() {
    let sim = Sim::new();
    let file = sim.folder().join("trace");
    let program = sim.run(python()).arg(root().join("tests/clients/cudart.py")).arg(cuda_wheel("12.9"));
    program.env("SIMCUDA_TRACE", &file).out().ok();
    let text = fs::read_to_string(&file).expect("the trace was written");
    let mut ways = text.lines().filter(|line| !line.contains("cuGetProcAddress")).map(|line| line.split(' ').nth(3));
    assert!(ways.all(|way| way == Some("gpa")), "libcudart looks up one symbol by name only");
    assert!(text.contains(" cuMemAlloc_v2 gpa 0\n"));
}
