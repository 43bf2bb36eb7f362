//! A plan with what an allocator knows about using it, and the few that it keeps.

use std::sync::{Arc, OnceLock};

use steeve_graph::{BufferId, Graph, GraphPlan, Id, Op, Survivors, TensorId};

use crate::memories::Memories;
use crate::pool::Matching;

/// A plan, and what it takes to use it. All lists are by id.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: GraphPlan,
    /// The chunk of each of its buffers.
    pub(crate) chunks: Matching,
    /// Tensors that have their bytes before the run and that no node computes: the caller may write them.
    pub(crate) sources: Vec<TensorId>,
    /// Those of them that nodes read or write into, so that the caller must write them before a run.
    pub(crate) required: Vec<TensorId>,
    /// The sources that nodes write into.
    pub(crate) changed: Vec<TensorId>,
    /// Tensors that have no bytes before their turn and that no operation computes: copies that a scheduler of ggml's would
    /// fill, and parameters among the nodes. Nothing here fills them, so a run would read garbage.
    pub(crate) unfilled: Vec<TensorId>,
    /// Roots whose memory the caller provides.
    pub(crate) externals: Vec<TensorId>,
    /// Those of them that nodes write into.
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

impl Planned {
    pub(crate) fn new(plan: GraphPlan, chunks: Matching) -> Self {
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
        Self { plan, chunks, sources, required, changed, unfilled, externals, changed_externals, survivors }
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

    /// The chunk of a buffer of the plan. Tensors of no bytes may stand in buffers that do not exist: any will do.
    pub(crate) fn chunk(&self, part: usize, buffer: BufferId) -> usize {
        self.chunks[part].get(buffer.index()).copied().unwrap_or(0)
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
}

/// What the graph does with each tensor, as a sum of the marks above. One pass over the edges.
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

/// The external roots that leafs and nodes touch, each once.
pub(crate) fn externals(graph: &Graph) -> Vec<TensorId> {
    marked_externals(graph, &marks(graph))
}

fn marked_externals(graph: &Graph, marks: &[u8]) -> Vec<TensorId> {
    let is_met = |id: &TensorId| marks[id.index()] & (LISTED | TOUCHED) != 0 && graph.tensor(*id).external;
    graph.tensors().ids().filter(is_met).collect()
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
