//! Drivers that are older, newer, twice there, or only a front: names lead to hooks where the driver has them, and nowhere
//! else than without us where it lacks them.

mod entry;

use entry::Yard;

/// Where the lines of `entry_resolve.c` lead, bare and with the preload.
fn resolve(
    yard: &Yard,
    folders: &[&str],
    lines: &[&str],
    variables: &[(&str, &str)],
) -> (Vec<String>, Vec<String>, String) {
    let program = yard.program("resolve", "entry_resolve.c", &[]);
    let run = |preloaded: bool| {
        let mut run = yard.run(&program, folders).stdin(&(lines.join("\n") + "\n")).env("GPUCAP_LIMIT", "1GiB");
        if preloaded {
            run = run.preload();
        }
        for (name, value) in variables {
            run = run.env(name, value);
        }
        let output = run.out();
        output.ok();
        let all: Vec<String> =
            output.stdout.lines().map(|line| line.split_once(": ").map_or("", |(_, rest)| rest).to_owned()).collect();
        (all, output.stderr)
    };
    let (bare, _) = run(false);
    let (with, stderr) = run(true);
    assert_eq!(bare.len(), lines.len(), "{bare:?}");
    assert_eq!(with.len(), lines.len(), "{with:?}\n{stderr}");
    (bare, with, stderr)
}

/// Whether an answer is our hook for `name`.
fn is_hook(answer: &str, name: &str) -> bool {
    answer.contains(&format!("libgpucap.so {name} "))
}

/// Field case A19: `cuGetProcAddress` is the first thing ever asked for, even for itself.
#[test]
fn the_very_first_look_up_may_be_cu_get_proc_address_asked_for_itself() {
    let yard = Yard::new();
    yard.driver("cuda", &[]);
    let lines = [
        "open libcuda.so.1",
        "through cuGetProcAddress 11030 0",
        "through cuGetProcAddress 12000 0",
        "through cuGetProcAddress_v2 12000 0",
        "through cuInit 2000 0",
        "through cuMemAlloc 3020 0",
        "through cuMemAlloc 2000 0",
        "through cuDriverGetVersion 2020 0",
    ];
    let (bare, with, _) = resolve(&yard, &["cuda"], &lines, &[]);
    assert!(is_hook(&with[1], "cuGetProcAddress"), "{with:?}");
    assert!(is_hook(&with[2], "cuGetProcAddress_v2"), "{with:?}");
    assert_eq!(with[3], bare[3]);
    assert!(is_hook(&with[4], "cuInit"), "{with:?}");
    assert!(is_hook(&with[5], "cuMemAlloc_v2"), "{with:?}");
    assert!(is_hook(&with[6], "cuMemAlloc"), "{with:?}");
    assert_eq!(with[7], bare[7]);
}

/// Field case A23: what an old driver lacks is not offered either.
#[test]
fn a_name_that_the_driver_lacks_is_not_there_with_us_either() {
    let yard = Yard::new();
    yard.driver("old", &["-DOLD"]);
    let lines = [
        "open libcuda.so.1",
        "dlsym cuGetProcAddress_v2",
        "dlsym cuMemCreate",
        "default cuMemCreate",
        "gpa1 cuMemCreate 11050 0",
        "gpa1 cuMemAlloc 11050 4",
        "gpa2 cuMemAlloc 11050 0",
        "gpa1 cuMemAlloc 11050 0",
        "call cuInit 0",
    ];
    let (bare, with, _) = resolve(&yard, &["old"], &lines, &[]);
    assert_eq!(with[..7], bare[..7]);
    assert!(is_hook(&with[7], "cuMemAlloc_v2"), "{with:?}");
    assert_eq!(with[8], bare[8]);
}

