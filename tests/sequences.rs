//! Long sequences of calls drawn by chance, some of which the driver fails: after each the books equal the truth, nothing
//! is over the limit, and nothing that fits is refused.

mod calls;

use calls::{Calls, MIB, OUT_OF_MEMORY, only_allocations};
use harness::{Sim, cc};

const LIMITS: [u64; 2] = [64 * MIB, 96 * MIB];
const STEPS: usize = 400;

/// Reproducible chance (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).expect("short")]
    }
}

const ENTRIES: [&str; 10] =
    ["alloc", "alloc1", "pitch", "pitch1", "managed", "async", "async_ptsz", "frompool", "frompool_ptsz", "create"];
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
const CONTEXTS: [&str; 4] = ["x", "y", "z", "p"];
const MAPPINGS: [&str; 3] = ["m", "n", "o"];
const SIZES: [u64; 12] = [1, 512, 513, 70_000, MIB - 1, MIB, 3 * MIB, 4 * MIB, 6 * MIB, 16 * MIB, 34 * MIB, 90 * MIB];

/// What a program might do next.
fn command(chance: &mut Chance) -> String {
    let device = chance.below(2);
    let name = chance.pick(&NAMES);
    match chance.below(100) {
        0..=37 => {
            let size = SIZES[usize::try_from(chance.below(SIZES.len() as u64)).expect("short")];
            format!("take {} {name} {size} {device}", chance.pick(&ENTRIES))
        }
        38..=57 => format!("free {name}"),
        58..=61 => format!("free_crosswise {name}"),
        62..=65 => "sync".to_owned(),
        66..=69 => format!("{} {device}", chance.pick(&["ctx", "ctx1", "ctx3", "ctx4"])),
        70..=72 => format!("keep_ctx {}", chance.pick(&CONTEXTS)),
        73..=77 => format!("use_ctx {}", chance.pick(&CONTEXTS)),
        78..=80 => chance.pick(&["destroy", "destroy1", "detach", "attach"]).to_owned(),
        81..=83 => format!("retain {device}"),
        84..=85 => format!("{} {device}", chance.pick(&["release", "release1", "reset", "reset1", "retain_only"])),
        86..=90 => match chance.below(8) {
            0..=2 => format!("pool_create {device}"),
            3 => "pool_create_host".to_owned(),
            4 => "pool_destroy".to_owned(),
            5 => format!("pool_trim {}", chance.below(3) * 32 * MIB),
            6 => format!("pool_keep {}", chance.below(3) * 32 * MIB),
            _ => format!("{} {device}", chance.pick(&["pool_use", "pool_default"])),
        },
        91..=93 => format!("map {name} {} {}", chance.pick(&MAPPINGS), chance.pick(&["", name])),
        94..=95 => format!("unmap {}", chance.pick(&MAPPINGS)),
        96..=97 => format!("mem_retain {} {name}", chance.pick(&MAPPINGS)),
        98 => format!("create_host {name} {}", 2 * MIB),
        _ => chance.pick(&["stream", "no_stream", "no_ctx"]).to_owned(),
    }
}

/// The size of the driver's block.
fn block(bytes: u64) -> u64 {
    bytes.next_multiple_of(if bytes < MIB { 512 } else { 2 * MIB })
}

