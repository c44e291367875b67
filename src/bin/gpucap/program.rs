//! Which file a program's name stands for, and which files the kernel really starts for it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why a program can't be started, and the code that a shell would give.
pub struct Refusal {
    /// 127 where there is none, 126 where it is not executable.
    pub code: u8,
    /// What to say.
    pub line: String,
}

/// Looks a program up as execvp(3) does: by its path where the name has a slash, else in the directories of `PATH`.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Refusal> {
    let refuse = |code, why: &str| Refusal { code, line: format!("{}: {why}", name.display()) };
    if name.is_empty() {
        return Err(refuse(127, "the program's name is empty"));
    }
    let mut forbidden = false;
    for candidate in candidates(name, path) {
        match std::fs::metadata(&candidate) {
            Ok(data) if data.is_file() && data.permissions().mode() & 0o111 != 0 => {
                return Ok(candidate);
            }
            Ok(_) => forbidden = true,
            Err(error) => forbidden |= error.kind() == std::io::ErrorKind::PermissionDenied,
        }
    }
    match forbidden {
        true => Err(refuse(126, "not an executable file")),
        false => Err(refuse(127, "no such program")),
    }
}

fn candidates(name: &OsStr, path: Option<&OsStr>) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    // The fallback is glibc's.
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    let directories = std::env::split_paths(path);
    // An empty entry is the current directory; the ./ keeps the result from being looked up again.
    directories
        .map(|directory| if directory.as_os_str().is_empty() { ".".into() } else { directory })
        .map(|directory: PathBuf| directory.join(name))
        .collect()
}

/// The program and, where it is a script, everything that is started to run it: each of these must load the library.
/// What can't be read is left out; the kernel will have its own word about it.
pub fn chain(program: &Path, path: Option<&OsStr>) -> Vec<PathBuf> {
    // As deep as the kernel goes (BINPRM_MAX_RECURSION), with an env between each two.
    const DEPTH: usize = 10;
    let mut chain = Vec::new();
    let mut open = VecDeque::from([program.to_path_buf()]);
    while let Some(file) = open.pop_front() {
        if chain.len() == DEPTH {
            break;
        }
        match start(&file) {
            Start::Interpreter(interpreter, argument) => {
                if interpreter.file_name() == Some(OsStr::new("env")) {
                    let wanted = argument.as_deref().and_then(wanted_of_env);
                    open.extend(wanted.and_then(|name| find(&name, path).ok()));
                }
                open.push_back(interpreter);
            }
            // execvp(3) hands a file that the kernel does not know to the shell.
            Start::Text => open.push_back("/bin/sh".into()),
            Start::Other => {}
        }
        chain.push(file);
    }
    chain
}

/// How a file begins.
enum Start {
    /// `#!`, an interpreter and perhaps one argument.
    Interpreter(PathBuf, Option<OsString>),
    /// Text without that.
    Text,
    /// An ELF file, or what only the kernel can tell.
    Other,
}

fn start(file: &Path) -> Start {
    let mut head = Vec::new();
    // The kernel looks at so many bytes (BINPRM_BUF_SIZE).
    let read = File::open(file).and_then(|file| file.take(256).read_to_end(&mut head));
    if read.is_err() {
        return Start::Other;
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(line) = line.strip_prefix(b"#!") else {
        let text = !head.is_empty() && !head.starts_with(b"\x7fELF") && !line.contains(&0);
        return if text { Start::Text } else { Start::Other };
    };
    let line = line.trim_ascii();
    let blank = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(blank);
    if interpreter.is_empty() {
        return Start::Text;
    }
    let argument = argument.trim_ascii();
    let argument = (!argument.is_empty()).then(|| OsString::from_vec(argument.to_vec()));
    Start::Interpreter(PathBuf::from(OsStr::from_bytes(interpreter)), argument)
}

/// The program that `env` starts for the argument of a `#!` line: the name itself, or the first word after `-S` that is
/// neither an option nor a variable.
fn wanted_of_env(argument: &OsStr) -> Option<OsString> {
    let text = argument.as_bytes();
    let split = text.strip_prefix(b"-S").or_else(|| text.strip_prefix(b"--split-string="));
    let Some(words) = split else {
        return (!text.starts_with(b"-")).then(|| argument.into());
    };
    let mut words = words.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let word = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    Some(OsStr::from_bytes(word).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
        let file = directory.join(name);
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("made executable");
        file
    }

    #[test]
    fn a_script_is_followed_to_what_the_kernel_starts() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = Some(directory.path().as_os_str());
        let python = script(directory.path(), "mypython", "\x7fELF");
        for (head, expected) in [
            ("#!/usr/bin/env mypython\n", vec![python.clone(), "/usr/bin/env".into()]),
            ("#! /usr/bin/env -S A=1 mypython -u\n", vec![python.clone(), "/usr/bin/env".into()]),
            ("#!/usr/bin/env nothing-of-that-name\n", vec!["/usr/bin/env".into()]),
            ("#!/no/such/interpreter -x\n", vec!["/no/such/interpreter".into()]),
            ("echo no interpreter\n", vec!["/bin/sh".into()]),
            ("\x7fELF", vec![]),
            ("MZ\0", vec![]),
            ("", vec![]),
        ] {
            let program = script(directory.path(), "program", head);
            let mut expected = expected;
            expected.insert(0, program.clone());
            let mut found = chain(&program, path);
            found.truncate(expected.len()); // env itself and sh go on to nothing
            assert_eq!(found, expected, "{head:?}");
        }
        let circle = directory.path().join("circle");
        script(directory.path(), "circle", &format!("#!{}\n", circle.display()));
        assert_eq!(chain(&circle, path).len(), 10);
    }

    #[test]
    fn a_name_is_looked_up_as_a_shell_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = OsString::from(format!("/nowhere:{}", directory.path().display()));
        let found = script(directory.path(), "there", "");
        std::fs::write(directory.path().join("plain"), "").expect("written");
        let code = |name: &str| find(name.as_ref(), Some(&path)).map_err(|refusal| refusal.code);
        assert_eq!(code("there"), Ok(found));
        assert_eq!(code("plain"), Err(126));
        assert_eq!(code("nowhere-to-be-found"), Err(127));
        assert_eq!(code(""), Err(127));
        assert_eq!(code("/"), Err(126));
    }
}
