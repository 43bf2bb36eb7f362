//! Compiles a schedule and its allocation to actions that are ready to run: copies and splits, each on a stream, each
//! with its waits.

use std::ops::Range;

use crate::Allocation;
use steeve_device::{Address, Bytes, DeviceError, Locate, Offset, Prepared, SharedBuffer};
use steeve_graph::{IdVec, Named, TensorId};

use crate::sched::SchedError;
use crate::sched::experts::{RequestedExperts, requested_experts};
use crate::sched::hazards::{AccessedBytes, ActionAccess, ByteRange, HOST, StreamWait, find_waits};
use crate::sched::schedule::{Schedule, TensorCopy};
use crate::sched::vector_clock::VectorClock;
use crate::sched::worker::{WorkerId, Workers};

/// A schedule compiled for one allocation: actions and prepared splits.
#[derive(Debug)]
pub(crate) struct ExecutionPlan {
    allocation: Allocation,
    actions: Vec<ScheduledAction>,
    /// The splits, ready to run, for each pipeline slot.
    prepared: Vec<Vec<Box<dyn Prepared>>>,
    /// For each copy of experts, which of them were requested last.
    requested: Vec<RequestedExperts>,
    streams: usize,
}

#[derive(Debug)]
struct ScheduledAction {
    action: Action,
    /// The worker that runs it; `None` if the host runs it at once.
    by: Option<WorkerId>,
    stream: usize,
    waits: Vec<StreamWait>,
    /// Whether another stream waits for it.
    is_awaited: bool,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Reads the expert ids, to find out which experts are needed.
    ReadExpertIds {
        copy: usize,
    },
    Copy {
        copy: usize,
    },
    Run {
        split: usize,
    },
}

impl ExecutionPlan {
    /// Prepares all splits and derives the waits. Fails if a device does not support a node or can't reach a tensor.
    pub(crate) fn new(schedule: &Schedule, allocation: &Allocation, workers: &Workers) -> Result<Self, SchedError> {
        let streams = StreamNumbers::new(workers);
        let (pipeline_depth, graph) = (schedule.pipeline_depth(), schedule.graph());
        let mut prepared = Vec::with_capacity(pipeline_depth);
        for slot in 0..pipeline_depth {
            let tensors = PipelineSlot { schedule, allocation, slot };
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
                    actions.push(ScheduledAction::new(Action::ReadExpertIds { copy }, None, &streams));
                }
                let by = copying_worker(it, allocation, workers)?;
                actions.push(ScheduledAction::new(Action::Copy { copy }, by, &streams));
            }
            let by = Some(split.worker).filter(|worker| streams.of[*worker] != HOST);
            actions.push(ScheduledAction::new(Action::Run { split: number }, by, &streams));
        }
        if streams.count > 1 {
            let mut steps = Vec::with_capacity(actions.len());
            for action in &actions {
                let mut touched = Vec::with_capacity(pipeline_depth);
                for slot in 0..pipeline_depth {
                    touched.push(accessed_bytes(action.action, &PipelineSlot { schedule, allocation, slot })?);
                }
                steps.push(ActionAccess { stream: action.stream, touched });
            }
            for (index, waits) in find_waits(&steps, streams.count, pipeline_depth).into_iter().enumerate() {
                waits.iter().for_each(|wait| actions[wait.action].is_awaited = true);
                actions[index].waits = waits;
            }
        }
        let requested = vec![RequestedExperts::All; schedule.copies().len()];
        Ok(Self { allocation: allocation.clone(), actions, prepared, requested, streams: streams.count })
    }

    /// Returns whether it was made for tensors at the addresses of `allocation`.
    pub(crate) fn is_for(&self, allocation: &Allocation) -> bool {
        self.allocation.has_addresses_of(allocation)
    }

    /// Creates a clock for runs of this plan, when all streams are idle.
    pub(crate) fn clock(&self) -> VectorClock {
        VectorClock::new(self.streams, self.actions.len())
    }

    /// Enqueues all actions once. Actions of the host itself are done when this returns.
    pub(crate) fn submit(
        &mut self,
        schedule: &Schedule,
        workers: &Workers,
        clock: &mut VectorClock,
    ) -> Result<(), SchedError> {
        let pipeline_depth = schedule.pipeline_depth();
        let slot = clock.run() % pipeline_depth;
        for index in 0..self.actions.len() {
            let ScheduledAction { action, by, stream, ref waits, is_awaited } = self.actions[index];
            let backend = by.map(|worker| workers[worker].backend()).transpose()?;
            for wait in waits {
                clock.wait(stream, *wait, backend)?;
            }
            let tensors = PipelineSlot { schedule, allocation: &self.allocation, slot };
            match action {
                Action::ReadExpertIds { copy } => {
                    self.requested[copy] = requested_experts(&schedule.copies()[copy], &tensors)?
                }
                Action::Copy { copy } => {
                    let pending = pending_copy(&schedule.copies()[copy], &tensors)?;
                    pending.run(&self.requested[copy], backend)?;
                }
                Action::Run { split } => {
                    let worker = schedule.splits()[split].worker;
                    workers[worker].backend()?.submit(&mut *self.prepared[slot][split])?;
                }
            }
            clock.done(stream, index, backend.filter(|_| is_awaited))?;
        }
        clock.next_run(pipeline_depth);
        Ok(())
    }
}

