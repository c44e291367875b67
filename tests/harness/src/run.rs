//! A run of a program on a simulated machine, and what came of it.

use std::env;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::child::Child;
use crate::find::shim;

/// What [`crate::Sim::run`] takes: a path, or a command with arguments already.
pub trait IntoCommand {
    /// The command.
    fn into_command(self) -> Command;
}

macro_rules! paths_are_commands {
    ($($path:ty),*) => {$(
        impl IntoCommand for $path {
            fn into_command(self) -> Command {
                Command::new(self)
            }
        }
    )*};
}
paths_are_commands!(&str, &String, String, &Path, PathBuf, &PathBuf);

impl IntoCommand for Command {
    fn into_command(self) -> Command {
        self
    }
}

/// A run that is being described. Variables of this project and of CUDA that the test itself inherited are not passed on.
pub struct Run {
    pub(crate) command: Command,
    shim: bool,
    before: Vec<PathBuf>,
    after: Vec<PathBuf>,
    stdin: Option<String>,
    pub(crate) timeout: Duration,
}

impl Run {
    pub(crate) fn new(mut command: Command, libraries: &Path, variables: &[(String, String)]) -> Run {
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if ["GPUCAP_", "SIMCUDA_", "CUDA_", "NVIDIA_", "LD_"].iter().any(|start| text.starts_with(start)) {
                command.env_remove(&name);
            }
        }
        command.env("LD_LIBRARY_PATH", libraries).envs(variables.iter().cloned()).process_group(0);
        let timeout = Duration::from_secs(60);
        Run { command, shim: false, before: Vec::new(), after: Vec::new(), stdin: None, timeout }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Run {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Run {
        self.command.args(arguments);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Takes a variable away.
    #[must_use]
    pub fn env_remove(mut self, name: &str) -> Run {
        self.command.env_remove(name);
        self
    }

    /// Runs it under the preload with `GPUCAP_LIMIT=limit`.
    #[must_use]
    pub fn capped(self, limit: &str) -> Run {
        self.preload().env("GPUCAP_LIMIT", limit)
    }

    /// Runs it under the preload, without a limit.
    #[must_use]
    pub fn preload(mut self) -> Run {
        self.shim = true;
        self
    }

    /// Runs it without the preload (as it is from the start).
    #[must_use]
    pub fn bare(mut self) -> Run {
        self.shim = false;
        self.command.env_remove("GPUCAP_LIMIT");
        self
    }

    /// Preloads other libraries too, before and after ours in `LD_PRELOAD`.
    #[must_use]
    pub fn preload_also(mut self, before: &[&Path], after: &[&Path]) -> Run {
        self.before.extend(before.iter().map(|path| path.to_path_buf()));
        self.after.extend(after.iter().map(|path| path.to_path_buf()));
        self
    }

    /// What the program reads on its stdin; without this, nothing.
    #[must_use]
    pub fn stdin(mut self, text: &str) -> Run {
        self.stdin = Some(text.to_owned());
        self
    }

    /// How long it may take (60 s).
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Run {
        self.timeout = limit;
        self
    }

    /// Sets `LD_PRELOAD` from what was said.
    pub(crate) fn finish(&mut self) {
        let ours = self.shim.then(shim);
        let all: Vec<String> =
            self.before.iter().chain(&ours).chain(&self.after).map(|path| path.display().to_string()).collect();
        if !all.is_empty() {
            self.command.env("LD_PRELOAD", all.join(":"));
        }
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If it does not start, or outlives the timeout; what it said so far is shown.
    pub fn out(mut self) -> Output {
        self.finish();
        let wants_stdin = if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(wants_stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        let (stdout, stderr) = (collect(process.stdout.take()), collect(process.stderr.take()));
        let text = self.stdin.take().unwrap_or_default();
        let mut stdin = process.stdin.take();
        let writer = thread::spawn(move || {
            if let Some(stdin) = &mut stdin {
                let _ = stdin.write_all(text.as_bytes()); // a program may end without reading
            }
        });
        let status = wait(&mut process, self.timeout);
        if status.is_none() {
            kill_group(&mut process);
        }
        let pid = process.id();
        let [stdout, stderr] = [stdout, stderr].map(|all| all.join().unwrap_or_default());
        let _ = writer.join();
        let description = format!("{:?}", self.command);
        let Some(status) = status else {
            panic!("{description}\nnot ended after {:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}", self.timeout);
        };
        Output { code: status.code(), signal: status.signal(), stdout, stderr, pid, description }
    }

    /// Starts it, to be talked with.
    ///
    /// # Panics
    /// If it does not start.
    pub fn spawn(self) -> Child {
        Child::start(self)
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

pub(crate) fn wait(process: &mut process::Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = process.try_wait().expect("the child is ours") {
            return Some(status);
        }
        if start.elapsed() > limit {
            return None;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Ends the program and everything it started.
pub(crate) fn kill_group(process: &mut process::Child) {
    if let Ok(pid) = i32::try_from(process.id()) {
        // SAFETY: kill(2) on the group that `process_group(0)` made for this child, which has not been waited for.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
    }
    let _ = process.wait();
}

/// What came of a run.
#[derive(Debug)]
pub struct Output {
    /// Exit code; none after a signal.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Everything it wrote.
    pub stdout: String,
    /// Everything it wrote.
    pub stderr: String,
    /// Its pid, by which the truth knows it.
    pub pid: u32,
    /// The command, for messages.
    pub description: String,
}

impl Output {
    /// Requires exit code 0.
    ///
    /// # Panics
    /// With everything the program said, if it is another.
    #[track_caller]
    pub fn ok(&self) -> &Output {
        self.ended_with(0)
    }

    /// Requires that exit code.
    ///
    /// # Panics
    /// With everything the program said, if it is another.
    #[track_caller]
    pub fn ended_with(&self, code: i32) -> &Output {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// The lines of its stdout.
    pub fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Output { code, signal, stdout, stderr, description, .. } = self;
        write!(f, "{description}\ncode {code:?} signal {signal:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}
