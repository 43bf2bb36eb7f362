//! Graph in, one proven plan per memory out.
//!
//! ```text
//!   AssignedGraph --liveness, aliases--> live ranges --> one Problem per memory --place, certify--> Plan
//!                                                                                       all of them: GraphPlan
//! ```
//!
//! A plan with in-place aliases is never larger than ggml's in any memory, unless the memory has an extra lifetime or
//! keeps what fusions need, or ggml's plan frees something that must survive, writes over a source that its operation
//! still reads, or moves a node into the memory of its source, where its readers may not reach it. Most are at their
//! lower bound, which is not above ggml's where all of its aliases are made; where one of the two fails, ggml's own
//! placement is computed as well and the smaller one used.

mod error;
mod options;
mod memory_solution;
mod ordered;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ops::ControlFlow;

use steeve_plan::{BlockId, BufferId, Bytes, FreeList, Id, IdVec, Offset, Plan, SearchProgress, Verdict, lower_bound};

use crate::alias::{AliasRule, AliasedRanges, alias_in_place};
use crate::ggml::{GgmlSimulation, simulate};
use crate::live_ranges::{LiveRanges, MemoryProblem, PrefixEnds, end_of_run};
use crate::liveness::{RootLifetimes, root_lifetimes};
use crate::{AssignedGraph, Memory, MemoryId, Named, Tensor, TensorId, TensorPlaces};

pub use error::GraphPlanError;
use memory_solution::{MemorySolution, assemble, in_place_aliases, placed};
#[cfg(feature = "json")]
pub(crate) use memory_solution::{overlaps, unlisted};
pub use options::{GraphStrategy, Order, PlanOptions, Reuse, Unread};
use ordered::in_best_order;
pub(crate) use ordered::{RunOrder, other_order};

/// A proven plan for a graph: one [`Plan`] per memory, and where each tensor is located.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphPlan {
    pub(crate) assigned: AssignedGraph,
    /// The order that it runs in, if that is another one.
    pub(crate) run: Option<Box<RunOrder>>,
    pub(crate) options: PlanOptions,
    pub(crate) memories: Vec<MemoryPlan>,
    /// What each tensor with bytes of its own was given.
    pub(crate) tensor_blocks: Vec<Option<TensorBlock>>,
    /// Tensors that nodes use but that are neither nodes nor leafs.
    pub(crate) unlisted: Vec<TensorId>,
    /// Nodes that are written over a source, with its slot.
    pub(crate) in_place_aliases: Vec<(TensorId, u32)>,
    /// Nodes whose result shares bytes with a source that they still read, with its slot.
    pub(crate) overlaps: Vec<(TensorId, u32)>,
}

/// What a tensor was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorBlock {
    /// Which of the plan's memories.
    pub(crate) memory_plan: u32,
    pub(crate) block: BlockId,
    /// The memory that decides how many bytes the tensor needs.
    pub(crate) sized_by: MemoryId,
    /// The size of the block, so that `fits` need not look it up.
    pub(crate) size: Bytes,
}

/// The plan of one memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Which memory; never one that is another under a second id.
    pub memory: MemoryId,
    /// Where its blocks are located.
    pub plan: Plan,
    /// How good that is, and how it is known.
    pub verdict: Verdict,
    /// No plan of these blocks is smaller: the bound, or more where a search has refuted it.
    pub at_least: Bytes,
    /// The tensor that each block was made for. Where [`Fusion::Kept`](crate::Fusion::Kept) demands it, a tensor has
    /// a second block that follows its own: the prefix that outlives it. These are the last.
    pub tensors: IdVec<BlockId, TensorId>,
    /// Whether live ranges are extended as [`Memory::extra_lifetime`] and [`Memory::fusion`] demand. Not so in ggml's
    /// own plans.
    pub keeps_extra_lifetime: bool,
    /// The memory as it was planned for. In a plan from a file, alignment, extra lifetime and fusion may be more than
    /// the graph's memory demands.
    pub planned_for: Memory,
}

/// Where a tensor is located.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorPlace {
    /// In which memory; never one that is another under a second id.
    pub memory: MemoryId,
    /// In which of its buffers.
    pub buffer: BufferId,
    /// How far from the buffer's start.
    pub offset: Offset,
    /// The bytes that it may use there.
    pub size: Bytes,
}

