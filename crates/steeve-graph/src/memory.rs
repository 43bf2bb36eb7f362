//! Which memory each leaf and node belongs to, and how many bytes a tensor takes there.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use steeve_plan::{Align, Bytes, Clipped, Id, IdVec};

use crate::{Fusion, Graph, GraphError, Tensor, TensorId};

steeve_plan::id_type! {
    /// One buffer type of one device.
    pub struct MemoryId;
}

impl MemoryId {
    /// The first memory, which is the default.
    pub const FIRST: Self = Self(core::num::NonZeroU32::MIN);

    /// Returns the memory at a position of the list, from 0.
    pub const fn nth(position: u16) -> Self {
        Self(core::num::NonZeroU32::MIN.saturating_add(position as u32))
    }
}

/// One buffer type of one device: what the planner has to know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// What to call it.
    pub name: String,
    /// What every offset must be a multiple of.
    pub align: Align,
    /// The largest buffer the device gives out.
    pub max_buffer: Option<Bytes>,
    /// For how many nodes after its last reader a tensor must stay, because the device fuses or reorders. Text and plan
    /// files, recordings, options and settings call it `hold`.
    pub extra_lifetime: u32,
    /// Whether its backend fuses nodes, and what plans keep so that it can.
    pub fusion: Fusion,
    /// The earlier memory that is the same one under another id.
    pub shared_with: Option<MemoryId>,
}

impl Memory {
    /// Returns a memory without limits.
    pub fn new(name: impl Into<String>, align: Align) -> Self {
        Self { name: name.into(), align, max_buffer: None, extra_lifetime: 0, fusion: Fusion::None, shared_with: None }
    }
}

impl Memory {
    /// Returns whether only ggml's own in-place aliases are made: where nodes are fused or run side by side.
    pub(crate) fn keeps_ggml_in_place(&self) -> bool {
        self.extra_lifetime > 0 || self.fusion != Fusion::None
    }
}

/// All that the planner knows of it.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory {} (alignment {}, buffers ", Clipped(&self.name), self.align)?;
        match self.max_buffer {
            Some(limit) => write!(f, "of at most {limit} bytes")?,
            None => write!(f, "of any size")?,
        }
        write!(f, ", hold {}", self.extra_lifetime)?;
        if self.fusion != Fusion::None {
            write!(f, ", fusion {}", self.fusion.name())?;
        }
        f.write_str(")")?;
        self.shared_with.map_or(Ok(()), |with| write!(f, " shared with memory {with}"))
    }
}

/// One memory called `memory`, aligned to 1.
impl Default for Memory {
    fn default() -> Self {
        Self::new("memory", Align::ONE)
    }
}

/// The memory of each leaf and of each node, in the order of the graph.
#[derive(Clone, Debug, Default, Eq, Hash)]
#[allow(clippy::derived_hash_with_manual_eq, reason = "equal is what it always was")]
pub struct Assignment {
    /// The memory of each leaf.
    pub leafs: Vec<MemoryId>,
    /// The memory of each node.
    pub nodes: Vec<MemoryId>,
}

/// Looks at all of them, without a way out at the first difference: that is what processors do many of at a time.
impl PartialEq for Assignment {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &[MemoryId], other: &[MemoryId]| {
            one.len() == other.len() && one.iter().zip(other).fold(true, |same, (one, other)| same & (one == other))
        };
        same(&self.leafs, &other.leafs) && same(&self.nodes, &other.nodes)
    }
}

impl Assignment {
    /// Assigns everything to the first memory.
    pub fn single(graph: &Graph) -> Self {
        let all = |count: usize| alloc::vec![MemoryId::FIRST; count];
        Self { leafs: all(graph.leafs().len()), nodes: all(graph.nodes().len()) }
    }

    /// Assigns each leaf and node to the memory that `memory` returns.
    ///
    /// ```
    /// use steeve_graph::{Assignment, AssignedGraph, MemoryId};
    /// let graph: AssignedGraph = "x = input 16; y = sqr x; z = neg y !output".parse()?;
    /// let last = graph.graph().nodes()[1];
    /// let assignment = Assignment::by(graph.graph(), |tensor| MemoryId::nth(if tensor == last { 1 } else { 0 }));
    /// assert_eq!(assignment.nodes, [MemoryId::FIRST, MemoryId::nth(1)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn by(graph: &Graph, memory: impl Fn(TensorId) -> MemoryId) -> Self {
        let all = |list: &[TensorId]| list.iter().map(|tensor| memory(*tensor)).collect();
        Self { leafs: all(graph.leafs()), nodes: all(graph.nodes()) }
    }
}

