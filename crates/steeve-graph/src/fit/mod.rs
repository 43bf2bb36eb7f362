//! A graph and the bytes there are in, a graph and a plan within them out, if there are any.
//!
//! What costs nothing comes first: packing, results in place of what dies, another order of the nodes. Then chains of nodes are
//! done in parts, where most is alive first and in as few parts as will do. Each step is named with what it costs.

mod tile_search;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use steeve_plan::{BlockId, Bytes, Clipped};

use self::tile_search::{Hopeless, TileSearch, TiledChain};
use crate::plan::other_order;
use crate::{
    AssignedGraph, Graph, GraphPlan, GraphPlanError, GraphStrategy, MemoryId, Order, PlanOptions, Reuse, RowChain,
    TensorId, TileError, plan_graph, share_buffers, tile,
};

/// How a graph is fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FitOptions {
    /// How graphs are planned. In-place aliases are used as far as these options allow. Another order is a step of its own
    /// and comes before chains in parts, whatever these options say of it: if the graph does not fit in its own order, and does
    /// in the other, or that saves as much as an [order search](PlanOptions::order_search) asks for.
    pub plan: PlanOptions,
    /// The most parts in which a chain is done, if it has as many rows. If not given, as many as it has rows, but no more than
    /// make 65,536 nodes of it: chains along vectors have millions of rows, and each part is written and planned.
    pub most_parts: Option<u64>,
}

impl FitOptions {
    /// Returns the default with other options for plans.
    pub const fn new(plan: PlanOptions) -> Self {
        Self { plan, most_parts: None }
    }

    /// Limits the number of parts; 1 leaves the graph as it is.
    #[must_use]
    pub const fn with_most_parts(mut self, parts: u64) -> Self {
        self.most_parts = Some(parts);
        self
    }
}

/// A graph, a plan for it, and how it came to be so small.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fitted {
    /// The graph: the given one, or one that computes the same in another order of the nodes, in parts, or both. Leafs, outputs
    /// and what is read outside of chains keep their ids.
    pub graph: AssignedGraph,
    /// Its plan.
    pub plan: GraphPlan,
    /// The plans of the graphs beside it, which share its buffers.
    pub beside: Vec<GraphPlan>,
    /// What was done, in order. The last one's bytes are what is needed.
    pub steps: Vec<FitStep>,
}

/// One of the things that were done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FitStep {
    /// What was done.
    pub action: FitAction,
    /// The bytes of each memory's buffers, those of the graphs beside included; of tiles, what is alive at most in this chain
    /// of nodes, by estimate, in the memory they are for.
    pub bytes: Vec<(MemoryId, Bytes)>,
    /// What it costs when the graph runs, by estimate.
    pub cost: FitCost,
}

/// What can be done to need fewer bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FitAction {
    /// Tensors share bytes one after the other.
    Pack,
    /// Results are written over what dies.
    InPlace,
    /// The nodes run in another order.
    Order {
        /// How many nodes are elsewhere.
        moved: usize,
    },
    /// A chain of nodes is done in parts.
    Tile {
        /// Its nodes, as positions in the given graph, or in the other order of it.
        nodes: Range<usize>,
        /// The name of the first tensor, and that of the last.
        names: [String; 2],
        /// How many rows there are.
        rows: u64,
        /// In how many parts they are computed.
        parts: u64,
    },
    /// Everything so far, as it was planned at last.
    Plan,
}

impl fmt::Display for FitAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pack => f.write_str("pack"),
            Self::InPlace => f.write_str("in place"),
            Self::Order { moved } => write!(f, "another order: {moved} nodes moved"),
            Self::Plan => f.write_str("plan"),
            Self::Tile { nodes, names: [first, last], rows, parts } => {
                let (start, end) = (nodes.start, nodes.end - 1);
                let (first, last) = (Clipped(first), Clipped(last));
                write!(f, "{rows} rows in {parts} parts: nodes {start} ({first}) to {end} ({last})")
            }
        }
    }
}

