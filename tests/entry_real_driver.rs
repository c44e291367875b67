//! NVIDIA's own libcuda 535, without a GPU: every hooked name in every ABI leads to our hook, every other name to the
//! driver's own function.

mod entry;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use entry::{Yard, builds, exports, hooked, real_driver};

/// CUDA versions at which signatures changed, and both ends.
const VERSIONS: [&str; 16] = [
    "2000",
    "3000",
    "3010",
    "3020",
    "4000",
    "6050",
    "7000",
    "10000",
    "11000",
    "11020",
    "11030",
    "11040",
    "12000",
    "12020",
    "13000",
    "2147483647",
];

fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if version.chars().all(|digit| digit.is_ascii_digit()) => base,
        _ => name,
    }
}

fn questions() -> String {
    let mut names = exports(&real_driver().join("libcuda.so.1"));
    names.retain(|name| name.starts_with("cu"));
    assert!(names.len() > 500, "{}", names.len());
    let bases: BTreeSet<&str> = names.iter().map(|name| base(name)).collect();
    let mut lines = "open libcuda.so.1\n".to_owned();
    for name in &names {
        writeln!(lines, "dlsym {name}").expect("a string");
    }
    for base in bases {
        for version in VERSIONS {
            for flags in 0..4 {
                writeln!(lines, "gpa1 {base} {version} {flags}\ngpa2 {base} {version} {flags}").expect("a string");
            }
        }
    }
    lines + "call cuInit 0\n"
}

fn answers(library: Option<&Path>, disable: bool) -> String {
    let yard = Yard::new();
    let program = yard.program("resolve", "entry_resolve.c", &[]);
    let mut run =
        yard.run(&program, &[]).env("LD_LIBRARY_PATH", real_driver()).stdin(&questions()).env("GPUCAP_LIMIT", "1GiB");
    if let Some(library) = library {
        run = run.env("LD_PRELOAD", library);
    }
    if disable {
        run = run.env("GPUCAP_DISABLE", "1");
    }
    let output = run.out();
    output.ok().stdout.clone()
}

/// Symbol and file of an answer: `… libcuda.so.1 cuMemAlloc_v2 1f0`.
fn found(line: &str) -> Option<(&str, &str)> {
    let mut words = line.rsplit(' ');
    let (_, symbol, file) = (words.next()?, words.next()?, words.next()?);
    file.starts_with("lib").then_some((symbol, file))
}

#[test]
fn every_hooked_name_in_every_abi_is_ours_and_every_other_the_drivers() {
    let bare = answers(None, false);
    let hooked: BTreeSet<String> = hooked().into_iter().collect();
    for library in builds() {
        let with = answers(Some(&library), false);
        assert_eq!(with.lines().count(), bare.lines().count());
        let mut seen = BTreeSet::new();
        for (bare, with) in bare.lines().zip(with.lines()) {
            match found(bare) {
                Some((symbol, "libcuda.so.1")) if hooked.contains(symbol) => {
                    assert_eq!(found(with), Some((symbol, "libgpucap.so")), "{bare} | {with}");
                    seen.insert(symbol);
                }
                _ => assert_eq!(with, bare),
            }
        }
        // All but what only later drivers have.
        let in_driver = exports(&real_driver().join("libcuda.so.1"));
        let expected: BTreeSet<&str> =
            hooked.iter().map(String::as_str).filter(|name| in_driver.iter().any(|known| known == name)).collect();
        assert_eq!(seen, expected);
        assert!(with.ends_with("call cuInit 0: 100\n"), "{}", &with[with.len() - 100..]);
    }
}

#[test]
fn switched_off_every_name_is_the_drivers() {
    let bare = answers(None, false);
    for library in builds() {
        let with = answers(Some(&library), true);
        for (bare, with) in bare.lines().zip(with.lines()) {
            assert_eq!(with, bare);
        }
    }
}

#[test]
fn nvidia_smi_runs_as_without_us() {
    let program = harness::root().join("target/nvidia-535/usr/lib/nvidia/current/nvidia-smi");
    let run = |library: Option<&Path>| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", real_driver()).env("GPUCAP_LIMIT", "1GiB");
        if let Some(library) = library {
            command.env("LD_PRELOAD", library);
        }
        let output = command.output().expect("nvidia-smi runs");
        (
            output.status,
            String::from_utf8(output.stdout).expect("text"),
            String::from_utf8(output.stderr).expect("text"),
        )
    };
    let bare = run(None);
    assert!(bare.1.contains("NVIDIA"), "{bare:?}");
    for library in builds() {
        assert_eq!(run(Some(&library)), bare);
    }
}
