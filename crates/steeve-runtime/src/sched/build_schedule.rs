//! Builds the schedule: copies become nodes at the start of their split, and replace sources.
//!
//! What a split needs of one root is copied once: overlapping ranges together, and a range that an earlier split has
//! copied into the same memory not at all, unless the root has been written since.
//!
//! A copy is a `DUP` in the memory of its worker that reads the tensors it is a copy of. So the planner keeps those
//! until then, and no later stage needs to know what a copy is.

use std::collections::BTreeMap;
use std::ops::Range;

use steeve_graph::{
    Assignment, Bytes, DataType, Flags, GraphError, GraphParts, Id, Layout, MemoryId, Op, Tensor, TensorId, View,
};

use crate::sched::assign::WorkerAssignment;
use crate::sched::placement_facts::{MemorySpaceId, PlacementFacts};
use crate::sched::schedule::{Schedule, Split, TensorCopy};
use crate::sched::split_graph::{PendingSplit, UnreadableSource};
use crate::sched::worker::WorkerId;

/// Builds the schedule of the splits. Fails if a copy makes the graph invalid.
pub(crate) fn build_schedule(
    facts: &PlacementFacts<'_>,
    assigned: &WorkerAssignment,
    pending: &[PendingSplit],
    pipeline_depth: usize,
) -> Result<Schedule, GraphError> {
    let mut parts = facts.graph.clone().into_parts();
    // A schedule serves every graph that is like this one, and those have ids of their own: a `Job` checks these.
    parts.detach();
    let mut builder = ScheduleBuilder {
        facts,
        assigned,
        pipeline_depth,
        parts,
        nodes: Vec::with_capacity(facts.graph.nodes().len()),
        memories: Vec::with_capacity(facts.graph.nodes().len()),
        splits: Vec::with_capacity(pending.len()),
        copies: Vec::new(),
        copy_of: Vec::new(),
        made: BTreeMap::new(),
    };
    for split in pending {
        builder.add(split)?;
    }
    if pending.is_empty() {
        builder.append_nodes(0..facts.graph.nodes().len());
    }
    let leafs = builder.leafs()?;
    let ScheduleBuilder { mut parts, nodes, memories, splits, copies, copy_of, .. } = builder;
    parts.set_nodes(nodes);
    let of = |tensor| assigned.of(facts, tensor);
    Ok(Schedule {
        graph: parts.finish()?,
        assignment: Assignment { leafs, nodes: memories },
        names: facts.workers.ids().map(|worker| facts.title(worker)).collect(),
        workers: facts.graph.tensors().ids().map(of).collect(),
        splits,
        copies,
        copy_of,
        pipeline_depth,
    })
}

struct ScheduleBuilder<'a> {
    facts: &'a PlacementFacts<'a>,
    assigned: &'a WorkerAssignment,
    pipeline_depth: usize,
    parts: GraphParts,
    nodes: Vec<TensorId>,
    /// The memories of the nodes.
    memories: Vec<MemoryId>,
    splits: Vec<Split>,
    copies: Vec<TensorCopy>,
    copy_of: Vec<usize>,
    /// The copies of each root.
    made: BTreeMap<TensorId, Vec<ExistingCopy>>,
}

/// A copy that later splits may use.
#[derive(Clone, Debug)]
struct ExistingCopy {
    copy: usize,
    space: MemorySpaceId,
    range: Range<u64>,
    /// The tensors within it: the copy itself, and views of it.
    tensors: Vec<(u64, Layout, TensorId)>,
}

