//! Every form of a limit with the bytes it comes to, or why it is refused.

use proptest::prelude::*;

use super::*;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
/// A device whose total no small fraction divides.
const TOTAL: u64 = 16 * G - 1;

/// Either the bytes on a device of [`TOTAL`], or words of the refusal.
type Expected = Result<u64, &'static str>;

fn check(table: &[(&str, Expected)]) {
    for (text, expected) in table {
        match (Limit::parse(text), expected) {
            (Ok(limit), Ok(bytes)) => {
                assert_eq!(limit.of(TOTAL), *bytes, "{text:?} was read as {limit}")
            }
            (Err(reason), Err(words)) => assert!(reason.contains(words), "{text:?} was refused with {reason:?}"),
            (read, _) => panic!("{text:?} gave {read:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn a61_every_size_people_wrote_is_read_exactly_or_refused() {
    check(&[
        ("4G", Ok(4 * G)),
        ("4g", Ok(4 * G)),
        ("4Gi", Ok(4 * G)),
        ("4GiB", Ok(4 * G)),
        ("4GB", Ok(4 * G)),
        ("4096M", Ok(4 * G)),
        ("4G ", Ok(4 * G)),
        ("\t4G\n", Ok(4 * G)),
        ("0.5G", Ok(G / 2)),
        ("1.5G", Ok(3 * G / 2)),
        ("08G", Ok(8 * G)),
        ("0x10M", Err("hexadecimal")),
        ("50%", Ok(8 * G - 1)),
        ("0.5", Ok(8 * G - 1)),
        (".5", Ok(8 * G - 1)),
        ("5e-1", Ok(8 * G - 1)),
        ("-1", Err("negative")),
        ("", Err("empty")),
        (" ", Err("empty")),
        ("abc", Err("not a number")),
        ("1e400", Err("more than any device")),
        ("18446744073709551616", Err("more than any device")),
        ("18446744073709551615", Err("18446744073709551615 what? 18446744073709551615B")),
        ("18446744073709551615B", Ok(u64::MAX)),
        ("18446744073709551616B", Err("64 bits")),
        ("1e400G", Err("64 bits")),
        ("4G;rm", Err("\";\"")),
    ]);
}

#[test]
fn b12_numbers_out_of_range_are_refused_with_what_may_have_been_meant() {
    check(&[
        ("100", Err("100 what? 100GiB or 100%")),
        ("50", Err("50 what? 50GiB or 50%")),
        ("8", Err("8 what? 8GiB or 8%")),
        ("4096", Err("4096 what? 4096MiB or 4096GiB")),
        ("1.0000001", Err("1.0000001 what?")),
        ("1", Ok(TOTAL)),
        ("1.0", Ok(TOTAL)),
        ("1e0", Ok(TOTAL)),
        ("0", Ok(0)),
        ("0.0", Ok(0)),
        ("-0.1", Err("negative")),
        ("-0", Err("negative")),
        ("nan", Err("not a finite number")),
        ("NaN", Err("not a finite number")),
        ("inf", Err("not a finite number")),
        ("Infinity", Err("not a finite number")),
        ("-inf", Err("negative")),
        ("0,5", Err("unknown unit \",5\"")),
        ("50%", Ok(8 * G - 1)),
        ("100%", Ok(TOTAL)),
        ("100.1%", Err("above 100%")),
        ("0%", Ok(0)),
    ]);
}

#[test]
fn b51_the_three_notations_do_not_depend_on_what_is_in_use() {
    check(&[
        ("7G", Ok(7 * G)),
        ("90%", Ok(15_461_882_264)), // floor(0.9 × 17179869183)
        ("total-1G", Ok(15 * G - 1)),
        ("total-1GiB", Ok(15 * G - 1)),
        ("TOTAL-512 MiB", Ok(TOTAL - 512 * M)),
        ("total-0B", Ok(TOTAL)),
        ("total-1T", Ok(0)),
        ("total", Err("after total")),
        ("total-1", Err("1 what? 1MiB or 1GiB")),
        ("total-10%", Err("not a share")),
        ("total+1G", Err("after total")),
        ("total--1G", Err("negative")),
    ]);
}

#[test]
fn every_unit_is_binary_in_any_case() {
    for (letter, bytes) in [("K", K), ("M", M), ("G", G), ("T", 1 << 40)] {
        for ending in ["", "B", "i", "iB", "b", "I", "IB"] {
            for text in [format!("3{letter}{ending}"), format!("3 {letter}{ending}").to_lowercase()] {
                assert_eq!(Limit::parse(&text), Ok(Limit::Bytes(3 * bytes)), "{text}");
            }
        }
    }
    check(&[
        ("3B", Ok(3)),
        ("3b", Ok(3)),
        ("0.9B", Ok(0)),
        ("1.5KB", Ok(1536)),
        ("1e3 MiB", Ok(1000 * M)),
        ("3Bi", Err("unknown unit")),
        ("3iB", Err("unknown unit")),
        ("3BB", Err("unknown unit")),
        ("3P", Err("unknown unit")),
        ("3  G", Err("unknown unit")),
        ("3\tG", Err("unknown unit")),
        ("3 G B", Err("unknown unit")),
        ("3.G", Err("unknown unit")),
        ("G", Err("not a number")),
        ("+1G", Err("not a number")),
        ("1_000M", Err("unknown unit")),
        ("%", Err("not a number")),
        ("30 %", Ok(TOTAL * 3 / 10)),
        ("30%%", Err("unknown unit")),
        ("\"0.3\"", Err("quotes")),
    ]);
}

#[test]
fn a67_a_fraction_is_of_that_very_device_rounded_down_to_a_byte() {
    let tenth = Limit::parse("0.10").expect("a fraction");
    assert_eq!(tenth.of(32768 * M), 3_435_973_836); // 3276.8 MiB, less .8 of a byte
    assert_eq!(tenth.of(24576 * M), 2_576_980_377); // 2457.6 MiB, less .6 of a byte
    assert_eq!(Limit::parse("0.15").expect("a fraction").of(16 * G), 2_576_980_377);
    assert_eq!(Limit::parse("0.29").expect("a fraction").of(100), 29); // 0.29 × 100 is 28.999… in binary floating point
}

#[test]
fn sizes_for_people_are_short_and_never_rounded_up() {
    for (bytes, text) in [
        (0, "0 B"),
        (512, "512 B"),
        (1536, "1.5 KiB"),
        (16 * G, "16 GiB"),
        (16 * G - 1, "15.99 GiB"),
        (3_435_973_836, "3.19 GiB"),
        (u64::MAX, "16777215.99 TiB"),
    ] {
        assert_eq!(format_bytes(bytes), text);
    }
}

/// Any limit that can be configured.
pub(crate) fn any_limit() -> impl Strategy<Value = Limit> {
    let fraction = (0u64..=10_000_000_000, 0i32..30).prop_map(|(digits, more)| Decimal::new(digits.into(), -10 - more));
    prop_oneof![
        fraction.prop_map(Limit::Fraction),
        any::<u64>().prop_map(Limit::Bytes),
        (0u64..4096, 0u32..40).prop_map(|(count, shift)| Limit::Bytes(count << shift)),
        any::<u64>().prop_map(Limit::TotalMinus),
        (0u64..4096, 0u32..40).prop_map(|(count, shift)| Limit::TotalMinus(count << shift)),
    ]
}

proptest! {
    #[test]
    fn a_printed_limit_is_read_back_as_the_same(limit in any_limit()) {
        prop_assert_eq!(Limit::parse(&limit.to_string()), Ok(limit));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,12}|[0-9.eE+% GiBtoal-]{0,16}") {
        let _ = Limit::parse(&text);
    }

    #[test]
    fn a_fraction_never_exceeds_the_total(limit in any_limit(), total: u64) {
        if let Limit::Fraction(_) | Limit::TotalMinus(_) = limit {
            prop_assert!(limit.of(total) <= total);
        }
    }
}
