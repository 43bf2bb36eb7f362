//! Graph in, a worker and a reason for everything that needs one out. O(edges * workers), and no more questions to a
//! device about a node than needed.
//!
//! ```text
//!   1 what is certain    pinned, written into placed memory, inputs, next to a weight
//!   2 neighbours         down and up the nodes: first from all workers but the last, then from all
//!   3 upgrades           to an earlier worker with the same memory; who is left over goes where its sources are
//!   4 borders            cheap nodes beside a change of workers go to its other side, if that copies fewer bytes
//!   5 the rest           follows its first reader
//! ```
//!
//! Nodes that write into one planned root, and the root itself, are one *unit*: they are assigned together.

mod border;

use std::collections::BTreeMap;

use steeve_device::Device;
use steeve_graph::{Id, Op, TensorId};

use crate::error::Refusals;
use crate::ground::{Ground, SpaceId};
use crate::{Reason, SchedError, WorkerId};

/// What the caller has said about tensors.
pub(crate) type Pins = BTreeMap<TensorId, WorkerId>;

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

/// Who works on what.
#[derive(Clone, Debug)]
pub(crate) struct Assigned {
    /// By unit.
    of_unit: Vec<Option<(WorkerId, Reason)>>,
    /// Nodes that another worker computes than that of their unit, in the same memory.
    elsewhere: BTreeMap<TensorId, WorkerId>,
}

impl Assigned {
    /// The worker of a tensor; nothing for external tensors that no node writes, and for what no node touches.
    pub(crate) fn of(&self, ground: &Ground<'_>, tensor: TensorId) -> Option<(WorkerId, Reason)> {
        let (worker, reason) = self.of_unit[ground.unit(tensor).index()]?;
        match self.elsewhere.get(&tensor) {
            Some(other) => Some((*other, Reason::Elsewhere { instead_of: worker })),
            None => Some((worker, reason)),
        }
    }

    /// The worker in whose memory a tensor is planned.
    pub(crate) fn home(&self, ground: &Ground<'_>, tensor: TensorId) -> Option<WorkerId> {
        self.of_unit[ground.unit(tensor).index()].map(|(worker, _)| worker)
    }

    /// The worker that computes a node.
    pub(crate) fn worker(&self, ground: &Ground<'_>, node: TensorId) -> WorkerId {
        match self.of(ground, node) {
            Some((worker, _)) => worker,
            None => unreachable!("every node that computes something has a worker"),
        }
    }

    /// The space that a root stands in.
    pub(crate) fn space(&self, ground: &Ground<'_>, root: TensorId) -> Option<SpaceId> {
        let planned = || self.of_unit[root.index()].map(|(worker, _)| ground.space_of(worker));
        ground.placed(root).map(|placed| placed.space).or_else(planned)
    }
}

/// Gives everything a worker.
pub(crate) fn assign(ground: &Ground<'_>, pins: &Pins, offload: Offload) -> Result<Assigned, SchedError> {
    let mut assigner = Assigner::new(ground)?;
    assigner.pin(pins)?;
    assigner.start(offload);
    for whose in [Whose::AllButLast, Whose::All] {
        assigner.spread(whose, ground.computing());
        assigner.spread(whose, ground.computing().rev());
    }
    assigner.upgrade()?;
    border::shift(&mut assigner);
    assigner.share_out();
    assigner.rest();
    Ok(assigner.assigned)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    AllButLast,
    All,
}

/// What a device has said about a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Unasked,
    Yes,
    No,
}

struct Assigner<'a> {
    ground: &'a Ground<'a>,
    last: WorkerId,
    assigned: Assigned,
    /// For each tensor what each device has said.
    answers: Vec<Answer>,
    /// Roots with the nodes that write into them through a view, sorted.
    writers: Vec<(TensorId, TensorId)>,
}

impl<'a> Assigner<'a> {
    fn new(ground: &'a Ground<'a>) -> Result<Self, SchedError> {
        let tensors = ground.graph.tensors().len();
        let through_view = |node: &TensorId| ground.unit(*node) != *node;
        let mut writers: Vec<_> =
            ground.computing().filter(through_view).map(|node| (ground.unit(node), node)).collect();
        writers.sort_unstable();
        Ok(Self {
            ground,
            last: ground.last()?,
            assigned: Assigned { of_unit: vec![None; tensors], elsewhere: BTreeMap::new() },
            answers: vec![Answer::Unasked; tensors * ground.workers.len()],
            writers,
        })
    }

