//! A simulated `libcuda.so.1`: what a CUDA program sees of a driver, on a machine without a GPU, with exact books of what it
//! holds.
//!
//! Every public name of the driver API is exported ([`lookup`]); what is not simulated answers NOT_SUPPORTED. Memory is
//! real (host) memory, so copies and memsets work; kernels do nothing. The books live in [`simdevice`], shared by all
//! processes that name the same `SIMCUDA_STATE`.

mod api;
mod codes;
mod instrument;
mod lookup;