impl TensorPlace {
    /// Returns the claim that a tensor is located there.
    pub const fn new(memory: MemoryId, buffer: BufferId, offset: Offset, size: Bytes) -> Self {
        Self { memory, buffer, offset, size }
    }
}

/// Plans a graph, and proves the plan.
///
/// ```
/// use steeve_graph::{AssignedGraph, Bytes, PlanOptions, plan_graph};
/// let graph: AssignedGraph = "
///     x = input f32[1024]
///     a = sqr x
///     b = neg a
///     c = add a b !output
/// "
/// .parse()?;
/// let plan = plan_graph(&graph, &PlanOptions::default())?;
/// // `a` takes over `x`; `b` needs bytes of its own, because `a` is read once more; `c` takes over one of them.
/// assert_eq!(plan.peak(), Bytes(2 * 4096));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the tensors of a memory add up to 2^64 bytes or more, or if [`GraphStrategy::Ggml`] is wrong for the graph.
pub fn plan_graph(assigned: &AssignedGraph, options: &PlanOptions) -> Result<GraphPlan, GraphPlanError> {
    plan_graph_watched(assigned, options, &mut |_| ControlFlow::Continue(()))
}

/// Plans a graph as [`plan_graph`] does, and tells `watch` how the search of each memory goes on. `Break` ends it, and the
/// best plan so far is the answer.
///
/// # Errors
///
/// If the tensors of a memory add up to 2^64 bytes or more, or if [`GraphStrategy::Ggml`] is wrong for the graph.
pub fn plan_graph_watched(
    assigned: &AssignedGraph,
    options: &PlanOptions,
    watch: &mut SearchWatcher<'_>,
) -> Result<GraphPlan, GraphPlanError> {
    let options = options.implied();
    let own = planned(&LazySimulation::new(assigned), &options, watch)?;
    in_best_order(assigned, own, &options, watch)
}

/// A plan, and what ggml's allocator takes for the same graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanBesideGgml {
    /// Never larger than ggml's in any memory, unless ggml's plan is wrong for the graph.
    pub plan: GraphPlan,
    /// The bytes of all of ggml's chunks in each memory. A memory that is another under a second id has none of its
    /// own.
    pub ggml: IdVec<MemoryId, Bytes>,
}

/// Plans a graph beside ggml, whose allocator is simulated once. In a memory where our plan would be larger, because
/// of its extra lifetime or of what it keeps for fusions, the layout is ggml's to the byte, and
/// [`MemoryPlan::keeps_extra_lifetime`] is false.
///
/// ```
/// use steeve_graph::{AssignedGraph, Bytes, MemoryId, PlanOptions, plan_beside_ggml};
/// let graph: AssignedGraph = "
///     spare = input f32[2048]
///     x = input f32[1024]
///     y = sqr x
///     z = concat f32[1024,2] y y !output
/// "
/// .parse()?;
/// let beside = plan_beside_ggml(&graph, &PlanOptions::default())?;
/// assert_eq!(beside.ggml[MemoryId::FIRST], Bytes(5 * 4096));
/// assert_eq!(beside.plan.peak(), Bytes(3 * 4096)); // `z` is allocated over `spare`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the tensors of a memory add up to 2^64 bytes or more, in our plan or in ggml's.
pub fn plan_beside_ggml(assigned: &AssignedGraph, options: &PlanOptions) -> Result<PlanBesideGgml, GraphPlanError> {
    plan_beside_ggml_watched(assigned, options, &mut |_| ControlFlow::Continue(()))
}

/// Plans a graph as [`plan_beside_ggml`] does, and tells `watch` how the search of each memory goes on. `Break` ends it, and the
/// best plan so far is the answer.
///
/// # Errors
///
/// If the tensors of a memory add up to 2^64 bytes or more, in our plan or in ggml's.
pub fn plan_beside_ggml_watched(
    assigned: &AssignedGraph,
    options: &PlanOptions,
    watch: &mut SearchWatcher<'_>,
) -> Result<PlanBesideGgml, GraphPlanError> {
    let (run, options) = (LazySimulation::new(assigned), options.implied());
    let ggml: IdVec<MemoryId, Bytes> = run.get()?.free.iter().map(FreeList::total).collect();
    let plan_ggml_ranges = |options: &PlanOptions, watch: &mut SearchWatcher<'_>| {
        plan_ggml_ranges(&run, options, LargerThanGgml::AsGgml, watch)
    };
    let plan = match (options.strategy, options.reuse) {
        (GraphStrategy::Ggml, _) => plan_as_ggml(&run, &options)?,
        (_, Reuse::Ggml) => plan_ggml_ranges(&options, watch)?,
        (_, Reuse::Extended | Reuse::None) => {
            let ours = planned(&run, &options, watch)?;
            let simulation = run.get()?;
            match ours.memories.iter().any(|it| is_larger(assigned, it.memory, &it.plan, simulation)) {
                true => plan_ggml_ranges(&options.with_reuse(Reuse::Ggml), watch)?,
                false => ours,
            }
        }
    };
    let plan = in_best_order(assigned, plan, &options, watch)?;
    Ok(PlanBesideGgml { plan, ggml })
}

