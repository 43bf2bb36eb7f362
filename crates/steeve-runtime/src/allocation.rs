//! The addresses of the tensors of a graph, and their contents.

use std::sync::Arc;

use steeve_device::{Address, Bindings, Buffer, BufferReadGuard, Bytes, Locate, SharedBuffer};
use steeve_graph::{Graph, Layout, Named, TensorId};

use crate::contents::{ContentState, RunPhase, SharedContents};
use crate::element::{check_span, packed_size, read_packed, write_packed, zeroed};
use crate::planned::PlannedGraph;
use crate::pool::{ChunkMatches, PoolBuffers, chunk_of};
use crate::{AllocError, Element};

#[cfg(feature = "sched")]
mod scheduled;

/// A handle to the tensors of an allocated graph: their addresses, and reading and writing them.
///
/// Reading is possible for what has contents: inputs that have been written, and after a run whatever has survived it
/// (outputs always do). Everything else is an error that says why, and [`raw_bytes`](Self::raw_bytes) if need be.
///
/// An input whose memory the run reuses is *consumed*: it must be written again before the next run, unless it was set as
/// output too, which keeps it ([`Context::keep`](steeve_graph::Context::keep)). An input that no node reads need not be
/// written at all. Writing or running through a later handle of the same allocator takes the memory, and makes this handle
/// stale.
///
/// Several threads can read through one handle, and clones are the same handle. A transfer borrows its buffer for a moment
/// and never waits: a write while another thread reads or writes in the same buffer fails with
/// [`InUse`](steeve_device::DeviceError::InUse), and can be tried again.
#[derive(Clone, Debug)]
pub struct Allocation {
    graph: Graph,
    bindings: Bindings,
    planned: Arc<PlannedGraph>,
    chunks: Arc<ChunkMatches>,
    buffers: Arc<PoolBuffers>,
    contents: Arc<SharedContents>,
    handle: u64,
}

impl Allocation {
    pub(crate) fn new(
        graph: Graph,
        bindings: Bindings,
        (planned, chunks): (Arc<PlannedGraph>, Arc<ChunkMatches>),
        buffers: Arc<PoolBuffers>,
        contents: Arc<SharedContents>,
        handle: u64,
    ) -> Self {
        Self { graph, bindings, planned, chunks, buffers, contents, handle }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the graph with its nodes in the order in which they must run: the caller's, unless the plan has
    /// [another](steeve_graph::Order::Best). Tensors are the same. What observers of a backend see of a run is in this order.
    /// Clones the graph, and checks another order again. O(tensors + edges).
    ///
    /// # Errors
    ///
    /// None: a plan that fits a graph has an order of its nodes.
    pub fn in_run_order(&self) -> Result<Graph, AllocError> {
        match self.planned.plan.order() {
            None => Ok(self.graph.clone()),
            Some(order) => Ok(order.apply_to(&self.graph)?),
        }
    }

    /// Returns the address of a tensor, whatever its contents. Fails if the graph does not use it.
    pub fn address(&self, tensor: TensorId) -> Result<Address<'_>, AllocError> {
        self.graph.tensors().find(tensor)?;
        self.locate(tensor).ok_or_else(|| AllocError::NotPlaced { tensor: self.named(tensor) })
    }

    /// Reads the elements of a tensor, in order whatever its strides.
    pub fn read<T: Element>(&self, tensor: TensorId) -> Result<Vec<T>, AllocError> {
        let elements = self.layout_of::<T>(tensor)?.elements();
        let buffer = self.open(tensor)?;
        let mut data = zeroed(elements)?;
        self.transfer_out(tensor, &*buffer, bytemuck::cast_slice_mut(&mut data))?;
        Ok(data)
    }

    /// Reads the elements of a tensor into a slice of as many, in order whatever its strides.
    pub fn read_into<T: Element>(&self, tensor: TensorId, data: &mut [T]) -> Result<(), AllocError> {
        let elements = self.layout_of::<T>(tensor)?.elements();
        self.check_length(tensor, "elements", elements, data.len())?;
        self.transfer_out(tensor, &*self.open(tensor)?, bytemuck::cast_slice_mut(data))
    }

    /// Writes the elements of an input or an external tensor, in order whatever its strides. A view that is a part of an
    /// input can be written once all of that has been.
    pub fn write<T: Element>(&self, tensor: TensorId, data: &[T]) -> Result<(), AllocError> {
        let elements = self.layout_of::<T>(tensor)?.elements();
        self.check_length(tensor, "elements", elements, data.len())?;
        self.write_input(tensor, bytemuck::cast_slice(data))
    }

