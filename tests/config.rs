//! The variables, as a program under the preload meets them.

use std::path::Path;

use harness::{Run, Sim};
use object::{Object, ObjectSymbol};
use script::{
    GIB, answer, client, closed, numbers, peak, said, said_once, script, silent, started, with,
};

mod script;

#[test]
fn b22_every_documented_variable_changes_something_observable() {
    let readme = include_str!("../README.md");
    let names: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `GPUCAP_"))
        .filter_map(|rest| rest.split('`').next())
        .collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in names {
        let sim = Sim::new();
        let file = sim.folder().join("log-%p");
        let file = file.display().to_string();
        // A value; and whether it is one that this version refuses, which must be loud.
        let (value, refused) = match name {
            "LIMIT" => ("4GiB", false),
            "REPORT" => ("device", false),
            "LOG" => ("off", false),
            "LOG_FILE" => (file.as_str(), false),
            "DISABLE" => ("1", false),
            "MODE" => ("growth", true),
            "OVERHEAD" => ("512MiB", true),
            "GROUP" => ("a", true),
            "FREE" => ("lazy", true),
            "STATS" => ("/tmp", true),
            // Changes what a wrong value does; see the tests of wrong values.
            "ON_ERROR" => ("exit", false),
            // Read by the command only; see tests/run_command.rs.
            "LIB" => continue,
            other => panic!("GPUCAP_{other} has no case here"),
        };
        let commands = format!("info\ntake alloc a {}\n", 2 * GIB);
        let wrong = if name == "ON_ERROR" { "8" } else { "1GiB" };
        let variable = format!("GPUCAP_{name}");
        let run = || started(&sim, &commands).capped(wrong);
        let seen = |run: Run| {
            let out = run.out();
            let lines: Vec<String> = out
                .stderr
                .lines()
                .map(|line| line.replace(&out.pid.to_string(), "pid"))
                .collect();
            (out.code, out.stdout, lines)
        };
        let without = seen(run());
        let with = seen(run().env(&variable, value));
        assert_ne!(without, with, "{variable}={value} changes nothing");
        if refused {
            assert!(with.1.starts_with("init 1\n"), "{with:?}");
            assert!(with.2[0].contains("not in this version"), "{with:?}");
        }
    }
}

const WRONG: &[(&str, &str)] = &[
    ("GPUCAP_LIMIT", "8"),
    ("GPUCAP_LIMIT", ""),
    ("GPUCAP_LIMIT", "-1"),
    ("GPUCAP_LIMIT", "4G;rm"),
    ("GPUCAP_LIMIT", "0,5"),
    ("GPUCAP_LIMIT", "0x10M"),
    ("GPUCAP_LIMIT", "120%"),
    ("GPUCAP_LIMIT", "0=1G,0=2G"),
    ("GPUCAP_LIMIT", "GPU-=1G"),
    ("GPUCAP_MODE", "growht"),
    ("GPUCAP_MODE", "reserve"),
    ("GPUCAP_OVERHEAD", "8"),
    ("GPUCAP_GROUP", "a/b"),
    ("GPUCAP_FREE", "later"),
    ("GPUCAP_REPORT", "gpu"),
    ("GPUCAP_LOG", "trace"),
    ("GPUCAP_LOG_FILE", " "),
    ("GPUCAP_STATS", "/tmp"),
    ("GPUCAP_DISABLE", "yes"),
    ("GPUCAP_LIMTI", "0.3"),
    ("GPUCAP_LIMITS", "0.3"),
    ("GPUCAP_ONERROR", "open"),
    ("GPUCAP_limit", "1G"),
];

#[test]
fn a_wrong_value_stops_cu_init_and_nothing_is_allocated() {
    for (name, value) in WRONG.iter().copied().chain([("GPUCAP_ON_ERROR", "opne")]) {
        let sim = Sim::new();
        let commands = "take alloc a 4096\ntake managed b 4096\ntake async c 4096\ntake create d 2097152\nfill pitch 4096";
        let out = with(&sim, commands, name, value).out();
        let line = closed(&sim, &out);
        assert!(line.starts_with(&format!("{name}={value}: ")), "{line}");
        assert!(line.contains("; accepted: "), "{line}");
    }
}

#[test]
fn a_wrong_value_ends_the_process_with_78_where_that_is_asked_for() {
    for (name, value) in WRONG {
        let sim = Sim::new();
        let out = with(&sim, "take alloc a 4096", name, value)
            .env("GPUCAP_ON_ERROR", "exit")
            .out();
        out.ended_with(78);
        assert_eq!(out.stdout, "", "{out}");
        let line = said_once(&out);
        assert!(
            line.starts_with(&format!("error: {name}={value}: ")),
            "{line}"
        );
        assert_eq!(peak(&sim, &out, 0), 0);
    }
}

