use crate::Bench;

#[test]
fn a_pool_is_charged_by_what_it_reserves() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.code("cuMemAllocAsync &a 1M 0", 0);
    assert_eq!(bench.mib(session.pid()), (32, 32));
    session.code("cuMemAllocAsync &b 31M 0", 0);
    assert_eq!(bench.mib(session.pid()), (32, 32));
    session.code("cuMemAllocAsync &d 1 0", 0);
    assert_eq!(bench.mib(session.pid()), (64, 64));
    session.value("cuDeviceGetDefaultMemPool &p 0");
    assert_eq!(session.value("cuMemPoolGetAttribute $p 5 &v"), 64 << 20);
    assert_eq!(session.value("cuMemPoolGetAttribute $p 7 &v"), (32 << 20) + 512);
    session.code("cuMemFreeAsync $d 0", 0);
    session.code("cuMemFree_v2 $b", 0);
    assert_eq!(bench.mib(session.pid()), (64, 64));
    session.code("cuStreamSynchronize 0", 0);
    assert_eq!(bench.mib(session.pid()), (32, 32));
    assert_eq!(session.value("cuMemPoolGetAttribute $p 6 &v"), 64 << 20);
    session.code("cuMemFreeAsync $a 0", 0);
    session.code("cuMemPoolTrimTo $p 1", 0);
    assert_eq!(bench.mib(session.pid()), (32, 32));
    session.code("cuMemPoolTrimTo $p 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
    session.code("cuMemFreeAsync $a 0", 1);
}

#[test]
fn the_release_threshold_keeps_memory_over_synchronisations() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.value("cuDeviceGetDefaultMemPool &p 0");
    session.ask("set v 0 8 -1");
    session.code("cuMemPoolSetAttribute $p 4 &v", 0);
    session.code("cuMemAllocAsync &a 100M 0", 0);
    session.code("cuMemFreeAsync $a 0", 0);
    session.code("cuCtxSynchronize", 0);
    assert_eq!(bench.mib(session.pid()), (128, 128));
    session.ask("set v 0 8 64M");
    session.code("cuMemPoolSetAttribute $p 4 &v", 0);
    session.code("cuCtxSynchronize", 0);
    assert_eq!(bench.mib(session.pid()), (64, 64));
}

#[test]
fn a_destroyed_pool_lives_until_its_last_block() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.ask("set q 0 4 1");
    session.ask("set q 8 4 1");
    session.code("cuMemPoolCreate &p &q", 0);
    session.code("cuMemAllocFromPoolAsync &a 1M $p 0", 0);
    session.code("cuMemAllocFromPoolAsync_ptsz &b 1M $p 0", 0);
    session.code("cuMemFreeAsync_ptsz $b 0", 0);
    session.code("cuMemPoolDestroy $p", 0);
    session.code("cuMemPoolDestroy $p", 1);
    session.code("cuMemAllocFromPoolAsync &b 1M $p 0", 1);
    session.code("cuStreamSynchronize 0", 0);
    assert_eq!(bench.mib(session.pid()), (32, 32));
    session.code("cuMemFreeAsync $a 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
}

#[test]
fn the_current_pool_serves_and_a_destroyed_one_gives_way_to_the_default() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.ask("set q 0 4 1");
    session.ask("set q 8 4 1");
    session.ask("set q 24 8 40M");
    session.code("cuMemPoolCreate &p &q", 0);
    session.code("cuDeviceSetMemPool 0 $p", 0);
    assert_eq!(session.value("cuDeviceGetMemPool &x 0"), session.value("cuMemPoolCreate &r &q") - 16);
    session.code("cuMemAllocAsync &a 41M 0", 2);
    session.code("cuMemAllocAsync &a 40M 0", 0);
    assert_eq!(session.value("cuMemPoolGetAttribute $p 5 &v"), 40 << 20);
    session.code("cuMemPoolDestroy $p", 0);
    session.code("cuMemAllocAsync &b 41M 0", 0);
    session.value("cuDeviceGetDefaultMemPool &d 0");
    session.code("cuMemPoolDestroy $d", 1);
    assert_eq!(session.value("cuMemPoolGetAttribute $d 5 &v"), 64 << 20);
}

#[test]
fn pools_of_host_memory_cost_the_device_nothing() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.ask("set l 0 4 2");
    session.code("cuMemGetDefaultMemPool &p &l 1", 0);
    session.code("cuMemAllocFromPoolAsync &a 100M $p 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
    session.code("cuMemFreeAsync $a 0", 0);
    session.ask("set l 0 4 1");
    assert_eq!(session.value("cuMemGetMemPool &p &l 1"), session.value("cuDeviceGetDefaultMemPool &d 0"));
}

#[test]
fn hostile_pool_calls_are_refused() {
    let bench = Bench::new(&[("TOTAL_MIB", "64")]);
    let mut session = bench.session();
    session.code("cuMemAllocAsync null 1 0", 1);
    session.code("cuMemAllocAsync &a 0 0", 1);
    session.code("cuMemAllocAsync &a -1 0", 2);
    session.code("cuMemAllocAsync &a 65M 0", 2);
    session.code("cuMemAllocAsync &a 1M 12345", 400);
    session.code("cuMemAllocFromPoolAsync &a 1M 12345 0", 1);
    session.code("cuMemFreeAsync 12345 0", 1);
    session.code("cuMemPoolTrimTo 0 0", 1);
    session.code("cuMemPoolGetAttribute 0 5 &v", 1);
    assert_eq!(bench.held(session.pid()).peak_pages, 0);
}
