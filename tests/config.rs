//! The variables, as a program under the preload meets them.

use std::path::Path;

use harness::{Output, Run, Sim};
use script::{GIB, KIB, MIB, answer, numbers, peak, said, said_once, script, silent, started};

mod script;

/// A sim of one device with this much memory.
fn sized(mib: u64) -> Sim {
    Sim::with(&[("TOTAL_MIB", &mib.to_string())])
}

/// The total that a program is told under this limit.
#[track_caller]
fn total_under(sim: &Sim, limit: &str) -> u64 {
    let out = script(sim, "init\ntotal 0").capped(limit).out();
    silent(out.ok());
    assert_eq!(numbers(&out, "total", 0)[0], 0, "{out}");
    numbers(&out, "total", 0)[1]
}

/// A run with `name=value` set, and a limit of 1 GiB unless that is the name.
fn with(sim: &Sim, commands: &str, name: &str, value: &str) -> Run {
    let run = started(sim, commands).preload();
    let run = if name == "GPUCAP_LIMIT" { run } else { run.env("GPUCAP_LIMIT", "1GiB") };
    run.env(name, value)
}

/// Requires that cuInit failed with INVALID_VALUE and nothing was allocated; gives the one line about it.
#[track_caller]
fn closed(sim: &Sim, out: &Output) -> String {
    out.ok();
    assert_eq!(answer(out, "init", 0), "1", "{out}");
    for line in out.stdout.lines().filter(|line| line.starts_with("take ") || line.starts_with("fill ")) {
        assert_ne!(line.split(' ').nth(1), Some("0"), "{line}: {out}");
    }
    assert_eq!(peak(sim, out, 0), 0, "{out}");
    for entry in ["cuMemAlloc_v2", "cuMemCreate", "cuMemAllocAsync", "cuMemAllocManaged"] {
        assert_eq!(sim.truth().calls(entry), 0, "{entry}: {out}");
    }
    let line = said_once(out);
    line.strip_prefix("error: ").unwrap_or_else(|| panic!("{out}")).to_owned()
}

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
            let lines: Vec<String> = out.stderr.lines().map(|line| line.replace(&out.pid.to_string(), "pid")).collect();
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
fn the_variables_hold_from_the_first_cuda_call_on() {
    let sim = Sim::new();
    let commands = format!("setenv GPUCAP_LIMIT 1GiB\nsetenv GPUCAP_LOG error\ninit\nretain 0\ninfo\ntake alloc a {}", 2 * GIB);
    let out = script(&sim, &commands).preload().out();
    assert_eq!(numbers(silent(out.ok()), "info", 0), [0, GIB, GIB], "B18: set by the program before its first call");
    assert_eq!(answer(&out, "take", 0), "2 ok");

    let late = "setenv GPUCAP_LIMIT 100%\nsetenv GPUCAP_REPORT device\nsetenv GPUCAP_DISABLE 1\nsetenv GPUCAP_LOG off";
    for commands in [format!("init\n{late}\nretain 0"), format!("init\nretain 0\ntake alloc b 4096\n{late}")] {
        let commands = format!("{commands}\nfree b\ninit\ninfo\ntake alloc a {}", 2 * GIB);
        let out = script(&sim, &commands).capped("1GiB").out();
        out.ok();
        assert_eq!(numbers(&out, "info", 0), [0, GIB, GIB], "A65: {out}");
        assert_eq!(answer(&out, "take", out.stdout.matches("take ").count() - 1), "2 ok", "{out}");
        assert!(said_once(&out).starts_with("warning: denied "), "{out}");
    }
}

