//! NVML's memory info shows the limit and what this process uses of it, the same as the CUDA calls do at any moment.

use harness::{Run, Sim, cuda_wheel};
use memory::{GIB, MIB, Told, all_told, memory, numbers, told, with_pynvml};

mod memory;

#[test]
fn a49_every_surface_tells_the_same_before_a_context_with_one_and_after_each_allocation() {
    let sim = Sim::with(&[("TOTAL_MIB", "24576"), ("CTX_MIB", "300")]);
    for runtime in ["11.8", "12.9", "13.5"] {
        let path = cuda_wheel(runtime);
        let words = format!(
            "nvml init nvml total 0 props {path} ctx 0 nvml info total 0 alloc 4096 nvml info pool 64 nvml info total 0 props {path}",
            path = path.display()
        );
        let out = memory(&sim, &words).capped("50%").out();
        let seen = all_told(&out);
        let held = [0, 0, 0, 4096, 4160].map(|mib| told(12 * GIB, mib * MIB));
        assert_eq!(seen, held, "{out}");
        for total in numbers(&out, "total").iter().chain(&numbers(&out, "props")) {
            assert_eq!(*total, [0, 12 * GIB], "{out}");
        }
        let infos: Vec<_> = seen[2..].iter().map(|told| vec![0, told.free, told.total]).collect();
        assert_eq!(numbers(&out, "info"), infos, "{out}");
        assert_eq!(out.stderr, "");
    }
}

#[test]
fn what_a_context_costs_is_used_on_every_surface() {
    let sim = Sim::with(&[("TOTAL_MIB", "24576"), ("CTX_MIB", "300")]);
    let words = "nvml init nvml ctx 0 nvml info alloc 4096 nvml info pool 64 nvml info total 0";
    let out = memory(&sim, words).env("GPUCAP_OVERHEAD", "auto").capped("50%").out();
    let seen = all_told(&out);
    assert_eq!(seen, [0, 0, 300, 4396, 4460].map(|mib| told(12 * GIB, mib * MIB)), "{out}");
    let infos: Vec<_> = seen[2..].iter().map(|told| vec![0, told.free, told.total]).collect();
    assert_eq!((numbers(&out, "info"), numbers(&out, "total")), (infos, vec![vec![0, 12 * GIB]]), "{out}");
}

#[test]
fn a_process_with_nvml_alone_sees_the_limit_and_nothing_used() {
    let sim = Sim::with(&[("DEVICES", "2"), ("TOTAL_MIB", "1000,2000")]);
    sim.truth().take_foreign(0, 100 * MIB);
    let uuid = sim.truth().device(1).uuid;
    for (limit, totals) in [
        ("50%".to_owned(), [500, 1000]),
        ("300MiB".to_owned(), [300, 300]),
        ("total-900MiB".to_owned(), [100, 1100]),
        (format!("{uuid}=700MiB,*=0.3"), [300, 700]),
        (format!("{}=700MiB,*=0.3", &uuid[..8]), [300, 700]),
        ("0=200MiB,1=400MiB".to_owned(), [200, 400]),
        ("0".to_owned(), [0, 0]),
    ] {
        let out = memory(&sim, "nvml mapped").capped(&limit).env("SIMCUDA_TRACE", sim.folder().join("trace")).out();
        assert_eq!(all_told(&out), totals.map(|mib| told(mib * MIB, 0)), "{limit}");
        assert!(out.stdout.ends_with("mapped libnvidia\n"), "libcuda was loaded: {out}");
        assert_eq!(out.stderr, "");
    }
    let trace = std::fs::read_to_string(sim.folder().join("trace")).expect("calls of NVML");
    assert!(!trace.lines().any(|line| line.contains(" cu")), "no call of CUDA");
}

