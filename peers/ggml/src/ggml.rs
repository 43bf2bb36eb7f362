//! ggml's graph allocator over one mirrored graph.
//!
//! [`Ggml::fresh`] is the only door to reserving and allocating, so ggml never sees an address of an earlier run, nor a
//! buffer that it has freed since.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use llama_cpp_sys_2::{
    GGML_LOG_LEVEL_ERROR, GGML_LOG_LEVEL_WARN, ggml_backend_buffer_get_base, ggml_gallocr, ggml_gallocr_alloc_graph,
    ggml_gallocr_free, ggml_gallocr_get_buffer_size, ggml_gallocr_new_n, ggml_gallocr_reserve_n, ggml_log_level,
    ggml_log_set, ggml_version,
};
use steeve_graph::{AssignedGraph, Bytes, Id, IdVec, MemoryId, Offset, TensorId};

use crate::memory::{FakeMemory, Sizes};
use crate::mirror::{ClampRule, Mirror, padded};

/// The version of the ggml that is linked.
pub fn version() -> String {
    // SAFETY: a string that ends and lives for ever.
    unsafe { CStr::from_ptr(ggml_version()) }.to_string_lossy().into_owned()
}

/// From now on ggml says what went wrong, and not what it is doing.
pub fn hush() {
    // SAFETY: the function lives for ever, and needs no data.
    unsafe { ggml_log_set(Some(warn), ptr::null_mut()) };
}

unsafe extern "C" fn warn(level: ggml_log_level, text: *const c_char, _: *mut c_void) {
    if matches!(level, GGML_LOG_LEVEL_WARN | GGML_LOG_LEVEL_ERROR) {
        // SAFETY: ggml calls with a string that ends.
        eprint!("{}", unsafe { CStr::from_ptr(text) }.to_string_lossy());
    }
}

/// A graph in ggml, and an allocator for it.
///
/// ```
/// use peer_ggml::{ClampRule, Ggml};
/// use steeve_graph::{AssignedGraph, Bytes, MemoryId};
/// let graph: AssignedGraph = "x = input f32[1024]; a = sqr x; b = neg a; c = add a b !output".parse()?;
/// let mut ggml = Ggml::new(&graph, ClampRule::Linked)?;
/// assert_eq!(ggml.fresh().reserve()?[MemoryId::FIRST], Bytes(2 * 4096));
/// let placed = ggml.fresh().alloc()?;
/// assert_eq!(placed.spot(graph.graph().nodes()[0]).map(|spot| spot.offset.0), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Ggml {
    // In the order in which they must go: the allocator's buffers need the buffer types.
    allocator: Allocator,
    mirror: Mirror,
    memories: usize,
    _memories: Vec<FakeMemory>,
}

/// A graph whose tensors have no addresses yet, as one that was just built.
pub struct Fresh<'a>(&'a mut Ggml);

/// A graph whose tensors have their addresses.
pub struct Placed<'a>(&'a Ggml);

/// Where ggml put a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Which buffer: equal numbers are the same one, and say nothing else.
    pub buffer: usize,
    /// How far from the buffer's start.
    pub offset: Offset,
}

/// Why ggml has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GgmlError {
    /// An operation of another version.
    #[error("tensor {}: this ggml has no operation {name:?}", .tensor.index())]
    UnknownOperation {
        /// The tensor.
        tensor: TensorId,
        /// The operation's name.
        name: Box<str>,
    },
    /// More sources than a tensor of ggml has room for.
    #[error("tensor {} has {sources} sources, and ggml has {slots} slots", .tensor.index())]
    TooManySources {
        /// The tensor.
        tensor: TensorId,
        /// How many it has.
        sources: usize,
        /// How many are possible.
        slots: usize,
    },
    /// More nodes or leafs than ggml can count.
    #[error("{nodes} nodes and {leafs} leafs are more than ggml can count")]
    TooLarge {
        /// How many nodes there are.
        nodes: usize,
        /// How many leafs there are.
        leafs: usize,
    },
    /// A padded size where ggml aborts if it meets one.
    #[error("tensor {} takes more bytes than it spans, which ggml does not allow for {op}", .tensor.index())]
    Expands {
        /// The tensor.
        tensor: TensorId,
        /// Its operation.
        op: Box<str>,
    },
    /// Two memories are one, and a tensor takes other bytes in each.
    #[error("tensor {} takes {size} bytes in memory {} and {other} in the one it shares", .tensor.index(), .memory.index())]
    SharedSizes {
        /// The tensor.
        tensor: TensorId,
        /// The memory that shares another's.
        memory: MemoryId,
        /// What it takes there.
        size: Bytes,
        /// What it takes in the other.
        other: Bytes,
    },
    /// No memory for the graph itself.
    #[error("ggml made no context")]
    NoContext,
    /// ggml answered no.
    #[error("ggml refused to {0} the graph")]
    Refused(&'static str),
}

