//! Tools that the driver loads by itself work beside us.

use std::time::{Duration, Instant};

use harness::{Sim, cc};

#[test]
fn a29_a_tool_injected_by_the_driver_gets_its_tables_and_the_cap_holds() {
    let sim = Sim::new();
    let tool = cc("injection.c", &["-shared", "-fPIC"]);
    let script = "init\nretain 0\nfill alloc 2097152\n";
    let run = |capped: bool| {
        let run = sim.run(cc("calls.c", &[])).arg("dlsym").env("CUDA_INJECTION64_PATH", &tool).stdin(script);
        let run = if capped { run.capped("64MiB") } else { run.stdin("init\n") };
        run.timeout(Duration::from_secs(10)).out()
    };
    assert_eq!(run(false).ok().stdout, "injected 0\ninit 0\n");
    let started = Instant::now();
    assert_eq!(run(true).ok().stdout, "injected 0\ninit 0\nretain 0\nfill 2 32 untouched\n");
    assert!(started.elapsed() < Duration::from_secs(8), "it hung for a while");
}
