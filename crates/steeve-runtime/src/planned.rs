//! Plans with what is needed to use them, and the cache of the latest.

use std::sync::{Arc, OnceLock};

use steeve_device::Bindings;
use steeve_graph::{Bytes, Graph, GraphPlan, Id, MemoryPlan, Op, SizeClass, SizeClasses, Survivors, TensorId};

use crate::memories::Memories;
use crate::pool::{BufferPool, ChunkMatches};
use crate::shared_externals::shared_bytes;

/// A plan, with the tensors that a caller must write. All lists are sorted by id.
#[derive(Debug)]
pub(crate) struct PlannedGraph {
    pub(crate) plan: GraphPlan,
    /// Tensors whose memory is theirs before the run and that no node computes: the caller may write them.
    pub(crate) sources: Vec<TensorId>,
    /// The sources that nodes read or write into, so that the caller must write them before a run.
    pub(crate) required: Vec<TensorId>,
    /// The sources that nodes write into.
    pub(crate) changed: Vec<TensorId>,
    /// Tensors that have no bytes before their turn and that no operation computes: copies that a scheduler of ggml's would
    /// fill, and parameters among the nodes. Nothing here fills them, so a run would read garbage.
    pub(crate) unfilled: Vec<TensorId>,
    /// Roots whose memory the caller provides.
    pub(crate) externals: Vec<TensorId>,
    /// The external roots that nodes write into.
    pub(crate) changed_externals: Vec<TensorId>,
    survivors: OnceLock<Survivors>,
}

/// The tensor is the root of a leaf.
const LEAF: u8 = 1;
/// The tensor is a node.
const NODE: u8 = 2;
/// A node reads or writes the bytes of this root.
const TOUCHED: u8 = 4;
/// A node writes the bytes of this root.
const CHANGED: u8 = 8;
/// The tensor is the root of a leaf or of what a leaf was made from.
const LISTED: u8 = 16;

impl PlannedGraph {
    pub(crate) fn new(plan: GraphPlan) -> Self {
        let graph = plan.assigned().graph();
        let marks = marks(graph);
        let has = |id: &TensorId, mark: u8| marks[id.index()] & mark != 0;

        let (mut sources, mut unfilled) = (Vec::new(), Vec::new());
        for (id, tensor) in graph.tensors().pairs().filter(|(id, _)| plan.block(*id).is_some()) {
            let is_node = has(&id, NODE);
            let is_there = has(&id, LEAF) || tensor.flags.is_input() || (tensor.op == Op::None && !is_node);
            let is_computed = is_node && !tensor.op.writes_nothing();
            match (is_there, is_computed) {
                (_, true) => {}
                (true, false) => sources.push(id),
                (false, false) => unfilled.push(id),
            }
        }
        let with = |list: &[TensorId], mark: u8| list.iter().copied().filter(|id| has(id, mark)).collect();
        let (changed, required) = (with(&sources, CHANGED), with(&sources, TOUCHED));
        let externals = marked_externals(graph, &marks);
        let changed_externals = with(&externals, CHANGED);
        let survivors = OnceLock::new();
        Self { plan, sources, required, changed, unfilled, externals, changed_externals, survivors }
    }

    /// Returns whether the caller may write it before a run.
    pub(crate) fn is_source(&self, root: TensorId) -> bool {
        self.sources.binary_search(&root).is_ok()
    }

    /// Returns whether the caller must write it before a run.
    pub(crate) fn is_required(&self, root: TensorId) -> bool {
        self.required.binary_search(&root).is_ok()
    }

    /// Returns whether neither the caller writes it nor a node computes it.
    pub(crate) fn is_unfilled(&self, root: TensorId) -> bool {
        self.unfilled.binary_search(&root).is_ok()
    }

    /// Returns whether the plan may be used with these bindings: in another order than the caller's, no external tensor may share
    /// bytes with one that nodes write into.
    pub(crate) fn allows(&self, graph: &Graph, bindings: &Bindings) -> bool {
        let shared = || shared_bytes(graph, &self.externals, &self.changed_externals, bindings);
        self.plan.order().is_none() || shared().is_none()
    }