/// Field case A27: WSL's libcuda looks its implementation up by the names that we hook.
#[test]
fn look_ups_that_the_driver_makes_are_its_own() {
    let yard = Yard::new();
    yard.driver("stub", &["-DSTUB"]);
    yard.library("stub/libcuda_impl.so", "entry_driver.c", &["-Wl,-soname,libcuda_impl.so", "-Wl,-Bsymbolic"]);
    let lines = "open libcuda.so.1\ncall cuInit 0\n";
    let program = yard.program("resolve", "entry_resolve.c", &[]);
    for preloaded in [false, true] {
        let run = yard.run(&program, &["stub"]).stdin(lines);
        let output = if preloaded { run.capped("1GiB") } else { run }.out();
        let told = "handle: implementation, own: itself, default: right";
        assert!(output.ok().stdout.contains(told), "{}", output.stdout);
        assert!(output.stdout.ends_with(" 0\n"), "{}", output.stdout);
    }
}

#[test]
fn a_newer_abi_of_an_allocating_function_is_refused() {
    let yard = Yard::new();
    yard.driver("newer", &["-DNEWER"]);
    let lines = [
        "open libcuda.so.1",
        "gpa1 cuMemAlloc 14000 0",
        "gpa2 cuMemAlloc 14000 0",
        "dlsym cuMemAlloc_v3",
        "gpa2 cuMemAlloc 13000 0",
    ];
    let (bare, with, stderr) = resolve(&yard, &["newer"], &lines, &[]);
    assert_eq!(with[1], "500 untouched");
    assert_eq!(with[2], "0 2 null");
    assert_ne!(with[3], bare[3]);
    assert!(is_hook(&with[4], "cuMemAlloc_v2"), "{with:?}");
    assert!(stderr.contains("cuMemAlloc"), "{stderr}");

    let (bare, with, stderr) = resolve(&yard, &["newer"], &lines, &[("GPUCAP_ON_ERROR", "open")]);
    assert_eq!(with[..4], bare[..4]);
    assert!(is_hook(&with[4], "cuMemAlloc_v2"), "{with:?}");
    assert!(stderr.contains("not capped"), "{stderr}");
}

#[test]
fn a_second_copy_of_the_driver_is_refused() {
    let yard = Yard::new();
    yard.driver("cuda", &[]);
    let other = yard.driver("other", &["-DOTHER"]);
    let (open, apart) = (format!("open {}", other.display()), format!("apart {}", other.display()));
    let lines = [
        "open libcuda.so.1",
        "call cuInit 0",
        &open,
        "call cuInit 0",
        "alloc cuMemAlloc_v2 100",
        "gpa1 cuMemAlloc 11050 0",
        "dlsym cuDriverGetVersion",
        &apart,
        "alloc cuMemAlloc_v2 100",
        "open libcuda.so.1",
        "dlsym cuMemAlloc_v2",
    ];
    let (bare, with, stderr) = resolve(&yard, &["cuda"], &lines, &[]);
    assert_eq!([&with[1], &with[3], &with[4], &with[5]], ["0", "800", "800", "800 untouched"]);
    assert_eq!(with[6], bare[6]);
    assert_eq!(with[8], "800");
    assert!(is_hook(&with[10], "cuMemAlloc_v2"), "{with:?}");
    assert_eq!(stderr.matches("second copy").count(), 1, "{stderr}");

    let (bare, with, stderr) = resolve(&yard, &["cuda"], &lines, &[("GPUCAP_ON_ERROR", "open")]);
    assert_eq!(with[2..9], bare[2..9]);
    assert_eq!(stderr.matches("second copy").count(), 1, "{stderr}");
}

#[test]
fn a_driver_in_a_namespace_of_its_own_can_be_the_first_and_is_hooked() {
    let yard = Yard::new();
    let driver = yard.driver("cuda", &[]);
    let apart = format!("apart {}", driver.display());
    let lines = [&apart, "dlsym cuMemAlloc_v2", "gpa1 cuMemAlloc 11050 0", "call cuInit 0"];
    let (_, with, _) = resolve(&yard, &["cuda"], &lines, &[]);
    assert!(is_hook(&with[1], "cuMemAlloc_v2"), "{with:?}");
    assert!(is_hook(&with[2], "cuMemAlloc_v2"), "{with:?}");
    assert_eq!(with[3], "0");
}
