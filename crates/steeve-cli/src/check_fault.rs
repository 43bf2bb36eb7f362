//! One thing that is wrong with a plan: a sentence for people, and a word and ids for programs.

use serde::Serialize;
use steeve_plan::{BlockId, Bytes, IdVec, Violation};

use crate::fault_text;
use crate::peak_step::LiveAtPeak;

/// One thing that is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CheckFault {
    /// One word, which does not change; docs/command-line.md lists all of them.
    kind: &'static str,
    /// The blocks of a list that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<String>,
    /// The tensors of a graph that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tensors: Vec<u64>,
    /// The memory that it is about, where it is about one as a whole.
    #[serde(flatten)]
    memory: Option<Box<CapacityExcess>>,
    message: String,
}

/// A memory above its capacity, and the largest of what is alive at its peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CapacityExcess {
    pub(crate) memory: String,
    pub(crate) bytes: Bytes,
    pub(crate) capacity: Bytes,
    pub(crate) alive: Vec<LiveAtPeak>,
}

impl CheckFault {
    /// Makes a fault of the plan as a whole.
    pub(crate) fn new(kind: &'static str, message: String) -> Self {
        Self { kind, blocks: Vec::new(), tensors: Vec::new(), memory: None, message }
    }

    /// Makes a fault of one memory, with the largest tensors or blocks that are alive at its peak.
    pub(crate) fn of_memory(kind: &'static str, memory: CapacityExcess, message: String) -> Self {
        Self { memory: Some(Box::new(memory)), ..Self::new(kind, message) }
    }

    pub(crate) fn of_block(kind: &'static str, block: &str, message: String) -> Self {
        Self { blocks: vec![block.to_owned()], ..Self::new(kind, message) }
    }

    /// Makes a fault of some tensors. Stand-ins for tensors that a record does not describe have no id.
    pub(crate) fn of_tensors(
        kind: &'static str,
        tensors: impl IntoIterator<Item = Option<u64>>,
        message: String,
    ) -> Self {
        Self { tensors: tensors.into_iter().flatten().collect(), ..Self::new(kind, message) }
    }

    pub(crate) fn of_violation(violation: &Violation, ids: &IdVec<BlockId, String>) -> Self {
        let blocks = violation.blocks().filter_map(|block| ids.get(block).cloned()).collect();
        Self { blocks, ..Self::new(violation.kind(), fault_text::violation(violation, ids)) }
    }

    /// Returns the sentence for people.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}