/// What is done in a memory whose plan is larger than ggml's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LargerThanGgml {
    /// It is kept: the extended live ranges are needed.
    Kept,
    /// ggml's own layout is used there, which extends no live range.
    AsGgml,
}

/// Returns whether the plan of a memory takes more than ggml's. One with an extra lifetime may, since ggml extends no
/// live range. And where ggml moves a tensor into the memory of its source, ours may need a buffer that is larger
/// than its own memory allows.
fn is_larger(assigned: &AssignedGraph, memory: MemoryId, plan: &Plan, run: &GgmlSimulation) -> bool {
    let ours = plan.buffers().iter().copied().max().unwrap_or_default();
    let theirs = run.free[memory].chunks().max().unwrap_or_default();
    let limit = assigned.memories()[memory].max_buffer.unwrap_or(ours);
    plan.peak() > run.free[memory].total() || ours > limit.max(theirs)
}

fn planned(
    run: &LazySimulation<'_>,
    options: &PlanOptions,
    watch: &mut SearchWatcher<'_>,
) -> Result<GraphPlan, GraphPlanError> {
    match (options.strategy, options.reuse) {
        (GraphStrategy::Ggml, _) => plan_as_ggml(run, options),
        (_, Reuse::Ggml) => plan_ggml_ranges(run, options, LargerThanGgml::Kept, watch),
        (_, Reuse::None) => plan_own_ranges(run, options, AliasRule::None, watch),
        (_, Reuse::Extended) => plan_own_ranges(run, options, AliasRule::Extended, watch),
    }
}

/// A graph, and ggml's events on it, which are simulated when they are first needed.
struct LazySimulation<'a> {
    assigned: &'a AssignedGraph,
    simulation: OnceCell<GgmlSimulation>,
}

impl<'a> LazySimulation<'a> {
    fn new(assigned: &'a AssignedGraph) -> Self {
        Self { assigned, simulation: OnceCell::new() }
    }

    fn get(&self) -> Result<&GgmlSimulation, GraphPlanError> {
        if let Some(simulation) = self.simulation.get() {
            return Ok(simulation);
        }
        let simulation = simulate(self.assigned)?;
        Ok(self.simulation.get_or_init(|| simulation))
    }
}

/// A callback that gets the progress of a search now and then, and returns whether to go on.
type SearchWatcher<'a> = dyn FnMut(&SearchProgress) -> ControlFlow<()> + 'a;

fn plan_as_ggml(run: &LazySimulation<'_>, options: &PlanOptions) -> Result<GraphPlan, GraphPlanError> {
    let (assigned, run) = (run.assigned, run.get()?);
    // A plan is used for other shapes too, so one that does no harm by luck is none.
    if let Some(tensor) = freed_early(assigned, &run.live_ranges, &root_lifetimes(assigned, options.unread)) {
        return Err(GraphPlanError::GgmlFrees { tensor: Named::new(tensor, assigned.graph().names()) });
    }
    let mut solutions = Vec::new();
    for problem in run.live_ranges.problems(assigned, &PrefixEnds::default())? {
        let memory = problem.memory;
        solutions.push(MemorySolution::from_simulation_unlimited(problem, run).map_err(|violations| {
            let memory = assigned.memories()[memory].name.clone();
            GraphPlanError::GgmlFails { memory, violations }
        })?);
    }
    Ok(assemble(assigned, options, &run.live_ranges, solutions))
}