    fn get(&self, unit: TensorId) -> Option<WorkerId> {
        self.assigned.of_unit[unit.index()].map(|(worker, _)| worker)
    }

    fn set(&mut self, unit: TensorId, worker: WorkerId, reason: Reason) {
        self.assigned.of_unit[unit.index()] = Some((worker, reason));
    }

    /// The nodes of a unit: the root if something computes it, and who writes into it.
    fn members(&self, unit: TensorId) -> impl Iterator<Item = TensorId> + use<> {
        let own = self.ground.computes(unit).then_some(unit);
        let first = self.writers.partition_point(|(root, _)| *root < unit);
        let through_views: Vec<TensorId> =
            self.writers[first..].iter().take_while(|(root, _)| *root == unit).map(|(_, node)| *node).collect();
        own.into_iter().chain(through_views)
    }

    /// Whether a worker can have a unit: it runs the node, where it writes; if there are several, each of them can be run by
    /// somebody in its memory.
    fn runs(&mut self, unit: TensorId, worker: WorkerId) -> bool {
        if let Some(placed) = self.ground.placed(self.ground.graph.root(unit))
            && !self.ground.reaches(worker, placed.space)
        {
            return false;
        }
        if self.writers.is_empty() {
            return !self.ground.computes(unit) || self.supports(unit, worker);
        }
        match self.members(unit).count() {
            0 | 1 => self.members(unit).all(|node| self.supports(node, worker)),
            _ => self.members(unit).all(|node| self.runner(node, worker).is_some()),
        }
    }

    /// Who computes a node of a unit that is assigned to a worker: that one, or the first other that reaches its memory.
    fn runner(&mut self, node: TensorId, worker: WorkerId) -> Option<WorkerId> {
        if self.supports(node, worker) {
            return Some(worker);
        }
        let (ground, space) = (self.ground, self.ground.space_of(worker));
        ground.workers.ids().find(|other| ground.reaches(*other, space) && self.supports(node, *other))
    }

    fn supports(&mut self, node: TensorId, worker: WorkerId) -> bool {
        let index = node.index() * self.ground.workers.len() + worker.index();
        if self.answers[index] == Answer::Unasked {
            let said = self.device(worker).supports(self.ground.graph, node);
            self.answers[index] = if said.is_ok() { Answer::Yes } else { Answer::No };
        }
        self.answers[index] == Answer::Yes
    }

