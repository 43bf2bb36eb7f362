//! Converts plans to what is drawn: rectangles with names, one set per memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use steeve_graph::{GraphPlan, MemoryPlan, Op, TensorId, Tensors};
use steeve_plan::{BlockId, Bytes, Id, IdVec, Lifetime, Offset, Plan, Step};

use crate::last_use::{last_uses, used_steps};
use crate::layer::source_of_copy;
use crate::live_curve::live_curve;
use crate::purpose::{TensorPurpose, purposes};
use crate::role::is_no_name;
use crate::{LastUse, Role, layer_of};

/// One plan, or two to be compared.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Picture {
    /// The title of the picture.
    pub title: String,
    /// One or two. With two, the second is the one that was made from the first, or is meant to be better.
    pub maps: Vec<PlanMap>,
    /// The steps that are drawn, the end excluded; `None` means all of them.
    pub steps: Option<(Step, Step)>,
}

impl Picture {
    /// Creates a picture of one plan.
    pub fn of(title: impl Into<String>, map: PlanMap) -> Self {
        Self { title: title.into(), maps: vec![map], steps: None }
    }

    /// Creates a picture of two plans: the one before (or ggml's), and the one after (or ours). Memories are compared
    /// by their names; where each plan has but one, these two are.
    ///
    /// ```
    /// use steeve_plan::{Bytes, Lifetime, Offset};
    /// use steeve_view::{PlanMap, MemoryMap, Picture, Tile};
    /// let tiles = vec![Tile::new("a", Lifetime::new(0, 1)?, Offset(0), Bytes(8))];
    /// let map = |memory: &str| PlanMap::new("plan", vec![MemoryMap::new(memory, vec![Bytes(8)], tiles.clone())]);
    /// assert_eq!(Picture::of_two("two", map("memory"), map("CPU")).memories(), ["CPU"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_two(title: impl Into<String>, before: PlanMap, after: PlanMap) -> Self {
        let mut maps = vec![before, after];
        let names: Vec<Option<String>> = maps.iter().map(PlanMap::only_memory).collect();
        if let [Some(before), Some(after)] = names.as_slice()
            && before != after
        {
            let both = match (before.as_str(), after.as_str()) {
                (NAMELESS, name) | (name, NAMELESS) => name.to_owned(),
                _ => format!("{before} and {after}"),
            };
            for memory in maps.iter_mut().flat_map(|map| &mut map.memories).filter(|it| !it.tiles.is_empty()) {
                memory.name.clone_from(&both);
            }
        }
        Self { title: title.into(), maps, steps: None }
    }

    /// Returns the names of all memories that have blocks, each once.
    pub fn memories(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for memory in self.maps.iter().flat_map(|map| &map.memories) {
            if !memory.tiles.is_empty() && !names.contains(&memory.name.as_str()) {
                names.push(&memory.name);
            }
        }
        names
    }

    /// Returns this picture with only the tiles that are alive from `first` until just before `end`. Lifetimes are not
    /// cut, also where they begin before or end after that.
    #[must_use]
    pub fn between(mut self, first: Step, end: Step) -> Self {
        self.steps = Some((first, end));
        for memory in self.maps.iter_mut().flat_map(|map| &mut map.memories) {
            let mut moved: Vec<Option<usize>> = Vec::with_capacity(memory.tiles.len());
            let mut tiles = Vec::new();
            for tile in memory.tiles.drain(..) {
                let seen = tile.life.start() < end && first < tile.life.end();
                moved.push(seen.then_some(tiles.len()));
                tiles.extend(seen.then_some(tile));
            }
            for tile in &mut tiles {
                tile.follows = tile.follows.and_then(|before| moved.get(before).copied().flatten());
            }
            memory.tiles = tiles;
            memory.fullest = memory.fullest.filter(|step| (first..end).contains(step));
        }
        self
    }

    /// Returns the steps to draw of a memory: all at which anything is alive in any of the plans, unless others are
    /// given.
    pub(crate) fn span(&self, memory: &str) -> (u64, u64) {
        let spans = || self.maps.iter().filter_map(|map| map.memory(memory)?.span());
        let first = spans().map(|it| it.0).min().unwrap_or(0);
        let last = spans().map(|it| it.1).max().unwrap_or(1);
        let (from, until) = self.steps.map_or((first, last), |(from, until)| (from.0, until.0));
        let first = first.max(from);
        (first, last.min(until).max(first.saturating_add(1)))
    }

    /// Returns this picture with only the memories of this name.
    #[must_use]
    pub fn only(mut self, memory: &str) -> Self {
        for map in &mut self.maps {
            map.memories.retain(|it| it.name == memory);
        }
        self
    }
}

