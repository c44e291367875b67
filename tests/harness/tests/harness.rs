//! The harness itself: what tests rely on without saying so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use harness::{Sim, cc, python};

#[test]
fn a_hidden_name_is_found_by_no_look_up_and_its_neighbours_are() {
    let sim = Sim::new().hide(&["cuMemAlloc_v2"]);
    let driver = cc("driver.c", &[]);
    for via in ["dlsym", "default"] {
        let out =
            sim.run(&driver).args(["--via", via, "cuMemAlloc_v2 &a 1", "cuMemFree_v2 1", "cuMemAlloc &a 1"]).out();
        assert_eq!(out.ok().lines()[0], "cuMemAlloc_v2 missing", "{via}");
        assert_eq!(&out.lines()[1..], ["cuMemFree_v2 3", "cuMemAlloc 3 a=0"], "{via}");
    }
    for via in ["gpa1", "gpa2"] {
        let out = sim.run(&driver).args(["--via", via, "cuMemAlloc@3020 &a 1", "cuMemFree 1"]).out();
        assert_eq!(out.ok().lines()[1], "cuMemFree 3", "{via}");
    }
}

#[test]
fn a_run_that_hangs_is_ended_with_everything_it_started() {
    let sim = Sim::new();
    let start = Instant::now();
    let run = sim.run("sh").args(["-c", "echo begun; sleep 100 & sleep 100"]).timeout(Duration::from_millis(300));
    let panic = catch_unwind(AssertUnwindSafe(|| run.out())).expect_err("it hangs");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("begun") && start.elapsed() < Duration::from_secs(20), "{message}");
}

#[test]
fn a_process_is_talked_with_and_known_to_the_truth_by_its_pid() {
    let sim = Sim::with(&[("TOTAL_MIB", "256")]);
    let mut child = sim.spawn(cc("driver.c", &[]), &[]);
    assert_eq!(child.ask("cuInit 0"), "cuInit 0");
    let record = sim.truth().process(child.pid()).expect("it called");
    assert!(record.alive);
    assert_eq!(record.calls("cuInit"), 1);
    let out = child.wait();
    assert_eq!(out.ok().lines(), ["cuInit 0"]);
    assert!(!sim.truth().process(out.pid).expect("kept").alive);
}

#[test]
fn python_finds_the_machines_libraries_by_soname() {
    let sim = Sim::new();
    let code =
        "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0), ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())";
    let out = sim.run(python()).args(["-c", code]).out();
    assert_eq!(out.ok().stdout, "0 0\n");
    let bare = Sim::new().without_libcuda();
    assert_ne!(bare.run(python()).args(["-c", code]).out().code, Some(0));
}

#[test]
fn a_linked_program_runs_on_the_machines_libcuda() {
    let sim = Sim::new();
    let out = sim.run(cc("driver.c", &["-Wl,--no-as-needed", "-lcuda"])).args(["--via", "default", "cuInit 0"]).out();
    assert_eq!(out.ok().lines(), ["cuInit 0"]);
}