    fn device(&self, worker: WorkerId) -> &'a dyn Device {
        &**self.ground.workers[worker].device()
    }

    /// The first worker that reaches a space and runs a unit.
    fn first_that_runs(&mut self, unit: TensorId, space: SpaceId) -> Option<WorkerId> {
        let ground = self.ground;
        ground.workers.ids().find(|worker| ground.reaches(*worker, space) && self.runs(unit, *worker))
    }

    fn pin(&mut self, pins: &Pins) -> Result<(), SchedError> {
        let ground = self.ground;
        for (&tensor, &worker) in pins {
            if tensor.index() >= ground.graph.tensors().len() {
                continue;
            }
            let refuse = |why: String| {
                let worker = ground.workers[worker].name().into();
                Err(SchedError::Pinned { tensor: ground.named(tensor), worker, why })
            };
            let unit = ground.unit(tensor);
            if let Some(other) = self.get(unit).filter(|other| *other != worker) {
                let other = ground.workers[other].name();
                return refuse(format!("what shares its memory was pinned to {other}"));
            }
            if ground.computes(tensor) && !self.supports(tensor, worker) {
                return refuse(self.refusal(tensor, worker));
            }
            if !self.runs(unit, worker) {
                return refuse(self.refusal_of(unit, tensor, worker));
            }
            // An external tensor that no node computes stands where it stands.
            if !ground.graph.tensor(unit).external || ground.computes(unit) {
                self.set(unit, worker, Reason::Pinned);
            }
        }
        Ok(())
    }

    /// What is certain by itself.
    fn start(&mut self, offload: Offload) {
        let ground = self.ground;
        for node in ground.computing() {
            for source in ground.graph.sources(node).iter().copied().flatten() {
                let root = ground.graph.root(source);
                // Also those that nobody lists, and parameters among the nodes.
                if ground.is_filled_by_caller(root)
                    && ground.graph.tensor(root).flags.is_input()
                    && self.get(root).is_none()
                {
                    self.set(root, self.last, Reason::Input);
                }
            }
        }
        let leafs = ground.graph.leafs().iter().copied();
        for tensor in leafs.chain(ground.computing()) {
            let unit = ground.unit(tensor);
            if self.get(unit).is_some() || (ground.graph.tensor(unit).external && !ground.computes(unit)) {
                continue;
            }
            if let Some((worker, reason)) = self.by_itself(tensor, unit, offload) {
                self.set(unit, worker, reason);
            }
        }
    }

    fn by_itself(&mut self, tensor: TensorId, unit: TensorId, offload: Offload) -> Option<(WorkerId, Reason)> {
        let ground = self.ground;
        let root = ground.graph.root(tensor);
        if let Some(placed) = ground.placed(root) {
            return Some((self.first_that_runs(unit, placed.space)?, Reason::Placed { root }));
        }
        if ground.graph.tensor(root).flags.is_input() {
            return self.runs(unit, self.last).then_some((self.last, Reason::Input));
        }
        // Their weights are too small to decide anything.
        if !ground.computes(tensor) || matches!(ground.graph.tensor(tensor).op, Op::Rope | Op::FlashAttnExt) {
            return None;
        }
        let sources = ground.graph.sources(tensor).iter().copied().flatten();
        let weight = sources.into_iter().find(|source| ground.is_weight(*source))?;
        let placed = ground.placed(ground.graph.root(weight))?;
        let beside = self.first_that_runs(unit, placed.space);
        // Host memory that is a device's own is that device's, and whoever else could read it.
        let hosts = ground.space_of(self.last);
        let is_owned = ground.workers.ids().map(|it| ground.space_of(it)).any(|it| it == placed.space && it != hosts);
        if offload == Offload::Wanted && ground.spaces[placed.space].is_host() && !is_owned {
            let wants = |it: &mut Self, worker| it.device(worker).offloads(ground.graph, tensor);
            let earlier = ground.workers.ids().take_while(|worker| Some(*worker) != beside);
            let taker = earlier.into_iter().find(|worker| wants(self, *worker) && self.runs(unit, *worker));
            if let Some(worker) = taker {
                return Some((worker, Reason::Offloaded { weight }));
            }
        }
        beside.map(|worker| (worker, Reason::Weight { weight }))
    }

    /// From node to node, as long as the devices support it.
    fn spread(&mut self, whose: Whose, nodes: impl Iterator<Item = TensorId>) {
        let ground = self.ground;
        let mut current: Option<(WorkerId, TensorId)> = None;
        for node in nodes {
            let unit = ground.unit(node);
            match (self.get(unit), current) {
                (Some(worker), _) => {
                    let runner = self.runner(node, worker).unwrap_or(worker);
                    let is_left_out = runner == self.last && whose == Whose::AllButLast;
                    current = if is_left_out { None } else { Some((runner, node)) };
                }
                (None, Some((worker, from))) if self.runs(unit, worker) => {
                    self.set(unit, worker, Reason::Neighbour { node: from });
                }
                (None, _) => {}
            }
        }
    }

    /// To an earlier worker with the same memory; who has none yet goes where most of its sources are.
    fn upgrade(&mut self) -> Result<(), SchedError> {
        let ground = self.ground;
        for node in ground.computing() {
            let unit = ground.unit(node);
            match self.assigned.of_unit[unit.index()] {
                None => self.settle(unit, node)?,
                Some((_, Reason::Pinned)) => {}
                Some((worker, _)) => {
                    let space = ground.space_of(worker);
                    let better = ground.workers.ids().take(worker.index()).find(|earlier| {
                        ground.space_of(*earlier) == space
                            && self.reads_all(unit, *earlier)
                            && self.runs(unit, *earlier)
                    });
                    if let Some(better) = better {
                        self.set(unit, better, Reason::Upgraded { from: worker });
                    }
                }
            }
        }
        Ok(())
    }

    /// How many sources of a unit a worker can read as they are, and how many there are.
    fn readable(&self, unit: TensorId, worker: WorkerId) -> (usize, usize) {
        let ground = self.ground;
        let (mut readable, mut of) = (0, 0);
        for node in self.members(unit) {
            for source in ground.graph.sources(node).iter().copied().flatten() {
                let root = ground.graph.root(source);
                of += 1;
                // What nobody has placed yet will follow.
                let reads = |space| ground.reaches(worker, space);
                readable += usize::from(root == unit || self.assigned.space(ground, root).is_none_or(reads));
            }
        }
        (readable, of)
    }

    fn reads_all(&self, unit: TensorId, worker: WorkerId) -> bool {
        let (readable, of) = self.readable(unit, worker);
        readable == of
    }

    fn settle(&mut self, unit: TensorId, node: TensorId) -> Result<(), SchedError> {
        let ground = self.ground;
        let mut best: Option<(usize, usize, WorkerId)> = None;
        for worker in ground.workers.ids() {
            if self.runs(unit, worker) {
                let (readable, of) = self.readable(unit, worker);
                if best.is_none_or(|(most, ..)| readable > most) {
                    best = Some((readable, of, worker));
                }
            }
        }
        let Some((readable, of, worker)) = best else { return Err(self.unsupported(unit, node)) };
        self.set(unit, worker, Reason::Sources { readable, of });
        Ok(())
    }

    /// Nobody can run a unit: says so about the node that is to blame, if there is one.
    fn unsupported(&mut self, unit: TensorId, node: TensorId) -> SchedError {
        let ground = self.ground;
        let members: Vec<TensorId> = self.members(unit).collect();
        let nowhere = |it: &mut Self, node| !ground.workers.ids().any(|worker| it.supports(node, worker));
        let node = members.into_iter().find(|node| nowhere(self, *node)).unwrap_or(node);
        let refusals =
            ground.workers.pairs().map(|(id, worker)| (worker.name().into(), self.refusal_of(unit, node, id)));
        let refusals = Refusals(refusals.collect());
        let tensors = ground.graph.tensors();
        let op = tensors.op_title(tensors[node].op).to_ascii_lowercase();
        SchedError::Unsupported { node: ground.named(node), op, refusals }
    }

    /// Why a worker does not run a unit, told about `node` if that is why.
    fn refusal_of(&mut self, unit: TensorId, node: TensorId, worker: WorkerId) -> String {
        if self.ground.computes(node) && !self.supports(node, worker) {
            return self.refusal(node, worker);
        }
        let others: Vec<TensorId> = self.members(unit).filter(|other| !self.supports(*other, worker)).collect();
        let helpless = others.iter().copied().find(|other| self.runner(*other, worker).is_none());
        match helpless.or(others.first().copied()) {
            Some(other) => {
                let (other, why) = (self.ground.named(other), self.refusal(other, worker));
                format!("it shares its memory with {other}: {why}")
            }
            None => format!("it can't reach the memory of {}", self.ground.named(self.ground.graph.root(unit))),
        }
    }

    fn refusal(&self, node: TensorId, worker: WorkerId) -> String {
        use steeve_device::DeviceError;
        match self.device(worker).supports(self.ground.graph, node) {
            Err(DeviceError::Unsupported { why, .. }) => why,
            Err(other) => other.to_string(),
            Ok(()) => "it has changed its mind".into(),
        }
    }

    /// Gives the nodes of units whose worker can't run them to somebody who can.
    fn share_out(&mut self) {
        let ground = self.ground;
        for node in ground.computing() {
            let Some(worker) = self.get(ground.unit(node)) else { continue };
            if let Some(other) = self.runner(node, worker).filter(|other| *other != worker) {
                self.assigned.elsewhere.insert(node, other);
            }
        }
    }

    /// What is left follows who reads it first, or is on the last worker.
    fn rest(&mut self) {
        let ground = self.ground;
        for node in ground.computing() {
            let Some((worker, _)) = self.assigned.of(ground, node) else { continue };
            for source in ground.graph.sources(node).iter().copied().flatten() {
                let root = ground.graph.root(source);
                if ground.placed(root).is_none() && self.get(root).is_none() {
                    self.set(root, worker, Reason::Reader { node });
                }
            }
        }
        let listed = ground.graph.leafs().iter().chain(ground.graph.nodes());
        for root in listed.map(|tensor| ground.graph.root(*tensor)) {
            if ground.graph.tensor(root).is_planned() && self.get(root).is_none() {
                self.set(root, self.last, Reason::Unread);
            }
        }
    }
}
