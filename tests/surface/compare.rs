//! Compares the list of functions with what toolkits and drivers have, and with what is hooked. Every fault says what to do.

use std::collections::{BTreeMap, BTreeSet};

use super::headers::Headers;
use super::list::{Function, PATH, split};

/// Where names come from: a toolkit's headers or a driver.
pub struct Source {
    /// As it is called in messages.
    pub title: String,
    /// Its names.
    pub headers: Headers,
}

/// The faults between the list, the sources and the hooked names.
pub fn faults(list: &BTreeMap<String, Function>, sources: &[Source], hooked: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    unlisted(list, sources, &mut faults);
    unknown(list, sources, &mut faults);
    signatures(list, sources, &mut faults);
    hooks(list, hooked, &mut faults);
    faults
}

fn lists(list: &BTreeMap<String, Function>, name: &str) -> bool {
    list.get(split(name).0).is_some_and(|function| function.names.contains(name))
}

/// Names that are somewhere and not on the list; each is told once, with the first source that has it.
fn unlisted(list: &BTreeMap<String, Function>, sources: &[Source], faults: &mut Vec<String>) {
    let mut told = BTreeSet::new();
    for source in sources {
        let title = &source.title;
        for name in source.headers.names.iter().filter(|name| !lists(list, name)) {
            if !told.insert(name) {
                continue;
            }
            let (base, variant) = split(name);
            faults.push(match list.get(base) {
                None => format!("{name} ({title}) is not classified: add a line to {PATH}"),
                Some(function) => {
                    let hook = if function.is_hooked() {
                        format!(", and a hook for {name}, since {base} is hooked")
                    } else {
                        String::new()
                    };
                    format!(
                        "{name} ({title}) is a variant that is not classified: add {variant} to {base} in {PATH}{hook}"
                    )
                }
            });
        }
    }
}

/// Names that are on the list and nowhere else.
fn unknown(list: &BTreeMap<String, Function>, sources: &[Source], faults: &mut Vec<String>) {
    for name in list.values().flat_map(|function| &function.names) {
        if !sources.iter().any(|source| source.headers.names.contains(name)) {
            faults.push(format!("{name} is in no toolkit and no driver: correct it in {PATH}, or delete it there"));
        }
    }
}

/// Functions with more signatures than variants: a variant was not seen in the declarations.
fn signatures(list: &BTreeMap<String, Function>, sources: &[Source], faults: &mut Vec<String>) {
    for source in sources {
        for (base, versions) in &source.headers.signatures {
            let listed = list.get(base).map_or(0, |function| function.signatures);
            if listed < versions.len() {
                let (title, count) = (&source.title, versions.len());
                faults.push(format!(
                    "{base} has {count} signatures ({title}: {versions:?}) and {listed} variants in {PATH}: add what is missing there"
                ));
            }
        }
    }
}

/// Hooks that the list does not call so, and variants of hooked functions without a hook.
fn hooks(list: &BTreeMap<String, Function>, hooked: &BTreeSet<String>, faults: &mut Vec<String>) {
    for name in hooked {
        let base = split(name).0;
        match list.get(base) {
            Some(function) if function.is_hooked() => {
                if !function.names.contains(name) {
                    faults.push(format!("{name} is hooked and no variant of {base} in {PATH}: add it there, or correct shim/src/hooks.rs"));
                }
            }
            Some(function) => faults
                .push(format!("{name} is hooked, and {PATH} calls {base} {}: make it hooked there", function.role)),
            None => faults.push(format!(
                "{name} is hooked and no function of the driver: correct shim/src/hooks.rs, or add a line to {PATH}"
            )),
        }
    }
    for (base, function) in list.iter().filter(|(_, function)| function.is_hooked()) {
        for name in function.names.difference(hooked) {
            faults.push(format!(
                "{name} is not hooked, and {PATH} calls {base} hooked: add it to shim/src/hooks.rs and shim/exports.txt, or its memory is not seen"
            ));
        }
    }
}
