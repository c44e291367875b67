//! Configurations on devices of given sizes and names.

use super::super::tests::{G, ONE, limits, right, two};
use crate::device_key::DeviceId;

#[test]
fn a67_each_device_gets_the_fraction_of_its_own_total() {
    let config = right(&[("GPUCAP_LIMIT", "0.10")]);
    let (resolved, ..) = config.resolve(&two([32768 << 20, 24576 << 20]));
    let found: Vec<_> = resolved.iter().map(|resolved| (resolved.limit, resolved.how.as_str())).collect();
    assert_eq!(
        found,
        [(Some(3_435_973_836), "0.1 of 32 GiB, GPUCAP_LIMIT"), (Some(2_576_980_377), "0.1 of 24 GiB, GPUCAP_LIMIT")]
    );
}

#[test]
fn b07_six_processes_with_the_same_fraction_get_the_same_limit() {
    let device = [DeviceId { ordinal: 0, uuid: ONE, total: 16 * G }];
    let each = limits(&right(&[("GPUCAP_LIMIT", ".15")]), &device)[0].expect("a limit");
    assert_eq!(each, 2_576_980_377); // 2457.6 MiB, less .6 of a byte
    assert!(each * 6 <= 16 * G);
}

#[test]
fn b09_the_whole_device_is_the_devices_total() {
    let total = 22_913 * (1 << 20) + 512;
    let device = [DeviceId { ordinal: 0, uuid: ONE, total }];
    for value in ["1", "1.0", "100%", "total-0B"] {
        assert_eq!(limits(&right(&[("GPUCAP_LIMIT", value)]), &device), [Some(total)]);
    }
}

#[test]
fn b48_zero_on_one_device_leaves_the_other_alone() {
    let config = right(&[("GPUCAP_LIMIT", "0=8G,1=0")]);
    assert_eq!(limits(&config, &two([16 * G, 16 * G])), [Some(8 * G), Some(0)]);
}

#[test]
fn how_a_limit_came_about_names_the_entry() {
    let config = right(&[("GPUCAP_LIMIT", "*=total-1GiB,GPU-11119=8G")]);
    let (resolved, warnings, errors) = config.resolve(&two([16 * G, 16 * G]));
    assert_eq!(resolved[0].how, "16 GiB less 1 GiB, GPUCAP_LIMIT entry *");
    assert_eq!(resolved[1].how, "8 GiB, GPUCAP_LIMIT entry GPU-11119");
    assert_eq!((warnings, errors), (vec![], vec![]));
}

#[test]
fn entries_for_no_device_and_devices_without_entry_are_warned_of() {
    let config = right(&[("GPUCAP_LIMIT", "1=8G,7=1G,GPU-dead=1G"), ("GPUCAP_MODE", "5=cap")]);
    let (resolved, warnings, errors) = config.resolve(&two([16 * G, 16 * G]));
    assert_eq!((resolved[0].limit, resolved[1].limit), (None, Some(8 * G)));
    assert_eq!(resolved[0].how, "no limit, no entry of GPUCAP_LIMIT is for it");
    assert_eq!(errors, [""; 0]);
    assert_eq!(
        warnings,
        [
            "GPUCAP_LIMIT entry 7: no such device among the 2 visible",
            "GPUCAP_LIMIT entry GPU-dead: no such device among the 2 visible",
            "GPUCAP_MODE entry 5: no such device among the 2 visible",
            "GPUCAP_LIMIT has no entry for device 0 and no *: no limit there",
        ]
    );
    let (_, warnings, _) = right(&[("GPUCAP_LIMIT", "total-20G")]).resolve(&two([16 * G, 32 * G]));
    assert_eq!(warnings, ["GPUCAP_LIMIT leaves nothing of device 0, which has 16 GiB"]);
}

#[test]
fn a_uuid_that_does_not_name_one_device_is_an_error_and_nothing_is_guessed() {
    for (value, words) in [
        ("GPU-1111=8G,*=1G", "GPUCAP_LIMIT entry GPU-1111: fits both GPU-11111111"),
        ("GPU-11111=8G,GPU-111111=4G", "GPUCAP_LIMIT entries GPU-11111 and GPU-111111: both name GPU-11111111"),
    ] {
        let (resolved, _, errors) = right(&[("GPUCAP_LIMIT", value)]).resolve(&two([16 * G, 16 * G]));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with(words), "{errors:?}");
        assert!(resolved.iter().all(|resolved| resolved.limit.is_none()), "{resolved:?}");
    }
}
