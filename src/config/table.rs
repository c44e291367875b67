//! The table of variables, one entry each: the parser, `gpucap run --help` and the README's table all follow from it.

use super::words::{FreePolicy, Level, LimitSource, Mode, OnError, Overhead, Report, Stats, Word};
use super::{Config, is_disabled};
use crate::device_key::PerDevice;
use crate::limit::{Limit, parse_size};

/// One environment variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The accepted forms, with the literal ones in backticks.
    pub values: &'static str,
    /// Forms that are recognised and refused in this version; see `not_yet.rs`.
    pub later: &'static str,
    /// What holds when it is unset.
    pub default: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// The flag of `gpucap run` that sets it.
    pub flag: Option<&'static str>,
    /// Who reads it.
    reader: Reader,
}

/// A reader takes the text, trimmed, to its field.
type Set = fn(&str, &mut Config) -> Result<(), String>;

#[derive(Debug)]
enum Reader {
    /// The library; nothing but ASCII is expected.
    Ascii(Set),
    /// The library; the value is a path.
    Path(Set),
    /// Only the command.
    Command,
}

/// All of them, in the order in which people meet them.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "GPUCAP_LIMIT",
        values: "`0.3`, `30%`, `8GiB`, `total-1GiB`, or by device `0=0.3,1=8GiB,GPU-<uuid>=50%,*=0.9`",
        later: "",
        default: "the whole device, with a warning",
        doc: "The device memory that the program may hold. Units are B K M G T, also as KB, Ki or KiB, all binary, in any \
              case. A device is named by its CUDA number as the program sees it, or by the beginning of its GPU's or MIG \
              instance's UUID; a UUID beats a number beats `*`. `0` is nothing on that device.",
        flag: Some("limit"),
        reader: Reader::Ascii(|text, config| {
            config.limits = PerDevice::parse(text, Limit::parse)?;
            config.limit_source = LimitSource::Gpucap;
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_MODE",
        values: "`cap`",
        later: "`growth`, `reserve`",
        default: "`cap`",
        doc: "What happens to memory that the program frees; by device as for the limit. `cap`: it goes back to the driver.",
        flag: Some("mode"),
        reader: Reader::Ascii(|text, config| {
            config.modes = PerDevice::parse(text, Mode::parse)?;
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_OVERHEAD",
        values: "`auto`, `0`, or a size as `600MiB`",
        later: "",
        default: "`auto`",
        doc: "Memory of the process that no allocation call accounts for, such as its context and its modules. `auto`: it is measured and counted. `0`: only allocations count. A size: so much is counted, whatever is really taken.",
        flag: Some("overhead"),
        reader: Reader::Ascii(|text, config| {
            config.overhead = overhead(text)?;
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_GROUP",
        values: "",
        later: "a name",
        default: "each process for itself",
        doc: "The processes of this user that share one budget per device.",
        flag: Some("group"),
        reader: Reader::Ascii(|text, config| {
            config.group = Some(group(text)?);
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_FREE",
        values: "`strict`",
        later: "`lazy`",
        default: "`strict`",
        doc: "How a free in growth and reserve mode waits. `strict`: as the driver's would.",
        flag: Some("free"),
        reader: Reader::Ascii(|text, config| {
            config.free = FreePolicy::parse(text)?;
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_REPORT",
        values: "`cap`, `device`",
        later: "",
        default: "`cap`",
        doc: "What the program is told when it asks for a device's total and free memory: the limit and what is left of \
              it, or the device's own numbers.",
        flag: Some("report"),
        reader: Reader::Ascii(|text, config| {
            config.report = Report::parse(text)?;
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_ON_ERROR",
        values: "`closed`, `exit`, `open`",
        later: "",
        default: "`closed`",
        doc: "What a wrong value does. `closed`: cuInit fails, and some frameworks then go on without the GPU. `exit`: the \
              process ends with code 78. `open`: the variable is ignored, with a warning.",
        flag: Some("on-error"),
        reader: Reader::Ascii(|text, config| {
            config.on_error = OnError::parse(text)?;
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_LOG",
        values: "`off`, `error`, `warn`, `info`, `debug`",
        later: "",
        default: "`warn`",
        doc: "What is written. With `info`, the limits in force and the sum at the end.",
        flag: Some("log"),
        reader: Reader::Ascii(|text, config| {
            config.log = Level::parse(text)?;
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_LOG_FILE",
        values: "a path; `%p` stands for the process's number",
        later: "",
        default: "stderr",
        doc: "Where it is written.",
        flag: Some("log-file"),
        reader: Reader::Path(|text, config| {
            config.log_file = Some(text.into());
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_STATS",
        values: "`off`",
        later: "a directory",
        default: "`off`",
        doc: "Where live numbers are published.",
        flag: Some("stats"),
        reader: Reader::Path(|text, config| {
            config.stats = match text.eq_ignore_ascii_case("off") {
                true => Stats::Off,
                false => Stats::Directory(text.into()),
            };
            Ok(())
        }),
    },
    Variable {
        name: "GPUCAP_DISABLE",
        values: "`1`",
        later: "",
        default: "unset",
        doc: "`1`: nothing is hooked, every call goes straight to the driver.",
        flag: None,
        reader: Reader::Ascii(|text, _| match is_disabled(Some(text.as_bytes())) {
            true => Ok(()),
            false => Err("unknown value; unset it to enable gpucap".into()),
        }),
    },
    Variable {
        name: "GPUCAP_LIB",
        values: "a path",
        later: "",
        default: "beside the command, or in `../lib/gpucap/`",
        doc: "The libgpucap.so that `gpucap run` preloads.",
        flag: Some("lib"),
        reader: Reader::Command,
    },
];

impl Variable {
    /// Whether the library reads it, and not only the command.
    pub fn is_for_library(&self) -> bool {
        !matches!(self.reader, Reader::Command)
    }

    /// Takes a value to its field.
    ///
    /// # Errors
    /// One phrase that says what is wrong with it.
    pub(super) fn read(&self, value: &[u8], config: &mut Config) -> Result<(), String> {
        let (set, path) = match self.reader {
            Reader::Ascii(set) => (set, false),
            Reader::Path(set) => (set, true),
            Reader::Command => return Ok(()),
        };
        let foreign = value.iter().position(|byte| !byte.is_ascii());
        match (std::str::from_utf8(value), foreign) {
            (Ok(text), None) => set(trimmed(text)?, config),
            (Ok(text), Some(_)) if path => set(trimmed(text)?, config),
            (_, Some(at)) if !path => Err(format!("byte 0x{:02X} at {at} is not ASCII", value[at])),
            _ => Err("not UTF-8".into()),
        }
    }

    /// The line about a wrong value, under whatever name it was given.
    pub fn error(&self, name: &[u8], value: &[u8], reason: &str) -> String {
        let accepted = match self.values {
            "" => "none in this version".into(),
            values => plain(values),
        };
        format!("{}={}: {reason}; accepted: {accepted}", printable(name), printable(value))
    }
}

fn trimmed(text: &str) -> Result<&str, String> {
    match text.trim_ascii() {
        "" => Err("empty".into()),
        text => Ok(text),
    }
}

fn overhead(text: &str) -> Result<Overhead, String> {
    match text {
        "0" => Ok(Overhead::Uncounted),
        _ if text.eq_ignore_ascii_case("auto") => Ok(Overhead::Auto),
        _ => Ok(match parse_size(text)? {
            0 => Overhead::Uncounted,
            bytes => Overhead::Fixed(bytes),
        }),
    }
}

/// A name that can be part of a file's name.
fn group(text: &str) -> Result<String, String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match text.len() <= 64 && !text.starts_with('.') && text.bytes().all(fine) {
        true => Ok(text.into()),
        false => Err("a name has up to 64 letters, digits, . _ -, and no . first".into()),
    }
}

/// The words without their backticks.
pub fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// A name or value as one short line of ASCII, whatever is in it.
pub(super) fn printable(bytes: &[u8]) -> String {
    const SHOWN: usize = 100;
    // Quotes and backslashes stay as they are: the reader compares with what he wrote.
    let escape = |&byte: &u8| match byte {
        b'"' | b'\'' | b'\\' => char::from(byte).to_string(),
        _ => byte.escape_ascii().to_string(),
    };
    let shown: String = bytes.iter().take(SHOWN).map(escape).collect();
    shown + if bytes.len() > SHOWN { "..." } else { "" }
}

/// The table as the README shows it.
pub fn markdown() -> String {
    let mut text = String::from("| variable | values | default | what it is for |\n|---|---|---|---|\n");
    for variable in VARIABLES {
        let values = match (variable.values, variable.later) {
            (values, "") => values.to_string(),
            ("", later) => format!("not in this version: {later}"),
            (values, later) => format!("{values} (not in this version: {later})"),
        };
        text += &format!("| `{}` | {values} | {} | {} |\n", variable.name, variable.default, variable.doc);
    }
    text
}
