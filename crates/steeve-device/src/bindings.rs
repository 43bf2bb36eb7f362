//! Where tensors are located in device memory.

use std::sync::Arc;

use steeve_graph::{Bytes, Offset, TensorId};

use crate::{DeviceError, SharedBuffer, Usage};

/// The location of a tensor in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// The buffer.
    pub buffer: &'a SharedBuffer,
    /// The distance from the start of the buffer.
    pub offset: Offset,
    /// The bytes that the tensor may use there.
    pub size: Bytes,
}

impl Address<'_> {
    /// Returns the address as the device counts.
    pub fn number(&self) -> u64 {
        self.buffer.address().saturating_add(self.offset.0)
    }
}

/// A source of tensor locations: bindings, or the allocation of a graph.
pub trait Locate: Send + Sync {
    /// Returns the location of `tensor`; `None` if it has no memory.
    fn locate(&self, tensor: TensorId) -> Option<Address<'_>>;
}

/// The locations of tensors whose memory the caller provides. Clones are cheap.
///
/// ```
/// use std::sync::Arc;
/// use steeve_device::{Bindings, BufferType, Bytes, HostMemory, Offset, SharedBuffer, Usage};
/// use steeve_graph::{Context, DataType};
/// let mut context = Context::new();
/// let weight = context.external(DataType::F32, &[16])?;
/// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
/// let buffer = SharedBuffer::allocate(&memory, Bytes(128), Usage::Weights)?;
/// let mut bindings = Bindings::new();
/// bindings.bind(weight, &buffer, Offset(64), Bytes(64))?;
/// assert_eq!(bindings.get(weight).map(|address| address.offset), Some(Offset(64)));
/// assert!(bindings.bind(weight, &buffer, Offset(65), Bytes(64)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bindings(Arc<Vec<BoundTensor>>);

/// By tensor, in order.
#[derive(Clone, Debug)]
struct BoundTensor {
    tensor: TensorId,
    buffer: SharedBuffer,
    offset: Offset,
    size: Bytes,
}

impl BoundTensor {
    fn address(&self) -> Address<'_> {
        Address { buffer: &self.buffer, offset: self.offset, size: self.size }
    }
}

impl Bindings {
    /// Returns bindings without any tensor.
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds `tensor` to `size` bytes at `offset` of `buffer`, and replaces an earlier binding.
    pub fn bind(
        &mut self,
        tensor: TensorId,
        buffer: &SharedBuffer,
        offset: Offset,
        size: Bytes,
    ) -> Result<(), DeviceError> {
        buffer.check_bounds(offset, size)?;
        let bound = BoundTensor { tensor, buffer: buffer.clone(), offset, size };
        let bounds = Arc::make_mut(&mut self.0);
        match bounds.binary_search_by_key(&tensor, |bound| bound.tensor) {
            Ok(index) => bounds[index] = bound,
            Err(index) => bounds.insert(index, bound),
        }
        Ok(())
    }

    /// Returns where `tensor` is; `None` also where a tensor of the same number but of another context is bound.
    pub fn get(&self, tensor: TensorId) -> Option<Address<'_>> {
        let index = self.0.binary_search_by_key(&tensor, |bound| bound.tensor).ok()?;
        Some(&self.0[index]).filter(|bound| bound.tensor.is_same(tensor)).map(BoundTensor::address)
    }

    /// Returns whether both bind the same tensors to the same locations. Costs nothing for clones.
    pub fn is_same(&self, other: &Self) -> bool {
        let same = |(one, other): (&BoundTensor, &BoundTensor)| {
            let places = (one.tensor, one.offset, one.size) == (other.tensor, other.offset, other.size);
            places && one.buffer.is_same(&other.buffer)
        };
        Arc::ptr_eq(&self.0, &other.0) || (self.0.len() == other.0.len() && self.0.iter().zip(other.0.iter()).all(same))
    }

    /// Returns all tensors with their locations, by id.
    pub fn iter(&self) -> impl Iterator<Item = (TensorId, Address<'_>)> {
        self.0.iter().map(|bound| (bound.tensor, bound.address()))
    }

    /// Returns whether no tensor is bound.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds all bindings of `other`, which win where both bind a tensor.
    pub fn extend(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0 = Arc::clone(&other.0);
            return;
        }
        // Stable: bindings of `other` come before ours, and the first of a tensor is kept.
        let mut all: Vec<BoundTensor> = other.0.iter().chain(&*self.0).cloned().collect();
        all.sort_by_key(|bound| bound.tensor);
        all.dedup_by_key(|bound| bound.tensor);
        self.0 = Arc::new(all);
    }

    /// Sets the usage of all buffers. A scheduler runs operations where their
    /// [weights](crate::Usage::Weights) are.
    pub fn set_usage(&self, usage: Usage) {
        self.0.iter().for_each(|bound| bound.buffer.set_usage(usage));
    }

    /// Returns the distinct buffers, in the order of the tensors that are located in them.
    pub fn buffers(&self) -> Vec<SharedBuffer> {
        let mut buffers: Vec<SharedBuffer> = Vec::new();
        for bound in self.0.iter() {
            // Most tensors are in the buffer of the one before.
            if !buffers.iter().rev().any(|buffer| buffer.is_same(&bound.buffer)) {
                buffers.push(bound.buffer.clone());
            }
        }
        buffers
    }
}

impl Locate for Bindings {
    fn locate(&self, tensor: TensorId) -> Option<Address<'_>> {
        self.get(tensor)
    }
}
