//! NVML reached in every way, and NVML that lacks something: the cap is shown wherever NVML shows anything.

use std::path::Path;
use std::time::{Duration, Instant};

use harness::{MIB, Output, Run, Sim, cc};
use script::{answer, numbers, started};

mod script;

fn run(sim: &Sim, way: &[&str]) -> Run {
    sim.run(cc("nvml.c", &[])).args(way)
}

/// Requires that one device shows a limit of 300 MiB, of which nothing is used.
#[track_caller]
fn shows_the_limit(out: &Output) {
    let limit = 300 * MIB;
    assert_eq!(out.ok().stdout, format!("nvml 0 0 {limit} {limit} 0 0 {limit} {limit} 0 0\n"), "{out}");
    assert_eq!(out.stderr, "");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn a_program_that_looks_nvml_up_sees_the_limit() {
    let sim = Sim::new();
    sim.truth().take_foreign(0, 100 * MIB);
    for way in ["handle", "default"] {
        shows_the_limit(&run(&sim, &[way]).capped("300MiB").out());
    }
}

#[test]
fn a_program_that_is_linked_with_nvml_sees_the_limit() {
    let sim = Sim::new();
    for flags in [["-DLINKED", "-Wl,-z,lazy", "-lnvidia-ml"], ["-DLINKED", "-Wl,-z,now", "-lnvidia-ml"]] {
        shows_the_limit(&sim.run(cc("nvml.c", &flags)).capped("300MiB").out());
    }
}

#[test]
fn a_library_bound_past_the_preload_sees_the_limit() {
    let sim = Sim::new();
    let library = cc("nvml.c", &["-DLIBRARY", "-shared", "-fPIC", "-lnvidia-ml"]);
    for way in ["deep", "apart"] {
        shows_the_limit(&run(&sim, &[way, text(&library)]).capped("300MiB").out());
    }
}

#[test]
fn without_nvml_a_program_is_told_what_it_is_told_without_us() {
    let sim = Sim::new().without_libnvidia_ml();
    for way in ["handle", "default"] {
        let bare = run(&sim, &[way]).out();
        let out = run(&sim, &[way]).capped("300MiB").out();
        assert_eq!((out.code, &out.stdout, &*out.stderr), (Some(2), &bare.stdout, ""), "{way}");
    }
}

/// Without two of five.
const MISSING: [&str; 2] = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"];

#[test]
fn a_function_that_nvml_lacks_is_lacking() {
    for missing in [&MISSING[..1], &MISSING[1..], &MISSING] {
        let sim = Sim::new().hide_nvml(missing);
        for way in ["handle", "default"] {
            let bare = run(&sim, &[way]).out();
            let out = run(&sim, &[way]).capped("300MiB").out();
            let absent = |out: &Output| out.stdout.matches("no such symbol").count();
            assert_eq!((absent(out.ok()), absent(bare.ok())), (missing.len(), missing.len()), "{out}");
            assert_eq!(out.stderr, "");
        }
    }
    // What a linked program calls nonetheless says so, with NVML's own code (13, function not found).
    let sim = Sim::new().hide_nvml(&MISSING);
    let out = sim.run(cc("nvml.c", &["-DLINKED", "-Wl,-z,lazy", "-lnvidia-ml"])).capped("300MiB").out();
    assert_eq!(out.ok().stdout, "nvml 0 13 0 0 0 13 0 0 0 0\n");
}

#[test]
fn where_a_device_cannot_be_told_from_others_nvmls_own_numbers_stand() {
    let sim = Sim::new().hide_nvml(&["nvmlDeviceGetUUID"]);
    let bare = run(&sim, &["handle"]).out();
    let out = run(&sim, &["handle"]).capped("300MiB").out();
    assert_eq!(out.ok().stdout, bare.ok().stdout);
}

/// A program that starts CUDA and fills the device, with this NVML.
#[track_caller]
fn still_capped(sim: &Sim) -> Duration {
    let begin = Instant::now();
    let commands = format!("fill alloc {}\ninfo", 32 * MIB);
    let out = started(sim, &commands).env("GPUCAP_OVERHEAD", "auto").capped("320MiB").out();
    assert_eq!(answer(out.ok(), "fill", 0), "2 10 untouched", "{out}");
    assert_eq!(numbers(&out, "info", 0), [0, 0, 320 * MIB], "{out}");
    assert_eq!(sim.truth().process(out.pid).expect("it ran").per_device[0].peak_pages, 320 * MIB);
    begin.elapsed()
}

#[test]
fn a35_a_newer_nvml_that_lacks_functions_or_does_not_start_leaves_the_cap_as_it_is() {
    // Of the functions that we ask for, a third and more.
    const SOME: [&str; 6] = [
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetMemoryInfo",
        "nvmlInit_v2",
    ];
    for nth in 0..SOME.len() {
        still_capped(&Sim::new().hide_nvml(&SOME[nth..=nth]));
    }
    still_capped(&Sim::new().hide_nvml(&SOME));
    for nvml in ["absent", "notloaded", "partial"] {
        still_capped(&Sim::with(&[("NVML", nvml)]));
    }
    still_capped(&Sim::new().without_libnvidia_ml());
    let took = still_capped(&Sim::with(&[("NVML", "slow:100")]));
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn a59_a_device_whose_memory_nvml_does_not_know_is_capped_by_cuda_and_nvml_says_what_it_says() {
    let sim = Sim::with(&[("INTEGRATED", "1"), ("TOTAL_MIB", "122573")]);
    for (limit, bytes) in [("25%", 122_573 * MIB / 4), ("0.25", 122_573 * MIB / 4), ("320MiB", 320 * MIB)] {
        let nvml = run(&sim, &["handle"]).capped(limit).out();
        assert_eq!(nvml.ok().stdout, "nvml 0 3 0 0 0 3 0 0 0 0\n");
        let commands = format!("info\ntotal 0\ntake alloc a {}\ninfo", 320 * MIB);
        let out = started(&sim, &commands).capped(limit).out();
        assert_eq!(numbers(out.ok(), "info", 0), [0, bytes, bytes], "{out}");
        assert_eq!(numbers(&out, "total", 0), [0, bytes], "{out}");
        assert_eq!(numbers(&out, "info", 1), [0, bytes - 320 * MIB, bytes], "{out}");
    }
}