/// How many bytes a tensor takes in a memory: what it spans, unless a row here says more.
///
/// Some backends pad tensors for their kernels, each in its own way. A row has one size for each memory.
///
/// ```
/// use steeve_graph::{AllocSizes, Bytes, DataType, Id, Layout, MemoryId, Tensor, TensorId};
/// let tensor = Tensor::new(Layout::contiguous(DataType::F32, &[10])?);
/// let mut sizes = AllocSizes::new(1);
/// let id = TensorId::from_index(3).unwrap();
/// assert_eq!(sizes.get(id, &tensor, MemoryId::FIRST), Bytes(40));
/// sizes.set(id, &tensor, &[Bytes(64)])?;
/// assert_eq!(sizes.get(id, &tensor, MemoryId::FIRST), Bytes(64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct AllocSizes {
    memories: usize,
    /// Empty as long as every size is the default.
    rows: Vec<Option<SizeRowId>>,
    sizes: Vec<Bytes>,
}

steeve_plan::id_type! {
    /// A row of sizes, one for each memory.
    struct SizeRowId;
}

impl AllocSizes {
    /// Returns the sizes where every tensor takes what it spans, in each of `memories`.
    pub const fn new(memories: usize) -> Self {
        Self { memories, rows: Vec::new(), sizes: Vec::new() }
    }

    /// Returns the bytes that `tensor`, which is `id`, takes in `memory`. O(1).
    pub fn get(&self, id: TensorId, tensor: &Tensor, memory: MemoryId) -> Bytes {
        if self.rows.is_empty() {
            return tensor.nbytes();
        }
        let row = self.row(id);
        row.and_then(|row| row.get(memory.index())).copied().unwrap_or(tensor.nbytes())
    }

    /// Returns one size for each memory, where they are not the default.
    pub fn row(&self, id: TensorId) -> Option<&[Bytes]> {
        let row = self.rows.get(id.index()).copied().flatten()?.index();
        self.sizes.get(row * self.memories..(row + 1) * self.memories)
    }

    /// Sets the size of `tensor`, which is `id`, in each memory. No size may be below what it spans.
    ///
    /// # Errors
    ///
    /// If there are not as many sizes as memories, or one is below what the tensor spans.
    pub fn set(&mut self, id: TensorId, tensor: &Tensor, sizes: &[Bytes]) -> Result<(), GraphError> {
        if sizes.len() != self.memories {
            let (given, memories) = (sizes.len(), self.memories);
            return Err(GraphError::SizesLength { tensor: id, given, memories });
        }
        let bytes = tensor.nbytes();
        if let Some(&size) = sizes.iter().find(|&&size| size < bytes) {
            return Err(GraphError::SizeTooSmall { tensor: id, bytes, size });
        }
        let default = sizes.iter().all(|&size| size == bytes);
        match (self.rows.get(id.index()).copied().flatten(), default) {
            (Some(row), _) => {
                let start = row.index() * self.memories;
                self.sizes[start..start + self.memories].copy_from_slice(sizes);
            }
            (None, true) => {}
            (None, false) => {
                let rows = self.sizes.len() / self.memories;
                let row = SizeRowId::from_index(rows).ok_or(GraphError::TooMany { tensors: rows })?;
                if self.rows.len() <= id.index() {
                    self.rows.resize(id.index() + 1, None);
                }
                self.rows[id.index()] = Some(row);
                self.sizes.extend_from_slice(sizes);
            }
        }
        Ok(())
    }

    /// Returns for how many memories there are sizes.
    pub const fn memories(&self) -> usize {
        self.memories
    }
}

impl PartialEq for AllocSizes {
    fn eq(&self, other: &Self) -> bool {
        let tensors = self.rows.len().max(other.rows.len());
        let ids = (0..tensors).filter_map(TensorId::from_index);
        self.memories == other.memories && ids.into_iter().all(|id| self.row(id) == other.row(id))
    }
}

impl Eq for AllocSizes {}

/// A graph, the memories there are, and which of them each leaf and node belongs to: what is to be planned.
///
/// [`AssignedGraph::new`] checks that its parts fit together; no later stage checks that again.
///
/// ```
/// use steeve_graph::{Align, AssignedGraph, Memory, MemoryId};
/// let graph = "x = input 16; y = neg x !output".parse()?;
/// let assigned = AssignedGraph::single(graph, Memory::new("cpu", Align::new(32)?));
/// assert_eq!(assigned.assignment().nodes, [MemoryId::FIRST]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedGraph {
    graph: Graph,
    memories: IdVec<MemoryId, Memory>,
    assignment: Assignment,
    sizes: AllocSizes,
}

