use crate::Bench;
use harness::MIB;

#[test]
fn blocks_are_512_byte_steps_below_a_mebibyte_and_2_mib_multiples_from_there() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    let mut blocks = 0;
    for (asked, block) in [(1, 512), (512, 512), (513, 1024), (MIB - 1, MIB), (MIB, 2 * MIB), (2 * MIB + 1, 4 * MIB)] {
        session.code(&format!("cuMemAlloc_v2 &a {asked}"), 0);
        blocks += block;
        assert_eq!(bench.held(session.pid()).blocks, blocks, "{asked}");
    }
}

#[test]
fn the_step_of_small_blocks_is_a_knob() {
    let bench = Bench::new(&[("GRAN", "4096")]);
    let mut session = bench.session();
    session.code("cuMemAlloc_v2 &a 4097", 0);
    assert_eq!(bench.held(session.pid()).blocks, 8192);
}

#[test]
fn small_blocks_share_pages_and_the_last_one_frees_the_page() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    for _ in 0..2 {
        session.code("cuMemAlloc_v2 &a 1000K", 0);
        session.code("cuMemAlloc_v2 &b 1000K", 0);
        assert_eq!(bench.held(session.pid()).pages, 2 * MIB);
        session.code("cuMemAlloc_v2 &d 100K", 0);
        assert_eq!(bench.held(session.pid()).pages, 4 * MIB);
        session.code("cuMemFree_v2 $a", 0);
        session.code("cuMemFree_v2 $b", 0);
        assert_eq!(bench.held(session.pid()).pages, 2 * MIB);
        session.code("cuMemFree_v2 $d", 0);
        assert_eq!(bench.held(session.pid()).pages, 0);
    }
}

#[test]
fn thousands_of_small_blocks_pack_tightly() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    assert_eq!(session.ask("fill 8192 cuMemAlloc_v2 &a 512"), "fill 8192 0");
    assert_eq!(bench.mib(session.pid()), (4, 4));
    assert_eq!(session.ask("fill 100 cuMemAlloc_v2 &a 300K"), "fill 100 0");
    let held = bench.held(session.pid());
    assert_eq!(held.blocks, 4 * MIB + 100 * 300 * 1024);
    assert!(held.pages <= 4 * MIB + 17 * 2 * MIB, "{held:?}");
}

#[test]
fn the_device_gives_exactly_what_it_has() {
    let bench = Bench::new(&[("TOTAL_MIB", "100")]);
    let mut session = bench.session();
    assert_eq!(session.ask("fill 1000 cuMemAlloc_v2 &a 2M"), "fill 50 2");
    session.code("cuMemAlloc_v2 &b 1", 2);
    session.code("cuMemFree_v2 $a", 0);
    assert_eq!(session.ask("fill 1000 cuMemAlloc_v2 &b 1M"), "fill 1 2");
    assert_eq!(session.value("cuMemGetInfo_v2 &f &t"), 0);
    let device = bench.sim.truth().device(0);
    assert_eq!((device.used, device.peak), (100 * MIB, 100 * MIB));
}

#[test]
fn threads_racing_for_the_last_bytes_never_pass_the_device() {
    let bench = Bench::new(&[("TOTAL_MIB", "8")]);
    let mut session = bench.session();
    let answer = session.ask("race 8 2000 $c 2M");
    let counts: Vec<u64> = answer.split(' ').skip(1).map(|count| count.parse().expect("a number")).collect();
    assert_eq!((counts[0] + counts[1], counts[2]), (16_000, 0), "{answer}");
    let small = session.ask("race 8 2000 $c 700K");
    assert!(small.ends_with(" 0"), "{small}");
    let held = bench.held(session.pid());
    assert_eq!((held.blocks, held.pages), (0, 0));
    assert!(held.peak_pages <= 8 * MIB, "{held:?}");
}