/// The name of the only memory of a plan that has no name for it.
pub(crate) const NAMELESS: &str = "memory";

/// A plan as it is drawn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlanMap {
    /// The name of the planner or of the plan.
    pub name: String,
    /// The unit of its steps.
    pub unit: StepUnit,
    /// The name and the operation of each node, where they are known: the first entry is node 0, which is step 1.
    pub nodes: Vec<(String, String)>,
    /// The memories, in the order of the plan.
    pub memories: Vec<MemoryMap>,
}

/// The unit in which steps are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepUnit {
    /// Step 0 is before the run, and node `n` runs at step `n + 1`.
    Node,
    /// Steps have no other meaning.
    Step,
}

impl StepUnit {
    /// Returns the word for one of them.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Step => "step",
        }
    }

    /// Returns the name of a step in a text: `node 3`, `before the run`, `step 4`.
    ///
    /// ```
    /// use steeve_plan::Step;
    /// use steeve_view::StepUnit;
    /// assert_eq!(StepUnit::Node.named(Step(0)), "before the run");
    /// assert_eq!(StepUnit::Node.named(Step(1)), "node 0");
    /// assert_eq!(StepUnit::Step.named(Step(0)), "step 0");
    /// ```
    pub fn named(self, step: Step) -> String {
        match (self, step.0) {
            (Self::Node, 0) => "before the run".to_owned(),
            _ => format!("{} {}", self.word(), self.number(step)),
        }
    }

    /// Returns the number of a step: nodes are counted from 0, and -1 is before the run.
    pub fn number(self, step: Step) -> i128 {
        match self {
            Self::Node => i128::from(step.0) - 1,
            Self::Step => i128::from(step.0),
        }
    }
}

/// One memory of a plan.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MemoryMap {
    /// Its name.
    pub name: String,
    /// The size of each buffer.
    pub buffers: Vec<Bytes>,
    /// No plan of these blocks is smaller.
    pub bound: Bytes,
    /// The first step at which the most bytes are alive.
    pub fullest: Option<Step>,
    /// The steps at which nodes read or write it, the end excluded; `None` where the plan does not say.
    pub used: Option<(Step, Step)>,
    /// The blocks.
    pub tiles: Vec<Tile>,
}

/// The kinds of blocks that no operation makes.
pub(crate) const LEAF_KINDS: [&str; 4] = ["other", "leaf", "input", "copy"];

/// One block.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tile {
    /// The number of its tensor in the graph; `None` where there is no graph.
    pub id: Option<u32>,
    /// Its name; names need not be unique.
    pub name: String,
    /// The operation that makes it; empty for leafs, and where it is not known.
    pub operation: String,
    /// Type and shape; empty where they are not known.
    pub layout: String,
    /// Its purpose.
    pub role: Role,
    /// The block of a network it belongs to, as [`layer_of`] guesses it.
    pub layer: Option<u32>,
    /// Its live range.
    pub life: Lifetime,
    /// Its last use.
    pub last_use: LastUse,
    /// The index of its buffer.
    pub buffer: usize,
    /// Its offset in the buffer.
    pub offset: Offset,
    /// Its bytes.
    pub size: Bytes,
    /// Its bytes, rounded up to its alignment.
    pub occupied: Bytes,
    /// Its alignment in bytes.
    pub align: u64,
    /// The tile whose bytes it reuses in place, by its index.
    pub follows: Option<usize>,
    /// Tensors located in the same bytes: views, and tensors that were made in place at once.
    pub nested: Vec<NestedTensor>,
    /// Whether it is no tensor, but a prefix of the one that it follows, kept so that a backend can fuse nodes.
    pub is_prefix: bool,
}

/// A tensor within the bytes of a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NestedTensor {
    /// Its name.
    pub name: String,
    /// Its offset in the buffer.
    pub offset: Offset,
    /// Its bytes.
    pub size: Bytes,
}

impl NestedTensor {
    /// Creates a tensor at these bytes.
    pub fn new(name: impl Into<String>, offset: Offset, size: Bytes) -> Self {
        Self { name: name.into(), offset, size }
    }
}

impl MemoryMap {
    /// Creates a memory with these blocks, and computes its bound and its fullest step. O(n log n).
    pub fn new(name: impl Into<String>, buffers: Vec<Bytes>, tiles: Vec<Tile>) -> Self {
        let (bytes, fullest) = fullest(&tiles);
        Self { name: name.into(), buffers, bound: bytes, fullest, used: None, tiles }
    }

