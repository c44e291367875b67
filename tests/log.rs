//! What is written about limits and refusals, and how often.

use harness::{Run, Sim};
use script::{GIB, MIB, answer, client, said, said_once, script, silent, started};

mod script;

#[test]
fn info_says_what_is_in_force_on_a_device_at_its_first_context_and_the_sum_at_the_end() {
    let sim = Sim::with(&[("DEVICES", "2")]);
    let commands = format!(
        "init\ntotal 0\ntotal 1\nctx 1\nctx 1\nretain 0\nretain 0\ntake alloc a {GIB}\ntake alloc b {}\nfree a\n\
         take alloc c {MIB}\ntake alloc d {}",
        2 * GIB,
        4 * GIB
    );
    let out = script(&sim, &commands).capped("0=0.1875,1=total-2GiB").env("GPUCAP_LOG", "info").out();
    out.ok();
    assert_eq!(
        said(&out),
        [
            "info: device 1: limit 14 GiB (16 GiB less 2 GiB, GPUCAP_LIMIT entry 1), device total 16 GiB, only allocations count (overhead 0)",
            "info: device 0: limit 3 GiB (0.1875 of 16 GiB, GPUCAP_LIMIT entry 0), device total 16 GiB, only allocations count (overhead 0)",
            "warning: denied cuMemAlloc_v2 on device 0: asked 4 GiB, live 2 GiB, held 2 GiB, overhead 0 B, limit 3 GiB (set by GPUCAP_LIMIT)",
            "info: device 0: at exit limit 3 GiB, peak 3 GiB, live 2 GiB, denied 1",
            "info: device 1: at exit limit 14 GiB, peak 0 B, live 0 B, denied 0",
        ],
        "{out}"
    );
}

#[test]
fn info_tells_the_variable_that_a_limit_came_from_and_says_so_when_there_is_none() {
    let sim = Sim::new();
    let lines = |run: Run| {
        let out = run.env("GPUCAP_LOG", "info").out();
        said(out.ok())
    };
    let run = || started(&sim, "").preload();
    assert_eq!(
        lines(run()),
        [
            "warning: GPUCAP_LIMIT is unset: no limit is set, every device is whole",
            "info: device 0: limit none (no limit is set), device total 16 GiB, only allocations count (overhead 0)",
            "info: device 0: at exit limit none, peak 0 B, live 0 B, denied 0",
        ]
    );
    let lines = lines(run().env("CUDA_DEVICE_MEMORY_LIMIT_0", "2g"));
    assert!(lines[0].starts_with("info: device 0: limit 2 GiB (2 GiB, CUDA_DEVICE_MEMORY_LIMIT_0), "), "{lines:?}");
}

#[test]
fn a_process_without_a_context_says_nothing_even_with_info() {
    let sim = Sim::new();
    for commands in ["", "init\ntotal 0"] {
        silent(script(&sim, commands).capped("1GiB").env("GPUCAP_LOG", "info").out().ok());
    }
}

#[test]
fn a_refusal_names_its_entry_point_and_every_number() {
    for (entry, name) in [
        ("alloc", "cuMemAlloc_v2"),
        ("alloc1", "cuMemAlloc"),
        ("pitch", "cuMemAllocPitch_v2"),
        ("pitch1", "cuMemAllocPitch"),
        ("managed", "cuMemAllocManaged"),
        ("create", "cuMemCreate"),
        ("async", "cuMemAllocAsync"),
        ("frompool", "cuMemAllocFromPoolAsync"),
    ] {
        let sim = Sim::new();
        let commands = format!("pool_create 0\ntake alloc a {}\ntake {entry} b {}", 600 * MIB, 512 * MIB);
        let out = started(&sim, &commands).capped("1GiB").out();
        out.ok();
        let line = said_once(&out);
        let start = format!("warning: denied {name} on device 0: asked ");
        assert!(line.starts_with(&start), "{line}");
        assert!(
            line.ends_with(", live 600 MiB, held 600 MiB, overhead 0 B, limit 1 GiB (set by GPUCAP_LIMIT)"),
            "{line}"
        );
    }
}

