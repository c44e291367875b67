use crate::Bench;

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
