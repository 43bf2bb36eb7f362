//! The caller's graph in, a graph that can be planned out. Reads every tensor once and trusts nothing but pointers.

use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use steeve_graph::{
    AllocSizes, AssignedGraph, Assignment, Bytes, Flags, GraphError, GraphParts, Id, IdVec, Layout, Memory, MemoryId,
    Op, Tensor, TensorId, View,
};

use crate::ggml_abi::{self, GgmlBufferType};
use crate::ggml_instance::KnownGgml;

/// Why a graph can't be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GraphReadError {
    /// ggml itself would fail over it: nothing where a tensor should be, or more bytes than can be counted.
    Malformed(String),
    /// It may make sense to ggml, but not to us.
    Unsupported(String),
}

/// The memories of an allocator, and the buffer type of each.
pub(crate) struct PlannedMemories {
    pub(crate) types: Vec<GgmlBufferType>,
    pub(crate) planned: IdVec<MemoryId, Memory>,
    /// Whether each is the type called CPU, in which no tensor takes more bytes than it spans.
    pub(crate) pads_nothing: Vec<bool>,
    /// Whether nodes are computed there by a CPU alone.
    pub(crate) is_host: Vec<bool>,
}

/// Which memory each leaf and node belongs to, as the caller said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferIds {
    pub(crate) leafs: Vec<c_int>,
    pub(crate) nodes: Vec<c_int>,
}

/// The leafs and nodes of the caller's graph.
#[derive(Clone, Copy)]
pub(crate) struct TensorLists<'a> {
    pub(crate) leafs: &'a [*mut ggml_abi::GgmlTensor],
    pub(crate) nodes: &'a [*mut ggml_abi::GgmlTensor],
}

impl<'a> TensorLists<'a> {
    /// Reads the lists of a graph. Fails for a null graph, list or tensor.
    ///
    /// # Safety
    /// Null, or a graph of ggml's that lives as long as the answer is used.
    pub(crate) unsafe fn of(graph: *const ggml_abi::GgmlGraph) -> Result<Self, GraphReadError> {
        // SAFETY: as promised.
        let Some(graph) = (unsafe { graph.as_ref() }) else { return malformed("the graph is null") };
        // SAFETY: as promised.
        let list = |count: c_int, start: *mut *mut ggml_abi::GgmlTensor, name: &str| match usize::try_from(count) {
            Ok(0) => Ok(&[][..]),
            Ok(_) if start.is_null() => malformed(format!("list of {count} {name} is null")),
            // SAFETY: a list of so many pointers, as promised.
            Ok(count) => Ok(unsafe { std::slice::from_raw_parts(start.cast_const(), count) }),
            Err(_) => malformed(format!("negative number of {name}: {count}")),
        };
        let leafs = list(graph.n_leafs, graph.leafs, "leafs")?;
        let nodes = list(graph.n_nodes, graph.nodes, "nodes")?;
        for (kind, list) in [("leaf", leafs), ("node", nodes)] {
            // There is hardly ever one, so all are looked at without a branch for each.
            if list.iter().fold(false, |any, tensor| any | tensor.is_null()) {
                let index = list.iter().take_while(|tensor| !tensor.is_null()).count();
                return malformed(format!("{kind} {index} is null"));
            }
        }
        Ok(Self { leafs, nodes })
    }

    /// Returns the memory of each leaf and node; the first where the caller says nothing.
    ///
    /// # Safety
    /// Each is null, or has one number for each leaf or node.
    pub(crate) unsafe fn ids(&self, nodes: *const c_int, leafs: *const c_int) -> BufferIds {
        let list = |ids: *const c_int, count: usize| match ids.is_null() || count == 0 {
            true => vec![0; count],
            // SAFETY: as promised.
            false => unsafe { std::slice::from_raw_parts(ids, count) }.to_vec(),
        };
        BufferIds { leafs: list(leafs, self.leafs.len()), nodes: list(nodes, self.nodes.len()) }
    }
}

/// A graph as the planner knows it, with ggml's tensor for each of its ids.
pub(crate) struct ReadGraph {
    pub(crate) assigned: AssignedGraph,
    pub(crate) tensors: Vec<*mut ggml_abi::GgmlTensor>,
}

