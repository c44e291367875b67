//! Machines that lack something: the driver, its newer functions, a device with memory of its own, NVML; and the switch that makes
//! the library absent.

use std::path::{Path, PathBuf};

use harness::{Run, Sim};
use script::{GIB, MIB, answer, client, numbers, said_once, script, silent, started};

mod script;

/// Requires that a program does the same with and without the preload, and gives what it wrote.
#[track_caller]
fn same(run: impl Fn() -> Run) -> String {
    let (bare, out) = (run().bare().out(), run().capped("1GiB").env("GPUCAP_LOG", "debug").out());
    assert_eq!((bare.code, bare.signal), (out.code, out.signal), "{out}");
    assert_eq!((&bare.stdout, &bare.stderr), (&out.stdout, &out.stderr), "{out}");
    out.stdout + &out.stderr
}

#[test]
fn without_a_driver_loading_it_fails_as_without_us() {
    let sim = Sim::new().without_libcuda();
    for way in ["dlsym", "deepbind", "gpa1", "gpa2"] {
        let said = same(|| sim.run(harness::cc("calls.c", &[])).arg(way));
        assert!(said.contains("libcuda.so.1: cannot open shared object file"), "{said}");
    }
    let said = same(|| sim.run(harness::cc("calls.c", &["-DLINKED", "-lcuda"])).arg("linked"));
    assert!(said.contains("error while loading shared libraries: libcuda.so.1"), "{said}");
    let python = "import ctypes\ntry: ctypes.CDLL('libcuda.so.1')\nexcept OSError as error: print(error)";
    let said = same(|| sim.run(harness::python()).args(["-c", python]));
    assert!(said.starts_with("libcuda.so.1: cannot open"), "{said}");
}

#[test]
fn without_a_driver_a_real_runtime_says_what_it_says_without_us() {
    let sim = Sim::new().without_libcuda();
    for version in ["11.8", "12.9", "13.5"] {
        let way = format!("cudart:{}", harness::cuda_wheel(version).display());
        let said = same(|| sim.run(harness::cc("calls.c", &[])).arg(&way).stdin("take alloc a 4096\ninfo"));
        // cudaErrorInsufficientDriver
        assert!(said.starts_with("take 35 ok\ninfo 35 "), "{said}");
    }
}

#[test]
fn without_a_driver_global_scope_holds_none_of_its_names() {
    let sim = Sim::new().without_libcuda();
    let app = harness::cc("optional.c", &[]);
    let bare = sim.run(&app).out();
    let out = sim.run(&app).capped("1GiB").out();
    silent(out.ok());
    // A weak reference is bound by the loader, which finds the library's own functions: they answer as the driver's stub library does.
    let rest = out.stdout.strip_prefix("weak init 34\nweak alloc 3 7\n").unwrap_or(&out.stdout);
    assert_eq!(rest, bare.stdout, "{out}");
    assert!(bare.stdout.starts_with("cuInit default 0 next 0\n"), "{bare}");
}

#[test]
fn with_a_driver_that_nothing_loaded_weak_references_answer_as_the_driver() {
    let sim = Sim::new();
    let out = sim.run(harness::cc("optional.c", &[])).capped("1GiB").out();
    silent(out.ok());
    assert!(!out.stdout.starts_with("weak init 34"), "there is a driver: {out}");
}

#[test]
fn programs_that_never_touch_cuda_are_the_same_with_and_without_a_driver() {
    for sim in [Sim::new(), Sim::new().without_libcuda().without_libnvidia_ml()] {
        same(|| sim.run("true"));
        assert_eq!(same(|| sim.run("sh").args(["-c", "echo a; echo b >&2; exit 7"])), "a\nb\n");
        same(|| sim.run(harness::python()).args(["-c", "pass"]));
        same(|| sim.run(harness::python()).args(["-c", "import ctypes, threading, subprocess, socket; print(1)"]));
        // Nothing is read: not even a wrong value is noticed.
        let run = || sim.run(harness::python()).args(["-c", "print(1)"]);
        let out = run().capped("rubbish").env("GPUCAP_ON_ERROR", "exit").out();
        assert_eq!(silent(out.ok()).stdout, "1\n");
        assert_eq!(sim.truth().processes().len(), 0);
    }
}