/// Plans ggml's live ranges with a better packing; where that is not smaller, with ggml's own, if it is right.
fn plan_ggml_ranges(
    run: &LazySimulation<'_>,
    options: &PlanOptions,
    larger: LargerThanGgml,
    watch: &mut SearchWatcher<'_>,
) -> Result<GraphPlan, GraphPlanError> {
    let (assigned, run) = (run.assigned, run.get()?);
    let lives = root_lifetimes(assigned, options.unread);
    match GgmlLiveRanges::new(assigned, options, run, &lives)? {
        Some(ranges) => ranges.packed(assigned, options, run, larger, watch),
        None => plan_safe_ggml_ranges(assigned, options, run, &lives, larger, watch),
    }
}

/// Plans ggml's aliases as far as they are safe, for a graph of which ggml frees something early.
fn plan_safe_ggml_ranges(
    assigned: &AssignedGraph,
    options: &PlanOptions,
    run: &GgmlSimulation,
    lives: &RootLifetimes,
    larger: LargerThanGgml,
    watch: &mut SearchWatcher<'_>,
) -> Result<GraphPlan, GraphPlanError> {
    let AliasedRanges { mut live_ranges, .. } = alias_in_place(assigned, AliasRule::Ggml, lives);
    let unextended = live_ranges.clone();
    let prefixes = live_ranges.extend(assigned);
    let mut solutions = placed(assigned, &live_ranges, &prefixes, options, watch)?;
    if larger == LargerThanGgml::AsGgml {
        // ggml's own layout is wrong here, but it extends nothing either.
        for (solution, problem) in solutions.iter_mut().zip(unextended.problems(assigned, &PrefixEnds::default())?) {
            if is_larger(assigned, solution.memory, &solution.plan, run) {
                *solution = MemorySolution {
                    keeps_extra_lifetime: false,
                    ..MemorySolution::placed(assigned, problem, options, watch)?
                };
            }
        }
    }
    Ok(assemble(assigned, options, &live_ranges, solutions))
}

/// ggml's live ranges, which end where our options demand.
struct GgmlLiveRanges {
    live_ranges: LiveRanges,
    problems: Vec<MemoryProblem>,
}

impl GgmlLiveRanges {
    /// Returns `None` if ggml frees something while it is needed.
    fn new(
        assigned: &AssignedGraph,
        options: &PlanOptions,
        run: &GgmlSimulation,
        lives: &RootLifetimes,
    ) -> Result<Option<Self>, GraphPlanError> {
        if freed_early(assigned, &run.live_ranges, lives).is_some() {
            return Ok(None);
        }
        let mut live_ranges = run.live_ranges.clone();
        if options.unread != Unread::Keep {
            shorten_unread(&mut live_ranges, lives);
        }
        let prefixes = live_ranges.extend(assigned);
        let problems = live_ranges.problems(assigned, &prefixes)?;
        Ok(Some(Self { live_ranges, problems }))
    }

    fn packed(
        self,
        assigned: &AssignedGraph,
        options: &PlanOptions,
        run: &GgmlSimulation,
        larger: LargerThanGgml,
        watch: &mut SearchWatcher<'_>,
    ) -> Result<GraphPlan, GraphPlanError> {
        let mut solutions = Vec::with_capacity(self.problems.len());
        for problem in self.problems {
            let ours = MemorySolution::placed(assigned, problem, options, watch)?;
            let theirs = (ours.plan.peak() > run.free[ours.memory].total())
                .then(|| MemorySolution::from_simulation(ours.problem(), run).ok());
            solutions.push(theirs.flatten().unwrap_or(ours));
        }
        if larger == LargerThanGgml::AsGgml && solutions.iter().any(|it| is_larger(assigned, it.memory, &it.plan, run))
        {
            // Both have the same live ranges, so one memory can be ggml's and the next ours.
            let problems = run.live_ranges.problems(assigned, &PrefixEnds::default())?;
            for (solution, problem) in solutions.iter_mut().zip(problems) {
                if is_larger(assigned, solution.memory, &solution.plan, run)
                    && let Ok(theirs) = MemorySolution::from_simulation_unlimited(problem, run)
                {
                    *solution = MemorySolution { keeps_extra_lifetime: false, ..theirs };
                }
            }
        }
        Ok(assemble(assigned, options, &self.live_ranges, solutions))
    }

