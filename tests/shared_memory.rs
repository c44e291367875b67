//! Memory under several names or in several processes: whoever allocated it pays, once.

mod session;

use harness::Sim;
use session::{MIB, OUT_OF_MEMORY, Session};

/// Makes 8 MiB in slot `h` that can be exported, and exports it: the descriptor in slot `f`.
fn export(session: &mut Session) {
    session.set("physical", &[(0, 4, 1), (4, 4, 1), (8, 4, 1)]);
    session.ok("cuMemCreate &h 8M &physical 0");
    session.ok("cuMemExportToShareableHandle &f $h 1 0");
}

#[test]
fn an_importer_pays_nothing_and_the_exporter_once() {
    let sim = Sim::new();
    let (mut exporter, mut importer) = (Session::capped(&sim, "8MiB"), Session::capped(&sim, "2MiB"));
    export(&mut exporter);
    exporter.holds(8 * MIB);
    let path = format!("/proc/{}/fd/{}", exporter.pid(), exporter.value("f"));
    importer.ok(&format!("open f {path}"));
    importer.ok("cuMemImportFromShareableHandle &h $f 1");
    importer.ok("cuMemAddressReserve &v 8M 0 0 0");
    importer.ok("cuMemMap $v 8M 0 $h 0");
    importer.holds(0);
    importer.ok("cuMemAlloc_v2 &a 2M");
    importer.holds(2 * MIB);
    importer.ok("cuMemUnmap $v 8M");
    importer.ok("cuMemRelease $h");
    importer.holds(2 * MIB);
    exporter.holds(8 * MIB);
    importer.end();
    exporter.end();
}

#[test]
fn what_a_process_imports_of_its_own_is_one_more_reference_to_it() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "8MiB");
    export(&mut session);
    session.ok("cuMemImportFromShareableHandle &again $f 1");
    session.ok("close $f");
    session.holds(8 * MIB);
    session.ok("cuMemRelease $h");
    session.holds(8 * MIB);
    session.refused("cuMemAlloc_v2 &out 2M");
    session.ok("cuMemRelease $again");
    session.holds(0);
    session.ok("cuMemAlloc_v2 &a 8M");
    session.end();
}

#[test]
fn exported_memory_that_somebody_keeps_alive_still_counts_for_the_process_that_the_driver_shows_it_for() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "10MiB");
    export(&mut session);
    session.ok("cuMemRelease $h");
    // Its block is gone, but the device has not got the bytes back: they are overhead now.
    assert_eq!(session.used(), 8 * MIB);
    session.refused("cuMemAlloc_v2 &out 4M");
    session.ok("close $f");
    session.ok("cuMemAlloc_v2 &a 10M");
    session.holds(10 * MIB);
    session.end();
}

#[test]
fn memory_of_another_process_is_opened_and_closed_as_without_us_and_costs_nothing() {
    let sim = Sim::new();
    let (mut exporter, mut importer) = (Session::capped(&sim, "8MiB"), Session::capped(&sim, "2MiB"));
    exporter.ok("cuMemAlloc_v2 &a 8M");
    exporter.ok("cuIpcGetMemHandle &h $a");
    let handle = exporter.bytes("h");
    importer.set_bytes("h", &handle);
    importer.ok("cuIpcOpenMemHandle_v2 &p 1 : *h");
    importer.ok("cuIpcOpenMemHandle &q 1 : *h");
    importer.holds(0);
    importer.ok("cuMemAlloc_v2 &b 2M");
    // The driver's own answer: such memory is closed, not freed.
    importer.gets("cuMemFree_v2 $p", 1);
    importer.ok("cuIpcCloseMemHandle $p");
    importer.ok("cuIpcCloseMemHandle $q");
    importer.holds(2 * MIB);
    exporter.holds(8 * MIB);
    exporter.ok("cuMemFree_v2 $a");
    exporter.holds(0);
    importer.end();
    exporter.end();
}

#[test]
fn pools_that_nobody_created_are_charged_by_the_place_that_they_are_for() {
    let sim = Sim::with(&[("DRIVER", "13050")]);
    for get in ["cuMemGetDefaultMemPool", "cuMemGetMemPool"] {
        let mut session = Session::capped(&sim, "64MiB");
        session.set("host", &[(0, 4, 2)]);
        session.set("device", &[(0, 4, 1)]);
        session.ok(&format!("{get} &pool &host 1"));
        session.ok("cuMemAllocFromPoolAsync &h 256M $pool null");
        session.holds(0);
        session.ok("cuMemFreeAsync $h null");
        session.ok(&format!("{get} &pool &device 2"));
        session.ok("cuMemAllocFromPoolAsync &m 64M $pool null");
        session.holds(64 * MIB);
        session.set("out", &[(0, 8, 0)]);
        session.gets("cuMemAllocFromPoolAsync &out 32M $pool null", OUT_OF_MEMORY);
        session.gets("cuMemAllocAsync &out 32M null", OUT_OF_MEMORY);
        assert_eq!(session.peak(), 64 * MIB);
        session.end();
    }
}

