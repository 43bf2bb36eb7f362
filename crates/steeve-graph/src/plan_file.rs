//! A plan as a file, so that a program starts without planning.
//!
//! The form is [`PlanFile`], which `docs/plan-file.md` describes. There are two readers:
//!
//! - The strict one, [`GraphPlan::from_file`], returns a proven plan. A loaded plan may be used for every graph that
//!   it [`fits`](GraphPlan::fits), so it must be right for shapes that did not exist when it was saved. A replay of
//!   one graph does not show that: a view that reads the first half of its root today may read the second half
//!   tomorrow. What does is the argument by which plans are made, so that is what the file is checked against: every
//!   block is live for as long as the graph needs its tensor, no two blocks that are live at once share a byte, and a
//!   node is written over a source only as its operation allows. All three follow from the graph and the addresses;
//!   the file's word counts for nothing. Then the plan is replayed all the same. O(n log n).
//! - The diagnostic one, [`check_plan_file`], lists everything that is wrong.

mod claim;
mod fault;
mod loader;
mod memory_loader;
mod write;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

pub use claim::{PlacementClaim, check_plan_file};
pub use fault::{MatchMemories, PlanFault};
use loader::PlanLoader;
use steeve_plan::file::{FileMemory, FileTensor, PlanFile};
use steeve_plan::{Best, Clipped, Id, IdVec, InputLimit};

use crate::compact::text_order;
use crate::plan::RunOrder;
use crate::reorder::overtaking;
use crate::{
    AssignedGraph, Fusion, GraphPlan, GraphStrategy, Memory, MemoryId, Named, NodeOrder, Order, PlanOptions, Reuse,
    TensorId, Unread, replay,
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
    /// assert_eq!(error.to_string(), "memory memory: block of tensor 0 (x) too small: expected at least 260 bytes, got 256");
    ///
    /// let other = graph("x = input f32[64]; a = sqr x; b = neg x; c = add a b !output");
    /// assert!(GraphPlan::from_json(&json, &other).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is no plan of the graph, or has more than [`InputLimit::DEFAULT`] bytes.
    pub fn from_json(text: &str, graph: &AssignedGraph) -> Result<Self, PlanFault> {
        let file = PlanFile::from_json_within(text, InputLimit::DEFAULT)?;
        Self::from_file(&file, graph, MatchMemories::ByName)
    }

    /// Returns the proven plan of a file for a graph. A memory of the graph may have an alignment that divides the
    /// plan's, any maximum that no buffer passes, a shorter extra lifetime, and a fusion that demands less.
    ///
    /// Nothing in the file is believed, so that a plan that is loaded is as good as one that was made just now, but:
    /// - the options are what the file says, and the plan is checked against those. A caller that needs more than
    ///   [`Unread::Free`] or ggml's reuse must look at [`GraphPlan::options`]; one that needs
    ///   [`Memory::extra_lifetime`], [`Memory::fusion`] or [`Memory::max_buffer`] to be kept, at
    ///   [`MemoryPlan::keeps_extra_lifetime`](crate::MemoryPlan::keeps_extra_lifetime): ggml's own layout keeps to
    ///   none of these. The budget of a search is not saved;
    /// - what a search has refuted can't be known without searching again: [`MemoryPlan::at_least`](crate::MemoryPlan::at_least) is the bound, and
    ///   [`MemoryPlan::verdict`](crate::MemoryPlan::verdict) is that the plan is optimal if it is at the bound. A block may be live to the end
    ///   though it need not (ggml frees some never), and that counts in the bound.
    ///
    /// All these checks take longer than most fast plans are made in; saving pays for plans that a search has found.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong; [`check_plan_file`] lists all of them.
    pub fn from_file(file: &PlanFile, graph: &AssignedGraph, by: MatchMemories) -> Result<Self, PlanFault> {
        let numbers = TensorNumbers::new(file, graph)?;
        let options = options(file)?;
        let matched = match_memories(file, graph, by)?;
        for memory in graph.owners() {
            check_memory(matched.file(file, memory), &graph.memories()[memory])?;
        }
        let run = run_order(file, graph)?;
        let ordered = run.as_ref().map_or_else(|| graph.clone(), |run| run.assigned.clone());
        let plan = PlanLoader::new(file, &ordered, options, numbers, matched).plan(graph, run)?;
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

/// Returns the options that the file says it was planned with.
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
        found => return Err(word("strategy", &Some(found.to_owned()), "ggml, fast or best")),
    };
    let reuse =
        Reuse::from_name(&named(&file.reuse)).ok_or_else(|| word("reuse", &file.reuse, "ggml, more or none"))?;
    let unread = Unread::from_name(&named(&file.unread))
        .ok_or_else(|| word("unread", &file.unread, "keep, free-inputs or free"))?;
    let order = if file.order.is_some() { Order::Best } else { Order::Keep };
    Ok(PlanOptions::new(strategy).with_reuse(reuse).with_unread(unread).with_order(order).implied())
}

/// Returns the order in which the plan runs, which may mean something else than the graph; `None` if it is the graph's own.
fn node_order(file: &PlanFile, graph: &AssignedGraph) -> Result<Option<NodeOrder>, PlanFault> {
    let Some(positions) = &file.order else { return Ok(None) };
    let order = NodeOrder::new(positions.clone())?;
    order.check_length(graph.graph())?;
    Ok(Some(order))
}

