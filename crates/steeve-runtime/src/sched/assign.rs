//! Assigns a worker, with a reason, to everything that needs one. O(edges * workers), and each device is asked at most
//! once about a node.
//!
//! ```text
//!   1 what is certain    pinned, written into placed memory, inputs, next to a weight
//!   2 neighbours         down and up the nodes: first from all workers but the last, then from all
//!   3 upgrades           to an earlier worker with the same memory; the rest goes where its sources are
//!   4 boundaries         cheap nodes beside a change of workers go to its other side, if that copies fewer bytes
//!   5 the rest           follows its first reader
//! ```
//!
//! Nodes that write into one planned root, and the root itself, are one *unit*: they are assigned together.

mod boundary;

use std::collections::BTreeMap;

use steeve_device::{Device, DeviceError};
use steeve_graph::{Id, Op, TensorId};

use crate::sched::error::{DeviceRefusals, WorkerRefusal};
use crate::sched::placement_facts::{MemorySpaceId, PlacementFacts};
use crate::sched::{AssignReason, SchedError, WorkerId};

/// The workers to which the caller has pinned tensors.
pub(crate) type PinnedTensors = BTreeMap<TensorId, WorkerId>;

/// Whether operations may move away from weights in the memory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offload {
    /// Where a device [wants](steeve_device::Device::offloads) it.
    #[default]
    Wanted,
    /// Never.
    Never,
}

/// The worker of each unit of tensors.
#[derive(Clone, Debug)]
pub(crate) struct WorkerAssignment {
    /// The worker and the reason, by unit.
    of_unit: Vec<Option<(WorkerId, AssignReason)>>,
    /// Nodes that another worker computes than that of their unit, in the same memory.
    elsewhere: BTreeMap<TensorId, WorkerId>,
}

impl WorkerAssignment {
    /// Returns the worker of a tensor; `None` for external tensors that no node writes, and for what no node touches.
    pub(crate) fn of(&self, facts: &PlacementFacts<'_>, tensor: TensorId) -> Option<(WorkerId, AssignReason)> {
        let (worker, reason) = self.of_unit[facts.unit(tensor).index()]?;
        match self.elsewhere.get(&tensor) {
            Some(other) => Some((*other, AssignReason::Elsewhere { instead_of: worker })),
            None => Some((worker, reason)),
        }
    }

    /// Returns the worker in whose memory a tensor is planned.
    pub(crate) fn memory_owner(&self, facts: &PlacementFacts<'_>, tensor: TensorId) -> Option<WorkerId> {
        self.of_unit[facts.unit(tensor).index()].map(|(worker, _)| worker)
    }

    /// Returns the worker that computes a node.
    pub(crate) fn worker(&self, facts: &PlacementFacts<'_>, node: TensorId) -> WorkerId {
        match self.of(facts, node) {
            Some((worker, _)) => worker,
            None => unreachable!("every node that computes something has a worker"),
        }
    }

    /// Returns the memory space of a root.
    pub(crate) fn space(&self, facts: &PlacementFacts<'_>, root: TensorId) -> Option<MemorySpaceId> {
        let planned = || self.of_unit[root.index()].map(|(worker, _)| facts.space_of(worker));
        facts.location(root).map(|location| location.space).or_else(planned)
    }
}

/// Assigns a worker to everything that needs one. Fails if no device can run a node, or a pinned one can't.
pub(crate) fn assign(
    facts: &PlacementFacts<'_>,
    pins: &PinnedTensors,
    offload: Offload,
) -> Result<WorkerAssignment, SchedError> {
    let mut assigner = Assigner::new(facts)?;
    assigner.pin(pins)?;
    assigner.assign_certain(offload);
    for from in [SpreadFrom::AllButLast, SpreadFrom::All] {
        assigner.spread_to_neighbours(from, facts.computing());
        assigner.spread_to_neighbours(from, facts.computing().rev());
    }
    assigner.upgrade_workers()?;
    boundary::shift_boundaries(&mut assigner);
    assigner.reassign_unsupported();
    assigner.assign_remaining();
    Ok(assigner.assigned)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SpreadFrom {
    AllButLast,
    All,
}

/// Whether a device supports a node, once it was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SupportAnswer {
    Unknown,
    Yes,
    No,
}

struct Assigner<'a> {
    facts: &'a PlacementFacts<'a>,
    last: WorkerId,
    assigned: WorkerAssignment,
    /// For each tensor, what each device has answered.
    answers: Vec<SupportAnswer>,
    /// Roots with the nodes that write into them through a view, sorted.
    writers: Vec<(TensorId, TensorId)>,
}