    /// Returns the sizes of the plan's buffers in each memory. Tensors of no bytes need an empty one, for their addresses.
    pub(crate) fn needed(&self) -> impl Iterator<Item = Vec<Bytes>> + '_ {
        let sizes = |it: &MemoryPlan| match it.plan.buffers().as_slice() {
            [] if !it.tensors.is_empty() => vec![Bytes::ZERO],
            buffers => buffers.to_vec(),
        };
        self.plan.memories().iter().map(sizes)
    }

    /// Returns the tensors that keep their contents through a run. Computed at the first call.
    pub(crate) fn survivors(&self) -> &Survivors {
        self.survivors.get_or_init(|| self.plan.survivors())
    }

    /// Returns whether the plan may be used for `graph`, at once for the graph that it was made for.
    pub(crate) fn accepts(&self, graph: &Graph, memories: &Memories) -> bool {
        let planned = self.plan.assigned().graph();
        planned.is_same(graph) || self.plan.accepts(graph, |tensor, memory| memories.size(graph, tensor, memory))
    }

    /// Returns the sum of the sizes of the planned tensors of a graph that the plan accepts.
    pub(crate) fn bytes_of(&self, graph: &Graph, memories: &Memories) -> Bytes {
        let size = |tensor: TensorId| {
            // Of tensors with bytes of their own alone: a view may be one that the graph does not have.
            Some(memories.size(graph, tensor, self.plan.sized_by(tensor)?).0)
        };
        Bytes(self.plan.assigned().graph().tensors().ids().filter_map(size).fold(0, u64::saturating_add))
    }

    /// Returns whether the plan may be used for `graph`, and every tensor fills its place, so that planning `graph` would
    /// return the same plan.
    pub(crate) fn is_made_for(&self, graph: &Graph, memories: &Memories) -> bool {
        let fills = |tensor: TensorId| {
            let (Some(asked), Some(place)) = (self.plan.sized_by(tensor), self.plan.place(tensor)) else { return true };
            memories.size(graph, tensor, asked) == place.size
        };
        let tensors = self.plan.assigned().graph().tensors();
        self.accepts(graph, memories) && tensors.ids().all(fills)
    }
}

/// Returns how the graph uses each tensor, as a sum of the marks above. One pass over the edges.
fn marks(graph: &Graph) -> Vec<u8> {
    let mut marks = vec![0; graph.tensors().len()];
    for leaf in graph.leafs() {
        let roots = graph.sources(*leaf).iter().flatten().chain([leaf]).map(|id| graph.root(*id));
        roots.for_each(|root| marks[root.index()] |= LISTED);
        marks[graph.root(*leaf).index()] |= LEAF;
    }
    for node in graph.nodes() {
        let changed = if graph.tensor(*node).op.writes_nothing() { 0 } else { CHANGED };
        marks[node.index()] |= NODE;
        marks[graph.root(*node).index()] |= TOUCHED | changed;
        for source in graph.sources(*node).iter().flatten() {
            marks[graph.root(*source).index()] |= TOUCHED;
        }
    }
    marks
}

/// Returns the external roots that leafs and nodes use, each once, and those of them that nodes write into.
pub(crate) fn externals(graph: &Graph) -> (Vec<TensorId>, Vec<TensorId>) {
    let marks = marks(graph);
    let externals = marked_externals(graph, &marks);
    let changed = externals.iter().copied().filter(|id| marks[id.index()] & CHANGED != 0).collect();
    (externals, changed)
}

fn marked_externals(graph: &Graph, marks: &[u8]) -> Vec<TensorId> {
    let is_met = |id: &TensorId| marks[id.index()] & (LISTED | TOUCHED) != 0 && graph.tensor(*id).external;
    graph.tensors().ids().filter(is_met).collect()
}

/// A plan in the cache.
#[derive(Clone, Debug)]
pub(crate) struct CachedPlan {
    pub(crate) planned: Arc<PlannedGraph>,
    /// The chunk of each of its buffers. `None` while the chunks that exist are too small or too few: then the plan can be
    /// used again once there are buffers for it.
    pub(crate) chunks: Option<Arc<ChunkMatches>>,
    /// The sum of the sizes of its tensors.
    bytes: Bytes,
    /// Whether it is a plan for smaller graphs than another's.
    small: Option<SmallPlan>,
    /// The size classes of smaller graphs for which a plan of their own is not worth while.
    not_worth_while: SizeClasses,
}

