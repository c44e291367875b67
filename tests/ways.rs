//! Every way in which a program reaches the driver, and every call of each by which it gets memory: the cap holds exactly.

mod calls;

use std::path::PathBuf;

use calls::{Calls, MIB, OUT_OF_MEMORY, take};
use harness::{Sim, cc, cuda_wheel, root};

const LIMIT: u64 = 100 * MIB;
/// 4 MiB as a block, a little less in a pool.
const BYTES: u64 = 3_000_000;

/// Entry, bytes, how many fit, what they hold together: 25 blocks of 4 MiB, or what goes into three steps of a pool.
type Row = (&'static str, u64, u64, u64);

const IN_BLOCKS: [Row; 3] = [("alloc", BYTES, 25, LIMIT), ("pitch", BYTES, 25, LIMIT), ("managed", BYTES, 25, LIMIT)];
const OLD: [Row; 2] = [("alloc1", BYTES, 25, LIMIT), ("pitch1", BYTES, 25, LIMIT)];
const POOLED: [Row; 1] = [("async", BYTES, 33, 96 * MIB)];
const FROM_POOL: [Row; 1] = [("frompool", BYTES, 33, 96 * MIB)];
const PER_THREAD: [Row; 2] = [("async_ptsz", BYTES, 33, 96 * MIB), ("frompool_ptsz", BYTES, 33, 96 * MIB)];
const PHYSICAL: [Row; 1] = [("create", 4 * MIB, 25, LIMIT)];

/// All exported allocating names.
fn every_name() -> Vec<Row> {
    [by_address(), PER_THREAD.to_vec()].concat()
}

/// What cuGetProcAddress gives by base name; with a flag that is the `_ptsz` variant where there is one.
fn by_address() -> Vec<Row> {
    [&IN_BLOCKS[..], &OLD, &POOLED, &FROM_POOL, &PHYSICAL].concat()
}

/// What the runtime has for it.
fn by_runtime() -> Vec<Row> {
    [&IN_BLOCKS[..], &POOLED, &FROM_POOL, &PER_THREAD].concat()
}

/// Fills up to the limit by every call in turn.
#[track_caller]
fn holds(program: PathBuf, arguments: &[&str], rows: &[Row]) {
    let sim = Sim::new();
    let limit = format!("{LIMIT}B");
    let mut calls = Calls::run(&sim, sim.run(program).args(arguments).capped(&limit));
    calls.ok("retain 0");
    assert_eq!(calls.info(), (LIMIT, LIMIT), "{arguments:?}");
    for &(entry, bytes, fit, held) in rows {
        if entry.starts_with("frompool") {
            calls.ok("pool_create 0");
        }
        let filled = calls.gets(&format!("fill {entry} {bytes}"), OUT_OF_MEMORY);
        assert_eq!(filled.values, [fit], "{entry}: {}", filled.line);
        assert!(filled.line.ends_with(" untouched"), "{entry}: {}", filled.line);
        assert_eq!(calls.held(), held, "{entry}: {} of {bytes} bytes", filled.values[0]);
        let again = take(entry, "again", bytes);
        calls.refused(&again);
        calls.ok("free fill");
        calls.ok(&again);
        calls.refused(&again);
        calls.ok("free_all");
        calls.ok("sync");
        assert_eq!(calls.held(), 0, "{entry}");
        assert!(calls.peak(0) <= LIMIT, "{entry}: {}", calls.peak(0));
        if entry.starts_with("frompool") {
            calls.ok("pool_destroy");
        }
    }
    assert_eq!(calls.peak(0), LIMIT, "everything that the limit allows was had");
    calls.end();
}

fn linked(flag: &str) -> PathBuf {
    cc("calls.c", &["-DLINKED", "-lcuda", flag])
}

fn plugin(flag: &str) -> String {
    let flags = ["-DPLUGIN", "-DLINKED", "-shared", "-fPIC", "-lcuda", flag];
    cc("calls.c", &flags).display().to_string()
}

/// Fills from a plugin that the host loads as `how`.
#[track_caller]
fn holds_in_plugin(flag: &str, how: &str, way: &str) {
    holds(cc("host.c", &[]), &[&plugin(flag), how, way], &every_name());
}

#[test]
fn the_cap_holds_in_a_program_linked_lazily() {
    holds(linked("-Wl,-z,lazy"), &["linked"], &every_name());
}

#[test]
fn the_cap_holds_in_a_program_linked_with_bind_now() {
    holds(linked("-Wl,-z,now"), &["linked"], &every_name());
}

#[test]
fn the_cap_holds_in_a_program_linked_without_a_plt() {
    holds(linked("-fno-plt"), &["linked"], &every_name());
}

#[test]
fn the_cap_holds_in_a_linked_program_that_looks_names_up_too() {
    for way in ["dlsym", "deepbind", "default", "next"] {
        holds(linked("-Wl,-z,lazy"), &[way], &every_name());
    }
}

#[test]
fn the_cap_holds_by_dlsym_of_a_handle() {
    holds(cc("calls.c", &[]), &["dlsym"], &every_name());
}

#[test]
fn the_cap_holds_by_dlsym_of_a_handle_opened_with_deepbind() {
    holds(cc("calls.c", &[]), &["deepbind"], &every_name());
}

#[test]
fn the_cap_holds_by_dlsym_of_the_default_scope() {
    holds(cc("calls.c", &[]), &["default"], &every_name());
}

#[test]
fn the_cap_holds_by_dlsym_of_the_next_definition() {
    holds(cc("calls.c", &[]), &["next"], &every_name());
}

#[test]
fn the_cap_holds_by_the_first_cu_get_proc_address() {
    holds(cc("calls.c", &[]), &["gpa1"], &by_address());
}

#[test]
fn the_cap_holds_by_the_second_cu_get_proc_address_with_every_flag() {
    for flags in ["gpa2:0", "gpa2:1", "gpa2:2", "gpa2:3"] {
        holds(cc("calls.c", &[]), &[flags], &by_address());
    }
}

#[test]
fn the_cap_holds_by_addresses_from_drivers_of_every_age() {
    for (driver, way) in [("11050", "gpa1"), ("12020", "gpa2"), ("13000", "gpa1"), ("13050", "gpa2")] {
        let sim = Sim::with(&[("DRIVER", driver)]);
        let mut calls = Calls::run(&sim, sim.run(cc("calls.c", &[])).arg(way).capped("100MiB"));
        calls.ok("retain 0");
        for &(entry, bytes, fit, _) in &[&IN_BLOCKS[..], &POOLED].concat() {
            let filled = calls.gets(&format!("fill {entry} {bytes}"), OUT_OF_MEMORY);
            assert_eq!(filled.values, [fit], "{driver} {way} {entry}");
            calls.ok("free_all");
            calls.ok("sync");
            calls.holds(0);
        }
        calls.end();
    }
}

fn runtime(version: &str) {
    let way = format!("cudart:{}", cuda_wheel(version).display());
    holds(cc("calls.c", &[]), &[&way], &by_runtime());
}

#[test]
fn the_cap_holds_through_the_cuda_11_8_runtime() {
    runtime("11.8");
}

#[test]
fn the_cap_holds_through_the_cuda_12_9_runtime() {
    runtime("12.9");
}

#[test]
fn the_cap_holds_through_the_cuda_13_5_runtime() {
    runtime("13.5");
}

#[test]
fn the_cap_holds_through_a_runtime_linked_statically() {
    for library in
        ["cudart-12.9/nvidia/cuda_runtime/lib/libcudart_static.a", "cudart-13.5/nvidia/cu13/lib/libcudart_static.a"]
    {
        let library = root().join("target/wheels").join(library);
        let library = library.to_str().expect("an ordinary path");
        let program = cc("calls.c", &["-DSTATIC", library, "-lrt", "-lstdc++"]);
        holds(program, &["static"], &by_runtime());
    }
}

#[test]
fn the_cap_holds_in_a_plugin_linked_lazily() {
    holds_in_plugin("-Wl,-z,lazy", "lazy", "linked");
}

#[test]
fn the_cap_holds_in_a_plugin_linked_with_bind_now() {
    holds_in_plugin("-Wl,-z,now", "now", "linked");
}

#[test]
fn the_cap_holds_in_a_plugin_linked_lazily_and_loaded_with_deepbind() {
    holds_in_plugin("-Wl,-z,lazy", "deepbind-lazy", "linked");
}

#[test]
fn the_cap_holds_in_a_plugin_linked_with_bind_now_and_loaded_with_deepbind() {
    holds_in_plugin("-Wl,-z,now", "deepbind-now", "linked");
}

#[test]
fn the_cap_holds_in_a_plugin_of_another_namespace() {
    for flag in ["-Wl,-z,lazy", "-Wl,-z,now", "-fno-plt"] {
        holds_in_plugin(flag, "dlmopen", "linked");
    }
}

#[test]
fn the_cap_holds_in_a_plugin_that_looks_names_up() {
    for how in ["lazy", "deepbind-now", "dlmopen"] {
        for way in ["dlsym", "deepbind", "default", "next"] {
            holds_in_plugin("-Wl,-z,lazy", how, way);
        }
    }
}

#[test]
fn the_cap_holds_in_a_plugin_that_asks_for_addresses() {
    for how in ["lazy", "deepbind-now", "dlmopen"] {
        for way in ["gpa1", "gpa2:2"] {
            let plugin = plugin("-Wl,-z,lazy");
            holds(cc("host.c", &[]), &[&plugin, how, way], &by_address());
        }
    }
}

#[test]
fn the_cap_holds_through_runtimes_that_a_plugin_loads() {
    for how in ["lazy", "deepbind-now", "dlmopen"] {
        for version in ["11.8", "12.9", "13.5"] {
            let way = format!("cudart:{}", cuda_wheel(version).display());
            let plugin = plugin("-Wl,-z,lazy");
            holds(cc("host.c", &[]), &[&plugin, how, &way], &by_runtime());
        }
    }
}