#[test]
fn default_pools_and_created_ones_with_a_maximum_of_their_own_share_one_limit() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "4GiB");
    session.set("props", &[(0, 4, 1), (8, 4, 1), (24, 8, 8192 * MIB)]);
    session.ok("cuMemPoolCreate &one &props");
    session.ok("cuMemPoolCreate &two &props");
    let takes = [
        "cuMemAllocFromPoolAsync &a 128M $one null",
        "cuMemAllocFromPoolAsync &a 128M $two null",
        "cuMemAllocAsync &a 128M null",
    ];
    for at in 0..32 {
        session.ok(takes[at % 3]);
    }
    session.holds(4096 * MIB);
    for take in takes {
        session.gets(take, OUT_OF_MEMORY);
    }
    assert_eq!(session.peak(), 4096 * MIB);
    session.end();
}

#[test]
fn memory_of_another_interface_is_mapped_and_freed_as_without_us_and_costs_nothing() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "2MiB");
    session.set("description", &[(0, 4, 1), (8, 4, 0), (24, 8, 1024 * MIB)]);
    session.set("buffer", &[(0, 8, 0), (8, 8, 1024 * MIB)]);
    session.ok("cuImportExternalMemory &memory &description");
    session.ok("cuExternalMemoryGetMappedBuffer &p $memory &buffer");
    session.holds(0);
    session.ok("cuMemAlloc_v2 &a 2M");
    let frees = session.process().calls("cuMemFree_v2");
    session.ok("cuMemFree_v2 $p");
    session.gets("cuMemFree_v2 $p", 1);
    assert_eq!(session.process().calls("cuMemFree_v2"), frees + 2);
    session.ok("cuDestroyExternalMemory $memory");
    session.holds(2 * MIB);
    session.end();
}

#[test]
fn a_green_context_holds_the_primary_one_and_its_memory() {
    let sim = Sim::with(&[("DRIVER", "13050")]);
    let mut session = Session::capped(&sim, "64MiB");
    session.ok("cuGreenCtxCreate &green 1 0 1");
    session.ok("cuMemAlloc_v2 &a 32M");
    session.ok("cuDevicePrimaryCtxRelease_v2 0");
    session.holds(32 * MIB);
    session.ok("cuMemFree_v2 $a");
    session.ok("cuMemAlloc_v2 &a 64M");
    session.ok("cuGreenCtxDestroy $green");
    assert_eq!(session.process().per_device[0].blocks, 0);
    session.ok("cuDevicePrimaryCtxRetain &c 0");
    session.ok("cuCtxSetCurrent $c");
    session.holds(0);
    session.ok("cuMemAlloc_v2 &a 64M");
    assert_ne!(session.call("cuGreenCtxDestroy $green"), 0);
    session.holds(64 * MIB);
    session.end();
}

#[test]
fn memory_that_is_bound_to_a_multicast_object_or_an_endpoint_is_charged_until_it_is_unbound() {
    let sim = Sim::with(&[("DRIVER", "13050")]);
    let ways = [
        ("cuMulticastBindMem $object 0 $h 0 8M 0", "cuMulticastUnbind $object 0 0 8M"),
        ("cuMulticastBindMem_v2 $object 0 2M $h 0 8M 0", "cuMulticastUnbind $object 0 2M 8M"),
        ("cuMulticastBindAddr $object 0 $v 8M 0", "cuMulticastUnbind $object 0 0 8M"),
        ("cuMulticastBindAddr_v2 $object 0 4M $v 8M 0", "cuMulticastUnbind $object 0 0 16M"),
        ("cuMulticastBindMem $object 0 $h 0 8M 0", "cuMemRelease $object"),
        ("cuLogicalEndpointBindMem 7 0 0 $h 0 8M 0", "cuLogicalEndpointUnbind 7 0 0 8M"),
        ("cuLogicalEndpointBindAddr 7 0 0 $v 8M 0", "cuLogicalEndpointDestroy 7"),
    ];
    for (bind, unbind) in ways {
        let mut session = Session::capped(&sim, "8MiB");
        session.set("physical", &[(0, 4, 1), (8, 4, 1)]);
        session.ok("cuMulticastCreate &object &properties");
        session.ok("cuMulticastAddDevice $object 0");
        session.ok("cuMemCreate &h 8M &physical 0");
        session.ok("cuMemAddressReserve &v 8M 0 0 0");
        session.ok("cuMemMap $v 8M 0 $h 0");
        session.ok(bind);
        session.ok("cuMemUnmap $v 8M");
        session.ok("cuMemRelease $h");
        session.holds(8 * MIB);
        session.refused("cuMemAlloc_v2 &out 2M");
        session.ok(unbind);
        session.holds(0);
        session.ok("cuMemAlloc_v2 &a 8M");
        session.end();
    }
}
