//! A Rust program that uses cudarc runs on the simulated driver.

use harness::{MIB, Sim};

const CLIENT: &str = env!("CARGO_BIN_EXE_cudarc-client");

#[test]
fn cudarc_finds_every_symbol_and_its_data_comes_back() {
    let sim = Sim::with(&[("TOTAL_MIB", "1024")]);
    let out = sim.run(CLIENT).arg("600").out();
    assert!(out.ok().stdout.ends_with("ok\n"), "{}", out.stdout);
    assert!(out.stdout.starts_with("Simulated H100 1\n"), "{}", out.stdout);
    let held = sim.truth().process(out.pid).expect("it called the driver").per_device[0];
    assert!((600 * MIB..700 * MIB).contains(&held.peak_blocks), "{held:?}");
}

#[test]
fn cudarc_is_told_when_the_device_is_full() {
    let sim = Sim::with(&[("TOTAL_MIB", "1024")]);
    let out = sim.run(CLIENT).arg("2000").out();
    assert!(out.ok().stdout.ends_with("CUDA_ERROR_OUT_OF_MEMORY\n"), "{}", out.stdout);
}
