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
                errors.push(format!(
                    "{}={}: {reason}; accepted: {accepted}",
                    printable(name),
                    printable(value)
                ));
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
        Some(index) if index.bytes().all(|byte| byte.is_ascii_digit()) => {
            index.parse().ok().map(DeviceKey::Index)
        }
        Some(_) => None,
    }
}

fn limit(value: &[u8]) -> Result<Option<Limit>, String> {
    let text = std::str::from_utf8(value)
        .map_err(|_| "not UTF-8")?
        .trim_ascii();
    let bytes = match text {
        "" => 0,
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map_err(|_| "more than 64 bits of bytes")?
        }
        _ => parse_size(text)?,
    };
    Ok((bytes != 0).then_some(Limit::Bytes(bytes)))
}