#[test]
fn a_wrong_value_is_ignored_with_a_warning_where_that_is_asked_for() {
    for (name, value) in WRONG {
        let sim = Sim::new();
        let commands = format!("take alloc a {}", 2 * GIB);
        let out = with(&sim, &commands, name, value)
            .env("GPUCAP_ON_ERROR", "open")
            .out();
        out.ok();
        assert_eq!(answer(&out, "init", 0), "0", "{out}");
        let lines = said(&out);
        assert!(
            lines[0].starts_with(&format!("warning: {name}={value}: ")),
            "{out}"
        );
        assert!(
            lines[0].ends_with("; ignored (GPUCAP_ON_ERROR=open)"),
            "{out}"
        );
        if *name == "GPUCAP_LIMIT" {
            assert_eq!(
                (answer(&out, "take", 0).as_str(), lines.len()),
                ("0 ok", 1),
                "uncapped: {out}"
            );
        } else {
            // The variable that is right still holds.
            assert!(answer(&out, "take", 0).starts_with("2 ok"), "{out}");
            assert!(
                lines.len() == 2 && lines[1].starts_with("warning: denied "),
                "{out}"
            );
        }
    }
}

#[test]
fn several_wrong_values_are_a_line_each() {
    let sim = Sim::new();
    let out = with(&sim, "", "GPUCAP_LIMIT", "8")
        .env("GPUCAP_MODE", "x")
        .env("GPUCAP_LIMTI", "1")
        .out();
    out.ok();
    let lines = said(&out);
    assert_eq!(lines.len(), 3, "{out}");
    assert!(
        lines.iter().all(|line| line.starts_with("error: GPUCAP_")),
        "{out}"
    );
    assert_eq!(answer(&out, "init", 0), "1");
}

#[test]
fn a_program_that_goes_on_after_cu_init_failed_is_told_the_same_again() {
    let sim = Sim::new();
    let out = script(&sim, "init\ninit\nretain 0\nctx 0\ninfo\ntake alloc a 4096")
        .capped("8")
        .out();
    closed(&sim, &out);
    assert_eq!(answer(&out, "init", 1), "1", "{out}");
    assert_ne!(
        answer(&out, "retain", 0),
        "0",
        "the driver never started: {out}"
    );
}

#[test]
fn an_unknown_variable_warns_once_with_the_known_names() {
    let sim = Sim::new();
    // B20: a slip that is too far off to guess.
    let out = with(&sim, "info\ninit\ninfo", "GPUCAP_MEMORY_LIMT", "1G")
        .env("GPUCAP_WHATEVER", "1")
        .out();
    out.ok();
    let line = said_once(&out);
    assert!(line.starts_with("warning: no such variable: "), "{line}");
    for name in [
        "GPUCAP_MEMORY_LIMT",
        "GPUCAP_WHATEVER",
        "GPUCAP_LIMIT",
        "GPUCAP_LOG_FILE",
    ] {
        assert!(line.contains(name), "{name}: {line}");
    }
    assert_eq!(
        numbers(&out, "info", 0),
        [0, GIB, GIB],
        "the limit holds: {out}"
    );
}

#[test]
fn what_kubernetes_sets_for_a_service_named_gpucap_is_ignored_silently() {
    let sim = Sim::new();
    let out = with(&sim, "info", "GPUCAP_SERVICE_HOST", "10.0.0.1")
        .env("GPUCAP_SERVICE_PORT", "80")
        .env("GPUCAP_PORT", "tcp://10.0.0.1:80")
        .env("GPUCAP_PORT_80_TCP_ADDR", "10.0.0.1")
        .out();
    assert_eq!(numbers(silent(out.ok()), "info", 0), [0, GIB, GIB]);
}

#[test]
fn without_a_limit_the_device_is_whole_and_one_warning_says_so() {
    let sim = Sim::new();
    let commands = format!("info\ntake alloc a {}\ninit\ninfo", 12 * GIB);
    let out = started(&sim, &commands).preload().out();
    out.ok();
    assert_eq!(
        said_once(&out),
        "warning: GPUCAP_LIMIT is unset: no limit is set, every device is whole"
    );
    assert_eq!(numbers(&out, "info", 0), [0, 16 * GIB, 16 * GIB]);
    assert_eq!(answer(&out, "take", 0), "0 ok");
    assert_eq!(numbers(&out, "info", 1), [0, 4 * GIB, 16 * GIB]);
    let mode_only = started(&sim, "info")
        .preload()
        .env("GPUCAP_MODE", "cap")
        .out();
    silent(mode_only.ok());
}

