//! Captures: their states, what breaks them, what comes out of them.

use harness::{MIB, Sim};

use crate::codes;

const GLOBAL: &str = "cuStreamBeginCapture_v2 $s 0";
const THREAD_LOCAL: &str = "cuStreamBeginCapture_v2 $s 1";
const RELAXED: &str = "cuStreamBeginCapture_v2 $s 2";

fn violations(sim: &Sim) -> u64 {
    sim.truth().calls("capture violation")
}

#[test]
fn an_allocation_in_a_capture_is_refused_and_breaks_it() {
    for begin in [GLOBAL, THREAD_LOCAL] {
        let sim = Sim::new();
        codes(
            &sim,
            &[
                ("cuStreamCreate &s 0", 0),
                (begin, 0),
                ("cuMemAlloc_v2 &a 1M", 900),
                ("cuMemsetD8Async $c 0 0 $s", 901),
                ("cuStreamEndCapture $s &g", 901),
                ("cuMemAlloc_v2 &a 1M", 0),
            ],
        );
        assert_eq!(violations(&sim), 1, "{begin}");
    }
}

#[test]
fn a_relaxed_capture_or_a_relaxed_thread_may_allocate() {
    let sim = Sim::new();
    codes(
        &sim,
        &[
            ("cuStreamCreate &s 1", 0),
            (RELAXED, 0),
            ("cuMemAlloc_v2 &a 1M", 0),
            ("cuStreamEndCapture $s &g", 0),
            (GLOBAL, 0),
            ("set m 0 4 2", 0),
            ("cuThreadExchangeStreamCaptureMode &m", 0),
            ("cuMemAlloc_v2 &a 1M", 0),
            ("cuStreamEndCapture $s &g", 0),
        ],
    );
    assert_eq!(violations(&sim), 0);
}

#[test]
fn waiting_for_the_context_or_using_the_legacy_stream_breaks_a_capture() {
    let sim = Sim::new();
    codes(
        &sim,
        &[
            ("cuStreamCreate &s 0", 0),
            ("cuMemAlloc_v2 &a 1M", 0),
            (RELAXED, 0),
            ("cuCtxSynchronize", 900),
            ("cuStreamEndCapture $s &g", 901),
            (RELAXED, 0),
            ("cuMemsetD8_v2 $a 0 16", 906),
            ("cuStreamEndCapture $s &g", 901),
            (RELAXED, 0),
            ("cuStreamSynchronize $s", 900),
            ("cuStreamEndCapture $s &g", 901),
            ("cuStreamEndCapture $s &g", 401),
        ],
    );
    assert_eq!(violations(&sim), 3);
    // A stream that does not wait for the legacy one is not touched by it.
    codes(
        &sim,
        &[
            ("cuStreamCreate &s 1", 0),
            ("cuMemAlloc_v2 &a 1M", 0),
            (RELAXED, 0),
            ("cuMemsetD8_v2 $a 0 16", 0),
            ("cuStreamIsCapturing $s &x", 0),
            ("cuStreamEndCapture $s &g", 0),
        ],
    );
    assert_eq!(violations(&sim), 3);
}

#[test]
fn asking_for_the_state_breaks_nothing() {
    let sim = Sim::new();
    let out = codes(
        &sim,
        &[
            ("cuStreamCreate &s 0", 0),
            ("cuStreamIsCapturing $s &x", 0),
            (GLOBAL, 0),
            ("cuStreamIsCapturing $s &x", 0),
            ("cuStreamIsCapturing 0 &y", 906),
            ("cuStreamIsCapturing_ptsz 0 &y", 0),
            ("cuStreamGetCaptureInfo_v2 $s &x &i &h null null", 0),
            ("cuDeviceGetDefaultMemPool &p 0", 0),
            ("cuMemGetInfo_v2 &f &t", 0),
            ("cuStreamEndCapture $s &g", 0),
        ],
    );
    let states: Vec<&str> = out.stdout.lines().filter(|line| line.starts_with("cuStreamIsCapturing 0")).collect();
    assert_eq!(states.len(), 2, "{out}");
    assert!(states[0].ends_with("x=0") && states[1].ends_with("x=1"), "{states:?}");
    assert_eq!(violations(&sim), 0);
}

#[test]
fn captured_allocations_are_taken_at_launch_and_kept_until_trimmed() {
    let sim = Sim::with(&[("POOL_STEP_MIB", "2")]);
    let out = codes(
        &sim,
        &[
            ("cuStreamCreate &s 0", 0),
            (GLOBAL, 0),
            ("cuMemAllocAsync &a 6M $s", 0),
            ("cuMemsetD8Async $a 1 6M $s", 0),
            ("cuMemFreeAsync $a $s", 0),
            ("cuStreamEndCapture $s &g", 0),
            ("cuGraphInstantiateWithFlags &x $g 0", 0),
            ("cuGraphInstantiateWithFlags &y $g 0", 801),
            ("cuGraphClone &y $g", 801),
            ("cuDeviceGetGraphMemAttribute 0 2 &r", 0),
            ("cuGraphLaunch $x $s", 0),
            ("cuGraphLaunch $x $s", 0),
            ("cuDeviceGetGraphMemAttribute 0 2 &r", 0),
            ("cuDeviceGraphMemTrim 0", 0),
            ("cuDeviceGetGraphMemAttribute 0 2 &r", 0),
        ],
    );
    let reserved: Vec<&str> =
        out.stdout.lines().filter(|line| line.starts_with("cuDeviceGetGraphMemAttribute")).collect();
    let values = [0, 6 * MIB, 0].map(|value| format!("cuDeviceGetGraphMemAttribute 0 r={value}"));
    assert_eq!(reserved, values);
    assert_eq!(sim.truth().process(out.pid).expect("it ran").per_device[0].peak_blocks, 6 * MIB);
}
