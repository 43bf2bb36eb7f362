//! A plan as a file, so that a program starts without planning.
//!
//! The form is [`PlanFile`], which `docs/plan-file.md` describes. There are two readers:
//!
//! - The strict one, [`GraphPlan::from_file`], returns a proven plan. A loaded plan may be used for every graph that it
//!   [`fits`](GraphPlan::fits), so it must hold for shapes that were not there when it was saved. A replay of one graph does not
//!   show that: a view that reads the first half of its root today may read the second half tomorrow. What does is the
//!   argument by which plans are made, so that is what the file is held to: every block is live for as long as the graph
//!   needs its tensor, no two blocks that are live at once share a byte, and a node shares bytes with a source only as its
//!   operation allows. All three follow from the graph and the addresses; the file's word counts for nothing. Then the
//!   plan is replayed all the same. O(n log n).
//! - The diagnostic one, [`check_plan_file`], lists everything that is wrong.

mod claim;
mod fault;
mod write;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

pub use claim::{Claim, check_plan_file};
pub use fault::{MatchMemories, PlanFault};
use steeve_plan::file::{FileBlock, FileMemory, PlanFile};
use steeve_plan::{
    Best, Block, BlockId, Bytes, Id, IdVec, InputLimit, Lifetime, Place, Placement, Plan, Problem, Verdict, certify,
};

use crate::alias::ggml_allows;
use crate::compact::lines;
use crate::draft::end_of_run;
use crate::fusion::{Fusion, GroupEnds};
use crate::liveness::{Life, lives};
use crate::plan::{Given, unlisted};
use crate::{
    AssignedGraph, GraphPlan, GraphStrategy, Memory, MemoryId, MemoryPlan, Named, PlanOptions, Reuse, TensorId, Unread,
    replay,
};

impl GraphPlan {
    /// Reads a plan from the text of a file, for the graph it was made for or one that it fits: equal but for its sizes, and
    /// those not above their blocks. Memories are matched by name. See [`from_file`](Self::from_file).
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, GraphPlan, PlanOptions, plan_graph};
    /// let graph = |text: &str| text.parse::<AssignedGraph>().unwrap();
    /// let planned = graph("x = input f32[64]; a = sqr x; b = neg a; c = add a b !output");
    /// let json = plan_graph(&planned, &PlanOptions::default())?.to_json();
    ///
    /// let plan = GraphPlan::from_json(&json, &planned)?;
    /// assert_eq!(plan.peak().get(), 512);
    ///
    /// let larger = graph("x = input f32[65]; a = sqr x; b = neg a; c = add a b !output");
    /// let error = GraphPlan::from_json(&json, &larger).unwrap_err();
    /// assert_eq!(error.to_string(), "memory memory: tensor 0 (x) needs 260 bytes, and its block has 256");
    ///
    /// let other = graph("x = input f32[64]; a = sqr x; b = neg x; c = add a b !output");
    /// assert!(GraphPlan::from_json(&json, &other).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails if the text has more than [`InputLimit::DEFAULT`] bytes.
    pub fn from_json(text: &str, graph: &AssignedGraph) -> Result<Self, PlanFault> {
        let file = PlanFile::from_json_within(text, InputLimit::DEFAULT)?;
        Self::from_file(&file, graph, MatchMemories::ByName)
    }

    /// Returns the proven plan of a file for a graph. A memory of the graph may have a smaller alignment than the plan's, that
    /// divides it; a larger maximum, as long as no buffer is above it; and a shorter hold.
    ///
    /// Nothing in the file is believed, so that a plan that is loaded is as good as one that was made just now, but:
    /// - the options are what the file says, and the plan is held to those. A caller that needs more than
    ///   [`Unread::Free`] or ggml's reuse must look at [`GraphPlan::options`]; one that needs `hold`, `fusion` or `max_buffer` to
    ///   be kept, at [`MemoryPlan::keeps_hold`]: ggml's own layout keeps to none of these. The budget of a search is not saved;
    /// - what a search has refuted can't be known without searching again: [`MemoryPlan::at_least`] is the bound, and
    ///   [`MemoryPlan::verdict`] is that the plan is optimal if it is at the bound. A block may be live to the end
    ///   though it need not (ggml frees some never), and that counts in the bound.
    ///
    /// All these checks take longer than most fast plans are made in; saving pays for plans that a search has found.
    pub fn from_file(file: &PlanFile, graph: &AssignedGraph, by: MatchMemories) -> Result<Self, PlanFault> {
        let numbers = Numbers::new(file, graph)?;
        let options = options(file)?;
        let matched = match_memories(file, graph, by)?;
        check_memories(file, graph, &matched).collect::<Result<(), _>>()?;
        let plan = Reader::new(graph, options, numbers, matched).plan(file)?;
        plan.fits(graph)?;
        match replay(graph, &plan.places()) {
            Ok(()) => Ok(plan),
            Err(faults) => match faults.list().first() {
                Some(first) => Err(PlanFault::Replay(Box::new(first.clone()))),
                None => Ok(plan),
            },
        }
    }
}

