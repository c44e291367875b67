//! Whole environments and what they come to.

use super::*;
use crate::device_key::DeviceId;

pub(super) const G: u64 = 1 << 30;
pub(super) const ONE: &str = "GPU-11111111-2222-3333-4444-555555555555";
const TWO: &str = "GPU-11119999-2222-3333-4444-555555555555";

pub(super) fn read(vars: &[(&str, &str)]) -> Parsed {
    Config::read(vars.iter().copied())
}

/// Reads what must be right.
pub(super) fn right(vars: &[(&str, &str)]) -> Config {
    let parsed = read(vars);
    assert_eq!(parsed.errors, [""; 0], "{vars:?}");
    assert_eq!(parsed.warnings, [""; 0], "{vars:?}");
    parsed.config
}

/// Reads what has one wrong value, and gives the line about it.
pub(super) fn wrong(vars: &[(&str, &str)]) -> String {
    let parsed = read(vars);
    let [line] = parsed.errors.as_slice() else { panic!("{vars:?} gave {parsed:?}") };
    assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line:?}");
    line.clone()
}

pub(super) fn two(totals: [u64; 2]) -> [DeviceId<'static>; 2] {
    [DeviceId { ordinal: 0, uuid: ONE, total: totals[0] }, DeviceId { ordinal: 1, uuid: TWO, total: totals[1] }]
}

