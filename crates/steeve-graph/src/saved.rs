//! A plan as a file, so that a program starts without planning.
//!
//! Searching is what costs time, and its result is where each block stands. The file holds that, and what else it takes to
//! check it:
//!
//! ```text
//! {"version":2, "fingerprint":"6ad0...", "strategy":"fast", "reuse":"more", "unread":"free-inputs",
//!  "memories":[{"name":"gpu", "align":128, "max_buffer":null, "hold":0, "verdict":"optimal", "at_least":8192,
//!               "blocks":[[0, 0, 4096, [0,2], null, 0, 0],      tensor, memory it was asked for, bytes, steps,
//!                         [3, 0, 4096, [2,4], 0, 0, 0], ...     block it takes over, buffer, offset
//!               ]}]}
//! ```
//!
//! A loaded plan may be used for every graph that it [`fits`](GraphPlan::fits), so it must hold for shapes that nobody has
//! seen yet. A replay of one graph does not show that: a view that reads the first half of its root today may read the
//! second half tomorrow. What does is the argument by which plans are made, so that is what the file is held to: every
//! block is there for as long as the graph needs its tensor, no two blocks that are there at once share a byte, and a node
//! shares bytes with a source only as its operation allows. All three are decided by the graph and the addresses; the
//! file's word counts for nothing. Then the plan is replayed all the same. O(n log n).

mod fault;
mod form;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

pub use fault::SavedPlanError;
use form::{Head, Row, Saved, SavedMemory, VerdictWord};
use steeve_plan::{
    Block, BlockId, Bytes, Id, IdVec, InputLimit, Lifetime, Place, Placement, Plan, Problem, Verdict, certify,
};

use crate::alias::ggml_allows;
use crate::draft::end_of_run;
use crate::fusion::{Fusion, GroupEnds};
use crate::liveness::{Life, lives};
use crate::plan::{Given, unlisted};
use crate::{
    AssignedGraph, GraphPlan, GraphStrategy, Memory, MemoryId, MemoryPlan, Named, PlanOptions, Reuse, TensorId, replay,
};

/// The version of a saved [`GraphPlan`]. Readers refuse any other.
pub const GRAPH_PLAN_VERSION: u32 = 2;