#[test]
fn a_freed_address_is_reused_and_the_address_range_is_what_was_asked() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    let first = session.value("cuMemAlloc_v2 &a 5M");
    assert_eq!(
        session.ask("cuMemGetAddressRange_v2 &b &s $a+4M"),
        format!("cuMemGetAddressRange_v2 0 b={first} s={}", 5 * MIB)
    );
    session.code("cuMemGetAddressRange_v2 &b &s $a+5M", 500);
    session.code("cuMemFree_v2 $a", 0);
    assert_eq!(session.value("cuMemAlloc_v2 &d 6M"), first);
    let small = session.value("cuMemAlloc_v2 &e 100");
    assert_eq!(session.ask("cuMemGetAddressRange_v2 null &s $e+99"), "cuMemGetAddressRange_v2 0 s=100");
    session.code("cuMemGetAddressRange_v2 &b null $e+99", 0);
    session.code("cuMemGetAddressRange_v2 &b &s $e+100", 500);
    session.code("cuMemFree_v2 $e", 0);
    assert_eq!(session.value("cuMemAlloc_v2 &e 512"), small);
}

#[test]
fn pitch_and_managed_memory_are_charged_in_full() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    assert!(session.code("cuMemAllocPitch_v2 &a &p 1000 3000 4", 0).ends_with(" p=1024"));
    assert_eq!(bench.held(session.pid()).blocks, 4 * MIB);
    session.code("cuMemAllocManaged &m 9M 1", 0);
    assert_eq!(bench.held(session.pid()).blocks, 14 * MIB);
    session.ask("poke $m 7");
    assert_eq!(session.ask("peek $m"), "peek 7");
    session.code("cuMemFree_v2 $m", 0);
    session.code("cuMemFree_v2 $a", 0);
    assert_eq!(bench.held(session.pid()).blocks, 0);
}

#[test]
fn the_first_abi_answers_in_32_bits() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    // Upper halves must stay as they were.
    for slot in ["a", "p", "b", "s", "f", "t"] {
        session.ask(&format!("set {slot} 4 4 0x5a5a5a5a"));
    }
    session.code("cuMemAlloc &a 3M", 0);
    assert_eq!(session.ask("get a 4 4"), "get 1515870810");
    session.ask("set a 4 4 0");
    session.code("cuMemGetAddressRange &b &s $a+1M", 0);
    assert_eq!((session.ask("get s 0 4"), session.ask("get s 4 4")), ("get 3145728".into(), "get 1515870810".into()));
    session.code("cuMemGetInfo &f &t", 0);
    assert_eq!(
        (session.ask("get t 0 4"), session.ask("get t 4 4")),
        (format!("get {}", u32::MAX), "get 1515870810".into())
    );
    session.code("cuDeviceTotalMem &t 0", 0);
    assert_eq!(session.ask("get t 4 4"), "get 1515870810");
    assert_eq!(bench.mib(session.pid()), (4, 4));
    session.code("cuMemFree $a", 0);
    session.code("cuMemAllocPitch &a &p 100 100 8", 0);
    assert_eq!(bench.held(session.pid()).blocks, 512 * 100);
    session.code("cuMemFree_v2 $a", 0);
    assert_eq!(bench.mib(session.pid()), (0, 0));
}

#[test]
fn managed_memory_takes_advice_and_prefetches_without_moving() {
    let bench = Bench::new(&[]);
    let mut session = bench.session();
    session.code("cuMemAllocManaged &m 4M 1", 0);
    session.code("cuMemAlloc_v2 &a 4M", 0);
    session.code("cuMemAdvise $m 4M 3 0", 0);
    session.code("cuMemAdvise $a 4M 3 0", 1);
    session.code("cuMemPrefetchAsync $m 4M -1 0", 0);
    session.code("cuMemPrefetchAsync $m 5M 0 0", 1);
    session.code("cuMemPrefetchAsync $m 4M 9 0", 101);
    // A location is passed by value: type 1 (device) and id 0 in one word.
    session.code("cuMemPrefetchAsync_v2_ptsz $m 4M 1 0 0", 0);
    session.code("cuMemRangeGetAttribute &x 4 2 $m 4M", 0);
    assert_eq!(session.ask("get x 0 4"), "get 4294967294");
    assert_eq!(bench.mib(session.pid()), (8, 8));
}
