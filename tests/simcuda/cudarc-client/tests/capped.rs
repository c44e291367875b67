//! A Rust program that uses cudarc is capped as any other.

use harness::{MIB, Sim};

const CLIENT: &str = env!("CARGO_BIN_EXE_cudarc-client");

#[test]
fn the_cap_holds_in_a_program_that_uses_cudarc() {
    let sim = Sim::new();
    for (asked, answer) in [("200", "ok\n"), ("300", "CUDA_ERROR_OUT_OF_MEMORY\n")] {
        let out = sim.run(CLIENT).arg(asked).capped("300MiB").out();
        assert!(out.ok().stdout.ends_with(answer), "{out}");
        let told = format!("\n{} {}\n", 300 * MIB, 300 * MIB);
        assert!(out.stdout.contains(&told), "{out}");
        let process = sim.truth().process(out.pid).expect("it called the driver");
        assert!(process.per_device[0].peak_blocks <= 300 * MIB, "{out}");
    }
}