impl<'a> Assigner<'a> {
    fn new(facts: &'a PlacementFacts<'a>) -> Result<Self, SchedError> {
        let tensors = facts.graph.tensors().len();
        let through_view = |node: &TensorId| facts.unit(*node) != *node;
        let mut writers: Vec<_> = facts.computing().filter(through_view).map(|node| (facts.unit(node), node)).collect();
        writers.sort_unstable();
        Ok(Self {
            facts,
            last: facts.last()?,
            assigned: WorkerAssignment { of_unit: vec![None; tensors], elsewhere: BTreeMap::new() },
            answers: vec![SupportAnswer::Unknown; tensors * facts.workers.len()],
            writers,
        })
    }

    fn get(&self, unit: TensorId) -> Option<WorkerId> {
        self.assigned.of_unit[unit.index()].map(|(worker, _)| worker)
    }

    fn set(&mut self, unit: TensorId, worker: WorkerId, reason: AssignReason) {
        self.assigned.of_unit[unit.index()] = Some((worker, reason));
    }

    /// Returns the nodes of a unit: the root if it is computed, and the nodes that write into it.
    fn members(&self, unit: TensorId) -> impl Iterator<Item = TensorId> + use<> {
        let own = self.facts.computes(unit).then_some(unit);
        let first = self.writers.partition_point(|(root, _)| *root < unit);
        let through_views: Vec<TensorId> =
            self.writers[first..].iter().take_while(|(root, _)| *root == unit).map(|(_, node)| *node).collect();
        own.into_iter().chain(through_views)
    }

    /// Returns whether a worker can have a unit: it runs the node, in the memory that the node writes; if there are
    /// several nodes, some worker that reaches its memory runs each of them.
    fn runs(&mut self, unit: TensorId, worker: WorkerId) -> bool {
        if let Some(location) = self.facts.location(self.facts.graph.root(unit))
            && !self.facts.reaches(worker, location.space)
        {
            return false;
        }
        if self.writers.is_empty() {
            return !self.facts.computes(unit) || self.supports(unit, worker);
        }
        match self.members(unit).count() {
            0 | 1 => self.members(unit).all(|node| self.supports(node, worker)),
            _ => self.members(unit).all(|node| self.worker_for_node(node, worker).is_some()),
        }
    }

    /// Returns the worker that computes a node of a unit that is assigned to `worker`: that one, or the first other
    /// that reaches its memory.
    fn worker_for_node(&mut self, node: TensorId, worker: WorkerId) -> Option<WorkerId> {
        if self.supports(node, worker) {
            return Some(worker);
        }
        let (facts, space) = (self.facts, self.facts.space_of(worker));
        facts.workers.ids().find(|other| facts.reaches(*other, space) && self.supports(node, *other))
    }

    fn supports(&mut self, node: TensorId, worker: WorkerId) -> bool {
        let index = node.index() * self.facts.workers.len() + worker.index();
        if self.answers[index] == SupportAnswer::Unknown {
            let said = self.device(worker).supports(self.facts.graph, node);
            self.answers[index] = if said.is_ok() { SupportAnswer::Yes } else { SupportAnswer::No };
        }
        self.answers[index] == SupportAnswer::Yes
    }