impl Ggml {
    /// Mirrors a graph and makes an allocator with one buffer type for each of its memories.
    pub fn new(assigned: &AssignedGraph, clamp: ClampRule) -> Result<Self, GgmlError> {
        let mirror = Mirror::new(assigned, clamp)?;
        let sizes = |index: usize| {
            let more = |(id, row): (TensorId, &[Bytes])| row[index] != assigned.graph().tensor(id).nbytes();
            if padded(assigned).any(more) { Sizes::Rows } else { Sizes::Spans }
        };
        let memories: Vec<_> = assigned
            .memories()
            .iter()
            .enumerate()
            .map(|(index, memory)| FakeMemory::new(memory, index, sizes(index)))
            .collect();
        // Memories that share have one buffer type, and so one allocator.
        let owner = |id: MemoryId| memories[assigned.owner(id).index()].as_ptr();
        let mut types: Vec<_> = assigned.memories().ids().map(owner).collect();
        let count = c_int::try_from(types.len()).map_err(|_| GgmlError::NoContext)?;
        // SAFETY: the list is copied; the buffer types are kept as long as the allocator.
        let allocator = NonNull::new(unsafe { ggml_gallocr_new_n(types.as_mut_ptr(), count) });
        let allocator = Allocator(allocator.ok_or(GgmlError::NoContext)?);
        Ok(Self { allocator, mirror, memories: types.len(), _memories: memories })
    }

    /// The graph as if it had just been built. O(tensors).
    pub fn fresh(&mut self) -> Fresh<'_> {
        self.mirror.forget_places();
        Fresh(self)
    }

    /// The bytes of each memory that ggml holds now; none for one that shares another's.
    pub fn sizes(&self) -> IdVec<MemoryId, Bytes> {
        let allocator = self.allocator.0.as_ptr();
        // SAFETY: the allocator has as many buffers as there are memories, and their count fits: it was given as one.
        let size = |index: usize| unsafe { ggml_gallocr_get_buffer_size(allocator, index as c_int) };
        (0..self.memories).map(|index| Bytes(size(index) as u64)).collect()
    }
}

impl Fresh<'_> {
    /// `ggml_gallocr_reserve_n`: plans the graph and makes buffers.
    pub fn reserve(&mut self) -> Result<IdVec<MemoryId, Bytes>, GgmlError> {
        self.plan()?;
        Ok(self.0.sizes())
    }

    /// The same without asking for the sizes.
    pub fn plan(&mut self) -> Result<(), GgmlError> {
        let Ggml { allocator, mirror, .. } = &mut *self.0;
        let (nodes, leafs) = (mirror.node_memories.as_ptr(), mirror.leaf_memories.as_ptr());
        // SAFETY: there is a memory's number for each node and leaf, and a buffer type for each memory. No tensor has a
        // buffer that the allocator may free now.
        let done = unsafe { ggml_gallocr_reserve_n(allocator.0.as_ptr(), mirror.graph(), nodes, leafs) };
        if done { Ok(()) } else { Err(GgmlError::Refused("reserve")) }
    }
}

impl<'a> Fresh<'a> {
    /// `ggml_gallocr_alloc_graph`: gives each tensor its address. With several memories it must have been reserved.
    pub fn alloc(self) -> Result<Placed<'a>, GgmlError> {
        let Ggml { allocator, mirror, .. } = &mut *self.0;
        // SAFETY: no tensor has a buffer but external ones, so whatever ggml frees is not looked at again.
        let done = unsafe { ggml_gallocr_alloc_graph(allocator.0.as_ptr(), mirror.graph()) };
        if done { Ok(Placed(self.0)) } else { Err(GgmlError::Refused("allocate")) }
    }
}

impl Placed<'_> {
    /// Where a tensor stands that ggml knows; also views and external tensors.
    pub fn spot(&self, tensor: TensorId) -> Option<Spot> {
        let (buffer, data) = self.0.mirror.place(tensor);
        if buffer.is_null() {
            return None;
        }
        // SAFETY: the tensor got the buffer from the allocator, or is external; both live as long as `self`.
        let base = unsafe { ggml_backend_buffer_get_base(buffer) };
        Some(Spot { buffer: buffer.addr(), offset: Offset((data.addr().wrapping_sub(base.addr())) as u64) })
    }
}

/// An allocator of ggml's.
struct Allocator(NonNull<ggml_gallocr>);

impl Drop for Allocator {
    fn drop(&mut self) {
        // SAFETY: it is freed only here.
        unsafe { ggml_gallocr_free(self.0.as_ptr()) };
    }
}
