//! HAMi's variables, so that a pod made for it is capped as it asks: `CUDA_DEVICE_MEMORY_LIMIT` for all devices and
//! `CUDA_DEVICE_MEMORY_LIMIT_<i>` for one. A bare number is in bytes and 0 is no limit; unlike HAMi, `1GiB` is 1 GiB.
//!
//! Meaning taken from HAMi-core's multiprocess_memory_limit.c: the variable of a device wins where it sets a limit.

use super::table::printable;
use super::{Config, LimitSource};
use crate::device_key::{DeviceKey, PerDevice};
use crate::limit::{Limit, parse_size};

/// The name for all devices, and the beginning of the others.
pub(super) const NAME: &str = "CUDA_DEVICE_MEMORY_LIMIT";

/// Sets the limits that HAMi's variables ask for; one wrong value makes all of them count for nothing.
pub(super) fn read<'a>(
    vars: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    config: &mut Config,
    errors: &mut Vec<String>,
) {
    let mut limits = PerDevice::none();
    let mut wrong = false;
    for (name, value) in vars {
        let Some(key) = key(name) else { continue };
        match limit(value) {
            // A name that stands twice: the first counts, as for getenv.
            Ok(Some(limit)) => drop(limits.add(key, limit)),
            Ok(None) => {}
            Err(reason) => {
                wrong = true;
                let accepted = "bytes, or a size such as 4096m or 4g; 0 is no limit";
                errors.push(format!("{}={}: {reason}; accepted: {accepted}", printable(name), printable(value)));
            }
        }
    }
    if !wrong && !limits.is_empty() {
        config.limits = limits;
        config.limit_source = LimitSource::Hami;
    }
}

/// The device that a name is for; `None` for a name that HAMi does not read.
fn key(name: &[u8]) -> Option<DeviceKey> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix(NAME)?;
    match rest.strip_prefix('_') {
        None => rest.is_empty().then_some(DeviceKey::Any),
        Some(index) if index.bytes().all(|byte| byte.is_ascii_digit()) => index.parse().ok().map(DeviceKey::Index),
        Some(_) => None,
    }
}

fn limit(value: &[u8]) -> Result<Option<Limit>, String> {
    let text = std::str::from_utf8(value).map_err(|_| "not UTF-8")?.trim_ascii();
    let bytes = match text {
        "" => 0,
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map_err(|_| "more than 64 bits of bytes")?
        }
        _ => parse_size(text)?,
    };
    Ok((bytes != 0).then_some(Limit::Bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{G, limits, read, right, two, wrong};
    use super::super::{Config, LimitSource};

    #[test]
    fn hamis_variables_are_read_where_ours_is_unset() {
        let devices = two([64 * G, 64 * G]);
        let one = |value: &str| limits(&right(&[("CUDA_DEVICE_MEMORY_LIMIT", value)]), &devices[..1])[0];
        assert_eq!(one("4294967296"), Some(4 * G));
        assert_eq!(one("4096m"), Some(4 * G));
        assert_eq!(one("4g"), Some(4 * G));
        assert_eq!(one("1GiB"), Some(G)); // HAMi itself reads one byte
        assert_eq!(one("1024k"), Some(1 << 20));

        let both = [("CUDA_DEVICE_MEMORY_LIMIT", "4g"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "2g")];
        assert_eq!(limits(&right(&both), &devices), [Some(4 * G), Some(2 * G)]);
        assert_eq!(right(&both).limit_source, LimitSource::Hami);
        let hows: Vec<_> = right(&both).resolve(&devices).0.into_iter().map(|resolved| resolved.how).collect();
        assert_eq!(hows, ["4 GiB, CUDA_DEVICE_MEMORY_LIMIT", "2 GiB, CUDA_DEVICE_MEMORY_LIMIT_1"]);
        let zero = [("CUDA_DEVICE_MEMORY_LIMIT", "4g"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "0")];
        assert_eq!(limits(&right(&zero), &devices), [Some(4 * G), Some(4 * G)]);

        let parsed = read(&[("CUDA_DEVICE_MEMORY_LIMIT", "0")]);
        assert_eq!((parsed.config, parsed.warnings.len()), (Config::default(), 1));
        let ours = right(&[("CUDA_DEVICE_MEMORY_LIMIT", "rubbish"), ("GPUCAP_LIMIT", "1G")]);
        assert_eq!(limits(&ours, &devices[..1]), [Some(G)]);
        right(&[
            ("CUDA_DEVICE_MEMORY_LIMIT_X", "rubbish"),
            ("CUDA_DEVICE_MEMORY_LIMITS", "rubbish"),
            ("GPUCAP_MODE", "cap"),
        ]);
    }

    #[test]
    fn a_wrong_value_in_hamis_variables_is_an_error_too() {
        for value in ["-1", "4q", "50%", "0.5", "18446744073709551616", "abc"] {
            let line = wrong(&[("CUDA_DEVICE_MEMORY_LIMIT_0", value)]);
            assert!(line.starts_with(&format!("CUDA_DEVICE_MEMORY_LIMIT_0={value}: ")), "{line}");
        }
    }
}