impl GraphPlan {
    /// The plan as a file, the same bytes for the same plan. The graph is not part of it, only its fingerprint.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, GraphPlan, PlanOptions, plan_graph};
    /// let graph: AssignedGraph = "x = input f32[64]; a = sqr x; b = neg a; c = add a b !output".parse()?;
    /// let plan = plan_graph(&graph, &PlanOptions::default())?;
    /// let saved = plan.to_json();
    /// assert!(saved.starts_with(r#"{"version":2,"fingerprint":""#));
    /// assert_eq!(GraphPlan::from_json(&saved, &graph)?, plan);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_json(&self) -> String {
        // Texts and numbers only, which JSON can't refuse.
        serde_json::to_string(&Saved::of(self)).unwrap_or_default()
    }

    /// A plan from a file, for the graph it was made for or one that it fits: equal but for its sizes, and those not
    /// above their places.
    ///
    /// Nothing in the file is believed, so that a plan that is loaded is as good as one that was made just now, but:
    /// - the options are what the file says, and the plan is held to those. A caller that needs more than
    ///   [`Unread::Free`](crate::Unread::Free) or ggml's reuse must look at [`GraphPlan::options`]; one that needs `hold`, `fusion`
    ///   or `max_buffer` to be kept, at [`MemoryPlan::keeps_hold`]: ggml's own layout keeps to none of these. The budget of a search is not saved;
    /// - what a search has refuted can't be known without searching again: [`MemoryPlan::at_least`] is the bound, and
    ///   [`MemoryPlan::verdict`] is that the plan is optimal if it is at the bound. A block may be said to live to the end
    ///   though it need not (ggml frees some never), and that counts in the bound.
    ///
    /// All these checks take longer than most fast plans are made in; saving pays for plans that a search has found.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, GraphPlan, PlanOptions, plan_graph};
    /// let graph = |text: &str| text.parse::<AssignedGraph>().unwrap();
    /// let planned = graph("x = input f32[64]; a = sqr x; b = neg a; c = add a b !output");
    /// let saved = plan_graph(&planned, &PlanOptions::default())?.to_json();
    ///
    /// let plan = GraphPlan::from_json(&saved, &planned)?;
    /// assert_eq!(plan.peak().get(), 512);
    ///
    /// let larger = graph("x = input f32[65]; a = sqr x; b = neg a; c = add a b !output");
    /// let error = GraphPlan::from_json(&saved, &larger).unwrap_err();
    /// assert_eq!(error.to_string(), "memory memory: tensor 0 (x) needs 260 bytes, and its block has 256");
    ///
    /// let other = graph("x = input f32[64]; a = sqr x; b = neg x; c = add a b !output");
    /// assert!(GraphPlan::from_json(&saved, &other).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails if the text has more than [`InputLimit::DEFAULT`] bytes.
    pub fn from_json(text: &str, graph: &AssignedGraph) -> Result<Self, SavedPlanError> {
        InputLimit::DEFAULT.check(text.len())?;
        let saved: Saved = match serde_json::from_str(text) {
            Ok(saved) => saved,
            // The file of another version may look quite different, and then the version is what is wrong with it.
            Err(error) => match serde_json::from_str(text) {
                Ok(Head { version }) if version != GRAPH_PLAN_VERSION && text.trim_start().starts_with('{') => {
                    return Err(SavedPlanError::Version { found: version });
                }
                _ => return Err(error.into()),
            },
        };
        if saved.version != GRAPH_PLAN_VERSION {
            return Err(SavedPlanError::Version { found: saved.version });
        }
        let plan = Door::new(&saved, graph).plan(saved)?;
        plan.fits(graph)?;
        replay(graph, &plan.places())?;
        Ok(plan)
    }
}

/// Holds a file to the graph.
struct Door<'a> {
    graph: &'a AssignedGraph,
    options: PlanOptions,
    lives: Vec<Life>,
    /// The memory that ggml asks for each tensor's bytes.
    asked_by_ggml: Vec<Option<MemoryId>>,
    end: u64,
    group_ends: Option<GroupEnds>,
    given: Vec<Option<Given>>,
}

impl<'a> Door<'a> {
    fn new(saved: &Saved, graph: &'a AssignedGraph) -> Self {
        let options = saved.options();
        let given = vec![None; graph.graph().tensors().len()];
        let (lives, asked_by_ggml) = (lives(graph, options.unread).of_root, asked_by_ggml(graph));
        let group_ends = GroupEnds::new(graph);
        Self { graph, options, lives, asked_by_ggml, end: end_of_run(graph), group_ends, given }
    }

    fn plan(mut self, saved: Saved) -> Result<GraphPlan, SavedPlanError> {
        let graph = self.graph.fingerprint();
        if saved.fingerprint != graph.to_string() {
            return Err(SavedPlanError::Fingerprint { saved: saved.fingerprint, graph });
        }
        let owners: Vec<MemoryId> =
            self.graph.memories().ids().filter(|memory| self.graph.owner(*memory) == *memory).collect();
        if saved.memories.len() != owners.len() {
            return Err(SavedPlanError::Memories { saved: saved.memories.len(), graph: owners.len() });
        }
        let mut memories = Vec::with_capacity(owners.len());
        for (part, (saved, memory)) in (0..).zip(saved.memories.into_iter().zip(owners)) {
            same_memory(&saved, &self.graph.memories()[memory])?;
            memories.push(Part { memory, part, saved }.check(&mut self)?);
        }
        let needs = |life: &Life, given: &Option<Given>| life.home.is_some() && life.planned && given.is_none();
        let bare = self.lives.iter().zip(&self.given).position(|(life, given)| needs(life, given));
        if let Some(tensor) = bare.and_then(TensorId::from_index) {
            return Err(SavedPlanError::Unplaced { tensor: self.named(tensor) });
        }
        let take_overs = self.take_overs(&memories)?;
        let Self { graph, options, given, .. } = self;
        Ok(GraphPlan {
            assigned: graph.clone(),
            options,
            memories,
            given,
            unlisted: unlisted(graph.graph()),
            take_overs,
        })
    }

