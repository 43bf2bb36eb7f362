//! A plan with what an allocator knows about using it, and the few that it keeps.

use std::sync::{Arc, OnceLock};

use steeve_graph::{BufferId, Graph, GraphPlan, Id, Op, Survivors, TensorId};

use crate::memories::Memories;
use crate::pool::Matching;

/// A plan, and what it takes to use it.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: GraphPlan,
    /// The chunk of each of its buffers.
    pub(crate) chunks: Matching,
    /// Tensors that are planned and that no node makes: the caller writes them before a run.
    pub(crate) sources: Vec<TensorId>,
    /// Roots whose memory the caller provides.
    pub(crate) externals: Vec<TensorId>,
    survivors: OnceLock<Survivors>,
}

impl Planned {
    pub(crate) fn new(plan: GraphPlan, chunks: Matching) -> Self {
        let graph = plan.assigned().graph();
        let made_by_caller = |id: &TensorId| plan.block(*id).is_some() && graph.tensor(*id).op == Op::None;
        let sources = graph.tensors().ids().filter(made_by_caller).collect();
        let externals = externals(graph);
        Self { plan, chunks, sources, externals, survivors: OnceLock::new() }
    }

    /// The chunk of a buffer of the plan. Tensors of no bytes may stand in buffers that do not exist: any will do.
    pub(crate) fn chunk(&self, part: usize, buffer: BufferId) -> usize {
        self.chunks[part].get(buffer.index()).copied().unwrap_or(0)
    }

    /// Who keeps its contents through a run; found out when first asked.
    pub(crate) fn survivors(&self) -> &Survivors {
        self.survivors.get_or_init(|| self.plan.survivors())
    }

    /// Whether the plan may be used for `graph`.
    pub(crate) fn accepts(&self, graph: &Graph, memories: &Memories) -> bool {
        self.plan.accepts(graph, |tensor, memory| memories.size(graph, tensor, memory))
    }
}

/// The external roots that leafs and nodes touch, each once.
fn externals(graph: &Graph) -> Vec<TensorId> {
    let listed = graph.leafs().iter().chain(graph.nodes());
    let touched = listed.flat_map(|id| graph.sources(*id).iter().copied().flatten().chain([*id]));
    let mut roots: Vec<TensorId> =
        touched.map(|id| graph.root(id)).filter(|root| graph.tensor(*root).external).collect();
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// The plans that were used last, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Plans(Vec<Arc<Planned>>);

impl Plans {
    /// A plan that may be used for `graph`, as the latest from now on. Allocates nothing.
    pub(crate) fn find(&mut self, graph: &Graph, memories: &Memories) -> Option<&Arc<Planned>> {
        self.find_by(|planned| planned.accepts(graph, memories))
    }

    /// The first that `is` says yes to, as the latest from now on.
    pub(crate) fn find_by(&mut self, is: impl Fn(&Planned) -> bool) -> Option<&Arc<Planned>> {
        let index = self.0.iter().position(|planned| is(planned))?;
        self.0[..=index].rotate_right(1);
        self.0.first()
    }

    pub(crate) fn latest(&self) -> Option<&Arc<Planned>> {
        self.0.first()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Planned>> {
        self.0.iter()
    }

    /// Keeps a plan as the latest. Those that it can do the work of go, and so does the oldest if there are too many.
    pub(crate) fn keep(&mut self, planned: Arc<Planned>, memories: &Memories, most: usize) {
        let assignment = planned.plan.assigned().assignment();
        self.0.retain(|old| {
            let old = old.plan.assigned();
            !(old.assignment() == assignment && planned.accepts(old.graph(), memories))
        });
        self.0.insert(0, planned);
        self.0.truncate(most);
    }
}