/// What a step costs when the graph runs, by estimate. The arithmetic stays the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FitCost {
    /// Bytes that are read again in each part but the first: weights, keys and values.
    pub weights: Bytes,
    /// More nodes that compute something.
    pub launches: u64,
}

/// Why a graph was not fitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// A capacity for a memory that there is not.
    #[error("memory {memory}: unknown: expected one of {memories} memories that share no other's bytes")]
    Memory {
        /// The memory.
        memory: MemoryId,
        /// How many there are that share no other's bytes.
        memories: usize,
    },
    /// Two capacities for one memory.
    #[error("memory {memory}: capacity: expected one, got two")]
    Twice {
        /// The memory.
        memory: MemoryId,
    },
    /// The graph can't be planned.
    #[error("graph: no plan")]
    Plan(#[source] GraphPlanError),
    /// A graph beside it can't be planned.
    #[error("graph {graph} beside it: no plan")]
    Beside {
        /// Which one, from 0.
        graph: usize,
        /// The cause.
        #[source]
        error: GraphPlanError,
    },
    /// A graph beside it is assigned to other memories.
    #[error("graph {graph} beside it: can't share buffers: expected the memories of the graph, got others")]
    Memories {
        /// Which one, from 0.
        graph: usize,
    },
    /// Chains can't be done in parts.
    #[error("graph: chains can't be done in parts")]
    Tile(#[from] TileError),
    /// It does not fit.
    #[error(transparent)]
    TooLarge(Box<DoesNotFit>),
}

/// The least that was reached, and what is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DoesNotFit {
    /// The memory that is too small.
    pub memory: MemoryId,
    /// Its name.
    pub name: String,
    /// How much there is.
    pub capacity: Bytes,
    /// How much is needed at least, as far as was found.
    pub needed: Bytes,
    /// The graph that needs most, if it is one of those beside.
    pub beside: Option<usize>,
    /// What is alive in it where most is, largest first.
    pub alive: Vec<(TensorId, String, Bytes)>,
    /// The smallest graph and plan.
    pub smallest: Fitted,
}

impl core::error::Error for DoesNotFit {}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, capacity, needed, beside, alive, .. } = self;
        write!(f, "memory {}: too small: {capacity} bytes available, at least {needed} needed", Clipped(name))?;
        if let Some(graph) = beside {
            write!(f, " by graph {graph} beside it")?;
        }
        let mut before = "; alive there: ";
        for (id, name, bytes) in alive.iter().take(4) {
            match name.is_empty() {
                true => write!(f, "{before}tensor {id} ({bytes} bytes)")?,
                false => write!(f, "{before}{} ({bytes} bytes)", Clipped(name))?,
            }
            before = ", ";
        }
        if alive.len() > 4 { write!(f, " and {} more", alive.len() - 4) } else { Ok(()) }
    }
}

/// Finds a graph and a plan that need no more than `capacity` in each memory that it names.
///
/// The graphs `beside` never run at the same time, such as one for a single token beside one for a prompt: they stay as they
/// are, and each buffer is as large as the largest need.
///
/// ```
/// use steeve_graph::{AssignedGraph, Bytes, FitOptions, MemoryId, fit};
/// let graph: AssignedGraph = "
///     w = external f32[16,640]; v = external f32[640,16]
///     x = input f32[16,80]
///     up = mul_mat w x
///     act = silu up
///     down = mul_mat v act
///     y = add down x !output
/// "
/// .parse()?;
/// let fitted = fit(&graph, &[], &[(MemoryId::FIRST, Bytes(100_000))], &FitOptions::default())?;
/// assert!(fitted.plan.peak() <= Bytes(100_000));
/// assert_eq!(fitted.steps[2].action.to_string(), "80 rows in 3 parts: nodes 0 (up) to 2 (down)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If a graph has no plan, or nothing that was found fits: then with the smallest, and what is alive at its peak.
pub fn fit(
    graph: &AssignedGraph,
    beside: &[&AssignedGraph],
    capacity: &[(MemoryId, Bytes)],
    options: &FitOptions,
) -> Result<Fitted, FitError> {
    check_memories(graph, capacity)?;
    // Another order is a step of its own: the steps of a plan are then those of its graph.
    let options = &FitOptions { plan: options.plan.with_order(Order::Keep), ..*options };
    let mut fitting = Fitting::new(graph, plans_beside(graph, beside, options)?, capacity, options);
    if options.plan.reuse != Reuse::None && options.plan.strategy != GraphStrategy::Ggml {
        let packed = plan_graph(graph, &options.plan.with_reuse(Reuse::None)).map_err(FitError::Plan)?;
        fitting.note(FitAction::Pack, &packed);
    }
    let plan = plan_graph(graph, &options.plan).map_err(FitError::Plan)?;
    fitting.note(if options.plan.reuse == Reuse::None { FitAction::Pack } else { FitAction::InPlace }, &plan);
    let plan = fitting.ordered(plan)?;
    fitting.tiled(plan)
}