#[test]
fn what_others_hold_is_none_of_this_process_until_the_device_itself_runs_short() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000")]);
    sim.truth().take_foreign(0, 500 * MIB);
    let run = || memory(&sim, "nvml init ctx 0 nvml info alloc 100 nvml info").capped("400MiB").out();
    let out = run();
    assert_eq!(all_told(&out), [0, 0, 100].map(|mib| told(400 * MIB, mib * MIB)));
    sim.truth().take_foreign(0, 300 * MIB);
    let out = run();
    assert_eq!(all_told(&out), [200, 200, 300].map(|mib| told(400 * MIB, mib * MIB)), "200 MiB are left of the device");
    let seen = all_told(&out);
    let infos: Vec<_> = seen[1..].iter().map(|told| vec![0, told.free, told.total]).collect();
    assert_eq!(numbers(&out, "info"), infos);
}

#[test]
fn b36_a_second_engine_on_the_device_computes_the_same_room_as_the_first() {
    let sim = Sim::with(&[("TOTAL_MIB", "24576"), ("CTX_MIB", "400")]);
    let words = "nvml init ctx 0 nvml alloc 6000 nvml wait";
    let mut first = memory(&sim, words).capped("40%").spawn();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|line| line != "wait") {
        heard.push(first.hear());
    }
    let second = memory(&sim, words).capped("40%").out();
    assert_eq!(second.ok().stdout.lines().collect::<Vec<_>>(), heard);
    let limit = 24 * GIB * 2 / 5;
    assert_eq!(all_told(&second), [0, 0, 6000].map(|mib| told(limit, mib * MIB)));
    first.say("");
    first.wait().ok();
}

#[test]
fn memory_that_nvml_counts_and_cuda_never_sees_is_not_reported() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000"), ("RESERVED_MIB", "24")]);
    let words = "nvml init ctx 0 nvml info alloc 100 nvml info";
    for (limit, alone, total) in [("300MiB", 300, 300), ("50%", 512, 500), ("100%", 1024, 1000), ("5GiB", 1024, 1000)] {
        let out = memory(&sim, words).capped(limit).out();
        let seen = all_told(&out);
        // Before CUDA has started NVML's own total is all that is known.
        assert_eq!(seen[0].total, alone * MIB, "{limit}");
        assert_eq!(seen[1..], [0, 100].map(|mib| told(total * MIB, mib * MIB)), "{limit}");
        let infos: Vec<_> = seen[1..].iter().map(|told| vec![0, told.free, told.total]).collect();
        assert_eq!(numbers(&out, "info"), infos, "{limit}");
    }
}

/// The lines of NVML, unparsed.
fn plain(run: Run) -> (Vec<String>, String) {
    let out = run.out();
    let lines = out.ok().stdout.lines().filter(|line| line.starts_with("nvml ")).map(str::to_owned);
    (lines.collect(), out.stderr.clone())
}

#[test]
fn without_a_limit_switched_off_or_set_to_report_the_device_nvml_says_what_it_says() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000"), ("RESERVED_MIB", "24")]);
    sim.truth().take_foreign(0, 300 * MIB);
    let run = || memory(&sim, "nvml init ctx 0 alloc 100 nvml");
    let (bare, _) = plain(run());
    assert_eq!(bare.len(), 2);
    for (run, said) in [
        (run().capped("500MiB").env("GPUCAP_REPORT", "device"), ""),
        (run().capped("500MiB").env("GPUCAP_DISABLE", "1"), ""),
        (run().capped("1=500MiB"), "no such device"),
        (run().preload().env("GPUCAP_MODE", "cap"), ""),
        (run().preload(), "no limit is set"),
    ] {
        let (seen, stderr) = plain(run);
        assert_eq!(seen, bare, "{stderr}");
        assert!(stderr.contains(said) && said.is_empty() == stderr.is_empty(), "{said}: {stderr}");
    }
}

#[test]
fn a_wrong_limit_is_said_once_and_leaves_nvml_alone() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000")]);
    let (bare, _) = plain(memory(&sim, "nvml nvml"));
    for on_error in ["closed", "open"] {
        let (seen, stderr) = plain(memory(&sim, "nvml nvml").capped("rubbish").env("GPUCAP_ON_ERROR", on_error));
        assert_eq!(seen, bare);
        assert_eq!(stderr.matches("GPUCAP_LIMIT").count(), 1, "{stderr}");
    }
    let out = memory(&sim, "nvml init").capped("rubbish").out();
    assert!(out.stdout.ends_with("init 1\n"), "{out}");
    memory(&sim, "nvml").capped("rubbish").env("GPUCAP_ON_ERROR", "exit").out().ended_with(78);
}

