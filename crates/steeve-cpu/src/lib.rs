//! Runs graphs on the processor, in memory that somebody has planned.
//!
//! ```text
//!   graph, addresses --prepare--> one kernel per node, chosen by operation, types and strides
//!                                      |  submit
//!                                   threads take units of work; a unit's result does not depend on who does it
//! ```
//!
//! A kernel sees raw memory (`raw`), because a result may stand on a source: where the operation allows it the kernel
//! reads each piece before it writes it, and everywhere else the executor (`run`) gives the kernel a copy of the source.
//! So results depend neither on addresses nor on the number of threads.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod tensor_ptr;
mod multiversion;
mod half_float;
mod float_rows;
mod quant;
mod kernel;
mod kernels;
mod custom;
mod pool;
mod cancel;
mod timings;
mod run;
mod backend;

pub use backend::{CpuBackend, CpuDevice};
pub use cancel::Cancel;
pub use custom::{CpuKernel, CustomCall, CustomCallError, KernelResult, ResultView, SourceRow, SourceView};
pub use run::Observed;
pub use timings::{NodeTime, Timings};
