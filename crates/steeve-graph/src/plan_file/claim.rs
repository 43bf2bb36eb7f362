//! A claim where the tensors of a graph are, and everything that is wrong with it.
//!
//! Two checkers look at it. The first looks at each tensor alone: is it in the graph, in its memory, in its buffer, aligned and
//! large enough? The second, [`replay`](replay()), runs the graph at the claimed addresses. Neither knows what made the claim, nor any
//! live range.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use steeve_plan::file::{FileFault, PlanFile};
use steeve_plan::{BufferId, Bytes, Id, IdVec};

use super::{MatchMemories, PlanFault, TensorNumbers, check_memory, match_memories, node_order, options};
use crate::liveness::{RootLifetime, root_lifetimes};
use crate::recorded::RecordedPlacement;
use crate::{
    AssignedGraph, GraphPlan, GraphStrategy, MemoryId, Named, PlanOptions, ReplayFault, Reuse, TensorId, TensorPlace,
    TensorPlaces, Unread, replay,
};

/// Where the tensors of a graph are said to be, and how large the buffers are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlacementClaim {
    /// Where each tensor is, and by which rules.
    pub places: TensorPlaces,
    /// The sizes of the buffers of each memory. A memory that is another under a second id has none.
    pub buffers: IdVec<MemoryId, Vec<Bytes>>,
}

/// Returns the plan of a file, proven, or everything that is wrong with it: which tensors overlap, and at which node; which is
/// outside of its buffer, misaligned, missing or unknown. Where each tensor is right, but the file is no plan that
/// [`GraphPlan::from_file`] accepts, that is the one fault.
///
/// ```
/// use steeve_graph::{AssignedGraph, MatchMemories, PlanFile, PlanOptions, check_plan_file, plan_graph};
/// let graph: AssignedGraph = "x = input f32[64]; a = sqr x; b = neg a; c = add a b !output".parse()?;
/// let json = plan_graph(&graph, &PlanOptions::default())?.to_json();
/// let file = PlanFile::from_json(&json)?;
/// assert!(check_plan_file(&file, &graph, MatchMemories::ByName).is_ok());
///
/// let spoilt = PlanFile::from_json(&json.replace(r#""offset":256"#, r#""offset":128"#))?;
/// let faults = check_plan_file(&spoilt, &graph, MatchMemories::ByName).unwrap_err();
/// assert_eq!(
///     faults[1].to_string(),
///     "node 2 (tensor 3 (c)): reads tensor 1 (a), but node 1 (tensor 2 (b)) has overwritten byte 128 of buffer 0 in memory"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_plan_file(file: &PlanFile, graph: &AssignedGraph, by: MatchMemories) -> Result<GraphPlan, Vec<PlanFault>> {
    let mut faults: Vec<PlanFault> = TensorNumbers::new(file, graph).err().into_iter().collect();
    match PlacementClaim::read(file, graph, by) {
        Ok((claim, wrong)) => {
            let is_unplaced = |fault: &PlanFault| matches!(fault, PlanFault::Unplaced { .. });
            let has_unplaced = wrong.iter().any(is_unplaced);
            faults.extend(wrong);
            // That a node uses what has no block has been said.
            let said = |fault: &PlanFault| has_unplaced && fault.kind() == "unplaced";
            faults.extend(claim.faults(graph).into_iter().filter(|fault| !said(fault)));
        }
        Err(fault) => faults.push(fault),
    }
    // The sizes of buffers follow from the places, of which the others say more.
    let is_size = |fault: &PlanFault| {
        matches!(fault, PlanFault::Figure { fault: FileFault::Figure { field: "buffers", .. }, .. })
    };
    if !faults.iter().all(is_size) {
        faults.retain(|fault| !is_size(fault));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    GraphPlan::from_file(file, graph, by).map_err(|fault| [fault].into())
}

