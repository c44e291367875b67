use crate::{Bench, Session};

/// A `CUDA_ARRAY3D_DESCRIPTOR` in slot `q`.
fn shape(session: &mut Session, [width, height, depth]: [u64; 3], format: u32, channels: u32, flags: u32) {
    for (offset, size, value) in [
        (0, 8, width),
        (8, 8, height),
        (16, 8, depth),
        (24, 4, u64::from(format)),
        (28, 4, u64::from(channels)),
        (32, 4, u64::from(flags)),
    ] {
        session.ask(&format!("set q {offset} {size} {value}"));
    }
}

#[test]
fn arrays_cost_their_padded_size_and_nothing_when_the_program_brings_memory() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    shape(&mut session, [1000, 1000, 0], 0x20, 4, 0);
    session.code("cuArray3DCreate_v2 &a &q", 0);
    // 16 000 bytes a row are 250 × 64; 1000 rows are 125 × 8.
    assert_eq!(bench.mib(session.pid()), (16, 16));
    session.code("cuMemFree_v2 $a", 1);
    session.code("cuArrayDestroy $a", 0);
    session.code("cuArrayDestroy $a", 400);
    for flags in [0x40, 0x80] {
        shape(&mut session, [1000, 1000, 0], 0x20, 4, flags);
        session.code("cuArray3DCreate_v2 &a &q", 0);
        assert_eq!(session.value("cuArrayGetMemoryRequirements &r $a 0"), 16_056_320);
        session.code("cuArrayDestroy $a", 0);
    }
    assert_eq!(bench.mib(session.pid()), (0, 0));
}

#[test]
fn a_mipmapped_array_costs_all_levels_and_its_levels_cannot_be_destroyed() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    shape(&mut session, [2048, 2048, 0], 0x01, 4, 0);
    session.code("cuMipmappedArrayCreate &m &q 12", 0);
    assert_eq!(bench.mib(session.pid()), (22, 22));
    session.code("cuMipmappedArrayGetLevel &l $m 1", 0);
    session.code("cuArray3DGetDescriptor_v2 &d $l", 0);
    assert_eq!(session.ask("get d 0 8"), "get 1024");
    session.code("cuArrayDestroy $l", 400);
    session.code("cuMipmappedArrayGetLevel &l $m 12", 1);
    session.code("cuMipmappedArrayDestroy $m", 0);
    session.code("cuArray3DGetDescriptor_v2 &d $l", 400);
    assert_eq!(bench.mib(session.pid()), (0, 0));
}

#[test]
fn both_abis_of_arrays_allocate_and_contexts_take_them_along() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.code("cuCtxCreate_v2 &d 0 0", 0);
    for (offset, value) in [(0, 4096), (4, 1024), (8, 0x20), (12, 1)] {
        session.ask(&format!("set o {offset} 4 {value}"));
    }
    session.code("cuArrayCreate &a &o", 0);
    shape(&mut session, [4096, 1024, 0], 0, 0, 0);
    session.ask("set q 16 4 0x20");
    session.ask("set q 20 4 1");
    session.code("cuArrayCreate_v2 &a &q", 0);
    assert_eq!(bench.mib(session.pid()), (32, 32));
    session.code("cuArrayCreate_v2 null &q", 1);
    session.code("cuArrayCreate_v2 &a null", 1);
    shape(&mut session, [0, 10, 10], 0x20, 1, 0);
    session.code("cuArray3DCreate_v2 &a &q", 1);
    shape(&mut session, [10, 10, 10], 0x77, 1, 0);
    session.code("cuArray3DCreate_v2 &a &q", 1);
    session.code("cuCtxDestroy_v2 $d", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
}
