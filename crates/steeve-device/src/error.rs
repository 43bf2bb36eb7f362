//! What devices refuse.

use steeve_graph::{Bytes, Graph, Named, Offset, TensorId};

/// Why a device did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is not so much memory left.
    #[error("{memory} has no {asked} bytes{}", left_over(.left))]
    OutOfMemory {
        /// The buffer type.
        memory: String,
        /// How many bytes were asked for.
        asked: Bytes,
        /// How many there are, where that is known.
        left: Option<Bytes>,
    },
    /// No buffer may be so large.
    #[error("{memory} gives out buffers of at most {max} bytes, and {asked} were asked for")]
    TooLarge {
        /// The buffer type.
        memory: String,
        /// How many bytes were asked for.
        asked: Bytes,
        /// The largest buffer.
        max: Bytes,
    },
    /// The device made a buffer that is not what its type promises.
    #[error("{memory} promised {promised}, and gave {given}")]
    Broken {
        /// The buffer type.
        memory: String,
        /// What was promised.
        promised: String,
        /// What came.
        given: String,
    },
    /// A transfer passes the end of its buffer.
    #[error("{size} bytes at offset {offset} pass the end of a buffer of {memory}, which has {room} bytes")]
    Outside {
        /// The buffer type.
        memory: String,
        /// Where the transfer starts.
        offset: Offset,
        /// How many bytes it has.
        size: Bytes,
        /// How many the buffer has.
        room: Bytes,
    },
    /// Somebody else has borrowed the buffer.
    #[error("a buffer of {memory} with {size} bytes is in use by another run or transfer")]
    InUse {
        /// The buffer type.
        memory: String,
        /// The buffer's size.
        size: Bytes,
    },
    /// The memory of the buffer has been given back.
    #[error("the memory of a buffer of {memory} with {size} bytes has been given back")]
    Released {
        /// The buffer type.
        memory: String,
        /// The buffer's size.
        size: Bytes,
    },
    /// The memory can't be written.
    #[error("{memory} is read only")]
    ReadOnly {
        /// The buffer type.
        memory: String,
    },
    /// There are no bytes behind the buffer.
    #[error("{memory} only counts bytes: there is nothing to read or write")]
    NoBytes {
        /// The buffer type.
        memory: String,
    },
    /// The backend can't run a node.
    #[error("{backend} can't run {node}, {op}: {why}")]
    Unsupported {
        /// The backend.
        backend: String,
        /// The node.
        node: Named,
        /// Its operation with the types and shapes.
        op: String,
        /// What is missing.
        why: String,
    },
    /// A tensor that a node needs stands nowhere.
    #[error("{tensor} has no memory")]
    Unplaced {
        /// The tensor.
        tensor: Named,
    },
    /// The run was cancelled.
    #[error("the run was cancelled before node {node} of {nodes}")]
    Cancelled {
        /// The first node that did not run.
        node: usize,
        /// How many there are.
        nodes: usize,
    },
    /// The device or its driver failed.
    #[error("{device}: {why}")]
    Failed {
        /// The device or the memory.
        device: String,
        /// What it said.
        why: String,
    },
}

impl DeviceError {
    /// Checks that `size` bytes at `offset` lie within a buffer of `room` bytes.
    ///
    /// # Errors
    ///
    /// [`Outside`](Self::Outside) with `memory`, the name of the buffer's type, if the range passes the end of the buffer or
    /// 2^64.
    pub fn check_bounds(memory: &str, offset: Offset, size: Bytes, room: Bytes) -> Result<(), Self> {
        match offset.checked_add(size) {
            Some(end) if end.0 <= room.0 => Ok(()),
            _ => Err(Self::Outside { memory: memory.into(), offset, size, room }),
        }
    }

    /// `backend` can't run `node`: [`DeviceError::Unsupported`] with the operation, types and shapes in words.
    pub fn unsupported(backend: &str, graph: &Graph, node: TensorId, why: impl Into<String>) -> Self {
        let tensors = graph.tensors();
        let layout = |id: TensorId| tensors.get(id).map_or_else(|| String::from("?"), |it| it.layout.to_string());
        let (op, sources): (_, Vec<String>) = match tensors.get(node) {
            Some(it) => {
                let sources = tensors.sources(node).iter().map(|source| source.map_or("-".into(), layout));
                (tensors.op_title(it.op).to_ascii_lowercase(), sources.collect())
            }
            None => ("nothing".into(), Vec::new()),
        };
        let op = format!("{op} of ({}) to {}", sources.join(", "), layout(node));
        Self::Unsupported { backend: backend.into(), node: Named::new(node, graph.names()), op, why: why.into() }
    }
}

fn left_over(left: &Option<Bytes>) -> String {
    left.map_or_else(|| String::from(" left"), |left| format!(" left, only {left}"))
}