    /// Reads the bytes of a tensor without gaps: the only way to read quantised types.
    pub fn read_bytes(&self, tensor: TensorId) -> Result<Vec<u8>, AllocError> {
        let size = packed_size(self.layout(tensor)?);
        let buffer = self.open(tensor)?;
        let mut data = zeroed(size)?;
        self.transfer_out(tensor, &*buffer, &mut data)?;
        Ok(data)
    }

    /// Writes the bytes of an input or an external tensor, without gaps: the only way to write quantised types.
    pub fn write_bytes(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        self.check_length(tensor, "bytes", packed_size(self.layout(tensor)?), data.len())?;
        self.write_input(tensor, data)
    }

    /// Reads the bytes at the address of a tensor without gaps, whatever they are: perhaps those of an earlier tensor, or of
    /// another graph.
    pub fn raw_bytes(&self, tensor: TensorId) -> Result<Vec<u8>, AllocError> {
        let size = packed_size(self.layout(tensor)?);
        let address = self.address(tensor)?;
        self.check_idle(tensor)?;
        let buffer = address.buffer.borrow()?;
        let mut data = zeroed(size)?;
        self.transfer_out(tensor, &*buffer, &mut data)?;
        Ok(data)
    }

    /// Writes bytes at the address of any tensor, whatever else that overwrites. The tensor does not count as written.
    pub fn write_raw_bytes(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        self.check_length(tensor, "bytes", packed_size(self.layout(tensor)?), data.len())?;
        let address = self.address(tensor)?;
        self.transferable(tensor)?;
        self.check_idle(tensor)?;
        let mut buffer = address.buffer.borrow_mut()?;
        if !self.graph.tensors().is_external(tensor) {
            let mut state = self.contents.lock();
            state.check_idle()?;
            state.claim(self.handle)?;
        }
        self.transfer_in(tensor, &mut *buffer, data)
    }

    /// Begins a run that the caller computes itself, without a [`Backend`](steeve_device::Backend):
    /// [`compute`](Self::compute) and [`prepare`](Self::prepare) do it on one.
    ///
    /// The caller computes all nodes in the [order of the plan](Self::in_run_order), in the bytes at their [addresses](Self::address), and calls
    /// [`RunGuard::finish`] when they are done. Until the guard is finished or dropped, tensors of the plan can neither be
    /// read nor written through any handle; external tensors that the graph uses can't be written through this one, and
    /// those that it writes can't be read.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use steeve_device::{Bindings, BufferType, HostMemory};
    /// use steeve_graph::{Context, DataType, Graph};
    /// use steeve_runtime::GraphAllocator;
    ///
    /// let mut context = Context::new();
    /// let x = context.input(DataType::F32, &[2])?;
    /// let y = context.neg(x)?;
    /// context.set_output(y)?;
    /// let graph = Graph::from_outputs(&context, &[y])?;
    /// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
    /// let mut allocator = GraphAllocator::new(&memory);
    /// let allocation = allocator.alloc(&graph, &Bindings::new())?;
    /// allocation.write(x, &[1.0f32, 2.0])?;
    ///
    /// let run = allocation.begin()?;
    /// let (from, to) = (allocation.address(x)?, allocation.address(y)?);
    /// let mut bytes = [0; 8];
    /// from.buffer.borrow()?.read(from.offset, &mut bytes)?;
    /// for element in bytes.chunks_exact_mut(4) {
    ///     element[3] ^= 0x80; // the sign
    /// }
    /// to.buffer.borrow_mut()?.write(to.offset, &bytes)?;
    /// run.finish();
    /// assert_eq!(allocation.read::<f32>(y)?, [-1.0, -2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a run is in progress, if the handle is stale, or if an input that a node reads has not been written.
    pub fn begin(&self) -> Result<RunGuard, AllocError> {
        if let Some(tensor) = self.planned.unfilled.iter().copied().find(|tensor| self.has_bytes(*tensor)) {
            return Err(AllocError::NotComputed { tensor: self.named(tensor) });
        }
        let mut state = self.contents.lock();
        state.check_idle()?;
        state.check(self.handle)?;
        self.check_written(&state)?;
        state.claim(self.handle)?;
        state.phase = RunPhase::Running { open: false };
        drop(state);
        Ok(RunGuard { allocation: self.clone(), end: RunPhase::Filling })
    }

    /// Returns whether both are clones of one handle. Two handles of the same graph from two calls of `alloc` are not.
    pub fn is_same(&self, other: &Self) -> bool {
        self.handle == other.handle && Arc::ptr_eq(&self.contents, &other.contents)
    }

