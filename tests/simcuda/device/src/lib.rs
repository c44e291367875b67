//! The books of the simulated devices: what every process really holds, in a file that all of them map.
//!
//! Three kinds of reader share them. The simulated `libcuda` charges and releases ([`me`]), the simulated
//! `libnvidia-ml` reports, and tests judge ([`Truth`]). Nothing here goes through a CUDA name, so a program under
//! test cannot reach or bend it.
//!
//! Two sums are kept for each process and device:
//!
//! * **blocks**: the sizes of the driver's blocks (512 B steps below 1 MiB, 2 MiB multiples from there), pools by what
//!   they reserve. This is what a ledger of allocation calls can know.
//! * **pages**: what the device has really lost: 2 MiB pages shared by small blocks, large blocks, pools, physical
//!   handles, contexts, modules and local memory. The device's capacity is checked against this one.
//!
//! Every word in the file is an atomic, and no lock is held in it: a process that is killed at any instruction leaves
//! books that [`audit`](Books::audit) can make exact again.

mod audit;
mod books;
mod knobs;
mod layout;
mod map;
mod process;
mod shared;
mod truth;
mod visible;

pub use books::Books;
pub use knobs::{DeviceSpec, Failure, Knobs, Latency, MIB, Nvml};
pub use layout::MAX_DEVICES;
pub use process::{Process, me};
pub use shared::FILE_NAME;
pub use truth::{DeviceTruth, Held, ProcessTruth, Truth};
pub use visible::{instance_text, uuid_text, visible_devices};
