//! The memory in which each of the caller's tensors is located.

use std::sync::Arc;

use steeve_device::{Bindings, BufferType, Usage};
use steeve_graph::TensorId;

/// The memory of external tensors and its usage, which decide where operations run. [`Bindings`] contain this too, but
/// here nothing needs to be allocated.
///
/// ```
/// use std::sync::Arc;
/// use steeve_device::{Device, NullDevice, Usage};
/// use steeve_graph::{Context, DataType};
/// use steeve_runtime::sched::TensorLocations;
/// let gpu = NullDevice::new("gpu");
/// let weight = Context::new().external(DataType::F16, &[4096, 4096])?;
/// let mut locations = TensorLocations::new();
/// locations.put(weight, &gpu.buffer_types()[0], Usage::Weights);
/// # Ok::<(), steeve_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TensorLocations(Vec<TensorLocation>);

/// The memory of one external tensor. Sorted by tensor.
#[derive(Clone, Debug)]
pub(crate) struct TensorLocation {
    pub(crate) tensor: TensorId,
    pub(crate) memory: Arc<dyn BufferType>,
    pub(crate) usage: Usage,
}

impl TensorLocations {
    /// Creates a list without any tensor.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the memory of `tensor`, replacing an earlier one. O(tensors).
    pub fn put(&mut self, tensor: TensorId, memory: &Arc<dyn BufferType>, usage: Usage) {
        let location = TensorLocation { tensor, memory: Arc::clone(memory), usage };
        match self.0.binary_search_by_key(&tensor, |location| location.tensor) {
            Ok(index) => self.0[index] = location,
            Err(index) => self.0.insert(index, location),
        }
    }

    /// Returns the memory of `tensor` and its usage, where they are known.
    pub fn get(&self, tensor: TensorId) -> Option<(&Arc<dyn BufferType>, Usage)> {
        let index = self.0.binary_search_by_key(&tensor, |location| location.tensor).ok()?;
        Some((&self.0[index].memory, self.0[index].usage))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TensorLocation> {
        self.0.iter()
    }

    /// Returns whether bindings have the same locations. Allocates nothing.
    pub(crate) fn match_bindings(&self, bindings: &Bindings) -> bool {
        let mut bound = bindings.iter();
        let same = |location: &TensorLocation| {
            bound.next().is_some_and(|(tensor, address)| {
                let (memory, usage) = (address.buffer.memory(), address.buffer.usage());
                tensor == location.tensor && usage == location.usage && Arc::ptr_eq(memory, &location.memory)
            })
        };
        self.0.iter().all(same) && bound.next().is_none()
    }
}

impl From<&Bindings> for TensorLocations {
    fn from(bindings: &Bindings) -> Self {
        let location = |(tensor, address): (TensorId, steeve_device::Address<'_>)| {
            let (memory, usage) = (Arc::clone(address.buffer.memory()), address.buffer.usage());
            TensorLocation { tensor, memory, usage }
        };
        Self(bindings.iter().map(location).collect())
    }
}

impl From<&TensorLocations> for TensorLocations {
    fn from(locations: &TensorLocations) -> Self {
        locations.clone()
    }
}

impl PartialEq for TensorLocations {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&TensorLocation, &TensorLocation)| {
            one.tensor == other.tensor && one.usage == other.usage && Arc::ptr_eq(&one.memory, &other.memory)
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}
