//! How a configuration names devices: by CUDA ordinal, by a UUID or its beginning, or all of them; and lists of values by
//! such names.

use std::fmt;

/// A device as this process sees it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceId<'a> {
    /// Its CUDA ordinal, after CUDA_VISIBLE_DEVICES.
    pub ordinal: u32,
    /// `GPU-…` or `MIG-…`.
    pub uuid: &'a str,
    /// The device's memory, in bytes.
    pub total: u64,
}

/// The name of one device, or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKey {
    /// `*`
    Any,
    /// A CUDA ordinal.
    Index(u32),
    /// A UUID with its `GPU-` or `MIG-`, or the beginning of one, in the case that the driver prints.
    Uuid(String),
}

impl DeviceId<'_> {
    /// Stands for the ordinal of a device that CUDA does not show to this process: no index names it.
    pub const UNSEEN: u32 = u32::MAX;
}

impl DeviceKey {
    /// Reads a name.
    ///
    /// # Errors
    /// One phrase that says what is wrong with it.
    pub fn parse(text: &str) -> Result<DeviceKey, String> {
        let text = text.trim_ascii();
        if text == "*" {
            return Ok(DeviceKey::Any);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(DeviceKey::Index).map_err(|_| format!("no device has the number {text}"));
        }
        let kind = text.get(..4).unwrap_or("").to_ascii_uppercase();
        let digits = text.get(4..).unwrap_or("").to_ascii_lowercase();
        let uuid =
            !digits.is_empty() && digits.len() <= 36 && digits.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
        match kind.as_str() {
            "GPU-" | "MIG-" if uuid => Ok(DeviceKey::Uuid(kind + &digits)),
            _ => Err(format!("{text:?} names no device (a number, GPU-<uuid>, MIG-<uuid> or *)")),
        }
    }

    /// Whether it names this device.
    pub fn matches(&self, device: &DeviceId<'_>) -> bool {
        match self {
            DeviceKey::Any => true,
            DeviceKey::Index(index) => *index == device.ordinal && *index != DeviceId::UNSEEN,
            DeviceKey::Uuid(start) => {
                device.uuid.get(..start.len()).is_some_and(|uuid| uuid.eq_ignore_ascii_case(start))
            }
        }
    }

    /// A UUID beats an index beats `*`.
    fn rank(&self) -> u8 {
        match self {
            DeviceKey::Any => 0,
            DeviceKey::Index(_) => 1,
            DeviceKey::Uuid(_) => 2,
        }
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceKey::Any => out.write_str("*"),
            DeviceKey::Index(index) => index.fmt(out),
            DeviceKey::Uuid(uuid) => out.write_str(uuid),
        }
    }
}

/// Values by device; a single value is one for `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerDevice<T> {
    entries: Vec<(DeviceKey, T)>,
}

impl<T> PerDevice<T> {
    /// No value for any device.
    pub const fn none() -> PerDevice<T> {
        PerDevice { entries: Vec::new() }
    }

