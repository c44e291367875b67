//! The monitors that people look at, run under the preload on the simulated NVML: the real nvidia-smi of driver 535, nvitop and
//! gpustat show the cap.

use harness::{MIB, Output, Run, Sim, python, root};

/// A machine with a driver of nvidia-smi's own version.
fn machine(knobs: &[(&str, &str)]) -> Sim {
    Sim::with(&[&[("DRIVER", "12020")], knobs].concat())
}

/// Debian's nvidia-smi 535, as `scripts/fetch` brought it.
fn nvidia_smi(sim: &Sim, arguments: &str) -> Run {
    sim.run(root().join("target/nvidia-535/usr/lib/nvidia/current/nvidia-smi")).args(arguments.split_whitespace())
}

/// Total, used, free and reserved MiB of each device.
#[track_caller]
fn queried(run: Run) -> Vec<[u64; 4]> {
    let out = run
        .args(["--query-gpu=memory.total,memory.used,memory.free,memory.reserved", "--format=csv,noheader,nounits"])
        .out();
    let row = |line: &str| {
        let numbers: Vec<u64> = line.split(", ").map(|word| word.parse().unwrap_or_else(|_| panic!("{out}"))).collect();
        numbers.try_into().unwrap_or_else(|_| panic!("{out}"))
    };
    assert_eq!(out.ok().stderr, "");
    out.stdout.lines().map(row).collect()
}