/// The purpose a graph is read for, which decides what its operations are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPurpose {
    /// To be planned: every operation overwrites what this ggml lets it overwrite, and nothing else.
    Plan {
        /// Whether a GLU of two sources may take the place of one, in CPU memory.
        glu: bool,
    },
    /// To be written to a file: with the names of tensors.
    Record,
}

/// Reads a graph.
///
/// # Safety
/// The lists are a graph of this ggml's: every pointer that can be reached is null or a tensor.
pub(crate) unsafe fn read(
    ggml: &KnownGgml,
    lists: TensorLists<'_>,
    memories: &PlannedMemories,
    ids: &BufferIds,
    purpose: ReadPurpose,
) -> Result<ReadGraph, GraphReadError> {
    let listed = lists.leafs.len() + lists.nodes.len();
    let numbers = HashMap::with_capacity_and_hasher(listed, BuildHasherDefault::default());
    let reader = GraphReader { ggml, memories, purpose, numbers, tensors: Vec::with_capacity(listed), ops: Vec::new() };
    // SAFETY: passed on.
    unsafe { reader.read(lists, ids) }
}

struct GraphReader<'a> {
    ggml: &'a KnownGgml,
    memories: &'a PlannedMemories,
    purpose: ReadPurpose,
    numbers: HashMap<*mut ggml_abi::GgmlTensor, TensorId, BuildHasherDefault<AddressHasher>>,
    tensors: Vec<*mut ggml_abi::GgmlTensor>,
    /// What each of ggml's operations is to the planner, by ggml's number, as far as they were met.
    ops: Vec<Option<Op>>,
}

/// Spreads addresses. No input chooses those of tensors, so nothing stronger is needed.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, address: usize) {
        // The golden ratio, as in Knuth, "The Art of Computer Programming" 3, 6.4; the table looks at both ends.
        let spread = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}

