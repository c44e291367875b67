//! The simulated NVML tells pynvml the same as the books, and fails as it is told to.

use harness::{MIB, Sim, python, root};

fn run(sim: &Sim, arguments: &[&str]) -> String {
    let program = sim.run(python()).arg(root().join("tests/clients/nvml.py")).args(arguments);
    program.env("PYTHONPATH", root().join("target/wheels/nvidia-ml-py")).out().ok().stdout.clone()
}

fn value<'a>(text: &'a str, what: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {what} in\n{text}"))
}

#[test]
fn memory_and_processes_are_those_of_the_books() {
    let text = run(&Sim::with(&[("TOTAL_MIB", "1000"), ("CTX_MIB", "300")]), &["hold", "104857600"]);
    assert_eq!(value(&text, "count"), "1");
    assert_eq!(value(&text, "uuid"), value(&text, "cuda_uuid"));
    let used = 400 * MIB;
    let memory = format!("{} {} {used}", 1000 * MIB, 600 * MIB);
    assert_eq!((value(&text, "v1"), value(&text, "v2")), (&*memory, &*memory));
    assert_eq!(value(&text, "mine"), format!("[{used}]"));
    assert_eq!(value(&text, "fan"), "error 3", "what is not simulated is not supported");
}

#[test]
fn a_process_without_cuda_sees_what_others_hold() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000")]);
    sim.truth().take_foreign(0, 100 * MIB);
    let text = run(&sim, &[]);
    assert_eq!(value(&text, "v1"), format!("{} {} {}", 1000 * MIB, 900 * MIB, 100 * MIB));
    assert_eq!(value(&text, "mine"), "[]");
}

#[test]
fn absent_unloaded_partial_and_integrated_are_told_apart() {
    let with = |name, knob| run(&Sim::with(&[(name, knob)]), &[]);
    assert_eq!(value(&with("NVML", "absent"), "init"), "error 12");
    assert_eq!(value(&with("NVML", "notloaded"), "init"), "error 9");
    let partial = with("NVML", "partial");
    assert_eq!((value(&partial, "mine"), value(&partial, "init")), ("error 3", "None"));
    assert!(!value(&partial, "v1").contains("error"));
    let integrated = with("INTEGRATED", "1");
    assert_eq!((value(&integrated, "v1"), value(&integrated, "v2")), ("error 3", "error 3"));
}
