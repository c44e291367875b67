//! Which names are ours, and what to say about those that look so but are none: a slip such as `GPUCAP_LIMTI` must not
//! silently leave a program without its limit.

use super::table::{VARIABLES, Variable, plain, printable};

/// Whether a variable is worth a look at all.
pub(super) fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"GPUCAP_") || name.starts_with(super::hami::NAME.as_bytes())
}

/// Reports unknown names: those close to a known one as wrong values of it, the rest in one warning.
pub(super) fn check<'a>(
    vars: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) {
    let mut unknown = Vec::new();
    for (name, value) in vars {
        let known = VARIABLES.iter().any(|variable| variable.name.as_bytes() == name);
        if known || !name.starts_with(b"GPUCAP_") || is_kubernetes(name) {
            continue;
        }
        match nearest(name) {
            Some(meant) => errors.push(meant.error(name, value, &format!("no such variable, {} is meant", meant.name))),
            None => unknown.push(printable(name)),
        }
    }
    if !unknown.is_empty() {
        let known: Vec<_> = VARIABLES.iter().map(|variable| plain(variable.name)).collect();
        warnings.push(format!("no such variable: {}; known: {}", unknown.join(", "), known.join(", ")));
    }
}

/// What Kubernetes sets in every pod beside a service named gpucap.
fn is_kubernetes(name: &[u8]) -> bool {
    name.starts_with(b"GPUCAP_SERVICE_") || name.starts_with(b"GPUCAP_PORT")
}

/// The known name within two edits, in any case.
fn nearest(name: &[u8]) -> Option<&'static Variable> {
    let name = name.to_ascii_uppercase();
    let distances = VARIABLES.iter().map(|variable| (edits(&name, variable.name.as_bytes()), variable));
    distances.filter(|(edits, _)| *edits <= 2).min_by_key(|(edits, _)| *edits).map(|(_, variable)| variable)
}

/// How many letters must be put in, taken out or replaced to make one of the other (Levenshtein's distance).
fn edits(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (one, other, count) in
            [("", "", 0), ("LIMIT", "LIMTI", 2), ("LIMIT", "LIMITS", 1), ("LIMIT", "IMIT", 1), ("LOG", "", 3)]
        {
            assert_eq!(edits(one.as_bytes(), other.as_bytes()), count, "{one} {other}");
            assert_eq!(edits(other.as_bytes(), one.as_bytes()), count, "{other} {one}");
        }
    }

    #[test]
    fn no_known_name_is_mistaken_for_another() {
        for variable in VARIABLES {
            assert_eq!(nearest(variable.name.as_bytes()).map(|nearest| nearest.name), Some(variable.name));
        }
    }
}