#[test]
fn the_configuration_is_read_at_the_first_question_about_memory() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000")]);
    let set = |mib: u64| format!("set GPUCAP_LIMIT={mib}MiB");
    let words = format!("{} nvml {} nvml init total 0", set(300), set(400));
    let out = memory(&sim, &words).capped("200MiB").out();
    // os.environ changes the table that is read.
    assert_eq!(all_told(&out), [told(300 * MIB, 0); 2], "{out}");
    assert_eq!(numbers(&out, "total"), [[0, 300 * MIB]]);
}

#[test]
fn a_forked_child_holds_nothing() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000")]);
    let out = memory(&sim, "init ctx 0 alloc 100 nvml fork nvml").capped("300MiB").out();
    assert_eq!(all_told(&out), [told(300 * MIB, 100 * MIB), told(300 * MIB, 0)], "{out}");
    let out = memory(&sim, "nvml fork nvml init ctx 0 alloc 100 nvml info").capped("300MiB").out();
    assert_eq!(all_told(&out), [0, 0, 100].map(|mib| told(300 * MIB, mib * MIB)), "{out}");
    assert_eq!(numbers(&out, "info"), [[0, 200 * MIB, 300 * MIB]]);
}

#[test]
fn nvml_that_calls_itself_through_our_exports_is_replaced_once() {
    let sim = Sim::with(&[("TOTAL_MIB", "1000"), ("RESERVED_MIB", "24")]);
    let trace = sim.folder().join("trace");
    let out = memory(&sim, "nvml init ctx 0 alloc 100 nvml").env("SIMCUDA_TRACE", &trace).capped("300MiB").out();
    assert_eq!(all_told(&out), [told(300 * MIB, 0), told(300 * MIB, 100 * MIB)]);
    let trace = std::fs::read_to_string(&trace).expect("calls");
    let count = |name: &str| trace.lines().filter(|line| line.contains(&format!(" {name} nvml"))).count();
    // The simulated v1 asks v2 the way the dynamic linker bound it.
    assert_eq!((count("nvmlDeviceGetMemoryInfo"), count("nvmlDeviceGetMemoryInfo_v2")), (2, 4), "{trace}");
}

#[test]
fn wrong_questions_get_the_answers_of_nvml_itself() {
    for (name, value) in [("NVML", "ok"), ("INTEGRATED", "1"), ("NVML", "notloaded"), ("NVML", "absent")] {
        let sim = Sim::with(&[(name, value)]);
        let run = || with_pynvml(&sim, "nvml_errors.py");
        let bare = run().out();
        let out = run().capped("300MiB").out();
        assert_eq!(out.ok().stdout, bare.ok().stdout, "{name}={value}");
        assert!(bare.stdout.lines().count() > 10, "{bare}");
        assert_eq!(out.stderr, "");
    }
}

#[test]
fn a71_under_mps_the_smaller_limit_wins_and_totals_are_of_ours() {
    let sim = Sim::with(&[("TOTAL_MIB", "16384"), ("MPS_LIMIT_MIB", "3072")]);
    for (limit, admitted) in [(4096, 3), (2048, 2)] {
        let words = "init ctx 0 alloc 1024 alloc 1024 alloc 1024 alloc 1024 nvml info";
        let out = memory(&sim, words).capped(&format!("{limit}MiB")).out();
        let codes: Vec<u64> = numbers(&out, "alloc").into_iter().flatten().collect();
        let expected: Vec<u64> = (0..4).map(|nth| if nth < admitted { 0 } else { 2 }).collect();
        assert_eq!(codes, expected, "{out}");
        let seen: Vec<Told> = all_told(&out);
        assert_eq!(seen, [told(limit * MIB, admitted * GIB)]);
        assert_eq!(numbers(&out, "info"), [[0, seen[0].free, seen[0].total]]);
    }
}
