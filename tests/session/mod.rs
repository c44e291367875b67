//! A program under the cap that calls any function of the driver as told (`tests/apps/driver.c`), and its books against
//! the truth.
#![allow(dead_code, missing_docs)] // each test file uses a part

use harness::{Child, Output, Run, Sim, cc};
use simdevice::{ProcessTruth, Truth};

pub use harness::MIB;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: u32 = 2;
/// What out-params hold before a call that must leave them alone.
const CANARY: u64 = 0x5ca1_ab1e;

pub struct Session {
    child: Child,
    truth: Truth,
}

impl Session {
    /// One under a limit, with the primary context of device 0 in slot `c`.
    #[track_caller]
    pub fn capped(sim: &Sim, limit: &str) -> Session {
        Session::start(sim, sim.run(cc("driver.c", &[])).capped(limit))
    }

    /// One without the library.
    #[track_caller]
    pub fn bare(sim: &Sim) -> Session {
        Session::start(sim, sim.run(cc("driver.c", &[])))
    }

    #[track_caller]
    fn start(sim: &Sim, run: Run) -> Session {
        let mut session = Session { child: run.spawn(), truth: sim.truth() };
        for command in ["cuInit 0", "cuDevicePrimaryCtxRetain &c 0", "cuCtxSetCurrent $c"] {
            session.ok(command);
        }
        session
    }

    /// The code that a call gets.
    #[track_caller]
    pub fn call(&mut self, command: &str) -> u32 {
        let line = self.child.ask(command);
        let code = line.split(' ').find_map(|word| word.parse().ok());
        code.unwrap_or_else(|| panic!("{command}: {line}"))
    }

    #[track_caller]
    pub fn gets(&mut self, command: &str, code: u32) {
        assert_eq!(self.call(command), code, "{command}");
    }

    #[track_caller]
    pub fn ok(&mut self, command: &str) {
        self.gets(command, 0);
    }

    /// Commands that answer nothing: `set …`.
    #[track_caller]
    pub fn set(&mut self, slot: &str, fields: &[(u64, u64, u64)]) {
        for (offset, size, value) in fields {
            self.child.ask(&format!("set {slot} {offset} {size} {value}"));
        }
    }

    #[track_caller]
    pub fn value(&mut self, slot: &str) -> u64 {
        self.field(slot, 0, 8)
    }

    #[track_caller]
    pub fn field(&mut self, slot: &str, offset: u64, size: u64) -> u64 {
        let line = self.child.ask(&format!("get {slot} {offset} {size}"));
        line.strip_prefix("get ").and_then(|value| value.parse().ok()).expect("a value")
    }

    /// A call that is refused at the limit and leaves the out-param in slot `out` alone.
    #[track_caller]
    pub fn refused(&mut self, command: &str) {
        self.set("out", &[(0, 8, CANARY)]);
        self.gets(command, OUT_OF_MEMORY);
        assert_eq!(self.value("out"), CANARY, "{command}: the out-param");
    }

    /// The bytes of a slot, as a word that [`set_bytes`](Self::set_bytes) of another session takes.
    #[track_caller]
    pub fn bytes(&mut self, slot: &str) -> String {
        let line = self.child.ask(&format!("bytes {slot}"));
        line.strip_prefix("bytes ").expect("bytes").to_owned()
    }

    #[track_caller]
    pub fn set_bytes(&mut self, slot: &str, bytes: &str) {
        self.child.ask(&format!("bytes {slot} {bytes}"));
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// What device 0 shows as used.
    #[track_caller]
    pub fn used(&mut self) -> u64 {
        self.ok("cuMemGetInfo_v2 &free &total");
        self.value("total") - self.value("free")
    }

    /// Requires that it holds so many bytes on device 0, by the books and in truth.
    #[track_caller]
    pub fn holds(&mut self, bytes: u64) {
        let books = self.used();
        assert_eq!((books, self.process().per_device[0].blocks), (bytes, bytes), "books, truth");
    }

    /// What it holds on device 0, where books and truth agree.
    #[track_caller]
    pub fn held(&mut self) -> u64 {
        let truth = self.process().per_device[0].blocks;
        self.holds(truth);
        truth
    }

    #[track_caller]
    pub fn process(&self) -> ProcessTruth {
        self.truth.process(self.child.pid()).expect("it called the driver")
    }

    /// The most that it ever held on device 0.
    #[track_caller]
    pub fn peak(&self) -> u64 {
        self.process().per_device[0].peak_blocks
    }

    #[track_caller]
    pub fn end(self) -> Output {
        let out = self.child.wait();
        out.ok();
        out
    }
}
