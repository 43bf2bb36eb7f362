//! A claim where the tensors of a graph stand, taken apart by two checkers; each fault is one sentence.
//!
//! The first looks at each tensor alone: is it in the graph, in its memory, in its chunk, aligned and large enough? The
//! second, [`replay`], executes the graph at the claimed addresses. Neither knows who made the claim, nor any lifetime.

use std::collections::{BTreeMap, BTreeSet};

use steeve_graph::{
    BufferId, Bytes, Id, IdVec, MemoryId, Places, ReplayFault, Reuse, TensorId, TensorPlace, Unread, replay,
};
use steeve_plan::Clipped;

use super::file::GraphFile;
use super::plan_file::{TensorClaim, TensorPlan};
use crate::fault::Fault;
use crate::figures::{memory_called, sum};

/// A claim whose tensors and memories are those of the graph.
pub(crate) struct Claim {
    places: Places,
    /// The sizes of the chunks of each memory.
    chunks: IdVec<MemoryId, Vec<Bytes>>,
}

impl Claim {
    /// Matches a plan file with the graph it is said to be of; or a sentence for each mismatch.
    pub(crate) fn of_file(graph: &GraphFile, plan: &TensorPlan) -> Result<Self, Vec<Fault>> {
        let owners: Vec<MemoryId> = graph.owners().collect();
        let names: Vec<&str> = owners.iter().map(|memory| graph.memory_name(*memory)).collect();
        let planned: Vec<&str> = plan.buffers.iter().map(|buffer| buffer.name.as_str()).collect();
        if names != planned {
            let message = format!(
                "the plan is for the memories {}, and the graph has {}",
                Clipped(&planned.join(", ")),
                Clipped(&names.join(", "))
            );
            return Err(vec![Fault::new("memories", message)]);
        }
        let mut chunks: IdVec<MemoryId, Vec<Bytes>> = graph.assigned.memories().iter().map(|_| Vec::new()).collect();
        for (memory, buffer) in owners.iter().zip(&plan.buffers) {
            chunks[*memory].clone_from(&buffer.chunks);
        }
        let places = places(graph, plan, &owners)?;
        let unheld = owners.iter().zip(&plan.buffers).filter(|(_, buffer)| !plan.keeps_hold || !buffer.keeps_hold);
        let without_hold = unheld.map(|(memory, _)| *memory).collect();
        Ok(Self { places: Places { places, reuse: plan.reuse, unread: plan.unread, without_hold }, chunks })
    }

    /// ggml's own plan, as it was recorded.
    pub(crate) fn of_ggml(graph: &GraphFile) -> Option<Self> {
        let answer = graph.answer()?;
        let place = |tensor: TensorId| {
            let it = answer.places.get(tensor).copied().flatten()?;
            let (memory, buffer) = (graph.assigned.owner(it.memory), BufferId::from_index(it.chunk as usize)?);
            Some(TensorPlace::new(memory, buffer, it.offset, it.size_max))
        };
        let mut places: IdVec<TensorId, Option<TensorPlace>> =
            graph.assigned.graph().tensors().ids().map(|_| None).collect();
        for tensor in graph.placed() {
            places[tensor] = place(tensor);
        }
        let places =
            Places { places, reuse: Reuse::Ggml, unread: Unread::Keep, without_hold: graph.owners().collect() };
        Some(Self { places, chunks: answer.chunks.clone() })
    }

    /// A plan of our own.
    pub(crate) fn of_plan(graph: &GraphFile, plan: &steeve_graph::GraphPlan) -> Self {
        let mut chunks: IdVec<MemoryId, Vec<Bytes>> = graph.assigned.memories().iter().map(|_| Vec::new()).collect();
        for memory in plan.memories() {
            chunks[memory.memory] = memory.plan.buffers().as_slice().to_vec();
        }
        Self { places: plan.places(), chunks }
    }

    /// How many tensors have a place.
    pub(crate) fn tensors(&self) -> usize {
        self.places.places.iter().flatten().count()
    }

    /// The bytes of all chunks of the memories that share no other's.
    pub(crate) fn bytes(&self, graph: &GraphFile) -> Bytes {
        sum(graph.owners().map(|memory| self.memory_bytes(memory)))
    }

    pub(crate) fn memory_bytes(&self, memory: MemoryId) -> Bytes {
        sum(self.chunks(memory).iter().copied())
    }

    /// The sizes of the chunks of a memory.
    pub(crate) fn chunks(&self, memory: MemoryId) -> &[Bytes] {
        &self.chunks[memory]
    }

    /// The reuse that it is held to.
    pub(crate) fn reuse(&self) -> Reuse {
        self.places.reuse
    }

    /// The rule for what no node reads that it is held to.
    pub(crate) fn unread(&self) -> Unread {
        self.places.unread
    }

