//! What is wrong with a plan file.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use steeve_plan::file::{FileFault, PlanFileError};
use steeve_plan::{Align, BlockId, BufferId, Bytes, Clipped, Lifetime, Offset, ProblemError, Violation};

use crate::{Fingerprint, Named, NodeOrderError, PlanMismatch, ReplayFault, TensorId};

/// One thing that is wrong with a plan file, or why it is no plan for a graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFault {
    /// It is no plan file.
    #[error(transparent)]
    File(#[from] PlanFileError),
    /// It is the plan of a block list.
    #[error("plan file: names no graph: expected the plan of a graph, got that of a block list")]
    NoGraph,
    /// A word that is not known.
    #[error("{field}: unknown word: expected {known}, got {:?}", Clipped(found))]
    Word {
        /// The field.
        field: &'static str,
        /// What the file says.
        found: String,
        /// What it may say.
        known: &'static str,
    },
    /// Made for a graph with other edges, flags or assignment.
    #[error("plan: made for another graph: expected the fingerprint {graph}, got {plan} (edges, views, flags, external tensors or assignment differ)", plan = Clipped(plan))]
    Fingerprint {
        /// The fingerprint in the file.
        plan: String,
        /// That of the graph.
        graph: Fingerprint,
    },
    /// Other memories.
    #[error("plan: made for other memories: expected [{}], got [{}], matched {by}", Clipped(graph), Clipped(plan))]
    Memories {
        /// The names in the file.
        plan: String,
        /// Those of the graph.
        graph: String,
        /// How they were matched.
        by: MatchMemories,
    },
    /// A memory is another under a second id in the plan and not in the graph, or the other way round.
    #[error("memory {}: shared in another way: expected {graph}, got {plan}", Clipped(memory))]
    Sharing {
        /// The memory's name.
        memory: String,
        /// What the file says.
        plan: String,
        /// What the graph says.
        graph: String,
    },
    /// A memory whose alignment does not divide the plan's.
    #[error("memory {}: alignment beyond the plan's: expected a divisor of {plan}, got {graph}", Clipped(memory))]
    Alignment {
        /// The memory's name.
        memory: String,
        /// The alignment in the file.
        plan: Align,
        /// The memory's.
        graph: Align,
    },
    /// A memory whose extra lifetime is longer than the plan's.
    #[error("memory {}: hold beyond the plan's: expected at most {plan}, got {graph}", Clipped(memory))]
    ExtraLifetime {
        /// The memory's name.
        memory: String,
        /// The extra lifetime in the file, which it calls `hold`.
        plan: u32,
        /// The memory's.
        graph: u32,
    },
    /// A memory whose backend fuses more than the plan keeps to.
    #[error("memory {}: fusion beyond the plan's: expected at most {plan}, got {graph}", Clipped(memory))]
    Fusion {
        /// The memory's name.
        memory: String,
        /// The word in the file.
        plan: &'static str,
        /// The memory's.
        graph: &'static str,
    },
    /// A buffer that is larger than the memory gives out.
    #[error("memory {}: buffer {buffer} too large: expected at most {max_buffer} bytes, got {size}", Clipped(memory))]
    BufferSize {
        /// The memory's name.
        memory: String,
        /// The buffer.
        buffer: usize,
        /// Its size in the file.
        size: Bytes,
        /// The memory's maximum.
        max_buffer: Bytes,
    },
    /// A block without a tensor, or with one that does not exist.
    #[error("memory {}: block {block} ({}) of an unknown tensor: expected one of {tensors} tensors, got {}", Clipped(memory), Clipped(name), tensor.map_or_else(|| String::from("none"), |id| alloc::format!("tensor {id}")))]
    UnknownTensor {
        /// The memory's name.
        memory: String,
        /// The block.
        block: usize,
        /// The block's name.
        name: String,
        /// The tensor that is named.
        tensor: Option<u32>,
        /// How many there are.
        tensors: usize,
    },
    /// A block that follows one that is listed later.
    #[error(
        "memory {}: block {block} ({}) follows a later one: expected a block before it, got block {follows}",
        Clipped(memory),
        Clipped(name)
    )]
    Order {
        /// The memory's name.
        memory: String,
        /// The block.
        block: usize,
        /// The block's name.
        name: String,
        /// The block that it follows.
        follows: BlockId,
    },
    /// A block for what needs none.
    #[error("memory {}: {tensor} has a block and needs none: it is external, a view, or never used", Clipped(memory))]
    Unneeded {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
    },
    /// A tensor has two blocks.
    #[error("memory {}: {tensor} has a second block", Clipped(memory))]
    Duplicate {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
    },
    /// A tensor has no block.
    #[error("{tensor}: no block, and the graph uses it")]
    Unplaced {
        /// The tensor.
        tensor: Named,
    },
    /// A tensor is allocated in a memory that it does not belong to, nor the source it is written over.
    #[error("memory {}: block of {tensor} in a wrong memory: expected memory {}", Clipped(memory), Clipped(belongs_to))]
    Elsewhere {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// The name of the memory it belongs to.
        belongs_to: String,
    },
    /// The memory that decides on the size of a tensor is not one that the tensor may belong to.
    #[error(
        "memory {}: size of {tensor} decided by a wrong memory: expected one that it may belong to, got {}",
        Clipped(memory),
        Clipped(sized_by)
    )]
    SizedBy {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// The memory in the file, or its index.
        sized_by: String,
    },
    /// A block is too small for its tensor.
    #[error("memory {}: block of {tensor} too small: expected at least {needed} bytes, got {size}", Clipped(memory))]
    TooSmall {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// What it needs.
        needed: Bytes,
        /// What it has.
        size: Bytes,
    },
    /// A tensor's offset is not aligned.
    #[error("memory {}: {tensor} misaligned: expected a multiple of {align}, got offset {offset}", Clipped(memory))]
    Misaligned {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// Its offset.
        offset: Offset,
        /// The memory's alignment.
        align: Align,
    },
    /// A tensor passes the end of its buffer.
    #[error(
        "memory {}: {tensor} outside of buffer {buffer}: expected an end within {room} bytes, got {size} bytes at offset {offset}",
        Clipped(memory)
    )]
    Outside {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// Its bytes.
        size: Bytes,
        /// Its offset.
        offset: Offset,
        /// Its buffer.
        buffer: BufferId,
        /// The buffer's bytes.
        room: Bytes,
    },
    /// A tensor in a buffer that does not exist.
    #[error(
        "memory {}: {tensor} in an unknown buffer: expected one of {buffers}, got buffer {buffer}",
        Clipped(memory)
    )]
    NoBuffer {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// Its buffer.
        buffer: BufferId,
        /// How many there are.
        buffers: usize,
    },
    /// The blocks of a memory are no problem that could have a plan.
    #[error("memory {}: its blocks can't be planned", Clipped(memory))]
    Problem {
        /// The memory's name.
        memory: String,
        /// The cause.
        #[source]
        error: ProblemError,
    },
    /// Two blocks of a memory overlap while both are live, or a block is where it can't be.
    #[error("memory {}: {}", Clipped(memory), invalid(tensors, violation.as_ref().as_ref()))]
    Invalid {
        /// The memory's name.
        memory: String,
        /// The tensors of the blocks.
        tensors: Vec<Named>,
        /// What is wrong.
        violation: Box<Option<Violation>>,
    },
    /// A block has another live range than its tensor.
    #[error("memory {}: live range of {tensor} wrong: expected {needed}, got {found}", Clipped(memory))]
    Lifetime {
        /// The memory's name.
        memory: String,
        /// The tensor.
        tensor: Named,
        /// The live range, unless the last reader takes the bytes over.
        needed: Lifetime,
        /// What the file says.
        found: Lifetime,
    },
    /// A node is computed in place of a source that it may not overwrite.
    #[error(
        "{tensor}: computed in place of its source in slot {slot}, {overwritten}, which {} may not with reuse {reuse}",
        Clipped(operation)
    )]
    InPlace {
        /// The plan's reuse.
        reuse: &'static str,
        /// The node.
        tensor: Named,
        /// The slot of the source.
        slot: usize,
        /// The tensor whose bytes it overwrites.
        overwritten: Named,
        /// The node's operation.
        operation: String,
    },
    /// A figure does not agree with the blocks.
    #[error("memory {}: wrong figure", Clipped(memory))]
    Figure {
        /// The memory's name.
        memory: String,
        /// Which, and what it is.
        #[source]
        fault: FileFault,
    },
    /// The order in which the plan runs is none of the graph's nodes.
    #[error(transparent)]
    NodeOrder(#[from] NodeOrderError),
    /// In the order in which the plan runs, a node comes before one that it must wait for, or leaves the nodes of its memory.
    #[error(
        "node order: node {position} ({node}) overtakes node {other_position} ({other}), which must stay before it"
    )]
    Overtakes {
        /// The node.
        node: Named,
        /// Its position in the graph's own order.
        position: usize,
        /// The one that it must not overtake.
        other: Named,
        /// The position of that one.
        other_position: usize,
    },
    /// The plan does not fit the graph.
    #[error(transparent)]
    Mismatch(#[from] PlanMismatch),
    /// Something is overwritten, or lost, when the graph runs at these addresses.
    #[error(transparent)]
    Replay(Box<ReplayFault>),
}

