//! Random programs of four threads over two devices: whenever all threads rest the books equal the truth, nothing that the
//! limit admits is refused, and nothing ever crosses it.

use std::time::Duration;

use harness::{Child, MIB, Sim, cc};

/// Of the devices, which are larger.
const LIMITS: [u64; 2] = [96 * MIB, 128 * MIB];
const PAGE: u64 = 2 * MIB;

/// Codes that a program may get whose memory dies with other threads' contexts, beside 0: 1 (no such memory), 2, 201 (no context),
/// 400 (no such array), 709 (the context is destroyed).
const USUAL: [u32; 5] = [1, 2, 201, 400, 709];

/// What a run is told beside its seed.
#[derive(Clone, Copy, Default)]
struct Plan<'a> {
    steps: usize,
    latency: &'a str,
    /// Rules of SIMCUDA_FAIL.
    faults: &'a str,
    /// `auto`, contexts of 50 MiB and modules of 10 MiB; else only allocations count.
    measured: bool,
}

struct Program<'a> {
    sim: &'a Sim,
    child: Child,
    about: String,
    codes: Vec<String>,
}

impl Program<'_> {
    /// The numbers of the next line that begins with `word`; what it tells of codes before that is kept.
    fn numbers(&mut self, word: &str) -> Vec<u64> {
        loop {
            let line = self.child.hear();
            let mut words = line.split(' ');
            match words.next() {
                Some("code") => self.codes.push(line.clone()),
                Some(first) if first == word => return words.map(|number| number.parse().expect("a number")).collect(),
                _ => panic!("{}: {line}", self.about),
            }
        }
    }

    /// Free memory of each device as the program reads it.
    fn free(&mut self, word: &str) -> [u64; 2] {
        let numbers = self.numbers(word);
        assert_eq!([numbers[1], numbers[3]], LIMITS, "total, {}", self.about);
        [numbers[0], numbers[2]]
    }

    fn held(&self, device: usize) -> simdevice::Held {
        self.sim.truth().process(self.child.pid()).expect("it called the driver").per_device[device]
    }
}

fn play(seed: u64, plan: Plan) {
    let (context, module) = if plan.measured { ("50", "10") } else { ("0", "0") };
    let knobs = [
        ("DEVICES", "2"),
        ("CTX_MIB", context),
        ("MODULE_MIB", module),
        ("LATENCY_US", plan.latency),
        ("FAIL", plan.faults),
    ];
    let sim = Sim::with(&knobs);
    let run = sim.run(cc("random.c", &["-lcuda", "-lpthread"])).arg(seed.to_string()).arg(plan.steps.to_string());
    let run = run
        .arg(if plan.measured { "stay" } else { "come" })
        .capped("0=96MiB,1=128MiB")
        .timeout(Duration::from_secs(120));
    let run = run.env("GPUCAP_OVERHEAD", if plan.measured { "auto" } else { "0" });
    let about = format!("seed {seed} faults {:?} latency {:?}", plan.faults, plan.latency);
    let mut program = Program { sim: &sim, child: run.spawn(), about, codes: Vec::new() };
    for stop in 1..=plan.steps / 500 {
        let free = program.free("quiet");
        let about = format!("stop {stop}, {}", program.about);
        let before = [program.held(0), program.held(1)];
        for device in 0..2 {
            let (held, limit) = (before[device], LIMITS[device]);
            if plan.measured {
                assert!(held.peak_pages <= limit, "device {device}: {held:?}, {about}");
                assert!(limit - free[device] >= held.blocks, "device {device}: free {free:?}, {held:?}, {about}");
            } else {
                assert!(held.peak_blocks <= limit, "device {device}: {held:?}, {about}");
                assert_eq!(limit - free[device], held.blocks, "device {device}: books against truth, {about}");
            }
        }
        program.child.say("probe");
        let codes = program.numbers("probe");
        for device in 0..2 {
            // A call that the driver was told to fail says nothing about the room.
            let fits = !plan.measured && free[device] >= PAGE;
            if fits && plan.faults.is_empty() {
                assert_eq!(
                    codes[device], 0,
                    "device {device}: what fits was refused, free {free:?}, {before:?}, {about}"
                );
            }
        }
        program.child.say("go");
    }
    let free = program.free("end");
    let about = program.about.clone();
    for device in 0..2 {
        let held = program.held(device);
        if plan.measured {
            assert!(held.peak_pages <= LIMITS[device], "device {device}: {held:?}, {about}");
        } else {
            // What a thread could not free in a dead context may be left, in the books as in truth.
            assert_eq!(LIMITS[device] - free[device], held.blocks, "device {device} at the end, {about}");
        }
    }
    program.child.say("end");
    for code in &program.codes {
        let number: u32 = code.rsplit(' ').next().expect("three words").parse().expect("a code");
        let told = plan.faults.split(',').any(|rule| rule.ends_with(&format!(":{number}")));
        assert!(USUAL.contains(&number) || told, "{code}, {about}");
        let alloc = [
            "code cuMemAlloc",
            "code cuMemCreate",
            "code cuArray3DCreate",
            "code cuArrayCreate",
            "code cuMipmappedArrayCreate",
        ];
        assert!(number != 1 || told || !alloc.iter().any(|start| code.starts_with(start)), "{code}, {about}");
    }
    let out = program.child.wait();
    assert_eq!(out.code, Some(0), "{about}\n{out}");
    assert!(!out.stderr.contains("defect"), "{about}\n{out}");
}

#[test]
fn the_books_of_random_programs_equal_the_truth_whenever_all_threads_rest() {
    for seed in 1..=4 {
        play(seed, Plan { steps: 10_000, ..Plan::default() });
    }
}

#[test]
fn slow_calls_that_overlap_more_leave_the_books_equal_to_the_truth() {
    for seed in 11..=12 {
        play(
            seed,
            Plan { steps: 4_000, latency: "cuMemAlloc_v2=50,cuMemFree_v2=50,cuMemFreeAsync=50", ..Plan::default() },
        );
    }
}

#[test]
fn admitted_allocations_of_random_programs_never_take_pages_beyond_the_limit() {
    for seed in 21..=24 {
        play(seed, Plan { steps: 10_000, measured: true, ..Plan::default() });
    }
}

/// What the driver fails.
const CALLS: [&str; 32] = [
    "cuMemAlloc_v2",
    "cuMemAlloc",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFree_v2",
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemRetainAllocationHandle",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuArrayCreate",
    "cuArrayCreate_v2",
    "cuArray3DCreate",
    "cuArray3DCreate_v2",
    "cuMipmappedArrayCreate",
    "cuArrayDestroy",
    "cuMipmappedArrayDestroy",
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuStreamSynchronize",
    "cuGraphLaunch",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecDestroy",
];

#[test]
fn calls_that_the_driver_fails_leave_the_books_equal_to_the_truth() {
    for seed in 31..=36_u64 {
        let mut chance = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |n: u64| {
            chance ^= chance >> 12;
            chance ^= chance << 25;
            chance ^= chance >> 27;
            (chance.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
        };
        let rules: Vec<String> = (0..80)
            .map(|_| {
                let function = CALLS[usize::try_from(below(CALLS.len() as u64)).expect("short")];
                format!("{function}:{}:{}", 1 + below(150), if below(2) == 0 { 2 } else { 999 })
            })
            .collect();
        play(seed, Plan { steps: 10_000, faults: &rules.join(","), ..Plan::default() });
    }
}
