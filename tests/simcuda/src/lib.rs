//! A simulated `libcuda.so.1`: what a CUDA program sees of a driver, on a machine without a GPU, with exact books of what it
//! holds.
//!
//! Every public name of the driver API is exported ([`lookup`]); what is not simulated answers NOT_SUPPORTED. Memory is
//! real (host) memory, so copies and memsets work; kernels do nothing. The books live in [`simdevice`], shared by all
//! processes that name the same `SIMCUDA_STATE`.

mod api;
mod array;
mod array_calls;
mod attributes;
mod backing;
mod capture;
mod codes;
mod copies;
mod copy2d_calls;
mod copy_calls;
mod ctx;
mod ctx_calls;
mod devices;
mod errors;
mod events;
mod exports;
mod external;
mod graph_build;
mod graph_exec;
mod graph_query;
mod graphmem;
mod graphs;
mod green;
mod heap;
#[cfg(test)]
mod heap_test;
mod host;
mod hostfn;
mod instrument;
mod integrity;
mod ipc;
mod launch;
mod libraries;
mod local_storage;
mod lookup;
mod managed;
mod memory;
mod memsets;
mod modules;
mod multicast;
mod occupancy;
mod peer;
mod pointer;
mod pool;
mod pool_calls;
mod small;
mod stream_capture;
mod stream_ops;
mod streams;
mod tables;
mod textures;
mod trace;
mod units;
mod user_objects;
mod vmm;
mod vmm_calls;