    /// Returns whether a plan of these live ranges may be smaller than ours in some memory, with aliases of our table
    /// only.
    fn may_beat(&self, assigned: &AssignedGraph, ours: &[MemorySolution]) -> bool {
        let graph = assigned.graph();
        let is_smaller =
            |(their, our): (&MemoryProblem, &MemorySolution)| lower_bound(&their.problem).bytes < our.plan.peak();
        self.problems.iter().zip(ours).any(is_smaller)
            && in_place_aliases(graph, &self.live_ranges)
                .iter()
                .all(|(node, slot)| graph.may_overwrite(*node, *slot as usize))
    }
}

/// Plans our own live ranges. Uses ggml's instead, if any memory of that plan is smaller and all its aliases are in
/// our table: a memory can't be taken from one plan and the next from the other, because a tensor may be located in
/// different memories in the two.
fn plan_own_ranges(
    run: &LazySimulation<'_>,
    options: &PlanOptions,
    rule: AliasRule,
    watch: &mut SearchWatcher<'_>,
) -> Result<GraphPlan, GraphPlanError> {
    let assigned = run.assigned;
    let lives = root_lifetimes(assigned, options.unread);
    let AliasedRanges { mut live_ranges, differs } = alias_in_place(assigned, rule, &lives);
    let prefixes = live_ranges.extend(assigned);
    let solutions = placed(assigned, &live_ranges, &prefixes, options, watch)?;
    let keeps_ggml_in_place = assigned.memories().iter().any(Memory::keeps_ggml_in_place);
    let at_bound = solutions.iter().all(|solution| solution.plan.is_optimal());
    // Without aliases the plan is what it is; with all of ggml's and at the bound it can't be above ggml's.
    if rule == AliasRule::Extended
        && (differs || keeps_ggml_in_place || !at_bound)
        && let Ok(Some(theirs)) = smaller_with_ggml_ranges(run, options, &lives, &solutions, watch)
    {
        return Ok(theirs);
    }
    Ok(assemble(assigned, options, &live_ranges, solutions))
}

/// Returns the plan of ggml's live ranges, if it is smaller than ours in some memory and all its aliases are in our
/// table.
fn smaller_with_ggml_ranges(
    run: &LazySimulation<'_>,
    options: &PlanOptions,
    lives: &RootLifetimes,
    ours: &[MemorySolution],
    watch: &mut SearchWatcher<'_>,
) -> Result<Option<GraphPlan>, GraphPlanError> {
    let (assigned, run) = (run.assigned, run.get()?);
    let theirs = match GgmlLiveRanges::new(assigned, options, run, lives)? {
        Some(ranges) if !ranges.may_beat(assigned, ours) => return Ok(None),
        Some(ranges) => ranges.packed(assigned, options, run, LargerThanGgml::Kept, watch)?,
        None => plan_safe_ggml_ranges(assigned, options, run, lives, LargerThanGgml::Kept, watch)?,
    };
    let is_smaller =
        theirs.in_place_aliases.iter().all(|(node, slot)| assigned.graph().may_overwrite(*node, *slot as usize))
            && theirs.aliased_across_memories().is_none()
            && theirs.memories.iter().zip(ours).any(|(their, our)| their.plan.peak() < our.plan.peak());
    Ok(is_smaller.then_some(theirs))
}

/// Returns a tensor whose bytes ggml's events free while they are still needed: the root of an output that is a view
/// and is read, or a tensor whose counts are confused.
fn freed_early(assigned: &AssignedGraph, live_ranges: &LiveRanges, lives: &RootLifetimes) -> Option<TensorId> {
    let (aliased, end) = (live_ranges.aliased(), end_of_run(assigned));
    let index = lives.of_root.iter().zip(&live_ranges.of_tensor).position(|(life, range)| {
        // What is used must have bytes; views and external tensors have no live range of their own.
        let Some(range) = *range else { return life.is_allocated() };
        let it = &live_ranges.ranges[range];
        // A node is written over its source at the last use.
        let until = if aliased[range] { it.end } else { it.end - 1 };
        let last = life.last.min(end - 1);
        it.start > life.first || last > until || (life.kept && aliased[range])
    });
    index.and_then(TensorId::from_index)
}

/// Ends the live ranges of tensors that ggml never frees where ours end. ggml's places are right for shorter ones,
/// too.
fn shorten_unread(live_ranges: &mut LiveRanges, lives: &RootLifetimes) {
    for (life, range) in lives.of_root.iter().zip(&live_ranges.of_tensor) {
        if let Some(range) = *range {
            // What is aliased ends at the last use, so this never shortens it.
            let end = &mut live_ranges.ranges[range].end;
            *end = (*end).min(life.last + 1);
        }
    }
}