impl CachedPlan {
    fn new(planned: Arc<PlannedGraph>, chunks: Option<Arc<ChunkMatches>>, small: Option<SmallPlan>) -> Self {
        let bytes = bytes(&planned);
        Self { planned, chunks, bytes, small, not_worth_while: SizeClasses::default() }
    }

    /// Returns another plan as one for smaller graphs than those of this one; `None` if it is not, has no buffers, or is not
    /// worth while.
    fn adopt(&self, other: &Self) -> Option<SmallPlan> {
        let is_small = other.small.is_some() && other.chunks.is_some();
        let class = SizeClass::of(other.bytes, self.bytes).filter(|_| is_small)?;
        SizeClass::of(other.planned.plan.peak(), self.planned.plan.peak())?;
        Some(SmallPlan { of: Arc::clone(&self.planned), class })
    }
}

/// A plan for smaller graphs of the same kind as another plan's.
#[derive(Clone, Debug)]
pub(crate) struct SmallPlan {
    of: Arc<PlannedGraph>,
    class: SizeClass,
}

impl SmallPlan {
    fn is_same(&self, other: &Self) -> bool {
        self.is_of(other) && self.class == other.class
    }

    fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.of, &other.of)
    }
}

/// A plan that has buffers, and the chunks that it uses.
pub(crate) type ReadyPlan = (Arc<PlannedGraph>, Arc<ChunkMatches>);

/// The cache of the plans that were used last, the latest first.
#[derive(Debug, Default)]
pub(crate) struct PlanCache(Vec<CachedPlan>);

impl PlanCache {
    /// Returns the first that has buffers and for which `is` holds, and makes it the latest. Allocates nothing.
    pub(crate) fn find(&mut self, is: impl Fn(&PlannedGraph) -> bool) -> Option<ReadyPlan> {
        let index = self.0.iter().position(|kept| kept.chunks.is_some() && is(&kept.planned))?;
        self.use_at(index)
    }

    /// Returns the plan of [`close`](Self::close), and makes it the latest.
    pub(crate) fn find_close(
        &mut self,
        is: impl Fn(&PlannedGraph) -> bool,
        bytes: impl Fn(&PlannedGraph) -> Bytes,
        resident: Bytes,
    ) -> Option<(ReadyPlan, Option<Bytes>)> {
        let (index, loose) = self.close(is, bytes, resident)?;
        Some((self.use_at(index)?, loose))
    }

    /// Returns the plan that [`find_close`](Self::find_close) would return.
    pub(crate) fn get_close(
        &self,
        is: impl Fn(&PlannedGraph) -> bool,
        bytes: impl Fn(&PlannedGraph) -> Bytes,
        resident: Bytes,
    ) -> Option<&Arc<PlannedGraph>> {
        let (index, _) = self.close(is, bytes, resident)?;
        Some(&self.0.get(index)?.planned)
    }

    /// Returns the index of the first that has buffers, for which `is` holds, and that is either not far larger than the
    /// graph, whose sum of sizes is `bytes`, or no larger than what is resident. If there is none, the smallest, and the sum
    /// of the graph.
    fn close(
        &self,
        is: impl Fn(&PlannedGraph) -> bool,
        bytes: impl Fn(&PlannedGraph) -> Bytes,
        resident: Bytes,
    ) -> Option<(usize, Option<Bytes>)> {
        let mut loose: Option<(usize, Bytes)> = None;
        for (index, kept) in self.0.iter().enumerate() {
            if kept.chunks.is_none() || !is(&kept.planned) {
                continue;
            }
            let bytes = bytes(&kept.planned);
            if SizeClass::of(bytes, kept.bytes).is_none() || kept.planned.plan.peak() <= resident {
                return Some((index, None));
            }
            if loose.is_none_or(|(least, _)| kept.bytes < self.0[least].bytes) {
                loose = Some((index, bytes));
            }
        }
        loose.map(|(index, bytes)| (index, Some(bytes)))
    }

    fn use_at(&mut self, index: usize) -> Option<ReadyPlan> {
        self.0[..=index].rotate_right(1);
        let kept = self.0.first()?;
        Some((Arc::clone(&kept.planned), Arc::clone(kept.chunks.as_ref()?)))
    }