impl PlacementClaim {
    /// Reads what a file claims of a graph, as far as its blocks are those of the graph's tensors. Returns that, and
    /// what is wrong with the other blocks, with figures and with memories. Fails if there is nothing to compare.
    fn read(file: &PlanFile, graph: &AssignedGraph, by: MatchMemories) -> Result<(Self, Vec<PlanFault>), PlanFault> {
        let options = options(file)?;
        // Of the plan of another graph, too, something can be said.
        let numbers = TensorNumbers::new(file, graph).unwrap_or(TensorNumbers::Own);
        let matched = match_memories(file, graph, by)?;
        let lives = root_lifetimes(graph, options.unread).of_root;
        let mut places: IdVec<TensorId, Option<TensorPlace>> = graph.graph().tensors().ids().map(|_| None).collect();
        let mut buffers: IdVec<MemoryId, Vec<Bytes>> = graph.memories().iter().map(|_| Vec::new()).collect();
        let (mut without_extra_lifetime, mut wrong) = (Vec::new(), Vec::new());
        for memory in graph.owners() {
            let it = matched.file(file, memory);
            let name = &graph.memories()[memory].name;
            buffers[memory].clone_from(&it.buffers);
            let unfit = check_memory(it, &graph.memories()[memory]).err();
            // A plan is not checked for what it was not made for.
            if it.ggml_layout || options.strategy == GraphStrategy::Ggml || unfit.is_some() {
                without_extra_lifetime.push(memory);
            }
            wrong.extend(unfit);
            let figures = it.own_faults().into_iter().filter(|fault| matches!(fault, FileFault::Figure { .. }));
            wrong.extend(figures.map(|fault| PlanFault::Figure { memory: name.clone(), fault }));
            for (index, block) in it.blocks.iter().enumerate() {
                let number = block.tensor.as_ref().map(|tensor| tensor.id);
                let tensor = block.tensor.as_ref().and_then(|tensor| numbers.tensor(graph, tensor));
                let Some((tensor, life)) = tensor.and_then(|id| Some((id, lives.get(id.index())?))) else {
                    let (memory, name, tensors) = (name.clone(), block.name.clone(), lives.len());
                    wrong.push(PlanFault::UnknownTensor { memory, block: index, name, tensor: number, tensors });
                    continue;
                };
                let named = || (name.clone(), Named::new(tensor, graph.graph().names()));
                if !life.is_allocated() {
                    let (memory, tensor) = named();
                    wrong.push(PlanFault::Unneeded { memory, tensor });
                    continue;
                }
                let place = TensorPlace::new(memory, block.buffer, block.offset, block.size);
                if places[tensor].replace(place).is_some() {
                    let (memory, tensor) = named();
                    wrong.push(PlanFault::Duplicate { memory, tensor });
                }
            }
        }
        for tensor in graph.graph().tensors().ids() {
            if lives[tensor.index()].is_allocated() && places[tensor].is_none() {
                wrong.push(PlanFault::Unplaced { tensor: Named::new(tensor, graph.graph().names()) });
            }
        }
        let PlanOptions { reuse, unread, .. } = options;
        let order = node_order(file, graph)?;
        let places = TensorPlaces { places, order, reuse, unread, without_extra_lifetime };
        Ok((Self { places, buffers }, wrong))
    }

    /// Returns what a plan says of its own graph.
    pub fn of_plan(plan: &GraphPlan) -> Self {
        let mut buffers: IdVec<MemoryId, Vec<Bytes>> = plan.assigned().memories().iter().map(|_| Vec::new()).collect();
        for memory in plan.memories() {
            buffers[memory.memory] = memory.plan.buffers().as_slice().to_vec();
        }
        Self { places: plan.places(), buffers }
    }

    /// Returns ggml's own plan of a graph, as it was recorded.
    pub fn of_recorded(placement: &RecordedPlacement, graph: &AssignedGraph) -> Self {
        let place = |(index, life): (usize, &RootLifetime)| {
            let tensor = TensorId::from_index(index).filter(|_| life.is_allocated())?;
            let it = placement.places.get(tensor).copied().flatten()?;
            let (memory, buffer) = (graph.owner(it.memory), BufferId::from_index(it.chunk as usize)?);
            Some(TensorPlace::new(memory, buffer, it.offset, it.size_max))
        };
        let (reuse, unread) = (Reuse::Ggml, Unread::Keep);
        let places = root_lifetimes(graph, unread).of_root.iter().enumerate().map(place).collect();
        let mut buffers = placement.chunks.clone();
        // A record repeats the chunks for each id of a memory.
        for (id, _) in graph.memories().pairs().filter(|(_, memory)| memory.shared_with.is_some()) {
            buffers[id].clear();
        }
        Self {
            places: TensorPlaces {
                places,
                order: None,
                reuse,
                unread,
                without_extra_lifetime: graph.owners().collect(),
            },
            buffers,
        }
    }

