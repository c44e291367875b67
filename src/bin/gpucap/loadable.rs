//! Whether a program will really load the library: the loader itself only warns, kills the program, or says nothing at all.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::complain;
use crate::elf::{self, Image};

/// Checks one file that will be started. Where nothing can be known, the program gets the benefit of the doubt and a
/// warning is written.
///
/// # Errors
/// One line that says why the library can't be in that process.
pub fn check(program: &Path, library: &Path, image: &Image, library_path: Option<&OsStr>) -> Result<(), String> {
    let name = program.display();
    let found = match elf::read(program) {
        Ok(Some(found)) => found,
        // A script: its interpreter has its own turn.
        Ok(None) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            complain(format!("warning: {name} can't be read ({error}): can't tell whether it will be capped"));
            return Ok(());
        }
    };
    if found.target != image.target {
        return Err(format!(
            "{name} is a {} program, {} is {}: it can't be loaded",
            found.target,
            library.display(),
            image.target
        ));
    }
    if let Some(how) = elevation(program) {
        return Err(format!("{name} {how}: the loader ignores LD_PRELOAD for it"));
    }
    let Some(interpreter) = &found.interpreter else {
        // The loader itself, started by hand as ld-linux-x86-64.so.2 PROGRAM, has no loader either.
        return match found.soname.is_some_and(|soname| soname.starts_with("ld-linux")) {
            true => Ok(()),
            false => Err(format!("{name} is statically linked: nothing can be preloaded into it")),
        };
    };
    if let Some(kind) = foreign_loader(interpreter) {
        return Err(format!("{name} {kind}: {} is made for glibc and would break it", library.display()));
    }
    missing_version(program, &found, interpreter, image, library_path).map_or(Ok(()), |missing| {
        Err(format!("{} needs {missing}: {name} would not start; build the library for that glibc", library.display()))
    })
}

/// How the program gets rights that its caller has not, which makes the kernel set AT_SECURE (ld.so(8)).
fn elevation(program: &Path) -> Option<&'static str> {
    let data = std::fs::metadata(program).ok()?;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut none = [0; 0];
    let capabilities = rustix::fs::getxattr(program, "security.capability", &mut none).is_ok();
    elevation_of(data.mode(), (data.uid(), data.gid()), capabilities, (user, group))
}

/// The rule of the kernel's cap_bprm_creds_from_file: a change of the user or group, or capabilities for who is not root.
fn elevation_of(mode: u32, owner: (u32, u32), capabilities: bool, caller: (u32, u32)) -> Option<&'static str> {
    match () {
        () if mode & 0o4000 != 0 && owner.0 != caller.0 => Some("is set-user-ID"),
        // Without group execution the bit means mandatory locking.
        () if mode & 0o2010 == 0o2010 && owner.1 != caller.1 => Some("is set-group-ID"),
        () if capabilities && caller.0 != 0 => Some("has file capabilities"),
        () => None,
    }
}

/// What the program is, where its loader is not glibc's.
fn foreign_loader(interpreter: &Path) -> Option<String> {
    let is = |path: &Path, start: &str| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    // A glibc name may be a link to musl's loader.
    let real = interpreter.canonicalize().unwrap_or_else(|_| interpreter.to_path_buf());
    match () {
        () if is(interpreter, "ld-musl") || is(&real, "ld-musl") => Some("is a musl program".into()),
        () if is(interpreter, "ld-linux") => None,
        () => Some(format!("is loaded by {}, which is not glibc's", interpreter.display())),
    }
}

/// The newest version of a symbol that the library needs and the program's libc has not, with that libc; `None` also
/// where that libc can't be found.
fn missing_version(
    program: &Path,
    found: &Image,
    interpreter: &Path,
    library: &Image,
    library_path: Option<&OsStr>,
) -> Option<String> {
    let directories = search_path(program, found, interpreter, library_path);
    for (file, versions) in &library.needs {
        let candidates = directories.iter().map(|directory| directory.join(file));
        let provider = candidates.filter_map(|path| Some((elf::read(&path).ok()??, path)));
        let fitting = provider.filter(|(image, _)| image.target == library.target);
        let Some((provider, path)) = fitting.into_iter().next() else {
            continue;
        };
        let missing = versions.iter().filter(|version| !provider.has.contains(version));
        if let Some(newest) = missing.max_by_key(|version| numbers(version)) {
            let latest =
                provider.has.iter().filter(|version| version.starts_with("GLIBC_2")).max_by_key(|v| numbers(v));
            let latest = latest.map_or("no version", String::as_str);
            return Some(format!("{newest}, {} has {latest}", path.display()));
        }
    }
    None
}

/// Where the loader looks for the program's libraries, as far as can be known without its cache (ld.so(8)).
fn search_path(program: &Path, found: &Image, interpreter: &Path, library_path: Option<&OsStr>) -> Vec<PathBuf> {
    let origin = program.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf)).unwrap_or_default();
    let origin = origin.to_string_lossy();
    let mut directories: Vec<PathBuf> = library_path.map(std::env::split_paths).into_iter().flatten().collect();
    let run_paths = found.run_paths.iter();
    directories.extend(run_paths.map(|path| path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into()));
    // A libc beside its own loader; in its default directories, the system's one.
    directories.extend(interpreter.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf)));
    directories
        .extend(["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"].map(PathBuf::from));
    directories
}

/// The numbers in a version's name, to compare by.
fn numbers(version: &str) -> Vec<u32> {
    version.split(['_', '.']).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_that_the_caller_has_already_change_nothing() {
        for (mode, owner, capabilities, caller, expected) in [
            (0o755, (0, 0), false, (1000, 1000), None),
            (0o4755, (0, 0), false, (1000, 1000), Some("is set-user-ID")),
            (0o4755, (0, 0), false, (0, 0), None),
            (0o4755, (1000, 0), false, (1000, 1000), None),
            (0o2755, (0, 42), false, (1000, 1000), Some("is set-group-ID")),
            (0o2745, (0, 42), false, (1000, 1000), None),
            (0o2755, (0, 1000), false, (1000, 1000), None),
            (0o755, (0, 0), true, (1000, 1000), Some("has file capabilities")),
            (0o755, (0, 0), true, (0, 0), None),
        ] {
            assert_eq!(elevation_of(mode, owner, capabilities, caller), expected, "{mode:o} {owner:?} {caller:?}");
        }
    }

    #[test]
    fn versions_compare_by_their_numbers() {
        assert!(numbers("GLIBC_2.34") > numbers("GLIBC_2.4"));
        assert!(numbers("GLIBC_2.2.5") < numbers("GLIBC_2.17"));
    }
}