/// How the file says that it was planned.
fn options(file: &PlanFile) -> Result<PlanOptions, PlanFault> {
    let word = |field, found: &Option<String>, known| {
        let found = found.clone().unwrap_or_default();
        PlanFault::Word { field, found, known }
    };
    let named = |name: &Option<String>| name.clone().unwrap_or_default();
    let strategy = match file.strategy.as_str() {
        "ggml" => GraphStrategy::Ggml,
        "fast" => GraphStrategy::Fast,
        "best" => GraphStrategy::Best(Best::default()),
        found => return Err(word("strategy", &Some(found.to_owned()), "ggml, fast and best")),
    };
    let reuse =
        Reuse::from_name(&named(&file.reuse)).ok_or_else(|| word("reuse", &file.reuse, "ggml, more and none"))?;
    let unread = Unread::from_name(&named(&file.unread))
        .ok_or_else(|| word("unread", &file.unread, "keep, free-inputs and free"))?;
    Ok(PlanOptions { strategy, reuse, unread }.implied())
}

/// Which tensor of a graph each number of a file means.
enum Numbers {
    /// The graph's own numbers.
    Own,
    /// Those of its [compact](AssignedGraph::compact) form, which is what the text of the graph is read as.
    Text(Vec<TensorId>),
}

impl Numbers {
    /// Fails if the file is the plan of another graph.
    fn new(file: &PlanFile, graph: &AssignedGraph) -> Result<Self, PlanFault> {
        let Some(plan) = &file.graph else { return Err(PlanFault::NoGraph) };
        let own = graph.fingerprint();
        if *plan == own.to_string() {
            return Ok(Self::Own);
        }
        match graph.compact() {
            Ok(compact) if *plan == compact.fingerprint().to_string() => Ok(Self::Text(lines(graph.graph()))),
            _ => Err(PlanFault::Fingerprint { plan: plan.clone(), graph: own }),
        }
    }

    fn tensor(&self, graph: &AssignedGraph, number: u32) -> Option<TensorId> {
        match self {
            Self::Own => TensorId::from_index(number as usize).filter(|id| graph.graph().tensors().has_number(*id)),
            Self::Text(lines) => lines.get(number as usize).copied(),
        }
    }
}

/// The position in the file of each memory of a graph.
type Matched = IdVec<MemoryId, usize>;

fn match_memories(file: &PlanFile, graph: &AssignedGraph, by: MatchMemories) -> Result<Matched, PlanFault> {
    let mismatch = || {
        let plan: Vec<&str> = file.memories.iter().map(|memory| memory.name.as_str()).collect();
        let graph: Vec<&str> = graph.memories().iter().map(|memory| memory.name.as_str()).collect();
        PlanFault::Memories { plan: plan.join(", "), graph: graph.join(", "), by }
    };
    if file.memories.len() != graph.memories().len() {
        return Err(mismatch());
    }
    let mut free: Vec<bool> = vec![true; file.memories.len()];
    let mut matched = Matched::new();
    for (id, memory) in graph.memories().pairs() {
        let is_it = |index: usize| match by {
            MatchMemories::ByName => free[index] && file.memories[index].name == memory.name,
            MatchMemories::ByOrder => index == id.index(),
        };
        let index = (0..file.memories.len()).find(|index| is_it(*index)).ok_or_else(mismatch)?;
        free[index] = false;
        matched.push(index);
    }
    for (id, memory) in graph.memories().pairs() {
        let it = &file.memories[matched[id]];
        let (plan, shared) = (it.shared_with.map(|with| with as usize), memory.shared_with.map(|with| matched[with]));
        if plan != shared {
            let word = |with: Option<usize>| match with.map(|with| file.memories.get(with)) {
                None => "with bytes of its own".to_owned(),
                Some(None) => "sharing an unknown memory".to_owned(),
                Some(Some(with)) => alloc::format!("sharing memory {}", steeve_plan::Clipped(&with.name)),
            };
            return Err(PlanFault::Sharing { memory: memory.name.clone(), plan: word(plan), graph: word(shared) });
        }
    }
    Ok(matched)
}

