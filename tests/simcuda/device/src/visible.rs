//! `CUDA_VISIBLE_DEVICES`, as the CUDA programming guide describes it, and the text form of UUIDs.

use crate::books::Books;
use crate::knobs::Knobs;

/// The devices of the machine that this process sees, in its own order: entry `i` is what CUDA calls device `i`.
///
/// Indices and abbreviated UUIDs may be mixed; the first entry that names no device ends the list, and where a device is
/// named twice none is seen. The devices lie on the bus in the order of their numbers; without
/// `CUDA_DEVICE_ORDER=PCI_BUS_ID` the fastest one (`SIMCUDA_FASTEST`) comes first.
pub fn visible_devices() -> Vec<usize> {
    let (books, knobs) = (Books::global(), Knobs::get());
    let texts: Vec<String> = (0..books.devices()).map(|device| visible_text(books.uuid(device), knobs.mig)).collect();
    let mut order: Vec<usize> = (0..texts.len()).collect();
    if !knobs.by_bus && knobs.fastest < order.len() {
        order[..=knobs.fastest].rotate_right(1);
    }
    select(knobs.visible.as_deref(), &order, &texts)
}

/// The UUID by which CUDA knows a device.
fn visible_text(uuid: [u8; 16], mig: bool) -> String {
    if mig { instance_text(uuid) } else { uuid_text(uuid) }
}

fn select(list: Option<&str>, order: &[usize], texts: &[String]) -> Vec<usize> {
    let Some(list) = list else {
        return order.to_vec();
    };
    let mut seen = Vec::new();
    for entry in list.split(',') {
        let entry = entry.trim();
        let device = match entry.parse::<usize>() {
            Ok(index) if index < order.len() => order[index],
            Ok(_) => break,
            Err(_) => match by_prefix(entry, texts) {
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
fn by_prefix(prefix: &str, texts: &[String]) -> Option<usize> {
    let kind = prefix.get(..4)?;
    if prefix.len() == 4 {
        return None;
    }
    let digits = prefix.to_ascii_lowercase();
    let fits = |text: &str| text.starts_with(kind) && text.to_ascii_lowercase().starts_with(&digits);
    let mut found = (0..texts.len()).filter(|index| fits(&texts[*index]));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, as nvidia-smi writes it.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16))
}

/// The UUID of a MIG instance, `MIG-…`.
pub fn instance_text(uuid: [u8; 16]) -> String {
    uuid_text(uuid).replacen("GPU", "MIG", 1)
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
    use super::{instance_text, parse_uuid, select, uuid_text};
    use crate::knobs::Knobs;

    fn uuids() -> Vec<[u8; 16]> {
        let knobs = Knobs::parse(|name| (name == "SIMCUDA_DEVICES").then(|| "3".to_owned()));
        knobs.devices.iter().map(|device| device.uuid).collect()
    }

    fn seen(list: Option<&str>, order: [usize; 3]) -> Vec<usize> {
        let texts: Vec<String> = uuids().into_iter().map(uuid_text).collect();
        select(list, &order, &texts)
    }

    #[test]
    fn without_the_variable_every_device_is_seen() {
        assert_eq!(seen(None, [0, 1, 2]), [0, 1, 2]);
        assert_eq!(seen(None, [2, 0, 1]), [2, 0, 1]);
    }

    #[test]
    fn indices_reorder_and_the_first_bad_one_ends_the_list() {
        for (list, expected) in
            [("2,0", vec![2, 0]), ("1,7,0", vec![1]), ("1,-1,0", vec![1]), ("", vec![]), ("0,0", vec![])]
        {
            assert_eq!(seen(Some(list), [0, 1, 2]), expected, "{list}");
        }
        assert_eq!(seen(Some("1,0"), [2, 0, 1]), [0, 2], "indices count in CUDA's own order");
    }

    #[test]
    fn a_uuid_may_be_abbreviated_while_it_is_unique() {
        let uuids = uuids();
        assert_eq!(seen(Some(&uuid_text(uuids[1])), [2, 0, 1]), [1]);
        assert_eq!(seen(Some(&uuid_text(uuids[2])[..6]), [0, 1, 2]), [2]);
        assert_eq!(seen(Some("GPU-"), [0, 1, 2]), [0_usize; 0]);
        assert_eq!(seen(Some(&instance_text(uuids[1])), [0, 1, 2]), [0_usize; 0]);
    }

    #[test]
    fn the_text_of_a_uuid_reads_back() {
        for uuid in uuids() {
            assert_eq!(parse_uuid(&uuid_text(uuid)), Some(uuid));
        }
    }
}
