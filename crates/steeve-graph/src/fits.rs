//! Graph in, whether a plan may be used for it out: one pass, no allocation.
//!
//! A plan is made for operations and edges, and only as good as those: two graphs with as many nodes of the same sizes
//! but other edges need different plans (ggml does not look, and overwrites live data). So everything that liveness and
//! aliases depend on must be equal; sizes may shrink. Tensors are told apart by their ids: a graph that is built again in
//! the same way (after [`Context::rewind`](crate::Context::rewind), say) has the same ones.

use alloc::boxed::Box;

use steeve_plan::{Bytes, Id};

use crate::{AssignedGraph, Graph, GraphPlan, MemoryId, Named, Op, TensorId, Tensors};

/// Why a plan does not fit a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanMismatch {
    /// Not as many nodes or leafs.
    #[error("{list}: another number than planned: expected {planned}, got {given}")]
    Count {
        /// "nodes" or "leafs".
        list: &'static str,
        /// How many the plan knows.
        planned: usize,
        /// How many there are.
        given: usize,
    },
    /// Other memories.
    #[error("memories: others than those the plan was made for")]
    Memories,
    /// A tensor is not what it was.
    #[error("{tensor}: changed since the plan was made: {what}")]
    Changed {
        /// The tensor.
        tensor: Named,
        /// What is different about it.
        what: TensorChange,
    },
    /// A tensor has outgrown its place.
    #[error("{tensor}: larger than its place in the plan: expected at most {room} bytes, got {needed}")]
    Outgrown {
        /// The tensor.
        tensor: Named,
        /// What it needs.
        needed: Bytes,
        /// What it has.
        room: Bytes,
    },
    /// A node was planned over a source that it may not overwrite any more.
    #[error("{tensor}: planned over its source in slot {slot}, which it may not overwrite any more")]
    NotInPlace {
        /// The node.
        tensor: Named,
        /// The slot of the source.
        slot: usize,
    },
}

/// What is different about a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorChange {
    /// It is another tensor at the same position.
    Identity,
    /// Another operation.
    Operation(Box<str>),
    /// Other sources.
    Edges,
    /// Another root, or a view where there was none.
    View,
    /// Other flags.
    Flags,
    /// External now, or no longer.
    External,
    /// It belongs to another memory.
    Memory,
}

impl core::fmt::Display for TensorChange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Identity => write!(f, "it is another tensor"),
            Self::Operation(name) => write!(f, "its operation is {name} now"),
            Self::Edges => write!(f, "it has other sources"),
            Self::View => write!(f, "it is a view of something else"),
            Self::Flags => write!(f, "its flags are others"),
            Self::External => write!(f, "its memory was planned and is the caller's now, or the other way round"),
            Self::Memory => write!(f, "it belongs to another memory"),
        }
    }
}

impl GraphPlan {
    /// Checks that the plan may be used for `graph`: the graph it was made for, perhaps with smaller tensors.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
    /// let graph = |size: u64| -> AssignedGraph { format!("x = input f32[{size}]; y = sqr x !output").parse().unwrap() };
    /// let plan = plan_graph(&graph(512), &PlanOptions::default())?;
    /// assert!(plan.fits(&graph(64)).is_ok());
    /// let error = plan.fits(&graph(1024)).unwrap_err();
    /// assert_eq!(error.to_string(), "tensor 0 (x): larger than its place in the plan: expected at most 2048 bytes, got 4096");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first difference, with the tensor it is found at.
    pub fn fits(&self, graph: &AssignedGraph) -> Result<(), PlanMismatch> {
        self.fits_graph(graph.graph(), |tensor, memory| graph.alloc_size(tensor, memory))?;
        if self.assigned.memories() != graph.memories() {
            return Err(PlanMismatch::Memories);
        }
        let (old, new) = (self.assigned.assignment(), graph.assignment());
        let lists = [(&old.leafs, &new.leafs, graph.graph().leafs()), (&old.nodes, &new.nodes, graph.graph().nodes())];
        for (before, now, tensors) in lists {
            if let Some(index) = before.iter().zip(now).position(|(before, now)| before != now) {
                let tensor = Named::new(tensors[index], graph.graph().names());
                return Err(PlanMismatch::Changed { tensor, what: TensorChange::Memory });
            }
        }
        Ok(())
    }

