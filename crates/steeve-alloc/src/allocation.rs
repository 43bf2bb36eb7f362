//! Where the tensors of a graph stand, and what is in them.

use std::sync::Arc;

use steeve_device::{Address, Bindings, Bytes, Locate, Offset, SharedBuffer};
use steeve_graph::{Graph, Layout, Named, TensorId};

use crate::contents::{Contents, Phase, State};
use crate::element::{packed_size, runs};
use crate::planned::Planned;
use crate::pool::Buffers;
use crate::{AllocError, Element};

/// A handle to the tensors of an allocated graph: where they stand, and reading and writing them.
///
/// Reading is possible for what has contents: inputs that have been written, and after a run whatever has survived it
/// (outputs always do). Everything else is an error that says why, and [`raw_bytes`](Self::raw_bytes) if need be.
///
/// An input whose memory the run reuses is *consumed*: it must be written again before the next run, unless it was set as
/// output too, which keeps it ([`Context::keep`](steeve_graph::Context::keep)). Who writes or runs through a later handle
/// of the same allocator takes the memory, and this handle is stale.
///
/// Several threads can read through one handle.
#[derive(Debug)]
pub struct Allocation {
    graph: Graph,
    bindings: Bindings,
    planned: Arc<Planned>,
    buffers: Arc<Buffers>,
    contents: Arc<Contents>,
    handle: u64,
}

impl Allocation {
    pub(crate) fn new(
        graph: Graph,
        bindings: Bindings,
        planned: Arc<Planned>,
        buffers: Arc<Buffers>,
        contents: Arc<Contents>,
        handle: u64,
    ) -> Self {
        Self { graph, bindings, planned, buffers, contents, handle }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Where a tensor stands, whatever is in it.
    pub fn address(&self, tensor: TensorId) -> Result<Address<'_>, AllocError> {
        self.locate(tensor).ok_or_else(|| AllocError::NotPlaced { tensor: self.named(tensor) })
    }

    /// The elements of a tensor, in order whatever its strides.
    pub fn read<T: Element>(&self, tensor: TensorId) -> Result<Vec<T>, AllocError> {
        let elements = self.layout_of::<T>(tensor)?.elements();
        let mut data = vec![T::zeroed(); usize::try_from(elements).unwrap_or(0)];
        self.read_into(tensor, &mut data)?;
        Ok(data)
    }

    /// The same into a slice of as many elements.
    pub fn read_into<T: Element>(&self, tensor: TensorId, data: &mut [T]) -> Result<(), AllocError> {
        let elements = self.layout_of::<T>(tensor)?.elements();
        self.check_length(tensor, "elements", elements, data.len())?;
        self.check_readable(tensor)?;
        self.transfer_out(tensor, bytemuck::cast_slice_mut(data))
    }

    /// Writes the elements of an input or an external tensor, in order whatever its strides.
    pub fn write<T: Element>(&self, tensor: TensorId, data: &[T]) -> Result<(), AllocError> {
        let elements = self.layout_of::<T>(tensor)?.elements();
        self.check_length(tensor, "elements", elements, data.len())?;
        self.write_input(tensor, bytemuck::cast_slice(data))
    }

    /// The bytes of a tensor without gaps: the only way to read quantised types.
    pub fn read_bytes(&self, tensor: TensorId) -> Result<Vec<u8>, AllocError> {
        self.check_readable(tensor)?;
        self.raw_bytes(tensor)
    }

    /// Writes the bytes of an input or an external tensor, without gaps: the only way to write quantised types.
    pub fn write_bytes(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        self.check_length(tensor, "bytes", packed_size(self.layout(tensor)?), data.len())?;
        self.write_input(tensor, data)
    }

    /// Whatever bytes stand where the tensor does, without gaps. They may be anything: an earlier tensor's, or those of
    /// another graph.
    pub fn raw_bytes(&self, tensor: TensorId) -> Result<Vec<u8>, AllocError> {
        let size = packed_size(self.layout(tensor)?);
        let mut data = vec![0; usize::try_from(size).unwrap_or(0)];
        self.transfer_out(tensor, &mut data)?;
        Ok(data)
    }

    /// Writes bytes where any tensor stands, whatever else that destroys.
    pub fn write_raw_bytes(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        self.check_length(tensor, "bytes", packed_size(self.layout(tensor)?), data.len())?;
        if !self.graph.tensors().is_external(tensor) {
            self.contents.lock().claim(self.handle)?;
        }
        self.transfer_in(tensor, data)
    }

