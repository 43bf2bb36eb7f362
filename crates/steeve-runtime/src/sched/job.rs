//! A graph with its memory, ready to be computed.

use std::sync::Arc;

use crate::{AllocError, Allocation, Element};
use steeve_device::Address;
use steeve_graph::{Graph, Id, TensorId};

use crate::sched::Schedule;

/// A graph that a scheduler has allocated. Tensors have the ids of the caller's graph, wherever they are located.
///
/// It can be computed again and again. Reads and writes follow the rules of an [`Allocation`].
#[derive(Clone, Debug)]
pub struct Job {
    /// The caller's graph, for which the schedule was made or which is like that one.
    pub(crate) graph: Graph,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) allocation: Allocation,
}

impl Job {
    /// Returns the schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the memory of the scheduled graph.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Returns the address of a tensor. Fails for ids of another graph.
    pub fn address(&self, tensor: TensorId) -> Result<Address<'_>, AllocError> {
        self.allocation_for(tensor)?.address(tensor)
    }

    /// Writes the elements of an input or an external tensor, see [`Allocation::write`].
    pub fn write<T: Element>(&self, tensor: TensorId, data: &[T]) -> Result<(), AllocError> {
        self.allocation_for(tensor)?.write(tensor, data)
    }

    /// Writes the bytes of an input or an external tensor, see [`Allocation::write_bytes`].
    pub fn write_bytes(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        self.allocation_for(tensor)?.write_bytes(tensor, data)
    }

    /// Reads the elements of a tensor, see [`Allocation::read`].
    pub fn read<T: Element>(&self, tensor: TensorId) -> Result<Vec<T>, AllocError> {
        self.allocation_for(tensor)?.read(tensor)
    }

    /// Reads the elements of a tensor into a slice of as many, see [`Allocation::read_into`].
    pub fn read_into<T: Element>(&self, tensor: TensorId, data: &mut [T]) -> Result<(), AllocError> {
        self.allocation_for(tensor)?.read_into(tensor, data)
    }

    /// Reads the bytes of a tensor without gaps, see [`Allocation::read_bytes`].
    pub fn read_bytes(&self, tensor: TensorId) -> Result<Vec<u8>, AllocError> {
        self.allocation_for(tensor)?.read_bytes(tensor)
    }

    /// Returns the allocation, once the id is known to be one of the caller's graph, or of a copy, which has no origin.
    fn allocation_for(&self, tensor: TensorId) -> Result<&Allocation, AllocError> {
        let tensors = self.graph.tensors();
        if tensor.has_origin() || tensor.index() < tensors.len() {
            tensors.find(tensor)?;
        }
        Ok(&self.allocation)
    }
}
