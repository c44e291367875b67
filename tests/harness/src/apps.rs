//! The programs that tests run: C files of `tests/apps`, Python, real CUDA runtimes.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::find::{built, root, target};

/// Compiles `tests/apps/<source>` with gcc and `flags` (`-shared -fPIC` makes a library); `-lcuda` and
/// `-lnvidia-ml` find the simulated libraries, by soname also at run time inside a [`crate::Sim`]. The result is kept
/// until the source or the flags change.
///
/// # Panics
/// With the compiler's words if it does not compile.
pub fn cc(source: &str, flags: &[&str]) -> PathBuf {
    let path = root().join("tests/apps").join(source);
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut hasher = DefaultHasher::new();
    (&text, flags).hash(&mut hasher);
    let folder = target().join("apps");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    let stem = source.replace(['/', '.'], "-");
    let end = if flags.contains(&"-shared") { ".so" } else { "" };
    let app = folder.join(format!("{stem}-{:016x}{end}", hasher.finish()));
    if app.exists() {
        return app;
    }
    let fresh = app.with_extension(format!("new{}", unique()));
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&fresh).arg(&path).args(flags);
    for (flag, name, file) in
        [("-lcuda", "libcuda.so", "libcuda.so"), ("-lnvidia-ml", "libnvidia-ml.so", "libnvidia_ml.so")]
    {
        if flags.contains(&flag) {
            compiler.arg("-L").arg(link_folder(name, file));
        }
    }
    compiler.args(["-ldl", "-lpthread"]);
    let output = compiler.output().expect("gcc runs");
    assert!(output.status.success(), "{compiler:?}\n{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&fresh, &app).expect("the target folder is writable");
    app
}

/// A folder for the linker with nothing but a simulated library, under the name that `-l` looks for.
fn link_folder(name: &str, file: &str) -> PathBuf {
    let folder = target().join("apps/link");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    let link = folder.join(name);
    let wanted = built(file);
    if fs::read_link(&link).ok().as_ref() != Some(&wanted) {
        let fresh = folder.join(format!("new{}", unique()));
        std::os::unix::fs::symlink(&wanted, &fresh).expect("the target folder is writable");
        fs::rename(&fresh, &link).expect("the target folder is writable");
    }
    folder
}

fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", process::id(), NEXT.fetch_add(1, Relaxed))
}

/// Python 3.
pub fn python() -> Command {
    Command::new("python3")
}

/// `libcudart.so.*` of the wheel of that version (`"11.8"`, `"12.9"`, `"13.5"`), as `scripts/fetch` brought it.
///
/// # Panics
/// If `scripts/fetch` did not run.
pub fn cuda_wheel(version: &str) -> PathBuf {
    let folder = root().join("target/wheels").join(format!("cudart-{version}"));
    find_cudart(&folder).unwrap_or_else(|| panic!("no libcudart in {}; scripts/fetch brings it", folder.display()))
}

fn find_cudart(folder: &Path) -> Option<PathBuf> {
    let mut below = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            below.push(path);
        } else if entry.file_name().to_string_lossy().starts_with("libcudart.so.") {
            return Some(path);
        }
    }
    below.iter().find_map(|path| find_cudart(path))
}