/// Whether the plan holds in each memory of the graph, one answer for each.
fn check_memories<'a>(
    file: &'a PlanFile,
    graph: &'a AssignedGraph,
    matched: &'a Matched,
) -> impl Iterator<Item = Result<(), PlanFault>> + 'a {
    graph.owners().map(|memory| check_memory(&file.memories[matched[memory]], &graph.memories()[memory]))
}

/// Whether a plan made for one memory holds in another.
fn check_memory(plan: &FileMemory, memory: &Memory) -> Result<(), PlanFault> {
    let name = || memory.name.clone();
    if !plan.alignment.get().is_multiple_of(memory.align.get()) {
        return Err(PlanFault::Alignment { memory: name(), plan: plan.alignment, graph: memory.align });
    }
    if plan.hold < memory.hold {
        return Err(PlanFault::Hold { memory: name(), plan: plan.hold, graph: memory.hold });
    }
    let fusion = fusion(plan)?;
    if fusion < memory.fusion {
        return Err(PlanFault::Fusion { memory: name(), plan: fusion.name(), graph: memory.fusion.name() });
    }
    Ok(())
}

fn fusion(plan: &FileMemory) -> Result<Fusion, PlanFault> {
    let Some(word) = &plan.fusion else { return Ok(Fusion::None) };
    let unknown = || PlanFault::Word { field: "fusion", found: word.clone(), known: "none, checked and kept" };
    Fusion::from_name(word).ok_or_else(unknown)
}

/// Holds a file to the graph.
struct Reader<'a> {
    graph: &'a AssignedGraph,
    options: PlanOptions,
    numbers: Numbers,
    matched: Matched,
    lives: Vec<Life>,
    /// The memory that ggml asks for each tensor's bytes.
    asked_by_ggml: Vec<Option<MemoryId>>,
    end: u64,
    group_ends: Option<GroupEnds>,
    given: Vec<Option<Given>>,
}

impl<'a> Reader<'a> {
    fn new(graph: &'a AssignedGraph, options: PlanOptions, numbers: Numbers, matched: Matched) -> Self {
        let given = vec![None; graph.graph().tensors().len()];
        let (lives, asked_by_ggml) = (lives(graph, options.unread).of_root, asked_by_ggml(graph));
        let group_ends = GroupEnds::new(graph);
        Self { graph, options, numbers, matched, lives, asked_by_ggml, end: end_of_run(graph), group_ends, given }
    }