    fn device(&self, worker: WorkerId) -> &'a dyn Device {
        &**self.facts.workers[worker].device()
    }

    /// Returns the first worker that reaches a space and runs a unit.
    fn first_that_runs(&mut self, unit: TensorId, space: MemorySpaceId) -> Option<WorkerId> {
        let facts = self.facts;
        facts.workers.ids().find(|worker| facts.reaches(*worker, space) && self.runs(unit, *worker))
    }

    fn pin(&mut self, pins: &PinnedTensors) -> Result<(), SchedError> {
        let facts = self.facts;
        for (&tensor, &worker) in pins {
            if tensor.index() >= facts.graph.tensors().len() {
                continue;
            }
            let refuse = |refusal: WorkerRefusal| {
                let refusal = Box::new(refusal);
                let worker = facts.workers[worker].name().into();
                Err(SchedError::Pinned { tensor: facts.named(tensor), worker, refusal })
            };
            let unit = facts.unit(tensor);
            if let Some(other) = self.get(unit).filter(|other| *other != worker) {
                return refuse(WorkerRefusal::PinnedElsewhere { worker: facts.workers[other].name().into() });
            }
            if facts.computes(tensor) && !self.supports(tensor, worker) {
                return refuse(WorkerRefusal::Device(self.refusal(tensor, worker)));
            }
            if !self.runs(unit, worker) {
                return refuse(self.refusal_of(unit, tensor, worker));
            }
            // An external tensor that no node computes keeps its location.
            if !facts.graph.tensor(unit).external || facts.computes(unit) {
                self.set(unit, worker, AssignReason::Pinned);
            }
        }
        Ok(())
    }

    /// Assigns what needs no neighbour: placed tensors, inputs, and nodes beside weights.
    fn assign_certain(&mut self, offload: Offload) {
        let facts = self.facts;
        for node in facts.computing() {
            for source in facts.graph.sources(node).iter().copied().flatten() {
                let root = facts.graph.root(source);
                // Also inputs that are not listed, and parameters among the nodes.
                if facts.is_filled_by_caller(root)
                    && facts.graph.tensor(root).flags.is_input()
                    && self.get(root).is_none()
                {
                    self.set(root, self.last, AssignReason::Input);
                }
            }
        }
        let leafs = facts.graph.leafs().iter().copied();
        for tensor in leafs.chain(facts.computing()) {
            let unit = facts.unit(tensor);
            if self.get(unit).is_some() || (facts.graph.tensor(unit).external && !facts.computes(unit)) {
                continue;
            }
            if let Some((worker, reason)) = self.certain_worker(tensor, unit, offload) {
                self.set(unit, worker, reason);
            }
        }
    }

    fn certain_worker(
        &mut self,
        tensor: TensorId,
        unit: TensorId,
        offload: Offload,
    ) -> Option<(WorkerId, AssignReason)> {
        let facts = self.facts;
        let root = facts.graph.root(tensor);
        if let Some(location) = facts.location(root) {
            return Some((self.first_that_runs(unit, location.space)?, AssignReason::Placed { root }));
        }
        if facts.graph.tensor(root).flags.is_input() {
            return self.runs(unit, self.last).then_some((self.last, AssignReason::Input));
        }
        // Their weights are too small to decide anything.
        if !facts.computes(tensor) || matches!(facts.graph.tensor(tensor).op, Op::Rope | Op::FlashAttnExt) {
            return None;
        }
        let sources = facts.graph.sources(tensor).iter().copied().flatten();
        let weight = sources.into_iter().find(|source| facts.is_weight(*source))?;
        let location = facts.location(facts.graph.root(weight))?;
        let beside = self.first_that_runs(unit, location.space);
        // Host memory that belongs to a device other than the last is not offloaded from, whatever other devices read
        // it.
        let hosts = facts.space_of(self.last);
        let is_owned = facts.workers.ids().map(|it| facts.space_of(it)).any(|it| it == location.space && it != hosts);
        if offload == Offload::Wanted && facts.spaces[location.space].is_host() && !is_owned {
            let wants = |it: &mut Self, worker| it.device(worker).offloads(facts.graph, tensor);
            let earlier = facts.workers.ids().take_while(|worker| Some(*worker) != beside);
            let taker = earlier.into_iter().find(|worker| wants(self, *worker) && self.runs(unit, *worker));
            if let Some(worker) = taker {
                return Some((worker, AssignReason::Offloaded { weight }));
            }
        }
        beside.map(|worker| (worker, AssignReason::Weight { weight }))
    }

    /// Spreads assignments from node to node, as long as the devices support it.
    fn spread_to_neighbours(&mut self, from: SpreadFrom, nodes: impl Iterator<Item = TensorId>) {
        let facts = self.facts;
        let mut current: Option<(WorkerId, TensorId)> = None;
        for node in nodes {
            let unit = facts.unit(node);
            match (self.get(unit), current) {
                (Some(worker), _) => {
                    let runner = self.worker_for_node(node, worker).unwrap_or(worker);
                    let is_left_out = runner == self.last && from == SpreadFrom::AllButLast;
                    current = if is_left_out { None } else { Some((runner, node)) };
                }
                (None, Some((worker, from))) if self.runs(unit, worker) => {
                    self.set(unit, worker, AssignReason::Neighbour { node: from });
                }
                (None, _) => {}
            }
        }
    }

    /// Moves units to an earlier worker with the same memory; assigns what has no worker yet to where most of its
    /// sources are.
    fn upgrade_workers(&mut self) -> Result<(), SchedError> {
        let facts = self.facts;
        for node in facts.computing() {
            let unit = facts.unit(node);
            match self.assigned.of_unit[unit.index()] {
                None => self.assign_by_sources(unit, node)?,
                Some((_, AssignReason::Pinned)) => {}
                Some((worker, _)) => {
                    let space = facts.space_of(worker);
                    let better = facts.workers.ids().take(worker.index()).find(|earlier| {
                        facts.space_of(*earlier) == space && self.reads_all(unit, *earlier) && self.runs(unit, *earlier)
                    });
                    if let Some(better) = better {
                        self.set(unit, better, AssignReason::Upgraded { from: worker });
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns how many sources of a unit a worker can read as they are, and how many there are.
    fn readable(&self, unit: TensorId, worker: WorkerId) -> (usize, usize) {
        let facts = self.facts;
        let (mut readable, mut of) = (0, 0);
        for node in self.members(unit) {
            for source in facts.graph.sources(node).iter().copied().flatten() {
                let root = facts.graph.root(source);
                of += 1;
                // A source without a location yet will follow its reader.
                let reads = |space| facts.reaches(worker, space);
                readable += usize::from(root == unit || self.assigned.space(facts, root).is_none_or(reads));
            }
        }
        (readable, of)
    }

    fn reads_all(&self, unit: TensorId, worker: WorkerId) -> bool {
        let (readable, of) = self.readable(unit, worker);
        readable == of
    }

    fn assign_by_sources(&mut self, unit: TensorId, node: TensorId) -> Result<(), SchedError> {
        let facts = self.facts;
        let mut best: Option<(usize, usize, WorkerId)> = None;
        for worker in facts.workers.ids() {
            if self.runs(unit, worker) {
                let (readable, of) = self.readable(unit, worker);
                if best.is_none_or(|(most, ..)| readable > most) {
                    best = Some((readable, of, worker));
                }
            }
        }
        let Some((readable, of, worker)) = best else { return Err(self.unsupported(unit, node)) };
        self.set(unit, worker, AssignReason::Sources { readable, of });
        Ok(())
    }

    /// Returns the error for a unit that no worker can run, about the node that is to blame, if there is one.
    fn unsupported(&mut self, unit: TensorId, node: TensorId) -> SchedError {
        let facts = self.facts;
        let members: Vec<TensorId> = self.members(unit).collect();
        let nowhere = |it: &mut Self, node| !facts.workers.ids().any(|worker| it.supports(node, worker));
        let node = members.into_iter().find(|node| nowhere(self, *node)).unwrap_or(node);
        let refusals =
            facts.workers.pairs().map(|(id, worker)| (worker.name().into(), self.refusal_of(unit, node, id)));
        let refusals = DeviceRefusals(refusals.collect());
        let tensors = facts.graph.tensors();
        let op = tensors.op_title(tensors[node].op).to_ascii_lowercase();
        SchedError::Unsupported { node: facts.named(node), op, refusals }
    }

    /// Returns why a worker does not run a unit, about `node` if that is why.
    fn refusal_of(&mut self, unit: TensorId, node: TensorId, worker: WorkerId) -> WorkerRefusal {
        if self.facts.computes(node) && !self.supports(node, worker) {
            return WorkerRefusal::Device(self.refusal(node, worker));
        }
        let others: Vec<TensorId> = self.members(unit).filter(|other| !self.supports(*other, worker)).collect();
        let helpless = others.iter().copied().find(|other| self.worker_for_node(*other, worker).is_none());
        match helpless.or(others.first().copied()) {
            Some(other) => {
                let (other, error) = (self.facts.named(other), self.refusal(other, worker));
                WorkerRefusal::SharedMemory { other, error }
            }
            None => WorkerRefusal::OutOfReach { root: self.facts.named(self.facts.graph.root(unit)) },
        }
    }

    /// Returns why a device does not support a node.
    fn refusal(&self, node: TensorId, worker: WorkerId) -> DeviceError {
        let device = self.device(worker);
        match device.supports(self.facts.graph, node) {
            Err(error) => error,
            Ok(()) => DeviceError::unsupported(device.name(), self.facts.graph, node, "it has changed its answer"),
        }
    }

    /// Reassigns the nodes of units whose worker can't run them to one that can.
    fn reassign_unsupported(&mut self) {
        let facts = self.facts;
        for node in facts.computing() {
            let Some(worker) = self.get(facts.unit(node)) else { continue };
            if let Some(other) = self.worker_for_node(node, worker).filter(|other| *other != worker) {
                self.assigned.elsewhere.insert(node, other);
            }
        }
    }

    /// Assigns the rest to their first reader, or to the last worker.
    fn assign_remaining(&mut self) {
        let facts = self.facts;
        for node in facts.computing() {
            let Some((worker, _)) = self.assigned.of(facts, node) else { continue };
            for source in facts.graph.sources(node).iter().copied().flatten() {
                let root = facts.graph.root(source);
                if facts.location(root).is_none() && self.get(root).is_none() {
                    self.set(root, worker, AssignReason::Reader { node });
                }
            }
        }
        let listed = facts.graph.leafs().iter().chain(facts.graph.nodes());
        for root in listed.map(|tensor| facts.graph.root(*tensor)) {
            if facts.graph.tensor(root).is_planned() && self.get(root).is_none() {
                self.set(root, self.last, AssignReason::Unread);
            }
        }
    }
}
