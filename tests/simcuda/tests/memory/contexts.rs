use crate::Bench;

#[test]
fn destroying_a_context_frees_its_memory_but_not_pools_and_handles() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.code("cuCtxCreate_v2 &d 0 0", 0);
    session.code("cuMemAlloc_v2 &a 10M", 0);
    session.code("cuMemAlloc_v2 &a 10", 0);
    session.code("cuMemAllocManaged &a 10M 1", 0);
    session.code("cuMemAllocAsync &p 10M 0", 0);
    session.ask("set q 0 4 1");
    session.ask("set q 8 4 1");
    session.code("cuMemCreate &h 20M &q 0", 0);
    session.code("cuCtxDestroy_v2 $d", 0);
    assert_eq!(bench.mib(session.pid()), (32 + 20, 32 + 20));
    assert_eq!(session.value("cuCtxGetCurrent &x"), session.value("cuDevicePrimaryCtxRetain &c 0"));
    session.code("cuCtxDestroy_v2 $d", 201);
    session.code("cuMemFree_v2 $a", 1);
}

#[test]
fn a_primary_context_keeps_its_handle_and_gets_a_new_id() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    let (handle, id) = (session.value("cuCtxGetCurrent &x"), session.value("cuCtxGetId $c &i"));
    session.code("cuMemAlloc_v2 &a 10M", 0);
    session.code("cuDevicePrimaryCtxReset_v2 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
    session.code("cuMemAlloc_v2 &a 10M", 709);
    assert_eq!(session.value("cuDevicePrimaryCtxRetain &c 0"), handle);
    assert_ne!(session.value("cuCtxGetId $c &i"), id);
    session.code("cuMemAlloc_v2 &a 10M", 0);
    // Resetting released nothing: two retains, two releases.
    session.code("cuDevicePrimaryCtxRelease_v2 0", 0);
    assert_eq!(bench.mib(session.pid()), (10, 10));
    session.code("cuDevicePrimaryCtxRelease_v2 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
    session.code("cuDevicePrimaryCtxRelease_v2 0", 201);
    assert!(session.code("cuDevicePrimaryCtxGetState 0 &f &s", 0).ends_with("s=0"));
}

#[test]
fn a_process_pays_for_its_contexts_once_a_device() {
    let bench = Bench::new(&[("CTX_MIB", "300"), ("TOTAL_MIB", "1000,100"), ("DEVICES", "2")]);
    let mut session = bench.session();
    assert_eq!(bench.held(session.pid()).overhead, 300 << 20);
    session.code("cuCtxCreate_v2 &d 0 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 300));
    session.code("cuCtxCreate_v2 &e 0 1", 2);
    session.code("cuDevicePrimaryCtxRelease_v2 0", 0);
    assert_eq!(bench.mib(session.pid()), (0, 300));
    session.code("cuCtxDestroy_v2 $d", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
}

#[test]
fn every_abi_of_context_creation_works_and_detach_destroys_the_last_user() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    for create in
        ["cuCtxCreate &d 0 0", "cuCtxCreate_v2 &d 0 0", "cuCtxCreate_v3 &d 0 0 0 0", "cuCtxCreate_v4 &d 0 0 0"]
    {
        session.code(create, 0);
        session.code("cuMemAlloc_v2 &a 2M", 0);
        session.code("cuCtxAttach &x 0", 0);
        session.code("cuCtxDetach $d", 0);
        assert_eq!(bench.mib(session.pid()), (2, 2));
        session.code("cuCtxDetach $d", 0);
        assert_eq!(bench.mib(session.pid()), (0, 0));
    }
    session.code("cuCtxCreate_v2 null 0 0", 1);
    session.code("cuCtxCreate_v2 &d 0 7", 101);
    session.code("cuCtxCreate_v2 &d 0x10000 0", 1);
    session.code("cuCtxDestroy_v2 $c", 201);
    session.code("cuCtxDestroy_v2 0", 201);
}

#[test]
fn contexts_are_pushed_popped_and_told_apart() {
    let bench = Bench::new(&[("DEVICES", "2"), ("TOTAL_MIB", "64,32")]);
    let mut session = bench.session();
    let second = session.value("cuCtxCreate_v2 &d 0 1");
    assert_eq!(session.value("cuCtxGetDevice &x"), 1);
    assert_eq!(session.value("cuMemGetInfo_v2 &f &t"), 32 << 20);
    session.code("cuMemAlloc_v2 &a 2M", 0);
    assert_eq!(session.value("cuCtxPopCurrent_v2 &x"), second);
    session.ask("set x 0 8 0");
    assert_eq!(session.value("cuCtxGetDevice &x"), 0);
    // Memory of another device's context is freed from here too.
    session.code("cuMemFree_v2 $a", 0);
    assert_eq!(bench.sim.truth().device(1).used, 0);
    session.code("cuCtxPushCurrent_v2 $d", 0);
    session.code("cuCtxSetCurrent 0", 0);
    assert_eq!(session.value("cuDeviceTotalMem_v2 &t 1"), 32 << 20);
    session.code("cuDeviceTotalMem_v2 &t 2", 101);
}
