//! Runs graphs on the processor, in planned memory.
//!
//! ```text
//!   graph, addresses --prepare--> one kernel per node, chosen by operation, types and strides
//!                                      |  submit
//!                                   threads take units of work; a unit's result does not depend on the thread
//! ```
//!
//! A kernel accesses raw memory (`tensor_ptr`), because a result may have the memory of a source: where the operation
//! allows it the kernel reads each piece before it writes it, and everywhere else the executor (`run`) gives the kernel
//! a copy of the source. So results depend neither on addresses nor on the number of threads.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[allow(unsafe_code)]
mod tensor_ptr;
#[allow(unsafe_code)]
mod multiversion;
#[allow(unsafe_code)]
mod half_float;
#[allow(unsafe_code)]
mod float_rows;
#[allow(unsafe_code)]
mod quant;
#[allow(unsafe_code)]
mod kernel;
#[allow(unsafe_code)]
mod kernels;
#[allow(unsafe_code)]
mod custom;
#[allow(unsafe_code)]
mod pool;
mod cancel;
mod timings;
#[allow(unsafe_code)]
mod run;
mod backend;

pub use backend::{CpuBackend, CpuDevice};
pub use cancel::Cancel;
pub use custom::{CpuKernel, CustomCall, CustomCallError, KernelResult, ResultView, SourceRow, SourceView};
pub use run::Observed;
pub use timings::{NodeTime, Timings};