impl GraphReader<'_> {
    unsafe fn read(mut self, lists: TensorLists<'_>, ids: &BufferIds) -> Result<ReadGraph, GraphReadError> {
        let mut parts = GraphParts::default();
        let assignment = Assignment { leafs: self.assigned(&ids.leafs)?, nodes: self.assigned(&ids.nodes)? };
        for &leaf in lists.leafs {
            parts.leaf(self.number(leaf)?);
        }
        // The memory of each node; a tensor without one is no node.
        let mut homes = vec![None; lists.leafs.len() + lists.nodes.len()];
        for (&node, home) in lists.nodes.iter().zip(&assignment.nodes) {
            let node = self.number(node)?;
            homes[node.index()] = Some(*home);
            parts.node(node);
        }
        // In the table, sources come with their numbers, and each new tensor is appended: so the list grows
        // while it is walked.
        let mut index = 0;
        while let Some(&pointer) = self.tensors.get(index) {
            let home = homes.get(index).copied().flatten();
            // SAFETY: passed on.
            unsafe { self.tensor(&mut parts, pointer, home) }.map_err(|why| why.about(&self.title(index)))?;
            index += 1;
        }
        let graph = parts.finish().map_err(|error| GraphReadError::Unsupported(error.to_string()))?;
        let sizes = self.sizes(&graph)?;
        let assigned = AssignedGraph::new(graph, self.memories.planned.clone(), assignment, sizes);
        let assigned = assigned.map_err(|error| GraphReadError::Unsupported(error.to_string()))?;
        Ok(ReadGraph { assigned, tensors: self.tensors })
    }

    /// Returns the id of a tensor, a new one at its first use.
    fn number(&mut self, tensor: *mut ggml_abi::GgmlTensor) -> Result<TensorId, GraphReadError> {
        let next = TensorId::from_index(self.tensors.len());
        let next = next.ok_or_else(|| GraphReadError::Malformed("there are too many tensors".into()))?;
        let number = *self.numbers.entry(tensor).or_insert(next);
        if number == next {
            self.tensors.push(tensor);
        }
        Ok(number)
    }

    fn assigned(&self, ids: &[c_int]) -> Result<Vec<MemoryId>, GraphReadError> {
        let memories = self.memories.types.len();
        let memory = |&id: &c_int| {
            let index = usize::try_from(id).ok().filter(|index| *index < memories).and_then(MemoryId::from_index);
            index.ok_or_else(|| {
                GraphReadError::Malformed(format!("buffer {id}: out of range: expected less than {memories}"))
            })
        };
        ids.iter().map(memory).collect()
    }

    fn title(&self, index: usize) -> String {
        // SAFETY: as the caller of `read` promised.
        let name = self.tensors.get(index).map(|tensor| unsafe { name(*tensor) });
        format!("tensor {index} ({})", name.unwrap_or_default())
    }

    /// Appends a tensor to the table.
    ///
    /// # Safety
    /// The tensor is one of this ggml's.
    unsafe fn tensor(
        &mut self,
        parts: &mut GraphParts,
        pointer: *mut ggml_abi::GgmlTensor,
        home: Option<MemoryId>,
    ) -> Result<(), GraphReadError> {
        // SAFETY: as promised.
        let tensor = unsafe { &*pointer };
        let layout = layout(self.ggml, tensor)?;
        let mut sources = [None; ggml_abi::MAX_SOURCES];
        let mut used = 0;
        // Of a tensor that is no node, the sources do not matter.
        if home.is_some() {
            for (slot, (source, &is)) in sources.iter_mut().zip(&tensor.src).enumerate() {
                if !is.is_null() {
                    (*source, used) = (Some(self.number(is)?), slot + 1);
                }
            }
        }
        let view = match tensor.view_src.is_null() {
            true => None,
            false => Some(View { root: self.number(tensor.view_src)?, offset: Bytes(tensor.view_offs as u64) }),
        };
        // SAFETY: passed on.
        let op = unsafe { self.op(parts, tensor, home) }?;
        let flags = Flags::from_bits(tensor.flags as u64);
        let external = view.is_none() && tensor.is_placed();
        let too_many = |error: GraphError| GraphReadError::Malformed(error.to_string());
        let read = Tensor { op, flags, external, view, ..Tensor::new(layout) };
        let id = parts.push(read, &sources[..used]).map_err(too_many)?;
        if self.purpose == ReadPurpose::Record {
            // SAFETY: as promised.
            parts.set_name(id, &unsafe { name(pointer) }).map_err(too_many)?;
        }
        Ok(())
    }

    /// Returns the operation of a tensor as the planner sees it.
    ///
    /// # Safety
    /// The tensor is one of this ggml's.
    unsafe fn op(
        &mut self,
        parts: &mut GraphParts,
        tensor: &ggml_abi::GgmlTensor,
        home: Option<MemoryId>,
    ) -> Result<Op, GraphReadError> {
        let unknown = || GraphReadError::Unsupported(format!("unknown operation {}", tensor.op));
        let ggml = self.ggml;
        let operation = ggml.operation(tensor.op).ok_or_else(unknown)?;
        let too_many = |error: GraphError| GraphReadError::Malformed(error.to_string());
        let ReadPurpose::Plan { glu } = self.purpose else {
            // SAFETY: as promised.
            let kind = || unsafe { self.ggml.kind(tensor) };
            let kind = matches!(&*operation.name, "UNARY" | "GLU").then(kind).flatten();
            return parts.op(&operation.name, kind.as_deref()).map_err(too_many);
        };
        let code = tensor.op as usize;
        let op = match self.ops.get(code).copied().flatten() {
            Some(op) => op,
            None => {
                // To plans, one kind is as good as another.
                let op = parts.op(&operation.name, None).map_err(too_many)?;
                self.ops.resize(self.ops.len().max(code + 1), None);
                self.ops[code] = Some(op);
                op
            }
        };
        // A copy may name itself as its destination, which no other operation may.
        if op.writes_nothing() || op == Op::Cpy {
            return Ok(op);
        }
        let in_cpu = home.is_some_and(|home| self.memories.is_host[home.index()]);
        let two_sources = !tensor.src[1].is_null();
        if matches!(op, Op::Glu(_)) && glu && in_cpu && two_sources {
            return Ok(op);
        }
        Ok(match (operation.in_place.unwrap_or(op.ggml_in_place()), op.ggml_in_place()) {
            (true, true) => op,
            // This ggml runs in place what the table does not know of: planned as an operation that does.
            (true, false) => Op::Scale,
            // What never runs in place is itself, so that groups of nodes that backends fuse are found. With all take-overs of our
            // table, which this ggml's kernels do not know, it is planned as an operation that has none.
            (false, false) if !(glu && in_cpu) => op,
            (false, _) => Op::Cont,
        })
    }

    /// Returns how many bytes each planned tensor takes in each memory.
    fn sizes(&self, graph: &steeve_graph::Graph) -> Result<AllocSizes, GraphReadError> {
        let mut sizes = AllocSizes::new(self.memories.types.len());
        let mut left = isize::MAX as u64;
        let mut row = Vec::with_capacity(self.memories.types.len());
        let get_alloc_size = self.ggml.functions.ggml_backend_buft_get_alloc_size;
        for ((id, tensor), pointer) in graph.tensors().pairs().zip(&self.tensors) {
            if !tensor.is_planned() {
                continue;
            }
            row.clear();
            for (memory, &buffer_type) in self.memories.planned.iter().zip(&self.memories.types) {
                row.push(match memory.shared_with {
                    Some(first) => row[first.index()],
                    // SAFETY: a buffer type of the caller's, and a tensor of the same ggml.
                    None => Bytes(unsafe { get_alloc_size(buffer_type, *pointer) } as u64),
                });
            }
            let largest = row.iter().map(|size| size.0).max().unwrap_or(0);
            // Far below what could overflow anywhere, and far above what there is.
            left = left.checked_sub(largest).ok_or_else(|| GraphReadError::Malformed(too_large(largest)))?;
            sizes.set(id, tensor, &row).map_err(|error| GraphReadError::Unsupported(error.to_string()))?;
        }
        Ok(sizes)
    }
}

