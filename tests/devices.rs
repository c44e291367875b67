//! Several devices: each has its limit, and memory is charged to the device that it lies on.

mod calls;

use calls::{Calls, MIB, OUT_OF_MEMORY, take};
use harness::{Sim, cc};

fn two() -> Sim {
    Sim::with(&[("DEVICES", "2"), ("TOTAL_MIB", "1000,2000")])
}

/// A program with a context on each device, `c0` and `c1`; the first is current.
#[track_caller]
fn start(sim: &Sim, limit: &str) -> Calls {
    let mut calls = Calls::without_context(sim, limit);
    for device in ["0", "1"] {
        calls.ok(&format!("retain {device}"));
        calls.ok(&format!("keep_ctx c{device}"));
    }
    go(&mut calls, 0);
    calls
}

/// Makes the context of a device current.
#[track_caller]
fn go(calls: &mut Calls, device: usize) {
    calls.ok(&format!("use_ctx c{device}"));
    calls.device = device;
}

/// Requires what is held on both devices, by the books and in truth.
#[track_caller]
fn hold(calls: &mut Calls, bytes: [u64; 2]) {
    let back = calls.device;
    for (device, bytes) in bytes.into_iter().enumerate() {
        go(calls, device);
        assert_eq!(calls.held(), bytes, "device {device}");
    }
    go(calls, back);
}

#[test]
fn two_devices_have_their_own_limits() {
    let sim = two();
    let mut calls = start(&sim, "0=100MiB,1=200MiB");
    for (device, limit) in [(0, 100), (1, 200)] {
        go(&mut calls, device);
        assert_eq!(calls.info(), (limit * MIB, limit * MIB));
        let total = calls.ok(&format!("total {device}")).values;
        assert_eq!(total, [limit * MIB]);
        let filled = calls.gets(&format!("fill alloc {}", 20 * MIB), OUT_OF_MEMORY);
        assert_eq!(filled.values, [limit / 20]);
    }
    hold(&mut calls, [100 * MIB, 200 * MIB]);
    assert_eq!((calls.peak(0), calls.peak(1)), (100 * MIB, 200 * MIB));
    calls.ok("free_all");
    hold(&mut calls, [0, 0]);
    calls.end();
}

#[test]
fn a_share_is_of_each_devices_own_total() {
    let sim = two();
    let mut calls = start(&sim, "30%");
    assert_eq!(calls.info().1, 300 * MIB);
    go(&mut calls, 1);
    assert_eq!(calls.info().1, 600 * MIB);
    calls.end();
    let mut calls = start(&sim, "1=total-500MiB,*=0.5");
    assert_eq!(calls.info().1, 500 * MIB);
    go(&mut calls, 1);
    assert_eq!(calls.info().1, 1500 * MIB);
    calls.end();
}

#[test]
fn a_device_with_limit_zero_gives_contexts_and_no_memory() {
    let sim = two();
    let mut calls = start(&sim, "0=500MiB,1=0");
    go(&mut calls, 1);
    assert_eq!(calls.info(), (0, 0));
    assert_eq!(calls.ok("total 1").values, [0]);
    calls.ok("pool_create 1");
    for entry in ["alloc", "alloc1", "pitch", "pitch1", "managed", "async", "async_ptsz", "frompool", "frompool_ptsz"] {
        calls.refused(&take(entry, "a", 2 * MIB));
    }
    calls.refused("take create a 2097152 1");
    go(&mut calls, 0);
    calls.refused("take create a 2097152 1");
    calls.refused(&take("frompool", "a", 2 * MIB));
    calls.ok(&take("alloc", "a", 500 * MIB));
    hold(&mut calls, [500 * MIB, 0]);
    assert_eq!(calls.peak(1), 0);
    calls.end();
}

#[test]
fn a_device_without_an_entry_is_uncapped_and_said_once() {
    let sim = two();
    let mut calls = start(&sim, "1=100MiB");
    assert_eq!(calls.info(), (1000 * MIB, 1000 * MIB));
    calls.ok(&take("alloc", "a", 900 * MIB));
    go(&mut calls, 1);
    calls.refused(&take("alloc", "b", 101 * MIB));
    let out = calls.end();
    let warnings = out.stderr.lines().filter(|line| line.contains("warning") && !line.contains("denied"));
    assert_eq!(warnings.count(), 1, "{}", out.stderr);
}

