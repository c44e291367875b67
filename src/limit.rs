//! One limit as it is written (`0.3`, `30%`, `8GiB`, `total-1GiB`), and what it comes to on a device of a given size.

use std::fmt;

use crate::decimal::Decimal;

/// A limit before it meets a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This share of the device's total; at most 1.
    Fraction(Decimal),
    /// So many bytes.
    Bytes(u64),
    /// The device's total less so many bytes.
    TotalMinus(u64),
}

impl Limit {
    /// Reads one limit; blanks around it are ignored.
    ///
    /// # Errors
    /// One phrase that says what is wrong with it, without the accepted forms.
    pub fn parse(text: &str) -> Result<Limit, String> {
        let text = text.trim_ascii();
        if text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("total")) {
            return match text[5..].strip_prefix('-') {
                Some(size) => parse_size(size).map(Limit::TotalMinus),
                None => Err(format!("after total a size to leave free is expected, not {:?}", &text[5..])),
            };
        }
        let (number, unit) = split(text)?;
        if unit.is_empty() {
            return match number.is_above_ten_to(0) {
                false => Ok(Limit::Fraction(number)),
                true => Err(bare_number(number, text)),
            };
        }
        if unit == "%" {
            return match number.is_above_ten_to(2) {
                false => Ok(Limit::Fraction(number.percent())),
                true => Err("a share above 100%".into()),
            };
        }
        bytes(number, unit).map(Limit::Bytes)
    }

    /// The limit in bytes on a device of `total` bytes, rounded down. A size above the total stays what it is.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Limit::Fraction(share) => share.times(total).map_or(total, |bytes| bytes.min(total)),
            Limit::Bytes(bytes) => bytes,
            Limit::TotalMinus(rest) => total.saturating_sub(rest),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Limit::Fraction(share) => share.fmt(out),
            Limit::Bytes(bytes) => out.write_str(&exact_size(bytes)),
            Limit::TotalMinus(bytes) => write!(out, "total-{}", exact_size(bytes)),
        }
    }
}

/// Reads a size with its unit, such as `8GiB`, into bytes (rounded down).
///
/// # Errors
/// One phrase that says what is wrong with it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim_ascii();
    let (number, unit) = split(text)?;
    match unit {
        "" => Err(format!("{text} what? {text}MiB or {text}GiB")),
        "%" => Err("a size is expected, not a share".into()),
        _ => bytes(number, unit),
    }
}

/// A size for people: two places after the point at most, rounded down, such as `16 GiB`, `4.79 GiB` or `512 B`.
pub fn format_bytes(bytes: u64) -> String {
    let (name, unit) = UNITS.iter().rev().find(|(_, unit)| bytes >= *unit).unwrap_or(&UNITS[0]);
    let (whole, hundredths) = (bytes / unit, u128::from(bytes % unit) * 100 / u128::from(*unit));
    let text = format!("{whole}.{hundredths:02}");
    format!("{} {name}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// What we print; reading knows more spellings.
const UNITS: [(&str, u64); 5] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// The largest unit that divides it, so that it is read back as the same number.
fn exact_size(bytes: u64) -> String {
    let divides = |unit: u64| bytes >= unit && bytes.is_multiple_of(unit);
    let (name, unit) = UNITS.iter().rev().find(|(_, unit)| divides(*unit)).unwrap_or(&UNITS[0]);
    format!("{}{name}", bytes / unit)
}

/// All units are binary, whatever they are called: on a GPU nobody means powers of ten, and the tools do not agree on the names.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    let letter = match unit.as_str() {
        "B" => return Some(1),
        _ => unit
            .strip_suffix("IB")
            .or_else(|| unit.strip_suffix('B'))
            .or_else(|| unit.strip_suffix('I'))
            .unwrap_or(&unit),
    };
    match letter {
        "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        "T" => Some(1 << 40),
        _ => None,
    }
}

fn bytes(number: Decimal, unit: &str) -> Result<u64, String> {
    let size = unit_bytes(unit).ok_or_else(|| match unit {
        _ if unit.starts_with(['x', 'X']) => "hexadecimal is not read".into(),
        _ if unit.starts_with(';') || unit.contains(';') => "\";\" separates nothing here".into(),
        _ => format!("unknown unit {unit:?}"),
    })?;
    number.times(size).ok_or_else(|| "more than 64 bits of bytes".into())
}

/// A number and its unit; one blank may stand between them.
fn split(text: &str) -> Result<(Decimal, &str), String> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "" => return Err("empty".into()),
        "nan" | "inf" | "infinity" => return Err("not a finite number".into()),
        _ if text.starts_with('-') => return Err("negative".into()),
        _ if text.starts_with(['"', '\'']) => return Err("the quotes are part of the value".into()),
        _ => {}
    }
    let (number, unit) = Decimal::scan(text)?;
    Ok((number, unit.strip_prefix(' ').unwrap_or(unit)))
}

/// What the writer of a number above 1 may have meant.
fn bare_number(number: Decimal, text: &str) -> String {
    match number.times(1) {
        None => "more than any device has".into(),
        Some(_) if !number.is_above_ten_to(2) => format!("{text} what? {text}GiB or {text}%"),
        Some(_) if !number.is_above_ten_to(6) => format!("{text} what? {text}MiB or {text}GiB"),
        Some(_) => format!("{text} what? {text}B"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
