//! What the tests of the ways in share: a folder with libraries of fixed names, both builds of the library under test.

#![allow(dead_code)] // each test file uses its part

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use harness::{Run, Sim};
use object::{Object as _, ObjectSymbol as _};

/// A folder in which programs and libraries find one another.
pub struct Yard {
    folder: tempfile::TempDir,
    sim: Sim,
}

impl Yard {
    /// An empty one.
    pub fn new() -> Yard {
        Yard { folder: tempfile::tempdir().expect("a temporary folder"), sim: Sim::new() }
    }

    /// The path of a file in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles `tests/apps/<source>` to `name`.
    pub fn program(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let out = self.path(name);
        std::fs::create_dir_all(out.parent().expect("a file in the folder")).expect("the folder is writable");
        let output = Command::new("gcc")
            .current_dir(self.folder.path())
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&out)
            .arg(harness::root().join("tests/apps").join(source))
            .args(flags)
            .args(["-ldl"])
            .output()
            .expect("gcc runs");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        out
    }

    /// Compiles a library.
    pub fn library(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        let all: Vec<&str> = ["-shared", "-fPIC"].iter().chain(flags).copied().collect();
        self.program(name, source, &all)
    }

    /// A driver of a few functions, `<folder>/libcuda.so.1` (`entry_driver.c`).
    pub fn driver(&self, folder: &str, flags: &[&str]) -> PathBuf {
        let all: Vec<&str> = ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"].iter().chain(flags).copied().collect();
        let library = self.library(&format!("{folder}/libcuda.so.1"), "entry_driver.c", &all);
        let link = self.path(format!("{folder}/libcuda.so"));
        if !link.exists() {
            std::os::unix::fs::symlink(&library, link).expect("the folder is writable");
        }
        library
    }

    /// A run in which libraries are found in these folders of the yard.
    pub fn run(&self, program: impl harness::IntoCommand, folders: &[&str]) -> Run {
        let paths: Vec<PathBuf> = folders.iter().map(|folder| self.path(folder)).collect();
        self.sim
            .run(program)
            .env("LD_LIBRARY_PATH", std::env::join_paths(paths).expect("no colon in a temporary folder"))
    }
}

/// The names that are hooked: what the library under test exports of the driver's.
pub fn hooked() -> Vec<String> {
    let mut names = exports(&harness::shim());
    names.retain(|name| name.starts_with("cu") || name.starts_with("nvml"));
    assert!(names.len() > 20, "{names:?}");
    names
}

/// The functions that a library exports, sorted.
pub fn exports(library: &Path) -> Vec<String> {
    let bytes = std::fs::read(library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let functions =
        file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text);
    let mut names: Vec<String> = functions.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect();
    names.sort();
    names
}

/// The library under test in its debug and its release build. (With `GPUCAP_TEST_LIB`, only that one.)
pub fn builds() -> Vec<PathBuf> {
    static BUILDS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let find = || {
        let under_test = harness::shim();
        if std::env::var_os("GPUCAP_TEST_LIB").is_some() {
            return vec![under_test];
        }
        let (folder, flags): (&str, &[&str]) =
            if cfg!(debug_assertions) { ("release", &["--release"]) } else { ("debug", &[]) };
        let target = harness::target();
        let target = target.parent().expect("target/<profile>");
        let status = Command::new(option_env!("CARGO").unwrap_or("cargo"))
            .current_dir(harness::root())
            .args(["build", "--quiet", "--package", "gpucap-shim", "--target-dir"])
            .arg(target)
            .args(flags)
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the other build fails");
        vec![under_test, target.join(folder).join("libgpucap.so")]
    };
    BUILDS.get_or_init(find).clone()
}

/// Puts libraries first in `LD_PRELOAD`, in this order.
pub fn preload(run: Run, libraries: &[&Path]) -> Run {
    let list: Vec<&OsStr> = libraries.iter().map(|path| path.as_os_str()).collect();
    run.env("LD_PRELOAD", list.join(OsStr::new(":")))
}

/// The folder of the real driver's libraries, as `scripts/fetch` brought it.
pub fn real_driver() -> PathBuf {
    let folder = harness::root().join("target/nvidia-535/usr/lib/x86_64-linux-gnu/nvidia/current");
    assert!(folder.exists(), "{} is missing; scripts/fetch brings it", folder.display());
    folder
}
