//! Where the libraries under test lie.

use std::env;
use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The folder `deps` that the running test lies in: cargo puts the shared libraries that the test depends on beside it,
/// fresh at every build (the copies one folder up are only fresh after `cargo build`).
fn deps() -> PathBuf {
    let mut folder = env::current_exe().expect("a test knows its own path");
    folder.pop();
    if !folder.ends_with("deps") {
        folder.push("deps");
    }
    folder
}

/// A folder for what tests make and keep between runs: apps, patched copies.
pub fn target() -> PathBuf {
    let deps = deps();
    deps.parent().unwrap_or(&deps).to_owned()
}

/// A shared library that cargo built for this test, as `libcuda.so`.
///
/// # Panics
/// If it is not there: the package that runs the test must name its package among the dev-dependencies.
pub fn built(name: &str) -> PathBuf {
    let path = deps().join(name);
    assert!(path.exists(), "{} is missing; is its package a dev-dependency of this test's?", path.display());
    path
}

/// The `libgpucap.so` under test; `GPUCAP_TEST_LIB` names another one, as a packaged build.
pub fn shim() -> PathBuf {
    env::var_os("GPUCAP_TEST_LIB").map_or_else(|| built("libgpucap.so"), PathBuf::from)
}
