//! Runs of `tests/clients/memory.py`, and what it printed.
#![allow(dead_code, missing_docs)] // each test file uses a part

use harness::{Output, Run, Sim};

pub use harness::MIB;
pub const GIB: u64 = 1 << 30;

/// A run with these words, bare as yet.
pub fn memory(sim: &Sim, words: &str) -> Run {
    with_pynvml(sim, "memory.py").args(words.split(' '))
}

/// A run of a Python client that can import pynvml.
pub fn with_pynvml(sim: &Sim, client: &str) -> Run {
    let root = harness::root();
    sim.run(harness::python())
        .arg(root.join("tests/clients").join(client))
        .env("PYTHONPATH", root.join("target/wheels/nvidia-ml-py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GPUCAP_OVERHEAD", "0")
}

/// What NVML told of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}

pub fn told(total: u64, used: u64) -> Told {
    Told { total, free: total - used, used }
}

/// The devices that one `nvml` or `mig` showed, by NVML's index, UUID first. Both versions agree and their sums are exact.
#[track_caller]
pub fn devices(lines: &[&str]) -> Vec<(String, Told)> {
    let device = |line: &&str| {
        let words: Vec<&str> = line.split(' ').collect();
        let ["nvml", _, uuid, "v1", total, free, used, "v2", rest @ ..] = &words[..] else { panic!("{line}") };
        assert_eq!(rest, [*total, *free, *used, "0"], "v1 and v2: {line}");
        let [total, free, used] = [total, free, used].map(|word| word.parse().expect("bytes"));
        assert_eq!(total, used + free, "{line}");
        ((*uuid).to_owned(), Told { total, free, used })
    };
    lines.iter().map(device).collect()
}

/// All that NVML told, an entry per line, without the UUIDs.
#[track_caller]
pub fn all_told(out: &Output) -> Vec<Told> {
    let lines: Vec<&str> = out.ok().stdout.lines().filter(|line| line.starts_with("nvml ")).collect();
    devices(&lines).into_iter().map(|(_, told)| told).collect()
}

/// The numbers of every line that begins with this word.
#[track_caller]
pub fn numbers(out: &Output, word: &str) -> Vec<Vec<u64>> {
    let start = format!("{word} ");
    let rest = out.stdout.lines().filter_map(|line| line.strip_prefix(&start));
    rest.map(|rest| rest.split(' ').map(|word| word.parse().expect("a number")).collect()).collect()
}