    /// Fails if an input that a node reads has no contents.
    fn check_written(&self, state: &ContentState) -> Result<(), AllocError> {
        let owner = state.is_owner(self.handle);
        let missing = |source: &TensorId| !(owner && state.is_written(*source)) && self.has_bytes(*source);
        let Some(tensor) = self.planned.required.iter().copied().find(missing) else { return Ok(()) };
        let tensor = self.named(tensor);
        Err(match owner && state.has_run {
            true => AllocError::Consumed { tensor },
            false => AllocError::NotWritten { tensor },
        })
    }

    fn has_bytes(&self, tensor: TensorId) -> bool {
        self.graph.tensor(tensor).nbytes() > Bytes::ZERO
    }

    /// Returns the buffers of the plan that the graph runs in, without those of external tensors: to measure them, or to
    /// see which are shared with another handle.
    pub fn buffers(&self) -> impl Iterator<Item = &SharedBuffer> {
        self.buffers.all()
    }

    fn planned_address(&self, root: TensorId) -> Option<Address<'_>> {
        let place = self.planned.plan.place(root)?;
        let (number, buffers) = self.buffers.of(place.memory);
        let buffer = buffers.get(chunk_of(&self.chunks, number, place.buffer))?;
        Some(Address { buffer, offset: place.offset, size: place.size })
    }

    fn named(&self, tensor: TensorId) -> Named {
        Named::new(tensor, self.graph.names())
    }

    fn layout(&self, tensor: TensorId) -> Result<&Layout, AllocError> {
        Ok(&self.graph.tensors().find(tensor)?.layout)
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

    /// Fails if a run is in progress, unless the tensor is external.
    fn check_idle(&self, tensor: TensorId) -> Result<(), AllocError> {
        if self.graph.tensors().is_external(tensor) { Ok(()) } else { self.contents.lock().check_idle() }
    }

    /// Borrows the tensor's buffer. The contents are the tensor's own while it is borrowed.
    fn open(&self, tensor: TensorId) -> Result<BufferReadGuard<'_>, AllocError> {
        let address = self.address(tensor)?;
        // Once for an error that says more than that the buffer is in use or gone, and once more when it is borrowed.
        self.check_readable(tensor)?;
        let buffer = address.buffer.borrow()?;
        self.check_readable(tensor)?;
        Ok(buffer)
    }

    /// Fails if a run of this very handle is in progress and the external tensor is among those that it uses.
    fn check_at_rest(&self, root: TensorId, used: &[TensorId]) -> Result<(), AllocError> {
        let state = self.contents.lock();
        let is_ours = state.is_owner(self.handle) && used.binary_search(&root).is_ok();
        if is_ours { state.check_idle() } else { Ok(()) }
    }

    /// Fails unless the tensor has contents of its own now.
    fn check_readable(&self, tensor: TensorId) -> Result<(), AllocError> {
        let root = self.graph.root(tensor);
        if self.graph.tensor(root).external {
            return self.check_at_rest(root, &self.planned.changed_externals);
        }
        let state = self.contents.lock();
        state.check_idle()?;
        state.check(self.handle)?;
        if !self.has_bytes(tensor) {
            return Ok(());
        }
        let owner = state.is_owner(self.handle);
        let named = || self.named(tensor);
        if self.planned.is_source(root) {
            return match (owner && state.is_written(root), owner && state.has_run) {
                (true, _) => Ok(()),
                (false, true) if self.planned.is_required(root) => Err(AllocError::Consumed { tensor: named() }),
                (false, true) if !self.planned.survivors().contains(root) => {
                    Err(AllocError::Reused { tensor: named() })
                }
                (false, _) => Err(AllocError::NotWritten { tensor: named() }),
            };
        }
        match (owner, state.phase) {
            _ if self.planned.is_unfilled(root) => Err(AllocError::NotComputed { tensor: named() }),
            (true, RunPhase::Ran) if self.planned.survivors().contains(root) => Ok(()),
            (true, RunPhase::Ran) => Err(AllocError::Reused { tensor: named() }),
            // The last run did not finish, or inputs for the next have been written over results.
            (true, _) if state.has_run => Err(AllocError::Lost { tensor: named() }),
            _ => Err(AllocError::NotComputed { tensor: named() }),
        }
    }

    /// Writes an input or an external tensor.
    fn write_input(&self, tensor: TensorId, data: &[u8]) -> Result<(), AllocError> {
        let address = self.address(tensor)?;
        self.transferable(tensor)?;
        let root = self.graph.root(tensor);
        if self.graph.tensor(root).external {
            self.check_at_rest(root, &self.planned.externals)?;
            return self.transfer_in(tensor, &mut *address.buffer.borrow_mut()?, data);
        }
        let is_source = self.planned.is_source(root);
        if !is_source && !self.graph.tensor(root).flags.is_input() {
            return Err(AllocError::Computed { tensor: self.named(tensor) });
        }
        // As with reading: once for the better error, once more when it is borrowed.
        let unchanged = self.planned.changed.binary_search(&root).is_err();
        {
            let state = self.contents.lock();
            state.check_fillable(unchanged)?;
            state.check(self.handle)?;
        }
        let mut buffer = address.buffer.borrow_mut()?;
        {
            let mut state = self.contents.lock();
            state.check_fillable(unchanged)?;
            state.check(self.handle)?;
            let written = state.is_owner(self.handle) && state.is_written(root);
            if is_source && !written && !self.is_all_of(tensor, root) {
                return Err(AllocError::PartOfUnwritten { tensor: self.named(tensor), root: self.named(root) });
            }
            state.claim(self.handle)?;
            // If it does not survive a run, its bytes are those of something else, which is lost now.
            if state.phase == RunPhase::Ran && !self.planned.survivors().contains(root) {
                state.phase = RunPhase::Filling;
            }
            // A transfer that fails leaves neither the old contents nor the new.
            state.set_written(root, false);
        }
        self.transfer_in(tensor, &mut *buffer, data)?;
        let mut state = self.contents.lock();
        // A later handle may have taken the memory meanwhile, in another buffer.
        if state.is_owner(self.handle) {
            state.set_written(root, true);
        }
        Ok(())
    }

    /// Returns whether writing `tensor` writes all of `root`.
    fn is_all_of(&self, tensor: TensorId, root: TensorId) -> bool {
        let (part, all) = (&self.graph.tensor(tensor).layout, &self.graph.tensor(root).layout);
        tensor == root || part.is_contiguous() && part.nbytes() == all.nbytes()
    }

    fn transfer_out(&self, tensor: TensorId, buffer: &dyn Buffer, data: &mut [u8]) -> Result<(), AllocError> {
        read_packed(buffer, self.address(tensor)?.offset, self.transferable(tensor)?, data)
    }

    fn transfer_in(&self, tensor: TensorId, buffer: &mut dyn Buffer, data: &[u8]) -> Result<(), AllocError> {
        write_packed(buffer, self.address(tensor)?.offset, self.transferable(tensor)?, data)
    }

    fn transferable(&self, tensor: TensorId) -> Result<&Layout, AllocError> {
        let layout = self.layout(tensor)?;
        check_span(layout, || self.named(tensor))?;
        Ok(layout)
    }
}

