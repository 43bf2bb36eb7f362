//! Laws that every device, memory and backend keeps, and one call that checks them.
//!
//! A device crate has one test for each: `check_device(&device).assert()`. What can't be checked is in the report with
//! the reason, so nothing is skipped in silence.
//!
//! - [`check_memory`]: sizes and addresses are as promised; transfers touch exactly their range, and none that passes an
//!   end; an error changes nothing; buffers share no bytes.
//! - [`check_device`]: names, figures, and all of its memories; what is released is free again.
//! - [`check_backend`]: every operation whose result may have the memory of a source computes the same there as
//!   anywhere else, to the bit; it depends on its sources alone and writes nothing but its result; nodes run in order.
//! - [`check_custom_op`]: the in-place laws for a caller's own operation.
//!
//! ```
//! use std::sync::Arc;
//! use steeve_device::conformance::{check_device, check_memory};
//! use steeve_device::{BufferType, HostMemory, NullDevice};
//! let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
//! check_memory(&memory).assert();
//! let report = check_device(&NullDevice::new("plan"));
//! report.assert();
//! assert!(report.skipped.iter().any(|it| it.why == "plan has no bytes"), "{report:#}");
//! ```

mod report;
mod random;

// Memories and devices.
mod memory;
mod transfers;
mod device;

// Backends.
mod op_case;
mod op_cases;
mod bound_graph;
mod in_place;
mod backend;

pub use backend::check_backend;
pub use device::check_device;
pub use in_place::check_custom_op;
pub use memory::check_memory;
pub use report::{Failure, Report, Skipped};