impl AssignedGraph {
    /// Checks that the assignment is one for this graph and these memories.
    ///
    /// # Errors
    ///
    /// If there is no memory, one shares with a later one, the assignment is that of another graph, or a size is
    /// below what its tensor spans.
    pub fn new(
        graph: Graph,
        memories: impl Into<IdVec<MemoryId, Memory>>,
        assignment: Assignment,
        sizes: AllocSizes,
    ) -> Result<Self, GraphError> {
        let memories = memories.into();
        if memories.is_empty() {
            return Err(GraphError::NoMemory);
        }
        check_memories(&memories)?;
        check_lengths("leafs", assignment.leafs.len(), graph.leafs().len())?;
        check_lengths("nodes", assignment.nodes.len(), graph.nodes().len())?;
        let count = memories.len();
        let mut used = assignment.leafs.iter().chain(&assignment.nodes);
        if let Some(&memory) = used.find(|memory| memory.index() >= count) {
            return Err(GraphError::UnknownMemory { memory, memories: count });
        }
        check_sizes(&sizes, &graph, count)?;
        Ok(Self { graph, memories, assignment, sizes })
    }

    /// Assigns everything to one memory; every tensor takes what it spans.
    pub fn single(graph: Graph, memory: Memory) -> Self {
        let assignment = Assignment::single(&graph);
        let memory = Memory { shared_with: None, ..memory };
        Self { graph, memories: alloc::vec![memory].into(), assignment, sizes: AllocSizes::new(1) }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the memories.
    pub fn memories(&self) -> &IdVec<MemoryId, Memory> {
        &self.memories
    }

    /// Returns which memory each leaf and node belongs to.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// Returns how many bytes tensors take.
    pub fn sizes(&self) -> &AllocSizes {
        &self.sizes
    }

    /// Returns the bytes that tensor `id` takes in `memory`.
    pub fn alloc_size(&self, id: TensorId, memory: MemoryId) -> Bytes {
        self.sizes.get(id, self.graph.tensor(id), memory)
    }

    /// Returns the first id of a memory: itself, unless it is an earlier one under another id.
    pub fn owner(&self, memory: MemoryId) -> MemoryId {
        self.memories[memory].shared_with.unwrap_or(memory)
    }

    /// Returns the fewest bytes that a tensor takes in a memory, under any of the ids that share it.
    pub(crate) fn least_alloc_size(&self, tensor: TensorId, memory: MemoryId) -> Bytes {
        let owner = self.owner(memory);
        let ids = self.memories.ids().filter(|id| self.owner(*id) == owner);
        ids.map(|id| self.alloc_size(tensor, id)).min().unwrap_or_default()
    }

    /// Returns the memories that share no other's bytes, in order.
    pub fn owners(&self) -> impl Iterator<Item = MemoryId> + '_ {
        self.memories.pairs().filter(|(_, memory)| memory.shared_with.is_none()).map(|(id, _)| id)
    }

    /// Returns this graph with its nodes, and their memories, in another order, which may mean something else.
    pub(crate) fn with_nodes(&self, nodes: Vec<TensorId>, memories: Vec<MemoryId>) -> Self {
        let assignment = Assignment { leafs: self.assignment.leafs.clone(), nodes: memories };
        let (memories, sizes) = (self.memories.clone(), self.sizes.clone());
        Self { graph: self.graph.with_nodes(nodes), memories, assignment, sizes }
    }

    /// Returns the graph alone.
    pub fn into_graph(self) -> Graph {
        self.graph
    }
}

/// Everything in one memory of alignment 1.
impl From<Graph> for AssignedGraph {
    fn from(graph: Graph) -> Self {
        Self::single(graph, Memory::default())
    }
}

fn check_memories(memories: &IdVec<MemoryId, Memory>) -> Result<(), GraphError> {
    for (memory, it) in memories.pairs() {
        let Some(with) = it.shared_with else { continue };
        if with >= memory || memories[with].shared_with.is_some() {
            return Err(GraphError::SharedMemory { memory, with });
        }
    }
    Ok(())
}

fn check_lengths(list: &'static str, given: usize, wanted: usize) -> Result<(), GraphError> {
    if given == wanted { Ok(()) } else { Err(GraphError::AssignmentLength { list, given, wanted }) }
}

fn check_sizes(sizes: &AllocSizes, graph: &Graph, memories: usize) -> Result<(), GraphError> {
    for (tensor, row) in sizes.rows.iter().enumerate().filter_map(|(index, row)| Some((index, (*row)?))) {
        let Some(tensor) = TensorId::from_index(tensor) else { continue };
        let start = row.index() * sizes.memories;
        let row = &sizes.sizes[start..start + sizes.memories];
        if row.len() != memories {
            return Err(GraphError::SizesLength { tensor, given: row.len(), memories });
        }
        let Some(it) = graph.tensors().get(tensor) else {
            return Err(GraphError::Unknown { tensor, tensors: graph.tensors().len() });
        };
        let bytes = it.nbytes();
        if let Some(&size) = row.iter().find(|&&size| size < bytes) {
            return Err(GraphError::SizeTooSmall { tensor, bytes, size });
        }
    }
    Ok(())
}
