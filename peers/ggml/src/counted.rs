//! A memory of a graph as a kind of memory of steeve's, with no bytes behind it.
//!
//! As a [`NullDevice`]'s, but with the sizes of a graph, and as generous as ggml expects devices to be: a tensor above
//! the limit gets a buffer of its own size.

use std::sync::Arc;

use steeve_device::{Align, Buffer, BufferType, Device, DeviceError, NullDevice, Padding};
use steeve_graph::{AssignedGraph, Bytes, Id, Memory, MemoryId, TensorId, Tensors};

#[derive(Debug)]
pub(crate) struct CountedMemory {
    memory: Memory,
    /// What tensors take that take more than they span; empty if none does.
    sizes: Vec<Option<Bytes>>,
    counted: Arc<dyn BufferType>,
}

impl CountedMemory {
    pub(crate) fn new(assigned: &AssignedGraph, memory: MemoryId) -> Self {
        let size = |id: TensorId| assigned.sizes().row(id).map(|row| row[memory.index()]);
        let sizes: Vec<_> = assigned.graph().tensors().ids().map(size).collect();
        let padded = sizes.iter().any(Option::is_some);
        let it = &assigned.memories()[memory];
        let counted = Arc::clone(&NullDevice::new(it.name.as_str()).buffer_types()[0]);
        Self { memory: it.clone(), sizes: if padded { sizes } else { Vec::new() }, counted }
    }
}

impl BufferType for CountedMemory {
    fn name(&self) -> &str {
        &self.memory.name
    }

    fn align(&self) -> Align {
        self.memory.align
    }

    fn max_size(&self) -> Option<Bytes> {
        self.memory.max_buffer
    }

    fn is_host(&self) -> bool {
        false
    }

    fn hold(&self) -> u32 {
        self.memory.extra_lifetime
    }

    fn padding(&self) -> Option<&dyn Padding> {
        if self.sizes.is_empty() { None } else { Some(self) }
    }

    fn allocate(&self, size: Bytes) -> Result<Box<dyn Buffer>, DeviceError> {
        self.counted.allocate(size)
    }
}

impl Padding for CountedMemory {
    fn alloc_size(&self, tensors: &Tensors, tensor: TensorId) -> Bytes {
        let size = self.sizes.get(tensor.index()).copied().flatten();
        size.or_else(|| Some(tensors.get(tensor)?.nbytes())).unwrap_or(Bytes::ZERO)
    }
}