impl PlanFault {
    /// Returns one word for it, which does not change between versions.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::NoGraph | Self::Fingerprint { .. } | Self::Mismatch(_) => "other-graph",
            Self::Word { .. } => "word",
            Self::Memories { .. } | Self::Sharing { .. } => "memories",
            Self::Alignment { .. } => "alignment",
            Self::ExtraLifetime { .. } => "hold",
            Self::Fusion { .. } => "fusion",
            Self::BufferSize { .. } => "buffer-size",
            Self::UnknownTensor { .. } => "unknown",
            Self::Order { .. } => "order",
            Self::Unneeded { .. } => "needless",
            Self::Duplicate { .. } => "twice",
            Self::Unplaced { .. } => "unplaced",
            Self::Elsewhere { .. } | Self::SizedBy { .. } => "elsewhere",
            Self::TooSmall { .. } => "too-small",
            Self::Misaligned { .. } => "misaligned",
            Self::Outside { .. } | Self::NoBuffer { .. } => "outside",
            Self::Problem { .. } | Self::Invalid { .. } => "overlap",
            Self::Lifetime { .. } => "live-range",
            Self::InPlace { .. } => "in-place",
            Self::Figure { .. } => "figure",
            Self::NodeOrder(_) | Self::Overtakes { .. } => "node-order",
            Self::Replay(fault) => match **fault {
                ReplayFault::Overwritten { .. } => "overwritten",
                ReplayFault::Fusion { .. } => "fusion",
                ReplayFault::Lost { .. } => "lost",
                ReplayFault::InPlace { .. } => "in-place",
                ReplayFault::Unplaced { .. } => "unplaced",
                ReplayFault::Unwritten { .. } => "unwritten",
                ReplayFault::InitialOverlap { .. } => "both-before",
                ReplayFault::Place { .. } => "outside",
                ReplayFault::Reordered { .. } | ReplayFault::Order(_) => "node-order",
            },
        }
    }

    /// Returns the tensors that it is about.
    pub fn tensors(&self) -> Vec<TensorId> {
        match self {
            Self::Unneeded { tensor, .. }
            | Self::Duplicate { tensor, .. }
            | Self::Unplaced { tensor }
            | Self::Elsewhere { tensor, .. }
            | Self::SizedBy { tensor, .. }
            | Self::TooSmall { tensor, .. }
            | Self::Misaligned { tensor, .. }
            | Self::Outside { tensor, .. }
            | Self::NoBuffer { tensor, .. }
            | Self::Lifetime { tensor, .. } => [tensor.id].into(),
            Self::InPlace { tensor, overwritten, .. } => [tensor.id, overwritten.id].into(),
            Self::Invalid { tensors, .. } => tensors.iter().map(|it| it.id).collect(),
            Self::Replay(fault) => fault.tensor().map(|tensor| tensor.id).into_iter().collect(),
            Self::Overtakes { node, other, .. } => [node.id, other.id].into(),
            _ => Vec::new(),
        }
    }
}

/// How the memories of a plan file are matched with those of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatchMemories {
    /// By their names; memories of one name in their order.
    #[default]
    ByName,
    /// By their order, whatever they are called: the same kind of device may have another name elsewhere.
    ByOrder,
}

impl core::fmt::Display for MatchMemories {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::ByName => "by name",
            Self::ByOrder => "by order",
        })
    }
}

/// Returns a violation with tensors for blocks, and a node for the step.
fn invalid(tensors: &[Named], violation: Option<&Violation>) -> String {
    match (violation, tensors) {
        (Some(Violation::Overlap { buffer, offset, step, .. }), [one, other]) => {
            let when = match step.0.checked_sub(1) {
                Some(node) => alloc::format!("at node {node}"),
                None => "before the run".to_owned(),
            };
            alloc::format!("{one} and {other} share byte {offset} of buffer {buffer} while both are live, {when}")
        }
        (Some(violation), tensors) => {
            let names: Vec<String> = tensors.iter().map(ToString::to_string).collect();
            if names.is_empty() { violation.to_string() } else { alloc::format!("{violation} ({})", names.join(", ")) }
        }
        (None, _) => "the blocks are no plan".to_owned(),
    }
}
