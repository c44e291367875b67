//! What a capped process is told about the memory of its device.

/// Total bytes to report: the limit, or the device's own total where that is smaller.
#[must_use]
pub fn total(limit: u64, device_total: u64) -> u64 {
    limit.min(device_total)
}

/// Free bytes to report: what the limit leaves, but no more than the device really has.
///
/// `used` is held + overhead of the process (or its group), `cached` what we keep of that and can hand out again, and
/// `device_free` what the driver says is free.
#[must_use]
pub fn free(limit: u64, used: u64, cached: u64, device_free: u64) -> u64 {
    let within_limit = limit.saturating_sub(used.saturating_sub(cached));
    within_limit.min(device_free.saturating_add(cached))
}

/// A size as the driver's 32-bit functions report it: the largest value where it does not fit.
#[must_use]
pub fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn total_is_the_smaller_of_limit_and_device() {
        assert_eq!(total(3, 10), 3);
        assert_eq!(total(u64::MAX, 10), 10);
        assert_eq!(total(0, 10), 0);
    }

    #[test]
    fn free_is_what_the_limit_leaves() {
        assert_eq!(free(100, 30, 0, 1000), 70);
        assert_eq!(free(100, 130, 0, 1000), 0, "never below zero");
        assert_eq!(free(u64::MAX, 30, 0, 1000), 1000, "uncapped: the device's own");
    }

    #[test]
    fn free_falls_when_a_neighbour_fills_the_device() {
        assert_eq!(free(100, 30, 0, 50), 50);
        assert_eq!(free(100, 30, 10, 50), 60, "cached memory can be handed out again");
    }

    #[test]
    fn old_functions_see_at_most_32_bits() {
        assert_eq!(saturated(5), 5);
        assert_eq!(saturated(1 << 40), u32::MAX);
    }
}