#[test]
fn a_program_without_cuda_runs_by_the_command_where_there_is_no_driver() {
    let sim = Sim::new().without_libcuda();
    let run = sim.run(env!("CARGO_BIN_EXE_gpucap")).args(["run", "--limit", "0.3", "--lib"]).arg(harness::shim());
    let out = run.args(["--", "python3", "-c", "print('here')"]).out();
    assert_eq!(silent(out.ok()).stdout, "here\n");
}

/// The names that drivers newer than `version` export, of those of the simulated one.
fn newer_than(version: u32) -> Vec<&'static str> {
    let names = include_str!("simcuda/names.txt").lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, since) = (words.next()?, words.nth(1)?.parse::<u32>().ok()?);
        (since > version).then_some(name)
    });
    names.collect()
}

#[test]
fn a23_what_an_older_driver_lacks_is_as_absent_as_without_us_and_the_rest_is_capped() {
    let hidden = newer_than(11050);
    assert!(hidden.contains(&"cuGetProcAddress_v2") && hidden.contains(&"cuCtxCreate_v4"), "{hidden:?}");
    let sim = Sim::with(&[("DRIVER", "11050")]).hide(&hidden);
    let names = [
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuMemAllocAsync",
        "cuMemCreate",
        "cuMemGetInfo",
        "cuCtxCreate",
        "cuCtxCreate_v3",
        "cuCtxCreate_v4",
        "cuGetProcAddress",
        "cuGetProcAddress_v2",
        "cuInit",
        "cuDevicePrimaryCtxReset",
        "cuLibraryLoadData",
        "cuNoSuchThing",
        "",
    ];
    let (bare, out) =
        (client(&sim, "older.py").args(names).out(), client(&sim, "older.py").args(names).capped("64MiB").out());
    bare.ok();
    out.ok();
    let shown = |text: &str| text.lines().take(names.len()).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(shown(&bare.stdout), shown(&out.stdout));
    assert!(bare.stdout.contains("cuGetProcAddress_v2 False "), "{bare}");
    assert!(
        bare.stdout.ends_with(&format!("over 0 False\nwithin 0\ninfo 0 {} {}\n", 16 * GIB - 130 * MIB, 16 * GIB)),
        "{bare}"
    );
    assert!(out.stdout.ends_with(&format!("over 2 True\nwithin 0\ninfo 0 0 {}\n", 64 * MIB)), "{out}");
    said_once(&out);
}

#[test]
fn a23_every_way_that_an_older_driver_has_is_capped() {
    let sim = Sim::with(&[("DRIVER", "11050")]).hide(&newer_than(11050));
    let runtime = format!("cudart:{}", harness::cuda_wheel("11.8").display());
    for way in ["dlsym", "gpa1", "default", "next", "deepbind", &runtime] {
        let commands = format!("init\nretain 0\nfill alloc {}\ninfo", 32 * MIB);
        let out = sim.run(harness::cc("calls.c", &[])).arg(way).stdin(&commands).capped("64MiB").out();
        assert_eq!(answer(out.ok(), "fill", 0), "2 2 untouched", "{way}: {out}");
        assert_eq!(numbers(&out, "info", 0), [0, 0, 64 * MIB]);
    }
}

#[test]
fn a_driver_that_lacks_pools_and_physical_allocations_is_capped_in_what_it_has() {
    let sim = Sim::with(&[("DRIVER", "10000")]).hide(&newer_than(10000));
    let commands = format!("take alloc a {GIB}\ntake alloc b 1\ninfo\nfree a\ninfo");
    let out = started(&sim, &commands).capped("1GiB").out();
    assert_eq!((answer(out.ok(), "take", 0), answer(&out, "take", 1)), ("0 ok".into(), "2 ok".into()));
    assert_eq!((numbers(&out, "info", 0), numbers(&out, "info", 1)), (vec![0, 0, GIB], vec![0, GIB, GIB]));
    let missing = script(&sim, "take create c 2097152\ntake async d 4096").capped("1GiB").out();
    assert_eq!(missing.ok().stdout, "take 801 ok\ntake 801 ok\n", "not found: {missing}");
}