impl ScheduledAction {
    fn new(action: Action, by: Option<WorkerId>, streams: &StreamNumbers) -> Self {
        let stream = by.map_or(HOST, |worker| streams.of[worker]);
        Self { action, by, stream, waits: Vec::new(), is_awaited: false }
    }
}

/// The stream of each worker; the host's for synchronous workers.
struct StreamNumbers {
    of: IdVec<WorkerId, usize>,
    count: usize,
}

impl StreamNumbers {
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

/// Returns the worker that makes a copy; `None` if the host has to.
///
/// The reading worker fetches it, because the memory of the copy may still be in use there. But with pipelined copies
/// the worker that has computed it sends it, and is free to continue; and what the caller writes is copied at once, so
/// that the caller is free to write it again.
fn copying_worker(
    copy: &TensorCopy,
    allocation: &Allocation,
    workers: &Workers,
) -> Result<Option<WorkerId>, SchedError> {
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

/// The addresses of tensors in one of the pipeline slots.
pub(crate) struct PipelineSlot<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) allocation: &'a Allocation,
    pub(crate) slot: usize,
}

impl PipelineSlot<'_> {
    /// Returns the address of a tensor. Fails if it has none.
    pub(crate) fn address(&self, tensor: TensorId) -> Result<Address<'_>, DeviceError> {
        let named = || Named::new(tensor, self.schedule.graph().names());
        self.locate(tensor).ok_or_else(|| DeviceError::Unplaced { tensor: named() })
    }
}

impl Locate for PipelineSlot<'_> {
    fn locate(&self, tensor: TensorId) -> Option<Address<'_>> {
        let Some(copy) = self.schedule.copy_of(tensor).filter(|copy| copy.tensors.len() > 1) else {
            return self.allocation.locate(tensor);
        };
        let graph = self.schedule.graph();
        let Address { buffer, offset, size } = self.allocation.locate(copy.tensors[self.slot % copy.tensors.len()])?;
        let it = graph.tensor(tensor);
        let size = if it.is_view() { it.nbytes() } else { size };
        Some(Address { buffer, offset: offset.checked_add(graph.tensors().offset(tensor))?, size })
    }
}

/// A copy about to be made.
pub(crate) struct PendingCopy<'a> {
    to: (&'a SharedBuffer, Offset),
    from: (&'a SharedBuffer, Offset),
    size: Bytes,
}

/// Returns the addresses and the size of a copy.
pub(crate) fn pending_copy<'a>(
    copy: &TensorCopy,
    tensors: &'a PipelineSlot<'a>,
) -> Result<PendingCopy<'a>, SchedError> {
    let (to, from) = (tensors.address(copy.tensors[0])?, tensors.address(copy.root)?);
    let start = Offset(from.offset.0 + copy.start.0);
    Ok(PendingCopy { to: (to.buffer, to.offset), from: (from.buffer, start), size: copy.size })
}

impl PendingCopy<'_> {
    /// Copies the requested ranges: enqueued on `backend`, or at once.
    pub(crate) fn run(
        &self,
        requested: &RequestedExperts,
        backend: Option<&dyn steeve_device::Backend>,
    ) -> Result<(), SchedError> {
        match requested {
            RequestedExperts::All => self.copy_range(0..self.size.0, backend),
            RequestedExperts::Ranges(parts) => parts.iter().try_for_each(|part| self.copy_range(part.clone(), backend)),
        }
    }

    fn copy_range(&self, part: Range<u64>, backend: Option<&dyn steeve_device::Backend>) -> Result<(), SchedError> {
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

/// Returns the bytes that an action touches.
fn accessed_bytes(action: Action, tensors: &PipelineSlot<'_>) -> Result<AccessedBytes, SchedError> {
    let schedule = tensors.schedule;
    let mut touched = AccessedBytes::default();
    match action {
        Action::ReadExpertIds { copy } => {
            for &ids in &schedule.copies()[copy].ids {
                let size = schedule.graph().tensor(ids).nbytes();
                touched.reads.push(extent(&tensors.address(ids)?, size));
            }
        }
        Action::Copy { copy } => {
            let PendingCopy { to, from, size } = pending_copy(&schedule.copies()[copy], tensors)?;
            let range = |(buffer, offset)| extent(&Address { buffer, offset, size }, size);
            let [from, to] = [from, to].map(range);
            touched.reads.push(from);
            touched.writes.push(to);
        }
        Action::Run { split } => {
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

fn extent(address: &Address<'_>, size: Bytes) -> ByteRange {
    let buffer = address.buffer.number();
    let start = address.offset.0;
    ByteRange { buffer, start, end: start.saturating_add(size.0) }
}
