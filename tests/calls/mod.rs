//! Talks with `tests/apps/calls.c`, one command and one answer at a time, and compares the books with the truth.
#![allow(dead_code, missing_docs)] // each test file uses a part

use harness::{Child, Output, Run, Sim, cc};
use simdevice::Truth;

pub const MIB: u64 = harness::MIB;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: u32 = 2;

/// One line of the program: what was done, the driver's code, what it told.
#[derive(Clone, Debug)]
pub struct Answer {
    pub line: String,
    pub code: u32,
    pub values: Vec<u64>,
}

impl Answer {
    #[track_caller]
    pub fn parse(line: &str) -> Answer {
        let mut words = line.split_whitespace().skip(1);
        let code = words.next().and_then(|word| word.parse().ok());
        Answer {
            line: line.to_owned(),
            code: code.unwrap_or_else(|| panic!("no code in {line:?}")),
            values: words.filter_map(|word| word.parse().ok()).collect(),
        }
    }
}

/// Counts allocations only: block for block, without the pages that small ones may need.
pub fn only_allocations(run: Run) -> Run {
    run.env("GPUCAP_OVERHEAD", "0")
}

/// A running program under the cap.
pub struct Calls {
    child: Child,
    truth: Truth,
    /// The device of its current context.
    pub device: usize,
}

impl Calls {
    /// One that reaches the driver by dlopen and dlsym, with the primary context of device 0.
    #[track_caller]
    pub fn start(sim: &Sim, limit: &str) -> Calls {
        let mut calls = Calls::without_context(sim, limit);
        calls.ok("retain 0");
        calls
    }

    /// The same without a context.
    #[track_caller]
    pub fn without_context(sim: &Sim, limit: &str) -> Calls {
        let run = sim.run(cc("calls.c", &[])).arg("dlsym").capped(limit);
        Calls::run(sim, only_allocations(run))
    }

    /// Any run of it; the driver is started.
    #[track_caller]
    pub fn run(sim: &Sim, run: Run) -> Calls {
        let mut calls = Calls { child: run.spawn(), truth: sim.truth(), device: 0 };
        calls.ok("init");
        calls
    }

    #[track_caller]
    pub fn ask(&mut self, command: &str) -> Answer {
        let line = self.child.ask(command);
        assert_eq!(line.split(' ').next(), command.split(' ').next(), "{command}: {line}");
        Answer::parse(&line)
    }

    /// A command that succeeds.
    #[track_caller]
    pub fn ok(&mut self, command: &str) -> Answer {
        self.gets(command, 0)
    }

    /// A command that gets that code.
    #[track_caller]
    pub fn gets(&mut self, command: &str, code: u32) -> Answer {
        let answer = self.ask(command);
        assert_eq!(answer.code, code, "{command}: {}", answer.line);
        answer
    }

    /// An allocation that is refused at the limit and leaves its out-params alone.
    #[track_caller]
    pub fn refused(&mut self, command: &str) {
        let answer = self.gets(command, OUT_OF_MEMORY);
        assert!(answer.line.ends_with("ok"), "out-params: {}", answer.line);
    }

    /// Free and total bytes of the current device, as the program is told.
    #[track_caller]
    pub fn info(&mut self) -> (u64, u64) {
        let answer = self.ok("info");
        (answer.values[0], answer.values[1])
    }

    /// What the books say that it holds on the current device; the truth must say the same.
    #[track_caller]
    pub fn held(&mut self) -> u64 {
        let (free, total) = self.info();
        assert_eq!(total - free, self.really(self.device), "books against truth");
        total - free
    }

    /// Requires that it holds so many bytes, by the books and in truth.
    #[track_caller]
    pub fn holds(&mut self, bytes: u64) {
        assert_eq!(self.held(), bytes);
    }

    /// What it really holds on a device, by blocks.
    #[track_caller]
    pub fn really(&self, device: usize) -> u64 {
        let process = self.truth.process(self.child.pid());
        process.expect("it called the driver").per_device[device].blocks
    }

    /// The most that it ever really held on a device.
    #[track_caller]
    pub fn peak(&self, device: usize) -> u64 {
        let process = self.truth.process(self.child.pid());
        process.expect("it called the driver").per_device[device].peak_blocks
    }

    /// The same before it has called the driver for anything.
    pub fn really_or_zero(&self, device: usize) -> u64 {
        let process = self.truth.process(self.child.pid());
        process.map_or(0, |process| process.per_device[device].blocks)
    }

    /// The same before it has called the driver for anything.
    pub fn peak_or_zero(&self, device: usize) -> u64 {
        let process = self.truth.process(self.child.pid());
        process.map_or(0, |process| process.per_device[device].peak_blocks)
    }

    /// Its end, which must be a clean one.
    #[track_caller]
    pub fn end(self) -> Output {
        let out = self.child.wait();
        out.ok();
        out
    }
}

/// An allocating command: entry, name, bytes.
pub fn take(entry: &str, name: &str, bytes: u64) -> String {
    format!("take {entry} {name} {bytes}")
}
