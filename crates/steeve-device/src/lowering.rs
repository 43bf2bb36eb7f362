//! Nodes and the locations of their tensors in, located operands out: the first step of every backend's
//! [`prepare`](crate::Backend::prepare).
//!
//! The output has been checked once: every operand lies within its buffer, the device reaches that buffer, and each
//! source is classified by the bytes that it shares with the result. So kernels neither check bounds nor compare
//! addresses. Costs one lookup per operand, and allocates nothing per node.

use std::collections::BTreeMap;
use std::ops::Range;

use steeve_graph::{CustomOp, Graph, Named, Offset, TensorId};

use crate::{DeviceError, Locate, Shape, SharedBuffer};

/// A tensor in one of the buffers of a [`Lowering`]. All of its bytes lie within that buffer.
#[derive(Clone, Copy, Debug)]
pub struct LocatedTensor {
    /// The index of the buffer in [`Lowering::into_buffers`].
    pub buffer: usize,
    /// The distance from the start of the buffer.
    pub offset: Offset,
    /// The address as the device counts.
    pub address: u64,
    /// Data type, shape and strides.
    pub shape: Shape,
}

impl LocatedTensor {
    /// Returns whether the two share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        let end = |it: &Self| it.address.saturating_add(it.shape.bytes as u64);
        let is_empty = |it: &Self| it.shape.bytes == 0;
        self.address < end(other) && other.address < end(self) && !is_empty(self) && !is_empty(other)
    }

    /// Returns whether element `i` of one has the bytes of element `i` of the other, for all `i`.
    pub fn is_same_memory(&self, other: &Self) -> bool {
        self.address == other.address && self.shape == other.shape
    }
}

/// How a kernel may read a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceUse {
    /// Where it is: it shares no byte with the result, or is the tensor that the operation
    /// [writes into](steeve_graph::Graph::writes_into) and has exactly the memory of the result.
    Plain,
    /// Where it is: the result has the same memory, element by element, and the operation may overwrite this source.
    InPlace,
    /// From a copy that is made before the kernel runs, since the kernel would see the source change.
    Staged,
}

/// A source of a node.
#[derive(Clone, Copy, Debug)]
pub struct LoweredSource {
    /// The tensor.
    pub tensor: TensorId,
    /// The position among the node's sources.
    pub slot: usize,
    /// The location.
    pub located: LocatedTensor,
    /// How it may be read.
    pub usage: SourceUse,
}

/// A node whose operands are located. Slots without a tensor are left out.
#[derive(Debug)]
pub struct LoweredNode<'a> {
    /// What the node writes.
    pub result: LocatedTensor,
    /// What the node reads, in the order of the slots.
    pub sources: &'a [LoweredSource],
}

/// A buffer that some of the lowered nodes use.
#[derive(Clone, Debug)]
pub struct UsedBuffer {
    /// The buffer.
    pub buffer: SharedBuffer,
    /// Whether a node writes to it.
    pub is_written: bool,
}

/// Locates the operands of nodes, one node after another, and collects the buffers that they are in.
///
/// ```
/// use std::sync::Arc;
/// use steeve_device::{BufferType, Bindings, Bytes, HostMemory, Lowering, Offset, SharedBuffer, SourceUse, Usage};
/// use steeve_graph::Graph;
/// let graph: Graph = "x = input f32[4]; y = sqr x; z = add y x".parse()?;
/// let (x, y, z) = (graph.leafs()[0], graph.nodes()[0], graph.nodes()[1]);
/// let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
/// let buffer = SharedBuffer::allocate(&memory, Bytes(32), Usage::Compute)?;
/// let mut places = Bindings::new();
/// places.bind(x, &buffer, Offset(0), Bytes(16))?;
/// places.bind(y, &buffer, Offset(16), Bytes(16))?;
/// places.bind(z, &buffer, Offset(16), Bytes(16))?;
/// let reaches = |buffer: &SharedBuffer| Ok(buffer.memory().is_host());
/// let mut lowering = Lowering::new("CPU", &graph, &places, &reaches);
/// assert_eq!(lowering.lower(y)?.sources[0].usage, SourceUse::Plain);
/// assert_eq!(lowering.lower(z)?.sources[0].usage, SourceUse::InPlace);
/// assert_eq!(lowering.into_buffers().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lowering<'a> {
    device: &'a str,
    graph: &'a Graph,
    tensors: &'a dyn Locate,
    reaches: CanReach<'a>,
    buffers: Vec<UsedBuffer>,
    /// The index of the latest buffer at each address. Empty buffers may have the address of another.
    by_address: BTreeMap<u64, usize>,
    sources: Vec<LoweredSource>,
}

/// Whether the device computes on a buffer.
type CanReach<'a> = &'a dyn Fn(&SharedBuffer) -> Result<bool, DeviceError>;

