//! The values that are words, each with its type, its spelling and its default.

use std::fmt;

/// What happens to memory that the program frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It goes back to the driver.
    #[default]
    Cap,
    /// It is kept for the program's next allocations.
    Growth,
    /// As growth, and all of the limit is taken at the start.
    Reserve,
}

/// What is done about memory of the process that no allocation call accounts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overhead {
    /// It is measured and counted.
    #[default]
    Auto,
    /// Only allocations count.
    Uncounted,
    /// It is taken to be so many bytes.
    Fixed(u64),
}

/// What the query calls show as a device's total and free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// The limit and what is left of it.
    #[default]
    Cap,
    /// The device's own numbers.
    Device,
}

/// What a wrong value does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// `cuInit` fails.
    #[default]
    Closed,
    /// The process ends with code 78.
    Exit,
    /// The variable is ignored with a warning.
    Open,
}

/// How important a line of the log is, and the least important that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is written.
    Off,
    /// Something does not work.
    Error,
    /// Something was refused, or may be a mistake.
    #[default]
    Warn,
    /// What is in force, and the sum at the end.
    Info,
    /// Every decision.
    Debug,
}

/// How a free in growth and reserve mode waits for the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreePolicy {
    /// As the driver's free would.
    #[default]
    Strict,
    /// By fences, when the block is used again.
    Lazy,
}

/// Where live numbers are published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stats {
    /// Nowhere.
    #[default]
    Off,
    /// In files of this directory.
    Directory(String),
}

/// Where the limits came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitSource {
    /// No variable sets any.
    #[default]
    None,
    /// `GPUCAP_LIMIT`
    Gpucap,
    /// HAMi's `CUDA_DEVICE_MEMORY_LIMIT` and its form for one device.
    Hami,
}

impl LimitSource {
    /// The variable's name, for a message.
    pub fn variable(self) -> &'static str {
        match self {
            LimitSource::None | LimitSource::Gpucap => "GPUCAP_LIMIT",
            LimitSource::Hami => "CUDA_DEVICE_MEMORY_LIMIT",
        }
    }
}

/// A type whose values are words.
pub(super) trait Word: Copy + 'static {
    /// Every value with its spelling.
    const WORDS: &'static [(&'static str, Self)];

    /// Reads a word, in any case.
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_ascii();
        let found = Self::WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        found.map(|(_, value)| *value).ok_or_else(|| match text {
            "" => "empty".into(),
            _ => "unknown value".into(),
        })
    }
}

/// Gives a type its words and prints its values by them.
macro_rules! words {
    ($type:ident: $($word:literal $value:ident),*) => {
        impl Word for $type {
            const WORDS: &'static [(&'static str, $type)] = &[$(($word, $type::$value)),*];
        }
        impl fmt::Display for $type {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($type::$value => out.write_str($word),)*
                }
            }
        }
    };
}

words!(Mode: "cap" Cap, "growth" Growth, "reserve" Reserve);
words!(Report: "cap" Cap, "device" Device);
words!(OnError: "closed" Closed, "exit" Exit, "open" Open);
words!(Level: "off" Off, "error" Error, "warn" Warn, "info" Info, "debug" Debug);
words!(FreePolicy: "strict" Strict, "lazy" Lazy);
