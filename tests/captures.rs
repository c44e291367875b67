//! Stream captures: nothing that the library does breaks one, and what the driver says to calls in one stays as it is.

mod session;

use harness::Sim;
use session::{MIB, Session};

const GLOBAL: u64 = 0;
const THREAD_LOCAL: u64 = 1;
const RELAXED: u64 = 2;

/// Every kind of allocation and its free; `s` is the stream that is captured, `t` another one.
const KINDS: [&str; 22] = [
    "cuMemAlloc_v2 &linear 4M",
    "cuMemAllocPitch_v2 &pitched &pitch 4096 512 4",
    "cuMemAllocManaged &managed 4M 1",
    "cuMemCreate &handle 4M &physical 0",
    "cuArrayCreate_v2 &array &flat",
    "cuMipmappedArrayCreate &mipmap &deep 2",
    "cuMemAllocAsync &ordered 4M $t",
    "cuMemAllocFromPoolAsync &pooled 4M $pool $t",
    "cuMemAllocAsync &node 4M $s",
    "cuMemAllocFromPoolAsync &node2 4M $pool $s",
    "cuMemFreeAsync $node2 $s",
    "cuMemFreeAsync $node $s",
    "cuMemFreeAsync $ordered $t",
    "cuMemFreeAsync $pooled $t",
    "cuMemFree_v2 $linear",
    "cuMemFree_v2 $pitched",
    "cuMemFree_v2 $managed",
    "cuMemRelease $handle",
    "cuArrayDestroy $array",
    "cuMipmappedArrayDestroy $mipmap",
    "cuMemPoolTrimTo $pool 0",
    "cuMemGetInfo_v2 &f &g",
];

/// Slots that the calls name.
fn prepare(session: &mut Session) {
    session.set("physical", &[(0, 4, 1), (8, 4, 1)]);
    session.set("flat", &[(0, 8, 512), (8, 8, 512), (16, 4, 0x20), (20, 4, 4)]);
    session.set("deep", &[(0, 8, 512), (8, 8, 512), (24, 4, 0x20), (28, 4, 4)]);
    session.set("relaxed", &[(0, 4, RELAXED)]);
    session.ok("cuDeviceGetDefaultMemPool &pool 0");
    session.ok("cuStreamCreate &s 1");
    session.ok("cuStreamCreate &t 1");
}

/// The code of each call, and how many captures were broken.
fn codes(session: &mut Session, commands: &[String]) -> (Vec<u32>, u64) {
    let codes = commands.iter().map(|command| session.call(command)).collect();
    (codes, session.process().calls("capture violation"))
}

/// Requires that calls get the same codes with us and without, and break as many captures; how many.
#[track_caller]
fn as_without_us(limit: &str, commands: &[String]) -> u64 {
    let sim = Sim::new();
    let [mut bare, mut capped] = [Session::bare(&sim), Session::capped(&sim, limit)];
    prepare(&mut bare);
    prepare(&mut capped);
    let wanted = codes(&mut bare, commands);
    let got = codes(&mut capped, commands);
    let pairs = wanted.0.iter().zip(&got.0).zip(commands);
    let different: Vec<_> = pairs.filter(|((wanted, got), _)| wanted != got).collect();
    assert_eq!(different, vec![], "codes: without us, with us, of");
    assert_eq!(got.1, wanted.1, "broken captures");
    bare.end();
    capped.end();
    got.1
}

fn lines(parts: &[&[&str]]) -> Vec<String> {
    parts.iter().flat_map(|part| part.iter().map(|line| (*line).to_owned())).collect()
}

#[test]
fn allocations_of_every_kind_in_a_capture_of_any_mode_break_nothing_in_the_relaxed_mode_of_the_thread() {
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let begin = format!("cuStreamBeginCapture_v2 $s {mode}");
        let begin: [&str; 2] = [&begin, "cuThreadExchangeStreamCaptureMode &relaxed"];
        let commands = lines(&[&begin, &KINDS, &["cuStreamEndCapture $s &graph", "cuStreamIsCapturing $s &now"]]);
        assert_eq!(as_without_us("1GiB", &commands), 0, "mode {mode}");
    }
}

#[test]
fn each_kind_of_allocation_alone_does_to_a_capture_what_it_does_without_us() {
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let begin = format!("cuStreamBeginCapture_v2 $s {mode}");
        let one = |kind: &'static str| lines(&[&[&begin, kind, "cuStreamEndCapture $s &graph"]]);
        let commands: Vec<String> = KINDS[..9].iter().flat_map(|kind| one(kind)).collect();
        let broken = as_without_us("1GiB", &commands);
        assert_eq!(broken > 0, mode != RELAXED, "mode {mode}: {broken}");
        // At the limit too the driver's code comes first, where it would not get as far as looking for memory.
        let forbidden: Vec<String> =
            ["cuMemAlloc_v2 &x 4M", "cuArrayCreate_v2 &x &flat"].into_iter().flat_map(one).collect();
        if mode != RELAXED {
            as_without_us("0", &forbidden);
        }
    }
}

#[test]
fn another_thread_may_allocate_during_a_capture_as_without_us() {
    for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
        let begin = format!("cuStreamBeginCapture_v2 $s {mode}");
        let mut commands = lines(&[&[&begin]]);
        // Those that the other thread's own mode lets through, and then the others.
        for kind in
            ["cuMemAllocAsync &a 4M $t", "cuMemFreeAsync $a $t", "cuMemCreate &h 4M &physical 0", "cuMemAlloc_v2 &l 4M"]
        {
            commands.push(format!("other {kind}"));
        }
        commands.push("cuStreamEndCapture $s &graph".to_owned());
        assert_eq!(as_without_us("1GiB", &commands) > 0, mode == GLOBAL, "mode {mode}");
    }
}

