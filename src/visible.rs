//! Which ordinal CUDA gives to a device, foreseen from `CUDA_VISIBLE_DEVICES` while CUDA has not been started yet.

/// The devices of a machine in the order of their PCI buses, which is NVML's.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// UUID of each, `GPU-…`.
    pub uuids: Vec<String>,
    /// Whether CUDA numbers them in this order: with `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or where they are all alike. Its own
    /// order is by speed (CUDA programming guide), and which of two models it takes for faster is not documented.
    pub in_order: bool,
}

impl Machine {
    /// The ordinal of the device with this UUID in a process with this `CUDA_VISIBLE_DEVICES`; `None` for a device that
    /// it won't see, or whose number can't be known.
    #[must_use]
    pub fn ordinal(&self, uuid: &str, visible: Option<&str>) -> Option<u32> {
        let position = match visible {
            None if self.in_order => self.uuids.iter().position(|other| other == uuid)?,
            None => return None,
            Some(list) => {
                let entries = self.entries(list)?;
                entries.iter().position(|entry| entry.is(uuid))?
            }
        };
        u32::try_from(position).ok()
    }

    /// The entries up to the first that names nothing, where the list ends for the driver too. `None` where one device is
    /// named twice: then the driver sees none.
    fn entries<'a>(&'a self, list: &'a str) -> Option<Vec<Entry<'a>>> {
        let entries = list.split(',').map_while(|text| self.entry(text.trim()));
        let entries: Vec<_> = entries.collect();
        let twice = (1..entries.len()).any(|at| entries[..at].contains(&entries[at]));
        (!twice).then_some(entries)
    }

    fn entry<'a>(&'a self, text: &'a str) -> Option<Entry<'a>> {
        if let Ok(index) = text.parse::<usize>() {
            let uuid = self.uuids.get(index)?;
            return Some(if self.in_order { Entry::Gpu(uuid) } else { Entry::Number(index) });
        }
        if text.starts_with("MIG-") {
            return Some(Entry::Instance(text));
        }
        if !text.starts_with("GPU-") || text.len() == 4 {
            return None;
        }
        let mut fitting = self.uuids.iter().filter(|uuid| begins(uuid, text));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(Entry::Gpu(first))
    }
}

#[derive(PartialEq, Eq)]
enum Entry<'a> {
    /// The GPU with this UUID.
    Gpu(&'a str),
    /// The MIG instance whose UUID begins so.
    Instance(&'a str),
    /// One whose place in CUDA's order can't be known.
    Number(usize),
}

impl Entry<'_> {
    fn is(&self, uuid: &str) -> bool {
        match self {
            Entry::Gpu(other) => *other == uuid,
            Entry::Instance(start) => begins(uuid, start),
            Entry::Number(_) => false,
        }
    }
}

fn begins(uuid: &str, start: &str) -> bool {
    uuid.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const UUIDS: [&str; 3] = ["GPU-a051", "GPU-a162", "GPU-c273"];

    /// What CUDA would number 0, 1, 2.
    fn seen(in_order: bool, visible: Option<&str>) -> [Option<u32>; 3] {
        let machine = Machine { uuids: UUIDS.map(str::to_owned).to_vec(), in_order };
        UUIDS.map(|uuid| machine.ordinal(uuid, visible))
    }

    #[test]
    fn indices_and_uuids_reorder_and_hide() {
        for (list, expected) in [
            (None, [Some(0), Some(1), Some(2)]),
            (Some("2,0"), [Some(1), None, Some(0)]),
            (Some("GPU-c, 1"), [None, Some(1), Some(0)]),
            (Some("gpu-c"), [None; 3]),
            (Some("GPU-A1,GPU-A0"), [Some(1), Some(0), None]),
            (Some(""), [None; 3]),
            (Some("0,7,1"), [Some(0), None, None]),
            (Some("1,-1,0"), [None, Some(0), None]),
            (Some("1,GPU-a,0"), [None, Some(0), None]),
            (Some("1,GPU-,0"), [None, Some(0), None]),
            (Some("1,1"), [None; 3]),
            (Some("1,GPU-a162"), [None; 3]),
        ] {
            assert_eq!(seen(true, list), expected, "{list:?}");
        }
    }

    #[test]
    fn where_the_order_is_unknown_only_uuids_tell() {
        assert_eq!(seen(false, None), [None; 3]);
        assert_eq!(seen(false, Some("1,0")), [None; 3]);
        assert_eq!(seen(false, Some("1,GPU-c")), [None, None, Some(1)]);
        assert_eq!(seen(false, Some("1,7,GPU-c")), [None; 3], "the list ends at 7");
        assert_eq!(seen(false, Some("1,1,GPU-c")), [None; 3], "one named twice");
    }

    #[test]
    fn a_mig_instance_is_found_by_its_own_uuid_only() {
        let machine = Machine { uuids: vec!["GPU-a051".to_owned()], in_order: true };
        assert_eq!(machine.ordinal("MIG-77aa", Some("MIG-77aa")), Some(0));
        assert_eq!(machine.ordinal("MIG-77aa", Some("MIG-1,mig-77")), None);
        assert_eq!(machine.ordinal("MIG-77aa", Some("MIG-1,MIG-77")), Some(1));
        assert_eq!(machine.ordinal("MIG-77aa", None), None);
        assert_eq!(machine.ordinal("GPU-a051", Some("MIG-77aa")), None);
    }
}