/// The text without runs of blanks.
fn words(out: &Output) -> String {
    out.ok().stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn nvidia_smi_shows_the_limit_in_its_table() {
    let sim = machine(&[("RESERVED_MIB", "600")]);
    sim.truth().take_foreign(0, 1000 * MIB);
    assert!(words(&nvidia_smi(&sim, "").out()).contains("| 1000MiB / 16984MiB |"), "it works bare");
    let out = nvidia_smi(&sim, "").capped("8GiB").out();
    assert!(words(&out).contains("| 0MiB / 8192MiB |"), "{out}");
    assert_eq!(out.stderr, "");
}

#[test]
fn nvidia_smi_shows_the_limit_in_every_report_of_memory() {
    let sim = machine(&[("RESERVED_MIB", "600")]);
    sim.truth().take_foreign(0, 1000 * MIB);
    assert_eq!(queried(nvidia_smi(&sim, "")), [[16984, 1000, 15384, 600]]);
    assert_eq!(queried(nvidia_smi(&sim, "").capped("8GiB")), [[8192, 0, 8192, 0]]);
    let out = nvidia_smi(&sim, "-q -d MEMORY").capped("8GiB").out();
    let memory = "FB Memory Usage Total : 8192 MiB Reserved : 0 MiB Used : 0 MiB Free : 8192 MiB";
    assert!(words(&out).contains(memory), "{out}");
    // What is left of the device is less than the limit.
    sim.truth().take_foreign(0, 10_000 * MIB);
    assert_eq!(queried(nvidia_smi(&sim, "").capped("8GiB")), [[8192, 2808, 5384, 0]]);
}

#[test]
fn nvidia_smi_shows_each_device_its_own_limit() {
    let sim = machine(&[("DEVICES", "3"), ("TOTAL_MIB", "1000,2000,3000")]);
    let uuid = sim.truth().device(2).uuid;
    let totals = |run: Run| queried(run).iter().map(|row| row[0]).collect::<Vec<_>>();
    let limit = format!("0=100MiB,{}=50%", &uuid[..7]);
    assert_eq!(totals(nvidia_smi(&sim, "").capped(&limit)), [100, 2000, 1500]);
    let swapped = nvidia_smi(&sim, "").capped(&limit).env("CUDA_VISIBLE_DEVICES", "1,0");
    assert_eq!(totals(swapped), [1000, 100, 1500]);
}

#[test]
fn nvidia_smi_starts_no_cuda_and_makes_no_file() {
    let sim = machine(&[]);
    let trace = sim.folder().join("trace");
    let before = std::fs::read_dir(sim.folder()).expect("the machine's folder").count();
    let out = nvidia_smi(&sim, "").capped("8GiB").env("SIMCUDA_TRACE", &trace).out();
    assert_eq!(out.ok().stderr, "");
    let trace = std::fs::read_to_string(&trace).expect("calls of NVML");
    assert!(trace.contains(" nvmlDeviceGetMemoryInfo_v2 nvml 0"), "{trace}");
    assert!(!trace.lines().any(|line| line.contains(" cu")), "{trace}");
    assert_eq!(std::fs::read_dir(sim.folder()).expect("the machine's folder").count(), before + 1, "the trace alone");
}

#[test]
fn switched_off_or_with_a_wrong_limit_nvidia_smi_works_as_without_us() {
    let sim = machine(&[("RESERVED_MIB", "600")]);
    let bare = [[16984, 0, 16384, 600]];
    assert_eq!(queried(nvidia_smi(&sim, "").capped("8GiB").env("GPUCAP_DISABLE", "1")), bare);
    assert_eq!(queried(nvidia_smi(&sim, "").capped("8GiB").env("GPUCAP_REPORT", "device")), bare);
    let out = nvidia_smi(&sim, "").capped("8").out();
    assert!(words(&out).contains("| 0MiB / 16984MiB |"), "{out}");
    assert_eq!(out.stderr.lines().count(), 1, "{out}");
    assert!(out.stderr.contains("GPUCAP_LIMIT"), "{out}");
}

/// A Python tool of `scripts/fetch`.
fn tool(sim: &Sim, name: &str, arguments: &[&str]) -> Run {
    let packages = ["nvidia-ml-py", "nvitop", "gpustat", "blessed", "wcwidth", "psutil"];
    let path = packages.map(|package| root().join("target/wheels").join(package).display().to_string()).join(":");
    sim.run(python())
        .args(["-m", name])
        .args(arguments)
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TERM", "dumb")
        .env("LINES", "60")
        .env("COLUMNS", "160")
}

#[test]
fn gpustat_shows_the_limit() {
    let sim = machine(&[("DEVICES", "2")]);
    sim.truth().take_foreign(0, 1000 * MIB);
    let shown = |run: Run| {
        let out = run.out();
        assert_eq!(out.ok().stderr, "", "{out}");
        let memory =
            out.stdout.lines().skip(1).map(|line| line.rsplit('|').nth(1).expect("a column").trim().to_owned());
        memory.collect::<Vec<_>>()
    };
    let run = || tool(&sim, "gpustat", &["--no-color"]);
    assert_eq!(shown(run()), ["1000 / 16384 MB", "0 / 16384 MB"]);
    assert_eq!(shown(run().capped("0=8GiB,1=25%")), ["0 /  8192 MB", "0 /  4096 MB"]);
}

#[test]
fn nvitop_shows_the_limit() {
    let sim = machine(&[]);
    sim.truth().take_foreign(0, 1000 * MIB);
    let run = || tool(&sim, "nvitop", &["--once", "--no-unicode"]);
    let bare = run().out();
    assert!(words(&bare).contains("| 1000MiB / 16384MiB |"), "{bare}");
    let out = run().capped("8GiB").out();
    assert!(words(&out).contains("| 0B / 8192MiB |"), "{out}");
    assert!(!out.stderr.contains("gpucap"), "{out}");
}

#[test]
fn a_monitor_inside_the_capped_program_shows_what_the_program_uses() {
    let sim = machine(&[("CTX_MIB", "300")]);
    sim.truth().take_foreign(0, 1000 * MIB);
    let code = "import sys; sys.path.insert(0, sys.argv.pop(1))\n\
                from nvitop import Device; from cuda import Driver, MIB\n\
                device = Device(0); before = device.memory_info(); cuda = Driver()\n\
                assert cuda.start() == 0 and cuda.alloc(512 * MIB)[0] == 0\n\
                _, free, total = cuda.info(); after = device.memory_info()\n\
                assert (free, total) == (after.free, after.total)\n\
                print(*(info.total // MIB for info in (before, after)), *(info.used // MIB for info in (before, after)))";
    let path = ["nvidia-ml-py", "nvitop", "psutil"]
        .map(|package| root().join("target/wheels").join(package).display().to_string());
    for (overhead, used) in [("0", 512), ("auto", 812)] {
        let out = sim
            .run(python())
            .args(["-c", code])
            .arg(root().join("tests/clients"))
            .env("PYTHONPATH", path.join(":"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("GPUCAP_OVERHEAD", overhead)
            .capped("8GiB")
            .out();
        assert_eq!(out.ok().stdout, format!("8192 8192 0 {used}\n"), "{out}");
    }
}
