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

use steeve_plan::{BlockId, Bytes, Clipped, Step};

use self::tile_search::{TileSearch, TiledChain};
use crate::{
    AssignedGraph, Graph, GraphPlan, GraphPlanError, GraphStrategy, MemoryId, Order, PlanOptions, Reuse, RowChain,
    TensorId, TileError, best_order, plan_graph, share_buffers, tile,
};

/// How a graph is fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FitOptions {
    /// How graphs are planned. In-place aliases are used as far as these options allow; another order is a step that is
    /// taken when nothing else fits, whatever they say.
    pub plan: PlanOptions,
    /// The most parts in which a chain is done; as many as it has rows, if not given.
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
    /// The graph: the given one, or one that computes the same in parts. Leafs, outputs and what is read outside of chains
    /// keep their ids.
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
        /// How many there are.
        memories: usize,
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
    let memories = graph.memories().len();
    let is_known = |memory: MemoryId| graph.owners().any(|owner| owner == memory);
    if let Some((memory, _)) = capacity.iter().find(|(memory, _)| !is_known(*memory)) {
        return Err(FitError::Memory { memory: *memory, memories });
    }
    // Another order is a step of its own: the steps of a plan are then those of its graph.
    let options = &FitOptions { plan: options.plan.with_order(Order::Keep), ..*options };
    let mut fitting =
        Fitting { graph, beside: plans_beside(graph, beside, options)?, capacity, options, steps: Vec::new() };
    if options.plan.reuse != Reuse::None && options.plan.strategy != GraphStrategy::Ggml {
        let packed = plan_graph(graph, &options.plan.with_reuse(Reuse::None)).map_err(FitError::Plan)?;
        fitting.note(FitAction::Pack, &packed);
    }
    let plan = plan_graph(graph, &options.plan).map_err(FitError::Plan)?;
    fitting.note(if options.plan.reuse == Reuse::None { FitAction::Pack } else { FitAction::InPlace }, &plan);
    let plan = fitting.ordered(plan)?;
    fitting.tiled(plan)
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
    options: &'a FitOptions,
    steps: Vec<FitStep>,
}

