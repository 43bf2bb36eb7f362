//! A plan with what an allocator knows about using it, and the few that it keeps.

use std::sync::{Arc, OnceLock};

use steeve_graph::{Bytes, Graph, GraphPlan, Id, MemoryPlan, Op, Survivors, TensorId};

use crate::memories::Memories;
use crate::pool::{Matching, Pool};

/// A plan, and what it takes to use it. All lists are by id.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: GraphPlan,
    /// Tensors that have their bytes before the run and that no node computes: the caller may write them.
    pub(crate) sources: Vec<TensorId>,
    /// Those of them that nodes read or write into, so that the caller must write them before a run.
    pub(crate) required: Vec<TensorId>,
    /// The sources that nodes write into.
    pub(crate) changed: Vec<TensorId>,
    /// Tensors that have no bytes before their turn and that no operation computes: copies that a scheduler fills.
    unfilled: Vec<TensorId>,
    /// Parameters among the nodes: the caller's to write, and without bytes when the caller could.
    pub(crate) orphans: Vec<TensorId>,
    /// Roots whose memory the caller provides.
    pub(crate) externals: Vec<TensorId>,
    /// Those of them that nodes write into.
    pub(crate) changed_externals: Vec<TensorId>,
    survivors: OnceLock<Survivors>,
}

impl Planned {
    pub(crate) fn new(plan: GraphPlan) -> Self {
        let graph = plan.assigned().graph();
        let (mut is_leaf, mut is_node) = (vec![false; graph.tensors().len()], vec![false; graph.tensors().len()]);
        graph.leafs().iter().for_each(|leaf| is_leaf[graph.root(*leaf).index()] = true);
        graph.nodes().iter().for_each(|node| is_node[node.index()] = true);
        let (mut is_changed, mut is_touched) = (vec![false; is_node.len()], vec![false; is_node.len()]);
        for node in graph.nodes() {
            let touched = graph.sources(*node).iter().copied().flatten().chain([*node]);
            touched.for_each(|tensor| is_touched[graph.root(tensor).index()] = true);
            if !graph.tensor(*node).op.writes_nothing() {
                is_changed[graph.root(*node).index()] = true;
            }
        }

        let (mut sources, mut unfilled, mut orphans) = (Vec::new(), Vec::new(), Vec::new());
        for (id, tensor) in graph.tensors().pairs().filter(|(id, _)| plan.block(*id).is_some()) {
            let is_node = is_node[id.index()];
            let is_there = is_leaf[id.index()] || tensor.flags.is_input() || (tensor.op == Op::None && !is_node);
            let is_computed = is_node && !tensor.op.writes_nothing();
            match (is_there, is_computed) {
                (_, true) => {}
                (true, false) => sources.push(id),
                (false, false) => {
                    unfilled.push(id);
                    if tensor.flags.is_param() {
                        orphans.push(id);
                    }
                }
            }
        }
        let changed = sources.iter().copied().filter(|source| is_changed[source.index()]).collect();
        let required = sources.iter().copied().filter(|source| is_touched[source.index()]).collect();
        let externals = externals(graph);
        let changed_externals = externals.iter().copied().filter(|root| is_changed[root.index()]).collect();
        let survivors = OnceLock::new();
        Self { plan, sources, required, changed, unfilled, orphans, externals, changed_externals, survivors }
    }

    /// Whether the caller writes it before a run.
    pub(crate) fn is_source(&self, root: TensorId) -> bool {
        self.sources.binary_search(&root).is_ok()
    }

    /// Whether the caller must write it before a run.
    pub(crate) fn is_required(&self, root: TensorId) -> bool {
        self.required.binary_search(&root).is_ok()
    }

    /// Whether it is neither written by the caller nor computed.
    pub(crate) fn is_unfilled(&self, root: TensorId) -> bool {
        self.unfilled.binary_search(&root).is_ok()
    }

