//! Devices of NVML and devices of CUDA are matched by UUID: each total lands on the device that it is for, however
//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` number them.

use harness::{Run, Sim};
use memory::{MIB, devices, memory, numbers, told};

mod memory;

/// Three devices of 1000, 2000 and 3000 MiB.
fn three(more: &[(&str, &str)]) -> Sim {
    let knobs = [("DEVICES", "3"), ("TOTAL_MIB", "1000,2000,3000")];
    Sim::with(&[&knobs[..], more].concat())
}

fn uuids(sim: &Sim) -> [String; 3] {
    [0, 1, 2].map(|device| sim.truth().device(device).uuid)
}

/// Totals in MiB by NVML's index before CUDA starts and after, and of CUDA by its ordinal.
fn totals(sim: &Sim, visible: Option<&str>, limit: &str, more: &[(&str, &str)]) -> ([u64; 3], [u64; 3], Vec<u64>) {
    let seen = visible.map_or(3, |list| list.split(',').filter(|entry| !entry.is_empty()).count());
    let asked: String = (0..seen).map(|ordinal| format!(" total {ordinal}")).collect();
    let mut run: Run = memory(sim, &format!("nvml init nvml{asked}")).capped(limit);
    if let Some(list) = visible {
        run = run.env("CUDA_VISIBLE_DEVICES", list);
    }
    for (name, value) in more {
        run = run.env(name, value);
    }
    let out = run.out();
    let lines: Vec<&str> = out.ok().stdout.lines().filter(|line| line.starts_with("nvml ")).collect();
    let all: Vec<u64> = devices(&lines).into_iter().map(|(_, told)| told.total / MIB).collect();
    let of_cuda = numbers(&out, "total").into_iter().filter(|line| line[0] == 0).map(|line| line[1] / MIB).collect();
    ([all[0], all[1], all[2]], [all[3], all[4], all[5]], of_cuda)
}

#[test]
fn entries_by_index_follow_cudas_numbers_and_entries_by_uuid_stay_with_their_device() {
    let sim = three(&[]);
    let [first, second, third] = uuids(&sim);
    let short = |uuid: &str| uuid[..7].to_owned();
    let by_uuid = format!("{first}=100MiB,{}=200MiB,*=300MiB", short(&second));
    let by_index = "0=100MiB,1=200MiB,*=50%".to_owned();
    let mixed = format!("0=100MiB,{third}=700MiB,*=300MiB");
    let swapped = format!("{},{}", short(&third), first);
    for (visible, limit, nvml, cuda) in [
        (None, &by_uuid, [100, 200, 300], vec![100, 200, 300]),
        (None, &by_index, [100, 200, 1500], vec![100, 200, 1500]),
        (None, &mixed, [100, 300, 700], vec![100, 300, 700]),
        (Some("2,0"), &by_uuid, [100, 200, 300], vec![300, 100]),
        // Device 1 is not seen: no index is its, but * is.
        (Some("2,0"), &by_index, [200, 1000, 100], vec![100, 200]),
        (Some("2,0"), &mixed, [300, 300, 700], vec![700, 300]),
        (Some(&swapped), &by_index, [200, 1000, 100], vec![100, 200]),
        (Some(&second), &by_index, [500, 100, 1500], vec![100]),
        (Some("1,1"), &by_index, [500, 1000, 1500], vec![]),
        (Some("1,9,0"), &by_index, [500, 100, 1500], vec![100]),
        (Some(""), &by_index, [500, 1000, 1500], vec![]),
        (Some(""), &by_uuid, [100, 200, 300], vec![]),
        (Some("-1"), &mixed, [300, 300, 700], vec![]),
    ] {
        let seen = totals(&sim, visible, limit, &[]);
        assert_eq!(seen, (nvml, nvml, cuda), "CUDA_VISIBLE_DEVICES={visible:?} GPUCAP_LIMIT={limit}");
    }
}

#[test]
fn a_device_without_an_entry_is_whole() {
    let sim = three(&[]);
    sim.truth().take_foreign(1, 100 * MIB);
    assert_eq!(totals(&sim, Some("1,0"), "0=100MiB", &[]), ([1000, 100, 3000], [1000, 100, 3000], vec![100, 1000]));
}

