//! A graph in memory that the suite has laid out: where each tensor is, what is around it, and what a run computes.

use std::ops::Range;

use steeve_graph::{Bytes, Graph, Id, Offset, TensorId};

use super::report::LawAbort;
use crate::{Backend, Bindings, BufferType, DeviceError, Prepared, SharedBuffer, Usage};

/// The location of each root in one buffer, with free bytes before, between and behind them.
#[derive(Clone, Debug)]
pub(crate) struct TensorPlaces {
    of: Vec<Option<PlacedTensor>>,
    size: u64,
}

/// The location of a root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedTensor {
    pub(crate) offset: u64,
    /// The bytes that its tensor takes in this memory.
    pub(crate) size: u64,
}

impl PlacedTensor {
    pub(crate) fn range(self) -> Range<usize> {
        self.offset as usize..(self.offset + self.size) as usize
    }
}

/// The least number of free bytes between two tensors.
const GAP: u64 = 64;

impl TensorPlaces {
    /// Returns locations at which no two roots share a byte. The tensors of the suite are small.
    pub(crate) fn separate(graph: &Graph, memory: &dyn BufferType) -> Self {
        let (align, tensors) = (memory.align().get(), graph.tensors());
        let mut end = 0;
        let mut place = |id: TensorId| {
            let size = memory.alloc_size(tensors, id).0;
            let offset = (end + GAP).next_multiple_of(align);
            end = offset + size;
            PlacedTensor { offset, size }
        };
        let of = tensors.ids().map(|id| (!tensors[id].is_view()).then(|| place(id))).collect();
        Self { of, size: end + GAP }
    }

    /// Returns these locations with `node` at the location of `root`; `None` if it is larger.
    pub(crate) fn aliased(&self, node: TensorId, root: TensorId) -> Option<Self> {
        let (above, below) = (self.get(node)?, self.get(root)?);
        let mut places = self.clone();
        places.of[node.index()] = Some(PlacedTensor { offset: below.offset, ..above });
        (above.size <= below.size).then_some(places)
    }

    /// Returns the bytes of the buffer.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn get(&self, root: TensorId) -> Option<PlacedTensor> {
        self.of.get(root.index()).copied().flatten()
    }

    /// Returns the location of a tensor, which may be a view of a root.
    pub(crate) fn of_tensor(&self, graph: &Graph, id: TensorId) -> Option<PlacedTensor> {
        let tensors = graph.tensors();
        let place = self.get(tensors.root(id))?;
        if !tensors[id].is_view() {
            return Some(place);
        }
        Some(PlacedTensor { offset: place.offset + tensors.offset(id).0, size: tensors[id].nbytes().0 })
    }

    /// Returns all roots that are located in the buffer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TensorId, PlacedTensor)> {
        let ids = (0..self.of.len()).filter_map(TensorId::from_index);
        ids.filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Binds every tensor but `without`; a view where its root is.
    pub(crate) fn bind(
        &self,
        graph: &Graph,
        buffer: &SharedBuffer,
        without: Option<TensorId>,
    ) -> Result<Bindings, DeviceError> {
        let (tensors, mut bindings) = (graph.tensors(), Bindings::new());
        for id in tensors.ids().filter(|id| Some(*id) != without) {
            let Some(place) = self.get(tensors.root(id)) else { continue };
            let size = if tensors[id].is_view() { tensors[id].nbytes() } else { Bytes(place.size) };
            bindings.bind(id, buffer, Offset(place.offset + tensors.offset(id).0), size)?;
        }
        Ok(bindings)
    }
}

/// What each leaf holds.
pub(crate) type Contents = Vec<(TensorId, Vec<u8>)>;

/// A graph in a buffer, ready to run.
pub(crate) struct BoundGraph<'a> {
    backend: &'a dyn Backend,
    graph: &'a Graph,
    pub(crate) places: TensorPlaces,
    pub(crate) buffer: SharedBuffer,
}

impl<'a> BoundGraph<'a> {
    /// Allocates a buffer whose bytes are all `fill` but those of the leafs.
    pub(crate) fn new(
        backend: &'a dyn Backend,
        graph: &'a Graph,
        places: TensorPlaces,
        contents: &Contents,
        fill: u8,
    ) -> Result<Self, LawAbort> {
        let memory = backend.buffer_type();
        if let Some(max) = memory.max_size().filter(|max| max.0 < places.size) {
            return Err(LawAbort::Skip(format!("the buffers of {} have at most {max} bytes", memory.name())));
        }
        let buffer = SharedBuffer::allocate(&memory, Bytes(places.size), Usage::Compute)?;
        buffer.clear(fill)?;
        if let Some(hook) = buffer.borrow_mut()?.init_hook() {
            for (id, place) in places.iter() {
                hook.init_tensor(graph.tensors(), id, Offset(place.offset))?;
            }
        }
        let bound = Self { backend, graph, places, buffer };
        bound.write(contents)?;
        Ok(bound)
    }

    pub(crate) fn write(&self, contents: &Contents) -> Result<(), DeviceError> {
        for (id, bytes) in contents {
            if let Some(place) = self.places.get(*id) {
                self.backend.write(&self.buffer, Offset(place.offset), bytes)?;
            }
        }
        Ok(())
    }

    pub(crate) fn prepare(&self, nodes: Range<usize>) -> Result<Box<dyn Prepared>, DeviceError> {
        self.backend.prepare(self.graph, nodes, &self.places.bind(self.graph, &self.buffer, None)?)
    }

    /// Runs all nodes once.
    pub(crate) fn run(&self) -> Result<(), DeviceError> {
        let mut prepared = self.prepare(0..self.graph.nodes().len())?;
        self.backend.submit(&mut *prepared)?;
        self.backend.synchronise()
    }

    /// Returns all bytes of the buffer.
    pub(crate) fn image(&self) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.places.size as usize];
        self.backend.read(&self.buffer, Offset(0), &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the bytes of a tensor in an image; those of a view where its root is.
    pub(crate) fn part<'b>(&self, image: &'b [u8], id: TensorId) -> &'b [u8] {
        let place = self.places.of_tensor(self.graph, id);
        place.and_then(|place| image.get(place.range())).unwrap_or_default()
    }
}