    /// Reads one value for all devices, or a list `key=value,key=value`.
    ///
    /// # Errors
    /// One phrase that says what is wrong, with the entry where there are several.
    pub fn parse(text: &str, value: impl Fn(&str) -> Result<T, String>) -> Result<PerDevice<T>, String> {
        let text = text.trim_ascii();
        if !text.contains(['=', ',']) {
            return Ok(PerDevice { entries: vec![(DeviceKey::Any, value(text)?)] });
        }
        let mut list = PerDevice::none();
        for entry in text.split(',') {
            let entry = entry.trim_ascii();
            let Some((key, text)) = entry.split_once('=') else {
                return Err(no_key(text, entry));
            };
            let key = DeviceKey::parse(key)?;
            let value = value(text).map_err(|reason| format!("entry {key}: {reason}"))?;
            list.add(key, value)?;
        }
        Ok(list)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// When there is one for this key.
    pub fn add(&mut self, key: DeviceKey, value: T) -> Result<(), String> {
        if self.entries.iter().any(|(other, _)| *other == key) {
            return Err(format!("{key} is given twice"));
        }
        self.entries.push((key, value));
        Ok(())
    }

    /// The entries in the order in which they were written.
    pub fn entries(&self) -> &[(DeviceKey, T)] {
        &self.entries
    }

    /// Whether there is no entry at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry that is in force on this device.
    pub fn get(&self, device: &DeviceId<'_>) -> Option<(&DeviceKey, &T)> {
        let matching = self.entries.iter().filter(|(key, _)| key.matches(device));
        matching.max_by_key(|(key, _)| key.rank()).map(|(key, value)| (key, value))
    }
}

impl<T: fmt::Display> fmt::Display for PerDevice<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(DeviceKey::Any, value)] = self.entries.as_slice() {
            return value.fmt(out);
        }
        for (nth, (key, value)) in self.entries.iter().enumerate() {
            write!(out, "{}{key}={value}", if nth == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// An entry without `=`: most often a decimal comma.
fn no_key(text: &str, entry: &str) -> String {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once(',') {
        Some((whole, fraction)) if digits(whole) && digits(fraction) => {
            format!("a decimal comma? {whole}.{fraction}")
        }
        _ if entry.is_empty() => "an entry of the list is empty".into(),
        _ => format!("entry {entry:?} of the list names no device (as in *={entry})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Limit, tests::any_limit};
    use proptest::prelude::*;

    const UUID: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

    fn device(ordinal: u32) -> DeviceId<'static> {
        DeviceId { ordinal, uuid: UUID, total: 16 << 30 }
    }

    fn limits(text: &str) -> Result<PerDevice<Limit>, String> {
        PerDevice::parse(text, Limit::parse)
    }

    #[test]
    fn a_uuid_beats_an_index_beats_the_star_in_any_order() {
        for text in ["*=1G,0=2G,GPU-8932=3G", "GPU-8932=3G,0=2G,*=1G", "0=2G, gpu-8932F937 = 3G ,*=1G"] {
            let list = limits(text).expect(text);
            assert_eq!(list.get(&device(0)).expect("an entry").1, &Limit::Bytes(3 << 30), "{text}");
        }
        let list = limits("*=1G,0=2G").expect("a list");
        assert_eq!(list.get(&device(0)).expect("an entry").1, &Limit::Bytes(2 << 30));
        assert_eq!(list.get(&device(1)).expect("an entry").1, &Limit::Bytes(1 << 30));
        assert!(limits("0=2G").expect("a list").get(&device(1)).is_none());
    }

    #[test]
    fn a_device_that_is_not_seen_has_no_index() {
        let unseen = device(DeviceId::UNSEEN);
        assert!(!DeviceKey::Index(u32::MAX).matches(&unseen));
        assert!(DeviceKey::Any.matches(&unseen));
        assert!(DeviceKey::Uuid(UUID.to_owned()).matches(&unseen));
    }

    #[test]
    fn a_mig_instance_is_not_its_gpu() {
        let mig = DeviceKey::parse("MIG-8932f937").expect("a key");
        assert!(!mig.matches(&device(0)));
        assert!(mig.matches(&DeviceId { ordinal: 0, uuid: "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6", total: 1 }));
    }

    #[test]
    fn b14_lists_in_the_style_of_other_tools_are_understood_or_refused() {
        let one =
            |key: &str, bytes| limits(key).expect(key).get(&device(0)).is_some_and(|(_, limit)| limit.of(10) == bytes);
        assert!(one("0=1000MB", 1000 << 20));
        assert!(one("0=1G,1=512M", 1 << 30));
        assert!(one("1000M", 1000 << 20));
        assert!(one("0.9", 9));
        assert!(one("4 GB", 4 << 30));
        assert!(one(&format!("{UUID}=2G"), 2 << 30));
        for (text, words) in [
            ("0=8", "entry 0: 8 what? 8GiB or 8%"),
            ("0,5", "a decimal comma? 0.5"),
            ("0=1G,", "an entry of the list is empty"),
            (",", "an entry of the list is empty"),
            ("1G,2G", "entry \"1G\" of the list names no device (as in *=1G)"),
            ("0=1G;1=2G", "\";\""),
            ("0:1G,1:2G", "names no device"),
            ("0=1G,00=2G", "0 is given twice"),
            ("*=1G,*=1G", "* is given twice"),
            ("GPU-8=1G,gpu-8=2G", "GPU-8 is given twice"),
            ("gpu0=1G", "\"gpu0\" names no device"),
            ("GPU-=1G", "names no device"),
            ("GPU-xyz=1G", "names no device"),
            ("=1G", "\"\" names no device"),
            ("0=", "entry 0: empty"),
            ("-1=1G", "names no device"),
            ("4294967296=1G", "no device has the number"),
            ("0=1G=2G", "unknown unit"),
        ] {
            let reason = limits(text).expect_err(text);
            assert!(reason.contains(words), "{text}: {reason}");
        }
    }

    fn any_key() -> impl Strategy<Value = DeviceKey> {
        prop_oneof![
            Just(DeviceKey::Any),
            any::<u32>().prop_map(DeviceKey::Index),
            "(GPU|MIG)-[0-9a-f-]{1,36}".prop_map(DeviceKey::Uuid),
        ]
    }

    proptest! {
        #[test]
        fn a_printed_list_is_read_back_as_the_same(entries in prop::collection::vec((any_key(), any_limit()), 1..6)) {
            let mut list = PerDevice::none();
            for (key, limit) in entries {
                let _ = list.add(key, limit); // a key drawn twice is left out
            }
            prop_assert_eq!(limits(&list.to_string()), Ok(list));
        }
    }
}