fn too_large(bytes: u64) -> String {
    format!("out of address space at a tensor of {bytes} bytes")
}

/// Returns type, shape and strides of a tensor. Fails for an unknown type or an impossible shape.
pub(crate) fn layout(ggml: &KnownGgml, tensor: &ggml_abi::GgmlTensor) -> Result<Layout, GraphReadError> {
    let unknown = || match format!("unknown data type {}", tensor.dtype) {
        why if ggml.has_type(tensor.dtype) => GraphReadError::Unsupported(why),
        why => GraphReadError::Malformed(why),
    };
    let dtype = ggml.data_type(tensor.dtype).ok_or_else(unknown)?;
    let mut ne = [0; 4];
    for (ne, &given) in ne.iter_mut().zip(&tensor.ne) {
        let negative = |_| GraphReadError::Unsupported(format!("negative shape {:?}", tensor.ne));
        *ne = u64::try_from(given).map_err(negative)?;
    }
    let nb = tensor.nb.map(|stride| stride as u64);
    Layout::new(dtype, ne, nb).map_err(|error| GraphReadError::Malformed(error.to_string()))
}

/// Returns the name of a tensor.
///
/// # Safety
/// A tensor of ggml's.
pub(crate) unsafe fn name(tensor: *const ggml_abi::GgmlTensor) -> String {
    // SAFETY: as promised. ggml ends a name with a zero; one without is none.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const (*tensor).name).cast::<u8>(), ggml_abi::NAME_BYTES) };
    CStr::from_bytes_until_nul(bytes).map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
}

fn malformed<T>(why: impl Into<String>) -> Result<T, GraphReadError> {
    Err(GraphReadError::Malformed(why.into()))
}

impl fmt::Display for GraphReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Malformed(why) | Self::Unsupported(why)) = self;
        f.write_str(why)
    }
}

impl GraphReadError {
    fn about(self, what: &str) -> Self {
        match self {
            Self::Malformed(why) => Self::Malformed(format!("{what}: {why}")),
            Self::Unsupported(why) => Self::Unsupported(format!("{what}: {why}")),
        }
    }
}
