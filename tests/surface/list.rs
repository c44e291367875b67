//! Reads `functions.txt`, the list of every function of the driver API and what gpucap makes of it.

use std::collections::{BTreeMap, BTreeSet};

/// Where the list lies, for messages.
pub const PATH: &str = "tests/surface/functions.txt";

/// What gpucap makes of a function; the list's head explains the words.
const ROLES: [&str; 5] = ["hooked", "later", "alias", "query", "no-memory"];

/// One line.
#[derive(Debug)]
pub struct Function {
    /// One of [`ROLES`].
    pub role: String,
    /// Its exported names.
    pub names: BTreeSet<String>,
    /// How many of them are signatures of their own (v1, v2 and so on).
    pub signatures: usize,
}

impl Function {
    /// Whether it is in the table of hooks.
    pub fn is_hooked(&self) -> bool {
        self.role == "hooked"
    }
}

/// The lines by the functions' base names.
pub fn parse(text: &str) -> Result<BTreeMap<String, Function>, String> {
    let mut list = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let wrong = |what: &str| format!("{PATH}:{}: {what}: {line}", number + 1);
        let mut words = line.split_whitespace();
        let (Some(role), Some(base), Some(variants), Some(_reason)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(wrong("a line is `role function variants reason`"));
        };
        if !ROLES.contains(&role) {
            return Err(wrong(&format!("the role is one of {}", ROLES.join(", "))));
        }
        let all: Vec<&str> = variants.split(',').collect();
        if !all.iter().all(|variant| is_variant(variant)) {
            return Err(wrong("variants are v1, v2, ptsz, v2_ptds and the like, with commas between"));
        }
        let function = Function {
            role: role.to_owned(),
            names: all.iter().map(|variant| exported(base, variant)).collect(),
            signatures: all.iter().filter(|variant| variant.starts_with('v') && !variant.contains('_')).count(),
        };
        if list.insert(base.to_owned(), function).is_some() {
            return Err(wrong("listed twice"));
        }
    }
    Ok(list)
}

/// `cuMemAlloc` and `v2` make `cuMemAlloc_v2`; `v1` is the bare name.
fn exported(base: &str, variant: &str) -> String {
    if variant == "v1" { base.to_owned() } else { format!("{base}_{variant}") }
}

/// The name without `_v2`, `_ptsz` and the like, and the variant that they make, as the list writes it.
pub fn split(name: &str) -> (&str, String) {
    let (plain, thread) = match name.rsplit_once('_') {
        Some((plain, thread @ ("ptsz" | "ptds"))) => (plain, thread),
        _ => (name, ""),
    };
    let (base, version) = match plain.rsplit_once('_') {
        Some((base, version)) if is_version(version) => (base, version),
        _ => (plain, ""),
    };
    let variant = match (version, thread) {
        ("", "") => "v1".to_owned(),
        (one, "") | ("", one) => one.to_owned(),
        (version, thread) => format!("{version}_{thread}"),
    };
    (base, variant)
}

fn is_version(word: &str) -> bool {
    word.strip_prefix('v')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
}

fn is_variant(word: &str) -> bool {
    let (version, thread) =
        word.split_once('_').unwrap_or(if is_version(word) { (word, "ptsz") } else { ("v2", word) });
    is_version(version) && matches!(thread, "ptsz" | "ptds")
}