/// Returns the order in which the plan runs, if it is right for every graph that the plan fits.
fn run_order(file: &PlanFile, graph: &AssignedGraph) -> Result<Option<Box<RunOrder>>, PlanFault> {
    let Some(order) = node_order(file, graph)? else { return Ok(None) };
    if let Some((position, other_position)) = overtaking(graph, &order) {
        let named = |position: usize| Named::new(graph.graph().nodes()[position], graph.graph().names());
        let (node, other) = (named(position), named(other_position));
        return Err(PlanFault::Overtakes { node, position, other, other_position });
    }
    let assigned = order.apply_unchecked(graph)?;
    Ok(Some(RunOrder { order, assigned }.into()))
}

/// Which tensor of a graph each number of a file means.
enum TensorNumbers {
    /// The graph's own numbers.
    Own,
    /// Those of its [compact](AssignedGraph::compact) form, which is what the text of the graph is read as, in order.
    Text(Vec<TensorId>),
}

impl TensorNumbers {
    /// Compares fingerprints. Fails if the file is the plan of another graph.
    fn new(file: &PlanFile, graph: &AssignedGraph) -> Result<Self, PlanFault> {
        let Some(plan) = &file.graph else { return Err(PlanFault::NoGraph) };
        let own = graph.fingerprint();
        if *plan == own.to_string() {
            return Ok(Self::Own);
        }
        let text = file.text.as_ref().unwrap_or(plan);
        match graph.compact() {
            Ok(compact) if *text == compact.fingerprint().to_string() => Ok(Self::Text(text_order(graph.graph()))),
            _ => Err(PlanFault::Fingerprint { plan: plan.clone(), graph: own }),
        }
    }

    fn tensor(&self, graph: &AssignedGraph, it: &FileTensor) -> Option<TensorId> {
        match self {
            Self::Own => TensorId::from_index(it.id as usize).filter(|id| graph.graph().tensors().has_number(*id)),
            Self::Text(lines) => lines.get(it.line.unwrap_or(it.id) as usize).copied(),
        }
    }
}

/// The memories of a graph and those of a file.
struct MatchedMemories {
    /// The position in the file of each memory of the graph.
    of_graph: IdVec<MemoryId, usize>,
    /// The memory of the graph at each position of the file.
    of_file: Vec<MemoryId>,
}

impl MatchedMemories {
    fn file<'a>(&self, file: &'a PlanFile, memory: MemoryId) -> &'a FileMemory {
        &file.memories[self.of_graph[memory]]
    }
}

fn match_memories(file: &PlanFile, graph: &AssignedGraph, by: MatchMemories) -> Result<MatchedMemories, PlanFault> {
    let mismatch = || {
        let plan: Vec<&str> = file.memories.iter().map(|memory| memory.name.as_str()).collect();
        let graph: Vec<&str> = graph.memories().iter().map(|memory| memory.name.as_str()).collect();
        PlanFault::Memories { plan: plan.join(", "), graph: graph.join(", "), by }
    };
    if file.memories.len() != graph.memories().len() {
        return Err(mismatch());
    }
    // Positions by name, the last first, so that the next one is at the end.
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, memory) in file.memories.iter().enumerate().rev() {
        by_name.entry(&memory.name).or_default().push(index);
    }
    let mut matched = MatchedMemories { of_graph: IdVec::new(), of_file: vec![MemoryId::FIRST; file.memories.len()] };
    for (id, memory) in graph.memories().pairs() {
        let index = match by {
            MatchMemories::ByName => by_name.get_mut(memory.name.as_str()).and_then(Vec::pop).ok_or_else(mismatch)?,
            MatchMemories::ByOrder => id.index(),
        };
        matched.of_graph.push(index);
        matched.of_file[index] = id;
    }
    for (id, memory) in graph.memories().pairs() {
        let plan = matched.file(file, id).shared_with.map(|with| with as usize);
        let shared = memory.shared_with.map(|with| matched.of_graph[with]);
        if plan != shared {
            let word = |with: Option<usize>| match with.map(|with| file.memories.get(with)) {
                None => "with bytes of its own".to_owned(),
                Some(None) => "sharing an unknown memory".to_owned(),
                Some(Some(with)) => format!("sharing memory {}", Clipped(&with.name)),
            };
            return Err(PlanFault::Sharing { memory: memory.name.clone(), plan: word(plan), graph: word(shared) });
        }
    }
    Ok(matched)
}

/// Checks that a plan made for one memory may be used in another.
fn check_memory(plan: &FileMemory, memory: &Memory) -> Result<(), PlanFault> {
    let name = || memory.name.clone();
    if !plan.alignment.get().is_multiple_of(memory.align.get()) {
        return Err(PlanFault::Alignment { memory: name(), plan: plan.alignment, graph: memory.align });
    }
    if plan.hold < memory.extra_lifetime {
        return Err(PlanFault::ExtraLifetime { memory: name(), plan: plan.hold, graph: memory.extra_lifetime });
    }
    let fusion = fusion(plan)?;
    if fusion < memory.fusion {
        return Err(PlanFault::Fusion { memory: name(), plan: fusion.name(), graph: memory.fusion.name() });
    }
    Ok(())
}

/// Returns what the plan of a memory keeps for fusion.
fn fusion(plan: &FileMemory) -> Result<Fusion, PlanFault> {
    let Some(word) = &plan.fusion else { return Ok(Fusion::None) };
    let unknown = || PlanFault::Word { field: "fusion", found: word.clone(), known: "none, checked or kept" };
    Fusion::from_name(word).ok_or_else(unknown)
}
