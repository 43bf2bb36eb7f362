//! A schedule and its places in, actions that are ready to run out: copies and splits, each on a stream, each with what it
//! has to wait for.

use std::ops::Range;

use steeve_alloc::Allocation;
use steeve_device::{Address, Bytes, DeviceError, Locate, Offset, Prepared, SharedBuffer};
use steeve_graph::{IdVec, Named, TensorId};

use crate::SchedError;
use crate::clock::Clock;
use crate::experts::{Asked, asked};
use crate::order::{Extent, HOST, Step, Touched, Wait, waits};
use crate::schedule::{CopyIn, Schedule};
use crate::worker::{WorkerId, Workers};

/// What it takes to run a schedule where its tensors stand.
#[derive(Debug)]
pub(crate) struct Program {
    allocation: Allocation,
    actions: Vec<Action>,
    /// The splits, ready to run, for each turn.
    prepared: Vec<Vec<Box<dyn Prepared>>>,
    /// For each copy of experts which of them were asked for last.
    asked: Vec<Asked>,
    streams: usize,
}

#[derive(Debug)]
struct Action {
    act: Act,
    /// Who does it; nobody if the host does it at once.
    by: Option<WorkerId>,
    stream: usize,
    waits: Vec<Wait>,
    /// Whether somebody waits for it.
    is_awaited: bool,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// Find out which experts are needed.
    Ask {
        copy: usize,
    },
    Copy {
        copy: usize,
    },
    Run {
        split: usize,
    },
}

impl Program {
    /// Prepares everything. What a device does not support, or can't reach, is an error here.
    pub(crate) fn new(schedule: &Schedule, allocation: &Allocation, workers: &Workers) -> Result<Self, SchedError> {
        let streams = Streams::new(workers);
        let (turns, graph) = (schedule.turns(), schedule.graph());
        let mut prepared = Vec::with_capacity(turns);
        for turn in 0..turns {
            let tensors = InTurn { schedule, allocation, turn };
            let ready = schedule.splits().iter().map(|split| {
                let backend = workers[split.worker].backend()?;
                Ok(backend.prepare(graph, split.nodes.clone(), &tensors)?)
            });
            prepared.push(ready.collect::<Result<Vec<_>, SchedError>>()?);
        }
        let mut actions = Vec::new();
        for (number, split) in schedule.splits().iter().enumerate() {
            for copy in split.copies.clone() {
                let it = &schedule.copies()[copy];
                if !it.ids.is_empty() {
                    actions.push(Action::new(Act::Ask { copy }, None, &streams));
                }
                let by = copier(it, allocation, workers)?;
                actions.push(Action::new(Act::Copy { copy }, by, &streams));
            }
            let by = Some(split.worker).filter(|worker| streams.of[*worker] != HOST);
            actions.push(Action::new(Act::Run { split: number }, by, &streams));
        }
        if streams.count > 1 {
            let mut steps = Vec::with_capacity(actions.len());
            for action in &actions {
                let mut touched = Vec::with_capacity(turns);
                for turn in 0..turns {
                    touched.push(touch(action.act, &InTurn { schedule, allocation, turn })?);
                }
                steps.push(Step { stream: action.stream, touched });
            }
            for (index, waits) in waits(&steps, streams.count, turns).into_iter().enumerate() {
                waits.iter().for_each(|wait| actions[wait.action].is_awaited = true);
                actions[index].waits = waits;
            }
        }
        let asked = vec![Asked::All; schedule.copies().len()];
        Ok(Self { allocation: allocation.clone(), actions, prepared, asked, streams: streams.count })
    }

    /// Whether it was made for tensors that stand where they do in `allocation`.
    pub(crate) fn is_for(&self, allocation: &Allocation) -> bool {
        self.allocation.stands_like(allocation)
    }

    /// A clock for runs of this program, when all streams are at rest.
    pub(crate) fn clock(&self) -> Clock {
        Clock::new(self.streams, self.actions.len())
    }

    /// Enqueues everything once. What the host itself has to do is done when this returns.
    pub(crate) fn submit(
        &mut self,
        schedule: &Schedule,
        workers: &Workers,
        clock: &mut Clock,
    ) -> Result<(), SchedError> {
        let turns = schedule.turns();
        let turn = clock.run() % turns;
        for index in 0..self.actions.len() {
            let Action { act, by, stream, ref waits, is_awaited } = self.actions[index];
            let backend = by.map(|worker| workers[worker].backend()).transpose()?;
            for wait in waits {
                clock.wait(stream, *wait, backend)?;
            }
            let tensors = InTurn { schedule, allocation: &self.allocation, turn };
            match act {
                Act::Ask { copy } => self.asked[copy] = asked(&schedule.copies()[copy], &tensors)?,
                Act::Copy { copy } => {
                    let moved = move_of(&schedule.copies()[copy], &tensors)?;
                    moved.make(&self.asked[copy], backend)?;
                }
                Act::Run { split } => {
                    let worker = schedule.splits()[split].worker;
                    workers[worker].backend()?.submit(&mut *self.prepared[turn][split])?;
                }
            }
            clock.done(stream, index, backend.filter(|_| is_awaited))?;
        }
        clock.next_run(turns);
        Ok(())
    }
}

impl Action {
    fn new(act: Act, by: Option<WorkerId>, streams: &Streams) -> Self {
        let stream = by.map_or(HOST, |worker| streams.of[worker]);
        Self { act, by, stream, waits: Vec::new(), is_awaited: false }
    }
}

/// The stream of each worker; the host's for those who are never behind.
struct Streams {
    of: IdVec<WorkerId, usize>,
    count: usize,
}