    /// Everything that is wrong with it.
    pub(crate) fn faults(&self, graph: &GraphFile, capacity: Option<Bytes>) -> Vec<Fault> {
        let mut faults = Vec::new();
        let homes = homes(graph);
        for (tensor, place) in self.places.places.pairs() {
            if let Some(place) = place {
                faults.extend(self.fault_of(graph, tensor, place, &homes));
            }
        }
        faults.extend(self.limits(graph, capacity));
        if let Err(wrong) = replay(&graph.assigned, &self.places) {
            // Each place by itself has been judged above, with the chunks that the file speaks of.
            let between = wrong.list().iter().filter(|fault| !matches!(fault, ReplayFault::Place { .. }));
            faults.extend(between.map(|fault| of_replay(graph, fault)));
        }
        faults
    }

    /// What is wrong with one tensor's place, whatever the others'.
    fn fault_of(
        &self,
        graph: &GraphFile,
        tensor: TensorId,
        place: &TensorPlace,
        homes: &BTreeSet<(TensorId, MemoryId)>,
    ) -> Vec<Fault> {
        let TensorPlace { memory, buffer, offset, size, .. } = *place;
        let (name, align) = (graph.tensor(tensor), graph.assigned.memories()[memory].align);
        let place_name = format!("chunk {buffer} of {}", memory_called(graph.memory_name(memory)));
        let fault = |kind, message| Fault::of_tensors(kind, [graph.id(tensor)], message);
        let mut faults = Vec::new();
        let needed = graph.assigned.alloc_size(tensor, memory);
        if size < needed {
            let message = format!("{name} has {size} bytes in the plan, {} less than it needs", needed.0 - size.0);
            faults.push(fault("too-small", message));
        }
        if !align.accepts(offset) {
            let message = format!("{name} stands at offset {offset}, which is no multiple of the alignment {align}");
            faults.push(fault("misaligned", message));
        }
        let end = offset.0.checked_add(size.0);
        match (self.chunks[memory].get(buffer.index()), end) {
            (None, _) => {
                let chunks = self.chunks[memory].len();
                // Nothing can stand where there is no chunk, and nothing needs no chunk.
                if size > Bytes::ZERO {
                    faults.push(fault("outside", format!("{name} stands in {place_name}, which has {chunks} chunks")));
                }
            }
            (Some(chunk), Some(end)) if end <= chunk.0 => {}
            (Some(chunk), _) => {
                let message = format!(
                    "{name} of {size} bytes at offset {offset} passes the end of {place_name}, which has {chunk} bytes"
                );
                faults.push(fault("outside", message));
            }
        }
        if !homes.contains(&(tensor, memory)) && !self.takes_over(graph, tensor, place) {
            let memory = memory_called(graph.memory_name(memory));
            faults.push(fault("elsewhere", format!("{name} stands in {memory}, which no node that uses it is in")));
        }
        faults
    }

    /// Whether a tensor stands where one of its sources does: then it may be in that one's memory.
    fn takes_over(&self, graph: &GraphFile, tensor: TensorId, place: &TensorPlace) -> bool {
        let it = graph.assigned.graph();
        it.sources(tensor).iter().flatten().any(|source| {
            let other = self.places.places.get(it.root(*source)).copied().flatten();
            other.is_some_and(|other| {
                (other.memory, other.buffer, other.offset) == (place.memory, place.buffer, place.offset)
            })
        })
    }

    /// Chunks above the memory's limit that no single tensor asks for, and memories above the capacity.
    fn limits(&self, graph: &GraphFile, capacity: Option<Bytes>) -> Vec<Fault> {
        let mut largest: BTreeMap<(MemoryId, BufferId), u64> = BTreeMap::new();
        for place in self.places.places.iter().flatten() {
            let align = graph.assigned.memories()[place.memory].align;
            let size = align.round_up(place.size).unwrap_or(place.size).0;
            let most = largest.entry((place.memory, place.buffer)).or_default();
            *most = size.max(*most);
        }
        let mut faults = Vec::new();
        for memory in graph.owners() {
            let name = memory_called(graph.memory_name(memory));
            for (index, chunk) in self.chunks[memory].iter().enumerate() {
                let Some(limit) = graph.assigned.memories()[memory].max_buffer else { break };
                let single = BufferId::from_index(index).and_then(|buffer| largest.get(&(memory, buffer)));
                if chunk.0 > limit.0.max(single.copied().unwrap_or(0)) {
                    let message = format!(
                        "chunk {index} of {name} has {chunk} bytes, and no buffer there may have more than {limit}"
                    );
                    faults.push(Fault::new("buffer-size", message));
                }
            }
            let bytes = self.memory_bytes(memory);
            if let Some(capacity) = capacity.filter(|capacity| bytes > *capacity) {
                let more = bytes.0 - capacity.0;
                let message = format!("{name} has {bytes} bytes, {more} more than the capacity of {capacity}");
                faults.push(Fault::new("capacity", message));
            }
        }
        faults
    }
}