impl<'a> Lowering<'a> {
    /// Returns a lowering for nodes of `graph` on `device`, whose tensors are where `tensors` says. `reaches` tells whether the
    /// device can compute on a buffer; it is asked once per buffer.
    pub fn new(device: &'a str, graph: &'a Graph, tensors: &'a dyn Locate, reaches: CanReach<'a>) -> Self {
        Self { device, graph, tensors, reaches, buffers: Vec::new(), by_address: BTreeMap::new(), sources: Vec::new() }
    }

    /// Returns the nodes at these positions.
    ///
    /// # Errors
    ///
    /// If the graph has fewer nodes.
    pub fn nodes(device: &str, graph: &'a Graph, range: Range<usize>) -> Result<&'a [TensorId], DeviceError> {
        let all = graph.nodes();
        all.get(range.clone()).ok_or_else(|| {
            let why = format!("no such nodes: expected a range within 0..{}, got {range:?}", all.len());
            DeviceError::Failed { device: device.into(), why }
        })
    }

    /// Locates the result and the sources of a node.
    ///
    /// # Errors
    ///
    /// If an operand has no memory ([`Unplaced`](DeviceError::Unplaced)), passes the end of its buffer
    /// ([`Outside`](DeviceError::Outside)), is in a buffer that the device does not reach, or has a [`Shape`] that no
    /// memory can have; if the result shares bytes with the tensor that the operation writes into, and does not have its
    /// memory ([`NotInTarget`](DeviceError::NotInTarget)).
    pub fn lower(&mut self, node: TensorId) -> Result<LoweredNode<'_>, DeviceError> {
        let op = self.graph.tensor(node).op;
        self.lower_by(node, self.graph.writes_into(node), |slot| op.overwrites_slot(slot))
    }

    /// Locates the result and the sources of a node of a caller's own operation. Its declaration, not the graph, says which
    /// sources its kernels may read in place, since a graph that was read from a file may permit more, and which source the
    /// operation writes into, since a node may have that one twice.
    ///
    /// # Errors
    ///
    /// If [`lower`](Self::lower) would fail.
    pub fn lower_custom(&mut self, node: TensorId, op: &CustomOp) -> Result<LoweredNode<'_>, DeviceError> {
        self.lower_by(node, op.writes_into(), |slot| op.overwrites(slot))
    }

    fn lower_by(
        &mut self,
        node: TensorId,
        writes_into: Option<usize>,
        overwrites: impl Fn(usize) -> bool,
    ) -> Result<LoweredNode<'_>, DeviceError> {
        let graph = self.graph;
        let result = self.locate(node)?;
        self.buffers[result.buffer].is_written = true;
        self.sources.clear();
        for (slot, source) in graph.sources(node).iter().enumerate() {
            let Some(tensor) = *source else { continue };
            let located = self.locate(tensor)?;
            let usage = if !located.overlaps(&result) {
                SourceUse::Plain
            } else if writes_into == Some(slot) {
                // Rows of the target would be other rows of the result.
                if !located.is_same_memory(&result) {
                    let named = |id| Named::new(id, graph.names());
                    return Err(DeviceError::NotInTarget { tensor: named(node), target: named(tensor) });
                }
                SourceUse::Plain
            } else if overwrites(slot) && located.is_same_memory(&result) {
                SourceUse::InPlace
            } else {
                SourceUse::Staged
            };
            self.sources.push(LoweredSource { tensor, slot, located, usage });
        }
        Ok(LoweredNode { result, sources: &self.sources })
    }

    /// Returns the buffers of all nodes that were lowered; their indices are those of the located tensors.
    pub fn into_buffers(self) -> Vec<UsedBuffer> {
        self.buffers
    }

    fn locate(&mut self, tensor: TensorId) -> Result<LocatedTensor, DeviceError> {
        let named = || Named::new(tensor, self.graph.names());
        let Some(address) = self.tensors.locate(tensor) else { return Err(DeviceError::Unplaced { tensor: named() }) };
        let (layout, buffer) = (&self.graph.tensor(tensor).layout, address.buffer);
        buffer.check_bounds(address.offset, layout.nbytes())?;
        let is_it = |used: &UsedBuffer| used.buffer.is_same(buffer);
        let known = self.by_address.get(&buffer.address()).copied().filter(|&index| is_it(&self.buffers[index]));
        let index = match known.or_else(|| self.buffers.iter().position(is_it)) {
            Some(index) => index,
            None => {
                if !(self.reaches)(buffer)? {
                    let why = format!("unreachable memory: {} is located in {}", named(), buffer.memory().name());
                    return Err(DeviceError::Failed { device: self.device.into(), why });
                }
                self.by_address.insert(buffer.address(), self.buffers.len());
                self.buffers.push(UsedBuffer { buffer: buffer.clone(), is_written: false });
                self.buffers.len() - 1
            }
        };
        let shape = Shape::new(layout).ok_or_else(|| {
            let why = format!("tensor too large: {}", named());
            DeviceError::Failed { device: self.device.into(), why }
        })?;
        Ok(LocatedTensor { buffer: index, offset: address.offset, address: address.number(), shape })
    }
}