    /// Checks that the plan may be used for a graph without an assignment, as [`fits`](Self::fits) does: leafs and
    /// nodes belong to the memories they were planned in, and `size` says how many bytes a tensor takes in a memory.
    ///
    /// # Errors
    ///
    /// The first difference, with the tensor it is found at.
    pub fn fits_graph(&self, graph: &Graph, size: impl Fn(TensorId, MemoryId) -> Bytes) -> Result<(), PlanMismatch> {
        self.compare(graph, size).map_err(|difference| difference.explain(self.assigned.graph(), graph))
    }

    /// Returns whether [`fits_graph`](Self::fits_graph) accepts a graph. Never allocates, also where it does not.
    pub fn accepts(&self, graph: &Graph, size: impl Fn(TensorId, MemoryId) -> Bytes) -> bool {
        self.compare(graph, size).is_ok()
    }

    fn compare(&self, graph: &Graph, size: impl Fn(TensorId, MemoryId) -> Bytes) -> Result<(), UnnamedMismatch> {
        let planned = self.assigned.graph();
        count("nodes", planned.nodes().len(), graph.nodes().len())?;
        count("leafs", planned.leafs().len(), graph.leafs().len())?;
        for (before, now) in [(planned.leafs(), graph.leafs()), (planned.nodes(), graph.nodes())] {
            for (before, now) in before.iter().zip(now) {
                if before != now {
                    return Err(UnnamedMismatch::Tensor(*now, ChangedPart::Identity));
                }
                self.compare_tensor(graph, *now, &size)?;
            }
        }
        for tensor in &self.unlisted {
            if !graph.tensors().has_number(*tensor) {
                return Err(UnnamedMismatch::Tensor(*tensor, ChangedPart::Identity));
            }
            self.compare_tensor(graph, *tensor, &size)?;
        }
        self.check_aliases(graph)
    }

    /// Compares one tensor: equal but for its sizes, and those not above its place.
    fn compare_tensor(
        &self,
        new: &Graph,
        tensor: TensorId,
        size: &impl Fn(TensorId, MemoryId) -> Bytes,
    ) -> Result<(), UnnamedMismatch> {
        let old = self.assigned.graph();
        let (before, now) = (old.tensor(tensor), new.tensor(tensor));
        let fail = |part| Err(UnnamedMismatch::Tensor(tensor, part));
        if !same_op(old.tensors(), before.op, new.tensors(), now.op) {
            return fail(ChangedPart::Operation);
        }
        if old.sources(tensor) != new.sources(tensor) {
            return fail(ChangedPart::Edges);
        }
        if before.view.map(|view| view.root) != now.view.map(|view| view.root) {
            return fail(ChangedPart::View);
        }
        if before.flags != now.flags {
            return fail(ChangedPart::Flags);
        }
        if before.external != now.external {
            return fail(ChangedPart::External);
        }
        let Some(block) = self.tensor_blocks.get(new.root(tensor).index()).copied().flatten() else { return Ok(()) };
        let room = block.size;
        let needed = match now.view {
            None => size(tensor, block.sized_by),
            Some(view) => view.offset.checked_add(now.nbytes()).unwrap_or(Bytes(u64::MAX)),
        };
        if needed > room { Err(UnnamedMismatch::Outgrown { tensor, needed, room }) } else { Ok(()) }
    }

    fn check_aliases(&self, graph: &Graph) -> Result<(), UnnamedMismatch> {
        for (node, slot) in &self.in_place_aliases {
            let source = graph.sources(*node).get(*slot as usize).copied().flatten();
            let start = source.map(|source| graph.tensors().offset(source));
            let allowed = match graph.tensor(*node).op {
                // The table has nothing on it, so only a permission of the graph's has allowed it.
                Op::Other(_) => graph.may_overwrite(*node, *slot as usize),
                _ => source.is_some_and(|source| graph.tensor(source).layout == graph.tensor(*node).layout),
            };
            if !allowed || start != Some(Bytes::ZERO) {
                return Err(UnnamedMismatch::NotInPlace { tensor: *node, slot: *slot });
            }
        }
        match self.overlaps.iter().find(|(node, slot)| !self.may_overlap(graph, *node, *slot as usize)) {
            Some((node, slot)) => Err(UnnamedMismatch::NotInPlace { tensor: *node, slot: *slot }),
            None => Ok(()),
        }
    }

