//! What every integration test shares: a simulated machine, programs built from `tests/apps`, runs with and without the
//! preload, and the truth to judge them by.
//!
//! ```no_run
//! let sim = harness::Sim::with(&[("TOTAL_MIB", "1024")]);
//! let app = harness::cc("driver.c", &["-lcuda"]);
//! let out = sim.run(app).args(["init", "retain 0", "alloc a 400MiB"]).capped("300MiB").out();
//! assert!(out.ok().stdout.contains("alloc 2"));
//! assert_eq!(sim.truth().process(out.pid).expect("it ran").per_device[0].peak_blocks, 0);
//! ```

mod apps;
mod child;
mod find;
mod hide;
mod run;
mod sim;

pub use apps::{cc, cuda_wheel, python};
pub use child::Child;
pub use find::{built, root, shim, target};
pub use run::{IntoCommand, Output, Run};
pub use sim::Sim;

/// One mebibyte.
pub const MIB: u64 = simdevice::MIB;