#[test]
fn disabled_there_is_no_cap_no_line_and_the_devices_own_numbers() {
    let sim = Sim::new();
    let commands = format!(
        "info\ntotal 0\ntotal1 0\ninfo1\ntake alloc a {}\ntake create b {GIB}\ntake async c {GIB}\ninfo\nfree a\ninfo",
        4 * GIB
    );
    let linked = harness::cc("calls.c", &["-DLINKED", "-lcuda"]);
    let runtime = format!("cudart:{}", harness::cuda_wheel("12.9").display());
    let ways: [(&Path, &str); 6] = [
        (&linked, "linked"),
        (&linked, "dlsym"),
        (&linked, "next"),
        (&linked, "gpa1"),
        (&linked, "gpa2"),
        (&linked, &runtime),
    ];
    for (app, way) in ways {
        let commands = match way == runtime {
            true => format!("info\ntake alloc a {}\ntake async c {GIB}\ninfo", 4 * GIB),
            false => format!("init\nretain 0\n{commands}"),
        };
        let run = || sim.run(app).arg(way).stdin(&commands);
        let bare = run().out();
        // A wrong value of another variable does not matter either.
        for limit in ["1GiB", "rubbish"] {
            let out = run().capped(limit).env("GPUCAP_DISABLE", "1").env("GPUCAP_LOG", "debug").out();
            silent(out.ok());
            assert_eq!(bare.stdout, out.stdout, "{way}");
        }
        assert!(bare.stdout.contains("take 0 ok"), "{bare}");
    }
}

#[test]
fn a59_a_device_without_memory_of_its_own_is_capped_by_what_the_driver_says_of_it() {
    let knobs = [("TOTAL_MIB", "122573"), ("INTEGRATED", "1")];
    for sim in [Sim::with(&knobs), Sim::with(&knobs).without_libnvidia_ml()] {
        for (limit, bytes) in [("0.25", 122573 * MIB / 4), ("30GiB", 30 * GIB)] {
            let out = started(&sim, &format!("info\nfill alloc {}\ninfo", 512 * MIB)).capped(limit).out();
            assert_eq!(numbers(out.ok(), "info", 0), [0, bytes, bytes], "{out}");
            assert_eq!(answer(&out, "fill", 0), format!("2 {} untouched", bytes / (512 * MIB)), "{out}");
            assert!(sim.truth().process(out.pid).expect("it ran").per_device[0].peak_blocks <= bytes);
            said_once(&out);
        }
    }
}

#[test]
fn without_nvml_or_with_a_broken_one_the_cap_holds() {
    let commands = format!("fill alloc {}\ninfo", 256 * MIB);
    for nvml in ["absent", "partial", "notloaded", "slow:2000"] {
        let sim = Sim::with(&[("NVML", nvml)]);
        let out = started(&sim, &commands).capped("1GiB").out();
        assert_eq!(answer(out.ok(), "fill", 0), "2 4 untouched", "{nvml}");
    }
    let sim = Sim::new().without_libnvidia_ml();
    let out = started(&sim, &commands).capped("1GiB").out();
    assert_eq!(answer(out.ok(), "fill", 0), "2 4 untouched");
}

#[test]
fn a_driver_that_fails_to_start_says_so_itself() {
    for code in [100, 803, 999] {
        let sim = Sim::with(&[("FAIL", &format!("cuInit:*:{code}"))]);
        let commands = "init\nretain 0\ntake alloc a 4096\ninfo\ntotal 0";
        let bare = script(&sim, commands).out();
        let out = script(&sim, commands).capped("1GiB").env("GPUCAP_LOG", "info").out();
        assert_eq!(silent(out.ok()).stdout, bare.stdout);
        assert_eq!(answer(&out, "init", 0), code.to_string());
    }
}

#[test]
fn no_device_is_visible_and_nothing_is_said() {
    let sim = Sim::new();
    let commands = "init\nretain 0\nctx 0\ntake alloc a 4096\ninfo\ntotal 0";
    let bare = script(&sim, commands).env("CUDA_VISIBLE_DEVICES", "").out();
    let out = script(&sim, commands).capped("1GiB").env("CUDA_VISIBLE_DEVICES", "").out();
    assert_eq!(silent(out.ok()).stdout, bare.stdout);
}

#[test]
fn the_library_itself_needs_no_driver_to_be_loaded() {
    let needed: PathBuf = harness::shim();
    let bytes = std::fs::read(&needed).expect("readable");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("libc.so.6"));
    let sim = Sim::new().without_libcuda().without_libnvidia_ml();
    let load = format!("import ctypes; ctypes.CDLL({:?}); print('loaded')", needed.display().to_string());
    let out = sim.run(harness::python()).args(["-c", &load]).out();
    assert_eq!(silent(out.ok()).stdout, "loaded\n");
}
