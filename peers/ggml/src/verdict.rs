//! Whether ggml's answer is the one that `steeve_graph::ggml_placement` gives: sizes of memories, and every tensor's place.

use std::collections::HashMap;
use std::fmt;

use steeve_graph::{AssignedGraph, Bytes, GraphPlanError, Id, MemoryId, Offset, ggml_placement};

use crate::ggml::{Ggml, GgmlError};
use crate::mirror::ClampRule;

/// What the two say about one graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The bytes of all memories, as ggml has them.
    pub ggml: Bytes,
    /// Everything that is not equal: sizes first, then places in the order of the tensors.
    pub differences: Vec<Difference>,
}

/// Something that is not equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The bytes of a memory.
    Size {
        /// Its name.
        memory: String,
        /// What ggml takes.
        ggml: Bytes,
        /// What we say that ggml takes.
        ours: Bytes,
    },
    /// The place of a tensor, as offset in some buffer.
    Place {
        /// The tensor's index.
        tensor: usize,
        /// Its name.
        name: String,
        /// Where ggml put it.
        ggml: Option<Offset>,
        /// Where we say that ggml puts it.
        ours: Option<Offset>,
    },
}

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// ggml has no answer.
    #[error(transparent)]
    Ggml(#[from] GgmlError),
    /// We have none.
    #[error(transparent)]
    Ours(#[from] GraphPlanError),
}

impl Verdict {
    /// Whether all sizes and places are equal.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// Whether the memories have equal sizes.
    pub fn sizes_are_equal(&self) -> bool {
        !self.differences.iter().any(|it| matches!(it, Difference::Size { .. }))
    }

    /// How many tensors stand somewhere else.
    pub fn moved(&self) -> usize {
        self.differences.iter().filter(|it| matches!(it, Difference::Place { .. })).count()
    }
}

/// Plans a graph with ggml, and compares.
///
/// ```
/// use peer_ggml::{ClampRule, verdict};
/// let graph = "x = input f32[64]; y = sqr x; z = add x y !output".parse()?;
/// assert!(verdict(&graph, ClampRule::Linked)?.is_equal());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verdict(assigned: &AssignedGraph, clamp: ClampRule) -> Result<Verdict, Failure> {
    let ours = ggml_placement(assigned)?;
    let mut ggml = Ggml::new(assigned, clamp)?;
    let sizes = ggml.fresh().reserve()?;
    let mut differences = Vec::new();
    for (memory, size) in sizes.pairs() {
        let chunks = Bytes(ours.chunks[memory].iter().map(|chunk| chunk.0).sum());
        if *size != chunks {
            let memory = assigned.memories()[memory].name.clone();
            differences.push(Difference::Size { memory, ggml: *size, ours: chunks });
        }
    }
    let placed = ggml.fresh().alloc()?;
    let mut pairs = Pairs::default();
    for (id, tensor) in assigned.graph().tensors().pairs().filter(|(_, tensor)| tensor.is_planned()) {
        let (theirs, our) = (placed.spot(id), ours.places[id]);
        let equal = match (theirs, our) {
            (Some(theirs), Some(our)) => {
                let buffer = (assigned.owner(our.memory), our.place.buffer.index());
                // A memory without bytes has no buffer that could be told from another.
                let same = tensor.nbytes() == Bytes::ZERO || pairs.are_one(theirs.buffer, buffer);
                same && theirs.offset == our.place.offset
            }
            (None, None) => true,
            _ => false,
        };
        if !equal {
            let (ggml, ours) = (theirs.map(|it| it.offset), our.map(|it| it.place.offset));
            let name = assigned.graph().name(id).into();
            differences.push(Difference::Place { tensor: id.index(), name, ggml, ours });
        }
    }
    Ok(Verdict { ggml: Bytes(sizes.iter().map(|size| size.0).sum()), differences })
}

/// Which of ggml's buffers is which of ours: one for one, whatever their names.
#[derive(Default)]
struct Pairs {
    of_ggml: HashMap<usize, (MemoryId, usize)>,
    of_ours: HashMap<(MemoryId, usize), usize>,
}

impl Pairs {
    fn are_one(&mut self, theirs: usize, ours: (MemoryId, usize)) -> bool {
        *self.of_ggml.entry(theirs).or_insert(ours) == ours && *self.of_ours.entry(ours).or_insert(theirs) == theirs
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |offset: &Option<Offset>| offset.map_or("nowhere".into(), |it| it.0.to_string());
        match self {
            Self::Size { memory, ggml, ours } => {
                write!(f, "memory {memory} has {} bytes in ggml and {} in our answer", ggml.0, ours.0)
            }
            Self::Place { tensor, name, ggml, ours } => {
                write!(
                    f,
                    "tensor {tensor} ({name}) stands at {} in ggml and at {} in our answer",
                    shown(ggml),
                    shown(ours)
                )
            }
        }
    }
}