    /// Begins a run: every input must have been written. Until the answer is finished or dropped, nothing can be read or
    /// written through any handle.
    pub fn begin(&self) -> Result<Run<'_>, AllocError> {
        let mut state = self.contents.lock();
        self.check_idle(&state)?;
        state.claim(self.handle)?;
        for &source in &self.planned.sources {
            if !state.is_written(source) && self.graph.tensor(source).nbytes() > Bytes::ZERO {
                let tensor = self.named(source);
                return Err(match state.has_run {
                    true => AllocError::Consumed { tensor },
                    false => AllocError::NotWritten { tensor },
                });
            }
        }
        state.phase = Phase::Running;
        Ok(Run { allocation: self, end: Phase::Filling })
    }

    /// The buffers of the plan that the graph runs in, without those of external tensors.
    pub fn buffers(&self) -> impl Iterator<Item = &SharedBuffer> {
        self.buffers.all()
    }

    fn named(&self, tensor: TensorId) -> Named {
        Named::new(tensor, self.graph.names())
    }

    fn layout(&self, tensor: TensorId) -> Result<&Layout, AllocError> {
        match self.graph.tensors().get(tensor) {
            Some(it) => Ok(&it.layout),
            None => Err(AllocError::NotPlaced { tensor: self.named(tensor) }),
        }
    }

    fn layout_of<T: Element>(&self, tensor: TensorId) -> Result<&Layout, AllocError> {
        let layout = self.layout(tensor)?;
        if layout.dtype() != T::TYPE {
            let (tensor, dtype) = (self.named(tensor), layout.dtype());
            return Err(AllocError::ElementType { tensor, dtype, given: T::TYPE });
        }
        Ok(layout)
    }

    fn check_length(&self, tensor: TensorId, unit: &'static str, wanted: u64, given: usize) -> Result<(), AllocError> {
        let given = given as u64;
        if given == wanted {
            return Ok(());
        }
        Err(AllocError::Length { tensor: self.named(tensor), unit, wanted, given })
    }

    fn check_idle(&self, state: &State) -> Result<(), AllocError> {
        if state.phase == Phase::Running { Err(AllocError::Running) } else { Ok(()) }
    }

    /// Whether the tensor has contents of its own now.
    fn check_readable(&self, tensor: TensorId) -> Result<(), AllocError> {
        self.address(tensor)?;
        let root = self.graph.root(tensor);
        if self.graph.tensor(root).external {
            return Ok(());
        }
        let state = self.contents.lock();
        self.check_idle(&state)?;
        state.check(self.handle)?;
        let owner = state.is_owner(self.handle);
        let named = || self.named(tensor);
        if self.planned.sources.binary_search(&root).is_ok() {
            return match (owner && state.is_written(root), owner && state.has_run) {
                (true, _) => Ok(()),
                (false, true) => Err(AllocError::Consumed { tensor: named() }),
                (false, false) => Err(AllocError::NotWritten { tensor: named() }),
            };
        }
        match (owner, state.phase) {
            (true, Phase::Ran) if self.planned.survivors().contains(root) => Ok(()),
            (true, Phase::Ran) => Err(AllocError::Reused { tensor: named() }),
            (true, _) if state.has_run => Err(AllocError::Reused { tensor: named() }),
            _ => Err(AllocError::NotComputed { tensor: named() }),
        }
    }

    /// Writes what the run will read.
    fn write_input(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        self.address(tensor)?;
        let root = self.graph.root(tensor);
        if self.graph.tensor(root).external {
            return self.transfer_in(tensor, data);
        }
        let is_source = self.planned.sources.binary_search(&root).is_ok();
        if !is_source && !self.graph.tensor(root).flags.is_input() {
            return Err(AllocError::Computed { tensor: self.named(tensor) });
        }
        {
            let mut state = self.contents.lock();
            self.check_idle(&state)?;
            state.claim(self.handle)?;
            // Where it does not survive a run, something else stands now that will be lost.
            if state.phase == Phase::Ran && !self.planned.survivors().contains(root) {
                state.phase = Phase::Filling;
            }
        }
        self.transfer_in(tensor, data)?;
        self.contents.lock().set_written(root, true);
        Ok(())
    }

    fn transfer_out(&self, tensor: TensorId, data: &mut [u8]) -> Result<(), AllocError> {
        let (address, layout) = (self.address(tensor)?, self.layout(tensor)?);
        if layout.is_contiguous() {
            return Ok(address.buffer.read(address.offset, data)?);
        }
        let mut all = vec![0; usize::try_from(layout.nbytes().0).unwrap_or(0)];
        address.buffer.read(address.offset, &mut all)?;
        let (starts, len) = runs(layout);
        for (start, piece) in starts.zip(data.chunks_exact_mut(len.max(1))) {
            piece.copy_from_slice(&all[start..start + len]);
        }
        Ok(())
    }

    fn transfer_in(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        let (address, layout) = (self.address(tensor)?, self.layout(tensor)?);
        let mut buffer = address.buffer.borrow_mut()?;
        if layout.is_contiguous() {
            return Ok(buffer.write(address.offset, data)?);
        }
        // The gaps belong to others and keep their bytes.
        let mut all = vec![0; usize::try_from(layout.nbytes().0).unwrap_or(0)];
        buffer.read(address.offset, &mut all)?;
        let (starts, len) = runs(layout);
        for (start, piece) in starts.zip(data.chunks_exact(len.max(1))) {
            all[start..start + len].copy_from_slice(piece);
        }
        Ok(buffer.write(address.offset, &all)?)
    }
}

impl Locate for Allocation {
    fn locate(&self, tensor: TensorId) -> Option<Address<'_>> {
        let it = self.graph.tensors().get(tensor)?;
        let (root, start) = (self.graph.root(tensor), self.graph.tensors().offset(tensor));
        let size = it.nbytes();
        if self.graph.tensor(root).external {
            let address = self.bindings.get(root)?;
            return Some(Address { offset: Offset(address.offset.0 + start.0), size, ..address });
        }
        let place = self.planned.plan.place(root)?;
        let (part, buffers) = self.buffers.of(place.memory);
        let buffer = buffers.get(self.planned.chunk(part, place.buffer))?;
        Some(Address { buffer, offset: Offset(place.offset.0 + start.0), size })
    }
}

/// A run in progress. Dropped without being [finished](Self::finish), its results count as lost.
#[derive(Debug)]
pub struct Run<'a> {
    allocation: &'a Allocation,
    end: Phase,
}

impl Run<'_> {
    /// The allocation that runs.
    pub fn allocation(&self) -> &Allocation {
        self.allocation
    }

    /// The run is done: what survived it can be read.
    pub fn finish(mut self) {
        self.end = Phase::Ran;
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let planned = &self.allocation.planned;
        let survivors = planned.survivors();
        let mut state = self.allocation.contents.lock();
        (state.phase, state.has_run) = (self.end, true);
        for source in planned.sources.iter().filter(|source| !survivors.contains(**source)) {
            state.set_written(*source, false);
        }
    }
}