    /// Returns the tiles that are alive at a step, the one that occupies most bytes first. A tile that takes over the bytes
    /// of another is alive from where the other's live range ends. O(n log n).
    ///
    /// ```
    /// use steeve_plan::{Strategy, Step, csv, plan};
    /// use steeve_view::PlanMap;
    /// let table = csv::read("id,lower,upper,size\nconv,0,3,4096\nrelu,3,5,1024\nskip,0,5,64\n")?;
    /// let map = PlanMap::of_blocks("fast", "memory", &plan(table.problem()?, &Strategy::Fast)?, table.ids());
    /// let alive = |step| -> Vec<&str> { map.memories[0].alive_at(step).iter().map(|it| it.name.as_str()).collect() };
    /// assert_eq!(alive(Step(2)), ["conv", "skip"]);
    /// assert_eq!(alive(Step(3)), ["relu", "skip"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alive_at(&self, step: Step) -> Vec<&Tile> {
        let is_alive = |tile: &&Tile| tile.life.start() <= step && step < tile.life.end();
        let mut alive: Vec<&Tile> = self.tiles.iter().filter(is_alive).collect();
        // Stable, so that tiles of one size stay in the order of the plan.
        alive.sort_by_key(|tile| Reverse(tile.occupied));
        alive
    }

    /// Returns the bytes of all its buffers.
    pub fn peak(&self) -> Bytes {
        Bytes(self.buffers.iter().fold(0u64, |sum, size| sum.saturating_add(size.0)))
    }

    /// Returns where each buffer starts if they are stacked on each other.
    pub(crate) fn bases(&self) -> Vec<u64> {
        let mut base = 0u64;
        let start = |size: &Bytes| {
            let start = base;
            base = base.saturating_add(size.0);
            start
        };
        self.buffers.iter().map(start).collect()
    }

    /// Returns the steps at which anything is alive.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let first = self.tiles.iter().map(|tile| tile.life.start().0).min()?;
        let last = self.tiles.iter().map(|tile| tile.life.end().0).max()?;
        Some((first, last))
    }

    /// Computes the live bytes from each step at which they change. O(n log n).
    pub(crate) fn live(&self) -> Vec<(u64, u64)> {
        live_curve(&self.tiles)
    }
}

/// Computes the most bytes alive at once, and the first step at which they are.
fn fullest(tiles: &[Tile]) -> (Bytes, Option<Step>) {
    let mut most = (Bytes::ZERO, None);
    for (step, bytes) in live_curve(tiles) {
        if bytes > most.0.0 {
            most = (Bytes(bytes), Some(Step(step)));
        }
    }
    // Only blocks of more than the address space together are no problem.
    if most.0 == Bytes(u64::MAX) { (most.0, None) } else { most }
}

impl Tile {
    /// Creates a block of which no more is known than this. Its alignment is 1.
    pub fn new(name: impl Into<String>, life: Lifetime, offset: Offset, size: Bytes) -> Self {
        let name = name.into();
        let role = Role::of_name(&name).unwrap_or(Role::Other);
        let layer = layer_of(&name);
        Self {
            id: None,
            name,
            operation: String::new(),
            layout: String::new(),
            role,
            layer,
            life,
            last_use: LastUse::Unknown,
            buffer: 0,
            offset,
            size,
            occupied: size,
            align: 1,
            follows: None,
            nested: Vec::new(),
            is_prefix: false,
        }
    }

    /// Returns the operation that makes it. Where none does: `input` for what the caller writes, `copy` for a scheduler's copy,
    /// `leaf` for any other tensor of a graph, and `other` for a block of which no more is known.
    ///
    /// ```
    /// use steeve_graph::{AssignedGraph, PlanOptions, plan_graph};
    /// use steeve_view::PlanMap;
    /// let text = r#"x = input f32[64]; norm = leaf f32[64]; c = leaf f32[64] "GPU#embd#0"; y = add x norm; z = add y c !output"#;
    /// let graph: AssignedGraph = text.parse()?;
    /// let map = PlanMap::of_graph("steeve", &plan_graph(&graph, &PlanOptions::default())?);
    /// let made = |name: &str| map.memories[0].tiles.iter().find(|it| it.name == name).map(|it| it.maker());
    /// assert_eq!([made("x"), made("norm"), made("GPU#embd#0")], [Some("input"), Some("leaf"), Some("copy")]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn maker(&self) -> &str {
        if self.operation.is_empty() { LEAF_KINDS[self.leaf_kind()] } else { &self.operation }
    }

    /// Returns an index into [`LEAF_KINDS`]; 0 where an operation makes it.
    pub(crate) fn leaf_kind(&self) -> usize {
        match self.id {
            _ if !self.operation.is_empty() => 0,
            _ if source_of_copy(&self.name).is_some() => 3,
            None => 0,
            Some(_) if self.role == Role::Input => 2,
            Some(_) => 1,
        }
    }
}

