//! Field case A29: another interposer of `dlsym` and of CUDA functions runs beside us, before and after.

mod entry;

use std::path::Path;
use std::time::Duration;

use entry::{Yard, preload};

const LINES: &str = "open libcuda.so.1
call cuInit 0
alloc cuMemAlloc_v2 100
dlsym cuMemAlloc_v2
gpa2 cuMemAlloc 12000 0
gpa1 cuMemAlloc 12000 0
alloc cuMemAlloc_v2 100
";

fn run(yard: &Yard, libraries: &[&Path]) -> harness::Output {
    let program = yard.program("resolve", "entry_resolve.c", &[]);
    let run = yard.run(&program, &["cuda"]).stdin(LINES).env("GPUCAP_LIMIT", "1GiB").timeout(Duration::from_secs(2));
    let output = preload(run, libraries).out();
    assert_eq!(output.ok().stdout.matches("alloc cuMemAlloc_v2 100: 0").count(), 2, "{output:?}");
    output
}

#[test]
fn behind_us_it_is_called_by_our_hooks_and_look_ups_give_our_hooks() {
    let yard = Yard::new();
    yard.driver("cuda", &[]);
    let other = yard.library("libinterposer.so", "entry_interposer.c", &["-DWRAPS_CUDA"]);
    let output = run(&yard, &[&harness::shim(), &other]);
    assert_eq!(output.stdout.matches("libgpucap.so cuMemAlloc_v2").count(), 3, "{output:?}");
    assert!(output.stderr.contains("interposer: 2 allocations"), "{output:?}");
}

#[test]
fn in_front_of_us_it_answers_as_without_us() {
    let yard = Yard::new();
    yard.driver("cuda", &[]);
    let other = yard.library("libinterposer.so", "entry_interposer.c", &["-DWRAPS_CUDA"]);
    let output = run(&yard, &[&other, &harness::shim()]);
    assert_eq!(output.stdout, run(&yard, &[&other]).stdout);
    assert!(output.stderr.contains("interposer: 2 allocations"), "{output:?}");
}

#[test]
fn one_that_answers_no_look_ups_does_not_get_in_their_way() {
    let yard = Yard::new();
    yard.driver("cuda", &[]);
    let other = yard.library("libinterposer.so", "entry_interposer.c", &["-DWRAPS_CUDA", "-DNO_DLSYM"]);
    for order in [[harness::shim(), other.clone()], [other, harness::shim()]] {
        let output = run(&yard, &[&order[0], &order[1]]);
        assert_eq!(output.stdout.matches("libgpucap.so cuMemAlloc_v2").count(), 3, "{output:?}");
    }
}

#[test]
fn a_linked_program_calls_both_in_either_order() {
    let yard = Yard::new();
    yard.driver("cuda", &[]);
    let program = yard.program("linked", "entry_client.c", &["-DPROGRAM", "-Lcuda", "-lcuda"]);
    for flags in [&["-DWRAPS_CUDA"][..], &["-DWRAPS_CUDA", "-DNO_DLSYM"]] {
        let other = yard.library("libinterposer.so", "entry_interposer.c", flags);
        for order in [[harness::shim(), other.clone()], [other, harness::shim()]] {
            let run = yard.run(&program, &["cuda"]).args(["cuMemAlloc_v2", "1000", "1"]).env("GPUCAP_LOG", "off");
            let output = preload(run.timeout(Duration::from_secs(2)), &[&order[0], &order[1]]).out();
            assert!(output.ok().stdout.contains("again 0"), "{output:?}");
            assert!(output.stderr.contains("interposer: 2 allocations"), "{output:?}");
        }
    }
}