impl Streams {
    fn new(workers: &Workers) -> Self {
        let mut count = 1;
        let of = workers.iter().map(|worker| {
            if !worker.is_async() {
                return HOST;
            }
            count += 1;
            count - 1
        });
        let of = of.collect();
        Self { of, count }
    }
}

/// Who makes a copy; nobody if the host has to.
///
/// Who needs it fetches it, because the memory of the copy may still be in use there. But where copies are used in turn, who
/// has computed it brings it, and is free to go on; and what the caller writes is copied at once, so that the caller is.
fn copier(copy: &CopyIn, allocation: &Allocation, workers: &Workers) -> Result<Option<WorkerId>, SchedError> {
    let memory = |tensor| Ok::<_, SchedError>(allocation.address(tensor)?.buffer.memory());
    let (to, from) = (memory(copy.tensors[0])?, memory(copy.root)?);
    let can = |worker: &WorkerId| workers[*worker].is_async() && workers[*worker].can_copy(to, from);
    if copy.tensors.len() == 1 {
        return Ok(Some(copy.to).filter(can));
    }
    match copy.from {
        _ if copy.is_input => Ok(None),
        Some(from) if !workers[from].is_async() => Ok(None),
        from => Ok(from.filter(can).or(Some(copy.to).filter(can))),
    }
}

/// Where tensors stand in one of the turns.
pub(crate) struct InTurn<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) allocation: &'a Allocation,
    pub(crate) turn: usize,
}

impl InTurn<'_> {
    /// Where a tensor stands.
    pub(crate) fn address(&self, tensor: TensorId) -> Result<Address<'_>, DeviceError> {
        let named = || Named::new(tensor, self.schedule.graph().names());
        self.locate(tensor).ok_or_else(|| DeviceError::Unplaced { tensor: named() })
    }
}

impl Locate for InTurn<'_> {
    fn locate(&self, tensor: TensorId) -> Option<Address<'_>> {
        let Some(copy) = self.schedule.copy_of(tensor).filter(|copy| copy.tensors.len() > 1) else {
            return self.allocation.locate(tensor);
        };
        let graph = self.schedule.graph();
        let Address { buffer, offset, size } = self.allocation.locate(copy.tensors[self.turn % copy.tensors.len()])?;
        let it = graph.tensor(tensor);
        let size = if it.is_view() { it.nbytes() } else { size };
        Some(Address { buffer, offset: offset.checked_add(graph.tensors().offset(tensor))?, size })
    }
}

/// A copy about to be made.
pub(crate) struct Move<'a> {
    to: (&'a SharedBuffer, Offset),
    from: (&'a SharedBuffer, Offset),
    size: Bytes,
}

/// From where to where a copy goes.
pub(crate) fn move_of<'a>(copy: &CopyIn, tensors: &'a InTurn<'a>) -> Result<Move<'a>, SchedError> {
    let (to, from) = (tensors.address(copy.tensors[0])?, tensors.address(copy.root)?);
    let start = Offset(from.offset.0 + copy.start.0);
    Ok(Move { to: (to.buffer, to.offset), from: (from.buffer, start), size: copy.size })
}

impl Move<'_> {
    /// Copies what is asked for: enqueued, or at once.
    pub(crate) fn make(&self, asked: &Asked, backend: Option<&dyn steeve_device::Backend>) -> Result<(), SchedError> {
        match asked {
            Asked::All => self.part(0..self.size.0, backend),
            Asked::Parts(parts) => parts.iter().try_for_each(|part| self.part(part.clone(), backend)),
        }
    }

    fn part(&self, part: Range<u64>, backend: Option<&dyn steeve_device::Backend>) -> Result<(), SchedError> {
        let size = Bytes(part.end.saturating_sub(part.start));
        if size == Bytes::ZERO {
            return Ok(());
        }
        let to = (self.to.0, Offset(self.to.1.0 + part.start));
        let from = (self.from.0, Offset(self.from.1.0 + part.start));
        match backend {
            Some(backend) => backend.copy(to, from, size)?,
            None => to.0.copy_from(to.1, from.0, from.1, size)?,
        }
        Ok(())
    }
}

/// The bytes that an action touches.
fn touch(act: Act, tensors: &InTurn<'_>) -> Result<Touched, SchedError> {
    let schedule = tensors.schedule;
    let mut touched = Touched::default();
    match act {
        Act::Ask { copy } => {
            for &ids in &schedule.copies()[copy].ids {
                let size = schedule.graph().tensor(ids).nbytes();
                touched.reads.push(extent(&tensors.address(ids)?, size));
            }
        }
        Act::Copy { copy } => {
            let Move { to, from, size } = move_of(&schedule.copies()[copy], tensors)?;
            let range = |(buffer, offset)| extent(&Address { buffer, offset, size }, size);
            let [from, to] = [from, to].map(range);
            touched.reads.push(from);
            touched.writes.push(to);
        }
        Act::Run { split } => {
            let graph = schedule.graph();
            for node in schedule.computing(&schedule.splits()[split]) {
                for source in graph.sources(node).iter().copied().flatten() {
                    let size = graph.tensor(source).nbytes();
                    if size > Bytes::ZERO {
                        touched.reads.push(extent(&tensors.address(source)?, size));
                    }
                }
                if graph.tensor(node).nbytes() > Bytes::ZERO {
                    let address = tensors.address(node)?;
                    touched.writes.push(extent(&address, address.size));
                }
            }
        }
    }
    touched.tidy();
    Ok(touched)
}

fn extent(address: &Address<'_>, size: Bytes) -> Extent {
    let buffer = address.buffer.number();
    let start = address.offset.0;
    Extent { buffer, start, end: start.saturating_add(size.0) }
}
