use crate::{Bench, Session};

#[test]
fn two_processes_share_the_device_exactly_and_a_killed_one_gives_back() {
    let bench = Bench::new(&[("TOTAL_MIB", "100")]);
    let (mut first, mut second) = (bench.session(), bench.session());
    first.code("cuMemAlloc_v2 &a 60M", 0);
    second.code("cuMemAlloc_v2 &a 42M", 2);
    second.code("cuMemAlloc_v2 &a 40M", 0);
    assert_eq!(first.value("cuMemGetInfo_v2 &f &t"), 0);
    second.child.kill();
    assert_eq!(first.value("cuMemGetInfo_v2 &f &t"), 40 << 20);
    first.code("cuMemAlloc_v2 &b 40M", 0);
}

#[test]
fn a_forked_child_of_an_initialised_process_is_not_initialised() {
    let bench = Bench::new(&[]);
    let (answers, out) = bench.run(&[
        "cuMemAlloc_v2 &a 4M",
        "fork",
        "cuInit 0",
        "cuMemAlloc_v2 &b 4M",
        "cuMemFree_v2 $a",
        "cuMemGetInfo_v2 &f &t",
    ]);
    let child: u32 = answers[1].trim_start_matches("fork ").parse().expect("a pid");
    let codes: Vec<&str> = answers[2..].iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(codes, ["3", "3", "3", "3"], "{out}");
    let records = bench.sim.truth();
    assert_eq!(records.process(out.pid).expect("it ran").calls("cuMemAlloc_v2"), 1);
    let child = records.process(child).expect("it called too");
    assert_eq!((child.calls("cuMemAlloc_v2"), child.per_device[0].peak_pages), (1, 0));
}

#[test]
fn a_child_forked_before_init_has_a_driver_of_its_own() {
    let bench = Bench::new(&[]);
    let commands = [
        "cuDriverGetVersion &v",
        "fork",
        "cuInit 0",
        "cuDevicePrimaryCtxRetain &c 0",
        "cuCtxSetCurrent $c",
        "cuMemAlloc_v2 &a 4M",
    ];
    let out = bench.sim.run(harness::cc("driver.c", &[])).args(commands).out();
    assert!(out.ok().stdout.contains("cuMemAlloc_v2 0"), "{out}");
}

#[test]
fn memory_opened_through_ipc_is_the_exporters_bytes_and_its_cost() {
    let bench = Bench::new(&[]);
    let (mut exporter, mut importer) = (bench.session(), bench.session());
    for bytes in ["4M", "5000"] {
        exporter.code(&format!("cuMemAlloc_v2 &a {bytes}"), 0);
        exporter.code("cuMemsetD8_v2 $a 42 5000", 0);
        exporter.code("cuIpcGetMemHandle &h $a", 0);
        exporter.code("cuIpcOpenMemHandle_v2 &x 1 : *h", 201);
        let handle = exporter.ask("bytes h");
        importer.ask(&handle.replace("bytes ", "bytes h "));
        importer.code("cuIpcOpenMemHandle_v2 &p 0 : *h", 1);
        let first = importer.value("cuIpcOpenMemHandle_v2 &p 1 : *h");
        assert_eq!(importer.value("cuIpcOpenMemHandle &r 1 : *h"), first);
        assert_eq!(importer.ask("peek $p+4999"), "peek 42");
        importer.code("cuMemsetD8_v2 $p 43 1", 0);
        assert_eq!(exporter.ask("peek $a"), "peek 43");
        assert_eq!(bench.mib(importer.pid()), (0, 0));
        importer.code("cuMemFree_v2 $p", 1);
        importer.code("cuIpcCloseMemHandle $p", 0);
        importer.code("cuIpcCloseMemHandle $p", 0);
        importer.code("cuIpcCloseMemHandle $p", 1);
        exporter.code("cuMemFree_v2 $a", 0);
    }
    assert_eq!(bench.mib(exporter.pid()), (0, 0));
}