/// Two devices whose UUIDs begin alike.
fn twins() -> Sim {
    Sim::with(&[
        ("DEVICES", "2"),
        ("UUIDS", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-8932f937-d72c-4106-c12f-20bd9faed9f7"),
    ])
}

/// The totals of both devices under this limit, and the lines.
#[track_caller]
fn totals(run: Run) -> ([u64; 2], Vec<String>) {
    let out = run.out();
    out.ok();
    ([numbers(&out, "total", 0)[1], numbers(&out, "total", 1)[1]], said(&out))
}

const BOTH: &str = "init\ntotal 0\ntotal 1";

#[test]
fn a_uuid_beats_an_index_beats_the_star_and_may_be_abbreviated() {
    let sim = Sim::with(&[("DEVICES", "2")]);
    let uuids = [0, 1].map(|device| sim.truth().device(device).uuid);
    let short = |device: usize| &uuids[device][..6];
    assert_ne!(short(0), short(1));
    let (whole, upper) = (16 * GIB, uuids[1].to_uppercase());
    for (limit, expected) in [
        ("*=1GiB".to_owned(), [GIB, GIB]),
        ("1=2GiB,*=1GiB".to_owned(), [GIB, 2 * GIB]),
        (format!("*=1GiB,1=2GiB,{}=3GiB", uuids[1]), [GIB, 3 * GIB]),
        (format!("{}=3GiB,0=2GiB", short(1)), [2 * GIB, 3 * GIB]),
        (format!("{upper}=3GiB,{}=50%,*=1GiB", short(0)), [whole / 2, 3 * GIB]),
        (" 0 = 1GiB , 1 = total-1GiB ".to_owned(), [GIB, whole - GIB]),
    ] {
        let (seen, lines) = totals(script(&sim, BOTH).capped(&limit));
        assert_eq!((seen, lines), (expected, vec![]), "{limit}");
    }
    // An index is the ordinal that the process sees; a UUID stays with its device.
    let limit = format!("0=1GiB,{}=3GiB", uuids[0]);
    let (seen, lines) = totals(script(&sim, BOTH).capped(&limit).env("CUDA_VISIBLE_DEVICES", "1,0"));
    assert_eq!((seen, lines), ([GIB, 3 * GIB], vec![]));
}

#[test]
fn a_uuid_that_fits_two_devices_is_a_wrong_value() {
    let sim = twins();
    let out = with(&sim, "take alloc a 4096", "GPUCAP_LIMIT", "GPU-8932f937=1GiB").out();
    let line = closed(&sim, &out);
    assert!(line.starts_with("GPUCAP_LIMIT entry GPU-8932f937: fits both "), "{line}");
    let out = with(&sim, "take alloc a 4096", "GPUCAP_LIMIT", "GPU-8932f937=1GiB").env("GPUCAP_ON_ERROR", "exit").out();
    out.ended_with(78);
    said_once(&out);
    let run = script(&sim, BOTH).capped("GPU-8932f937=1GiB").env("GPUCAP_ON_ERROR", "open");
    let (seen, lines) = totals(run);
    assert_eq!(seen, [16 * GIB; 2]);
    assert!(lines.len() == 1 && lines[0].ends_with("ignored (GPUCAP_ON_ERROR=open)"), "{lines:?}");
    let whole = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f7=1GiB,*=2GiB";
    assert_eq!(totals(script(&sim, BOTH).capped(whole)), ([2 * GIB, GIB], vec![]));
}

#[test]
fn a_device_that_does_not_exist_and_one_without_an_entry_are_a_warning_each() {
    let sim = Sim::with(&[("DEVICES", "2")]);
    let (seen, lines) = totals(script(&sim, BOTH).capped("0=1GiB,7=2GiB,*=2GiB"));
    assert_eq!(seen, [GIB, 2 * GIB]);
    assert_eq!(lines, ["warning: GPUCAP_LIMIT entry 7: no such device among the 2 visible"]);

    let (seen, lines) = totals(script(&sim, BOTH).capped("0=1GiB"));
    assert_eq!(seen, [GIB, 16 * GIB]);
    assert_eq!(lines, ["warning: GPUCAP_LIMIT has no entry for device 1 and no *: no limit there"]);

    let hidden = script(&sim, "init\ntotal 0").capped("0=1GiB,1=2GiB").env("CUDA_VISIBLE_DEVICES", "1").out();
    assert_eq!(numbers(hidden.ok(), "total", 0)[1], GIB);
    assert_eq!(said_once(&hidden), "warning: GPUCAP_LIMIT entry 1: no such device among the 1 visible");
}

#[test]
fn b48_a_device_may_be_left_with_nothing_while_another_has_much() {
    let sim = Sim::with(&[("DEVICES", "2")]);
    let commands = format!("init\nctx 0\ntake alloc a {}\nctx 1\ninfo\ntake alloc b 1\ntake create c {} 1", 8 * GIB, 2 * MIB);
    let out = script(&sim, &commands.replace("create c 2097152 1", "create c 2097152 0")).capped("0=8G,1=0").out();
    out.ok();
    assert_eq!((answer(&out, "ctx", 0), answer(&out, "ctx", 1)), ("0".into(), "0".into()), "contexts succeed");
    assert_eq!(answer(&out, "take", 0), "0 ok");
    assert_eq!(numbers(&out, "info", 0), [0, 0, 0]);
    assert_eq!(answer(&out, "take", 1), "2 ok");
    assert_eq!(answer(&out, "take", 2), "2 ok", "device 0 is full");
    assert_eq!((peak(&sim, &out, 0), peak(&sim, &out, 1)), (8 * GIB, 0));
}

#[test]
fn a_limit_of_nothing_lets_contexts_in_and_refuses_every_allocation() {
    let sim = Sim::new();
    let commands = "info\ntotal 0\npool_create 0\ntake alloc a 1\ntake alloc1 b 1\ntake pitch c 4096\ntake pitch1 d 4096\n\
                    take managed e 1\ntake async f 1\ntake async_ptsz g 1\ntake frompool h 1\ntake frompool_ptsz i 1\n\
                    take create j 2097152";
    for limit in ["0", "0%", "0B", "0.0", "*=0"] {
        let out = started(&sim, commands).capped(limit).out();
        out.ok();
        assert_eq!(answer(&out, "retain", 0), "0", "{out}");
        assert_eq!(numbers(&out, "info", 0), [0, 0, 0], "{out}");
        assert_eq!(numbers(&out, "total", 0), [0, 0], "{out}");
        let taken: Vec<_> = out.stdout.lines().filter(|line| line.starts_with("take ")).collect();
        assert_eq!(taken, ["take 2 ok"; 10], "{out}");
        assert!(said_once(&out).contains("limit 0 B"), "{out}");
        assert_eq!(peak(&sim, &out, 0), 0);
    }
}

#[test]
fn a47_a_tiny_limit_is_a_clean_refusal_and_no_argument_error() {
    // A limit, and how many 4 KiB go before the refusal.
    for (limit, blocks) in [("1B", 0), ("4095B", 0), ("4K", 1), ("345MiB", 2000), ("1MiB", 256)] {
        let sim = Sim::with(&[("CTX_MIB", "345")]);
        let out = started(&sim, "info\nctx 0\ninfo\nfill alloc 4096\ninfo").capped(limit).out();
        out.ok();
        assert_eq!((answer(&out, "retain", 0), answer(&out, "ctx", 0)), ("0".into(), "0".into()), "{out}");
        let [code, free, total] = numbers(&out, "info", 1)[..] else { panic!("{out}") };
        assert!(code == 0 && free <= total, "{out}");
        if blocks < 1000 {
            assert_eq!(answer(&out, "fill", 0), format!("2 {blocks} untouched"), "{limit}: {out}");
            assert!(said_once(&out).starts_with("warning: denied cuMemAlloc_v2 on device 0: asked 4 KiB, "), "{out}");
            assert_eq!(peak(&sim, &out, 0), blocks * 4 * KIB);
        }
    }
}

#[test]
fn b20_a_limit_of_one_byte_blocks_everything() {
    let sim = Sim::new();
    let out = started(&sim, "take alloc a 1\ninfo").capped("1B").out();
    assert_eq!(answer(out.ok(), "take", 0), "2 ok");
    assert_eq!(numbers(&out, "info", 0), [0, 1, 1]);
    said_once(&out);
}

#[test]
fn a67_a_fraction_is_of_the_very_device_and_exact() {
    let sim = Sim::with(&[("DEVICES", "2"), ("TOTAL_MIB", "32768,24576")]);
    let limits = [3_435_973_836, 2_576_980_377]; // 3276.8 MiB and 2457.6 MiB, rounded down to a byte
    for limit in ["0.10", "10%", ".1", "1e-1"] {
        let (seen, lines) = totals(script(&sim, BOTH).capped(limit));
        assert_eq!((seen, lines), (limits, vec![]), "{limit}");
    }
    for (device, limit) in limits.into_iter().enumerate() {
        let commands = format!("init\nctx {device}\nfill alloc 2097152\nfill alloc 65536\nfill alloc 512");
        let out = script(&sim, &commands).capped("0.10").out();
        out.ok();
        let (large, rest) = (limit / (2 * MIB), limit % (2 * MIB));
        let (small, rest) = (rest / (64 * KIB), rest % (64 * KIB));
        assert_eq!(answer(&out, "fill", 0), format!("2 {large} untouched"), "{out}");
        assert_eq!(answer(&out, "fill", 1), format!("2 {small} untouched"), "{out}");
        assert_eq!(answer(&out, "fill", 2), format!("2 {} untouched", rest / 512), "{out}");
        assert_eq!(peak(&sim, &out, device), limit / 512 * 512);
    }
}

#[test]
fn b07_six_processes_with_equal_fractions_get_equal_amounts_in_any_order() {
    let sim = Sim::new();
    let start = || {
        let mut child = sim.run(harness::cc("calls.c", &[])).arg("dlsym").capped("0.15").spawn();
        assert_eq!((child.ask("init"), child.ask("retain 0")), ("init 0".into(), "retain 0".into()));
        child
    };
    let mut children: Vec<_> = (0..6).map(|_| start()).collect();
    for child in &mut children {
        assert_eq!(child.ask("total 0"), "total 0 2576980377");
        child.say("fill alloc 2097152"); // all at once
    }
    for child in &mut children {
        assert_eq!(child.hear(), "fill 2 1228 untouched");
    }
    assert_eq!(sim.truth().device(0).used, 6 * 1228 * 2 * MIB);
    for child in children {
        child.wait().ok();
    }
}

#[test]
fn b09_the_whole_device_as_limit_shrinks_nothing_and_the_drivers_refusal_is_its_own() {
    // 22.38 GiB, an odd number of MiB as real devices have it, of which a context takes 0.17 GiB.
    let sim = Sim::with(&[("TOTAL_MIB", "22917"), ("CTX_MIB", "174")]);
    let total = 22917 * MIB;
    for limit in ["1.0", "100%", "1", "24GiB", "total-0B"] {
        let commands = format!("info\ntake alloc a {total}\ntake alloc b {}\ninfo", total / 10 * 9);
        let out = started(&sim, &commands).capped(limit).out();
        silent(out.ok());
        assert_eq!(numbers(&out, "info", 0), [0, total - 174 * MIB, total], "{limit}: {out}");
        assert_eq!((answer(&out, "take", 0), answer(&out, "take", 1)), ("2 ok".into(), "0 ok".into()), "{limit}: {out}");
        assert_eq!(sim.truth().process(out.pid).expect("it ran").calls("cuMemAlloc_v2"), 2, "the driver was asked");
    }
}

#[test]
fn b12_numbers_out_of_range_are_refused_with_a_hint() {
    for (value, words) in [
        ("100", "100 what? 100GiB or 100%"),
        ("50", "50 what? 50GiB or 50%"),
        ("1.0000001", "1.0000001 what?"),
        ("-0.1", "negative"),
        ("nan", "not a finite number"),
        ("inf", "not a finite number"),
        ("0,5", "a decimal comma? 0.5"),
        ("101%", "above 100%"),
    ] {
        let sim = Sim::new();
        let line = closed(&sim, &with(&sim, "take alloc a 1", "GPUCAP_LIMIT", value).out());
        assert!(line.contains(words), "{line}");
    }
    assert_eq!(total_under(&Sim::new(), "50%"), 8 * GIB);
}

#[test]
fn a61_b14_sizes_in_every_spelling_are_what_they_say() {
    let sim = sized(16384);
    for limit in ["4G", "4g", "4Gi", "4GiB", "4GB", "4gb", "4096M", "4G ", "\t4G\n", "4 GB", "04G", "0=4G", "4194304K", "25%", ".25", "2.5e-1", "total-12G"] {
        assert_eq!(total_under(&sim, limit), 4 * GIB, "{limit:?}");
    }
    for (limit, bytes) in [
        ("1.5G", 3 * GIB / 2),
        ("08G", 8 * GIB),
        ("0.5", 8 * GIB),
        ("5e-1", 8 * GIB),
        ("1", 16 * GIB),
        ("1T", 16 * GIB),
        ("0=1000MB", 1000 * MIB),
        ("1000M", 1000 * MIB),
        ("1024B", 1024),
        ("0.9", 15_461_882_265),
    ] {
        assert_eq!(total_under(&sim, limit), bytes, "{limit:?}");
    }
    for value in ["0x10M", "abc", "1e400", "18446744073709551616", "4Q", "1G,2G", "0=1G;1=2G", "0:1G", "4  GB", "nan%"] {
        let sim = Sim::new();
        let line = closed(&sim, &with(&sim, "", "GPUCAP_LIMIT", value).out());
        assert!(line.starts_with(&format!("GPUCAP_LIMIT={value}: ")), "{line}");
    }
}

#[test]
fn b25_typographic_quotes_are_named_byte_by_byte() {
    let sim = Sim::new();
    let line = closed(&sim, &with(&sim, "take alloc a 1", "GPUCAP_LIMIT", "\u{201d}0=1G,1=512MB\u{201d}").out());
    assert!(line.contains("byte 0xE2 at 0 is not ASCII"), "{line}");
}

#[test]
fn b51_three_notations_mean_the_same_whatever_else_is_on_the_device() {
    let sim = sized(8192);
    for foreign in [512, 1024] {
        assert!(sim.truth().take_foreign(0, foreign * MIB)); // 0.5 GiB, then 1.5 GiB
        for (limit, bytes) in [("7G", 7 * GIB), ("90%", 7_730_941_132), ("total-1G", 7 * GIB)] {
            assert_eq!(total_under(&sim, limit), bytes, "{limit}");
        }
    }
}

#[test]
fn hamis_variables_are_understood_where_ours_is_unset() {
    let sim = Sim::with(&[("DEVICES", "2")]);
    let run = || script(&sim, BOTH).preload();
    let hami = |value: &str| totals(run().env("CUDA_DEVICE_MEMORY_LIMIT", value));
    for value in ["4294967296", "4G", "4g", "4Gi", "4GiB", "4GB", "4096M", "4096m", "4G ", "\t4G\n"] {
        assert_eq!(hami(value), ([4 * GIB; 2], vec![]), "{value:?}");
    }
    assert_eq!(hami("1.5G").0, [3 * GIB / 2; 2]);
    assert_eq!(hami("08G").0, [8 * GIB; 2]);
    let each = run().env("CUDA_DEVICE_MEMORY_LIMIT", "4g").env("CUDA_DEVICE_MEMORY_LIMIT_1", "2g");
    assert_eq!(totals(each), ([4 * GIB, 2 * GIB], vec![]));
    let first = run().env("CUDA_DEVICE_MEMORY_LIMIT_0", "1g");
    let (seen, lines) = totals(first);
    assert_eq!(seen, [GIB, 16 * GIB]);
    assert!(lines.len() == 1 && lines[0].contains("device 1"), "{lines:?}");
    // 0 is no limit there; ours beats theirs, even a wrong one of theirs.
    let (seen, lines) = hami("0");
    assert_eq!((seen, lines.len()), ([16 * GIB; 2], 1), "{lines:?}");
    let ours = run().env("CUDA_DEVICE_MEMORY_LIMIT", "rubbish").env("GPUCAP_LIMIT", "1GiB");
    assert_eq!(totals(ours), ([GIB; 2], vec![]));
    // What HAMi misreads is an error.
    for value in ["0x10M", "50%", "0.5", ".5", "5e-1", "-1", "abc", "1e400", "18446744073709551616", "4G;rm"] {
        let sim = Sim::new();
        let out = started(&sim, "take alloc a 1").preload().env("CUDA_DEVICE_MEMORY_LIMIT", value).out();
        let line = closed(&sim, &out);
        assert!(line.starts_with(&format!("CUDA_DEVICE_MEMORY_LIMIT={value}: ")), "{line}");
    }
    let denied = started(&sim, &format!("take alloc a {}", 2 * GIB)).preload().env("CUDA_DEVICE_MEMORY_LIMIT", "1g").out();
    assert!(said_once(&denied).contains("CUDA_DEVICE_MEMORY_LIMIT"), "{denied}");
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

#[test]
fn b16_the_cap_is_in_force_in_static_constructors_before_main() {
    let sim = Sim::new();
    let library = |flags: &[&str]| harness::cc("early.c", &[&["-DLIBRARY", "-shared", "-fPIC"], flags].concat());
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
        assert!(said_once(&out).starts_with("warning: denied cuMemAlloc_v2 "), "{out}");
        assert_eq!(peak(&sim, &out, 0), GIB);
    }
}
