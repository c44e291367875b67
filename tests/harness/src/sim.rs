//! One simulated machine for one test: a folder with its libraries and its state.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use simdevice::{Knobs, Truth};
use tempfile::TempDir;

use crate::child::Child;
use crate::find::built;
use crate::hide::copy_without;
use crate::run::{IntoCommand, Run};

/// A simulated machine; its folder goes when it is dropped.
pub struct Sim {
    folder: TempDir,
    variables: Vec<(String, String)>,
    truth: Truth,
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}

impl Sim {
    /// One device of 16 GiB.
    pub fn new() -> Sim {
        Sim::with(&[])
    }

    /// A machine as `knobs` say: `("TOTAL_MIB", "1024")` sets `SIMCUDA_TOTAL_MIB`.
    ///
    /// # Panics
    /// If the folder cannot be made, or a knob makes no sense.
    pub fn with(knobs: &[(&str, &str)]) -> Sim {
        let folder = tempfile::Builder::new().prefix("simcuda-").tempdir().expect("a temporary folder");
        let libraries =
            [("libcuda.so", "libcuda.so.1"), ("libcuda.so", "libcuda.so"), ("libnvidia_ml.so", "libnvidia-ml.so.1")];
        for (file, name) in libraries {
            symlink(built(file), folder.path().join(name)).expect("the folder is new");
        }
        let state = folder.path().join("state");
        let mut variables: Vec<(String, String)> =
            knobs.iter().map(|(name, value)| (format!("SIMCUDA_{name}"), (*value).to_owned())).collect();
        variables.push(("SIMCUDA_STATE".to_owned(), state.display().to_string()));
        let knobs =
            Knobs::parse(|name| variables.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone()));
        let truth = Truth::create(&state, &knobs).expect("the folder is writable");
        Sim { folder, variables, truth }
    }

    /// Takes `names` out of libcuda's dynamic symbols: a driver that lacks them. (`SIMCUDA_HIDE` takes them out of
    /// cuGetProcAddress, and is set as well.)
    #[must_use]
    pub fn hide(mut self, names: &[&str]) -> Sim {
        for file in ["libcuda.so.1", "libcuda.so"] {
            copy_without(&built("libcuda.so"), &self.folder.path().join(file), names);
        }
        self.variables.push(("SIMCUDA_HIDE".to_owned(), names.join(",")));
        self
    }

    /// Takes `names` out of the dynamic symbols of NVML's library.
    #[must_use]
    pub fn hide_nvml(self, names: &[&str]) -> Sim {
        copy_without(&built("libnvidia_ml.so"), &self.folder.path().join("libnvidia-ml.so.1"), names);
        self
    }

    /// A machine without a driver: its folder holds no libcuda.
    #[must_use]
    pub fn without_libcuda(self) -> Sim {
        for file in ["libcuda.so.1", "libcuda.so"] {
            fs::remove_file(self.folder.path().join(file)).expect("it was made with the machine");
        }
        self
    }

    /// A machine without NVML's library.
    #[must_use]
    pub fn without_libnvidia_ml(self) -> Sim {
        fs::remove_file(self.folder.path().join("libnvidia-ml.so.1")).expect("it was made with the machine");
        self
    }

    /// The books, from outside.
    pub fn truth(&self) -> Truth {
        self.truth.clone()
    }

    /// The machine's folder: libraries and state, and room for what the test needs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The machine's libcuda.
    pub fn libcuda(&self) -> PathBuf {
        self.folder.path().join("libcuda.so.1")
    }

    /// The variables that make a process use this machine, beside `LD_LIBRARY_PATH` = [`Sim::folder`].
    pub fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    /// A run of `program` on this machine; see [`Run`] for what can be said before [`Run::out`] starts it.
    pub fn run(&self, program: impl IntoCommand) -> Run {
        Run::new(program.into_command(), self.folder.path(), &self.variables)
    }

    /// Starts `program` with `arguments`, bare, to be talked with line by line; more is said with
    /// `sim.run(program)….spawn()`.
    pub fn spawn(&self, program: impl IntoCommand, arguments: &[&str]) -> Child {
        self.run(program).args(arguments).spawn()
    }
}