    fn plan(mut self, file: &PlanFile) -> Result<GraphPlan, PlanFault> {
        let owners: Vec<MemoryId> = self.graph.owners().collect();
        let mut memories = Vec::with_capacity(owners.len());
        for (part, memory) in (0..).zip(owners) {
            let file = &file.memories[self.matched[memory]];
            memories.push(Part::new(&self, memory, part, file)?.check(&mut self)?);
        }
        let needs = |life: &Life, given: &Option<Given>| life.home.is_some() && life.planned && given.is_none();
        let bare = self.lives.iter().zip(&self.given).position(|(life, given)| needs(life, given));
        if let Some(tensor) = bare.and_then(TensorId::from_index) {
            return Err(PlanFault::Unplaced { tensor: self.named(tensor) });
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
    fn needed(&self, tensor: TensorId, hold: u32, group_end: u64) -> Lifetime {
        let life = self.life(tensor);
        let end = (life.last + 1).max(group_end) + u64::from(hold);
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

    /// Nodes that are computed in place of a source, whatever the file calls it. Of views nothing is asked: what they write
    /// and what they read are needed at the same step, so the lifetimes keep them apart.
    fn take_overs(&self, memories: &[MemoryPlan]) -> Result<Vec<(TensorId, u32)>, PlanFault> {
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
                    return Err(PlanFault::TakeOver { tensor, slot, taken, operation });
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
struct Part<'a> {
    memory: MemoryId,
    part: u32,
    file: &'a FileMemory,
    /// The memory as far as the plan keeps to it.
    kept: Memory,
    keeps_hold: bool,
}

impl<'a> Part<'a> {
    fn new(reader: &Reader<'_>, memory: MemoryId, part: u32, file: &'a FileMemory) -> Result<Self, PlanFault> {
        let keeps_hold = !file.ignores_hold && reader.options.strategy != GraphStrategy::Ggml;
        let (hold, fusion) = if keeps_hold { (file.hold, fusion(file)?) } else { (0, Fusion::None) };
        let kept = Memory { align: file.alignment, hold, fusion, ..reader.graph.memories()[memory].clone() };
        Ok(Self { memory, part, file, kept, keeps_hold })
    }

    fn check(self, reader: &mut Reader<'_>) -> Result<MemoryPlan, PlanFault> {
        let mut tensors = IdVec::new();
        let mut blocks = Vec::with_capacity(self.file.blocks.len());
        for (index, block) in self.file.blocks.iter().enumerate() {
            tensors.push(self.block(reader, index, block)?);
            let align = block.alignment.unwrap_or(self.file.alignment).max(self.kept.align);
            blocks.push(Block { follows: block.follows, ..Block::new(block.size, block.live).aligned(align) });
        }
        self.add_prefixes(reader, &mut blocks, &mut tensors);
        let plan = self.proven(reader, blocks, &tensors)?;
        self.check_lives(reader, &plan.problem().blocks().as_slice()[..self.file.blocks.len()], &tensors)?;
        self.file.check_figures(&plan).map_err(|fault| PlanFault::Figure { memory: self.name(), fault })?;
        let verdict = if plan.is_optimal() { Verdict::Optimal } else { Verdict::Fits };
        let (memory, keeps_hold) = (self.memory, self.keeps_hold);
        Ok(MemoryPlan { memory, at_least: plan.bound().bytes, plan, verdict, tensors, keeps_hold })
    }

    fn name(&self) -> String {
        self.kept.name.clone()
    }

    /// Adds the prefixes that outlive their blocks, in the order of planning.
    fn add_prefixes(&self, reader: &Reader<'_>, blocks: &mut Vec<Block>, tensors: &mut IdVec<BlockId, TensorId>) {
        let Some(ends) = reader.group_ends.as_ref().filter(|_| self.kept.fusion == Fusion::Kept) else { return };
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
            let tensor = reader.graph.graph().tensor(tensors[block]);
            if let Some(prefix) = GroupEnds::kept_prefix(tensor, block, &blocks[index], until[index]) {
                blocks.push(prefix);
                tensors.push(tensors[block]);
            }
        }
    }

    /// One block by itself: its tensor, its memory, its size.
    fn block(&self, reader: &mut Reader<'_>, index: usize, block: &FileBlock) -> Result<TensorId, PlanFault> {
        let tensor = self.tensor(reader, index, block)?;
        let home = reader.life(tensor).home.unwrap_or(self.memory);
        // What takes over bytes goes to where they are, wherever it was assigned.
        let before = block.follows.and_then(|before| self.file.blocks.get(before.index()));
        let (asked, before) = (self.sized_by(reader, block), before.and_then(|before| self.sized_by(reader, before)));
        let is_asked =
            |it: MemoryId| it == home || Some(it) == reader.asked_by_ggml[tensor.index()] || Some(it) == before;
        let asked = match asked.filter(|it| reader.graph.owner(*it) == self.memory) {
            Some(asked) if is_asked(asked) => asked,
            asked => {
                let (memory, named) = (self.name(), reader.named(tensor));
                let name = |id: MemoryId| reader.graph.memories()[id].name.clone();
                let home_owner = reader.graph.owner(home);
                return Err(match asked {
                    // The size is another memory's, and the bytes are where they belong.
                    asked if home_owner == self.memory => {
                        let sized_by = asked.map_or_else(|| "unknown".to_owned(), name);
                        PlanFault::SizedBy { memory, tensor: named, sized_by }
                    }
                    _ => PlanFault::Elsewhere { memory, tensor: named, home: name(home) },
                });
            }
        };
        let needed = reader.graph.alloc_size(tensor, asked);
        if block.size < needed {
            let (memory, tensor, size) = (self.name(), reader.named(tensor), block.size);
            return Err(PlanFault::TooSmall { memory, tensor, needed, size });
        }
        // Beyond what ids can count there is no problem, and that is said later.
        let given = BlockId::from_index(index);
        let given = given.map(|id| Given { part: self.part, block: id, asked, room: block.size });
        if core::mem::replace(&mut reader.given[tensor.index()], given).is_some() {
            return Err(PlanFault::Twice { memory: self.name(), tensor: reader.named(tensor) });
        }
        Ok(tensor)
    }

    /// The memory of the graph that decides on the size of a block.
    fn sized_by(&self, reader: &Reader<'_>, block: &FileBlock) -> Option<MemoryId> {
        match block.tensor.as_ref()?.sized_by {
            None => Some(self.memory),
            Some(index) => reader.matched.pairs().find(|(_, it)| **it == index as usize).map(|(id, _)| id),
        }
    }

    fn tensor(&self, reader: &Reader<'_>, block: usize, it: &FileBlock) -> Result<TensorId, PlanFault> {
        let tensors = reader.graph.graph().tensors();
        let tensor = it.tensor.as_ref().map(|tensor| tensor.id);
        let Some(id) = tensor.and_then(|number| reader.numbers.tensor(reader.graph, number)) else {
            let (memory, name, tensors) = (self.name(), it.name.clone(), tensors.len());
            return Err(PlanFault::UnknownTensor { memory, block, name, tensor, tensors });
        };
        let life = reader.life(id);
        if life.home.is_none() || !life.planned {
            return Err(PlanFault::Needless { memory: self.name(), tensor: reader.named(id) });
        }
        Ok(id)
    }

    /// The certified plan of the blocks where the file puts them.
    fn proven(
        &self,
        reader: &Reader<'_>,
        blocks: Vec<Block>,
        tensors: &IdVec<BlockId, TensorId>,
    ) -> Result<Plan, PlanFault> {
        let place = |it: &FileBlock| Place { buffer: it.buffer, offset: it.offset };
        // A prefix is located where the block is that it outlives.
        let located = |(index, block): (usize, &Block)| {
            self.file.blocks.get(index).or_else(|| self.file.blocks.get(block.follows?.index()))
        };
        let places: Vec<Place> = blocks.iter().enumerate().filter_map(located).map(place).collect();
        let placement = Placement::new(places);
        let problem = Problem::new(blocks).map_err(|error| PlanFault::Problem { memory: self.name(), error })?;
        let proven = match self.kept.max_buffer {
            None => certify(problem, placement),
            Some(limit) => match certify(problem.clone().with_max_buffer(limit), placement.clone()) {
                // ggml's last chunk ignores the limit, and that is its answer all the same.
                Err(_) if !self.keeps_hold => certify(problem, placement),
                proven => proven,
            },
        };
        proven.map_err(|violations| {
            let first = violations.list().first().into_iter().flat_map(|it| it.blocks());
            let tensors = first.filter_map(|block| tensors.get(block)).map(|it| reader.named(*it)).collect();
            PlanFault::Invalid { memory: self.name(), tensors, violations }
        })
    }

    /// Each block is live when its tensor is, and no longer.
    fn check_lives(
        &self,
        reader: &Reader<'_>,
        blocks: &[Block],
        tensors: &IdVec<BlockId, TensorId>,
    ) -> Result<(), PlanFault> {
        let mut takers: Vec<Option<TensorId>> = vec![None; blocks.len()];
        for (it, tensor) in blocks.iter().zip(tensors) {
            if let Some(taker) = it.follows.and_then(|before| takers.get_mut(before.index())) {
                *taker = Some(*tensor);
            }
        }
        let group_ends = reader.group_ends.as_ref().filter(|_| self.kept.fusion == Fusion::Kept);
        let mut until: Vec<u64> = Vec::with_capacity(blocks.len());
        for ((it, tensor), taker) in blocks.iter().zip(tensors).zip(takers) {
            let tensor = *tensor;
            let before = it.follows.and_then(|before| until.get(before.index()).copied()).unwrap_or(0);
            let group_end = group_ends.map_or(0, |ends| ends.whole[tensor.index()].max(before));
            until.push(group_end);
            let (start, end) = (it.life.start().0, it.life.end().0);
            let needed = reader.needed(tensor, self.kept.hold, group_end);
            let ends = match taker {
                Some(taker) => reader.is_taken_over(tensor, taker, end),
                // What ggml never frees ends with the run.
                None => end == needed.end().0 || end == reader.end,
            };
            if reader.life(tensor).first != start || !ends {
                let (memory, tensor) = (self.name(), reader.named(tensor));
                return Err(PlanFault::Lifetime { memory, tensor, needed, found: it.life });
            }
        }
        Ok(())
    }
}