    /// Returns whether the kernel of `node` allows that its result is as far below a source as it is planned, or they share
    /// no byte.
    fn may_overlap(&self, graph: &Graph, node: TensorId, slot: usize) -> bool {
        let Some(source) = graph.sources(node).get(slot).copied().flatten() else { return false };
        let (Some((memory, result)), Some((_, read))) = (self.block(node), self.block(graph.root(source))) else {
            return false;
        };
        let (blocks, plan) = (memory.plan.problem().blocks(), &memory.plan);
        let (result, result_size) = (plan.place(result), blocks[result].size);
        let (read, read_size) = (plan.place(read), blocks[read].size);
        let disjoint = result.buffer != read.buffer
            || result.offset.checked_add(result_size).is_none_or(|end| end <= read.offset)
            || read.offset.checked_add(read_size).is_none_or(|end| end <= result.offset);
        let start = read.offset.checked_add(graph.tensors().offset(source));
        let gap = start.and_then(|start| start.0.checked_sub(result.offset.0));
        disjoint || graph.may_overlap(node, slot).zip(gap).is_some_and(|(distance, gap)| distance.0 <= gap)
    }
}

/// A [`PlanMismatch`] without names, which cost allocations.
#[derive(Clone, Copy)]
enum UnnamedMismatch {
    Count { list: &'static str, planned: usize, given: usize },
    Tensor(TensorId, ChangedPart),
    Outgrown { tensor: TensorId, needed: Bytes, room: Bytes },
    NotInPlace { tensor: TensorId, slot: u32 },
}

/// A [`TensorChange`] without names.
#[derive(Clone, Copy)]
enum ChangedPart {
    Identity,
    Operation,
    Edges,
    View,
    Flags,
    External,
}

impl UnnamedMismatch {
    fn explain(self, planned: &Graph, graph: &Graph) -> PlanMismatch {
        // What the graph no longer has keeps its old name.
        let known = |tensor| if graph.tensors().has_number(tensor) { graph } else { planned };
        let named = |tensor| Named::new(tensor, known(tensor).names());
        match self {
            Self::Count { list, planned, given } => PlanMismatch::Count { list, planned, given },
            Self::Outgrown { tensor, needed, room } => PlanMismatch::Outgrown { tensor: named(tensor), needed, room },
            Self::NotInPlace { tensor, slot } => {
                PlanMismatch::NotInPlace { tensor: named(tensor), slot: slot as usize }
            }
            Self::Tensor(tensor, part) => PlanMismatch::Changed {
                tensor: named(tensor),
                what: match part {
                    ChangedPart::Identity => TensorChange::Identity,
                    ChangedPart::Operation => {
                        let op = known(tensor).tensor(tensor).op;
                        TensorChange::Operation(known(tensor).tensors().op_title(op).into())
                    }
                    ChangedPart::Edges => TensorChange::Edges,
                    ChangedPart::View => TensorChange::View,
                    ChangedPart::Flags => TensorChange::Flags,
                    ChangedPart::External => TensorChange::External,
                },
            },
        }
    }
}

fn count(list: &'static str, planned: usize, given: usize) -> Result<(), UnnamedMismatch> {
    if planned == given { Ok(()) } else { Err(UnnamedMismatch::Count { list, planned, given }) }
}

/// Returns whether two operations are equal. Names that are not in the table are numbered by each table in its own
/// way.
fn same_op(old: &Tensors, before: Op, new: &Tensors, now: Op) -> bool {
    if before == now && !matches!(before, Op::Other(_) | Op::Unary(_) | Op::Glu(_)) {
        return true;
    }
    let by_name = |op| matches!(op, Op::Other(_) | Op::Unary(crate::Unary::Other(_)) | Op::Glu(crate::Glu::Other(_)));
    if by_name(before) || by_name(now) {
        return old.op_name(before) == new.op_name(now) && old.kind_name(before) == new.kind_name(now);
    }
    before == now
}