    /// Returns how a plan for a graph of so many bytes relates to the latest plan; `None` if there should be no such plan.
    pub(crate) fn small(&self, bytes: Bytes, most: usize) -> Option<SmallPlan> {
        let latest = self.0.first()?;
        let of = latest.small.as_ref().map_or(&latest.planned, |small| &small.of);
        let of_bytes =
            self.0.iter().find(|kept| Arc::ptr_eq(&kept.planned, of)).map_or(latest.bytes, |kept| kept.bytes);
        let class = SizeClass::of(bytes, of_bytes).filter(|class| !latest.not_worth_while.contains(*class))?;
        let small = SmallPlan { of: Arc::clone(of), class };
        let kept = self.0.iter().filter_map(|kept| kept.small.as_ref()).filter(|other| other.is_of(&small));
        class.may_be_planned(kept.map(|other| other.class), most.saturating_sub(self.0.len())).then_some(small)
    }

    /// Keeps a plan for smaller graphs as the latest, instead of one that was outgrown, if there are buffers for it.
    pub(crate) fn keep_small(
        &mut self,
        planned: PlannedGraph,
        small: SmallPlan,
        pool: &BufferPool,
    ) -> Option<ReadyPlan> {
        let chunks = Some(Arc::new(pool.fit(&planned)?));
        self.0.retain(|kept| !kept.small.as_ref().is_some_and(|other| other.is_same(&small)));
        self.0.insert(0, CachedPlan::new(Arc::new(planned), chunks, Some(small)));
        self.use_at(0)
    }

    /// Remembers that such a plan is not worth while beside the latest.
    pub(crate) fn forgo_small(&mut self, small: &SmallPlan) {
        if let Some(latest) = self.0.first_mut() {
            latest.not_worth_while.insert(small.class);
        }
    }

    /// Returns the first that has no buffers and for which `is` holds.
    pub(crate) fn without_buffers(&self, is: impl Fn(&PlannedGraph) -> bool) -> Option<Arc<PlannedGraph>> {
        let kept = self.0.iter().find(|kept| kept.chunks.is_none() && is(&kept.planned))?;
        Some(Arc::clone(&kept.planned))
    }

    pub(crate) fn latest(&self) -> Option<&Arc<PlannedGraph>> {
        self.0.first().map(|kept| &kept.planned)
    }

    /// Returns the plans with buffers, and then the others.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<PlannedGraph>> {
        let with = |has: bool| self.0.iter().filter(move |kept| kept.chunks.is_some() == has);
        with(true).chain(with(false)).map(|kept| &kept.planned)
    }

    /// Adds a plan as the latest. Evicts those that it can replace, and the oldest if there are too many. Plans for far smaller
    /// graphs are from now on beside this one.
    pub(crate) fn keep(&mut self, planned: Arc<PlannedGraph>, pool: &BufferPool, memories: &Memories, most: usize) {
        let chunks = pool.fit(&planned).map(Arc::new);
        let new = CachedPlan::new(planned, chunks, None);
        let assignment = new.planned.plan.assigned().assignment();
        let mut adopted: Vec<SizeClass> = Vec::new();
        self.0.retain_mut(|old| {
            let assigned = old.planned.plan.assigned();
            if assigned.assignment() != assignment || !new.planned.accepts(assigned.graph(), memories) {
                return true;
            }
            let may_stay =
                |class: SizeClass| !adopted.contains(&class) && class.may_be_planned(adopted.iter().copied(), 1);
            let Some(small) = new.adopt(old).filter(|small| may_stay(small.class)) else { return false };
            adopted.push(small.class);
            old.small = Some(small);
            true
        });
        self.0.insert(0, new);
        while self.0.len() > most {
            // What serves smaller graphs goes first: there is another plan that serves them.
            let small = self.0.iter().rposition(|kept| kept.small.is_some());
            self.0.remove(small.unwrap_or(self.0.len() - 1));
        }
    }

    /// Matches the buffers of all plans with the chunks of the pool again.
    pub(crate) fn match_chunks(&mut self, pool: &BufferPool) {
        for kept in &mut self.0 {
            kept.chunks = pool.fit(&kept.planned).map(Arc::new);
        }
    }
}

/// Returns the sum of the sizes of the planned tensors.
fn bytes(planned: &PlannedGraph) -> Bytes {
    let plan = &planned.plan;
    let size = |tensor| plan.sized_by(tensor).and(plan.place(tensor)).map(|place| place.size.0);
    Bytes(plan.assigned().graph().tensors().ids().filter_map(size).fold(0, u64::saturating_add))
}
