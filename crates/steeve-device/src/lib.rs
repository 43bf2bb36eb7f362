//! Memory of devices behind one interface.
//!
//! ```text
//!   Registry --- Device ----- BufferType --allocate--> Buffer
//!                   |                                    |
//!                   +-------- Backend                SharedBuffer   a handle with one borrow flag
//!                             prepare, submit            |
//!                                                     Bindings      tensor -> buffer and offset
//! ```
//!
//! A [`BufferType`] is a type of memory with what the planner must know of it; a [`Buffer`] is a piece of it. A
//! [`SharedBuffer`] is the handle of a buffer: cheap to clone, borrowed once per transfer or run, and its memory can be
//! released. [`Backend`]s run graphs in such memory. [`HostMemory`] is plain memory of this process, [`NullDevice`]
//! only counts bytes, and [`DiscreteDevice`] is a device for tests with memory of its own. [`conformance`] checks any
//! of them.
//!
//! ```
//! use std::sync::Arc;
//! use steeve_device::{BufferType, Bytes, HostMemory, Offset, SharedBuffer, Usage};
//!
//! let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
//! let buffer = SharedBuffer::allocate(&memory, Bytes(1024), Usage::Any)?;
//! buffer.write(Offset(16), b"hello")?;
//! let mut back = [0; 5];
//! buffer.read(Offset(16), &mut back)?;
//! assert_eq!(&back, b"hello");
//! let error = buffer.write(Offset(1020), b"hello").unwrap_err();
//! assert_eq!(error.to_string(), "host: out of bounds: expected a range within 1024 bytes, got 5 bytes at offset 1020");
//! # Ok::<(), steeve_device::DeviceError>(())
//! ```
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod error;
mod buffer;
mod shared_buffer;
mod bindings;
mod device;
mod backend;
mod shape;
mod lowering;
mod element;

// Memories.
#[allow(unsafe_code)]
mod host_memory;
mod memory_spec;
mod ledger;
mod null_device;
mod discrete_device;

pub mod conformance;

pub use backend::{Backend, Event, Finished, Prepared};
pub use bindings::{Address, Bindings, Locate};
pub use buffer::{Buffer, BufferType, InitTensor, Padding, Usage, copy_through_host};
pub use device::{Device, DeviceKind, MemoryInfo, Registry, is_large_product};
pub use discrete_device::{DiscreteDevice, Faults};
pub use element::Element;
pub use error::{DeviceError, KernelError};
pub use host_memory::{HostBuffer, HostMemory, Pages, Span, SpanMut};
pub use ledger::Ledger;
pub use lowering::{LocatedTensor, LoweredNode, LoweredSource, Lowering, SourceUse, UsedBuffer};
pub use memory_spec::MemorySpec;
pub use null_device::NullDevice;
pub use shape::Shape;
pub use shared_buffer::{BufferReadGuard, BufferWriteGuard, SharedBuffer};
pub use steeve_graph::{Align, Bytes, Fusion, Graph, Offset, TensorId, Tensors};

/// The examples of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