impl PlanMap {
    /// Creates a map of any claim. Steps are counted as steps.
    pub fn new(name: impl Into<String>, memories: Vec<MemoryMap>) -> Self {
        Self { name: name.into(), unit: StepUnit::Step, nodes: Vec::new(), memories }
    }

    /// Creates the map of a block list's plan. `ids` are the names of the blocks, `memory` is that of the memory.
    ///
    /// ```
    /// use steeve_plan::{Strategy, csv, plan};
    /// use steeve_view::PlanMap;
    /// let table = csv::read("id,lower,upper,size\nconv,0,3,4096\nrelu,3,5,1024\n")?;
    /// let map = PlanMap::of_blocks("fast", "memory", &plan(table.problem()?, &Strategy::Fast)?, table.ids());
    /// assert_eq!(map.memories[0].tiles[1].name, "relu");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_blocks(name: impl Into<String>, memory: &str, plan: &Plan, ids: &IdVec<BlockId, String>) -> Self {
        let name_of = |block: BlockId| ids.get(block).cloned().unwrap_or_else(|| format!("#{block}"));
        let tile = |block: BlockId| tile_of(plan, block, name_of(block));
        let tiles = plan.problem().blocks().ids().map(tile).collect();
        Self::new(name, vec![memory_of(memory, plan, plan.bound().bytes, tiles)])
    }

    /// Creates the map of a graph's plan, with one memory for each of the plan's.
    pub fn of_graph(name: impl Into<String>, plan: &GraphPlan) -> Self {
        let graph = plan.in_run_order().graph();
        let shared = GraphFacts { nested: nested_tensors(plan), last_uses: last_uses(plan), purposes: purposes(graph) };
        let memory = |it: &MemoryPlan| {
            let tile = |block: BlockId| tensor_tile(plan, it, block, &shared);
            let tiles = it.plan.problem().blocks().ids().map(tile).collect();
            memory_of(&plan.assigned().memories()[it.memory].name, &it.plan, it.at_least, tiles)
        };
        let used = used_steps(plan);
        let with_use = |it: &MemoryPlan| MemoryMap { used: used.get(&it.memory).copied(), ..memory(it) };
        let memories: Vec<MemoryMap> = plan.memories().iter().map(with_use).collect();
        let node = |node: &TensorId| (label(graph.name(*node), *node), operation(graph.tensors(), *node));
        let nodes = graph.nodes().iter().map(node).collect();
        Self { name: name.into(), unit: StepUnit::Node, nodes, memories }.with_spread_roles()
    }

    /// Returns this map with a role and a layer for what has no name of its own: the role of what was made just before it,
    /// to which it most likely belongs, and the layer of its neighbours.
    #[must_use]
    pub fn with_spread_roles(mut self) -> Self {
        for memory in &mut self.memories {
            let mut order: Vec<usize> = (0..memory.tiles.len()).collect();
            order.sort_by_key(|index| memory.tiles[*index].life.start());
            spread_roles(&mut memory.tiles, &order);
            spread_layers(&mut memory.tiles, &order);
        }
        self
    }

    /// Returns the bytes of all memories.
    pub fn peak(&self) -> Bytes {
        Bytes(self.memories.iter().fold(0u64, |sum, it| sum.saturating_add(it.peak().0)))
    }

    /// Returns the name of its memory, where only one has blocks.
    fn only_memory(&self) -> Option<String> {
        let mut used = self.memories.iter().filter(|it| !it.tiles.is_empty());
        let name = used.next()?.name.clone();
        used.next().is_none().then_some(name)
    }

    /// Returns the memory with this name.
    pub fn memory(&self, name: &str) -> Option<&MemoryMap> {
        self.memories.iter().find(|it| it.name == name)
    }
}

fn memory_of(name: &str, plan: &Plan, bound: Bytes, tiles: Vec<Tile>) -> MemoryMap {
    let (buffers, fullest) = (plan.buffers().as_slice().to_vec(), plan.bound().step);
    MemoryMap { name: name.to_owned(), buffers, bound, fullest, used: None, tiles }
}

