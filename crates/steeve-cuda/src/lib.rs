//! Memory and compute on NVIDIA GPUs.
//!
//! ```text
//!   graph, addresses --prepare--> commands: kernels with their arguments, copies, products for the library
//!                                    |  submit
//!                                 enqueued one by one the first time, then captured: one launch from there on
//! ```
//!
//! The driver, the compiler (NVRTC) and the library (cuBLAS) are loaded when they are needed, so everything here builds and
//! links on a machine without them, and [`CudaDevice::all`] says there what is missing. Kernels are CUDA C in `cuda/`,
//! compiled once for each architecture and kept in files: in the folder that the variable `STEEVE_CUDA_CACHE` names (an empty
//! name is for no files at all), or in `steeve` in the user's folder for caches. Where the files are, the compiler is not
//! needed, unless the GPU is newer than it.
//!
//! It takes a driver for CUDA 12.0 or newer, and a GPU of compute capability 7.5 or above. Kernels use memory beside what is
//! planned: scratch memory for conversions, as much as the node that needs most ever needed, and 32 MiB for cuBLAS.
//!
//! A kernel sees a source change only where the operation overwrites that slot and both have exactly the same memory; any
//! other source that shares bytes with a result is copied away first. What data alone can show to be wrong, such as a row
//! that does not exist, is reported by the next wait.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

// The driver and its libraries.
#[allow(unsafe_code)]
mod driver;
#[allow(unsafe_code)]
mod compile;
#[allow(unsafe_code)]
mod blas;

// What is run.
mod cuda_c;
mod data_types;
mod operand;
mod params;
mod kernel_list;
mod sources;
#[allow(unsafe_code)]
mod command;
mod command_list;
mod kernels;
mod custom;

// What runs it, and where.
#[allow(unsafe_code)]
mod memory;
mod kernel_asserts;
mod scratch;
#[allow(unsafe_code)]
mod upload_ring;
mod launches;
mod prepared;
#[allow(unsafe_code)]
mod backend;
mod device;

pub use backend::CudaBackend;
pub use custom::CudaKernel;
pub use device::CudaDevice;
pub use launches::{Capture, Launches};

/// For tests that need what this machine has not: past the test harness, which keeps what is printed to itself. With
/// `STEEVE_CUDA=required` such a machine fails.
#[cfg(test)]
fn skip(why: &str) {
    use std::io::Write;
    assert!(std::env::var_os("STEEVE_CUDA").is_none_or(|wish| wish != "required"), "{why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
