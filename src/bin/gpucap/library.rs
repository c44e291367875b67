//! Where libgpucap.so is, and how it gets into LD_PRELOAD.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf::{self, Image};

const NAME: &str = "libgpucap.so";

/// The library's path: the one that is asked for, else beside the command, else where a package puts it.
pub fn find(asked: Option<&OsStr>) -> Result<PathBuf, String> {
    let path = match asked {
        Some(path) => std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?,
        None => installed()?,
    };
    // ld.so(8) takes both as separators and knows no quoting.
    match path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':') || byte.is_ascii_whitespace()) {
        true => {
            Err(format!("{}: LD_PRELOAD can't name a path with a blank or a colon; use a link to it", path.display()))
        }
        false => Ok(path),
    }
}

fn installed() -> Result<PathBuf, String> {
    let command =
        std::env::current_exe().map_err(|error| format!("can't find {NAME} without knowing where I am: {error}"))?;
    let beside = command.with_file_name(NAME);
    let packaged = command.parent().and_then(Path::parent).map(|prefix| prefix.join("lib/gpucap").join(NAME));
    let places: Vec<_> = std::iter::once(beside).chain(packaged).collect();
    places.iter().find(|place| place.exists()).cloned().ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!("{NAME} is in none of {}; name it with --lib or GPUCAP_LIB", places.join(", "))
    })
}

/// Reads the library, which the loader would only warn about if it could not.
pub fn open(library: &Path) -> Result<Image, String> {
    match elf::read(library) {
        Ok(Some(image)) if image.is_shared_object() => Ok(image),
        Ok(_) => Err(format!("{}: not a shared library", library.display())),
        Err(error) => Err(format!("{}: {error}", library.display())),
    }
}

/// The value of LD_PRELOAD with the library first. What is there stays, but for other copies of the library: two of them
/// would each count.
pub fn preload(existing: Option<&OsStr>, library: &Path) -> OsString {
    let existing = existing.unwrap_or_default().as_bytes();
    let entries =
        existing.split(|byte| matches!(byte, b' ' | b':')).filter(|entry| !entry.is_empty()).map(OsStr::from_bytes);
    let mut value = library.as_os_str().to_os_string();
    for entry in entries.filter(|entry| Path::new(entry).file_name() != library.file_name()) {
        value.push(":");
        value.push(entry);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_goes_first_and_is_there_once() {
        for (existing, expected) in [
            ("", "/x/libgpucap.so"),
            ("/y/liba.so", "/x/libgpucap.so:/y/liba.so"),
            ("/y/liba.so libb.so", "/x/libgpucap.so:/y/liba.so:libb.so"),
            ("/x/libgpucap.so", "/x/libgpucap.so"),
            ("/y/liba.so:/x/libgpucap.so:/z/libgpucap.so", "/x/libgpucap.so:/y/liba.so"),
        ] {
            assert_eq!(preload(Some(existing.as_ref()), Path::new("/x/libgpucap.so")), expected, "{existing}");
        }
        assert_eq!(preload(None, Path::new("/x/libgpucap.so")), "/x/libgpucap.so");
    }

    #[test]
    fn a_path_that_ld_preload_can_not_hold_is_refused() {
        for path in ["/a b/libgpucap.so", "/a:b/libgpucap.so", "/a\tb/libgpucap.so"] {
            assert!(find(Some(path.as_ref())).expect_err(path).contains("use a link"), "{path}");
        }
    }
}
