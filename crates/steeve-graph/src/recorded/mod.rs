//! Graphs recorded from ggml (`galloc-dump-1`): what its allocator was asked, and what it answered.
//!
//! ```
//! use steeve_graph::{Bytes, MemoryId, RecordedGraph};
//! let json = r#"{"schema":"galloc-dump-1","tag":"tiny",
//!     "buffers":[{"name":"CPU","alignment":32,"max_size":18446744073709551615,"shared_with":0,"chunks":[64]}],
//!     "leafs":[[0,0]],"nodes":[[1,0]],
//!     "tensors":[
//!     {"id":0,"name":"x","op":"NONE","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":1,"nbytes":32,
//!      "alloc_size":[32],"res":{"buffer_id":0,"chunk":0,"offset":0,"size_max":32}},
//!     {"id":1,"name":"y","op":"UNARY","desc":"NEG","type":"f32","ne":[8,1,1,1],"nb":[4,32,32,32],"flags":2,"nbytes":32,
//!      "src":[0],"alloc_size":[32],"res":{"buffer_id":0,"chunk":0,"offset":32,"size_max":32}}]}"#;
//! let recorded = RecordedGraph::from_json(json)?;
//! let graph = recorded.assigned.graph();
//! assert_eq!(graph.name(graph.nodes()[0]), "y");
//! assert_eq!(recorded.placement.chunks[MemoryId::FIRST], [Bytes(64)]);
//! assert_eq!(RecordedGraph::from_json(&recorded.to_json())?, recorded);
//! # Ok::<(), steeve_graph::RecordError>(())
//! ```

mod read;
mod schema;
mod write;

pub use schema::SCHEMA;

use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Clipped, IdVec, InputLimit, InputTooLarge, Offset};

use crate::{AssignedGraph, DataType, Fusion, GraphError, MemoryId, TensorId};
use steeve_plan::file::JsonMessage;

/// A recorded graph.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedGraph {
    /// The graph, its memories and which of them each leaf and node belongs to.
    pub assigned: AssignedGraph,
    /// Whether nodes of each memory are computed by a CPU alone; `None` where the record does not say.
    pub hosts: IdVec<MemoryId, Option<bool>>,
    /// What was kept for the backend of each memory when the graph was planned; `None` where the record does not say. The
    /// memories of the graph itself keep nothing.
    pub needs: IdVec<MemoryId, Option<BackendNeeds>>,
    /// Where ggml put the tensors.
    pub placement: RecordedPlacement,
    /// The id of each tensor in the record; none for the substitutes of tensors that are outside of it.
    ///
    /// A source that the record does not describe is an external tensor of no bytes here; a root that it does not
    /// describe is one as large as the view needs.
    pub ids: IdVec<TensorId, Option<u64>>,
    /// What each tensor had before planning.
    pub prior: IdVec<TensorId, PriorAllocation>,
    /// The names of the buffer types that [`PriorAllocation::buffer_type`] means.
    pub buffer_types: Vec<String>,
    /// What else was noted.
    pub notes: RecordingNotes,
}

/// What plans keep for the backend of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendNeeds {
    /// The nodes for which a tensor stays after its last reader, see
    /// [`Memory::extra_lifetime`](crate::Memory::extra_lifetime).
    pub extra_lifetime: u32,
    /// Whether the backend fuses nodes, see [`Memory::fusion`](crate::Memory::fusion).
    pub fusion: Fusion,
}

/// What ggml's allocator answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedPlacement {
    /// Where each tensor is located; nothing for views and external tensors.
    pub places: IdVec<TensorId, Option<RecordedPlace>>,
    /// The size of each chunk of each memory. A memory that is another under a second id repeats its chunks.
    pub chunks: IdVec<MemoryId, Vec<Bytes>>,
}

/// Where ggml put one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPlace {
    /// In which memory: its own, or that of the source it is written over.
    pub memory: MemoryId,
    /// In which piece of it.
    pub chunk: u32,
    /// How far from the start of the piece.
    pub offset: Offset,
    /// How many bytes it may take there.
    pub size_max: Bytes,
}

/// What a tensor had before it was planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorAllocation {
    /// ggml's bits: 1 for an address, 2 for a buffer.
    pub bits: u8,
    /// Which of [`RecordedGraph::buffer_types`] its buffer was of.
    pub buffer_type: Option<u32>,
}

/// Notes of the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordingNotes {
    /// What was recorded.
    pub tag: String,
    /// Whether the program needed sizes only.
    pub no_alloc: Option<bool>,
    /// The longest free list ggml had.
    pub max_free_blocks: Option<u64>,
    /// How many views were made in place.
    pub n_view_inplace: Option<u64>,
    /// ggml's own times.
    pub time_us: Option<GgmlTimes>,
}

/// ggml's own times in microseconds, the least of several repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct GgmlTimes {
    /// Planning alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<f64>,
    /// Planning and making buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<f64>,
    /// Asking whether the plan still fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs_realloc: Option<f64>,
    /// Giving each tensor its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_graph: Option<f64>,
    /// How many repeats there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reps: Option<u64>,
    /// How many runs of the program there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
}

