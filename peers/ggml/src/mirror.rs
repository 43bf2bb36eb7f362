//! A graph as ggml has it: tensors in a context without memory, and a graph that lists them in the same order.
//!
//! The tensors are ggml's own, made by its functions, and then get the fields of ours. Parameters of operations and names
//! are left out, because the allocator reads neither.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use llama_cpp_sys_2::{
    GGML_OP_CLAMP, GGML_OP_CUSTOM, GGML_OP_NONE, GGML_OP_PERMUTE, GGML_OP_RESHAPE, GGML_OP_TRANSPOSE, GGML_OP_VIEW,
    GGML_TYPE_F32, ggml_backend_buffer_free, ggml_backend_buffer_t, ggml_backend_buft_alloc_buffer, ggml_cgraph,
    ggml_context, ggml_free, ggml_graph_overhead_custom, ggml_init, ggml_init_params, ggml_is_quantized,
    ggml_new_graph_custom, ggml_new_tensor_1d, ggml_op, ggml_tensor, ggml_tensor_overhead,
};
use steeve_graph::{Align, AssignedGraph, Bytes, Id, Memory, MemoryId, Tensor, TensorId, View};

use crate::abi::{self, ggml_op_alloc_size_may_expand};
use crate::ggml::GgmlError;
use crate::memory::{FakeMemory, Sizes, bytes, fake};
use crate::op::OpNumbers;

/// Where external tensors start to stand. Nobody reads there.
const EXTERNAL: usize = 1 << 45;

/// Whether CLAMP may take the place of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClampRule {
    /// As the ggml that is linked decides: it may, since the versions after 0.21.
    #[default]
    Linked,
    /// Never, as in ggml 0.21, whose answers `steeve_graph::ggml_placement` gives. ggml is told that it is some
    /// operation of the caller's.
    NeverInPlace,
}

/// What a tensor of ggml's reads, by slot.
type Sources = [*mut ggml_tensor; 10];

pub(crate) struct Mirror {
    context: NonNull<ggml_context>,
    graph: NonNull<ggml_cgraph>,
    /// By the index of their id.
    tensors: Vec<*mut ggml_tensor>,
    /// The sources of each of them.
    sources: Vec<Sources>,
    /// All that ggml gives an address to, with the one they have before: views of external tensors are born with one.
    unplaced: Vec<(*mut ggml_tensor, *mut c_void)>,
    pub(crate) leaf_memories: Vec<c_int>,
    pub(crate) node_memories: Vec<c_int>,
    /// The rows that `ggml_tensor::extra` points to.
    sizes: Vec<usize>,
    external: ggml_backend_buffer_t,
    /// The buffer type of the buffer above.
    _external_memory: FakeMemory,
}

impl Mirror {
    pub(crate) fn new(assigned: &AssignedGraph, clamp: ClampRule) -> Result<Self, GgmlError> {
        let graph = assigned.graph();
        let (nodes, leafs) = (graph.nodes().len(), graph.leafs().len());
        let size = nodes.max(leafs).max(1);
        c_int::try_from(size).map_err(|_| GgmlError::TooLarge { nodes, leafs })?;
        let context = context(graph.tensors().len(), size).ok_or(GgmlError::NoContext)?;
        // SAFETY: the context has room for a graph of this size.
        let made = unsafe { ggml_new_graph_custom(context.as_ptr(), size, false) };
        let external_memory = FakeMemory::new(&Memory::new("external", Align::ONE), 0, Sizes::Spans);
        // SAFETY: the buffer type is kept as long as the buffer.
        let external = unsafe { ggml_backend_buft_alloc_buffer(external_memory.as_ptr(), usize::MAX >> 1) };
        let mut mirror = Self {
            context,
            graph: NonNull::new(made).ok_or(GgmlError::NoContext)?,
            tensors: Vec::with_capacity(graph.tensors().len()),
            sources: Vec::with_capacity(graph.tensors().len()),
            unplaced: Vec::new(),
            leaf_memories: numbers(&assigned.assignment().leafs),
            node_memories: numbers(&assigned.assignment().nodes),
            sizes: Vec::new(),
            external,
            _external_memory: external_memory,
        };
        mirror.make_tensors(assigned, clamp)?;
        mirror.list(assigned);
        mirror.note_sizes(assigned)?;
        Ok(mirror)
    }

    pub(crate) fn graph(&self) -> *mut ggml_cgraph {
        self.graph.as_ptr()
    }

    /// Where ggml put a tensor: its buffer and its address, which are null if it has none.
    pub(crate) fn place(&self, tensor: TensorId) -> (ggml_backend_buffer_t, *mut c_void) {
        // SAFETY: the tensors live as long as the context, which is `self`'s.
        let it = unsafe { &*self.tensors[tensor.index()] };
        (it.buffer, it.data)
    }

    /// Takes buffers and addresses away again, so that the graph is as if just built.
    pub(crate) fn forget_places(&mut self) {
        for &(tensor, data) in &self.unplaced {
            // SAFETY: the tensors live as long as the context, and nobody else has them now.
            let tensor = unsafe { &mut *tensor };
            tensor.buffer = ptr::null_mut();
            tensor.data = data;
        }
    }

