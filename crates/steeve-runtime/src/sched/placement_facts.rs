//! The facts that assignment is based on: which memories there are, which workers reach them, and where external
//! tensors are located.

use std::sync::Arc;

use steeve_device::{BufferType, Usage};
use steeve_graph::{Graph, GraphError, Id, IdVec, Named, TensorId};

use crate::sched::worker::{WorkerId, Workers};
use crate::sched::{SchedError, TensorLocations};

steeve_plan::id_type! {
    /// A kind of memory: of a worker, or of a tensor that the caller has placed.
    pub(crate) struct MemorySpaceId;
}

/// Where the caller has placed an external tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExternalLocation {
    pub(crate) space: MemorySpaceId,
    pub(crate) is_weight: bool,
}

/// A graph, the workers that could compute it, and where its external tensors are located.
#[derive(Debug)]
pub(crate) struct PlacementFacts<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) workers: &'a Workers,
    pub(crate) spaces: IdVec<MemorySpaceId, Arc<dyn BufferType>>,
    /// For each worker and each space whether the worker reads and writes it.
    reach: Vec<bool>,
    space_of: IdVec<WorkerId, MemorySpaceId>,
    /// By tensor; `None` for what is planned.
    external: Vec<Option<ExternalLocation>>,
    /// Whether each tensor is a node that computes something.
    computes: Vec<bool>,
    /// Whether some node writes into each root.
    written: Vec<bool>,
}

impl<'a> PlacementFacts<'a> {
    pub(crate) fn new(graph: &'a Graph, workers: &'a Workers, locations: &TensorLocations) -> Result<Self, SchedError> {
        let tensors = graph.tensors();
        let mut spaces = IdVec::new();
        let space_of = workers.iter().map(|worker| number(&mut spaces, worker.memory())).collect();
        let mut external = vec![None; tensors.len()];
        for location in locations.iter() {
            if !is_external(graph, location.tensor)? {
                continue;
            }
            let (space, is_weight) = (number(&mut spaces, &location.memory), location.usage == Usage::Weights);
            external[location.tensor.index()] = Some(ExternalLocation { space, is_weight });
        }
        let reach = workers.iter().flat_map(|worker| {
            // A worker reaches its own memory whatever its device says.
            let reads = |memory| Arc::ptr_eq(memory, worker.memory()) || worker.device().reads(memory);
            spaces.iter().map(reads).collect::<Vec<_>>()
        });
        let reach = reach.collect();
        let (mut computes, mut written) = (vec![false; tensors.len()], vec![false; tensors.len()]);
        for &node in graph.nodes().iter().filter(|node| !graph.tensor(**node).op.writes_nothing()) {
            computes[node.index()] = true;
            written[graph.root(node).index()] = true;
        }
        let facts = Self { graph, workers, spaces, reach, space_of, external, computes, written };
        facts.check_locations()?;
        Ok(facts)
    }

    /// Fails unless every external root that a node touches has a known location.
    fn check_locations(&self) -> Result<(), SchedError> {
        for &node in self.graph.nodes().iter().filter(|node| self.computes(**node)) {
            for tensor in self.graph.sources(node).iter().copied().flatten().chain([node]) {
                let root = self.graph.root(tensor);
                if self.graph.tensor(root).external && self.location(root).is_none() {
                    return Err(SchedError::UnknownLocation { tensor: self.named(root) });
                }
            }
        }
        Ok(())
    }

    /// Returns whether a worker reads and writes a space.
    pub(crate) fn reaches(&self, worker: WorkerId, space: MemorySpaceId) -> bool {
        self.reach[worker.index() * self.spaces.len() + space.index()]
    }

    /// Returns the space of a worker's results.
    pub(crate) fn space_of(&self, worker: WorkerId) -> MemorySpaceId {
        self.space_of[worker]
    }

    /// Returns where the caller has placed a root.
    pub(crate) fn location(&self, root: TensorId) -> Option<ExternalLocation> {
        self.external[root.index()]
    }

    /// Returns whether a tensor is a weight, or a part of one.
    pub(crate) fn is_weight(&self, tensor: TensorId) -> bool {
        self.location(self.graph.root(tensor)).is_some_and(|location| location.is_weight)
    }

    /// Returns whether a tensor is a node that computes something.
    pub(crate) fn computes(&self, tensor: TensorId) -> bool {
        self.computes[tensor.index()]
    }

    /// Returns the nodes that compute something, in order.
    pub(crate) fn computing(&self) -> impl DoubleEndedIterator<Item = TensorId> {
        self.graph.nodes().iter().copied().filter(|node| self.computes(*node))
    }

    /// Returns whether some node writes into a root.
    pub(crate) fn is_written(&self, root: TensorId) -> bool {
        self.written[root.index()]
    }

    /// Returns whether the caller alone writes a root, before each run.
    pub(crate) fn is_filled_by_caller(&self, root: TensorId) -> bool {
        self.graph.tensor(root).is_planned() && !self.is_written(root)
    }

    /// Returns the root of what is assigned together: all that writes into one planned root, and the root itself;
    /// otherwise the tensor alone.
    pub(crate) fn unit(&self, tensor: TensorId) -> TensorId {
        let root = self.graph.root(tensor);
        if self.graph.tensor(root).external { tensor } else { root }
    }

    /// Returns the last worker, which inputs go to.
    pub(crate) fn last(&self) -> Result<WorkerId, SchedError> {
        self.workers.ids().next_back().ok_or(SchedError::NoWorker)
    }

    /// Returns the name of a worker; with a number if an earlier one has the same.
    pub(crate) fn title(&self, worker: WorkerId) -> String {
        let name = self.workers[worker].name();
        match self.workers.iter().take(worker.index()).filter(|it| it.name() == name).count() {
            0 => name.into(),
            earlier => format!("{name} ({})", earlier + 1),
        }
    }

    pub(crate) fn named(&self, tensor: TensorId) -> Named {
        Named::new(tensor, self.graph.names())
    }
}

/// Returns the number of a kind of memory, a new one if it has none.
fn number(spaces: &mut IdVec<MemorySpaceId, Arc<dyn BufferType>>, memory: &Arc<dyn BufferType>) -> MemorySpaceId {
    let known = spaces.pairs().find(|(_, known)| Arc::ptr_eq(known, memory)).map(|(id, _)| id);
    match known.or_else(|| spaces.push(Arc::clone(memory))) {
        Some(space) => space,
        None => unreachable!("there are not so many tensors"),
    }
}

/// Returns whether `id` names an external tensor of this graph. Locations and bindings may contain tensors of other
/// graphs.
///
/// # Errors
///
/// If the graph has an external tensor of that number and the id comes from another context or graph.
pub(crate) fn is_external(graph: &Graph, id: TensorId) -> Result<bool, GraphError> {
    let tensors = graph.tensors();
    if id.index() >= tensors.len() || !tensors[id].external {
        return Ok(false);
    }
    tensors.find(id).map(|_| true)
}
