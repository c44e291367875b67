//! When the variables are read, and that nothing goes past them however a program begins.

use std::path::Path;

use harness::{Run, Sim};
use object::{Object, ObjectSymbol};
use script::{GIB, MIB, answer, client, numbers, peak, said_once, script, silent};

mod script;

#[test]
fn the_variables_hold_from_the_first_cuda_call_on() {
    let sim = Sim::new();
    let commands =
        format!("setenv GPUCAP_LIMIT 1GiB\nsetenv GPUCAP_LOG error\ninit\nretain 0\ninfo\ntake alloc a {}", 2 * GIB);
    let out = script(&sim, &commands).preload().out();
    assert_eq!(numbers(silent(out.ok()), "info", 0), [0, GIB, GIB], "B18: set by the program before its first call");
    assert_eq!(answer(&out, "take", 0), "2 ok");

    let late = "setenv GPUCAP_LIMIT 100%\nsetenv GPUCAP_REPORT device\nsetenv GPUCAP_DISABLE 1\nsetenv GPUCAP_LOG off";
    for commands in [format!("init\n{late}\nretain 0"), format!("init\nretain 0\ntake alloc b 4096\n{late}")] {
        let commands = format!("{commands}\nfree b\ninit\ninfo\ntake alloc a {}", 2 * GIB);
        let out = script(&sim, &commands).capped("1GiB").out();
        out.ok();
        assert_eq!(numbers(&out, "info", 0), [0, GIB, GIB], "A65: {out}");
        assert_eq!(answer(&out, "take", out.stdout.matches("take ").count() - 1), "2 ok", "{out}");
        assert!(said_once(&out).starts_with("warning: denied "), "{out}");
    }
}

#[test]
fn b16_the_cap_is_in_force_in_static_constructors_before_main() {
    let sim = Sim::new();
    let library = |flags: &[&str]| harness::cc("early.c", &[&["-DLIBRARY", "-shared", "-fPIC"], flags].concat());
    let opens = harness::cc("early.c", &[]);
    let linked = harness::cc("early.c", &["-DDIRECT", "-lcuda"]);
    let expected = format!("early: init 0 info 0 {GIB} {GIB} alloc 2 kept 0\nmain\n");
    for run in
        [sim.run(&opens).arg(library(&[])), sim.run(&opens).arg(library(&["-DDIRECT", "-lcuda"])), sim.run(&linked)]
    {
        let out = run.capped("1GiB").out();
        assert_eq!(out.ok().stdout, expected, "{out}");
        assert!(said_once(&out).starts_with("warning: denied cuMemAlloc_v2 "), "{out}");
        assert_eq!(peak(&sim, &out, 0), GIB);
    }
}

/// Where libcuda's `name` lies, from the beginning of the library.
fn offset(libcuda: &Path, name: &str) -> u64 {
    let bytes = std::fs::read(libcuda).expect("readable");
    let file = object::File::parse(&*bytes).expect("a library");
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
    symbol.expect("defined").address()
}

#[test]
fn a_program_that_started_the_driver_unseen_is_capped_and_refused_all_the_same() {
    let sim = Sim::new();
    let unseen = |run: fn(Run) -> Run| {
        let out = run(client(&sim, "unseen.py")).arg(offset(&sim.libcuda(), "cuInit").to_string()).out();
        out.ok();
        out
    };
    let out = unseen(|run| run.capped("1GiB"));
    assert_eq!(out.stdout, format!("init 0\nretain 0\nover 2\nwithin 0\ninfo 0 0 {GIB}\n"), "{out}");
    let out = unseen(|run| run.capped("8"));
    assert!(out.stdout.starts_with("init 0\nretain 3\nover 3\nwithin 3\n"), "{out}");
    said_once(&out);
    assert_eq!(peak(&sim, &out, 0), 0);
}

#[test]
fn no_thread_passes_while_another_finds_the_configuration_wrong() {
    // One that is wrong by itself, and one that turns out wrong once the devices are known.
    for limit in ["8", "GPU-8932f937=1GiB"] {
        for _ in 0..10 {
            let sim = Sim::with(&[
                ("DEVICES", "2"),
                ("UUIDS", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-8932f937-d72c-4106-c12f-20bd9faed9f7"),
                ("LATENCY_US", "cuInit=300,cuDeviceTotalMem_v2=300"),
            ]);
            let out = client(&sim, "crowd.py").arg("8").capped(limit).out();
            assert_eq!(out.ok().stdout, "1 3 8\n", "{out}");
            said_once(&out);
            assert_eq!(peak(&sim, &out, 0), 0);
        }
    }
    let sim = Sim::new();
    let out = client(&sim, "crowd.py").arg("8").capped("10MiB").out();
    assert_eq!(out.ok().stdout, "0 0 5\n0 2 3\n", "{out}");
    assert_eq!(peak(&sim, &out, 0), 10 * MIB);
}