impl ScheduleBuilder<'_> {
    fn add(&mut self, split: &PendingSplit) -> Result<(), GraphError> {
        let first_copy = self.copies.len();
        // By root, then in the order of their bytes; in the order of nodes among equals.
        let mut needs: Vec<(TensorId, Range<u64>, UnreadableSource)> = Vec::with_capacity(split.sources.len());
        for need in &split.sources {
            needs.push((self.facts.graph.root(need.source), self.extent(need.source), *need));
        }
        needs.sort_by_key(|(root, range, _)| (*root, range.start, range.end));
        for of_root in needs.chunk_by(|one, other| one.0 == other.0) {
            self.copy_root(split, of_root)?;
        }
        let start = self.nodes.len();
        self.append_nodes(split.nodes.clone());
        let (nodes, copies) = (start..self.nodes.len(), first_copy..self.copies.len());
        self.splits.push(Split { worker: split.worker, reason: split.reason, nodes, copies });
        for &node in &self.facts.graph.nodes()[split.nodes.clone()] {
            if self.facts.computes(node) {
                // Its copies are out of date.
                self.made.remove(&self.facts.graph.root(node));
            }
        }
        Ok(())
    }

    /// Returns the bytes of its root that a tensor spans.
    fn extent(&self, tensor: TensorId) -> Range<u64> {
        let tensors = self.facts.graph.tensors();
        let start = tensors.offset(tensor).0;
        start..start + tensors[tensor].nbytes().0
    }

    /// Appends some of the caller's nodes unchanged.
    fn append_nodes(&mut self, nodes: Range<usize>) {
        for &node in &self.facts.graph.nodes()[nodes] {
            self.node(node, self.assigned.memory_owner(self.facts, node));
        }
    }

    fn node(&mut self, node: TensorId, worker: Option<WorkerId>) {
        self.nodes.push(node);
        self.memories.push(memory(worker));
    }

    /// Gives the nodes of a split what they need of one root.
    fn copy_root(
        &mut self,
        split: &PendingSplit,
        needs: &[(TensorId, Range<u64>, UnreadableSource)],
    ) -> Result<(), GraphError> {
        let mut missing: Vec<&(TensorId, Range<u64>, UnreadableSource)> = Vec::new();
        for need in needs {
            match self.find(split, need) {
                Some(made) => self.replace_source(made, split, need)?,
                None => missing.push(need),
            }
        }
        // They are sorted by their start, so what overlaps or touches is adjacent.
        let mut rest = &missing[..];
        while let Some(first) = rest.first() {
            let mut end = first.1.end;
            let count = rest
                .iter()
                .take_while(|need| {
                    need.1.start <= end && {
                        end = end.max(need.1.end);
                        true
                    }
                })
                .count();
            let (group, others) = rest.split_at(count);
            let made = self.copy(split, first.1.start..end, group)?;
            for need in group {
                self.replace_source(made, split, need)?;
            }
            rest = others;
        }
        Ok(())
    }

    /// Finds a copy that has the bytes already. Returns its position among those of the root.
    fn find(&self, split: &PendingSplit, (root, range, _): &(TensorId, Range<u64>, UnreadableSource)) -> Option<usize> {
        let space = self.facts.space_of(split.worker);
        self.made.get(root)?.iter().position(|made| {
            made.space == space
                // Such a copy has only the experts that were requested.
                && self.copies[made.copy].ids.is_empty()
                && made.range.start <= range.start
                && range.end <= made.range.end
        })
    }

    /// Appends a copy of some bytes of a root. Returns its position among those of the root.
    fn copy(
        &mut self,
        split: &PendingSplit,
        range: Range<u64>,
        group: &[&(TensorId, Range<u64>, UnreadableSource)],
    ) -> Result<usize, GraphError> {
        let graph = self.facts.graph;
        let mut sources: Vec<TensorId> = group.iter().map(|(.., need)| need.source).collect();
        sources.sort_unstable();
        sources.dedup();
        let Some(&(root, _, first)) = group.first().copied() else { unreachable!("a group has someone who needs it") };
        let layout = graph.tensor(first.source).layout;
        // A single tensor is copied with its layout, so that its copy can be overwritten or padded as the tensor
        // itself.
        let alike = |source: &TensorId| graph.tensor(*source).layout == layout && self.extent(*source) == range;
        let layout = match sources.iter().all(alike) {
            true => layout,
            false => Layout::contiguous(DataType::I8, &[range.end - range.start])?,
        };
        let is_weight = self.facts.is_weight(root);
        let is_input = self.facts.is_filled_by_caller(root);
        // A weight does not change, and its copy is made in the stream that reads it.
        let pipeline_depth = if is_weight { 1 } else { self.pipeline_depth };
        let flags = if pipeline_depth > 1 { Flags::INPUT | Flags::OUTPUT } else { Flags::NONE };
        let index = self.copies.len();
        let ids = self.ids(split, root, &range, group);
        // The tensors of expert ids are read when the experts are copied.
        let slots: Vec<Option<TensorId>> = sources.iter().chain(&ids).copied().map(Some).collect();
        let mut copies = Vec::with_capacity(pipeline_depth);
        for slot in 0..pipeline_depth {
            let tensor = Tensor { op: Op::Dup, flags, ..Tensor::new(layout) };
            let copy = self.push(tensor, &slots, index)?;
            let name = self.copy_name(first.source, split.worker, slot);
            self.parts.set_name(copy, &name)?;
            self.node(copy, Some(split.worker));
            copies.push(copy);
        }
        let whole = layout == graph.tensor(first.source).layout;
        let tensors = if whole { copies.first().map(|copy| (range.start, layout, *copy)) } else { None };
        let made = ExistingCopy {
            copy: index,
            space: self.facts.space_of(split.worker),
            range: range.clone(),
            tensors: tensors.into_iter().collect(),
        };
        self.copies.push(TensorCopy {
            root,
            start: Bytes(range.start),
            size: Bytes(range.end - range.start),
            tensors: copies,
            to: split.worker,
            from: self.assigned.of(self.facts, root).map(|(worker, _)| worker),
            from_memory: self.assigned.space(self.facts, root).map_or("", |it| self.facts.spaces[it].name()).into(),
            is_weight,
            is_input,
            ids,
        });
        let of_root = self.made.entry(root).or_default();
        of_root.push(made);
        Ok(of_root.len() - 1)
    }

    /// Returns the tensors of expert ids, if every reader of the copy requests experts by ids.
    fn ids(
        &self,
        split: &PendingSplit,
        root: TensorId,
        range: &Range<u64>,
        group: &[&(TensorId, Range<u64>, UnreadableSource)],
    ) -> Vec<TensorId> {
        let graph = self.facts.graph;
        let layout = &graph.tensor(root).layout;
        // A part, something with gaps, and experts whose ids change within the split are copied as a whole.
        if !self.facts.is_weight(root) || !layout.is_contiguous() || *range != (0..layout.nbytes().0) {
            return Vec::new();
        }
        let mut asking = Vec::new();
        for (.., need) in group {
            let asks = graph.tensor(need.node).op == Op::MulMatId && need.slot == 0 && need.source == root;
            let ids = graph.sources(need.node).get(2).copied().flatten().filter(|_| asks);
            let Some(ids) = ids.filter(|ids| graph.tensor(*ids).layout.dtype() == DataType::I32) else {
                return Vec::new();
            };
            let in_split = graph.nodes()[split.nodes.clone()].iter();
            let ids_root = graph.root(ids);
            let changes = in_split.into_iter().any(|node| self.facts.computes(*node) && graph.root(*node) == ids_root);
            if changes {
                return Vec::new();
            }
            asking.push(ids);
        }
        asking.sort_unstable();
        asking.dedup();
        asking
    }

    /// Replaces a source by a copy, or by a view of it.
    fn replace_source(
        &mut self,
        made: usize,
        split: &PendingSplit,
        (root, range, need): &(TensorId, Range<u64>, UnreadableSource),
    ) -> Result<(), GraphError> {
        let layout = self.facts.graph.tensor(need.source).layout;
        let Some(it) = self.made.get(root).and_then(|of_root| of_root.get(made)) else { return Ok(()) };
        let known = it.tensors.iter().find(|(start, known, _)| *start == range.start && *known == layout);
        let tensor = match known {
            Some((.., tensor)) => *tensor,
            None => {
                let (copy, offset) = (it.copy, Bytes(range.start - it.range.start));
                let first = self.copies[copy].tensors[0];
                let view = Tensor { op: Op::View, view: Some(View { root: first, offset }), ..Tensor::new(layout) };
                let tensor = self.push(view, &[Some(first)], copy)?;
                let name = self.copy_name(need.source, split.worker, 0);
                self.parts.set_name(tensor, &name)?;
                self.node(tensor, Some(self.copies[copy].to));
                if let Some(it) = self.made.get_mut(root).and_then(|of_root| of_root.get_mut(made)) {
                    it.tensors.push((range.start, layout, tensor));
                }
                tensor
            }
        };
        self.parts.set_source(need.node, need.slot, tensor)
    }

    fn push(&mut self, tensor: Tensor, sources: &[Option<TensorId>], copy: usize) -> Result<TensorId, GraphError> {
        self.copy_of.push(copy);
        self.parts.push(tensor, sources)
    }

    fn copy_name(&self, source: TensorId, worker: WorkerId, slot: usize) -> String {
        let worker = self.facts.title(worker);
        let name = match self.facts.graph.name(source) {
            "" => format!("{source}"),
            name => name.to_string(),
        };
        if slot == 0 { format!("{name}@{worker}") } else { format!("{name}@{worker}#{slot}") }
    }

    /// Returns the memory of each leaf. What nodes touch but is not listed becomes a leaf, because it must be assigned;
    /// and with pipelined copies, what the caller writes is kept.
    fn leafs(&mut self) -> Result<Vec<MemoryId>, GraphError> {
        let (graph, facts) = (self.facts.graph, self.facts);
        let mut listed = vec![false; graph.tensors().len()];
        for tensor in graph.leafs().iter().chain(graph.nodes()) {
            listed[tensor.index()] = true;
        }
        let mut leafs: Vec<TensorId> = graph.leafs().to_vec();
        for node in graph.nodes() {
            for tensor in graph.sources(*node).iter().copied().flatten().chain([*node]) {
                let root = graph.root(tensor);
                if graph.tensor(root).is_planned() && !std::mem::replace(&mut listed[root.index()], true) {
                    self.parts.leaf(root);
                    leafs.push(root);
                }
            }
        }
        if self.pipeline_depth > 1 {
            for root in leafs.iter().map(|leaf| graph.root(*leaf)).filter(|root| facts.is_filled_by_caller(*root)) {
                self.parts.add_flags(root, Flags::INPUT | Flags::OUTPUT)?;
            }
        }
        Ok(leafs.iter().map(|leaf| memory(self.assigned.memory_owner(facts, graph.root(*leaf)))).collect())
    }
}

/// Returns the memory of a worker; the first one for what is located elsewhere.
fn memory(worker: Option<WorkerId>) -> MemoryId {
    worker.and_then(|worker| MemoryId::from_index(worker.index())).unwrap_or(MemoryId::FIRST)
}