    /// Takes back the copies that a scheduler has put in the place of sources.
    pub(crate) fn forget_copies(&mut self) {
        for (&tensor, sources) in self.tensors.iter().zip(&self.sources) {
            // SAFETY: as for `forget_places`.
            unsafe { (*tensor).src = *sources };
        }
    }

    /// The copies that a scheduler has put in the place of sources. They live until it splits again.
    pub(crate) fn copies(&self) -> Vec<*mut ggml_tensor> {
        let mut found = Vec::new();
        for (&tensor, sources) in self.tensors.iter().zip(&self.sources) {
            // SAFETY: as for `place`.
            let now = unsafe { (*tensor).src };
            found.extend(now.into_iter().zip(sources).filter(|(now, before)| now != *before).map(|(now, _)| now));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Makes all tensors, and then links them: a source may stand behind its reader.
    fn make_tensors(&mut self, assigned: &AssignedGraph, clamp: ClampRule) -> Result<(), GgmlError> {
        for _ in assigned.graph().tensors().iter() {
            // SAFETY: the context has room for as many tensors as the graph has.
            self.tensors.push(unsafe { ggml_new_tensor_1d(self.context.as_ptr(), GGML_TYPE_F32, 1) });
        }
        let ops = OpNumbers::new();
        let mut external = EXTERNAL;
        for (id, tensor) in assigned.graph().tensors().pairs() {
            let name = assigned.graph().tensors().op_name(tensor.op);
            let unknown = || GgmlError::UnknownOperation { tensor: id, name: name.into() };
            let op = match (ops.get(name).ok_or_else(unknown)?, clamp) {
                (GGML_OP_CLAMP, ClampRule::NeverInPlace) => GGML_OP_CUSTOM,
                (op, _) => op,
            };
            self.describe(id, tensor, op);
            self.link(id, assigned.graph().sources(id))?;
            if tensor.external {
                self.provide(id, fake(external));
                external = external.saturating_add(bytes(tensor.nbytes().0));
            }
        }
        for (id, tensor) in assigned.graph().tensors().pairs().filter(|(_, tensor)| !tensor.external) {
            let data = match tensor.view {
                Some(view) => self.view(id, view),
                None => ptr::null_mut(),
            };
            self.unplaced.push((self.tensors[id.index()], data));
        }
        self.forget_places();
        Ok(())
    }

    fn describe(&mut self, id: TensorId, tensor: &Tensor, op: ggml_op) {
        let it = self.tensor_mut(id);
        it.type_ = tensor.layout.dtype().ggml_id();
        it.ne = tensor.layout.ne().map(u64::cast_signed);
        it.nb = tensor.layout.nb().map(bytes);
        it.op = op;
        it.flags = tensor.flags.bits().into();
    }

    fn link(&mut self, id: TensorId, sources: &[Option<TensorId>]) -> Result<(), GgmlError> {
        let found: Vec<_> = sources
            .iter()
            .map(|source| source.map_or(ptr::null_mut(), |source| self.tensors[source.index()]))
            .collect();
        let it = self.tensor_mut(id);
        let count = it.src.len();
        let slots = it.src.get_mut(..found.len());
        slots
            .ok_or(GgmlError::TooManySources { tensor: id, sources: found.len(), slots: count })?
            .copy_from_slice(&found);
        let linked = it.src;
        self.sources.push(linked);
        Ok(())
    }

    /// The caller's memory: an address, in a buffer of the caller's.
    fn provide(&mut self, id: TensorId, data: *mut c_void) {
        let external = self.external;
        let it = self.tensor_mut(id);
        (it.buffer, it.data) = (external, data);
    }

    /// Says which buffer of the caller's an external tensor is in, which must live as long as it is asked about.
    pub(crate) fn stand_in(&mut self, id: TensorId, buffer: ggml_backend_buffer_t) {
        self.tensor_mut(id).buffer = buffer;
    }

    /// Makes a tensor a view, and answers the address that it is born with.
    fn view(&mut self, id: TensorId, view: View) -> *mut c_void {
        let root = self.tensors[view.root.index()];
        let (_, data) = self.place(view.root);
        let it = self.tensor_mut(id);
        it.view_src = root;
        it.view_offs = bytes(view.offset.0);
        if data.is_null() { data } else { data.wrapping_byte_add(it.view_offs) }
    }

    fn tensor_mut(&mut self, id: TensorId) -> &mut ggml_tensor {
        // SAFETY: the tensors live as long as the context, and nobody else has them now.
        unsafe { &mut *self.tensors[id.index()] }
    }

    /// Writes the lists of nodes and leafs.
    fn list(&mut self, assigned: &AssignedGraph) {
        let (nodes, leafs) = (assigned.graph().nodes(), assigned.graph().leafs());
        // SAFETY: ggml made the graph, and its start has this layout.
        let graph = unsafe { &mut *self.graph.as_ptr().cast::<abi::Graph>() };
        // No graph has more than `c_int::MAX` of them: that has been looked at.
        (graph.n_nodes, graph.n_leafs) = (nodes.len() as c_int, leafs.len() as c_int);
        for (list, ids) in [(graph.nodes, nodes), (graph.leafs, leafs)] {
            for (slot, id) in ids.iter().enumerate() {
                // SAFETY: the graph was made with room for the longer of the two lists.
                unsafe { list.add(slot).write(self.tensors[id.index()]) };
            }
        }
    }

    /// Lets `extra` point to the sizes of each tensor that takes more than it spans.
    fn note_sizes(&mut self, assigned: &AssignedGraph) -> Result<(), GgmlError> {
        let rows: Vec<_> = padded(assigned).collect();
        for (tensor, row) in &rows {
            one_size_each(assigned, *tensor, row)?;
        }
        self.sizes = rows.iter().flat_map(|(_, row)| row.iter().map(|size| bytes(size.0))).collect();
        let width = assigned.memories().len();
        let starts: Vec<*mut c_void> =
            self.sizes.chunks_exact(width).map(|row| row.as_ptr().cast_mut().cast()).collect();
        for ((id, _), start) in rows.into_iter().zip(starts) {
            let tensor = self.tensor_mut(id);
            // SAFETY: it only reads the type.
            let quantised = unsafe { ggml_is_quantized(tensor.type_) };
            if !quantised && !is_empty(tensor.op) && !ggml_op_alloc_size_may_expand(tensor.op) {
                let op = assigned.graph().tensors().op_name(assigned.graph().tensor(id).op);
                return Err(GgmlError::Expands { tensor: id, op: op.into() });
            }
            tensor.extra = start;
        }
        Ok(())
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY: both are `self`'s own and freed only here; buffers before the buffer type, which is dropped later.
        unsafe {
            ggml_backend_buffer_free(self.external);
            ggml_free(self.context.as_ptr());
        }
    }
}

/// The planned tensors that take more bytes than they span in some memory, each with its sizes.
pub(crate) fn padded(assigned: &AssignedGraph) -> impl Iterator<Item = (TensorId, &[Bytes])> {
    let planned = assigned.graph().tensors().pairs().filter(|(_, tensor)| tensor.is_planned());
    planned.filter_map(|(id, _)| Some((id, assigned.sizes().row(id)?)))
}

/// A buffer type of ggml's has one size for a tensor, also where two memories are of that type.
fn one_size_each(assigned: &AssignedGraph, tensor: TensorId, row: &[Bytes]) -> Result<(), GgmlError> {
    let differs = assigned.memories().ids().zip(row).find_map(|(memory, size)| {
        let other = row[assigned.owner(memory).index()];
        (*size != other).then_some(GgmlError::SharedSizes { tensor, memory, size: *size, other })
    });
    differs.map_or(Ok(()), Err)
}

/// A context with room for tensors and a graph, and none for data.
fn context(tensors: usize, graph: usize) -> Option<NonNull<ggml_context>> {
    // SAFETY: these functions only compute.
    let mem_size = unsafe { tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(graph, false) };
    // SAFETY: ggml makes the memory itself.
    NonNull::new(unsafe { ggml_init(ggml_init_params { mem_size, mem_buffer: ptr::null_mut(), no_alloc: true }) })
}

fn numbers(memories: &[MemoryId]) -> Vec<c_int> {
    memories.iter().map(|memory| memory.index() as c_int).collect()
}

/// What ggml calls empty: it only describes memory.
fn is_empty(op: ggml_op) -> bool {
    matches!(op, GGML_OP_NONE | GGML_OP_RESHAPE | GGML_OP_TRANSPOSE | GGML_OP_VIEW | GGML_OP_PERMUTE)
}

#[cfg(test)]
mod tests {
    use llama_cpp_sys_2::{ggml_graph_n_nodes, ggml_graph_node, ggml_graph_size, ggml_nbytes};

    use super::*;

    #[test]
    fn ggml_reads_the_graph_that_was_written() {
        let graph: AssignedGraph =
            "x = input f32[64,3]; w = external f16[64,5]; y = mul_mat w x; z = neg y !output".parse().unwrap();
        let mirror = Mirror::new(&graph, ClampRule::Linked).unwrap();
        let nodes = graph.graph().nodes();
        // SAFETY: the graph and its tensors live to the end of the test.
        unsafe {
            assert_eq!(ggml_graph_n_nodes(mirror.graph()), 2);
            assert_eq!(ggml_graph_size(mirror.graph()), 2);
            for (index, id) in nodes.iter().enumerate() {
                let node = ggml_graph_node(mirror.graph(), index as c_int);
                assert_eq!(node, mirror.tensors[id.index()]);
                assert_eq!(ggml_nbytes(node) as u64, graph.graph().tensor(*id).nbytes().0);
            }
        }
        let placed = |id: TensorId| !mirror.place(id).1.is_null();
        assert_eq!(graph.graph().tensors().ids().map(placed).collect::<Vec<_>>(), [false, true, false, false]);
    }
}
