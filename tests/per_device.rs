//! Limits of several devices: by number, by UUID, by HAMi's variables.

use harness::Sim;
use script::{BOTH, GIB, MIB, answer, closed, numbers, peak, said_once, script, started, totals, with};

mod script;

/// Two devices whose UUIDs begin alike.
fn twins() -> Sim {
    Sim::with(&[
        ("DEVICES", "2"),
        ("UUIDS", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-8932f937-d72c-4106-c12f-20bd9faed9f7"),
    ])
}

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
    let commands =
        format!("init\nctx 0\ntake alloc a {}\nctx 1\ninfo\ntake alloc b 1\ntake create c {} 1", 8 * GIB, 2 * MIB);
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
    let denied =
        started(&sim, &format!("take alloc a {}", 2 * GIB)).preload().env("CUDA_DEVICE_MEMORY_LIMIT", "1g").out();
    assert!(said_once(&denied).contains("CUDA_DEVICE_MEMORY_LIMIT"), "{denied}");
}

#[test]
fn a_mig_instance_is_named_by_its_own_uuid() {
    let sim = Sim::with(&[("DEVICES", "2"), ("MIG", "1")]);
    let uuids = [0, 1].map(|device| sim.truth().device(device).uuid.replace("GPU-", ""));
    let limit = format!("MIG-{}=1GiB,mig-{}=2GiB,*=3GiB", uuids[0], &uuids[1][..4]);
    assert_eq!(totals(script(&sim, BOTH).capped(&limit)), ([GIB, 2 * GIB], vec![]));
    // It is not a whole GPU, whatever the beginning.
    let (seen, lines) = totals(script(&sim, BOTH).capped(&format!("GPU-{}=1GiB,*=3GiB", uuids[0])));
    assert_eq!((seen, lines.len()), ([3 * GIB; 2], 1), "{lines:?}");
}

#[test]
fn a_driver_that_does_not_name_its_devices_is_not_left_uncapped() {
    let commands = "take alloc a 4096\ninit";
    for rule in ["cuDeviceGetCount:*:999", "cuDeviceGetCount:1:999"] {
        let sim = Sim::with(&[("FAIL", rule)]);
        let line = closed(&sim, &started(&sim, commands).capped("1GiB").out());
        assert!(line.starts_with("the driver does not name its devices "), "{line}");
        let open = started(&sim, commands).capped("1GiB").env("GPUCAP_ON_ERROR", "open").out();
        assert_eq!((answer(open.ok(), "init", 0), answer(&open, "take", 0)), ("0".into(), "0 ok".into()));
        assert!(said_once(&open).ends_with("ignored (GPUCAP_ON_ERROR=open)"), "{open}");
    }
}

#[test]
fn a_device_whose_size_is_not_known_shifts_no_other_ones_limit() {
    let sim = Sim::with(&[("DEVICES", "2"), ("FAIL", "cuDeviceTotalMem_v2:1:999")]);
    let commands = format!("init\nctx 1\ninfo\ntake alloc a {GIB}\ntake alloc b {}\nctx 0\ntake alloc c 4096", 3 * GIB);
    let out = script(&sim, &commands).capped("0=0.5,1=3GiB").out();
    assert_eq!(numbers(out.ok(), "info", 0), [0, 3 * GIB, 3 * GIB], "{out}");
    assert_eq!((answer(&out, "take", 0), answer(&out, "take", 1)), ("0 ok".into(), "2 ok".into()), "{out}");
    assert_eq!(answer(&out, "take", 2), "2 ok", "half of nothing known is nothing: {out}");
}
