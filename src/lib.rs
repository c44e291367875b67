//! gpucap's rules, free of FFI, I/O and globals: what is configured, what is admitted, what is counted.
//!
//! One allocation goes through these modules in this order:
//!
//! 1. [`config`] has turned the environment into limits and [`limit`] these into bytes.
//! 2. [`contexts`] says who will own the memory, and so on which device it lies.
//! 3. [`budget`] reserves the bytes by one compare-and-swap, or refuses.
//! 4. The caller's closure makes the driver's call, with no lock held.
//! 5. [`ledger`] keeps the block by its address, so that the free finds its size and owner.
//!
//! [`policy`] is the only place that knows this order. [`vmm`], [`arrays`], [`graph_memory`] and [`stream_pools`] keep the books of memory that is not
//! counted by addresses; [`driver`] is what all of it asks of a driver; [`meminfo`] what the program is told. [`visible`]
//! foresees the driver's numbering of devices where NVML is asked before it.
#![forbid(unsafe_code)]

pub mod array_size;
pub mod arrays;
pub mod budget;
pub mod code;
pub mod config;
pub mod contexts;
pub mod decimal;
pub mod device_key;
pub mod driver;
pub mod graph_memory;
pub mod ledger;
pub mod limit;
pub mod meminfo;
pub mod pagemap;
pub mod policy;
pub mod stream_pools;
pub(crate) mod sync;
pub mod visible;
pub mod vmm;
