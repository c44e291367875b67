//! Values that are read but that nothing acts on in this version: refused, so that nobody relies on them in vain.
//!
//! What brings one moves its words in the table from `later` to `values` and takes its line out here.

use super::{Config, FreePolicy, Mode, Stats};

/// Refuses what the variable `name` has just set, where that is for later.
pub(super) fn check(name: &str, config: &Config) -> Result<(), String> {
    let value = match name {
        "GPUCAP_MODE" => later_mode(config),
        "GPUCAP_GROUP" => config.group.as_ref().map(|_| "a group".into()),
        "GPUCAP_FREE" => (config.free == FreePolicy::Lazy).then(|| "lazy".into()),
        "GPUCAP_STATS" => (config.stats != Stats::Off).then(|| "a directory".into()),
        _ => None,
    };
    value.map_or(Ok(()), |value: String| Err(format!("{value} is not in this version yet")))
}

fn later_mode(config: &Config) -> Option<String> {
    let mut modes = config.modes.entries().iter().map(|(_, mode)| mode);
    modes.find(|mode| **mode != Mode::Cap).map(ToString::to_string)
}