    fn named(&self, tensor: TensorId) -> Named {
        Named::new(tensor, self.graph.graph().names())
    }

    fn life(&self, tensor: TensorId) -> Life {
        self.lives[tensor.index()]
    }

    /// The node that runs at a step.
    fn node(&self, step: u64) -> Option<TensorId> {
        let index = usize::try_from(step.checked_sub(1)?).ok()?;
        self.graph.graph().nodes().get(index).copied()
    }

    /// When a tensor must have its bytes, if no node takes them over.
    fn needed(&self, tensor: TensorId, memory: &Memory, group_end: u64) -> Lifetime {
        let life = self.life(tensor);
        let end = (life.last + 1).max(group_end) + u64::from(memory.hold);
        match Lifetime::new(life.first, end.min(self.end)) {
            Ok(needed) => needed,
            Err(_) => unreachable!("what is used is used before the run ends"),
        }
    }

    /// Whether `tensor` is used for the last time by `taker`, at `step`.
    fn is_taken_over(&self, tensor: TensorId, taker: TensorId, step: u64) -> bool {
        // What is kept is used last when no node runs any more.
        self.life(tensor).last == step && self.node(step) == Some(taker)
    }

    /// Nodes that stand on the bytes of a source, whatever the file calls it. Of views nothing is asked: what they write
    /// and what they read are needed at the same step, so the lifetimes keep them apart.
    fn take_overs(&self, memories: &[MemoryPlan]) -> Result<Vec<(TensorId, u32)>, SavedPlanError> {
        let graph = self.graph.graph();
        let mut found = Vec::new();
        for node in graph.nodes() {
            let Some(given) = self.given[node.index()] else { continue };
            for (slot, source) in (0..).zip(graph.sources(*node)) {
                let Some(source) = *source else { continue };
                let root = graph.root(source);
                let Some(taken) = self.given[root.index()].filter(|it| root != *node && it.part == given.part) else {
                    continue;
                };
                let MemoryPlan { memory, plan, .. } = &memories[given.part as usize];
                if !touch(plan, given.block, taken.block) {
                    continue;
                }
                if !self.may_take_over(*node, slot, source, *memory) {
                    let operation = graph.tensors().op_title(graph.tensor(*node).op).into();
                    let (tensor, taken, slot) = (self.named(*node), self.named(root), slot as usize);
                    return Err(SavedPlanError::TakeOver { tensor, slot, taken, operation });
                }
                found.push((*node, slot));
            }
        }
        Ok(found)
    }

    /// By the rule that the plan says it was made with. Shapes may have no bytes here and some tomorrow, so this can't be
    /// left to the replay.
    fn may_take_over(&self, node: TensorId, slot: u32, source: TensorId, memory: MemoryId) -> bool {
        let graph = self.graph.graph();
        let root = graph.root(source);
        let slots = graph.sources(node).iter().flatten().filter(|other| graph.root(**other) == root).count();
        let as_ggml = || ggml_allows(self.graph, node, source);
        let allowed = match self.options.reuse {
            Reuse::Ggml => as_ggml(),
            Reuse::More => {
                let ours = graph.may_overwrite(node, slot as usize) && graph.tensors().offset(source) == Bytes::ZERO;
                ours && (!self.graph.memories()[memory].keeps_ggml_in_place() || as_ggml())
            }
            Reuse::None => false,
        };
        allowed && slots == 1
    }
}

