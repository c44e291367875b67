//! Reads the functions of the driver API from its C headers: declarations, renaming macros and the types of pointers to them.
//!
//! No C is understood beyond what these headers use: `CUDAAPI` in front of a name declares a function, or a type when the
//! name is in brackets; `#define cuMemAlloc cuMemAlloc_v2` and `#define cuMemcpy __CUDA_API_PTDS(cuMemcpy)` tell exported
//! variants. What `inline` stands in front of is the header's own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The headers of the driver API; a toolkit has most of them.
pub const FILES: [&str; 10] = [
    "cuda.h",
    "cudaTypedefs.h",
    "cudaGL.h",
    "cudaGLTypedefs.h",
    "cudaEGL.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAU.h",
    "cudaVDPAUTypedefs.h",
    "cudaProfiler.h",
    "cudaProfilerTypedefs.h",
];

/// What headers say.
#[derive(Default, Debug)]
pub struct Headers {
    /// Exported names, as `cuMemPrefetchAsync_v2_ptsz`.
    pub names: BTreeSet<String>,
    /// CUDA versions at which a function got a new signature, by its base name; variants for the default stream of each
    /// thread are not counted.
    pub signatures: BTreeMap<String, BTreeSet<u32>>,
}

impl Headers {
    /// Those of one toolkit, wherever its wheel has them.
    pub fn of_toolkit(folder: &Path) -> Headers {
        let mut headers = Headers::default();
        let mut found = Vec::new();
        find(folder, &mut found);
        for path in &found {
            headers.read(&std::fs::read_to_string(path).expect("a header is text"));
        }
        headers
    }

    /// Adds a header's text.
    pub fn read(&mut self, text: &str) {
        let text = without_comments(text);
        let tokens: Vec<&str> = tokens(&text).collect();
        let mut inline = BTreeSet::new();
        for (at, token) in tokens.iter().enumerate() {
            let rest = &tokens[at + 1..];
            match *token {
                "CUDAAPI" => self.declaration(rest),
                "define" if at > 0 && tokens[at - 1] == "#" => self.renaming(rest),
                "inline" => {
                    inline.extend(rest.iter().take(3).copied().filter(|name| is_function(name)).map(str::to_owned))
                }
                _ => {}
            }
        }
        self.names.retain(|name| !inline.contains(name));
    }

    /// What follows `CUDAAPI`.
    fn declaration(&mut self, rest: &[&str]) {
        match rest {
            ["*", pointer, ")", ..] => {
                let name = pointer.strip_prefix("PFN_").unwrap_or_default();
                if let Some((base, version)) = name.rsplit_once("_v")
                    && let Ok(version) = version.parse()
                    && is_function(base)
                {
                    let versions = self.signatures.entry(base.to_owned()).or_default();
                    versions.insert(version);
                }
            }
            ["__CUDA_API_PTDS" | "__CUDA_API_PTSZ", "(", name, ")", "(", ..] | [name, "(", ..] if is_function(name) => {
                self.names.insert((*name).to_owned());
            }
            _ => {}
        }
    }

    /// What follows `#define`.
    fn renaming(&mut self, rest: &[&str]) {
        let [from, to, ..] = rest else { return };
        if !is_function(from) {
            return;
        }
        let suffix = match *to {
            "__CUDA_API_PTDS" => "_ptds",
            "__CUDA_API_PTSZ" => "_ptsz",
            _ => "",
        };
        let name = if suffix.is_empty() { to } else { rest.get(3).unwrap_or(&"") };
        if is_function(name) {
            self.names.insert((*name).to_owned());
            self.names.insert(format!("{name}{suffix}"));
        }
    }
}

/// Paths of the known headers below a folder.
fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, found);
        } else if FILES.iter().any(|file| path.ends_with(file)) {
            found.push(path);
        }
    }
}

/// Whether a word is a name of the driver API: `cu` and a capital letter.
pub fn is_function(word: &str) -> bool {
    let mut letters = word.chars();
    (letters.next(), letters.next()) == (Some('c'), Some('u'))
        && letters.next().is_some_and(|letter| letter.is_ascii_uppercase())
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        out.push_str(&rest[..start]);
        out.push(' ');
        rest = rest[start + 2..].split_once("*/").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Identifiers, and every other visible character by itself.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let first = rest.chars().next()?;
        let end = if word(first) { rest.find(|letter| !word(letter)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (token, after) = rest.split_at(end);
        rest = after;
        Some(token)
    })
}
