//! Functions that are linked, or looked up by the object that calls them, are capped whatever way that object was loaded.

mod entry;

use std::path::PathBuf;

use entry::builds;
use harness::{Sim, cc};

const CALLS: [&str; 10] = [
    "cuMemAlloc_v2",
    "data",
    "cuGetProcAddress",
    "cuMemAllocPitch_v2",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemCreate",
    "dlsym",
    "default",
    "next",
];

/// Takes 96 MiB at a time, four times, under 300 MiB.
fn is_capped(program: &PathBuf, before: &[&str]) {
    for call in CALLS {
        let sim = Sim::new();
        let run = || sim.run(program).args(before).args([call, "0x6000000", "4"]);
        let bare = run().out();
        assert_eq!(bare.ok().stdout.matches(&format!("{call} 0 written")).count(), 4, "{bare:?}");
        for library in builds() {
            let capped = run().env("LD_PRELOAD", &library).env("GPUCAP_LIMIT", "300MiB").out();
            let lines = capped.ok().lines();
            let taken = format!("{call} 0 written");
            let refused = format!("{call} 2 untouched");
            let expected = ["cuInit 0", &taken, &taken, &taken, &refused, "free 0", "free 0", "free 0", "again 0"];
            assert_eq!(lines, expected, "{before:?} {}\n{}", library.display(), capped.stderr);
        }
    }
}

fn library(flags: &[&str]) -> String {
    let all: Vec<&str> = ["-shared", "-fPIC", "-DALL"].iter().chain(flags).chain(&["-lcuda"]).copied().collect();
    cc("entry_client.c", &all).to_str().expect("a path in UTF-8").to_owned()
}

fn opened_library_is_capped(how: &str, flags: &[&str]) {
    is_capped(&cc("entry_host.c", &[]), &[how, &library(flags)]);
}

#[test]
fn a_linked_program_is_capped_bound_lazily() {
    is_capped(&cc("entry_client.c", &["-DALL", "-DPROGRAM", "-Wl,-z,lazy", "-lcuda"]), &[]);
}

#[test]
fn a_linked_program_is_capped_bound_at_start() {
    is_capped(&cc("entry_client.c", &["-DALL", "-DPROGRAM", "-Wl,-z,now", "-lcuda"]), &[]);
}

#[test]
fn a_linked_program_is_capped_that_is_not_position_independent() {
    is_capped(&cc("entry_client.c", &["-DALL", "-DPROGRAM", "-no-pie", "-fno-pie", "-lcuda"]), &[]);
}

#[test]
fn a_linked_library_is_capped_that_is_opened_in_local_or_global_scope() {
    opened_library_is_capped("lazy", &["-Wl,-z,lazy"]);
    opened_library_is_capped("global-now", &["-Wl,-z,now"]);
}

#[test]
fn a_linked_library_is_capped_that_is_opened_with_deepbind() {
    opened_library_is_capped("deep-lazy", &["-Wl,-z,lazy"]);
    opened_library_is_capped("deep-now", &["-Wl,-z,now", "-Wl,-z,relro"]);
}

#[test]
fn a_linked_library_is_capped_in_a_namespace_of_its_own() {
    opened_library_is_capped("apart", &["-Wl,-z,lazy"]);
    opened_library_is_capped("apart", &["-Wl,-z,now", "-Wl,-z,relro"]);
}

#[test]
fn a_linked_library_is_capped_that_was_closed_and_opened_again() {
    for how in ["lazy+close", "deep-lazy+close", "deep-now+close", "apart+close"] {
        opened_library_is_capped(how, &["-Wl,-z,lazy"]);
    }
}
