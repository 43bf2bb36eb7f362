//! What can be wrong with a tensor, a graph or an assignment, with the evidence.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use steeve_plan::{Bytes, Clipped};

use crate::{Layout, LayoutError, MemoryId, Names, OrderFault, ShapeError, TensorId};

/// A tensor in an error: its id, and its name if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Which tensor.
    pub id: TensorId,
    /// Its name, or an empty one.
    pub name: Box<str>,
    /// Whether the name is all that the caller knows of it.
    is_keyed: bool,
}

impl Named {
    /// Returns a tensor with the name that it has in `names`.
    pub fn new(id: TensorId, names: &Names) -> Self {
        Self { id, name: names.get(id).into(), is_keyed: names.is_keyed() }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "tensor {}", self.id)
        } else if self.is_keyed {
            write!(f, "tensor {}", Clipped(&self.name))
        } else {
            write!(f, "tensor {} ({})", self.id, Clipped(&self.name))
        }
    }
}

/// Displays an error and its causes on one line: `message: cause: cause`.
///
/// Messages of this crate do not repeat their causes, which are in [`source`](core::error::Error::source).
///
/// ```
/// use steeve_graph::{AssignedGraph, ErrorChain, PlanOptions, plan_graph};
/// let graph: AssignedGraph = "x = input i8[9223372036854775808]; y = sqr x; z = add x y !output".parse()?;
/// let error = plan_graph(&graph, &PlanOptions::default()).unwrap_err();
/// assert_eq!(error.to_string(), "memory memory: its tensors can't be planned");
/// assert!(ErrorChain(&error).to_string().starts_with("memory memory: its tensors can't be planned: "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ErrorChain<'a>(pub &'a (dyn core::error::Error + 'a));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// What an operation was applied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperandLayouts(pub Vec<Option<(Box<str>, Layout)>>);

impl fmt::Display for OperandLayouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operand) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match operand {
                Some((name, layout)) if name.is_empty() => write!(f, "{comma}{layout}")?,
                Some((name, layout)) => write!(f, "{comma}{} {layout}", Clipped(name))?,
                None => write!(f, "{comma}-")?,
            }
        }
        Ok(())
    }
}