/// Exports 8 MiB from `exporter` and imports it into `importer` through /proc, as handle `h` in both; the descriptor stays
/// open in the exporter, in its slot `f`.
fn share(exporter: &mut Session, importer: &mut Session) {
    for (offset, value) in [(0, 1), (4, 1), (8, 1)] {
        exporter.ask(&format!("set q {offset} 4 {value}"));
    }
    exporter.code("cuMemCreate &h 8M &q 0", 0);
    let fd = exporter.value("cuMemExportToShareableHandle &f $h 1 0");
    let path = format!("/proc/{}/fd/{fd}", exporter.pid());
    assert_eq!(importer.ask(&format!("open f {path}")), "open 0");
    importer.code("cuMemImportFromShareableHandle &h $f 1", 0);
    importer.ask("close $f");
}

#[test]
fn an_importer_pays_nothing_and_sees_the_same_bytes() {
    let bench = Bench::new(&[]);
    let (mut exporter, mut importer) = (bench.session(), bench.session());
    share(&mut exporter, &mut importer);
    for session in [&mut exporter, &mut importer] {
        session.code("cuMemAddressReserve &v 8M 0 0 0", 0);
        session.code("cuMemMap $v 8M 0 $h 0", 0);
    }
    exporter.ask("poke $v 77");
    assert_eq!(importer.ask("peek $v"), "peek 77");
    assert_eq!((bench.mib(exporter.pid()), bench.mib(importer.pid())), ((8, 8), (0, 0)));
    importer.code("cuMemGetAllocationPropertiesFromHandle &q $h", 0);
    assert_eq!(importer.ask("get q 8 4"), "get 1");
}

#[test]
fn exported_memory_lives_while_anybody_holds_it_or_a_descriptor_of_it() {
    let bench = Bench::new(&[]);
    let (mut exporter, mut importer) = (bench.session(), bench.session());
    share(&mut exporter, &mut importer);
    exporter.code("cuMemRelease $h", 0);
    // The exporter's blocks end with its own last reference; the device still has the bytes.
    assert_eq!(bench.mib(exporter.pid()), (0, 8));
    importer.code("cuMemRelease $h", 0);
    assert_eq!(bench.sim.truth().device(0).used, 8 << 20);
    exporter.ask("close $f");
    assert_eq!(bench.sim.truth().device(0).used, 0);
    assert_eq!(bench.mib(exporter.pid()), (0, 0));
}

#[test]
fn whoever_still_holds_memory_inherits_its_cost_from_a_dead_exporter() {
    let bench = Bench::new(&[]);
    let (mut exporter, mut importer) = (bench.session(), bench.session());
    share(&mut exporter, &mut importer);
    exporter.child.kill();
    assert_eq!(bench.sim.truth().device(0).used, 8 << 20);
    assert_eq!(bench.mib(importer.pid()), (0, 8));
    importer.code("cuMemRelease $h", 0);
    assert_eq!(bench.sim.truth().device(0).used, 0);
    assert_eq!(bench.mib(importer.pid()), (0, 0));
}

#[test]
fn memory_imported_by_its_own_process_is_the_same_handle_once_more() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.ask("set q 0 4 1");
    session.ask("set q 4 4 1");
    session.ask("set q 8 4 1");
    let handle = session.value("cuMemCreate &h 8M &q 0");
    session.code("cuMemExportToShareableHandle &f $h 1 0", 0);
    assert_eq!(session.value("cuMemImportFromShareableHandle &i $f 1"), handle);
    session.ask("close $f");
    session.code("cuMemRelease $h", 0);
    assert_eq!(bench.mib(session.pid()), (8, 8));
    session.code("cuMemRelease $h", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
    session.code("cuMemImportFromShareableHandle &i 0 1", 1);
    session.code("cuMemImportFromShareableHandle &i 999 1", 1);
}
