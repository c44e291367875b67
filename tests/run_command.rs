//! `gpucap run` with the real library, on a simulated machine.

use std::fs;
use std::process::Command;

use harness::{Run, Sim};
use script::{GIB, MIB, answer, numbers, said_once, silent};

mod script;

/// `gpucap run --lib <the library> flags… -- calls dlsym` with a script.
fn calls(sim: &Sim, flags: &[&str], commands: &str) -> Run {
    let run = command(sim).args(flags).arg("--").arg(harness::cc("calls.c", &[])).arg("dlsym");
    run.stdin(&format!("init\nretain 0\n{commands}"))
}

fn command(sim: &Sim) -> Run {
    sim.run(env!("CARGO_BIN_EXE_gpucap")).args(["run", "--lib"]).arg(harness::shim())
}

#[test]
fn a_program_started_by_the_command_is_capped_at_a_fraction() {
    let sim = Sim::new();
    let out = calls(&sim, &["--limit", "0.3"], "info\nfill alloc 2097152\ninfo").out();
    let limit = 5_153_960_755; // 4915.2 MiB, rounded down to a byte
    assert_eq!(numbers(out.ok(), "info", 0), [0, limit, limit], "{out}");
    assert_eq!(answer(&out, "fill", 0), "2 2457 untouched");
    assert!(said_once(&out).ends_with("(set by GPUCAP_LIMIT)"), "{out}");
    assert_eq!(
        sim.truth().process(out.pid).expect("it ran, in this very process").per_device[0].peak_blocks,
        2457 * 2 * MIB
    );
}

#[test]
fn every_flag_reaches_the_library() {
    let sim = Sim::new();
    let log = sim.folder().join("log-%p");
    let log = log.display().to_string();
    let flags = [
        "--limit",
        "0=1GiB",
        "--mode",
        "cap",
        "--report",
        "device",
        "--log",
        "info",
        "--log-file",
        &log,
        "--on-error",
        "exit",
    ];
    let flags = [&flags[..], &["--overhead", "0", "--free", "strict", "--stats", "off"]].concat();
    let out = calls(&sim, &flags, &format!("info\ntake alloc a {}", 2 * GIB)).out();
    silent(out.ok());
    assert_eq!(numbers(&out, "info", 0), [0, 16 * GIB, 16 * GIB], "report: {out}");
    assert_eq!(answer(&out, "take", 0), "2 ok");
    let text = fs::read_to_string(log.replace("%p", &out.pid.to_string())).expect("written");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("limit 1 GiB (1 GiB, GPUCAP_LIMIT entry 0)"), "{text}");
}

#[test]
fn variables_hold_where_no_flag_is_given_and_flags_win() {
    let sim = Sim::new();
    let out = calls(&sim, &[], "total 0").env("GPUCAP_LIMIT", "2GiB").out();
    assert_eq!(numbers(silent(out.ok()), "total", 0), [0, 2 * GIB]);
    let out = calls(&sim, &["--limit", "3GiB"], "total 0").env("GPUCAP_LIMIT", "2GiB").out();
    assert_eq!(numbers(silent(out.ok()), "total", 0), [0, 3 * GIB]);
    let out = calls(&sim, &[], "total 0").env("CUDA_DEVICE_MEMORY_LIMIT", "1g").out();
    assert_eq!(numbers(silent(out.ok()), "total", 0), [0, GIB]);
}

#[test]
fn the_library_is_found_by_its_variable_and_beside_the_command() {
    let sim = Sim::new();
    let app = harness::cc("calls.c", &[]);
    let run = |command: Run| {
        let out = command.args(["run", "--limit", "1GiB", "--"]).arg(&app).arg("dlsym").stdin("init\ntotal 0").out();
        assert_eq!(numbers(silent(out.ok()), "total", 0), [0, GIB], "{out}");
    };
    run(sim.run(env!("CARGO_BIN_EXE_gpucap")).env("GPUCAP_LIB", harness::shim()));
    for (command, library) in [("at/gpucap", "at/libgpucap.so"), ("usr/bin/gpucap", "usr/lib/gpucap/libgpucap.so")] {
        let (command, library) = (sim.folder().join(command), sim.folder().join(library));
        for path in [&command, &library] {
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        }
        // By another process: one that this process has open for writing can't be executed.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_gpucap")).arg(&command).status();
        assert!(copied.expect("cp").success());
        fs::copy(harness::shim(), library).expect("copied");
        run(sim.run(&command));
    }
}

