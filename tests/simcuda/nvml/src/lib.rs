//! A simulated `libnvidia-ml.so.1` over the same books as the simulated libcuda: devices, memory, and who holds how much.
//!
//! It knows nothing of `CUDA_VISIBLE_DEVICES`, as the real one. `SIMCUDA_NVML` makes it fail, slow or half blind. What is
//! not simulated answers NOT_SUPPORTED.

mod api;
mod device;
mod events;
mod memory;
mod mig;
mod private;
mod processes;
mod system;
