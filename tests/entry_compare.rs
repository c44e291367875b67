//! Look-ups of third parties end the same with and without the preload, to the byte: from the program, from linked,
//! dlopened, DEEPBIND and dlmopened libraries, with a driver and without, beside another interposer.

mod entry;

use std::path::Path;

use entry::{Yard, builds, preload};

/// The program of `entry_compare.c` with its libraries.
fn yard() -> Yard {
    let yard = Yard::new();
    yard.library("beside/libbeside.so", "entry_beside.c", &[]);
    for part in ["linked", "local", "deep", "apart"] {
        let (part_is, soname) = (format!("-DPART={part}"), format!("-Wl,-soname,lib{part}.so"));
        let flags = [&part_is, &soname, "-Wl,-z,lazy", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/beside"];
        yard.library(&format!("lib{part}.so"), "entry_compare.c", &flags);
        let now = [&part_is, &soname, "-Wl,-z,now", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/beside"];
        yard.library(&format!("now/lib{part}.so"), "entry_compare.c", &now);
    }
    yard.program("program", "entry_compare.c", &["-DPART=program", "-DPROGRAM", "-rdynamic", "-L.", "-llinked"]);
    yard.driver("cuda", &[]);
    yard
}

fn is_the_same(yard: &Yard, cuda: &str, folders: &[&str], before: &[&Path], after: &[&Path]) {
    let run = |ours: &[&Path]| {
        let libraries: Vec<&Path> = before.iter().chain(ours).chain(after).copied().collect();
        let run = preload(yard.run(yard.path("program"), folders).arg(cuda), &libraries);
        let output = run.out();
        output.ok();
        output.stdout
    };
    let bare = run(&[]);
    assert!(bare.lines().count() > 300, "{bare}");
    for library in builds() {
        let with = run(&[&library]);
        for (bare, with) in bare.lines().zip(with.lines()) {
            assert_eq!(with, bare, "{cuda}, {}, {before:?} {after:?}", library.display());
        }
        assert_eq!(with, bare);
    }
}

#[test]
fn look_ups_end_the_same_without_a_driver() {
    let yard = yard();
    is_the_same(&yard, "none", &["."], &[], &[]);
    is_the_same(&yard, "none", &["now", "."], &[], &[]);
}

#[test]
fn look_ups_end_the_same_with_a_driver_in_local_and_in_global_scope() {
    let yard = yard();
    for cuda in ["local", "global"] {
        is_the_same(&yard, cuda, &[".", "cuda"], &[], &[]);
        is_the_same(&yard, cuda, &["now", ".", "cuda"], &[], &[]);
    }
}

#[test]
fn look_ups_end_the_same_beside_another_interposer_before_and_after_us() {
    let yard = yard();
    let plain = yard.library("libinterposer.so", "entry_interposer.c", &[]);
    for cuda in ["none", "local", "global"] {
        is_the_same(&yard, cuda, &[".", "cuda"], &[&plain], &[]);
        is_the_same(&yard, cuda, &[".", "cuda"], &[], &[&plain]);
        is_the_same(&yard, cuda, &["now", ".", "cuda"], &[], &[&plain]);
    }
}

#[test]
fn look_ups_end_the_same_beside_an_interposer_of_cuda_functions() {
    let yard = yard();
    let wraps = yard.library("libinterposer.so", "entry_interposer.c", &["-DWRAPS_CUDA"]);
    for cuda in ["none", "local", "global"] {
        is_the_same(&yard, cuda, &[".", "cuda"], &[&wraps], &[]);
        is_the_same(&yard, cuda, &[".", "cuda"], &[], &[&wraps]);
    }
}

/// Field case A25: a weak tool hook of a preloaded library asks for the next one and must not find itself.
#[test]
fn a_weak_tool_hook_finds_the_next_one_and_not_itself() {
    let yard = yard();
    let tool = yard.path("liblocal.so");
    is_the_same(&yard, "none", &["."], &[&tool], &[]);
    is_the_same(&yard, "none", &["."], &[], &[&tool]);
}
