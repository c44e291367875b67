//! The variables, as a program under the preload meets them.

use std::path::Path;

use harness::{Run, Sim};
use script::{GIB, answer, closed, numbers, peak, said, said_once, script, silent, started, with};

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
        let value = match name {
            "LIMIT" => "4GiB",
            "REPORT" => "device",
            "LOG" => "off",
            "LOG_FILE" => file.as_str(),
            "DISABLE" => "1",
            "MODE" => "growth",
            "OVERHEAD" => "512MiB",
            "GROUP" => "a",
            "FREE" => "lazy",
            "STATS" => "/tmp",
            // Changes what a wrong value does; see the tests of wrong values.
            "ON_ERROR" => "exit",
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
            let lines: Vec<String> = out.stderr.lines().map(|line| line.replace(&out.pid.to_string(), "pid")).collect();
            (out.code, out.stdout, lines)
        };
        let without = seen(run());
        let with = seen(run().env(&variable, value));
        assert_ne!(without, with, "{variable}={value} changes nothing");
        if with.1.starts_with("init 1\n") {
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
    ("GPUCAP_MODE", "0=cap,0=cap"),
    ("GPUCAP_OVERHEAD", "8"),
    ("GPUCAP_GROUP", "a/b"),
    ("GPUCAP_FREE", "later"),
    ("GPUCAP_REPORT", "gpu"),
    ("GPUCAP_LOG", "trace"),
    ("GPUCAP_LOG_FILE", " "),
    ("GPUCAP_STATS", ""),
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
        let commands =
            "take alloc a 4096\ntake managed b 4096\ntake async c 4096\ntake create d 2097152\nfill pitch 4096";
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
        let out = with(&sim, "take alloc a 4096", name, value).env("GPUCAP_ON_ERROR", "exit").out();
        out.ended_with(78);
        assert_eq!(out.stdout, "", "{out}");
        let line = said_once(&out);
        assert!(line.starts_with(&format!("error: {name}={value}: ")), "{line}");
        assert_eq!(peak(&sim, &out, 0), 0);
    }
}

#[test]
fn a_wrong_value_is_ignored_with_a_warning_where_that_is_asked_for() {
    for (name, value) in WRONG {
        let sim = Sim::new();
        let commands = format!("take alloc a {}", 2 * GIB);
        let out = with(&sim, &commands, name, value).env("GPUCAP_ON_ERROR", "open").out();
        out.ok();
        assert_eq!(answer(&out, "init", 0), "0", "{out}");
        let lines = said(&out);
        assert!(lines[0].starts_with(&format!("warning: {name}={value}: ")), "{out}");
        assert!(lines[0].ends_with("; ignored (GPUCAP_ON_ERROR=open)"), "{out}");
        if *name == "GPUCAP_LIMIT" {
            assert_eq!((answer(&out, "take", 0).as_str(), lines.len()), ("0 ok", 1), "uncapped: {out}");
        } else {
            // The variable that is right still holds.
            assert!(answer(&out, "take", 0).starts_with("2 ok"), "{out}");
            assert!(lines.len() == 2 && lines[1].starts_with("warning: denied "), "{out}");
        }
    }
}

#[test]
fn what_the_readme_says_is_not_in_this_version_is_refused_as_such() {
    let rows = include_str!("../README.md").lines().filter(|line| line.starts_with("| `GPUCAP_"));
    for row in rows {
        let name = row.split('`').nth(1).expect("a name");
        let later = row.split("not in this version: ").nth(1).unwrap_or("");
        let later = later.split([')', '|']).next().unwrap_or("");
        for value in later.split('`').skip(1).step_by(2) {
            let sim = Sim::new();
            let line = closed(&sim, &with(&sim, "take alloc a 4096", name, value).out());
            assert!(line.contains("not in this version yet"), "{line}");
        }
    }
}

#[test]
fn several_wrong_values_are_a_line_each() {
    let sim = Sim::new();
    let out = with(&sim, "", "GPUCAP_LIMIT", "8").env("GPUCAP_MODE", "x").env("GPUCAP_LIMTI", "1").out();
    out.ok();
    let lines = said(&out);
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines.iter().all(|line| line.starts_with("error: GPUCAP_")), "{out}");
    assert_eq!(answer(&out, "init", 0), "1");
}

#[test]
fn a_program_that_goes_on_after_cu_init_failed_is_told_the_same_again() {
    let sim = Sim::new();
    let out = script(&sim, "init\ninit\nretain 0\nctx 0\ninfo\ntake alloc a 4096").capped("8").out();
    closed(&sim, &out);
    assert_eq!(answer(&out, "init", 1), "1", "{out}");
    assert_ne!(answer(&out, "retain", 0), "0", "the driver never started: {out}");
}

#[test]
fn an_unknown_variable_warns_once_with_the_known_names() {
    let sim = Sim::new();
    // B20: a slip that is too far off to guess.
    let out = with(&sim, "info\ninit\ninfo", "GPUCAP_MEMORY_LIMT", "1G").env("GPUCAP_WHATEVER", "1").out();
    out.ok();
    let line = said_once(&out);
    assert!(line.starts_with("warning: no such variable: "), "{line}");
    for name in ["GPUCAP_MEMORY_LIMT", "GPUCAP_WHATEVER", "GPUCAP_LIMIT", "GPUCAP_LOG_FILE"] {
        assert!(line.contains(name), "{name}: {line}");
    }
    assert_eq!(numbers(&out, "info", 0), [0, GIB, GIB], "the limit holds: {out}");
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
    assert_eq!(said_once(&out), "warning: GPUCAP_LIMIT is unset: no limit is set, every device is whole");
    assert_eq!(numbers(&out, "info", 0), [0, 16 * GIB, 16 * GIB]);
    assert_eq!(answer(&out, "take", 0), "0 ok");
    assert_eq!(numbers(&out, "info", 1), [0, 4 * GIB, 16 * GIB]);
    let mode_only = started(&sim, "info").preload().env("GPUCAP_MODE", "cap").out();
    silent(mode_only.ok());
}

#[test]
fn another_limiter_in_the_process_is_an_error() {
    let empty = harness::cc("empty.c", &["-shared", "-fPIC"]);
    for name in ["libvgpu.so", "libnvshare.so"] {
        let sim = Sim::new();
        let other = sim.folder().join(name);
        std::fs::copy(&empty, &other).expect("copied");
        let run = || started(&sim, &format!("info\ntake alloc a {}", 2 * GIB)).capped("1GiB");
        for (before, after) in [(vec![other.as_path()], vec![]), (vec![], vec![other.as_path()])] {
            let before: Vec<&Path> = before;
            let out = run().preload_also(&before, &after).out();
            let line = closed(&sim, &out);
            assert!(line.contains(&other.display().to_string()) && line.contains("LD_PRELOAD"), "{line}");
        }
        let out = run().preload_also(&[], &[&other]).env("GPUCAP_ON_ERROR", "exit").out();
        out.ended_with(78);
        let out = run().preload_also(&[], &[&other]).env("GPUCAP_ON_ERROR", "open").out();
        assert_eq!(answer(out.ok(), "take", 0), "2 ok", "the limit holds: {out}");
        assert!(said(&out)[0].contains(name), "{out}");
    }
}
