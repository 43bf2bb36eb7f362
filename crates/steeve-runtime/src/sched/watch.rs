//! Shows the results of nodes while they are computed.

use std::ops::ControlFlow;

use crate::{AllocError, Element, RunGuard};
use steeve_graph::{Graph, TensorId};

use crate::sched::execution_plan::{PipelineSlot, pending_copy};
use crate::sched::experts::RequestedExperts;
use crate::sched::{Job, SchedError, Scheduler, WorkerId};

/// A callback for the results of nodes. A closure that takes a [`ComputedNode`] is called for all of them.
pub trait NodeWatcher {
    /// Returns whether to stop at a node that is about to be computed. Nodes without a stop run together.
    fn wants(&mut self, graph: &Graph, node: TensorId) -> bool {
        let _ = (graph, node);
        true
    }

    /// Handles a node that has just been computed. `Break` ends the run.
    fn see(&mut self, seen: &ComputedNode<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(&ComputedNode<'_>) -> ControlFlow<()>> NodeWatcher for F {
    fn see(&mut self, seen: &ComputedNode<'_>) -> ControlFlow<()> {
        self(seen)
    }
}

/// A node that has just been computed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ComputedNode<'a> {
    /// The graph, with copies in it.
    pub graph: &'a Graph,
    /// The node.
    pub node: TensorId,
    /// The worker that has computed it.
    pub worker: WorkerId,
    run: &'a RunGuard,
}

impl ComputedNode<'_> {
    /// Reads the elements of the node's result, in order whatever its strides.
    pub fn read<T: Element>(&self) -> Result<Vec<T>, AllocError> {
        self.run.peek(self.node)
    }

    /// Reads the bytes of the node's result without gaps.
    pub fn bytes(&self) -> Result<Vec<u8>, AllocError> {
        self.run.peek_bytes(self.node)
    }
}

/// How a watched run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchedRun {
    /// All nodes were computed, and results can be read.
    Finished,
    /// The callback ended it at this node. Results are lost.
    Stopped(TensorId),
}

impl Scheduler {
    /// Computes a job step by step, and shows the nodes that `watch` wants to see. Slower than
    /// [`compute`](Self::compute): all work waits at each of them.
    ///
    /// ```
    /// # use std::{ops::ControlFlow, sync::Arc};
    /// # use steeve_cpu::CpuDevice;
    /// # use steeve_device::{Bindings, Device};
    /// # use steeve_graph::{Context, DataType, Graph};
    /// # use steeve_runtime::sched::{Scheduler, ComputedNode, WatchedRun};
    /// # let mut context = Context::new();
    /// # let x = context.input(DataType::F32, &[2])?;
    /// # let y = context.sqr(x)?;
    /// # let z = context.neg(y)?;
    /// # let graph = Graph::from_outputs(&context, &[z])?;
    /// # let processor: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(1));
    /// # let mut scheduler = Scheduler::new([processor])?;
    /// # let job = scheduler.alloc(&graph, &Bindings::new())?;
    /// job.write(x, &[2.0f32, 3.0])?;
    /// let mut squares = Vec::new();
    /// let ended = scheduler.compute_watched(&job, &mut |seen: &ComputedNode<'_>| {
    ///     if seen.node == y {
    ///         squares = seen.read::<f32>().unwrap_or_default();
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!((ended, &squares[..]), (WatchedRun::Finished, &[4.0, 9.0][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compute_watched(&mut self, job: &Job, watch: &mut dyn NodeWatcher) -> Result<WatchedRun, SchedError> {
        self.index_of(job)?;
        self.synchronise()?;
        let run = job.allocation.begin()?;
        let ended = self.walk(job, &run, watch);
        // Whatever happened, no device may use this memory when it is handed back.
        let settled = self.synchronise_workers();
        let ended = ended?;
        settled?;
        if ended == WatchedRun::Finished {
            run.finish();
        }
        Ok(ended)
    }

    /// Runs one part after the other, each done before the next.
    fn walk(&self, job: &Job, run: &RunGuard, watch: &mut dyn NodeWatcher) -> Result<WatchedRun, SchedError> {
        let (schedule, graph) = (&*job.schedule, job.schedule.graph());
        let tensors = PipelineSlot { schedule, allocation: &job.allocation, slot: 0 };
        for split in schedule.splits() {
            for copy in &schedule.copies()[split.copies.clone()] {
                pending_copy(copy, &tensors)?.run(&RequestedExperts::All, None)?;
            }
            let backend = self.workers_list()[split.worker].backend()?;
            let mut start = split.nodes.start;
            for index in split.nodes.clone() {
                let node = graph.nodes()[index];
                let is_wanted = !graph.tensor(node).op.writes_nothing() && watch.wants(graph, node);
                if !is_wanted && index + 1 < split.nodes.end {
                    continue;
                }
                let mut prepared = backend.prepare(graph, start..index + 1, &tensors)?;
                let submitted = backend.submit(&mut *prepared);
                // A prepared part must not be dropped while a device runs it.
                let done = backend.synchronise();
                submitted.and(done)?;
                start = index + 1;
                if is_wanted && watch.see(&ComputedNode { graph, node, worker: split.worker, run }).is_break() {
                    return Ok(WatchedRun::Stopped(node));
                }
            }
        }
        Ok(WatchedRun::Finished)
    }
}
