//! What a configuration comes to on the devices that the process sees.

use super::{Config, LimitSource, Mode};
use crate::device_key::{DeviceId, DeviceKey, PerDevice};
use crate::limit::{Limit, format_bytes};

/// What is in force on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// In bytes; `None` is no limit. It may be above the device's total.
    pub limit: Option<u64>,
    /// The mode.
    pub mode: Mode,
    /// How the limit came about, such as `0.3 of 16 GiB, GPUCAP_LIMIT entry *`.
    pub how: String,
}

impl Config {
    /// What is in force on each of `devices`, in their order; then warnings and errors, one line each.
    ///
    /// An error is a UUID whose beginning fits two devices, or two such beginnings that fit one device: it can't be known
    /// what is meant, and the whole variable counts for nothing.
    pub fn resolve(&self, devices: &[DeviceId<'_>]) -> (Vec<Resolved>, Vec<String>, Vec<String>) {
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        let limits_hold = check(self.limit_source.variable(), &self.limits, devices, &mut warnings, &mut errors);
        let modes_hold = check("GPUCAP_MODE", &self.modes, devices, &mut warnings, &mut errors);
        let variable = self.limit_source.variable();

        let mut resolved = Vec::with_capacity(devices.len());
        for device in devices {
            let entry = if limits_hold { self.limits.get(device) } else { None };
            let limit = entry.map(|(_, limit)| limit.of(device.total));
            if let (Some((_, Limit::TotalMinus(_))), Some(0)) = (entry, limit) {
                let total = format_bytes(device.total);
                warnings.push(format!("{variable} leaves nothing of device {}, which has {total}", device.ordinal));
            }
            let how = match entry {
                Some((key, limit)) => {
                    format!("{}, {}", explain(*limit, device.total), self.origin(key))
                }
                None if !limits_hold => format!("no limit, {variable} is ignored"),
                None if self.limit_source == LimitSource::None => "no limit is set".into(),
                None => format!("no limit, no entry of {variable} is for it"),
            };
            let mode = if modes_hold { self.modes.get(device).map(|(_, mode)| *mode) } else { None };
            resolved.push(Resolved { limit, mode: mode.unwrap_or_default(), how });
        }
        if limits_hold && self.limit_source != LimitSource::None {
            warnings.extend(uncapped(variable, devices, &resolved));
        }
        (resolved, warnings, errors)
    }

    /// The variable, and the entry where it is a list.
    fn origin(&self, key: &DeviceKey) -> String {
        match (self.limit_source, self.limits.entries(), key) {
            (LimitSource::Hami, _, DeviceKey::Any) => super::hami::NAME.into(),
            (LimitSource::Hami, _, key) => format!("{}_{key}", super::hami::NAME),
            (source, [_], DeviceKey::Any) => source.variable().into(),
            (source, _, key) => format!("{} entry {key}", source.variable()),
        }
    }
}

fn explain(limit: Limit, total: u64) -> String {
    let total = format_bytes(total);
    match limit {
        Limit::Fraction(_) => format!("{limit} of {total}"),
        Limit::Bytes(bytes) => format_bytes(bytes),
        Limit::TotalMinus(rest) => format!("{total} less {}", format_bytes(rest)),
    }
}

/// Reports entries that fit no device, or not exactly one; gives whether the variable can be gone by.
fn check<T>(
    variable: &str,
    list: &PerDevice<T>,
    devices: &[DeviceId<'_>],
    warnings: &mut Vec<String>,
    errors: &mut Vec<String>,
) -> bool {
    let before = errors.len();
    for (key, _) in list.entries() {
        let fits: Vec<_> = devices.iter().filter(|device| key.matches(device)).collect();
        match (key, fits.as_slice()) {
            (DeviceKey::Any, _) | (_, [_]) => {}
            (_, []) => {
                warnings.push(format!("{variable} entry {key}: no such device among the {} visible", devices.len()))
            }
            (_, [one, other, ..]) => {
                let (one, other) = (one.uuid, other.uuid);
                errors.push(format!("{variable} entry {key}: fits both {one} and {other}; write more of the UUID"));
            }
        }
    }
    for device in devices {
        let uuids = list.entries().iter().filter(|(key, _)| matches!(key, DeviceKey::Uuid(_)) && key.matches(device));
        if let [(one, _), (other, _), ..] = uuids.collect::<Vec<_>>().as_slice() {
            errors.push(format!("{variable} entries {one} and {other}: both name {}; leave one out", device.uuid));
        }
    }
    errors.len() == before
}

/// One warning about the devices that a configured limit leaves alone.
fn uncapped(variable: &str, devices: &[DeviceId<'_>], resolved: &[Resolved]) -> Option<String> {
    let left = devices.iter().zip(resolved).filter(|(_, resolved)| resolved.limit.is_none());
    let left: Vec<_> = left.map(|(device, _)| device.ordinal.to_string()).collect();
    (!left.is_empty())
        .then(|| format!("{variable} has no entry for device {} and no *: no limit there", left.join(", ")))
}

#[cfg(test)]
mod tests;