/// Where ggml asks for each tensor's bytes: as we do, where it is first used, but a view does not speak for its root.
fn asked_by_ggml(assigned: &AssignedGraph) -> Vec<Option<MemoryId>> {
    let graph = assigned.graph();
    let mut asked = vec![None; graph.tensors().len()];
    let mut ask = |tensor: TensorId, memory: MemoryId| {
        asked[tensor.index()].get_or_insert(memory);
    };
    let nodes = || graph.nodes().iter().copied().zip(assigned.assignment().nodes.iter().copied());
    graph.leafs().iter().zip(&assigned.assignment().leafs).for_each(|(leaf, memory)| ask(*leaf, *memory));
    for (node, memory) in nodes() {
        let used = core::iter::once(node).chain(graph.sources(node).iter().copied().flatten());
        used.filter(|tensor| graph.tensor(*tensor).flags.is_input()).for_each(|tensor| ask(tensor, memory));
    }
    for (node, memory) in nodes() {
        graph.sources(node).iter().copied().flatten().chain([node]).for_each(|tensor| ask(tensor, memory));
    }
    asked
}

/// Name, alignment, limit and hold; which other ids share it is part of the graph's assignment.
fn same_memory(saved: &SavedMemory, memory: &Memory) -> Result<(), SavedPlanError> {
    let SavedMemory { name, align, max_buffer, hold, fusion, .. } = saved;
    let (name, align, max_buffer, hold, fusion) = (name.clone(), *align, *max_buffer, *hold, *fusion);
    let saved = Memory { name, align, max_buffer, hold, fusion, shared_with: memory.shared_with };
    if saved == *memory {
        return Ok(());
    }
    Err(SavedPlanError::Memory { saved: Box::new(saved), graph: Box::new(memory.clone()) })
}

/// Whether two blocks of a plan share bytes, or would if they had any.
fn touch(plan: &Plan, block: BlockId, other: BlockId) -> bool {
    let blocks = plan.problem().blocks();
    let (here, there) = (plan.place(block), plan.place(other));
    let end = |place: Place, block: BlockId| place.offset.0.saturating_add(blocks[block].size.0);
    let overlap = here.buffer == there.buffer
        && here.offset.0 < end(there, other)
        && there.offset.0 < end(here, block)
        // Without bytes there is nothing to share, even within another's range.
        && blocks[block].size > Bytes::ZERO
        && blocks[other].size > Bytes::ZERO;
    overlap || block == other || blocks[block].follows == Some(other)
}

/// One memory of the file.
struct Part {
    memory: MemoryId,
    part: u32,
    saved: SavedMemory,
}

impl Part {
    fn check(self, door: &mut Door<'_>) -> Result<MemoryPlan, SavedPlanError> {
        let mut tensors = IdVec::new();
        let mut blocks = Vec::with_capacity(self.saved.blocks.len());
        for (index, row) in self.saved.blocks.iter().enumerate() {
            let (tensor, block) = self.block(door, index, row)?;
            tensors.push(tensor);
            blocks.push(block);
        }
        self.add_prefixes(door, &mut blocks, &mut tensors);
        let plan = self.proven(door, blocks, &tensors)?;
        self.check_lives(door, &plan.problem().blocks().as_slice()[..self.saved.blocks.len()], &tensors)?;
        self.check_claims(&plan)?;
        let verdict = if plan.is_optimal() { Verdict::Optimal } else { Verdict::Fits };
        let keeps_hold = self.keeps_hold(door);
        Ok(MemoryPlan { memory: self.memory, at_least: plan.bound().bytes, plan, verdict, tensors, keeps_hold })
    }

    fn keeps_hold(&self, door: &Door<'_>) -> bool {
        self.saved.keeps_hold.0 && door.options.strategy != GraphStrategy::Ggml
    }

    /// The memory as far as the plan keeps to it.
    fn kept(&self, door: &Door<'_>) -> Memory {
        let memory = door.graph.memories()[self.memory].clone();
        if self.keeps_hold(door) { memory } else { Memory { hold: 0, fusion: Fusion::None, ..memory } }
    }