/// Where the plan puts the tensors of the graph, matched by id; or a sentence for each that has no match.
fn places(
    graph: &GraphFile,
    plan: &TensorPlan,
    owners: &[MemoryId],
) -> Result<IdVec<TensorId, Option<TensorPlace>>, Vec<Fault>> {
    let tensors = graph.assigned.graph().tensors();
    let by_id: BTreeMap<u64, TensorId> = tensors.ids().filter_map(|it| Some((graph.id(it)?, it))).collect();
    let mut places: IdVec<TensorId, Option<TensorPlace>> = tensors.ids().map(|_| None).collect();
    let mut wrong = Vec::new();
    for claim in &plan.tensors {
        match matched(graph, claim, &by_id, owners) {
            Ok((tensor, _)) if places[tensor].is_some() => {
                let message = format!("{} has two places in the plan", graph.tensor(tensor));
                wrong.push(Fault::of_tensors("twice", [graph.id(tensor)], message));
            }
            Ok((tensor, place)) => places[tensor] = Some(place),
            Err(fault) => wrong.push(fault),
        }
    }
    let claimed: BTreeSet<u64> = plan.tensors.iter().map(|claim| claim.id).collect();
    for tensor in graph.placed() {
        if graph.id(tensor).is_none_or(|id| !claimed.contains(&id)) {
            let message = format!("{} of the graph has no place in the plan", graph.tensor(tensor));
            wrong.push(Fault::of_tensors("unplaced", [graph.id(tensor)], message));
        }
    }
    if wrong.is_empty() { Ok(places) } else { Err(wrong) }
}

/// One tensor of a plan with its place in the graph's words.
fn matched(
    graph: &GraphFile,
    claim: &TensorClaim,
    by_id: &BTreeMap<u64, TensorId>,
    owners: &[MemoryId],
) -> Result<(TensorId, TensorPlace), Fault> {
    let TensorClaim { id, name, buffer, chunk, offset, size, .. } = claim;
    let fault = |kind, message| Err(Fault::of_tensors(kind, [Some(*id)], message));
    let Some(tensor) = by_id.get(id).copied() else {
        return fault("unknown", format!("tensor {id} ({}) of the plan is not in the graph", Clipped(name)));
    };
    let it = graph.assigned.graph().tensor(tensor);
    if graph.assigned.graph().name(tensor) != name {
        let message = format!(
            "{} is called {:?} in the plan, so it is the plan of another graph",
            graph.tensor(tensor),
            Clipped(name)
        );
        return fault("renamed", message);
    }
    if !it.is_planned() {
        let kind = if it.is_view() { "a view" } else { "external" };
        let message =
            format!("{} is {kind} and has no place of its own, but the plan gives it one", graph.tensor(tensor));
        return fault("needless", message);
    }
    let Some(memory) = owners.get(*buffer) else {
        let message = format!("{} stands in buffer {buffer}, and the plan has {}", graph.tensor(tensor), owners.len());
        return fault("buffer", message);
    };
    let Some(chunk) = BufferId::from_index(*chunk) else {
        let message = format!("{} stands in chunk {chunk}, and there can't be so many", graph.tensor(tensor));
        return fault("outside", message);
    };
    Ok((tensor, TensorPlace::new(*memory, chunk, *offset, *size)))
}

/// What went wrong in a run at the claimed addresses.
fn of_replay(graph: &GraphFile, fault: &ReplayFault) -> Fault {
    let (kind, tensor) = match fault {
        ReplayFault::Overwritten { tensor, .. } => ("overwritten", Some(tensor)),
        ReplayFault::Fusion { tensor, .. } => ("fusion", Some(tensor)),
        ReplayFault::Lost { tensor, .. } => ("lost", Some(tensor)),
        ReplayFault::InPlace { tensor, .. } => ("in-place", Some(tensor)),
        ReplayFault::Unplaced { tensor, .. } => ("unplaced", Some(tensor)),
        ReplayFault::Unwritten { tensor, .. } => ("unwritten", Some(tensor)),
        ReplayFault::BothBefore { tensor, .. } => ("both-before", Some(tensor)),
        _ => ("other", None),
    };
    Fault::of_tensors(kind, tensor.map(|it| graph.id(it.id)), fault.to_string())
}

/// The memories, by their first ids, of the nodes and leafs that make or read each root.
fn homes(graph: &GraphFile) -> BTreeSet<(TensorId, MemoryId)> {
    let (assigned, it) = (&graph.assigned, graph.assigned.graph());
    let leafs = it.leafs().iter().zip(&assigned.assignment().leafs);
    let nodes = it.nodes().iter().zip(&assigned.assignment().nodes);
    let mut homes = BTreeSet::new();
    for (tensor, memory) in leafs.chain(nodes) {
        let memory = assigned.owner(*memory);
        homes.insert((it.root(*tensor), memory));
        homes.extend(it.sources(*tensor).iter().flatten().map(|source| (it.root(*source), memory)));
    }
    homes
}
