//! Finds the last use of every planned tensor, which is why it is alive for so long; and the nodes that use each
//! memory. O(edges).

use std::collections::BTreeMap;
use std::fmt;

use steeve_graph::{GraphPlan, MemoryId, TensorId};
use steeve_plan::Step;

/// The last use of a tensor, which is why its bytes are not free earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LastUse {
    /// The plan does not say.
    #[default]
    Unknown,
    /// A node reads it, itself or through a view, and no later node does.
    Read {
        /// The node's number, counted from 0.
        node: usize,
    },
    /// The caller reads it after the run, itself or through a view.
    Output,
    /// No node reads it, and it is no output.
    Unread,
    /// It is no tensor but the prefix of one, kept so that a backend can fuse nodes.
    Fusion,
}

impl fmt::Display for LastUse {
    /// Writes `last read by node 12`, `kept as output`, `read by no node` or `kept for fusion`; nothing where nothing is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Read { node } => write!(f, "last read by node {node}"),
            Self::Output => f.write_str("kept as output"),
            Self::Unread => f.write_str("read by no node"),
            Self::Fusion => f.write_str("kept for fusion"),
        }
    }
}

/// Finds the last use of each block, by the tensor that the block is named after.
pub(crate) fn last_uses(plan: &GraphPlan) -> BTreeMap<TensorId, LastUse> {
    let graph = plan.in_run_order().graph();
    let owner = |tensor: TensorId| plan.block(graph.root(tensor)).map(|(memory, block)| memory.tensors[block]);
    let users = graph.last_users();
    let mut uses: BTreeMap<TensorId, LastUse> = BTreeMap::new();
    for tensor in graph.tensors().ids() {
        let Some(owner) = owner(tensor) else { continue };
        let read = users[owner].map_or(LastUse::Unread, |node| LastUse::Read { node });
        let last = uses.entry(owner).or_insert(read);
        if graph.tensor(tensor).flags.is_output() {
            *last = LastUse::Output;
        }
    }
    uses
}

/// Finds, for each memory, the steps from the first node that reads or writes a tensor in it to the last, the end
/// excluded.
pub(crate) fn used_steps(plan: &GraphPlan) -> BTreeMap<MemoryId, (Step, Step)> {
    let graph = plan.in_run_order().graph();
    let mut used: BTreeMap<MemoryId, (Step, Step)> = BTreeMap::new();
    for (step, node) in (1..).map(Step).zip(graph.nodes()) {
        if graph.tensor(*node).op.writes_nothing() {
            continue;
        }
        let touched = graph.sources(*node).iter().copied().flatten().chain([*node]);
        for (memory, _) in touched.filter_map(|tensor| plan.block(graph.root(tensor))) {
            used.entry(memory.memory).or_insert((step, step)).1 = Step(step.0 + 1);
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::LastUse;

    #[test]
    fn a_last_use_is_a_phrase() {
        let said = |it: LastUse| it.to_string();
        assert_eq!(said(LastUse::Read { node: 12 }), "last read by node 12");
        assert_eq!(said(LastUse::Output), "kept as output");
        assert_eq!(said(LastUse::Unread), "read by no node");
        assert_eq!(said(LastUse::Fusion), "kept for fusion");
        assert_eq!(said(LastUse::Unknown), "");
    }
}
