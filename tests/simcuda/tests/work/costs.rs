//! Contexts, modules and local memory cost what the knobs say, until they go.

use harness::{MIB, Sim};

use crate::codes;

const LOAD: (&str, u32) = ("cuModuleLoadData &m &x", 0);
const FUNCTION: (&str, u32) = ("cuModuleGetFunction &f $m &n", 0);
const LAUNCH: &str = "cuLaunchKernel $f 1 1 1 1 1 : 1 0 0 0 0";

#[test]
fn modules_and_the_first_launch_are_overhead() {
    let sim = Sim::with(&[("CTX_MIB", "200"), ("MODULE_MIB", "30"), ("LMEM_MIB", "50")]);
    let name = ("set n 0 1 107", 0);
    let out = sim
        .run(harness::cc("driver.c", &[]))
        .args(crate::START)
        .args([
            LOAD.0,
            LOAD.0,
            name.0,
            FUNCTION.0,
            LAUNCH,
            LAUNCH,
            "cuMemGetInfo_v2 &free &total",
            "cuModuleUnload $m",
            "cuMemGetInfo_v2 &free &total",
            "cuDevicePrimaryCtxReset 0",
            "cuDevicePrimaryCtxRetain &c 0",
            "cuMemGetInfo_v2 &free &total",
        ])
        .out();
    let free: Vec<u64> = out
        .ok()
        .stdout
        .lines()
        .filter(|line| line.starts_with("cuMemGetInfo_v2 0"))
        .map(|line| {
            let text = line.split("free=").nth(1).and_then(|rest| rest.split(' ').next());
            text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        })
        .collect();
    let total = sim.truth().device(0).total;
    let used: Vec<u64> = free.iter().map(|free| (total - free) / MIB).collect();
    assert_eq!(used, [200 + 2 * 30 + 50, 200 + 30 + 50, 200], "{out}");
    let held = sim.truth().process(out.pid).expect("it ran").per_device[0];
    assert_eq!((held.peak_blocks, held.peak_pages), (0, 310 * MIB));
}

#[test]
fn a_module_that_does_not_fit_is_out_of_memory() {
    codes(&Sim::with(&[("TOTAL_MIB", "100"), ("MODULE_MIB", "60")]), &[LOAD, ("cuModuleLoadData &m &x", 2)]);
}

#[test]
fn a_library_costs_each_context_that_uses_it() {
    let sim = Sim::with(&[("MODULE_MIB", "30")]);
    let out = codes(
        &sim,
        &[
            ("cuLibraryLoadData &l &x 0 0 0 : 0 0 0", 0),
            ("cuCtxCreate_v2 &d 0 0", 0),
            ("cuLibraryGetModule &m $l", 0),
            ("cuLibraryGetModule &m $l", 0),
        ],
    );
    assert_eq!(sim.truth().process(out.pid).expect("it ran").per_device[0].peak_pages, 60 * MIB);
}