#[test]
fn the_variables_hold_from_the_first_cuda_call_on() {
    let sim = Sim::new();
    let commands = format!(
        "setenv GPUCAP_LIMIT 1GiB\nsetenv GPUCAP_LOG error\ninit\nretain 0\ninfo\ntake alloc a {}",
        2 * GIB
    );
    let out = script(&sim, &commands).preload().out();
    assert_eq!(
        numbers(silent(out.ok()), "info", 0),
        [0, GIB, GIB],
        "B18: set by the program before its first call"
    );
    assert_eq!(answer(&out, "take", 0), "2 ok");

    let late = "setenv GPUCAP_LIMIT 100%\nsetenv GPUCAP_REPORT device\nsetenv GPUCAP_DISABLE 1\nsetenv GPUCAP_LOG off";
    for commands in [
        format!("init\n{late}\nretain 0"),
        format!("init\nretain 0\ntake alloc b 4096\n{late}"),
    ] {
        let commands = format!("{commands}\nfree b\ninit\ninfo\ntake alloc a {}", 2 * GIB);
        let out = script(&sim, &commands).capped("1GiB").out();
        out.ok();
        assert_eq!(numbers(&out, "info", 0), [0, GIB, GIB], "A65: {out}");
        assert_eq!(
            answer(&out, "take", out.stdout.matches("take ").count() - 1),
            "2 ok",
            "{out}"
        );
        assert!(said_once(&out).starts_with("warning: denied "), "{out}");
    }
}

#[test]
fn another_limiter_in_the_process_is_an_error() {
    let empty = harness::cc("empty.c", &["-shared", "-fPIC"]);
    for name in ["libvgpu.so", "libnvshare.so"] {
        let sim = Sim::new();
        let other = sim.folder().join(name);
        std::fs::copy(&empty, &other).expect("copied");
        let run = || started(&sim, &format!("info\ntake alloc a {}", 2 * GIB)).capped("1GiB");
        for (before, after) in [
            (vec![other.as_path()], vec![]),
            (vec![], vec![other.as_path()]),
        ] {
            let before: Vec<&Path> = before;
            let out = run().preload_also(&before, &after).out();
            let line = closed(&sim, &out);
            assert!(
                line.contains(&other.display().to_string()) && line.contains("LD_PRELOAD"),
                "{line}"
            );
        }
        let out = run()
            .preload_also(&[], &[&other])
            .env("GPUCAP_ON_ERROR", "exit")
            .out();
        out.ended_with(78);
        let out = run()
            .preload_also(&[], &[&other])
            .env("GPUCAP_ON_ERROR", "open")
            .out();
        assert_eq!(
            answer(out.ok(), "take", 0),
            "2 ok",
            "the limit holds: {out}"
        );
        assert!(said(&out)[0].contains(name), "{out}");
    }
}

#[test]
fn b16_the_cap_is_in_force_in_static_constructors_before_main() {
    let sim = Sim::new();
    let library = |flags: &[&str]| {
        harness::cc(
            "early.c",
            &[&["-DLIBRARY", "-shared", "-fPIC"], flags].concat(),
        )
    };
    let opens = harness::cc("early.c", &[]);
    let linked = harness::cc("early.c", &["-DDIRECT", "-lcuda"]);
    let expected = format!("early: init 0 info 0 {GIB} {GIB} alloc 2 kept 0\nmain\n");
    for run in [
        sim.run(&opens).arg(library(&[])),
        sim.run(&opens).arg(library(&["-DDIRECT", "-lcuda"])),
        sim.run(&linked),
    ] {
        let out = run.capped("1GiB").out();
        assert_eq!(out.ok().stdout, expected, "{out}");
        assert!(
            said_once(&out).starts_with("warning: denied cuMemAlloc_v2 "),
            "{out}"
        );
        assert_eq!(peak(&sim, &out, 0), GIB);
    }
}

/// Where libcuda's `name` lies, from the beginning of the library.
fn offset(libcuda: &Path, name: &str) -> u64 {
    let bytes = std::fs::read(libcuda).expect("readable");
    let file = object::File::parse(&*bytes).expect("a library");
    let symbol = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok(name));
    symbol.expect("defined").address()
}

#[test]
fn a_program_that_started_the_driver_unseen_is_capped_and_refused_all_the_same() {
    let sim = Sim::new();
    let unseen = |run: fn(Run) -> Run| {
        let out = run(client(&sim, "unseen.py"))
            .arg(offset(&sim.libcuda(), "cuInit").to_string())
            .out();
        out.ok();
        out
    };
    let out = unseen(|run| run.capped("1GiB"));
    assert_eq!(
        out.stdout,
        format!("init 0\nretain 0\nover 2\nwithin 0\ninfo 0 0 {GIB}\n"),
        "{out}"
    );
    let out = unseen(|run| run.capped("8"));
    assert!(
        out.stdout
            .starts_with("init 0\nretain 3\nover 3\nwithin 3\n"),
        "{out}"
    );
    said_once(&out);
    assert_eq!(peak(&sim, &out, 0), 0);
}