    /// Adds the prefixes that outlive their blocks, in the order of planning.
    fn add_prefixes(&self, door: &Door<'_>, blocks: &mut Vec<Block>, tensors: &mut IdVec<BlockId, TensorId>) {
        let Some(ends) = door.group_ends.as_ref().filter(|_| self.kept(door).fusion == Fusion::Kept) else { return };
        let mut taken = vec![false; blocks.len()];
        for before in blocks.iter().filter_map(|block| block.follows) {
            if let Some(taken) = taken.get_mut(before.index()) {
                *taken = true;
            }
        }
        let mut until: Vec<u64> = Vec::with_capacity(blocks.len());
        for (index, taken) in taken.into_iter().enumerate() {
            let Some(block) = BlockId::from_index(index) else { continue };
            let before = blocks[index].follows.and_then(|before| until.get(before.index()).copied()).unwrap_or(0);
            until.push(ends.prefix[tensors[block].index()].max(before));
            if taken {
                continue;
            }
            let tensor = door.graph.graph().tensor(tensors[block]);
            if let Some(prefix) = GroupEnds::kept_prefix(tensor, block, &blocks[index], until[index]) {
                blocks.push(prefix);
                tensors.push(tensors[block]);
            }
        }
    }

    fn name(&self) -> String {
        self.saved.name.clone()
    }

    /// One block by itself: its tensor, its memory, its size.
    fn block(&self, door: &mut Door<'_>, index: usize, row: &Row) -> Result<(TensorId, Block), SavedPlanError> {
        let Row(tensor, asked, size, (start, end), follows, ..) = *row;
        let tensor = self.tensor(door, index, tensor)?;
        // Whoever takes over bytes goes to where they are, wherever it was assigned.
        let before = follows.and_then(|before| self.saved.blocks.get(before.index())).map(|Row(_, asked, ..)| *asked);
        let home = door.life(tensor).home.unwrap_or(self.memory);
        let asked = MemoryId::from_index(asked as usize)
            .filter(|it| *it == home || Some(*it) == door.asked_by_ggml[tensor.index()] || Some(row.1) == before)
            .filter(|it| door.graph.memories().get(*it).is_some() && door.graph.owner(*it) == self.memory);
        let Some(asked) = asked else {
            let (memory, tensor, home) = (self.name(), door.named(tensor), door.graph.memories()[home].name.clone());
            return Err(SavedPlanError::Elsewhere { memory, tensor, home, asked: row.1 });
        };
        let block = BlockId::from_index(index);
        self.give(door, tensor, block, asked, size)?;
        let life = Lifetime::new(start, end).map_err(|error| {
            let (memory, tensor) = (self.name(), door.named(tensor));
            SavedPlanError::Steps { memory, tensor, error }
        })?;
        let align = door.graph.memories()[self.memory].align;
        Ok((tensor, Block { follows, ..Block::new(size, life).aligned(align) }))
    }

    fn tensor(&self, door: &Door<'_>, block: usize, tensor: u32) -> Result<TensorId, SavedPlanError> {
        let tensors = door.graph.graph().tensors();
        let memory = || self.name();
        let Some(id) = TensorId::from_index(tensor as usize).filter(|id| tensors.get(*id).is_some()) else {
            return Err(SavedPlanError::UnknownTensor { memory: memory(), block, tensor, tensors: tensors.len() });
        };
        let life = door.life(id);
        if life.home.is_none() || !life.planned {
            return Err(SavedPlanError::Needless { memory: memory(), tensor: door.named(id) });
        }
        Ok(id)
    }

    fn give(
        &self,
        door: &mut Door<'_>,
        tensor: TensorId,
        block: Option<BlockId>,
        asked: MemoryId,
        size: Bytes,
    ) -> Result<(), SavedPlanError> {
        let needed = door.graph.alloc_size(tensor, asked);
        if size < needed {
            return Err(SavedPlanError::TooSmall { memory: self.name(), tensor: door.named(tensor), needed, size });
        }
        // Beyond what ids can count there is no problem, and that is said later.
        let given = block.map(|block| Given { part: self.part, block, asked, room: size });
        if core::mem::replace(&mut door.given[tensor.index()], given).is_some() {
            return Err(SavedPlanError::Twice { memory: self.name(), tensor: door.named(tensor) });
        }
        Ok(())
    }