/// Plays one sequence; `faults`: rules of SIMCUDA_FAIL. `always`: never over the limit, not even during a call.
fn play(seed: u64, faults: &str, always: bool) {
    let knobs = [("DEVICES", "2"), ("FAIL", faults)];
    let sim = Sim::with(&knobs);
    let run = sim.run(cc("calls.c", &[])).arg("dlsym");
    let run = only_allocations(run.capped("0=64MiB,1=96MiB"));
    let mut calls = Calls::run(&sim, run);
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut story = Vec::new();
    for _ in 0..STEPS {
        let command = command(&mut chance);
        let device = current(&mut calls);
        let before = [calls.really_or_zero(0), calls.really_or_zero(1)];
        let answer = calls.ask(&command);
        story.push(format!("{command} -> {}", answer.line));
        let tail = || {
            let from = story.len().saturating_sub(40);
            format!("seed {seed} faults {faults}\n{}", story[from..].join("\n"))
        };
        if answer.code == OUT_OF_MEMORY && faults.is_empty() {
            let words: Vec<&str> = command.split(' ').collect();
            let charged = if words[1] == "create" { words[4].parse().ok() } else { device };
            let pooled = words[1].starts_with("async") || words[1].starts_with("frompool");
            if let (Some(device), false) = (charged, pooled) {
                let asked = block(words[3].parse().expect("bytes"));
                assert!(before[device] + asked > LIMITS[device], "refused what fits\n{}", tail());
            }
        }
        if let Some(device) = current(&mut calls) {
            let info = calls.ask("info");
            if info.code == 0 {
                let (free, total) = (info.values[0], info.values[1]);
                assert_eq!(total, LIMITS[device], "{}", tail());
                assert_eq!(total - free, calls.really(device), "books against truth\n{}", tail());
            }
        }
        for (device, limit) in LIMITS.into_iter().enumerate() {
            let most = if always { calls.peak_or_zero(device) } else { calls.really_or_zero(device) };
            assert!(most <= limit, "over the limit\n{}", tail());
        }
    }
    calls.end();
}

/// The device of the current context, alive or dead.
fn current(calls: &mut Calls) -> Option<usize> {
    let answer = calls.ask("device");
    if answer.code != 0 {
        return None;
    }
    usize::try_from(answer.values[0]).ok()
}

#[test]
fn after_any_sequence_the_books_equal_the_truth() {
    for seed in 1..=25 {
        play(seed, "", true);
    }
}

/// Calls of the program that fail.
const CALLS: [&str; 30] = [
    "cuMemAlloc_v2",
    "cuMemAlloc",
    "cuMemAllocPitch_v2",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemFree_v2",
    "cuMemFree",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuMemFreeAsync",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemRetainAllocationHandle",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuCtxCreate_v2",
    "cuCtxCreate",
    "cuCtxDestroy_v2",
    "cuCtxDestroy",
    "cuCtxDetach",
    "cuCtxAttach",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset_v2",
    "cuDevicePrimaryCtxReset",
    "cuStreamSynchronize",
];

/// Questions that the books ask the driver and that fail.
const QUESTIONS: [&str; 8] = [
    "cuMemPoolGetAttribute",
    "cuMemPoolTrimTo",
    "cuStreamIsCapturing",
    "cuStreamIsCapturing_ptsz",
    "cuCtxGetId",
    "cuStreamGetCtx",
    "cuDevicePrimaryCtxGetState",
    "cuMemGetAllocationGranularity",
];

/// Rules of SIMCUDA_FAIL for some of `functions`.
fn faults(seed: u64, functions: &[&str], rules: usize) -> String {
    let mut chance = Chance(seed << 20 | 1);
    let rules: Vec<String> = (0..rules)
        .map(|_| {
            let code = chance.pick(&["1", "2", "201", "700", "719", "999"]);
            format!("{}:{}:{code}", chance.pick(functions), 1 + chance.below(12))
        })
        .collect();
    rules.join(",")
}

#[test]
fn after_any_sequence_with_calls_that_fail_the_books_equal_the_truth() {
    for seed in 1..=25 {
        play(1000 + seed, &faults(seed, &CALLS, 12), true);
    }
}

#[test]
fn after_any_sequence_with_unanswered_questions_the_books_equal_the_truth() {
    for seed in 1..=25 {
        let (calls, questions) = (faults(seed, &CALLS, 6), faults(seed, &QUESTIONS, 6));
        play(2000 + seed, &format!("{calls},{questions}"), false);
    }
}
