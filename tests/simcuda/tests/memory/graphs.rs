use crate::Bench;

#[test]
fn memory_of_a_captured_allocation_is_taken_at_launch_and_kept_until_it_is_trimmed() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.value("cuStreamCreate &s 1");
    session.code("cuStreamBeginCapture_v2 $s 2", 0);
    session.code("cuMemAllocAsync &a 40M $s", 0);
    session.code("cuMemFreeAsync $a $s", 0);
    session.value("cuStreamEndCapture $s &g");
    assert_eq!(bench.mib(session.pid()), (0, 0));
    session.value("cuGraphInstantiateWithFlags &e $g 0");
    session.code("cuGraphLaunch $e $s", 0);
    session.code("cuGraphLaunch $e $s", 0);
    assert_eq!(bench.mib(session.pid()), (64, 64));
    assert_eq!(session.value("cuDeviceGetGraphMemAttribute 0 0 &v"), 0);
    assert_eq!(session.value("cuDeviceGetGraphMemAttribute 0 1 &v"), 40 << 20);
    assert_eq!(session.value("cuDeviceGetGraphMemAttribute 0 2 &v"), 64 << 20);
    session.code("cuDeviceGraphMemTrim 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
    assert_eq!(session.value("cuDeviceGetGraphMemAttribute 0 3 &v"), 64 << 20);
}

#[test]
fn memory_that_a_launch_left_is_freed_by_the_program_even_after_the_graph() {
    let bench = Bench::new(&[("TOTAL_MIB", "100")]);
    let mut session = bench.session();
    session.value("cuStreamCreate &s 1");
    session.code("cuStreamBeginCapture_v2 $s 2", 0);
    session.code("cuMemAllocAsync &a 40M $s", 0);
    session.value("cuStreamEndCapture $s &g");
    session.value("cuGraphInstantiateWithFlags &e $g 0");
    session.code("cuMemFree_v2 $a", 1);
    session.code("cuMemAlloc_v2 &b 50M", 0);
    session.code("cuGraphLaunch $e $s", 2);
    session.code("cuMemFree_v2 $b", 0);
    session.code("cuGraphLaunch $e $s", 0);
    session.code("cuGraphExecDestroy $e", 0);
    session.code("cuGraphDestroy $g", 0);
    assert_eq!(session.value("cuDeviceGetGraphMemAttribute 0 0 &v"), 40 << 20);
    session.code("cuMemsetD8_v2 $a 1 40M", 0);
    session.code("cuMemFreeAsync $a $s", 0);
    session.code("cuMemFree_v2 $a", 1);
    session.code("cuDeviceGraphMemTrim 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
}