#[test]
fn cuda_device_order_decides_what_an_index_is() {
    // The last device is the fastest, and has a name of its own.
    let sim = three(&[("FASTEST", "2"), ("NAME", "Slow,Slow,Fast")]);
    let limit = "0=100MiB,1=200MiB";
    for (order, visible, after, cuda) in [
        ("PCI_BUS_ID", None, [100, 200, 3000], vec![100, 200, 3000]),
        ("FASTEST_FIRST", None, [200, 2000, 100], vec![100, 200, 2000]),
        ("PCI_BUS_ID", Some("2,1"), [1000, 200, 100], vec![100, 200]),
        ("FASTEST_FIRST", Some("2,1"), [200, 100, 3000], vec![100, 200]),
    ] {
        let (alone, started, seen) = totals(&sim, visible, limit, &[("CUDA_DEVICE_ORDER", order)]);
        assert_eq!((started, seen), (after, cuda), "{order} {visible:?}");
        // Which model CUDA takes for the fastest is only known once it has started.
        let foreseen = if order == "PCI_BUS_ID" { after } else { [1000, 2000, 3000] };
        assert_eq!(alone, foreseen, "{order} {visible:?}");
    }
    // A UUID says which device it is in any order.
    let [.., third] = uuids(&sim);
    let seen = totals(&sim, Some(&third), limit, &[("CUDA_DEVICE_ORDER", "FASTEST_FIRST")]);
    assert_eq!(seen, ([1000, 2000, 100], [1000, 2000, 100], vec![100]));
}

#[test]
fn a56_what_a_process_uses_is_shown_on_the_physical_device_whatever_its_ordinal() {
    let sim = three(&[]);
    let [first, second, _] = uuids(&sim);
    let swapped = format!("1,{first}");
    for (visible, physical) in [("0", 0), ("1", 1), (&*swapped, 1), (&second[..8], 1), ("2,1,0", 2)] {
        let out = memory(&sim, "uuid 0 init uuid 0 ctx 0 alloc 100 nvml info")
            .capped("600MiB")
            .env("CUDA_VISIBLE_DEVICES", visible)
            .out();
        let lines: Vec<&str> = out.ok().stdout.lines().filter(|line| line.starts_with("nvml ")).collect();
        let own = out.stdout.lines().filter_map(|line| line.strip_prefix("uuid 0 ")).next_back().expect("a UUID");
        assert_eq!(format!("GPU-{own}"), uuids(&sim)[physical]);
        for (index, (uuid, seen)) in devices(&lines).into_iter().enumerate() {
            let used = if index == physical { 100 } else { 0 };
            assert_eq!((uuid, seen), (uuids(&sim)[index].clone(), told(600 * MIB, used * MIB)), "{visible}: {out}");
        }
        assert_eq!(numbers(&out, "info"), [[0, 500 * MIB, 600 * MIB]]);
    }
}

#[test]
fn a_mig_instance_is_matched_by_its_own_uuid() {
    let sim = three(&[("MIG", "1")]);
    let mig = uuids(&sim).map(|uuid| uuid.replace("GPU-", "MIG-"));
    let limit = format!("{}=100MiB,{}=200MiB,*=300MiB", mig[0], &mig[1][..7]);
    for visible in [None, Some("2,1"), Some(&*mig[1])] {
        let run = memory(&sim, "mig init ctx 0 alloc 50 mig info total 0 nvml").capped(&limit);
        let run = if let Some(list) = visible { run.env("CUDA_VISIBLE_DEVICES", list) } else { run };
        let out = run.out();
        let lines: Vec<&str> = out.ok().stdout.lines().filter(|line| line.starts_with("nvml ")).collect();
        let seen = devices(&lines);
        let totals = [100, 200, 300].map(|mib| mib * MIB);
        let used = match visible {
            None => 0,
            Some("2,1") => 2,
            Some(_) => 1,
        };
        for at in 0..3 {
            assert_eq!(seen[at], (mig[at].clone(), told(totals[at], 0)), "{out}");
            let held = if at == used { 50 * MIB } else { 0 };
            assert_eq!(seen[3 + at], (mig[at].clone(), told(totals[at], held)), "{out}");
            // The GPU around it is no device of CUDA's.
            assert_eq!(seen[6 + at].1, told(300 * MIB, 0), "{out}");
        }
        assert_eq!(numbers(&out, "info"), [[0, totals[used] - 50 * MIB, totals[used]]]);
    }
}

#[test]
fn visible_devices_that_are_set_from_inside_count_until_cuda_starts() {
    let sim = three(&[]);
    let out = memory(&sim, "nvml set CUDA_VISIBLE_DEVICES=1 nvml init nvml total 0").capped("0=100MiB").out();
    let lines: Vec<&str> = out.ok().stdout.lines().filter(|line| line.starts_with("nvml ")).collect();
    let all: Vec<u64> = devices(&lines).into_iter().map(|(_, told)| told.total / MIB).collect();
    assert_eq!(all, [100, 2000, 3000, 1000, 100, 3000, 1000, 100, 3000], "{out}");
    assert_eq!(numbers(&out, "total"), [[0, 100 * MIB]]);
}