fn check_memories(graph: &AssignedGraph, capacity: &[(MemoryId, Bytes)]) -> Result<(), FitError> {
    for (index, &(memory, _)) in capacity.iter().enumerate() {
        if !graph.owners().any(|owner| owner == memory) {
            return Err(FitError::Memory { memory, memories: graph.owners().count() });
        }
        if capacity[..index].iter().any(|(earlier, _)| *earlier == memory) {
            return Err(FitError::Twice { memory });
        }
    }
    Ok(())
}

fn plans_beside(
    graph: &AssignedGraph,
    beside: &[&AssignedGraph],
    options: &FitOptions,
) -> Result<Vec<GraphPlan>, FitError> {
    let planned = |(index, other): (usize, &&AssignedGraph)| match other.memories() == graph.memories() {
        true => plan_graph(other, &options.plan).map_err(|error| FitError::Beside { graph: index, error }),
        false => Err(FitError::Memories { graph: index }),
    };
    beside.iter().enumerate().map(planned).collect()
}

struct Fitting<'a> {
    graph: &'a AssignedGraph,
    beside: Vec<GraphPlan>,
    capacity: &'a [(MemoryId, Bytes)],
    /// Below what the graph need not come in each memory with a capacity: that, or what the graphs beside it need alone.
    limits: Vec<(MemoryId, u64)>,
    options: &'a FitOptions,
    steps: Vec<FitStep>,
}

impl<'a> Fitting<'a> {
    fn new(
        graph: &'a AssignedGraph,
        beside: Vec<GraphPlan>,
        capacity: &'a [(MemoryId, Bytes)],
        options: &'a FitOptions,
    ) -> Self {
        let limit = |(memory, capacity): &(MemoryId, Bytes)| (*memory, bytes_in(&beside, *memory).max(capacity.get()));
        let limits = capacity.iter().map(limit).collect();
        Self { graph, beside, capacity, limits, options, steps: Vec::new() }
    }

    /// Notes what was done, and what a plan needs.
    fn note(&mut self, action: FitAction, plan: &GraphPlan) {
        let bytes = plan.memories().iter().map(|it| (it.memory, self.needed(plan, it.memory))).collect();
        self.steps.push(FitStep { action, bytes, cost: FitCost::default() });
    }

    /// Returns the bytes that a memory's buffers need for a plan and those beside it.
    fn needed(&self, plan: &GraphPlan, memory: MemoryId) -> Bytes {
        Bytes(bytes_in(self.beside.iter().chain([plan]), memory))
    }

    /// Returns by how many bytes a plan is above the limits, in all memories.
    fn excess(&self, plan: &GraphPlan) -> u64 {
        let above = |(memory, limit): &(MemoryId, u64)| self.needed(plan, *memory).get().saturating_sub(*limit);
        self.limits.iter().map(above).fold(0, u64::saturating_add)
    }