/// Why a tensor can't be built, or why parts are no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// More tensors or sources than can be numbered.
    #[error("tensors: too many: expected fewer than 2^32, and sources likewise, got {tensors} tensors")]
    TooMany {
        /// How many there are.
        tensors: usize,
    },
    /// An id that is not, or no longer, in the context.
    #[error("tensor {tensor}: unknown: expected one of {tensors} tensors, some of which may have been rewound")]
    Unknown {
        /// The id that was given.
        tensor: TensorId,
        /// How many tensors there are.
        tensors: usize,
    },
    /// An id of another context or graph, or from before a rewind.
    #[error(
        "tensor {tensor}: foreign id: expected one of this context or graph, got one of another or from before a rewind"
    )]
    Foreign {
        /// The id that was given.
        tensor: TensorId,
    },
    /// The operation does not fit its sources.
    #[error("{op} of ({operands}): {reason}", op = Clipped(op))]
    Shape {
        /// The operation.
        op: String,
        /// What it was applied to.
        operands: OperandLayouts,
        /// What it wanted.
        reason: ShapeError,
    },
    /// An operation whose rule is not known can't be applied.
    #[error("{op}: no shape rule: expected a result that is given by hand", op = Clipped(op))]
    NoRule {
        /// The operation.
        op: String,
    },
    /// An operation of the caller's does not fit its sources.
    #[error("{op} of ({operands}): {reason}", op = Clipped(op))]
    CustomShape {
        /// The operation.
        op: String,
        /// What it was applied to.
        operands: OperandLayouts,
        /// What its rule says.
        reason: String,
    },
    /// A name that an operation of the caller's can't have.
    #[error(
        "operation \"{name}\": the name can't be used: expected one that is not empty and not in the table of operations",
        name = Clipped(name)
    )]
    CustomName {
        /// The name.
        name: String,
    },
    /// A shape that no tensor can have.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A view that ends behind its root.
    #[error("{tensor}: view outside of {root}: expected at most {room} bytes, got {bytes} at offset {offset}")]
    ViewOutside {
        /// The view, or what it is made from.
        tensor: Named,
        /// Where it starts in the root.
        offset: Bytes,
        /// How many bytes it spans.
        bytes: Bytes,
        /// The tensor that owns the memory.
        root: Named,
        /// How many bytes that has.
        room: Bytes,
    },
    /// A root must own memory.
    #[error("{tensor}: view of a view: expected a root that owns memory, got {root}")]
    ViewOfView {
        /// The view.
        tensor: Named,
        /// What it names as its root.
        root: Named,
    },
    /// A view of a tensor that does not exist.
    #[error("{tensor}: unknown root: expected one of {tensors} tensors, got tensor {root}")]
    UnknownRoot {
        /// The view.
        tensor: Named,
        /// What it names as its root.
        root: TensorId,
        /// How many tensors there are.
        tensors: usize,
    },
    /// A source that does not exist.
    #[error("{tensor}: unknown source in slot {slot}: expected one of {tensors} tensors, got tensor {source_id}")]
    UnknownSource {
        /// The reader.
        tensor: Named,
        /// In which slot.
        slot: usize,
        /// The source it names.
        source_id: TensorId,
        /// How many tensors there are.
        tensors: usize,
    },
    /// A node that is in the node order twice: it would run twice, and its readers in between would see either result.
    #[error("{node}: listed twice, as node {first} and as node {second}")]
    ListedTwice {
        /// The node.
        node: Named,
        /// Its first position.
        first: usize,
        /// Its second position.
        second: usize,
    },
    /// A node that reads or changes bytes before they are written.
    #[error("{0}: expected sources that are written before it")]
    Order(Box<OrderFault>),
    /// Only a root can be external.
    #[error("{tensor}: a view can't be external: expected its root, {root}")]
    ExternalView {
        /// The view.
        tensor: Named,
        /// The tensor that owns the memory.
        root: Named,
    },
    /// A mark of another context, or one that a rewind has passed already.
    #[error(
        "mark: not of this context, or from before a rewind: expected one behind at most {tensors} tensors, got one behind {mark}"
    )]
    Mark {
        /// How many tensors there were at the mark.
        mark: usize,
        /// How many there are.
        tensors: usize,
    },
    /// A graph can be extended only from the context it was made from.
    #[error(
        "{tensor}: another tensor in this context than in the graph: expected the context that the graph was made from"
    )]
    OtherContext {
        /// The first tensor that differs.
        tensor: Named,
    },
    /// An assignment for another graph.
    #[error("assignment: wrong number of {list}: expected {wanted}, got {given}")]
    AssignmentLength {
        /// `nodes` or `leafs`.
        list: &'static str,
        /// How many the assignment has.
        given: usize,
        /// How many the graph has.
        wanted: usize,
    },
    /// There must be at least one memory.
    #[error("memories: none are given: expected at least one")]
    NoMemory,
    /// A memory that does not exist.
    #[error("memory {memory}: unknown: expected one of {memories} memories")]
    UnknownMemory {
        /// The memory that is named.
        memory: MemoryId,
        /// How many there are.
        memories: usize,
    },
    /// A memory must share with an earlier one that does not share itself.
    #[error("memory {memory}: can't share with memory {with}: expected an earlier one that shares with no other")]
    SharedMemory {
        /// The memory that is to share the other's.
        memory: MemoryId,
        /// The one it names.
        with: MemoryId,
    },
    /// Sizes for another number of memories.
    #[error("tensor {tensor}: wrong number of sizes: expected one for each of {memories} memories, got {given}")]
    SizesLength {
        /// The tensor.
        tensor: TensorId,
        /// How many sizes were given.
        given: usize,
        /// How many memories there are.
        memories: usize,
    },
    /// A tensor would get less memory than it spans.
    #[error("tensor {tensor}: size too small: expected at least {bytes} bytes, got {size}")]
    SizeTooSmall {
        /// The tensor.
        tensor: TensorId,
        /// What it spans.
        bytes: Bytes,
        /// What it would get.
        size: Bytes,
    },
}
