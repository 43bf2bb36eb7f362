//! Options of a scheduler.

use std::collections::BTreeMap;

use steeve_graph::{Bytes, Id, PlanOptions};

use crate::sched::{Offload, WorkerId};

/// How a [`Scheduler`](crate::sched::Scheduler) spreads and plans graphs.
///
/// ```
/// use steeve_graph::Bytes;
/// use steeve_runtime::sched::{Offload, SchedOptions};
/// let options = SchedOptions::new().with_pipeline_depth(2).with_offload(Offload::Never);
/// assert_eq!(options.pipeline_depth(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedOptions {
    pub(crate) plan: PlanOptions,
    pub(crate) offload: Offload,
    pub(crate) pipeline_depth: usize,
    pub(crate) graphs: usize,
    /// Budgets by the worker's number.
    pub(crate) budgets: BTreeMap<usize, Bytes>,
}

impl SchedOptions {
    /// Creates the default options: the default strategy and reuse; operations move to devices that want them; one copy
    /// of what is copied; no budget.
    pub fn new() -> Self {
        let (plan, offload, budgets) = (PlanOptions::default(), Offload::default(), BTreeMap::new());
        Self { plan, offload, pipeline_depth: 1, graphs: 16, budgets }
    }

    /// Returns these options with another strategy, reuse and search budget.
    #[must_use]
    pub fn with_plan(self, plan: PlanOptions) -> Self {
        Self { plan, ..self }
    }

    /// Returns these options with another rule for moving operations away from weights in the memory of the host.
    #[must_use]
    pub fn with_offload(self, offload: Offload) -> Self {
        Self { offload, ..self }
    }

    /// Returns these options with a number of copies of what is copied between workers (at least one), used in turn by
    /// one run after the other, so that the first worker can begin the next run while the last is still busy with this
    /// one. Inputs and such copies then have memory of their own; weights that are copied still have one copy, because
    /// they do not change. So do results: a run overwrites those of the run before, so a caller that reads them waits
    /// in between. It pays where runs leave something behind in caches, as the parts of a long prompt do.
    #[must_use]
    pub fn with_pipeline_depth(self, pipeline_depth: usize) -> Self {
        Self { pipeline_depth: pipeline_depth.max(1), ..self }
    }

    /// Returns these options with a number of graphs (at least one) whose schedules and plans are cached, so that
    /// allocating them again costs nothing. The default is 16, and at least as many as are [reserved
    /// together](crate::sched::Scheduler::reserve_all).
    #[must_use]
    pub fn with_graphs(self, graphs: usize) -> Self {
        Self { graphs: graphs.max(1), ..self }
    }

    /// Returns these options with a limit on the bytes of a worker's buffers. A plan above it is an error that names
    /// the tensors at the peak.
    #[must_use]
    pub fn with_budget(mut self, worker: WorkerId, bytes: Bytes) -> Self {
        self.budgets.insert(worker.index(), bytes);
        self
    }

    /// Returns the strategy, the reuse and the search budget.
    pub fn plan(&self) -> &PlanOptions {
        &self.plan
    }

    /// Returns whether operations may move away from weights in the memory of the host.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Returns how many copies of what is copied are used in turn.
    pub fn pipeline_depth(&self) -> usize {
        self.pipeline_depth
    }

    /// Returns how many graphs are cached.
    pub fn graphs(&self) -> usize {
        self.graphs
    }

    /// Returns how many bytes the buffers of a worker may take.
    pub fn budget(&self, worker: WorkerId) -> Option<Bytes> {
        self.budgets.get(&worker.index()).copied()
    }
}

impl Default for SchedOptions {
    fn default() -> Self {
        Self::new()
    }
}
