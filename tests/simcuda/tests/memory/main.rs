//! The simulated driver's memory: what it answers, and that its books say what was done.

mod arrays;
mod blocks;
mod contexts;
mod graphs;
mod pools;
mod processes;
mod refusals;
mod virtual_memory;

use harness::{Child, MIB, Output, Sim};
use simdevice::Held;

/// A machine and the driver program.
pub(crate) struct Bench {
    sim: Sim,
}

/// Makes the primary context of device 0 current; its handle in `c`.
const START: [&str; 3] = ["cuInit 0", "cuDevicePrimaryCtxRetain &c 0", "cuCtxSetCurrent $c"];

impl Bench {
    fn new(knobs: &[(&str, &str)]) -> Bench {
        Bench { sim: Sim::with(knobs) }
    }

    /// Runs `commands` in a current context to the end; the answers to them.
    #[track_caller]
    fn run(&self, commands: &[&str]) -> (Vec<String>, Output) {
        let out = self.sim.run(harness::cc("driver.c", &[])).args(START).args(commands).out();
        let answers = out.ok().lines().iter().skip(START.len()).map(|line| (*line).to_owned()).collect();
        (answers, out)
    }

    /// Requires each command's answer: pairs of command and answer.
    #[track_caller]
    fn expect(&self, pairs: &[(&str, &str)]) -> Output {
        let commands: Vec<&str> = pairs.iter().map(|(command, _)| *command).collect();
        let (answers, out) = self.run(&commands);
        for ((command, wanted), got) in pairs.iter().zip(&answers) {
            assert_eq!(got, wanted, "{command}\n{out}");
        }
        assert_eq!(answers.len(), pairs.len(), "{out}");
        out
    }

    /// A process with a current context that waits for commands.
    #[track_caller]
    fn session(&self) -> Session {
        let mut session = Session { child: self.sim.spawn(harness::cc("driver.c", &[]), &[]) };
        for command in START {
            session.code(command, 0);
        }
        session
    }

    /// What a process holds on device 0.
    #[track_caller]
    fn held(&self, pid: u32) -> Held {
        self.sim.truth().process(pid).expect("it called the driver").per_device[0]
    }

    /// Blocks and pages that a process holds on device 0, in MiB.
    #[track_caller]
    fn mib(&self, pid: u32) -> (u64, u64) {
        let held = self.held(pid);
        (held.blocks / MIB, held.pages / MIB)
    }
}

/// A running driver program.
pub(crate) struct Session {
    child: Child,
}

impl Session {
    fn pid(&self) -> u32 {
        self.child.pid()
    }

    #[track_caller]
    fn ask(&mut self, command: &str) -> String {
        self.child.ask(command)
    }

    /// Requires a code; what was answered beside it.
    #[track_caller]
    fn code(&mut self, command: &str, code: u32) -> String {
        let answer = self.ask(command);
        assert_eq!(answer.split(' ').nth(1), Some(code.to_string().as_str()), "{command}: {answer}");
        answer
    }

    /// Requires success; the value of the (first) slot that was given.
    #[track_caller]
    fn value(&mut self, command: &str) -> u64 {
        let answer = self.code(command, 0);
        let value = answer.split('=').nth(1).and_then(|rest| rest.split(' ').next());
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{command}: {answer}"))
    }
}
