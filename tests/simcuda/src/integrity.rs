//! The value that libcudart asks the driver for at start-up and computes itself too: HMAC-MD2 over facts that both know.
//!
//! Contents and key: `reference/simulated-driver.md` b.4. A wrong value makes every runtime call fail with
//! cudaErrorSoftwareValidityNotEstablished (103).

use hmac::{Mac, SimpleHmac};
use md2::Md2;

const KEY: [u8; 16] = [0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f];

/// What the value attests, besides the devices.
pub struct Facts {
    pub driver_version: u32,
    /// The runtime's version + 2.
    pub version: u32,
    pub pid: u32,
    /// Low half of `pthread_self()`.
    pub thread: u32,
    /// Address of the CUDART_INTERFACE table.
    pub cudart_table: u64,
    /// Address of the INTEGRITY_CHECK table.
    pub integrity_table: u64,
    /// What is in slot 1 of the INTEGRITY_CHECK table.
    pub function: u64,
    /// The caller's time stamp.
    pub seconds: u64,
}

/// What identifies a device: UUID and PCI (domain, bus, device).
pub type DeviceFacts = ([u8; 16], [u32; 3]);

/// The 16 bytes.
pub fn digest(facts: &Facts, devices: &[DeviceFacts]) -> [u8; 16] {
    let mut mac = SimpleHmac::<Md2>::new_from_slice(&KEY).expect("an HMAC takes keys of any length");
    for word in [facts.driver_version, facts.version, facts.pid, facts.thread] {
        mac.update(&word.to_le_bytes());
    }
    for word in [facts.cudart_table, facts.integrity_table, facts.function, facts.seconds] {
        mac.update(&word.to_le_bytes());
    }
    for (uuid, pci) in devices {
        mac.update(uuid);
        for word in pci {
            mac.update(&word.to_le_bytes());
        }
    }
    mac.finalize().into_bytes().into()
}

/// The value for one request of libcudart. Two of the three requests have constant answers.
pub fn answer(facts: &Facts, devices: &[DeviceFacts]) -> [u64; 2] {
    match facts.version % 10 {
        0 => [0x3341_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
        1 => [0x1841_181c_03cb_675c, 0x8ed3_83aa_1f4c_d1e8],
        _ => {
            let mut words = [0; 2];
            for (word, bytes) in words.iter_mut().zip(digest(facts, devices).chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            }
            words
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        driver_version: 13000,
        version: 13052,
        pid: 0x1234,
        thread: 0x5678,
        cudart_table: 0x7f00_0000_1000,
        integrity_table: 0x7f00_0000_2000,
        function: 0x7f00_0000_3000,
        seconds: 1_700_000_000,
    };

    fn hex(bytes: [u8; 16]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_digest_without_devices_is_the_known_one() {
        assert_eq!(hex(digest(&FACTS, &[])), "2be5bd8dc54d555b7c5fcb7cdcacb24c");
    }

    #[test]
    fn the_digest_with_one_device_is_the_known_one() {
        let uuid = std::array::from_fn(|i| u8::try_from(i).expect("16 bytes"));
        assert_eq!(hex(digest(&FACTS, &[(uuid, [0, 1, 0])])), "bfa2ea1f559820dc31300c1f15c63688");
    }
}