#[test]
fn a_refusal_during_a_capture_neither_trims_nor_waits_and_the_next_one_after_it_does() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "64MiB");
    prepare(&mut session);
    session.set("keep", &[(0, 8, u64::MAX)]);
    session.ok("cuMemPoolSetAttribute $pool 4 &keep");
    session.ok("cuMemAllocAsync &a 32M $t");
    session.ok("cuMemFreeAsync $a $t");
    session.ok("cuStreamSynchronize $t");
    session.holds(32 * MIB);
    let trims = session.process().calls("cuMemPoolTrimTo");
    session.ok(&format!("cuStreamBeginCapture_v2 $s {GLOBAL}"));
    session.ok("cuThreadExchangeStreamCaptureMode &relaxed");
    session.refused("cuMemAlloc_v2 &out 48M");
    session.refused("cuMemAllocAsync &out 72M $t");
    let process = session.process();
    assert_eq!(process.calls("cuMemPoolTrimTo"), trims);
    assert_eq!(process.calls("cuStreamSynchronize"), 1);
    assert_eq!(process.calls("capture violation"), 0);
    session.ok("cuStreamEndCapture $s &graph");
    session.ok("cuMemAlloc_v2 &b 48M");
    session.holds(48 * MIB);
    assert_eq!(session.peak(), 48 * MIB);
    session.end();
}

#[test]
fn a_collective_of_nccl_survives_its_capture() {
    let commands = lines(&[&[
        "cuEventCreate &e 2",
        "cuStreamBeginCapture_v2 $s 0",
        "cuThreadExchangeStreamCaptureMode &relaxed",
        "cuMemCreate &handle 4M &physical 0",
        "cuMemAddressReserve &va 4M 0 0 0",
        "cuMemMap $va 4M 0 $handle 0",
        "cuMemAlloc_v2 &scratch 2M",
        "cuThreadExchangeStreamCaptureMode &relaxed",
        "cuEventRecordWithFlags $e $s 0",
        "cuStreamWaitEvent $t $e 0",
        "cuStreamGetCaptureInfo_v2 $t &status &id &graph &after &count",
        "cuEventRecord $e $t",
        "cuStreamWaitEvent $s $e 0",
        "cuStreamEndCapture $s &graph",
        "cuGraphInstantiateWithFlags &exec $graph 0",
        "cuGraphLaunch $exec $s",
        "cuStreamSynchronize $s",
        "cuGraphExecDestroy $exec",
        "cuGraphDestroy $graph",
    ]]);
    assert_eq!(as_without_us("1GiB", &commands), 0);
}

#[test]
fn captures_are_seen_by_every_function_that_begins_and_ends_one() {
    let begins = [
        "cuStreamBeginCapture $s",
        "cuStreamBeginCapture_ptsz $s",
        "cuStreamBeginCapture_v2 $s 1",
        "cuStreamBeginCapture_v2_ptsz $s 1",
        "cuStreamBeginCaptureToGraph $s $into null null 0 1",
        "cuStreamBeginCaptureToGraph_ptsz $s $into null null 0 1",
        "cuStreamBeginRecaptureToGraph $s 1 $into null null",
        "cuStreamBeginRecaptureToGraph_ptsz $s 1 $into null null",
        "cuStreamBeginCapture_v2_ptsz null 1",
    ];
    let sim = Sim::with(&[("DRIVER", "13050")]);
    let mut session = Session::capped(&sim, "64MiB");
    prepare(&mut session);
    session.ok("cuGraphCreate &into 0");
    for (at, begin) in begins.iter().enumerate() {
        session.ok(begin);
        let exchanges = session.process().calls("cuThreadExchangeStreamCaptureMode");
        session.ok("cuMemAllocAsync &a 4M $t");
        session.ok("cuMemFreeAsync $a $t");
        assert!(session.process().calls("cuThreadExchangeStreamCaptureMode") > exchanges, "{begin}");
        let stream = if begin.contains("null 1") && at == begins.len() - 1 { "null" } else { "$s" };
        let end = if at % 2 == 1 || stream == "null" { "cuStreamEndCapture_ptsz" } else { "cuStreamEndCapture" };
        session.ok(&format!("{end} {stream} &graph"));
        let exchanges = session.process().calls("cuThreadExchangeStreamCaptureMode");
        session.ok("cuMemAllocAsync &a 4M $t");
        session.ok("cuMemFreeAsync $a $t");
        assert_eq!(session.process().calls("cuThreadExchangeStreamCaptureMode"), exchanges, "{begin}");
    }
    session.end();
}

#[test]
fn a_stream_that_is_destroyed_while_it_captures_takes_its_capture_with_it() {
    let sim = Sim::new();
    let mut session = Session::capped(&sim, "64MiB");
    prepare(&mut session);
    for destroy in ["cuStreamDestroy_v2 $u", "cuStreamDestroy $u"] {
        session.ok("cuStreamCreate &u 1");
        session.ok("cuStreamBeginCapture_v2 $u 1");
        session.ok(destroy);
        let exchanges = session.process().calls("cuThreadExchangeStreamCaptureMode");
        session.ok("cuMemAllocAsync &a 4M $t");
        session.ok("cuMemFreeAsync $a $t");
        assert_eq!(session.process().calls("cuThreadExchangeStreamCaptureMode"), exchanges, "{destroy}");
    }
    session.end();
}
