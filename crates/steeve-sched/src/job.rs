//! A graph with its memory, ready to be computed.

use std::sync::Arc;

use steeve_alloc::{AllocError, Allocation, Element};
use steeve_device::Address;
use steeve_graph::TensorId;

use crate::Schedule;

/// A graph that a scheduler has given its memory. Tensors have the ids of the caller's graph, wherever they stand.
///
/// It can be computed again and again; what can be read and written when is as with an [`Allocation`].
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) allocation: Allocation,
}

impl Job {
    /// Who does what.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The memory of the scheduled graph.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Where a tensor stands.
    pub fn address(&self, tensor: TensorId) -> Result<Address<'_>, AllocError> {
        self.allocation.address(tensor)
    }

    /// Writes the elements of an input or an external tensor, see [`Allocation::write`].
    pub fn write<T: Element>(&self, tensor: TensorId, data: &[T]) -> Result<(), AllocError> {
        self.allocation.write(tensor, data)
    }

    /// Writes the bytes of an input or an external tensor, see [`Allocation::write_bytes`].
    pub fn write_bytes(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        self.allocation.write_bytes(tensor, data)
    }

    /// The elements of a tensor, see [`Allocation::read`].
    pub fn read<T: Element>(&self, tensor: TensorId) -> Result<Vec<T>, AllocError> {
        self.allocation.read(tensor)
    }

    /// The same into a slice of as many elements.
    pub fn read_into<T: Element>(&self, tensor: TensorId, data: &mut [T]) -> Result<(), AllocError> {
        self.allocation.read_into(tensor, data)
    }

    /// The bytes of a tensor without gaps, see [`Allocation::read_bytes`].
    pub fn read_bytes(&self, tensor: TensorId) -> Result<Vec<u8>, AllocError> {
        self.allocation.read_bytes(tensor)
    }
}
