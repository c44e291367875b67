//! What a capped program is told about the memory of its device, on every surface it may ask.

use harness::{Run, Sim};
use script::{GIB, MIB, answer, client, numbers, said_once, script, silent, started};

mod script;

#[test]
fn a45_either_half_of_cu_mem_get_info_may_be_null() {
    let sim = Sim::new();
    let halves = "info_free\ninfo_total\ninfo_null\n";
    let commands = format!("init\n{halves}retain 0\n{halves}take alloc a {GIB}\n{halves}");
    let bare = script(&sim, &commands).out();
    let out = script(&sim, &commands).capped("4GiB").out();
    silent(out.ok());
    // Without a context the driver's own error, outputs untouched.
    for half in ["info_free", "info_total", "info_null"] {
        assert_eq!(answer(&out, half, 0), answer(&bare, half, 0), "{out}");
        assert_ne!(answer(&out, half, 0).split(' ').next(), Some("0"));
    }
    assert_eq!((numbers(&out, "info_free", 1), numbers(&out, "info_total", 1)), (vec![0, 4 * GIB], vec![0, 4 * GIB]));
    assert_eq!((numbers(&out, "info_free", 2), numbers(&out, "info_total", 2)), (vec![0, 3 * GIB], vec![0, 4 * GIB]));
    for nth in [1, 2] {
        assert_eq!(answer(&out, "info_null", nth), answer(&bare, "info_null", nth), "{out}");
    }
}

/// A line of `surfaces.py`: stage, surface, free and total.
type Seen = (String, String, Option<u64>, u64);

fn surfaces(run: Run, runtime: &str, bytes: u64) -> Vec<Seen> {
    let out = run.arg(harness::cuda_wheel(runtime)).arg(bytes.to_string()).out();
    silent(out.ok());
    let line = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [stage, surface, "0", free, total] => {
            (stage.to_owned(), surface.to_owned(), free.parse().ok(), total.parse().expect("bytes"))
        }
        _ => panic!("{line}: {out}"),
    };
    out.stdout.lines().map(line).collect()
}

#[test]
fn a49_every_surface_of_the_driver_and_the_runtimes_shows_the_same_memory() {
    let sim = Sim::with(&[("TOTAL_MIB", "24576"), ("CTX_MIB", "400")]);
    let overheads = [("0", 0), ("auto", 400 * MIB), ("600MiB", 600 * MIB)];
    let runs = overheads.iter().flat_map(|overhead| ["11.8", "12.9", "13.5"].map(|runtime| (overhead, runtime)));
    for ((overhead, cost), runtime) in runs {
        let run = client(&sim, "surfaces.py").capped("50%").env("GPUCAP_OVERHEAD", overhead);
        let seen = surfaces(run, runtime, 4 * GIB);
        let stages = [("before", 0), ("context", 0), ("allocated", 4 * GIB), ("pool", 8 * GIB), ("freed", 0)];
        for (stage, held) in stages {
            let here: Vec<_> = seen.iter().filter(|(at, ..)| at == stage).collect();
            assert!(here.len() >= if stage == "before" { 3 } else { 6 }, "{seen:?}");
            for (_, surface, free, total) in here {
                // The functions of CUDA 2 know no more than 32 bits.
                let fits = |bytes: u64| match surface.as_str() {
                    "cuMemGetInfo" | "cuDeviceTotalMem" => bytes.min(u64::from(u32::MAX)),
                    _ => bytes,
                };
                assert_eq!(*total, fits(12 * GIB), "{runtime} {stage} {surface}");
                if let Some(free) = free {
                    assert_eq!(*free, fits(12 * GIB - held - cost), "{overhead} {runtime} {stage} {surface}");
                }
            }
        }
    }
}

#[test]
fn b38_right_after_the_context_nine_tenths_of_the_limit_are_free() {
    let sim = Sim::with(&[("TOTAL_MIB", "24576"), ("CTX_MIB", "400")]);
    for overhead in ["0", "auto", "400MiB"] {
        let out = started(&sim, "info").capped("12GiB").env("GPUCAP_OVERHEAD", overhead).out();
        let [0, free, total] = numbers(silent(out.ok()), "info", 0)[..] else { panic!("{out}") };
        assert_eq!(total, 12 * GIB);
        assert!(free * 10 >= total * 9, "{out}");
        if overhead != "0" {
            assert_eq!(free, total - 400 * MIB, "{overhead}: {out}");
        }
    }
}