#[test]
fn refusals_are_a_line_at_first_and_then_one_every_ten_seconds() {
    let sim = Sim::new();
    let clock = harness::cc("clock.c", &["-shared", "-fPIC"]);
    let out = client(&sim, "rate.py").arg(&clock).capped("1GiB").preload_also(&[], &[&clock]).out();
    out.ok();
    let lines = said(&out);
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].ends_with("(set by GPUCAP_LIMIT)"), "{out}");
    assert!(lines[1].ends_with("; 119 more refused since the last line"), "{out}");
    assert!(lines[2].ends_with("; 2 more refused since the last line"), "{out}");
}

#[test]
fn each_level_writes_what_is_as_important() {
    let sim = Sim::new();
    let commands = format!("take alloc a {}", 2 * GIB);
    let count = |level: &str, limit: &str| {
        let out = started(&sim, &commands).capped(limit).env("GPUCAP_LOG", level).out();
        (said(out.ok()).len(), out.stdout)
    };
    for (level, lines) in [("off", 0), ("error", 0), ("warn", 1), ("info", 3), ("WARN", 1)] {
        let (found, stdout) = count(level, "1GiB");
        assert_eq!(found, lines, "{level}");
        assert_eq!(stdout, "init 0\nretain 0\ntake 2 ok\n");
    }
    // A wrong value is an error: said unless everything is off.
    for (level, lines) in [("off", 0), ("error", 1), ("warn", 1)] {
        let (found, stdout) = count(level, "8");
        assert_eq!(found, lines, "{level}");
        assert!(stdout.starts_with("init 1\n"), "{stdout}");
    }
}

#[test]
fn the_drivers_own_errors_are_not_ours_in_the_log() {
    // B09: the device is full before the limit is.
    let sim = Sim::with(&[("TOTAL_MIB", "1024")]);
    let commands = format!(
        "take alloc a {}\nfill alloc 2097152\ntake managed b {GIB}\ntake async c {GIB}\ntake create d {GIB}",
        2 * GIB
    );
    let out = started(&sim, &commands).capped("8GiB").env("GPUCAP_LOG", "info").out();
    out.ok();
    assert_eq!(answer(&out, "take", 0), "2 ok");
    assert_eq!(answer(&out, "fill", 0), "2 512 untouched");
    let lines = said(&out);
    assert!(!lines.iter().any(|line| line.contains("warning: ")), "{out}");
    assert!(lines[1].ends_with("peak 1 GiB, live 1 GiB, denied 0"), "{out}");

    for code in [2, 4, 700, 999] {
        let rule = format!("cuMemAlloc_v2:1:{code}");
        let sim = Sim::with(&[("FAIL", &rule)]);
        let out = started(&sim, "take alloc a 4096\ntake alloc b 4096").capped("1GiB").out();
        silent(out.ok());
        assert_eq!((answer(&out, "take", 0), answer(&out, "take", 1)), (format!("{code} ok"), "0 ok".into()));
    }
}

#[test]
fn a_forked_child_has_no_sum_of_its_parents_at_its_end() {
    let sim = Sim::new();
    let out = client(&sim, "forked.py").capped("1GiB").env("GPUCAP_LOG", "info").out();
    out.ok();
    let parents = format!("gpucap[{}]: ", out.pid);
    let (parents, childrens): (Vec<_>, Vec<_>) = out.stderr.lines().partition(|line| line.starts_with(&parents));
    assert_eq!(parents.iter().filter(|line| line.contains("at exit")).count(), 1, "{out}");
    assert!(parents.last().is_some_and(|line| line.ends_with("peak 128 MiB, live 128 MiB, denied 0")), "{out}");
    // The child of before the start has books of its own; the one of after it has a driver that answers 3.
    let ends: Vec<_> = childrens.iter().filter(|line| line.contains("at exit")).collect();
    assert!(ends.len() == 1 && ends[0].ends_with("peak 2 MiB, live 2 MiB, denied 0"), "{out}");
    let total = GIB;
    let free = |mib: u64| total - mib * MIB;
    let expected = format!(
        "before 0 0 0 {} {total}\nparent 0 0 0 {} {total}\nafter 3 3 3 0 0\nparent 0 0 0 {} {total}\n",
        free(2),
        free(64),
        free(128)
    );
    assert_eq!(out.stdout, expected, "{out}");
}
