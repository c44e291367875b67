//! Exact decimal numbers as people write them (`0.3`, `.5`, `5e-1`, `08`), so that a share of a device is never off by a
//! binary rounding.

use std::fmt;

/// A non-negative number `digits × 10^exponent`, kept in its shortest form: no trailing zero in `digits`, and zero is `0 × 10^0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    digits: u128,
    exponent: i32,
}

/// Beyond this a number is a slip of the hand, not a size.
const EXPONENT_MAX: i32 = 9999;

impl Decimal {
    /// The number `digits × 10^exponent`.
    pub fn new(mut digits: u128, mut exponent: i32) -> Decimal {
        if digits == 0 {
            return Decimal { digits, exponent: 0 };
        }
        while digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        Decimal { digits, exponent }
    }

    /// Reads a number at the start of `text` and gives what follows it. No sign is accepted, and a digit must follow the point.
    ///
    /// # Errors
    /// One phrase that says what is wrong.
    pub fn scan(text: &str) -> Result<(Decimal, &str), &'static str> {
        let (whole, rest) = split_digits(text);
        let (fraction, rest) = match rest.strip_prefix('.').map(split_digits) {
            Some((fraction, after)) if !fraction.is_empty() => (fraction, after),
            _ => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err("not a number");
        }
        let (power, rest) = split_exponent(rest);

        let mut digits: u128 = 0;
        // Zeros are held back until a digit follows them: trailing ones, however many, then cost no precision.
        let mut zeros = 0;
        for digit in whole.bytes().chain(fraction.bytes()).map(|byte| u128::from(byte - b'0')) {
            if digit == 0 {
                zeros += i32::from(digits != 0);
                continue;
            }
            for _ in 0..=zeros {
                digits = digits.checked_mul(10).ok_or("more digits than are read (38)")?;
            }
            digits = digits.checked_add(digit).ok_or("more digits than are read (38)")?;
            zeros = 0;
        }
        if digits == 0 {
            return Ok((Decimal::new(0, 0), rest));
        }
        let places = i32::try_from(fraction.len()).map_err(|_| "too long")?;
        let exponent = power.saturating_add(zeros).saturating_sub(places);
        if exponent.abs() > EXPONENT_MAX {
            return Err("the exponent is out of range");
        }
        Ok((Decimal { digits, exponent }, rest))
    }

    /// `self × unit`, rounded down; `None` when that is more than 64 bits hold.
    pub fn times(self, unit: u64) -> Option<u64> {
        let unit = u128::from(unit);
        let mut digits = self.digits;
        let mut below = 0;
        // From the last digit up: floor((floor(x) + n) / 10) = floor((x + n) / 10) for a whole n, so every step may round down
        // and the result is still exact, in 128 bits, with any number of digits.
        for _ in self.exponent..0 {
            if digits == 0 && below == 0 {
                break;
            }
            below = (below + digits % 10 * unit) / 10;
            digits /= 10;
        }
        for _ in 0..self.exponent {
            digits = digits.checked_mul(10)?;
        }
        u64::try_from(digits.checked_mul(unit)?.checked_add(below)?).ok()
    }

    /// A hundredth of it.
    pub fn percent(self) -> Decimal {
        Decimal::new(self.digits, self.exponent - 2)
    }

    /// Whether it is above `10^power`, for a `power` of 0 or more.
    pub fn is_above_ten_to(self, power: u32) -> bool {
        let Ok(power) = i32::try_from(power) else {
            return false;
        };
        let shift = power - self.exponent;
        match u32::try_from(shift) {
            Ok(shift) => 10u128.checked_pow(shift).is_some_and(|bound| self.digits > bound),
            Err(_) => self.digits != 0,
        }
    }

    /// Whether it has no part after the point.
    pub fn is_whole(self) -> bool {
        self.exponent >= 0
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decimal { digits, exponent } = *self;
        if exponent.unsigned_abs() > 40 {
            return write!(out, "{digits}e{exponent}");
        }
        let width = exponent.unsigned_abs() as usize;
        if exponent >= 0 {
            return write!(out, "{digits}{:0<width$}", "");
        }
        let text = format!("{digits:0>least$}", least = width + 1);
        let (whole, fraction) = text.split_at(text.len() - width);
        write!(out, "{whole}.{fraction}")
    }
}