/// Converts the size, the lifetime and the place of a block to a tile.
fn tile_of(plan: &Plan, block: BlockId, name: String) -> Tile {
    let (it, place) = (&plan.problem().blocks()[block], plan.place(block));
    let tile = Tile::new(name, it.life, place.offset, it.size);
    Tile {
        buffer: place.buffer.index(),
        occupied: it.align.round_up(it.size).unwrap_or(it.size),
        align: it.align.get(),
        follows: it.follows.map(Id::index),
        ..tile
    }
}

/// What is known of a graph's tensors after all nodes were visited, by the tensor that a block is named after.
struct GraphFacts {
    nested: BTreeMap<TensorId, Vec<NestedTensor>>,
    last_uses: BTreeMap<TensorId, LastUse>,
    /// By the number of the tensor.
    purposes: Vec<TensorPurpose>,
}

/// Creates the tile of a block with what the graph knows of its tensor.
fn tensor_tile(plan: &GraphPlan, memory: &MemoryPlan, block: BlockId, shared: &GraphFacts) -> Tile {
    let (graph, tensor) = (plan.assigned().graph(), memory.tensors[block]);
    let (it, operation) = (graph.tensor(tensor), operation(graph.tensors(), tensor));
    let id = u32::try_from(tensor.index()).ok();
    let nested = shared.nested.get(&tensor).cloned().unwrap_or_default();
    let (own, TensorPurpose { role, layer }) = (graph.name(tensor), shared.purposes[tensor.index()]);
    if !plan.is_own_block(memory, block) {
        let name = format!("{} (kept for fusion)", label(own, tensor));
        let tile = tile_of(&memory.plan, block, name);
        return Tile { id, role, layer, operation, is_prefix: true, last_use: LastUse::Fusion, ..tile };
    }
    Tile {
        id,
        layout: it.layout.to_string(),
        role,
        layer,
        last_use: shared.last_uses.get(&tensor).copied().unwrap_or_default(),
        operation,
        nested,
        ..tile_of(&memory.plan, block, label(own, tensor))
    }
}

/// Finds, for the tensor of each block, the others in its bytes: views, and those made in place at the step of its
/// birth.
fn nested_tensors(plan: &GraphPlan) -> BTreeMap<TensorId, Vec<NestedTensor>> {
    let graph = plan.assigned().graph();
    let mut nested: BTreeMap<TensorId, Vec<NestedTensor>> = BTreeMap::new();
    for tensor in graph.tensors().ids() {
        let Some((memory, block)) = plan.block(graph.root(tensor)) else { continue };
        let owner = memory.tensors[block];
        let (false, Some(place)) = (owner == tensor, plan.place(tensor)) else { continue };
        let name = label(graph.name(tensor), tensor);
        nested.entry(owner).or_default().push(NestedTensor { name, offset: place.offset, size: place.size });
    }
    nested
}

fn label(name: &str, tensor: TensorId) -> String {
    if name.trim().is_empty() { format!("#{}", tensor.index()) } else { name.to_owned() }
}

/// Returns the operation that makes a tensor, in lower case; empty for leafs.
fn operation(tensors: &Tensors, tensor: TensorId) -> String {
    match tensors.get(tensor) {
        Some(it) if it.op != Op::None => tensors.op_title(it.op).to_lowercase(),
        _ => String::new(),
    }
}

/// Spreads roles over tiles in the order in which they are made.
fn spread_roles(tiles: &mut [Tile], order: &[usize]) {
    let mut role = None;
    for index in order {
        let tile = &mut tiles[*index];
        let named = Role::of_name(&tile.name);
        match (named, role) {
            (Some(named), _) => role = named.spreads().then_some(named),
            // A leaf belongs to what reads it, not to what is made before it.
            (None, Some(role)) if tile.role.is_vague() && !tile.operation.is_empty() => tile.role = role,
            _ => {}
        }
    }
}

/// Spreads layers over tiles against the order in which they are made: a tile without a name belongs to the layer of
/// the next that has one, if a layer was seen before it too.
fn spread_layers(tiles: &mut [Tile], order: &[usize]) {
    let is_named = |tile: &Tile| !is_no_name(&tile.name);
    let is_made = |tile: &Tile| !tile.operation.is_empty();
    let made = || order.iter().copied();
    let Some(first) = made().position(|index| is_made(&tiles[index]) && tiles[index].layer.is_some()) else { return };
    let mut next = None;
    for index in made().skip(first).rev() {
        let tile = &mut tiles[index];
        if !is_made(tile) {
            continue;
        }
        if tile.layer.is_none() && !is_named(tile) {
            tile.layer = next;
        } else {
            next = tile.layer;
        }
    }
}