impl Locate for Allocation {
    fn locate(&self, tensor: TensorId) -> Option<Address<'_>> {
        let it = self.graph.tensors().get(tensor)?;
        let (root, start) = (self.graph.root(tensor), self.graph.tensors().offset(tensor));
        let Address { buffer, offset, size } = match self.graph.tensor(root).external {
            true => self.bindings.get(root)?,
            false => self.planned_address(root)?,
        };
        // The bindings may have too little memory for a tensor that the graph does not use.
        let end = start.checked_add(it.nbytes()).filter(|end| *end <= size)?;
        // A root may use all that it was given, and a view what it spans.
        let size = if it.is_view() { Bytes(end.0 - start.0) } else { size };
        Some(Address { buffer, offset: offset.checked_add(start)?, size })
    }
}

/// A run in progress, from [`Allocation::begin`]. If it is dropped without being [finished](Self::finish), its results
/// are lost.
#[derive(Debug)]
pub struct RunGuard {
    allocation: Allocation,
    end: RunPhase,
}

impl RunGuard {
    /// Returns the allocation whose graph runs.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Ends the run: all nodes have been computed, and what survived the run can be read.
    pub fn finish(mut self) {
        self.end = RunPhase::Ran;
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let planned = &self.allocation.planned;
        let survivors = planned.survivors();
        let mut state = self.allocation.contents.lock();
        (state.phase, state.has_run) = (self.end, true);
        for source in planned.sources.iter().filter(|source| !survivors.contains(**source)) {
            state.set_written(*source, false);
        }
        if self.end != RunPhase::Ran {
            // It is not known how far the nodes came that write into these.
            planned.changed.iter().for_each(|source| state.set_written(*source, false));
        }
    }
}
