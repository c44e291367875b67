//! Limits as they are written, and what they come to on a device.

use harness::Sim;
use script::{BOTH, GIB, KIB, MIB, answer, closed, numbers, peak, said_once, script, silent, started, totals, with};

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
    let even = total / (2 * MIB) * 2 * MIB;
    let commands = format!(
        "info\npool_create 0\ntake alloc a {total}\ntake pitch a {total}\ntake async a {total}\n\
         take frompool a {total}\ntake create a {even}\ntake alloc b {}\ntake alloc c {}\ninfo",
        total / 10 * 9,
        total / 10,
    );
    let bare = started(&sim, &commands).out();
    for limit in ["1.0", "100%", "1", "24GiB", "total-0B"] {
        for overhead in ["0", "auto"] {
            let run = started(&sim, &commands).capped(limit);
            let out = run.env("GPUCAP_OVERHEAD", overhead).out();
            silent(out.ok());
            assert_eq!(numbers(&out, "info", 0), [0, total - 174 * MIB, total], "{out}");
            let taken = (0..7).map(|nth| answer(&out, "take", nth));
            let expected = ["2 ok", "2 ok", "2 ok", "2 ok", "2 ok", "0 ok", "2 ok"];
            assert_eq!(taken.collect::<Vec<_>>(), expected, "{out}");
            assert_eq!(out.stdout, bare.stdout, "{out}");
            let asked = sim.truth().process(out.pid).expect("it ran");
            assert_eq!(asked.calls("cuMemAlloc_v2"), 3, "the driver was asked");
        }
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
    for limit in [
        "4G",
        "4g",
        "4Gi",
        "4GiB",
        "4GB",
        "4gb",
        "4096M",
        "4G ",
        "\t4G\n",
        "4 GB",
        "04G",
        "0=4G",
        "4194304K",
        "25%",
        ".25",
        "2.5e-1",
        "total-12G",
    ] {
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
    for value in ["0x10M", "abc", "1e400", "18446744073709551616", "4Q", "1G,2G", "0=1G;1=2G", "0:1G", "4  GB", "nan%"]
    {
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
fn b34_pools_share_the_limit_whatever_their_own_maximum() {
    let sim = Sim::new();
    let commands = format!(
        "pool_create 0 {}\ntake frompool a {GIB}\npool_create 0\ntake frompool b {GIB}\n\
         take async c {GIB}\nfill frompool {}\ninfo\ntake async d {}",
        8 * GIB,
        32 * MIB,
        32 * MIB
    );
    let out = started(&sim, &commands).capped("4GiB").out();
    let taken = [0, 1, 2, 3].map(|nth| answer(out.ok(), "take", nth));
    assert_eq!(taken, ["0 ok", "0 ok", "0 ok", "2 ok"], "{out}");
    assert_eq!(answer(&out, "fill", 0), "2 32 untouched", "{out}");
    assert_eq!(numbers(&out, "info", 0), [0, 0, 4 * GIB]);
    assert_eq!(peak(&sim, &out, 0), 4 * GIB);
    // A pool's own maximum stays the driver's to refuse.
    let commands = format!("pool_create 0 {GIB}\ntake frompool a {}", 2 * GIB);
    let out = started(&sim, &commands).capped("4GiB").out();
    assert_eq!(answer(silent(out.ok()), "take", 0), "2 ok");
}

#[test]
fn b31_what_is_freed_goes_back_to_the_device_at_once() {
    let sim = Sim::new();
    let mut child = script(&sim, "").capped("8GiB").spawn();
    child.ask("init");
    child.ask("retain 0");
    for entry in ["alloc", "managed", "pitch", "create"] {
        child.ask(&format!("take {entry} a {}", 4 * GIB));
        assert_eq!(sim.truth().device(0).used, 4 * GIB, "{entry}");
        child.ask("free a");
        assert_eq!(sim.truth().device(0).used, 0, "{entry}");
    }
    child.wait().ok();
}