#[test]
fn memory_is_charged_to_the_device_of_the_current_context() {
    let sim = two();
    let mut calls = start(&sim, "500MiB");
    for (n, entry) in ["alloc", "alloc1", "pitch", "pitch1", "managed"].iter().enumerate() {
        let n = n as u64;
        go(&mut calls, 0);
        calls.ok(&take(entry, &format!("{entry}0"), 10 * MIB));
        go(&mut calls, 1);
        calls.ok(&take(entry, &format!("{entry}1"), 20 * MIB));
        hold(&mut calls, [10 * (n + 1) * MIB, 20 * (n + 1) * MIB]);
    }
    // Freed under the other device's context, it is that of its own device that ends.
    go(&mut calls, 1);
    calls.ok("free alloc0");
    calls.ok("free pitch10");
    hold(&mut calls, [30 * MIB, 100 * MIB]);
    go(&mut calls, 0);
    calls.ok("free alloc1");
    hold(&mut calls, [30 * MIB, 80 * MIB]);
    calls.end();
}

#[test]
fn a_pool_is_charged_to_its_own_device() {
    let sim = two();
    let mut calls = start(&sim, "0=64MiB,1=200MiB");
    calls.ok("pool_create 1");
    for entry in ["frompool", "frompool_ptsz"] {
        calls.ok(&take(entry, entry, 70 * MIB));
    }
    hold(&mut calls, [0, 160 * MIB]);
    calls.refused(&take("frompool", "more", 70 * MIB));
    // The default pool of the current device, and one named by its handle.
    calls.ok(&take("async", "a", 20 * MIB));
    calls.ok("pool_default 1");
    calls.ok(&take("frompool", "b", 20 * MIB));
    hold(&mut calls, [32 * MIB, 192 * MIB]);
    calls.ok("free_all");
    calls.ok("sync");
    hold(&mut calls, [0, 0]);
    calls.end();
}

#[test]
fn a_stream_ordered_allocation_is_charged_to_its_streams_device() {
    let sim = two();
    let mut calls = start(&sim, "100MiB");
    go(&mut calls, 1);
    calls.ok("stream");
    go(&mut calls, 0);
    calls.ok(&take("async", "a", 20 * MIB));
    calls.ok(&take("async_ptsz", "b", 20 * MIB));
    hold(&mut calls, [0, 64 * MIB]);
    calls.refused(&take("async", "c", 70 * MIB));
    calls.ok("no_stream");
    calls.ok(&take("async", "c", 70 * MIB));
    hold(&mut calls, [96 * MIB, 64 * MIB]);
    calls.end();
}

#[test]
fn physical_memory_is_charged_to_the_device_that_it_names() {
    let sim = two();
    let mut calls = start(&sim, "0=10MiB,1=100MiB");
    calls.ok("take create h 67108864 1");
    hold(&mut calls, [0, 64 * MIB]);
    calls.refused("take create more 67108864 1");
    calls.refused("take create more 67108864 0");
    calls.ok("take create small 4194304 0");
    calls.ok("map h m");
    calls.ok("free h");
    hold(&mut calls, [4 * MIB, 64 * MIB]);
    go(&mut calls, 1);
    calls.ok("free small");
    hold(&mut calls, [0, 64 * MIB]);
    go(&mut calls, 0);
    calls.ok("unmap m");
    hold(&mut calls, [0, 0]);
    calls.end();
}

#[test]
fn idle_pools_of_other_devices_are_left_alone() {
    let sim = two();
    let mut calls = start(&sim, "100MiB");
    calls.ok("pool_create 1");
    calls.ok("pool_keep 18446744073709551615");
    calls.ok(&take("frompool", "a", 90 * MIB));
    calls.ok("free a");
    calls.ok("sync");
    calls.ok(&take("alloc", "b", 60 * MIB));
    calls.refused(&take("alloc", "c", 60 * MIB));
    hold(&mut calls, [60 * MIB, 96 * MIB]);
    calls.end();
}

#[test]
fn an_index_is_the_number_that_the_process_sees() {
    let sim = two();
    let run = |visible, limit| {
        let run = sim.run(cc("calls.c", &[])).arg("dlsym").capped(limit);
        let mut calls = Calls::run(&sim, run.env("CUDA_VISIBLE_DEVICES", visible));
        calls.ok("retain 0");
        calls
    };
    let mut calls = run("1", "0=100MiB,1=1MiB");
    calls.device = 1;
    assert_eq!(calls.info(), (100 * MIB, 100 * MIB));
    calls.ok(&take("alloc", "a", 60 * MIB));
    calls.refused(&take("create", "b", 60 * MIB));
    calls.holds(60 * MIB);
    assert_eq!(calls.really(0), 0);
    calls.end();
    // By UUID it is the same device whatever its number.
    let limit = format!("{}=50MiB,0=10MiB", sim.truth().device(1).uuid);
    let mut calls = run("1,0", &limit);
    calls.device = 1;
    assert_eq!(calls.info(), (50 * MIB, 50 * MIB));
    calls.ok(&take("alloc", "a", 50 * MIB));
    calls.refused(&take("alloc", "b", 1));
    calls.holds(50 * MIB);
    calls.end();
}