    /// Returns the plan of another order of the nodes, if the plan does not fit, and that one does or has much less missing.
    fn ordered(&mut self, plan: GraphPlan) -> Result<GraphPlan, FitError> {
        if self.excess(&plan) == 0 || self.options.plan.strategy == GraphStrategy::Ggml {
            return Ok(plan);
        }
        let Some(run) = other_order(plan.assigned(), &self.options.plan, |_| true) else { return Ok(plan) };
        let other = plan_graph(&run.assigned, &self.options.plan).map_err(FitError::Plan)?;
        let (missing, left) = (self.excess(&plan), self.excess(&other));
        let own = self.limits.iter().map(|(memory, _)| self.needed(&plan, *memory).get()).fold(0, u64::saturating_add);
        let found = Bytes(own.saturating_sub(missing.saturating_sub(left)));
        // Where tiles follow anyway, a little less is no reason to give up the order of the graph.
        if left > 0 && !self.options.plan.order_search.is_worth_while(Bytes(own), found) {
            return Ok(plan);
        }
        self.note(FitAction::Order { moved: run.order.moved(plan.assigned().graph()).len() }, &other);
        Ok(other)
    }

    /// Does chains in parts until the plan fits, or nothing helps.
    fn tiled(mut self, plan: GraphPlan) -> Result<Fitted, FitError> {
        let graph = plan.assigned().clone();
        let (mut best, mut chains) = (plan.clone(), Vec::new());
        let mut last = plan.clone();
        let mut goals = self.goals(&plan);
        let mut before: Vec<(RowChain, u64)> = Vec::new();
        let mut alike = 0;
        for _ in 0..ROUNDS {
            if self.excess(&best) == 0 || goals.is_empty() {
                break;
            }
            let found = chains_below(&mut goals);
            let parts: Vec<_> = found.iter().map(|(_, it)| (it.chain.clone(), it.parts)).collect();
            if parts == before {
                alike += 1;
            } else {
                alike = 0;
                last = plan_graph(&tile(plan.assigned(), &parts)?, &self.options.plan).map_err(FitError::Plan)?;
                before = parts;
                if self.excess(&last) < self.excess(&best) {
                    (best, chains) = (last.clone(), found);
                }
            }
            let mut is_lower = false;
            for goal in &mut goals {
                is_lower |= goal.lower(self.needed(&last, goal.memory).get(), alike);
            }
            if !is_lower {
                break;
            }
        }
        for (memory, tiled) in &chains {
            self.steps.push(tile_step(graph.graph(), *memory, tiled));
        }
        if !chains.is_empty() {
            self.note(FitAction::Plan, &best);
        }
        self.finish(best)
    }

    /// Returns what is to be reached in each memory in which a plan does not fit.
    fn goals<'p>(&self, plan: &'p GraphPlan) -> Vec<Goal<'p>> {
        let too_small = self.limits.iter().filter(|(memory, limit)| self.needed(plan, *memory).get() > *limit);
        let goal = |&(memory, limit): &(MemoryId, u64)| {
            let search = TileSearch::new(plan, memory, self.options.most_parts);
            Goal { memory, limit, target: limit, floor: None, search }
        };
        match self.options.most_parts {
            Some(..2) => Vec::new(),
            _ => too_small.map(goal).collect(),
        }
    }

    fn finish(self, plan: GraphPlan) -> Result<Fitted, FitError> {
        let over = self.capacity.iter().find(|(memory, capacity)| self.needed(&plan, *memory) > *capacity);
        let over = over.map(|(memory, capacity)| (*memory, *capacity, self.needed(&plan, *memory)));
        let fitted = Fitted { graph: plan.assigned().clone(), plan, beside: self.beside, steps: self.steps };
        let Some((memory, capacity, needed)) = over else { return Ok(fitted) };
        let name = self.graph.memories()[memory].name.clone();
        // Of those that need as much, one beside it: that can't be helped.
        let plans = fitted.beside.iter().enumerate().map(|(graph, plan)| (Some(graph), plan));
        let largest = plans.fold((None, &fitted.plan), |most, it| {
            if bytes_in([it.1], memory) >= bytes_in([most.1], memory) { it } else { most }
        });
        let (beside, alive) = (largest.0, alive_at_peak(largest.1, memory));
        let smallest = fitted;
        Err(FitError::TooLarge(Box::new(DoesNotFit { memory, name, capacity, needed, beside, alive, smallest })))
    }
}

