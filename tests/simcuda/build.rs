//! Completes the driver: every public name that no source file defines becomes an export that answers NOT_SUPPORTED.
//!
//! `names.txt` lists all public names. A source file defines a name on a line of its own that begins with `fn cu…` inside a
//! `cuda_api!` block (several names may share one body: `fn cuMemAllocAsync, cuMemAllocAsync_ptsz(…)`). From both follows
//! `table.rs`: the stubs, and one row per exported name with its address.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=names.txt");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // As the real library is linked: what it says of itself is its own, whatever is preloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    let mut defined = BTreeMap::new();
    scan(Path::new("src"), "crate", &mut defined);
    let names = fs::read_to_string("names.txt").expect("names.txt lies beside build.rs");
    let (mut stubs, mut rows) = (String::new(), String::new());
    for line in names.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, base, version, kind] = fields[..] else { panic!("names.txt: {line:?} has not four fields") };
        if !defined.contains_key(name) {
            writeln!(stubs, "stub!({name});").unwrap();
        }
        let path = defined.remove(name).unwrap_or_else(|| "self".to_owned());
        writeln!(rows, "    row(\"{name}\", \"{base}\", {version}, {}, {path}::{name}::ADDRESS),", kind == "thread")
            .unwrap();
    }
    // A name that only the project knows is a spelling mistake.
    assert!(defined.is_empty(), "defined in src/ but not in names.txt: {:?}", defined.keys().collect::<Vec<_>>());
    let table = format!("{stubs}\npub static TABLE: &[Row] = &[\n{rows}];\n");
    fs::write(PathBuf::from(env::var("OUT_DIR").unwrap()).join("table.rs"), table).unwrap();
}

/// Notes the module path of every name that a file under `folder` defines.
fn scan(folder: &Path, module: &str, defined: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            scan(&path, &format!("{module}::{stem}"), defined);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if path.extension().is_none_or(|ext| ext != "rs") || !text.contains("cuda_api!") {
            continue;
        }
        let inside =
            if matches!(stem.as_str(), "lib" | "mod") { module.to_owned() } else { format!("{module}::{stem}") };
        for line in text.lines() {
            let Some(rest) = line.trim_start().strip_prefix("fn cu") else {
                continue;
            };
            if !rest.starts_with(|c: char| c.is_ascii_uppercase()) {
                continue;
            }
            let list = format!("cu{}", rest.split('(').next().unwrap());
            for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                assert!(defined.insert(name.to_owned(), inside.clone()).is_none(), "{name} is defined twice");
            }
        }
    }
}
