//! What the simulated driver does beside memory: captures and graphs, copies, modules and launches, traces.

mod captures;
mod copies;
mod costs;
mod traces;

use harness::{Output, Sim};

/// Makes the primary context of device 0 current; its handle in `c`.
const START: [&str; 3] = ["cuInit 0", "cuDevicePrimaryCtxRetain &c 0", "cuCtxSetCurrent $c"];

/// Runs commands of `tests/apps/driver.c` in a current context and requires the code of each: (command, code).
#[track_caller]
fn codes(sim: &Sim, pairs: &[(&str, u32)]) -> Output {
    let commands = pairs.iter().map(|pair| pair.0);
    let out = sim.run(harness::cc("driver.c", &[])).args(START).args(commands).out();
    let answers = out.ok().lines();
    // `set` has no code.
    let lines: Vec<&str> = answers.iter().skip(START.len()).copied().filter(|line| *line != "set").collect();
    let pairs: Vec<_> = pairs.iter().filter(|pair| !pair.0.starts_with("set ")).collect();
    for ((command, wanted), line) in pairs.iter().zip(&lines) {
        let code = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        assert!(code == Some(*wanted), "{command}: {line}, wanted {wanted}\n{out}");
    }
    assert_eq!(lines.len(), pairs.len(), "{out}");
    out
}
