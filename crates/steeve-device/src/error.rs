//! The errors of devices, memories and backends.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use steeve_graph::{Bytes, Graph, Named, Offset, Op, TensorId, Tensors};

/// An error of a device, a memory or a backend.
///
/// Each displays as one line, `thing: what is wrong: expected, got`; an error that caused it is its
/// [`source`](std::error::Error::source) and not part of the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The memory does not have that many bytes left.
    #[error("{memory}: out of memory: requested {asked} bytes{}", available(.left))]
    OutOfMemory {
        /// The name of the buffer type.
        memory: String,
        /// The requested bytes.
        asked: Bytes,
        /// The bytes that are available, if known.
        left: Option<Bytes>,
    },
    /// The memory has no buffers of that size.
    #[error("{memory}: buffer too large: expected at most {max} bytes, got {asked}")]
    TooLarge {
        /// The name of the buffer type.
        memory: String,
        /// The requested bytes.
        asked: Bytes,
        /// The size of the largest buffer.
        max: Bytes,
    },
    /// A buffer is not what its type promises.
    #[error("{memory}: broken promise: expected {promised}, got {given}")]
    Broken {
        /// The name of the buffer type.
        memory: String,
        /// What was promised.
        promised: String,
        /// What the memory returned.
        given: String,
    },
    /// A transfer passes the end of its buffer.
    #[error("{memory}: out of bounds: expected a range within {room} bytes, got {size} bytes at offset {offset}")]
    Outside {
        /// The name of the buffer type.
        memory: String,
        /// The offset at which the range starts.
        offset: Offset,
        /// The bytes of the range.
        size: Bytes,
        /// The bytes of the buffer.
        room: Bytes,
    },
    /// Another run or transfer has borrowed the buffer.
    #[error("{memory}: buffer in use: another run or transfer has borrowed its {size} bytes")]
    InUse {
        /// The name of the buffer type.
        memory: String,
        /// The buffer's size.
        size: Bytes,
    },
    /// The memory of the buffer has been released.
    #[error("{memory}: buffer released: its {size} bytes have been given back")]
    Released {
        /// The name of the buffer type.
        memory: String,
        /// The buffer's size.
        size: Bytes,
    },
    /// The memory can't be written.
    #[error("{memory}: read-only memory")]
    ReadOnly {
        /// The name of the buffer type.
        memory: String,
    },
    /// The buffer has no bytes: its memory only counts them.
    #[error("{memory}: no bytes to read or write: the memory only counts them")]
    NoBytes {
        /// The name of the buffer type.
        memory: String,
    },
    /// The backend has no kernel for a node.
    #[error("{backend}: unsupported node: {node}, {op}: {why}")]
    Unsupported {
        /// The name of the backend.
        backend: String,
        /// The node.
        node: Named,
        /// The operation with types and shapes of sources and result.
        op: String,
        /// What is not supported.
        why: String,
    },
    /// A tensor that a node needs is not located in any buffer.
    #[error("{tensor}: no memory: expected a binding or an allocation")]
    Unplaced {
        /// The tensor.
        tensor: Named,
    },
    /// A result that an operation writes into a source shares bytes with that source, and is not located exactly there.
    #[error("{tensor}: not located in its target: expected the memory of {target}")]
    NotInTarget {
        /// The result.
        tensor: Named,
        /// The source that the operation writes into.
        target: Named,
    },
    /// The run was cancelled.
    #[error("run cancelled: before node {node} of {nodes}")]
    Cancelled {
        /// The first node that did not run.
        node: usize,
        /// The number of nodes of the graph.
        nodes: usize,
    },
    /// The device, its driver or a node failed.
    #[error("{device}: {why}")]
    Failed {
        /// The name of the device or memory.
        device: String,
        /// What went wrong.
        why: String,
    },
    /// A caller's own kernel returned an error, or panicked.
    #[error("{backend}: kernel failed: {node}, {op}")]
    Kernel {
        /// The name of the backend.
        backend: String,
        /// The node.
        node: Named,
        /// The name of its operation.
        op: String,
        /// The error that the kernel returned.
        #[source]
        source: KernelError,
    },
}

/// An error that a caller's own kernel returned, shared by the clones of a [`DeviceError`]. Two are equal if their messages are.
#[derive(Clone, Debug)]
pub struct KernelError(Arc<dyn Error + Send + Sync>);

impl KernelError {
    /// Wraps an error of a kernel.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into().into())
    }

    /// Returns the kernel's own error, for downcasts.
    pub fn get(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for KernelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl PartialEq for KernelError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for KernelError {}

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

    /// Returns [`DeviceError::Unsupported`] for `node` on `backend`, with its operation, types and shapes in words.
    pub fn unsupported(backend: &str, graph: &Graph, node: TensorId, why: impl Into<String>) -> Self {
        let tensors = graph.tensors();
        let layout = |id: TensorId| tensors.get(id).map_or_else(|| String::from("?"), |it| it.layout.to_string());
        let (op, sources): (_, Vec<String>) = match tensors.get(node) {
            Some(it) => {
                let sources = tensors.sources(node).iter().map(|source| source.map_or("-".into(), layout));
                (op_title(tensors, it.op), sources.collect())
            }
            None => ("nothing".into(), Vec::new()),
        };
        let op = format!("{op} of ({}) to {}", sources.join(", "), layout(node));
        Self::Unsupported { backend: backend.into(), node: Named::new(node, graph.names()), op, why: why.into() }
    }
}

/// Returns the name of an operation, such as `add` or `silu`; that of a caller's own in its own case.
pub(crate) fn op_title(tensors: &Tensors, op: Op) -> String {
    let title = tensors.op_title(op);
    if matches!(op, Op::Other(_)) { title.into() } else { title.to_ascii_lowercase() }
}

fn available(left: &Option<Bytes>) -> String {
    left.map_or_else(String::new, |left| format!(", {left} bytes available"))
}