/// Returns what is said of a chain.
fn tile_step(graph: &Graph, memory: MemoryId, tiled: &TiledChain) -> FitStep {
    let nodes = tiled.chain.nodes();
    let name = |at: usize| graph.name(graph.nodes()[at]).to_string();
    let names = [name(nodes.start), name(nodes.end - 1)];
    let action = FitAction::Tile { nodes, names, rows: tiled.chain.rows(), parts: tiled.parts };
    FitStep { action, bytes: alloc::vec![(memory, tiled.bytes)], cost: tiled.cost }
}

/// How often chains are looked for again because packing adds to what is alive.
const ROUNDS: usize = 8;

/// How few bytes are to be alive in a memory.
struct Goal<'a> {
    memory: MemoryId,
    /// What the plan may need.
    limit: u64,
    /// What may be alive: lower than the limit by what packing adds.
    target: u64,
    /// What is alive whatever is done in parts; `None` before the first search.
    floor: Option<u64>,
    search: TileSearch<'a>,
}

impl Goal<'_> {
    /// Returns chains that reach the target, besides those that are `taken`; if some node stays above, those that bring the
    /// others as low as that: more parts help no more.
    fn chains(&mut self, taken: &[TiledChain]) -> Vec<TiledChain> {
        if let Some(floor) = self.floor {
            return self.search.chains_below(self.target, taken, Hopeless::Skip(floor)).0;
        }
        let (found, floor) = self.search.chains_below(self.target, taken, Hopeless::Stop);
        self.floor = Some(floor);
        if floor <= self.target {
            return found;
        }
        self.target = floor;
        self.search.chains_below(floor, taken, Hopeless::Stop).0
    }

    /// Lowers the target by what a plan is above the limit; by more each time that this has changed nothing. Returns whether
    /// there is anything left to be tried.
    fn lower(&mut self, needed: u64, times: u32) -> bool {
        let above = needed.saturating_sub(self.limit);
        if above == 0 || self.target == 0 || self.floor.is_some_and(|floor| floor > self.limit) {
            return false;
        }
        let step = above.max(self.target / 64).max(1);
        self.target = self.target.saturating_sub(step.saturating_mul(1 << times.min(ROUNDS as u32)));
        true
    }
}

/// Returns the chains that bring each memory below its target, in the order of their nodes.
fn chains_below(goals: &mut [Goal<'_>]) -> Vec<(MemoryId, TiledChain)> {
    let mut chains: Vec<(MemoryId, TiledChain)> = Vec::new();
    for goal in goals {
        let taken: Vec<TiledChain> = chains.iter().map(|(_, it)| it.clone()).collect();
        chains.extend(goal.chains(&taken).into_iter().map(|it| (goal.memory, it)));
    }
    chains.sort_by_key(|(_, it)| it.chain.nodes().start);
    chains
}

/// Returns the bytes of a memory's buffers that are shared by plans.
fn bytes_in<'p>(plans: impl IntoIterator<Item = &'p GraphPlan>, memory: MemoryId) -> u64 {
    let mut sizes = Vec::new();
    for plan in plans {
        if let Some(it) = plan.memories().iter().find(|it| it.memory == memory) {
            share_buffers(&mut sizes, it.plan.buffers().as_slice());
        }
    }
    sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.get()))
}

/// Returns what is alive at the first step at which most is, largest first.
fn alive_at_peak(plan: &GraphPlan, memory: MemoryId) -> Vec<(TensorId, String, Bytes)> {
    let Some(it) = plan.memories().iter().find(|it| it.memory == memory) else { return Vec::new() };
    let Some(step) = it.plan.bound().step else { return Vec::new() };
    let graph = plan.assigned().graph();
    let named = |block: BlockId| {
        let tensor = it.tensors[block];
        (tensor, graph.name(tensor).to_string(), it.plan.problem().blocks()[block].size)
    };
    let mut alive: Vec<_> = it.plan.problem().alive_at(step).into_iter().map(named).collect();
    alive.sort_by_key(|(id, _, bytes)| (core::cmp::Reverse(*bytes), *id));
    alive
}
