//! The one global: configuration and books of this process, made at the first call that needs them.
//!
//! The configuration is read once and kept, by forked children too. The books are made once the driver can name its
//! devices, that is after `cuInit`. A forked child starts with empty books and no lock of its parent's: its pointer is
//! cleared and the parent's books stay behind unused.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use gpucap_core::budget::{Cells, UNCAPPED};
use gpucap_core::config::{Config, OnError, Overhead, Report, log_path};
use gpucap_core::device_key::DeviceId;
use gpucap_core::policy::{DeviceRules, Governor, OverheadRule};
use once_cell::race::OnceBox;

use crate::phase::Phase;
use crate::real::{self, Real};
use crate::{environment, log, others, phase, report};

/// Configuration and books.
pub struct State {
    /// The rules and the books.
    pub governor: Governor<'static>,
    /// Which query calls are answered from the books.
    pub report: Report,
    /// How each device's limit came about, for the log.
    pub how: Vec<String>,
    /// The variable to change, for the log.
    pub limit_source: &'static str,
    /// Bit n: the line about device n's limit was written.
    pub announced: AtomicU64,
}

static CONFIG: OnceBox<Config> = OnceBox::new();
static STATE: AtomicPtr<State> = AtomicPtr::new(core::ptr::null_mut());

/// The books; `None` where every call goes straight to the driver: switched off, or before the driver can name its
/// devices.
#[inline]
pub fn get() -> Option<&'static State> {
    let state = STATE.load(Ordering::Acquire);
    if state.is_null() {
        return make();
    }
    // SAFETY: a non-null pointer comes from Box::into_raw in `make` and is never freed.
    Some(unsafe { &*state })
}

/// The books if they exist; never makes them.
pub fn existing() -> Option<&'static State> {
    let state = STATE.load(Ordering::Acquire);
    // SAFETY: as in `get`.
    (!state.is_null()).then(|| unsafe { &*state })
}

/// Forgets the books of the parent, in a forked child.
pub fn forget() {
    STATE.store(core::ptr::null_mut(), Ordering::Release);
}

/// The configuration, read from the environment at the first call. What is wrong in it is said once, and dealt with as
/// `GPUCAP_ON_ERROR` says.
pub fn configuration() -> &'static Config {
    if let Some(config) = CONFIG.get() {
        return config;
    }
    let parsed = Config::read(environment::variables(concerns_us));
    let level = parsed.config.log;
    let path = parsed.config.log_file.as_deref().and_then(log_file);
    let mut problems = parsed.errors;
    problems.extend(others::other_limiter());
    let on_error = parsed.config.on_error;
    close_if(&problems, on_error);
    let config = Box::new(parsed.config);
    // Two threads may read at once; only the one whose result is kept speaks.
    if CONFIG.set(config).is_ok() {
        log::configure(level, path.map(|path| &*Box::leak(path.into_boxed_c_str())));
        phase::set_on_error_open(on_error == OnError::Open);
        for warning in &parsed.warnings {
            log::warn(format_args!("{warning}"));
        }
        complain(&problems, on_error);
    }
    CONFIG.get().expect("set above, by this thread or another")
}

/// The log's path, as seen from where the program is now: it may go elsewhere later.
fn log_file(configured: &str) -> Option<CString> {
    let path = PathBuf::from(log_path(configured, std::process::id()));
    let path = std::path::absolute(&path).unwrap_or(path);
    CString::new(path.into_os_string().into_vec()).ok()
}

/// Only our names and the aliases are looked at.
fn concerns_us(name: &[u8]) -> bool {
    name.starts_with(b"GPUCAP") || name.starts_with(b"CUDA_DEVICE_MEMORY_LIMIT")
}

/// Stops other threads too before what was read is theirs to go by: with a limit that is wrong and therefore left out,
/// they would be uncapped.
fn close_if(problems: &[String], on_error: OnError) {
    if !problems.is_empty() && on_error != OnError::Open {
        phase::close();
    }
}

/// Says what is wrong, and ends the process where `GPUCAP_ON_ERROR` asks for it.
fn complain(problems: &[String], on_error: OnError) {
    for problem in problems {
        match on_error {
            OnError::Open => log::warn(format_args!("{problem}; ignored (GPUCAP_ON_ERROR=open)")),
            OnError::Closed | OnError::Exit => log::error(format_args!("{problem}")),
        }
    }
    if !problems.is_empty() && on_error == OnError::Exit {
        // SAFETY: _exit(2) ends the process without running anything of the program's.
        unsafe { libc::_exit(78) };
    }
}

/// The driver has started but does not say what devices there are: nothing could be capped.
pub fn no_devices() {
    static SAID: AtomicBool = AtomicBool::new(false);
    let config = configuration();
    let problem = "the driver does not name its devices (cuDeviceGetCount failed), so nothing can be capped";
    let problems = [problem.to_owned()];
    close_if(&problems, config.on_error);
    if !SAID.swap(true, Ordering::AcqRel) {
        complain(&problems, config.on_error);
    }
}

#[cold]
#[inline(never)]
fn make() -> Option<&'static State> {
    // A forked child finds the parent's phase, which is Working where the parent had books.
    let may_work = |phase| matches!(phase, Phase::Enabled | Phase::Working);
    if !may_work(phase::settled()) {
        return None;
    }
    let config = configuration();
    if !may_work(phase::now()) {
        return None;
    }
    let devices = real::devices()?;
    let ids: Vec<DeviceId<'_>> =
        devices.iter().map(|d| DeviceId { ordinal: d.ordinal, uuid: &d.uuid, total: d.total }).collect();
    let (resolved, warnings, errors) = config.resolve(&ids);
    close_if(&errors, config.on_error);
    let rules = resolved.iter().zip(&ids).map(|(r, d)| DeviceRules {
        limit: r.limit.unwrap_or(UNCAPPED),
        total: d.total,
        overhead: match config.overhead {
            Overhead::Uncounted => OverheadRule::None,
            Overhead::Fixed(bytes) => OverheadRule::Fixed(bytes),
            Overhead::Auto => OverheadRule::Measured,
        },
    });
    let cells: &'static [Cells] = Box::leak(ids.iter().map(|_| Cells::default()).collect());
    let state = Box::new(State {
        governor: Governor::new(cells, rules.collect()),
        report: config.report,
        how: resolved.iter().map(|r| r.how.clone()).collect(),
        limit_source: config.limit_source.variable(),
        announced: AtomicU64::new(0),
    });
    let made = Box::into_raw(state);
    match STATE.compare_exchange(core::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            for warning in &warnings {
                log::warn(format_args!("{warning}"));
            }
            complain(&errors, config.on_error);
            for device in &devices {
                let (ordinal, uuid) = (device.ordinal, &device.uuid);
                log::debug(format_args!("device {ordinal} is {uuid}"));
            }
            report::at_exit();
            phase::work();
        }
        Err(_) => {
            // SAFETY: `made` was never shared: another thread's books are in place.
            drop(unsafe { Box::from_raw(made) });
        }
    }
    if phase::now() == Phase::Closed {
        return None;
    }
    existing()
}

/// The driver below the rules.
pub const DRIVER: Real = Real;
