//! The measured overhead: what no allocation accounts for counts, and no admitted allocation crosses the limit by the
//! simulated device's own pages.

use harness::{MIB, Output, Run, Sim, cc};
use simdevice::Held;

const CONTEXT: &str = "cuInit 0\ncuDevicePrimaryCtxRetain &c 0\ncuCtxSetCurrent $c\n";
const MODULE: &str = "cuModuleLoadData &m &image\n";
const LAUNCH: &str = "set name 0 8 107\ncuModuleGetFunction &f $m &name\ncuLaunchKernel $f 1 1 1 1 1 1 0 0 0 0\n";

/// A run of driver.c's commands after the primary context of device 0 became current.
fn run(sim: &Sim, limit: &str, commands: &str) -> Run {
    sim.run(cc("driver.c", &["-lpthread"]))
        .capped(limit)
        .env("GPUCAP_LOG", "info")
        .stdin(&format!("{CONTEXT}{commands}"))
}

fn held(sim: &Sim, out: &Output) -> Held {
    sim.truth().process(out.pid).expect("it ran").per_device[0]
}

/// Count and code of the `nth` fill.
#[track_caller]
fn filled(out: &Output, nth: usize) -> (u64, u64) {
    let line = out.stdout.lines().filter(|line| line.starts_with("fill ")).nth(nth);
    let mut numbers = line.unwrap_or_else(|| panic!("{out}")).split(' ').skip(1).map(|n| n.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn half_of_the_device_does_not_fit_beside_the_context_but_the_rest_does() {
    // Field case B01: 15109 MiB, half of it, a context of 234 MiB.
    let sim = Sim::with(&[("TOTAL_MIB", "15109"), ("CTX_MIB", "234")]);
    let half = 15109 * MIB / 2;
    let rest = (half - 234 * MIB) / (2 * MIB) * 2;
    let commands = format!("cuMemGetInfo_v2 &free &total\ncuMemAlloc_v2 &a {half}\ncuMemAlloc_v2 &b {}\n", rest * MIB);
    let out = run(&sim, "0.5", &commands).out();
    let lines = out.ok().lines();
    let free = half - 234 * MIB;
    assert!(lines.iter().any(|l| l.contains(&format!("free={free} total={half}"))), "{out}");
    assert!(lines.iter().any(|l| l.starts_with("cuMemAlloc_v2 2")), "{out}");
    assert!(lines.iter().any(|l| l.starts_with("cuMemAlloc_v2 0 b=")), "{out}");
    assert!(held(&sim, &out).peak_pages <= half, "{out}");
    assert!(out.stderr.contains("overhead 234 MiB"), "the refusal names the overhead: {out}");
}

#[test]
fn modules_and_launches_count_before_an_allocation_crosses_the_limit() {
    // Field case A07: a context of 300 MiB, modules of 40 MiB, 100 MiB of local memory at the first launch.
    let sim = Sim::with(&[("CTX_MIB", "300"), ("MODULE_MIB", "40"), ("LMEM_MIB", "100")]);
    let commands = format!("{}{LAUNCH}fill 9999 cuMemAlloc_v2 &a 2M\n", MODULE.repeat(5));
    let out = run(&sim, "1000MiB", &commands).out();
    assert_eq!(filled(out.ok(), 0), (200, 2), "{out}");
    assert_eq!(held(&sim, &out).peak_pages, 1000 * MIB, "{out}");
}

#[test]
fn what_a_launch_takes_after_the_last_reading_is_found() {
    let sim = Sim::with(&[("CTX_MIB", "100"), ("LMEM_MIB", "200")]);
    let commands = format!("fill 300 cuMemAlloc_v2 &a 2M\n{MODULE}{LAUNCH}fill 9999 cuMemAlloc_v2 &a 2M\n");
    let out = run(&sim, "1GiB", &commands).out();
    assert_eq!(filled(out.ok(), 0), (300, 0), "{out}");
    assert_eq!(filled(&out, 1), (62, 2), "1024 - 100 - 600 - 200 MiB are left: {out}");
    assert!(held(&sim, &out).peak_pages <= 1024 * MIB, "{out}");
}

#[test]
fn contexts_and_modules_are_never_refused_and_what_they_bring_above_the_limit_refuses_the_next_allocation() {
    let sim = Sim::with(&[("CTX_MIB", "300"), ("MODULE_MIB", "40")]);
    let commands = format!("{MODULE}cuMemGetInfo_v2 &free &total\ncuMemAlloc_v2 &a 4096\n");
    let out = run(&sim, "200MiB", &commands).out();
    let lines = out.ok().lines();
    assert!(lines.iter().any(|l| l.starts_with("cuModuleLoadData 0")), "{out}");
    assert!(lines.iter().any(|l| l.contains(&format!("free=0 total={}", 200 * MIB))), "{out}");
    assert!(lines.iter().any(|l| l.starts_with("cuMemAlloc_v2 2")), "{out}");
}

#[test]
fn a_hundred_thousand_small_blocks_share_pages_and_fill_the_limit_to_the_page() {
    let sim = Sim::with(&[("CTX_MIB", "300"), ("TOTAL_MIB", "16384")]);
    // 64 KiB each, 32 to a page: 100 000 of them are 3125 pages.
    let out = run(&sim, "7GiB", "fill 100000 cuMemAlloc_v2 &a 64K\nfill 9999 cuMemAlloc_v2 &b 2M\n").out();
    assert_eq!(filled(out.ok(), 0), (100_000, 0), "{out}");
    let left = 7 * 1024 - 300 - 3125 * 2;
    let (large, code) = filled(&out, 1);
    assert_eq!((large, code), (left / 2, 2), "{out}");
    assert!(held(&sim, &out).peak_pages <= 7 * 1024 * MIB, "{out}");
}

#[test]
fn a_context_that_is_destroyed_gives_its_overhead_back() {
    let sim = Sim::with(&[("CTX_MIB", "300")]);
    let out = run(
        &sim,
        "1000MiB",
        "cuCtxCreate_v2 &d 0 0\ncuMemGetInfo_v2 &free &total\ncuCtxDestroy_v2 $d\ncuDevicePrimaryCtxRelease_v2 0\n\
         cuDevicePrimaryCtxRetain &c 0\ncuCtxSetCurrent $c\ncuMemGetInfo_v2 &free &total\n",
    )
    .out();
    let infos: Vec<&str> = out.ok().stdout.lines().filter(|l| l.starts_with("cuMemGetInfo_v2")).collect();
    let truth = held(&sim, &out);
    assert_eq!(infos.len(), 2, "{out}");
    assert!(infos[1].contains(&format!("free={}", 700 * MIB)), "{truth:?} {out}");
}

#[test]
fn a_fixed_size_is_counted_whatever_is_really_taken() {
    let sim = Sim::with(&[("CTX_MIB", "300")]);
    let out = run(&sim, "1000MiB", "fill 9999 cuMemAlloc_v2 &a 2M\n").env("GPUCAP_OVERHEAD", "600MiB").out();
    assert_eq!(filled(out.ok(), 0), (200, 2), "{out}");
    assert!(out.stderr.contains("overhead set to 600 MiB"), "{out}");
}

#[test]
fn with_zero_only_allocations_count() {
    let sim = Sim::with(&[("CTX_MIB", "300")]);
    let out = run(&sim, "1000MiB", "fill 9999 cuMemAlloc_v2 &a 2M\n").env("GPUCAP_OVERHEAD", "0").out();
    assert_eq!(filled(out.ok(), 0), (500, 2), "{out}");
    assert!(out.stderr.contains("only allocations count (overhead 0)"), "{out}");
}

#[test]
fn without_nvml_only_allocations_count_and_the_log_says_so() {
    for nvml in ["absent", "partial", "notloaded"] {
        let sim = Sim::with(&[("CTX_MIB", "300"), ("NVML", nvml)]);
        let out = run(&sim, "1000MiB", "fill 9999 cuMemAlloc_v2 &a 2M\n").out();
        assert_eq!(filled(out.ok(), 0), (500, 2), "{nvml}: {out}");
        assert!(out.stderr.contains("overhead can't be measured"), "{nvml}: {out}");
        // Small blocks would be 31 GiB if each were a page; one page at most stays free.
        let out = run(&sim, "1000MiB", "fill 99999 cuMemAlloc_v2 &a 64K\n").out();
        let (small, code) = filled(out.ok(), 0);
        assert!((15_969..=16_000).contains(&small) && code == 2, "{nvml}: {out}");
    }
}

#[test]
fn a_process_that_nvml_numbers_otherwise_is_found_by_its_first_context() {
    // As in a container, where NVML shows the host's pids.
    let sim = Sim::with(&[("CTX_MIB", "300"), ("NVML_PIDS", "100000")]);
    let neighbour = sim.run(cc("driver.c", &["-lpthread"])).stdin(&format!("{CONTEXT}sleep 3000\n")).spawn();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let out = run(&sim, "1000MiB", "fill 9999 cuMemAlloc_v2 &a 2M\n").out();
    drop(neighbour);
    assert_eq!(filled(out.ok(), 0), (350, 2), "{out}");
    assert!(out.stderr.contains("overhead 300 MiB measured by NVML"), "{out}");
}

#[test]
fn threads_that_take_small_and_large_blocks_near_the_limit_never_cross_it() {
    let sim = Sim::with(&[("CTX_MIB", "100")]);
    let commands = "race 4 300 $c 96K\nrace 4 300 $c 3M\nfill 9999 cuMemAlloc_v2 &a 2M\nrace 4 200 $c 700K\n";
    let out = run(&sim, "140MiB", commands).out();
    out.ok();
    assert!(held(&sim, &out).peak_pages <= 140 * MIB, "{:?} {out}", held(&sim, &out));
}
