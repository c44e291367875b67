//! A directory with a stand-in library and programs for the tests of `gpucap run`, and ways to run it.
//!
//! A library that does nothing stands in for the real one: only how it gets into a program matters there.
#![allow(dead_code, missing_docs)] // each test file uses a part

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory with a stand-in library, and programs that fit it or not.
pub struct Place {
    pub directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        let place = Place { directory: tempfile::tempdir().expect("a directory") };
        place.compile("libgpucap.so", "int gpucap_stand_in;", &["-shared", "-fPIC"]);
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let code = self.path(&format!("{name}.c"));
        std::fs::write(&code, source).expect("written");
        let gcc = Command::new("gcc").arg(&code).arg("-o").arg(self.path(name)).args(flags).output().expect("gcc");
        assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
        self.path(name)
    }

    pub fn program(&self, name: &str, flags: &[&str]) -> PathBuf {
        self.compile(name, "int main(void) { return 0; }", flags)
    }

    /// A program that no loader has a hand in.
    pub fn fixed(&self, name: &str, flag: &str) -> PathBuf {
        self.compile(name, "int main(void) { return 0; }", &[flag, "-nostdlib", "-Wl,-e,main"])
    }

    /// A program whose bytes from `at` on are other ones.
    pub fn patched(&self, name: &str, at: usize, bytes: &[u8]) -> PathBuf {
        let mut program = std::fs::read(self.program("unpatched", &[])).expect("read");
        program[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(self.path(name), program).expect("written");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(name), executable).expect("made executable");
        self.path(name)
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        // Written by another process: a file that this one has open for writing, or that a child of another test's thread
        // has inherited so, can't be executed.
        let write = ["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", text];
        assert!(Command::new("sh").args(write).arg(self.path(name)).status().expect("sh").success());
        self.path(name)
    }

    /// `gpucap run` with the stand-in, in an environment with nothing of ours.
    pub fn gpucap(&self) -> Command {
        let mut command = bare();
        command.args(["run", "--lib"]).arg(self.path("libgpucap.so"));
        command
    }

    /// What a shell under the cap prints.
    pub fn shell(&self, command: &mut Command, text: &str) -> String {
        ok(command.args(["--", "sh", "-c", text]))
    }

    /// The one line with which this program is refused.
    pub fn refused(&self, program: &Path) -> String {
        let line = fails(self.gpucap().arg("--").arg(program), 78);
        assert!(line.contains(&program.display().to_string()), "{line}");
        line
    }
}

pub fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpucap"));
    let ours = std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("GPUCAP_"));
    for name in ours {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH").env_remove("CUDA_DEVICE_MEMORY_LIMIT");
    command
}

pub fn ok(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("started");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success() && stderr.is_empty(), "{status} {stderr}");
    String::from_utf8_lossy(&stdout).trim_end().to_string()
}

/// The one line with which a run fails.
pub fn fails(command: &mut Command, code: i32) -> String {
    let Output { status, stdout, stderr } = command.output().expect("started");
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(code), "{stderr}");
    assert!(stdout.is_empty(), "the program was started");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("gpucap: "), "{stderr}");
    stderr
}