impl Fitting<'_> {
    /// Notes what was done, and what a plan needs.
    fn note(&mut self, action: FitAction, plan: &GraphPlan) {
        let bytes = plan.memories().iter().map(|it| (it.memory, self.needed(plan, it.memory))).collect();
        self.steps.push(FitStep { action, bytes, cost: FitCost::default() });
    }

    /// Returns the bytes that a memory's buffers need for a plan and those beside it.
    fn needed(&self, plan: &GraphPlan, memory: MemoryId) -> Bytes {
        let mut sizes = Vec::new();
        for plan in self.beside.iter().chain([plan]) {
            if let Some(it) = plan.memories().iter().find(|it| it.memory == memory) {
                share_buffers(&mut sizes, it.plan.buffers().as_slice());
            }
        }
        Bytes(sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.get())))
    }

    /// Returns by how many bytes a plan is above the capacities, in all memories.
    fn excess(&self, plan: &GraphPlan) -> u64 {
        let above =
            |(memory, capacity): &(MemoryId, Bytes)| self.needed(plan, *memory).get().saturating_sub(capacity.get());
        self.capacity.iter().map(above).fold(0, u64::saturating_add)
    }

    /// Returns the plan of another order of the nodes, if the plan does not fit and that one needs less.
    fn ordered(&mut self, plan: GraphPlan) -> Result<GraphPlan, FitError> {
        if self.excess(&plan) == 0 || self.options.plan.strategy == GraphStrategy::Ggml {
            return Ok(plan);
        }
        let search = self.options.plan.order_search;
        let found = best_order(plan.assigned(), &self.options.plan, &search);
        // An order of the graph's own nodes is one that it can be put into.
        let Ok(assigned) = found.order.apply(plan.assigned()) else { return Ok(plan) };
        if found.order.is_own() {
            return Ok(plan);
        }
        let other = plan_graph(&assigned, &self.options.plan).map_err(FitError::Plan)?;
        if !search.is_worth_while(plan.peak(), other.peak()) || self.excess(&other) >= self.excess(&plan) {
            return Ok(plan);
        }
        self.note(FitAction::Order { moved: found.order.moved(plan.assigned().graph()).len() }, &other);
        Ok(other)
    }

    /// Does chains in parts until the plan fits, or nothing helps.
    fn tiled(mut self, plan: GraphPlan) -> Result<Fitted, FitError> {
        let graph = plan.assigned().clone();
        let mut best = (self.excess(&plan), plan.clone(), Vec::new());
        let mut targets: Vec<u64> = self.capacity.iter().map(|(_, capacity)| capacity.get()).collect();
        let mut before: Vec<(RowChain, u64)> = Vec::new();
        for _ in 0..ROUNDS {
            if best.0 == 0 {
                break;
            }
            let chains = self.chains(&plan, &targets);
            let parts: Vec<_> = chains.iter().map(|(_, it)| (it.chain.clone(), it.parts)).collect();
            if parts == before {
                break;
            }
            let tiled = plan_graph(&tile(plan.assigned(), &parts)?, &self.options.plan).map_err(FitError::Plan)?;
            // What packing adds to what is alive is taken off the next target.
            for ((memory, capacity), target) in self.capacity.iter().zip(&mut targets) {
                let above = self.needed(&tiled, *memory).get().saturating_sub(capacity.get());
                *target = target.saturating_sub(above);
            }
            let excess = self.excess(&tiled);
            if excess < best.0 {
                best = (excess, tiled, chains);
            }
            before = parts;
        }
        let (_, plan, chains) = best;
        for (memory, tiled) in &chains {
            self.steps.push(tile_step(graph.graph(), *memory, tiled));
        }
        if !chains.is_empty() {
            self.note(FitAction::Plan, &plan);
        }
        self.finish(plan)
    }

    /// Returns the chains that bring each memory below its target, in the order of their nodes.
    fn chains(&self, plan: &GraphPlan, targets: &[u64]) -> Vec<(MemoryId, TiledChain)> {
        let most = self.options.most_parts.unwrap_or(u64::MAX);
        let mut chains: Vec<(MemoryId, TiledChain)> = Vec::new();
        if most < 2 {
            return chains;
        }
        for ((memory, capacity), target) in self.capacity.iter().zip(targets) {
            if self.needed(plan, *memory) <= *capacity {
                continue;
            }
            let search = TileSearch::new(plan, *memory, most);
            let taken: Vec<TiledChain> = chains.iter().map(|(_, it)| it.clone()).collect();
            let (mut found, floor) = search.chains_below(*target, &taken);
            if floor > *target {
                // More parts than that help no more.
                found = search.chains_below(floor, &taken).0;
            }
            chains.extend(found.into_iter().map(|it| (*memory, it)));
        }
        chains.sort_by_key(|(_, it)| it.chain.nodes().start);
        chains
    }

    fn finish(self, plan: GraphPlan) -> Result<Fitted, FitError> {
        let over = self.capacity.iter().find(|(memory, capacity)| self.needed(&plan, *memory) > *capacity);
        let over = over.map(|(memory, capacity)| (*memory, *capacity, self.needed(&plan, *memory)));
        let fitted = Fitted { graph: plan.assigned().clone(), plan, beside: self.beside, steps: self.steps };
        let Some((memory, capacity, needed)) = over else { return Ok(fitted) };
        let name = self.graph.memories()[memory].name.clone();
        let beside = fitted.beside.iter().enumerate().map(|(graph, plan)| (Some(graph), plan));
        let plans = beside.chain([(None, &fitted.plan)]);
        let largest = plans.max_by_key(|(_, plan)| peak_in(plan, memory));
        let (beside, alive) =
            largest.map_or((None, Vec::new()), |(beside, plan)| (beside, alive_at_peak(plan, memory)));
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

fn peak_in(plan: &GraphPlan, memory: MemoryId) -> Bytes {
    plan.memories().iter().find(|it| it.memory == memory).map_or(Bytes::ZERO, |it| it.plan.peak())
}

/// Returns what is alive at the step at which most is, largest first.
fn alive_at_peak(plan: &GraphPlan, memory: MemoryId) -> Vec<(TensorId, String, Bytes)> {
    let Some(it) = plan.memories().iter().find(|it| it.memory == memory) else { return Vec::new() };
    let blocks = it.plan.problem().blocks();
    let is_alive = |block: BlockId, step: Step| blocks[block].life.start() <= step && step < blocks[block].life.end();
    let alive_at = |step: Step| blocks.ids().filter(move |block| is_alive(*block, step));
    let starts = blocks.iter().map(|block| block.life.start());
    let bytes_at = |step: &Step| alive_at(*step).fold(0u64, |sum, block| sum.saturating_add(blocks[block].size.get()));
    let Some(step) = starts.max_by_key(|step| (bytes_at(step), core::cmp::Reverse(*step))) else { return Vec::new() };
    let graph = plan.assigned().graph();
    let named = |block: BlockId| {
        let tensor = it.tensors[block];
        (tensor, graph.name(tensor).to_string(), blocks[block].size)
    };
    let mut alive: Vec<_> = alive_at(step).map(named).collect();
    alive.sort_by_key(|(id, _, bytes)| (core::cmp::Reverse(*bytes), *id));
    alive
}