pub(super) fn limits(config: &Config, devices: &[DeviceId<'_>]) -> Vec<Option<u64>> {
    config.resolve(devices).0.iter().map(|resolved| resolved.limit).collect()
}

#[test]
fn an_empty_environment_caps_nothing_and_says_so_once() {
    let parsed = read(&[("PATH", "/bin"), ("CUDA_VISIBLE_DEVICES", "0")]);
    assert_eq!(parsed.config, Config::default());
    assert_eq!(parsed.errors, [""; 0]);
    assert_eq!(parsed.warnings, ["GPUCAP_LIMIT is unset: no limit is set, every device is whole"]);
    let (resolved, warnings, errors) = parsed.config.resolve(&two([G, G]));
    assert!(resolved.iter().all(|resolved| resolved.limit.is_none() && resolved.how == "no limit is set"));
    assert_eq!((warnings, errors), (vec![], vec![]));
}

#[test]
fn a_mode_without_a_limit_warns_of_nothing() {
    assert_eq!(right(&[("GPUCAP_MODE", "cap")]).limit_source, LimitSource::None);
}

#[test]
fn every_variable_reaches_its_field() {
    let config = right(&[
        ("GPUCAP_LIMIT", "0.3"),
        ("GPUCAP_MODE", "0=cap,*=CAP"),
        ("GPUCAP_OVERHEAD", " 0 "),
        ("GPUCAP_FREE", "strict"),
        ("GPUCAP_REPORT", "device"),
        ("GPUCAP_ON_ERROR", "exit"),
        ("GPUCAP_LOG", "Info"),
        ("GPUCAP_LOG_FILE", "/tmp/café-%p.log"),
        ("GPUCAP_STATS", "off"),
        ("GPUCAP_DISABLE", "1"),
        ("GPUCAP_LIB", "/x/libgpucap.so"),
    ]);
    assert_eq!(config.limits.to_string(), "0.3");
    assert_eq!(config.limit_source, LimitSource::Gpucap);
    assert_eq!(config.modes.to_string(), "0=cap,*=cap");
    assert_eq!(config.overhead, Overhead::Uncounted);
    assert_eq!(config.report, Report::Device);
    assert_eq!(config.on_error, OnError::Exit);
    assert_eq!(config.log, Level::Info);
    assert_eq!(config.log_file.as_deref(), Some("/tmp/café-%p.log"));
    assert_eq!(log_path("/tmp/%p/%p.log", 42), "/tmp/42/42.log");
}

#[test]
fn the_overhead_is_measured_unless_something_else_is_said() {
    let limited = ("GPUCAP_LIMIT", "1G");
    assert_eq!(right(&[limited]).overhead, Overhead::Auto);
    assert_eq!(right(&[limited, ("GPUCAP_OVERHEAD", "auto")]).overhead, Overhead::Auto);
    assert_eq!(right(&[limited, ("GPUCAP_OVERHEAD", "512MiB")]).overhead, Overhead::Fixed(512 << 20));
}

#[test]
fn a_wrong_value_names_the_variable_the_value_and_the_accepted_forms() {
    assert_eq!(
        wrong(&[("GPUCAP_LIMIT", "8")]),
        "GPUCAP_LIMIT=8: 8 what? 8GiB or 8%; accepted: 0.3, 30%, 8GiB, total-1GiB, or by device \
         0=0.3,1=8GiB,GPU-<uuid>=50%,*=0.9"
    );
    assert_eq!(wrong(&[("GPUCAP_REPORT", "gpu")]), "GPUCAP_REPORT=gpu: unknown value; accepted: cap, device");
    assert_eq!(wrong(&[("GPUCAP_LOG", "")]), "GPUCAP_LOG=: empty; accepted: off, error, warn, info, debug");
    for (name, value) in [
        ("GPUCAP_LIMIT", "4G;rm"),
        ("GPUCAP_LIMIT", ""),
        ("GPUCAP_LIMIT", "0,5"),
        ("GPUCAP_LIMIT", "4G\nGPUCAP_LOG=off"),
        ("GPUCAP_MODE", "growht"),
        ("GPUCAP_MODE", "0=cap,0=cap"),
        ("GPUCAP_OVERHEAD", "8"),
        ("GPUCAP_OVERHEAD", "10%"),
        ("GPUCAP_FREE", "later"),
        ("GPUCAP_LOG", "trace"),
        ("GPUCAP_LOG_FILE", " "),
        ("GPUCAP_GROUP", "a/b"),
        ("GPUCAP_DISABLE", "0"),
        ("GPUCAP_DISABLE", "yes"),
        ("GPUCAP_DISABLE", ""),
    ] {
        let line = wrong(&[("GPUCAP_MODE", "cap"), (name, value)][usize::from(name == "GPUCAP_MODE")..]);
        assert!(line.starts_with(&format!("{name}={}", value.lines().next().unwrap_or(""))), "{line}");
        assert!(line.contains("; accepted: "), "{line}");
    }
}

#[test]
fn b25_a_foreign_byte_is_shown_with_its_place() {
    let line = wrong(&[("GPUCAP_LIMIT", "\u{201d}0=1G,1=512MB\u{201d}")]);
    assert!(line.starts_with("GPUCAP_LIMIT=\\xe2\\x80\\x9d0=1G,1=512MB"), "{line}");
    assert!(line.contains("byte 0xE2 at 0 is not ASCII"), "{line}");
    let parsed = Config::read([(&b"GPUCAP_LIMIT"[..], &b"4G\xff"[..])]);
    assert!(parsed.errors[0].contains("byte 0xFF at 2"), "{parsed:?}");
    let parsed = Config::read([(&b"GPUCAP_LOG_FILE"[..], &b"/tmp/\xff"[..]), (b"GPUCAP_LIMIT", b"1")]);
    assert!(parsed.errors[0].contains("not UTF-8"), "{parsed:?}");
}

#[test]
fn an_endless_value_makes_a_short_line() {
    assert!(wrong(&[("GPUCAP_LIMIT", &"9".repeat(100_000))]).len() < 400);
}

#[test]
fn values_that_later_versions_bring_are_refused_clearly() {
    for (name, value, words) in [
        ("GPUCAP_MODE", "growth", "growth is not in this version yet; accepted: cap"),
        ("GPUCAP_MODE", "0=cap,1=reserve", "reserve is not in this version yet; accepted: cap"),
        ("GPUCAP_GROUP", "a", "a group is not in this version yet; accepted: none in this version"),
        ("GPUCAP_FREE", "lazy", "lazy is not in this version yet; accepted: strict"),
        ("GPUCAP_STATS", "/tmp", "a directory is not in this version yet; accepted: off"),
    ] {
        assert_eq!(wrong(&[("GPUCAP_LIMIT", "1"), (name, value)]), format!("{name}={value}: {words}"));
        assert_eq!(read(&[("GPUCAP_LIMIT", "1"), (name, value)]).config, right(&[("GPUCAP_LIMIT", "1")]));
    }
}

#[test]
fn on_error_holds_when_another_value_is_wrong_and_is_closed_when_it_is_wrong_itself() {
    assert_eq!(read(&[("GPUCAP_LIMIT", "8"), ("GPUCAP_ON_ERROR", "open")]).config.on_error, OnError::Open);
    assert_eq!(read(&[("GPUCAP_ON_ERROR", "opne")]).config.on_error, OnError::Closed);
    assert_eq!(read(&[("GPUCAP_ON_EROR", "open")]).config.on_error, OnError::Closed);
}

#[test]
fn b20_a_slip_of_a_known_name_is_a_wrong_value_of_it() {
    let line = wrong(&[("GPUCAP_LIMTI", "0.3")]);
    assert!(line.starts_with("GPUCAP_LIMTI=0.3: no such variable, GPUCAP_LIMIT is meant; accepted: 0.3"), "{line}");
    for name in [
        "GPUCAP_LIMIT ",
        "GPUCAP_LIMITS",
        "GPUCAP_MODEL",
        "GPUCAP_LOGFILE",
        "GPUCAP_ONERROR",
        "GPUCAP_limit",
        "GPUCAP_DISABLED",
    ] {
        wrong(&[(name, "x")]);
    }
    let parsed = read(&[("GPUCAP_MEMORY_LIMTE", "1G"), ("GPUCAP_WHATEVER", "1"), ("GPUCAP_LIMIT", "1G")]);
    assert_eq!(parsed.errors, [""; 0]);
    let [warning] = parsed.warnings.as_slice() else { panic!("{parsed:?}") };
    assert!(
        warning.starts_with("no such variable: GPUCAP_MEMORY_LIMTE, GPUCAP_WHATEVER; known: GPUCAP_LIMIT, "),
        "{warning}"
    );
}

#[test]
fn what_kubernetes_sets_for_a_service_named_gpucap_is_ignored() {
    right(&[
        ("GPUCAP_LIMIT", "1"),
        ("GPUCAP_SERVICE_HOST", "10.0.0.1"),
        ("GPUCAP_SERVICE_PORT", "80"),
        ("GPUCAP_PORT", "tcp://10.0.0.1:80"),
        ("GPUCAP_PORT_80_TCP_ADDR", "10.0.0.1"),
    ]);
}

#[test]
fn the_first_of_two_equal_names_counts() {
    assert_eq!(right(&[("GPUCAP_LIMIT", "0.3"), ("GPUCAP_LIMIT", "8")]).limits.to_string(), "0.3");
}

#[test]
fn only_1_disables() {
    assert!(is_disabled(Some(b"1")) && is_disabled(Some(b" 1\n")));
    for value in [None, Some(&b""[..]), Some(b"0"), Some(b"true"), Some(b"11")] {
        assert!(!is_disabled(value), "{value:?}");
    }
}

#[test]
fn the_table_is_what_the_parser_goes_by() {
    for variable in table::VARIABLES {
        assert!(variable.name.starts_with("GPUCAP_"));
        // Every literal that is offered for a variable by itself is accepted.
        for literal in variable.values.split('`').skip(1).step_by(2).filter(|literal| !literal.contains(['<', '%'])) {
            assert_eq!(read(&[(variable.name, literal)]).errors, [""; 0], "{}={literal}", variable.name);
        }
        // And every one that is for later is refused as such.
        for literal in variable.later.split('`').skip(1).step_by(2) {
            assert!(wrong(&[(variable.name, literal)]).contains("not in this version"), "{}={literal}", variable.name);
        }
    }
}

proptest::proptest! {
    #[test]
    fn no_environment_makes_the_parser_panic_and_every_line_is_one_line(
        which in 0..table::VARIABLES.len(),
        value in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
        name in "GPUCAP_[A-Z_ ]{0,12}|CUDA_DEVICE_MEMORY_LIMIT[_0-9]{0,4}",
    ) {
        let vars = [(table::VARIABLES[which].name, value.clone()), (name.as_str(), value)];
        let parsed = Config::read(vars);
        for line in parsed.errors.iter().chain(&parsed.warnings) {
            proptest::prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{:?}", line);
        }
        parsed.config.resolve(&two([G, G]));
    }
}