/// Entries, the bytes of one allocation, and what that takes.
const ENTRIES: &[(&str, u64)] = &[
    ("alloc", 2 * MIB),
    ("alloc1", 2 * MIB),
    ("pitch", 2 * MIB),
    ("pitch1", 2 * MIB),
    ("managed", 2 * MIB),
    ("create", 2 * MIB),
    ("async", 32 * MIB),
    ("async_ptsz", 32 * MIB),
    ("frompool", 32 * MIB),
    ("frompool_ptsz", 32 * MIB),
];

#[test]
fn exactly_what_is_free_can_be_allocated() {
    let sim = Sim::with(&[("CTX_MIB", "100")]);
    let modes = [("0", "320MiB", 0), ("auto", "420MiB", 100 * MIB), ("100MiB", "420MiB", 100 * MIB)];
    for ((overhead, limit, cost), (entry, bytes)) in
        modes.iter().flat_map(|mode| ENTRIES.iter().map(move |e| (mode, e)))
    {
        let commands = format!(
            "pool_create 0\ntake alloc a 2097152\nfree a\ninfo\nfill {entry} {bytes}\ninfo\nfree_all\nsync\ninfo"
        );
        let out = started(&sim, &commands).capped(limit).env("GPUCAP_OVERHEAD", overhead).out();
        out.ok();
        let (room, total) = (320 * MIB, 320 * MIB + cost);
        assert_eq!(numbers(&out, "info", 0), [0, room, total], "{entry}: {out}");
        assert_eq!(answer(&out, "fill", 0), format!("2 {} untouched", room / bytes), "{entry}: {out}");
        assert_eq!(numbers(&out, "info", 1), [0, 0, total], "{entry}: {out}");
        assert_eq!(numbers(&out, "info", 2), [0, room, total], "{entry}: {out}");
        assert!(said_once(&out).starts_with("warning: denied cuMem"), "{out}");
    }
}

#[test]
fn a51_a_refusal_is_out_of_memory_leaves_outputs_alone_and_is_over_once_something_was_freed() {
    let sim = Sim::new();
    for (entry, bytes) in ENTRIES {
        let commands = format!(
            "pool_create 0\nfill {entry} {bytes}\nsync\ninfo\nfree fill\ntake {entry} again {bytes}\n\
             take {entry} more {bytes}\nsync\nfree again\nfree_all\nsync\ninfo"
        );
        let out = started(&sim, &commands).capped("128MiB").out();
        out.ok();
        assert_eq!(answer(&out, "fill", 0), format!("2 {} untouched", 128 * MIB / bytes), "{entry}: {out}");
        assert_eq!(answer(&out, "take", 0), "0 ok", "{entry}: {out}");
        assert_eq!(answer(&out, "take", 1), "2 ok", "{entry}: {out}");
        assert_eq!([0, 1, 2].map(|nth| answer(&out, "sync", nth)), ["0", "0", "0"], "no sticky error: {out}");
        assert_eq!(numbers(&out, "info", 1), [0, 128 * MIB, 128 * MIB], "{entry}: {out}");
    }
}

#[test]
fn a54_what_the_driver_says_of_pointers_is_untouched() {
    let sim = Sim::new();
    let bare = client(&sim, "attributes.py").out();
    let capped = client(&sim, "attributes.py").capped("1GiB").out();
    silent(bare.ok());
    silent(capped.ok());
    assert_eq!(bare.stdout, capped.stdout);
    assert!(
        capped.stdout.contains("managed 8 0 1") || capped.stdout.lines().any(|line| line.starts_with("managed 8 0")),
        "{capped}"
    );
}

#[test]
fn with_report_device_the_devices_own_numbers_are_shown_and_the_cap_holds() {
    let sim = Sim::with(&[("CTX_MIB", "300")]);
    let commands =
        format!("info\ninfo1\ntotal 0\ntotal1 0\ntake alloc a {}\ninfo\ninfo_free\ntake alloc b {GIB}", GIB / 2);
    let bare = started(&sim, &commands).out();
    let out = started(&sim, &commands).capped("1GiB").env("GPUCAP_REPORT", "device").out();
    out.ok();
    for (command, times) in [("info", 2), ("info1", 1), ("total", 1), ("total1", 1), ("info_free", 1)] {
        for nth in 0..times {
            assert_eq!(answer(&out, command, nth), answer(&bare, command, nth), "{command}: {out}");
        }
    }
    assert_eq!((answer(&bare, "take", 1), answer(&out, "take", 1)), ("0 ok".into(), "2 ok".into()));
    said_once(&out);
}