impl GraphPlan {
    /// Returns the graph it was made for.
    pub fn assigned(&self) -> &AssignedGraph {
        &self.assigned
    }

    /// Returns how it was made.
    pub fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// Returns the plan of each memory that is not another under a second id, in order.
    pub fn memories(&self) -> &[MemoryPlan] {
        &self.memories
    }

    /// Returns a node that is written over a source in another memory than the one it was assigned to, as only
    /// happens with ggml's reuse.
    pub fn aliased_across_memories(&self) -> Option<TensorId> {
        let (graph, assignment) = (self.in_run_order().graph(), self.in_run_order().assignment());
        let mut assigned = graph.nodes().iter().zip(&assignment.nodes);
        // Both lists are in the order of nodes.
        let is_away = |node: &TensorId| {
            let own = assigned.find(|(other, _)| *other == node).map(|(_, memory)| self.assigned.owner(*memory));
            self.block(*node).map(|(it, _)| it.memory) != own
        };
        self.in_place_aliases.iter().map(|(node, _)| *node).find(is_away)
    }

    /// Returns the bytes of all memories together.
    pub fn peak(&self) -> Bytes {
        Bytes(self.memories.iter().fold(0, |sum: u64, it| sum.saturating_add(it.plan.peak().0)))
    }

    /// Returns the block of a tensor with bytes of its own, with the plan of its memory.
    pub fn block(&self, tensor: TensorId) -> Option<(&MemoryPlan, BlockId)> {
        let it = self.tensor_blocks.get(tensor.index()).copied().flatten()?;
        Some((&self.memories[it.memory_plan as usize], it.block))
    }

    /// Returns whether a block is a tensor's own, and not a prefix that outlives it.
    pub fn is_own_block(&self, memory: &MemoryPlan, block: BlockId) -> bool {
        let own = memory.tensors.get(block).and_then(|tensor| self.block(*tensor));
        own.is_some_and(|(it, own)| it.memory == memory.memory && own == block)
    }

    /// Returns the memory that decides how many bytes a tensor with bytes of its own needs: the one it is located in,
    /// perhaps under another id.
    pub fn sized_by(&self, tensor: TensorId) -> Option<MemoryId> {
        self.tensor_blocks.get(tensor.index()).copied().flatten().map(|it| it.sized_by)
    }

    /// Returns the nodes that are written over a source in place, with its slot.
    pub fn in_place_aliases(&self) -> &[(TensorId, u32)] {
        &self.in_place_aliases
    }

    /// Returns the nodes whose result shares bytes with a source that they still read, with its slot: what their kernels
    /// [allow](crate::Graph::may_overlap).
    pub fn overlaps(&self) -> &[(TensorId, u32)] {
        &self.overlaps
    }

    /// Returns where each tensor with bytes of its own is located, as a claim that [`replay`](crate::replay()) can
    /// judge.
    pub fn places(&self) -> TensorPlaces {
        let tensors = self.assigned.graph().tensors();
        let own = |(id, tensor): (TensorId, &Tensor)| if tensor.is_planned() { self.place(id) } else { None };
        let PlanOptions { reuse, unread, .. } = self.options;
        let without_extra_lifetime =
            self.memories.iter().filter(|it| !it.keeps_extra_lifetime).map(|it| it.memory).collect();
        let places = tensors.pairs().map(own).collect();
        TensorPlaces { places, order: self.order().cloned(), reuse, unread, without_extra_lifetime }
    }

    /// Returns where a tensor is allocated, also a view; `None` for external memory and for what the graph never touches.
    /// The tensor is known by its number, as graphs that the plan [fits](Self::fits) have their own ids.
    pub fn place(&self, tensor: TensorId) -> Option<TensorPlace> {
        let tensors = self.assigned.graph().tensors();
        if !tensors.has_number(tensor) {
            return None;
        }
        let it = &tensors[tensor];
        let (memory, block) = self.block(tensors.root(tensor))?;
        let place = memory.plan.place(block);
        let offset = place.offset.checked_add(tensors.offset(tensor))?;
        let size = if it.is_view() { it.nbytes() } else { memory.plan.problem().blocks()[block].size };
        Some(TensorPlace { memory: memory.memory, buffer: place.buffer, offset, size })
    }
}
