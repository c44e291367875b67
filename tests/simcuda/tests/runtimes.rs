//! The real CUDA runtimes start on the simulated driver, and what they do is in the books.

use harness::{MIB, Output, Sim, cuda_wheel, python, root};

/// Runs `tests/clients/cudart.py` with a runtime on a driver.
fn run(sim: &Sim, runtime: &str) -> Output {
    let script = root().join("tests/clients/cudart.py");
    let program = sim.run(python()).arg(script).arg(cuda_wheel(runtime));
    program.out()
}

/// Every line but the deliberate failure says 0.
fn check(runtime: &str, driver: &str) {
    let sim = Sim::with(&[("DRIVER", driver)]);
    let out = run(&sim, runtime);
    let text = &out.ok().stdout;
    for line in text.lines() {
        let wanted = if line.starts_with("cudaMalloc_1TiB") { Some("2") } else { Some("0") };
        assert!(line == "end" || line.split(' ').nth(1) == wanted, "{runtime} on {driver}: {line}\n{text}");
    }
    assert!(text.contains("cudaGetDeviceCount 0 1\n") && text.ends_with("end\n"), "{text}");
    assert!(text.contains("cudaGetDeviceProperties 0 Simulated_H100\n"), "{text}");
    let truth = sim.truth();
    let process = truth.process(out.pid).expect("it called the driver");
    assert!(
        process.per_device[0].peak_blocks >= 10 * MIB,
        "nothing was allocated: {process:?}",
        process = process.per_device
    );
    assert_eq!(truth.device(0).used, 0, "a dead process holds nothing");
    assert!(process.calls("cuMemAlloc_v2") >= 1 && process.calls("cuArray3DCreate_v2") == 1);
    assert_eq!(process.calls("capture violation"), 0);
}

#[test]
fn libcudart_11_8_works_on_drivers_of_12_2_and_13_5() {
    check("11.8", "12020");
    check("11.8", "13050");
}

#[test]
fn libcudart_12_9_works_on_drivers_of_12_2_13_0_and_13_5() {
    check("12.9", "12020");
    check("12.9", "13000");
    check("12.9", "13050");
}

#[test]
fn libcudart_13_5_works_on_drivers_of_13_0_and_13_5() {
    check("13.5", "13000");
    check("13.5", "13050");
}

#[test]
fn libcudart_13_5_finds_a_driver_of_12_2_too_old() {
    const INSUFFICIENT_DRIVER: &str = "cudaMalloc 35";
    let out = run(&Sim::with(&[("DRIVER", "12020")]), "13.5");
    assert!(out.stdout.lines().any(|line| line == INSUFFICIENT_DRIVER), "{}", out.stdout);
}

#[test]
fn visible_devices_are_what_the_runtime_counts() {
    let sim = Sim::with(&[("DEVICES", "3")]);
    let script = root().join("tests/clients/cudart.py");
    let out = sim.run(python()).arg(script).arg(cuda_wheel("12.9")).env("CUDA_VISIBLE_DEVICES", "2,0").out();
    assert!(out.ok().stdout.contains("cudaGetDeviceCount 0 2\n"), "{}", out.stdout);
    let process = sim.truth().process(out.pid).expect("it called the driver");
    assert_eq!(process.per_device[0].peak_blocks, 0);
    assert!(process.per_device[2].peak_blocks > 0, "device 0 of the process is device 2 of the machine");
}

#[test]
fn a_program_with_libcudart_linked_statically_works() {
    for version in ["12.9", "13.5"] {
        let library = cuda_wheel(version).with_file_name("libcudart_static.a");
        let library = library.display().to_string();
        let helper = library.replace("libcudart_static.a", "libculibos.a");
        let mut flags = vec![&*library];
        if std::path::Path::new(&helper).exists() {
            flags.push(&helper);
        }
        flags.push("-lrt");
        let sim = Sim::with(&[("TOTAL_MIB", "1024")]);
        let out = sim.run(harness::cc("static_cudart.c", &flags)).arg("100").out();
        let (left, total) = (924 * MIB, 1024 * MIB);
        assert_eq!(out.ok().stdout, format!("0 0 {left} {total}\n"), "{version}");
    }
}