#[test]
fn a_neighbour_that_fills_the_device_makes_free_fall_and_what_is_left_can_be_had() {
    let sim = Sim::new();
    let mut child = sim.run(harness::cc("calls.c", &[])).arg("dlsym").capped("8GiB").spawn();
    assert_eq!((child.ask("init"), child.ask("retain 0")), ("init 0".into(), "retain 0".into()));
    let told = |free: u64| format!("info 0 {free} {}", 8 * GIB);
    assert_eq!(child.ask("info"), told(8 * GIB));
    assert!(sim.truth().take_foreign(0, 6 * GIB));
    assert_eq!(child.ask("info"), told(8 * GIB), "there is still room for all of the limit");
    assert!(sim.truth().take_foreign(0, 6 * GIB));
    assert_eq!(child.ask("info"), told(4 * GIB));
    assert_eq!(child.ask(&format!("take alloc a {GIB}")), "take 0 ok");
    assert_eq!(child.ask("info"), told(3 * GIB));
    assert_eq!(child.ask("fill alloc 2097152"), "fill 2 1536 untouched");
    assert_eq!(child.ask("info"), told(0));
    sim.truth().give_foreign(0, 12 * GIB);
    assert_eq!(child.ask("info"), told(4 * GIB), "never more than the limit leaves");
    let out = child.wait();
    silent(out.ok()); // that the device was full is the driver's news
}

#[test]
fn old_functions_show_at_most_32_bits_and_the_limit_below_that() {
    let sim = Sim::new();
    let commands = format!("total1 0\ninfo1\ntake alloc a {}\ninfo1", GIB / 2);
    let all = u64::from(u32::MAX);
    let out = started(&sim, &commands).capped("8GiB").out();
    silent(out.ok());
    assert_eq!(numbers(&out, "total1", 0), [0, all]);
    assert_eq!(numbers(&out, "info1", 0), [0, all, all]);
    assert_eq!(numbers(&out, "info1", 1), [0, all, all]);
    let out = started(&sim, &commands).capped("1GiB").out();
    assert_eq!(numbers(&out, "total1", 0), [0, GIB]);
    assert_eq!(numbers(&out, "info1", 0), [0, GIB, GIB]);
    assert_eq!(numbers(&out, "info1", 1), [0, GIB / 2, GIB]);
    let out = started(&sim, &commands).capped("4294967295B").out();
    assert_eq!(numbers(&out, "info1", 1), [0, all - GIB / 2, all]);
}

#[test]
fn a_limit_above_the_device_shows_the_device() {
    let sim = Sim::new();
    let out = started(&sim, "total 0\ninfo").capped("1T").out();
    assert_eq!(numbers(silent(out.ok()), "total", 0), [0, 16 * GIB]);
    assert_eq!(numbers(&out, "info", 0), [0, 16 * GIB, 16 * GIB]);
}

#[test]
fn each_device_shows_its_own_limit_and_what_is_left_of_it() {
    let sim = Sim::with(&[("DEVICES", "2"), ("TOTAL_MIB", "16384,8192")]);
    let commands = format!(
        "init\nctx 0\ntake alloc a {GIB}\nkeep_ctx zero\nctx 1\ninfo\ntake alloc b {}\ninfo\nuse_ctx zero\ninfo\n\
         total 0\ntotal 1\ntotal 2\ntotal -1\nno_ctx\nno_ctx\nno_ctx\ninfo",
        2 * GIB
    );
    let out = script(&sim, &commands).capped("0.5").out();
    let bare = script(&sim, &commands).out();
    silent(out.ok());
    assert_eq!(numbers(&out, "info", 0), [0, 4 * GIB, 4 * GIB]);
    assert_eq!(numbers(&out, "info", 1), [0, 2 * GIB, 4 * GIB]);
    assert_eq!(numbers(&out, "info", 2), [0, 7 * GIB, 8 * GIB]);
    assert_eq!((numbers(&out, "total", 0), numbers(&out, "total", 1)), (vec![0, 8 * GIB], vec![0, 4 * GIB]));
    for nth in [2, 3] {
        assert_eq!(answer(&out, "total", nth), answer(&bare, "total", nth), "{out}");
    }
    assert_eq!(answer(&out, "info", 3), answer(&bare, "info", 3), "{out}");
}

#[test]
fn memory_of_a_dead_context_is_free_again() {
    let sim = Sim::new();
    let commands =
        format!("init\nctx 0\ntake alloc a {GIB}\ntake pitch b {MIB}\ninfo\ndestroy\nctx 0\ninfo\nfill alloc {GIB}");
    let out = script(&sim, &commands).capped("4GiB").out();
    out.ok();
    assert_eq!(numbers(&out, "info", 0), [0, 3 * GIB - 2 * MIB, 4 * GIB]);
    assert_eq!(numbers(&out, "info", 1), [0, 4 * GIB, 4 * GIB]);
    assert_eq!(answer(&out, "fill", 0), "2 4 untouched");
}
