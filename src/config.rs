//! The configuration: what the environment asks for, read once into a [`Config`], with every wrong value as one line.
//!
//! Nothing here looks at the environment itself. The library and the command hand in the variables, so that both read
//! them by the same rules, those of [`table::VARIABLES`].

use crate::device_key::PerDevice;
use crate::limit::Limit;

mod hami;
mod names;
mod not_yet;
mod resolve;
pub mod table;
mod words;

pub use resolve::Resolved;
pub use words::{FreePolicy, Level, LimitSource, Mode, OnError, Overhead, Report, Stats};

/// What is asked for, before it meets the devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The limit of each device.
    pub limits: PerDevice<Limit>,
    /// The variable that `limits` came from.
    pub limit_source: LimitSource,
    /// The mode of each device.
    pub modes: PerDevice<Mode>,
    /// What is done about memory that no allocation call accounts for.
    pub overhead: Overhead,
    /// What the query calls show.
    pub report: Report,
    /// What a wrong value does.
    pub on_error: OnError,
    /// The least important lines that are written.
    pub log: Level,
    /// Where lines go instead of stderr; see [`log_path`].
    pub log_file: Option<String>,
    /// The processes that share one budget.
    pub group: Option<String>,
    /// How a free in growth and reserve mode waits.
    pub free: FreePolicy,
    /// Where live numbers are published.
    pub stats: Stats,
}

impl Default for Config {
    /// What holds in an environment without any of our variables.
    fn default() -> Config {
        Config {
            limits: PerDevice::none(),
            limit_source: LimitSource::None,
            modes: PerDevice::none(),
            overhead: Overhead::Auto,
            report: Report::Cap,
            on_error: OnError::Closed,
            log: Level::Warn,
            log_file: None,
            group: None,
            free: FreePolicy::Strict,
            stats: Stats::Off,
        }
    }
}

/// A configuration, and what was wrong with the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// What to go by. A variable with a wrong value is as if it were unset.
    pub config: Config,
    /// The wrong values, one line each; what follows from them is for `config.on_error` to say.
    pub errors: Vec<String>,
    /// What may be a mistake but stops nothing, one line each.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads a whole environment, as pairs of name and value. Where a name stands twice the first counts, as for getenv.
    pub fn read(vars: impl IntoIterator<Item = (impl AsRef<[u8]>, impl AsRef<[u8]>)>) -> Parsed {
        let mut config = Config::default();
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let vars: Vec<_> = vars.into_iter().filter(|(name, _)| names::is_ours(name.as_ref())).collect();
        let find = |name: &str| {
            let var = vars.iter().find(|(other, _)| other.as_ref() == name.as_bytes());
            var.map(|(_, value)| value.as_ref())
        };

        for variable in table::VARIABLES.iter().filter(|variable| variable.is_for_library()) {
            let Some(value) = find(variable.name) else {
                continue;
            };
            // A refused variable must leave no trace, hence a copy.
            let mut next = config.clone();
            let read = variable.read(value, &mut next).and_then(|()| not_yet::check(variable.name, &next));
            match read {
                Ok(()) => config = next,
                Err(reason) => errors.push(variable.error(variable.name.as_bytes(), value, &reason)),
            }
        }
        names::check(vars.iter().map(|(name, value)| (name.as_ref(), value.as_ref())), &mut errors, &mut warnings);
        if find("GPUCAP_LIMIT").is_none() {
            hami::read(vars.iter().map(|(name, value)| (name.as_ref(), value.as_ref())), &mut config, &mut errors);
            let meant_something = !config.modes.is_empty() || !errors.is_empty();
            if config.limits.is_empty() && !meant_something {
                warnings.push("GPUCAP_LIMIT is unset: no limit is set, every device is whole".into());
            }
        }
        Parsed { config, errors, warnings }
    }
}

/// Whether a value of `GPUCAP_DISABLE` switches everything off. It is asked for long before the rest is read; any other
/// value than `1` is an error of [`Config::read`].
pub fn is_disabled(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value.trim_ascii() == b"1")
}

/// The path of a log file, with the process's number where the configured one says `%p`.
pub fn log_path(configured: &str, pid: u32) -> String {
    configured.replace("%p", &pid.to_string())
}

#[cfg(test)]
mod tests;
