//! `CUDA_VISIBLE_DEVICES`, as the CUDA programming guide describes it, and the text form of UUIDs.

use crate::books::Books;
use crate::knobs::Knobs;

/// The devices of the machine that this process sees, in its own order: entry `i` is what CUDA calls device `i`.
///
/// Indices and abbreviated UUIDs may be mixed; the first entry that names no device, or a device that was named
/// before, ends the list. (`CUDA_DEVICE_ORDER` changes nothing here: the simulated devices are equally fast and lie on
/// the bus in the order of their numbers.)
pub fn visible_devices() -> Vec<usize> {
    let books = Books::global();
    let uuids: Vec<[u8; 16]> = (0..books.devices()).map(|device| books.uuid(device)).collect();
    select(Knobs::get().visible.as_deref(), &uuids)
}

fn select(list: Option<&str>, uuids: &[[u8; 16]]) -> Vec<usize> {
    let Some(list) = list else {
        return (0..uuids.len()).collect();
    };
    let mut seen = Vec::new();
    for entry in list.split(',') {
        let entry = entry.trim();
        let device = match entry.parse::<usize>() {
            Ok(index) if index < uuids.len() => index,
            Ok(_) => break,
            Err(_) => match by_prefix(entry, uuids) {
                Some(index) => index,
                None => break,
            },
        };
        if seen.contains(&device) {
            // The real driver sees no device at all when one is named twice.
            return Vec::new();
        }
        seen.push(device);
    }
    seen
}

/// The one device whose UUID begins so.
fn by_prefix(prefix: &str, uuids: &[[u8; 16]]) -> Option<usize> {
    if !prefix.starts_with("GPU-") || prefix.len() <= 4 {
        return None;
    }
    let prefix = prefix.to_ascii_lowercase();
    let mut found = (0..uuids.len()).filter(|index| uuid_text(uuids[*index]).to_ascii_lowercase().starts_with(&prefix));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, as nvidia-smi writes it.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16))
}

/// Reads what [`uuid_text`] writes.
pub(crate) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.trim().strip_prefix("GPU-")?.chars().filter(|c| *c != '-').collect();
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    let mut uuid = [0; 16];
    for (index, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::{parse_uuid, select, uuid_text};
    use crate::knobs::Knobs;

    fn uuids() -> Vec<[u8; 16]> {
        let knobs = Knobs::parse(|name| (name == "SIMCUDA_DEVICES").then(|| "3".to_owned()));
        knobs.devices.iter().map(|device| device.uuid).collect()
    }

    #[test]
    fn without_the_variable_every_device_is_seen() {
        assert_eq!(select(None, &uuids()), [0, 1, 2]);
    }

    #[test]
    fn indices_reorder_and_the_first_bad_one_ends_the_list() {
        assert_eq!(select(Some("2,0"), &uuids()), [2, 0]);
        assert_eq!(select(Some("1,7,0"), &uuids()), [1]);
        assert_eq!(select(Some("1,-1,0"), &uuids()), [1]);
        assert_eq!(select(Some(""), &uuids()), [0_usize; 0]);
        assert_eq!(select(Some("0,0"), &uuids()), [0_usize; 0]);
    }

    #[test]
    fn a_uuid_may_be_abbreviated_while_it_is_unique() {
        let uuids = uuids();
        assert_eq!(select(Some(&uuid_text(uuids[1])), &uuids), [1]);
        assert_eq!(select(Some(&uuid_text(uuids[2])[..6]), &uuids), [2]);
        assert_eq!(select(Some("GPU-"), &uuids), [0_usize; 0]);
    }

    #[test]
    fn the_text_of_a_uuid_reads_back() {
        for uuid in uuids() {
            assert_eq!(parse_uuid(&uuid_text(uuid)), Some(uuid));
        }
    }
}
