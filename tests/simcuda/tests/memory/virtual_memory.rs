use crate::{Bench, Session};

/// Properties of device memory of device 0 in slot `q`, exportable by descriptor.
fn properties(session: &mut Session) {
    for (offset, value) in [(0, 1), (4, 1), (8, 1), (12, 0)] {
        session.ask(&format!("set q {offset} 4 {value}"));
    }
}

#[test]
fn physical_memory_lives_until_the_last_reference_and_the_last_mapping() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    properties(&mut session);
    session.code("cuMemCreate &h 8M &q 0", 0);
    session.code("cuMemAddressReserve &v 32M 0 0 0", 0);
    assert_eq!(bench.mib(session.pid()), (8, 8));
    session.code("cuMemMap $v 8M 0 $h 0", 0);
    session.code("cuMemMap $v+8M 8M 0 $h 0", 0);
    session.code("cuMemRetainAllocationHandle &r $v+1M", 0);
    session.code("cuMemRelease $h", 0);
    session.code("cuMemRelease $h", 0);
    session.code("cuMemRelease $h", 1);
    session.code("cuMemUnmap $v+8M 8M", 0);
    assert_eq!(bench.mib(session.pid()), (8, 8));
    session.code("cuMemUnmap $v 8M", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
    session.code("cuMemAddressFree $v 32M", 0);
    session.code("cuMemAddressFree $v 32M", 1);
}

#[test]
fn one_unmap_covers_several_maps_and_both_views_are_the_same_bytes() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    properties(&mut session);
    session.code("cuMemAddressReserve &v 16M 0 0 0", 0);
    session.code("cuMemCreate &h 2M &q 0", 0);
    session.code("cuMemCreate &i 4M &q 0", 0);
    session.code("cuMemMap $v 2M 0 $h 0", 0);
    session.code("cuMemMap $v+2M 4M 0 $i 0", 0);
    session.code("cuMemMap $v+8M 2M 0 $h 0", 0);
    session.ask("set a 0 4 1");
    session.ask("set a 8 4 3");
    session.code("cuMemsetD8_v2 $v 9 16", 1);
    session.code("cuMemSetAccess $v 6M &a 1", 0);
    session.code("cuMemsetD8_v2 $v+1M 9 2M", 0);
    assert_eq!(session.ask("peek $v+9M"), "peek 9");
    session.code("cuMemRelease $h", 0);
    session.code("cuMemRelease $i", 0);
    session.code("cuMemUnmap $v 4M", 1);
    session.code("cuMemUnmap $v 6M", 0);
    assert_eq!(bench.mib(session.pid()), (2, 2));
    session.code("cuMemUnmap $v+8M 2M", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
}

#[test]
fn the_device_of_a_handle_is_its_own_and_host_memory_costs_nothing() {
    let bench = Bench::new(&[("DEVICES", "2")]);
    let mut session = bench.session();
    properties(&mut session);
    session.ask("set q 12 4 1");
    session.code("cuMemCreate &h 8M &q 0", 0);
    assert_eq!(bench.sim.truth().device(1).used, 8 << 20);
    session.ask("set q 8 4 3");
    session.code("cuMemCreate &h 8M &q 0", 0);
    assert_eq!(bench.sim.truth().device(0).used + bench.sim.truth().device(1).used, 8 << 20);
    session.ask("set q 8 4 1");
    session.ask("set q 12 4 9");
    session.code("cuMemCreate &h 8M &q 0", 101);
}

#[test]
fn hostile_calls_are_refused() {
    let bench = Bench::new(&[("TOTAL_MIB", "64")]);
    let mut session = bench.session();
    properties(&mut session);
    session.code("cuMemCreate &h 0 &q 0", 1);
    session.code("cuMemCreate &h 3M &q 0", 1);
    session.code("cuMemCreate null 2M &q 0", 1);
    session.code("cuMemCreate &h 2M null 0", 1);
    session.code("cuMemCreate &h 2M &q 1", 1);
    session.code("cuMemCreate &h 66M &q 0", 2);
    session.code("cuMemRelease 77", 1);
    session.code("cuMemAddressReserve &v 0 0 0 0", 1);
    session.code("cuMemAddressReserve &v 8M 0 0 0", 0);
    session.code("cuMemCreate &h 4M &q 0", 0);
    session.code("cuMemMap $v 8M 0 $h 0", 1);
    session.code("cuMemMap $v+6M 4M 0 $h 0", 1);
    session.code("cuMemMap $v 4M 0 77 0", 1);
    session.code("cuMemMap $v 4M 0 $h 0", 0);
    session.code("cuMemMap $v+2M 4M 0 $h 0", 1);
    session.code("cuMemUnmap $v 2M", 1);
    session.code("cuMemUnmap $v+4M 2M", 1);
    session.code("cuMemAddressFree $v 8M", 1);
    session.code("cuMemFree_v2 $v", 1);
    assert_eq!(session.value("cuMemGetAllocationGranularity &g &q 0"), 2 << 20);
    assert_eq!(bench.mib(session.pid()), (4, 4));
}

#[test]
fn memory_outlives_every_context() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    properties(&mut session);
    session.code("cuMemCreate &h 8M &q 0", 0);
    session.code("cuDevicePrimaryCtxReset_v2 0", 0);
    assert_eq!(bench.mib(session.pid()), (8, 8));
    session.code("cuMemRelease $h", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
}
