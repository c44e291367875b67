//! What the preload costs a process that never touches CUDA: nothing but its own loading. (Field cases A30, A33.)

mod entry;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use entry::builds;

/// Files that a command opens, and how many processes and threads it makes.
fn traced(program: &Path, arguments: &[&str], library: Option<&Path>) -> (BTreeSet<String>, usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("trace");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-e", "trace=open,openat,creat,clone,clone3,fork,vfork,socket,memfd_create", "-o"])
        .arg(&trace);
    if let Some(library) = library {
        let mut variable = std::ffi::OsString::from("LD_PRELOAD=");
        variable.push(library);
        command.arg("-E").arg(variable).args(["-E", "GPUCAP_LIMIT=1GiB", "-E", "GPUCAP_LOG=debug"]);
    }
    let output = command.arg(program).args(arguments).output().expect("strace runs; scripts/test installs it");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = std::fs::read_to_string(trace).expect("strace wrote it");
    let files = text.lines().filter(|line| line.contains("open") && !line.contains(" = -1 "));
    let files = files.filter_map(|line| line.split('"').nth(1).map(str::to_owned)).collect();
    // `pid  call(…`: a path may hold any word.
    let call =
        |line: &str| line.split('(').next().and_then(|start| start.split(' ').next_back()).unwrap_or("").to_owned();
    let makers = ["clone", "clone3", "fork", "vfork", "socket", "memfd_create"];
    let made = text.lines().filter(|line| makers.contains(&call(line).as_str())).count();
    (files, made)
}

/// Names of the libraries that a library needs.
fn needed(library: &Path) -> Vec<String> {
    let output = Command::new("readelf").arg("-dW").arg(library).output().expect("readelf runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    lines.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())).collect()
}

fn python() -> PathBuf {
    let output =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3 runs");
    PathBuf::from(String::from_utf8(output.stdout).expect("text").trim())
}

#[test]
fn a_process_without_cuda_opens_no_file_beyond_the_library_and_starts_no_thread() {
    for library in builds() {
        let own = needed(&library);
        for (program, arguments) in [(PathBuf::from("/bin/true"), &[][..]), (python(), &["-c", "pass"])] {
            let (bare_files, bare_made) = traced(&program, arguments, None);
            let (files, made) = traced(&program, arguments, Some(&library));
            let more: Vec<&String> = files.difference(&bare_files).collect();
            let explained =
                |file: &str| Path::new(file) == library || own.iter().any(|name| file.ends_with(&format!("/{name}")));
            assert!(more.iter().all(|file| explained(file)), "{}: {more:?}", program.display());
            assert_eq!(made, bare_made, "{}", program.display());
        }
    }
}

#[test]
fn a_process_without_cuda_may_look_names_up_without_waking_us() {
    for library in builds() {
        let script =
            "import ctypes; libc = ctypes.CDLL(None); libc.getpid(); libc.malloc; ctypes.CDLL('libm.so.6').cos";
        let (bare_files, bare_made) = traced(&python(), &["-c", script], None);
        let (files, made) = traced(&python(), &["-c", script], Some(&library));
        let own = needed(&library);
        let strange: Vec<&String> = files
            .difference(&bare_files)
            .filter(|file| Path::new(file) != library && !own.iter().any(|name| file.ends_with(&format!("/{name}"))))
            .collect();
        assert!(strange.is_empty(), "{strange:?}");
        assert_eq!(made, bare_made);
    }
}

/// Field case A30: only public symbols of libc, and only libraries of libc's (and, unless packaged, the compiler's).
#[test]
fn only_public_symbols_of_libc_are_needed() {
    for library in builds() {
        let output = Command::new("readelf").arg("-VW").arg(&library).output().expect("readelf runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains("GLIBC_2"), "{text}");
        assert!(!text.contains("GLIBC_PRIVATE"), "{text}");
        for name in needed(&library) {
            let allowed =
                ["libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0", "libm.so.6"];
            assert!(allowed.contains(&&*name), "{name}");
        }
    }
}