impl RecordedGraph {
    /// Reads a recorded graph, and checks it.
    ///
    /// # Errors
    ///
    /// If the text is no recorded graph, or has more than [`InputLimit::DEFAULT`] bytes.
    pub fn from_json(json: &str) -> Result<Self, RecordError> {
        Self::from_json_within(json, InputLimit::DEFAULT)
    }

    /// Reads a recorded graph of at most `limit` bytes, and checks it, as [`RecordedGraph::from_json`] does with the default
    /// limit.
    pub fn from_json_within(json: &str, limit: InputLimit) -> Result<Self, RecordError> {
        limit.check(json.len())?;
        read::read(serde_json::from_str(json)?)
    }

    /// Reads a recorded graph from bytes, which must be UTF-8 and at most [`InputLimit::DEFAULT`](crate::InputLimit::DEFAULT) of them.
    pub fn from_json_bytes(json: &[u8]) -> Result<Self, RecordError> {
        InputLimit::DEFAULT.check(json.len())?;
        read::read(serde_json::from_slice(json)?)
    }

    /// Writes it with the same schema. Reading that gives the same again.
    pub fn to_json(&self) -> String {
        write::write(self)
    }
}

/// Why a file is no recorded graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is no JSON, or a field is missing or of another kind.
    #[error("recorded graph: no such JSON: expected the schema galloc-dump-1")]
    Json(#[source] RecordJsonError),
    /// A text that is longer than is read.
    #[error(transparent)]
    InputTooLarge(#[from] InputTooLarge),
    /// It says that it is something else.
    #[error("schema: unknown: expected \"galloc-dump-1\", got {:?}", Clipped(found))]
    Schema {
        /// What it says.
        found: String,
    },
    /// Two tensors have one id.
    #[error("tensors: two have the id {id}")]
    SameId {
        /// The id.
        id: u64,
    },
    /// An id that no tensor has.
    #[error("{place}: unknown tensor: expected one of the record, got {id}")]
    UnknownId {
        /// Where it is named.
        place: RecordLocation,
        /// The id it names.
        id: i64,
    },
    /// A buffer that is not in the record.
    #[error("{place}: unknown buffer: expected one of {buffers}, got {buffer}")]
    UnknownBuffer {
        /// Where it is named.
        place: RecordLocation,
        /// The buffer it names.
        buffer: i64,
        /// How many there are.
        buffers: usize,
    },
    /// A field of a tensor that makes no sense.
    #[error("tensor {id} ({}): {fault}", Clipped(name))]
    Tensor {
        /// Its id in the record.
        id: u64,
        /// Its name.
        name: String,
        /// What is wrong.
        fault: RecordedTensorFault,
    },
    /// A buffer's alignment that is no power of two.
    #[error("buffer {buffer}: wrong alignment")]
    Align {
        /// Which buffer.
        buffer: usize,
        /// What is wrong.
        #[source]
        error: steeve_plan::UnitError,
    },
    /// The parts do not fit together.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// What a JSON reader says of a record, on one line and of limited length.
#[derive(Debug, thiserror::Error)]
#[error("{}", JsonMessage(.0))]
pub struct RecordJsonError(serde_json::Error);

impl From<serde_json::Error> for RecordError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(RecordJsonError(error))
    }
}

/// A position in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordLocation {
    /// An entry of `leafs`.
    Leaf(usize),
    /// An entry of `nodes`.
    Node(usize),
    /// An entry of `buffers`.
    Buffer(usize),
    /// The sources of the tensor with this id.
    Source(u64),
    /// The root of the tensor with this id.
    ViewSource(u64),
    /// ggml's answer for the tensor with this id.
    Placement(u64),
}

impl core::fmt::Display for RecordLocation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Leaf(index) => write!(f, "leaf {index}"),
            Self::Node(index) => write!(f, "node {index}"),
            Self::Buffer(index) => write!(f, "buffer {index}"),
            Self::Source(id) => write!(f, "a source of tensor {id}"),
            Self::ViewSource(id) => write!(f, "the view source of tensor {id}"),
            Self::Placement(id) => write!(f, "the placement of tensor {id}"),
        }
    }
}

/// What is wrong with a tensor of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordedTensorFault {
    /// A type that ggml did not have.
    #[error("type unknown: expected a name of ggml's, got {:?}", Clipped(.0))]
    Type(String),
    /// A layout that no tensor can have.
    #[error(transparent)]
    Layout(#[from] crate::LayoutError),
    /// The record says another number of bytes than type, shape and strides do.
    #[error("nbytes wrong: expected {computed} for {dtype}{ne:?} with strides {nb:?}, got {recorded}")]
    Bytes {
        /// What the record says.
        recorded: u64,
        /// What the layout says.
        computed: Bytes,
        /// The type.
        dtype: DataType,
        /// The shape.
        ne: [u64; 4],
        /// The strides.
        nb: [u64; 4],
    },
    /// An offset without a root, or a root without an offset.
    #[error("half a view: expected view_src and view_offs, got one of them")]
    HalfView,
    /// A chunk that can't be counted.
    #[error("chunk out of range: got {0}")]
    Chunk(i64),
}