    /// The certified plan of the blocks where the file puts them.
    fn proven(
        &self,
        door: &Door<'_>,
        blocks: Vec<Block>,
        tensors: &IdVec<BlockId, TensorId>,
    ) -> Result<Plan, SavedPlanError> {
        let place = |Row(.., buffer, offset): &Row| Place { buffer: *buffer, offset: *offset };
        // A prefix is located where the block is that it outlives.
        let row = |(index, block): (usize, &Block)| {
            self.saved.blocks.get(index).or_else(|| self.saved.blocks.get(block.follows?.index()))
        };
        let places: Vec<Place> = blocks.iter().enumerate().filter_map(row).map(place).collect();
        let placement = Placement::new(places);
        let problem = Problem::new(blocks).map_err(|error| SavedPlanError::Problem { memory: self.name(), error })?;
        let proven = match self.saved.max_buffer {
            None => certify(problem, placement),
            Some(limit) => match certify(problem.clone().with_max_buffer(limit), placement.clone()) {
                // ggml's last chunk ignores the limit, and that is its answer all the same.
                Err(_) if !self.keeps_hold(door) => certify(problem, placement),
                proven => proven,
            },
        };
        proven.map_err(|violations| {
            let first = violations.list().first().into_iter().flat_map(|it| it.blocks());
            let tensors = first.filter_map(|block| tensors.get(block)).map(|it| door.named(*it)).collect();
            SavedPlanError::Invalid { memory: self.name(), tensors, violations }
        })
    }

    /// Each block is there when its tensor is needed, and no longer.
    fn check_lives(
        &self,
        door: &Door<'_>,
        blocks: &[Block],
        tensors: &IdVec<BlockId, TensorId>,
    ) -> Result<(), SavedPlanError> {
        let memory = self.kept(door);
        let mut takers: Vec<Option<TensorId>> = vec![None; blocks.len()];
        for (it, tensor) in blocks.iter().zip(tensors) {
            if let Some(taker) = it.follows.and_then(|before| takers.get_mut(before.index())) {
                *taker = Some(*tensor);
            }
        }
        let group_ends = door.group_ends.as_ref().filter(|_| memory.fusion == Fusion::Kept);
        let mut until: Vec<u64> = Vec::with_capacity(blocks.len());
        for ((it, tensor), taker) in blocks.iter().zip(tensors).zip(takers) {
            let tensor = *tensor;
            let before = it.follows.and_then(|before| until.get(before.index()).copied()).unwrap_or(0);
            let group_end = group_ends.map_or(0, |ends| ends.whole[tensor.index()].max(before));
            until.push(group_end);
            let (start, end) = (it.life.start().0, it.life.end().0);
            let ends = match taker {
                Some(taker) => door.is_taken_over(tensor, taker, end),
                // What ggml never frees ends with the run.
                None => end == door.needed(tensor, &memory, group_end).end().0 || end == door.end,
            };
            if door.life(tensor).first != start || !ends {
                let (needed, saved) = (door.needed(tensor, &memory, group_end), it.life);
                return Err(SavedPlanError::Lifetime {
                    memory: self.name(),
                    tensor: door.named(tensor),
                    needed,
                    saved,
                });
            }
        }
        Ok(())
    }

    /// What was said of the plan when it was saved could be true.
    fn check_claims(&self, plan: &Plan) -> Result<(), SavedPlanError> {
        let (peak, bound, at_least) = (plan.peak(), plan.bound().bytes, self.saved.at_least);
        let verdict = match self.saved.verdict {
            VerdictWord::Optimal => Verdict::Optimal,
            VerdictWord::Fits => Verdict::Fits,
        };
        let possible = bound <= at_least && at_least <= peak && (at_least == peak) == (verdict == Verdict::Optimal);
        if possible {
            Ok(())
        } else {
            Err(SavedPlanError::Claim { memory: self.name(), peak, bound, verdict, at_least })
        }
    }
}