    /// The sizes of the plan's buffers in each memory. Tensors of no bytes at all need none, but a place.
    pub(crate) fn needed(&self) -> impl Iterator<Item = Vec<Bytes>> + '_ {
        let sizes = |it: &MemoryPlan| match it.plan.buffers().as_slice() {
            [] if !it.tensors.is_empty() => vec![Bytes::ZERO],
            buffers => buffers.to_vec(),
        };
        self.plan.memories().iter().map(sizes)
    }

    /// Who keeps its contents through a run; found out when first asked.
    pub(crate) fn survivors(&self) -> &Survivors {
        self.survivors.get_or_init(|| self.plan.survivors())
    }

    /// Whether the plan may be used for `graph`. The graph it was made for need not be looked at.
    pub(crate) fn accepts(&self, graph: &Graph, memories: &Memories) -> bool {
        let planned = self.plan.assigned().graph();
        planned.is_same(graph) || self.plan.accepts(graph, |tensor, memory| memories.size(graph, tensor, memory))
    }

    /// Whether the plan may be used for `graph`, and every tensor fills its place, so that a plan for `graph` itself would be
    /// the same.
    pub(crate) fn is_made_for(&self, graph: &Graph, memories: &Memories) -> bool {
        let fills = |tensor: TensorId| {
            let Some(place) = self.plan.place(tensor) else { return true };
            let asked = self.plan.asked(tensor).unwrap_or(place.memory);
            memories.size(graph, tensor, asked) == place.size
        };
        let tensors = self.plan.assigned().graph().tensors();
        self.accepts(graph, memories) && tensors.ids().all(fills)
    }
}

/// The external roots that leafs and nodes touch, each once.
pub(crate) fn externals(graph: &Graph) -> Vec<TensorId> {
    let listed = graph.leafs().iter().chain(graph.nodes());
    let touched = listed.flat_map(|id| graph.sources(*id).iter().copied().flatten().chain([*id]));
    let mut roots: Vec<TensorId> =
        touched.map(|id| graph.root(id)).filter(|root| graph.tensor(*root).external).collect();
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// A plan that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) planned: Arc<Planned>,
    /// The chunk of each of its buffers. `None` while the chunks that exist are too small or too few: then the plan can be
    /// used again once there are buffers for it.
    pub(crate) chunks: Option<Arc<Matching>>,
}

/// The plans that were used last, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Plans(Vec<Kept>);

impl Plans {
    /// The first that there are buffers for and that `is` says yes to, as the latest from now on. Allocates nothing.
    pub(crate) fn find(&mut self, is: impl Fn(&Planned) -> bool) -> Option<(Arc<Planned>, Arc<Matching>)> {
        let index = self.0.iter().position(|kept| kept.chunks.is_some() && is(&kept.planned))?;
        self.0[..=index].rotate_right(1);
        let kept = self.0.first()?;
        Some((Arc::clone(&kept.planned), Arc::clone(kept.chunks.as_ref()?)))
    }

    /// The first that there are no buffers for and that `is` says yes to.
    pub(crate) fn without_buffers(&self, is: impl Fn(&Planned) -> bool) -> Option<Arc<Planned>> {
        let kept = self.0.iter().find(|kept| kept.chunks.is_none() && is(&kept.planned))?;
        Some(Arc::clone(&kept.planned))
    }

    pub(crate) fn latest(&self) -> Option<&Arc<Planned>> {
        self.0.first().map(|kept| &kept.planned)
    }

    /// Those that there are buffers for, and then the others.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Planned>> {
        let with = |has: bool| self.0.iter().filter(move |kept| kept.chunks.is_some() == has);
        with(true).chain(with(false)).map(|kept| &kept.planned)
    }

    /// Keeps a plan as the latest. Those that it can do the work of go, and so does the oldest if there are too many.
    pub(crate) fn keep(&mut self, planned: Arc<Planned>, pool: &Pool, memories: &Memories, most: usize) {
        let assignment = planned.plan.assigned().assignment();
        self.0.retain(|old| {
            let old = old.planned.plan.assigned();
            !(old.assignment() == assignment && planned.accepts(old.graph(), memories))
        });
        let chunks = pool.fit(&planned).map(Arc::new);
        self.0.insert(0, Kept { planned, chunks });
        self.0.truncate(most);
    }

    /// Finds out which plans there are buffers for.
    pub(crate) fn match_chunks(&mut self, pool: &Pool) {
        for kept in &mut self.0 {
            kept.chunks = pool.fit(&kept.planned).map(Arc::new);
        }
    }
}
