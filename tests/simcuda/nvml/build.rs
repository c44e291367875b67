//! Completes the library: every public NVML name that no source file defines becomes an export that answers NOT_SUPPORTED.
//!
//! `names.txt` lists what the library of driver 535 exports and what nvidia-ml-py 13.6 asks for. A source file defines a
//! name on a line of its own that begins with `fn nvml…` (several names may share one body).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=names.txt");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    let mut defined = BTreeSet::new();
    for entry in fs::read_dir("src").unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for rest in text.lines().filter_map(definition) {
            let list = format!("nvml{}", rest.split('(').next().unwrap());
            defined.extend(list.split(',').map(|name| name.trim().to_owned()));
        }
    }
    let names = fs::read_to_string("names.txt").expect("names.txt lies beside build.rs");
    let unknown: Vec<_> = defined.iter().filter(|name| !names.lines().any(|line| line == *name)).collect();
    assert!(unknown.is_empty(), "defined in src/ but not in names.txt: {unknown:?}");
    let mut stubs = String::new();
    for name in names.lines().filter(|name| !defined.contains(*name)) {
        writeln!(stubs, "nvml_api! {{ fn {name}() -> Code {{ NOT_SUPPORTED }} }}").unwrap();
    }
    fs::write(PathBuf::from(env::var("OUT_DIR").unwrap()).join("stubs.rs"), stubs).unwrap();
}

/// What follows `fn nvml` in a line that defines names.
fn definition(line: &str) -> Option<&str> {
    line.trim_start().trim_start_matches("pub unsafe extern \"C\" ").strip_prefix("fn nvml")
}