    /// Returns the bytes of all buffers of a memory.
    pub fn bytes(&self, memory: MemoryId) -> Bytes {
        let sizes = self.buffers.get(memory).map(Vec::as_slice).unwrap_or_default();
        Bytes(sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.0)))
    }

    /// Returns everything that is wrong with it.
    pub fn faults(&self, graph: &AssignedGraph) -> Vec<PlanFault> {
        let users = users(graph);
        let mut faults = Vec::new();
        for (tensor, place) in self.places.places.pairs() {
            if let Some(place) = place {
                self.add_faults_of(graph, tensor, place, &users, &mut faults);
            }
        }
        self.add_large_buffers(graph, &mut faults);
        if let Err(wrong) = replay(graph, &self.places) {
            // Each place by itself has been checked above, together with its buffer.
            let between = wrong.list().iter().filter(|fault| !matches!(fault, ReplayFault::Place { .. }));
            faults.extend(between.cloned().map(|fault| self.explained(fault)));
        }
        faults
    }

    /// Returns a fault of the replay as one of the file. An operation that may run in place may not where the plan
    /// reuses nothing.
    fn explained(&self, fault: ReplayFault) -> PlanFault {
        match fault {
            ReplayFault::InPlace { writer, slot, tensor, operation, .. } if self.places.reuse == Reuse::None => {
                let reuse = self.places.reuse.name();
                PlanFault::InPlace { reuse, tensor: writer, slot, overwritten: tensor, operation }
            }
            fault => PlanFault::Replay(Box::new(fault)),
        }
    }

    /// Adds what is wrong with the place of one tensor, whatever the others'.
    fn add_faults_of(
        &self,
        graph: &AssignedGraph,
        tensor: TensorId,
        place: &TensorPlace,
        users: &BTreeSet<(TensorId, MemoryId)>,
        faults: &mut Vec<PlanFault>,
    ) {
        let TensorPlace { memory: id, buffer, offset, size, .. } = *place;
        let Some(it) = graph.memories().get(id) else { return };
        let (memory, align) = (|| it.name.clone(), it.align);
        let named = || Named::new(tensor, graph.graph().names());
        let needed = graph.least_alloc_size(tensor, id);
        if size < needed {
            faults.push(PlanFault::TooSmall { memory: memory(), tensor: named(), needed, size });
        }
        if !align.accepts(offset) {
            faults.push(PlanFault::Misaligned { memory: memory(), tensor: named(), offset, align });
        }
        let buffers = self.buffers.get(id).map(Vec::as_slice).unwrap_or_default();
        match (buffers.get(buffer.index()).copied(), offset.0.checked_add(size.0)) {
            // What has no bytes needs no buffer.
            (None, _) if size == Bytes::ZERO => {}
            (None, _) => {
                let buffers = buffers.len();
                faults.push(PlanFault::NoBuffer { memory: memory(), tensor: named(), buffer, buffers });
            }
            (Some(room), Some(end)) if end <= room.0 => {}
            (Some(room), _) => {
                faults.push(PlanFault::Outside { memory: memory(), tensor: named(), size, offset, buffer, room });
            }
        }
        if !users.contains(&(tensor, id)) && !self.is_in_place(graph, tensor, place) {
            let belongs_to = users.range((tensor, MemoryId::FIRST)..).next().filter(|(root, _)| *root == tensor);
            let belongs_to = belongs_to.and_then(|(_, memory)| graph.memories().get(*memory)).map(|it| it.name.clone());
            faults.push(PlanFault::Elsewhere {
                memory: memory(),
                tensor: named(),
                belongs_to: belongs_to.unwrap_or_default(),
            });
        }
    }

    /// Returns whether a tensor is located where one of its sources is: then it may be in the memory of that one.
    fn is_in_place(&self, graph: &AssignedGraph, tensor: TensorId, place: &TensorPlace) -> bool {
        let it = graph.graph();
        it.sources(tensor).iter().flatten().any(|source| {
            let other = self.places.places.get(it.root(*source)).copied().flatten();
            other.is_some_and(|other| {
                (other.memory, other.buffer, other.offset) == (place.memory, place.buffer, place.offset)
            })
        })
    }

    /// Adds buffers above the maximum of their memory that no single tensor needs.
    fn add_large_buffers(&self, graph: &AssignedGraph, faults: &mut Vec<PlanFault>) {
        let mut largest: BTreeMap<(MemoryId, BufferId), Bytes> = BTreeMap::new();
        for place in self.places.places.iter().flatten() {
            let Some(memory) = graph.memories().get(place.memory) else { continue };
            let size = memory.align.round_up(place.size).unwrap_or(place.size);
            let most = largest.entry((place.memory, place.buffer)).or_default();
            *most = size.max(*most);
        }
        for (id, buffers) in self.buffers.pairs().filter(|(id, _)| !self.places.without_extra_lifetime.contains(id)) {
            let Some(max_buffer) = graph.memories()[id].max_buffer else { continue };
            for (buffer, size) in buffers.iter().copied().enumerate() {
                let single = BufferId::from_index(buffer).and_then(|buffer| largest.get(&(id, buffer)));
                if size > max_buffer.max(single.copied().unwrap_or_default()) {
                    let memory = graph.memories()[id].name.clone();
                    faults.push(PlanFault::BufferSize { memory, buffer, size, max_buffer });
                }
            }
        }
    }
}

/// Returns the memories, by their first ids, of the nodes and leafs that write or read each root.
fn users(assigned: &AssignedGraph) -> BTreeSet<(TensorId, MemoryId)> {
    let graph = assigned.graph();
    let leafs = graph.leafs().iter().zip(&assigned.assignment().leafs);
    let nodes = graph.nodes().iter().zip(&assigned.assignment().nodes);
    let mut users = BTreeSet::new();
    for (tensor, memory) in leafs.chain(nodes) {
        let memory = assigned.owner(*memory);
        users.insert((graph.root(*tensor), memory));
        users.extend(graph.sources(*tensor).iter().flatten().map(|source| (graph.root(*source), memory)));
    }
    users
}