/// The digits at the start, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The value of an `e…` at the start, and the rest; an `e` with no number after it is left alone.
fn split_exponent(text: &str) -> (i32, &str) {
    let Some(after) = text.strip_prefix(['e', 'E']) else {
        return (0, text);
    };
    let (negative, after) = match (after.strip_prefix('-'), after.strip_prefix('+')) {
        (Some(after), _) => (true, after),
        (_, Some(after)) => (false, after),
        _ => (false, after),
    };
    let (digits, rest) = split_digits(after);
    if digits.is_empty() {
        return (0, text);
    }
    // The only way to fail is overflow, and that is out of range either way.
    let power = digits.parse::<i32>().unwrap_or(i32::MAX);
    (if negative { -power } else { power }, rest)
}

#[cfg(test)]
mod tests {
    use super::Decimal;
    use proptest::prelude::*;

    fn scan(text: &str) -> Decimal {
        let (number, rest) = Decimal::scan(text).expect(text);
        assert_eq!(rest, "", "{text}");
        number
    }

    #[test]
    fn every_way_to_write_a_half_is_the_same_number() {
        for text in ["0.5", ".5", "5e-1", "5E-1", "0.50000", "00.5", "500e-3", "0.05e1", "0.05e+1"] {
            assert_eq!(scan(text), Decimal::new(5, -1), "{text}");
        }
    }

    #[test]
    fn what_follows_the_number_is_given_back() {
        for (text, rest) in
            [("8G", "G"), ("8 G", " G"), ("8.", "."), ("8e", "e"), ("8e+", "e+"), ("1e2e3", "e3"), ("0x10", "x10")]
        {
            assert_eq!(Decimal::scan(text).expect(text).1, rest, "{text}");
        }
        for text in ["", ".", "-1", "+1", "e5", "nan", ".e1"] {
            assert!(Decimal::scan(text).is_err(), "{text}");
        }
    }

    #[test]
    fn trailing_zeros_cost_no_precision_and_too_many_digits_are_refused() {
        assert_eq!(scan(&format!("0.3{}", "0".repeat(100))), Decimal::new(3, -1));
        assert_eq!(scan(&format!("1{}", "0".repeat(100))), Decimal::new(1, 100));
        assert!(Decimal::scan(&"1".repeat(40)).is_err());
        assert!(Decimal::scan("1e99999999999").is_err());
    }

    #[test]
    fn products_are_rounded_down_to_a_whole_number() {
        assert_eq!(scan("0.1").times(32768 << 20), Some(3_435_973_836)); // 3276.8 MiB = 3435973836.8 bytes
        assert_eq!(scan("0.3333333333333333333333333333333").times(3), Some(0));
        assert_eq!(scan("0.9999999999999999999999999999999").times(u64::MAX), Some(u64::MAX - 1));
        assert_eq!(scan("1").times(u64::MAX), Some(u64::MAX));
        assert_eq!(scan("1.0000000001").times(u64::MAX), None);
        assert_eq!(scan("1e-400").times(u64::MAX), Some(0));
        assert_eq!(scan("1e400").times(1), None);
    }

    #[test]
    fn comparisons_with_powers_of_ten_are_exact() {
        for (text, above) in [
            ("1", false),
            ("1.0000001", true),
            ("0.99999", false),
            ("0", false),
            ("1e1", true),
            ("1e-400", false),
            ("1e400", true),
        ] {
            assert_eq!(scan(text).is_above_ten_to(0), above, "{text}");
        }
        assert!(!scan("100").is_above_ten_to(2));
        assert!(scan("100.5").is_above_ten_to(2));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(digits: u64, exponent in -300i32..300) {
            let number = Decimal::new(digits.into(), exponent);
            prop_assert_eq!(scan(&number.to_string()), number);
        }

        #[test]
        fn a_product_is_the_integer_one_where_that_fits(digits in 0u64..1_000_000_000_000, places in 0u32..12, unit: u64) {
            let exact = u128::from(digits) * u128::from(unit) / 10u128.pow(places);
            let number = Decimal::new(digits.into(), -i32::try_from(places).expect("small"));
            prop_assert_eq!(number.times(unit), u64::try_from(exact).ok());
        }
    }
}