#[test]
fn a_run_within_a_run_has_the_inner_limit_and_one_library() {
    let sim = Sim::new();
    let shim = harness::shim().display().to_string();
    let inner = [env!("CARGO_BIN_EXE_gpucap"), "run", "--lib", &shim, "--limit", "1GiB"];
    let flags = [&["--limit", "4GiB", "--log", "info", "--"][..], &inner].concat();
    let out = calls(&sim, &flags, &format!("info\ntake alloc a {}", 2 * GIB)).out();
    assert_eq!(numbers(out.ok(), "info", 0), [0, GIB, GIB], "{out}");
    assert_eq!(answer(&out, "take", 0), "2 ok");
    assert_eq!(out.stderr.matches("at exit").count(), 1, "{out}");
    assert_eq!(out.stderr.matches("denied cuMemAlloc_v2").count(), 1, "{out}");

    let shown = command(&sim).args(["--", inner[0], "run", "--lib", &shim, "sh", "-c", "echo $LD_PRELOAD"]).out();
    assert_eq!(silent(shown.ok()).stdout.trim_end(), shim);
}

#[test]
fn children_of_the_program_are_capped_too() {
    let sim = Sim::new();
    let app = harness::cc("calls.c", &[]).display().to_string();
    let text = format!(
        "echo init > s; echo 'total 0' >> s; {app} dlsym < s; python3 -c 'import subprocess; print(subprocess.run([\"{app}\", \"dlsym\"], stdin=open(\"s\"), capture_output=True, text=True).stdout)'"
    );
    let text = format!("cd {} && {text}", sim.folder().display());
    let out = command(&sim).args(["--limit", "1GiB", "--", "sh", "-c", &text]).out();
    assert_eq!(silent(out.ok()).stdout.matches(&format!("total 0 {GIB}")).count(), 2, "{out}");
}

#[test]
fn a_wrong_value_ends_it_before_the_program_starts() {
    for flags in [
        &["--limit", "8"][..],
        &["--limit", "0,5"],
        &["--mode", "growht"],
        &["--overhead", "8"],
        &["--group", "a/b"],
        &["--stats", ""],
        &["--on-error", "opne"],
        &["--limit", "8", "--on-error", "exit"],
    ] {
        let sim = Sim::new();
        let out = calls(&sim, flags, "").out();
        out.ended_with(78);
        assert!(out.stdout.is_empty() && out.stderr.lines().count() == 1, "{out}");
        assert!(out.stderr.starts_with("gpucap: GPUCAP_") && out.stderr.contains("; accepted: "), "{out}");
        assert!(sim.truth().processes().is_empty());
    }
    let sim = Sim::new();
    calls(&sim, &["--limit", "1GiB"], "").env("GPUCAP_LIMTI", "0.3").out().ended_with(78);
    calls(&sim, &[], "").env("CUDA_DEVICE_MEMORY_LIMIT", "4q").out().ended_with(78);
    let missing = sim
        .run(env!("CARGO_BIN_EXE_gpucap"))
        .args(["run", "--limit", "0.3", "--lib", "/nowhere/libgpucap.so", "true"])
        .out();
    missing.ended_with(78);
}

#[test]
fn a_wrong_value_with_open_is_a_warning_and_the_program_runs_uncapped() {
    let sim = Sim::new();
    let out = calls(&sim, &["--limit", "8", "--on-error", "open"], "total 0").out();
    assert_eq!(numbers(out.ok(), "total", 0), [0, 16 * GIB]);
    assert!(out.stderr.contains("GPUCAP_LIMIT=8: "), "{out}");
}

#[test]
fn another_preload_stays_behind_ours() {
    let sim = Sim::new();
    let other = harness::cc("empty.c", &["-shared", "-fPIC"]);
    let out = calls(&sim, &["--limit", "1GiB"], "total 0").env("LD_PRELOAD", &other).out();
    assert_eq!(numbers(silent(out.ok()), "total", 0), [0, GIB]);
    let shown = command(&sim).args(["--", "cat", "/proc/self/maps"]).env("LD_PRELOAD", &other).out();
    for library in [other, harness::shim()] {
        let library = fs::canonicalize(library).expect("there");
        assert!(shown.stdout.contains(&library.display().to_string()), "{shown}");
    }
}
