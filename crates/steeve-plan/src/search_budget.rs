//! Counts the work of a search against its budget, and reports progress.

use core::ops::ControlFlow;

use crate::strategy::SearchProgress;
use crate::{Budget, Bytes};

/// A callback that is given the progress of a search now and then; returns whether to continue.
pub(crate) type ProgressCallback<'a> = dyn FnMut(&SearchProgress) -> ControlFlow<()> + 'a;

/// Counts nodes against a budget and passes progress on.
pub(crate) struct SearchBudget<'a, 'w> {
    watch: &'a mut ProgressCallback<'w>,
    nodes: u64,
    max_nodes: u64,
    /// How many nodes a search may take.
    granted: u64,
    deadline: Deadline,
    cancelled: bool,
    /// What is reported of the whole problem: the smallest peak so far, and the proven lower bound.
    peak: Bytes,
    at_least: Bytes,
    scope: ReportScope,
}

/// Whether results of the current search are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportScope {
    /// The search works on all blocks: its results are reported.
    WholeProblem,
    /// The search works on one buffer of several, or on something that is no plan yet: its results are not reported.
    Subproblem,
}

impl<'a, 'w> SearchBudget<'a, 'w> {
    /// Creates a budget. `peak` is the smallest one known, and no plan is below `at_least`.
    pub(crate) fn new(budget: Budget, watch: &'a mut ProgressCallback<'w>, peak: Bytes, at_least: Bytes) -> Self {
        let (max_nodes, deadline) = match budget {
            Budget::Nodes(nodes) => (nodes, Deadline::NEVER),
            #[cfg(feature = "std")]
            Budget::Time(time) => (u64::MAX, Deadline::after(time)),
        };
        Self {
            watch,
            nodes: 0,
            max_nodes,
            granted: max_nodes,
            deadline,
            cancelled: false,
            peak,
            at_least,
            scope: ReportScope::WholeProblem,
        }
    }

    pub(crate) fn nodes(&self) -> u64 {
        self.nodes
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.max_nodes - self.nodes
    }

    /// Returns when time is up.
    #[cfg(feature = "std")]
    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Runs a search with half of what is left. What it does not use is available afterwards.
    pub(crate) fn with_half<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let (max_nodes, deadline) = (self.max_nodes, self.deadline);
        self.max_nodes = self.nodes + self.remaining().div_ceil(2);
        self.deadline = deadline.halved();
        let result = run(self);
        (self.max_nodes, self.deadline) = (max_nodes, deadline);
        result
    }

    /// Runs a search with half of the time that is left, and all nodes.
    pub(crate) fn with_half_of_the_time<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let deadline = self.deadline;
        self.deadline = deadline.halved();
        let result = run(self);
        self.deadline = deadline;
        result
    }

    /// Grants as many nodes again as at the beginning, for a second search.
    pub(crate) fn renew_nodes(&mut self) {
        self.max_nodes = self.nodes.saturating_add(self.granted);
    }

    /// Runs a search on a subproblem, whose results are not reported.
    pub(crate) fn on_subproblem<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let scope = core::mem::replace(&mut self.scope, ReportScope::Subproblem);
        let result = run(self);
        self.scope = scope;
        result
    }

    /// Records the smallest peak and the proven bound of the whole problem.
    pub(crate) fn record_progress(&mut self, peak: Bytes, at_least: Bytes) {
        if self.scope == ReportScope::WholeProblem {
            self.peak = self.peak.min(peak);
            self.at_least = self.at_least.max(at_least);
        }
    }

    pub(crate) fn count(&mut self, nodes: u64) {
        self.nodes = self.nodes.saturating_add(nodes).min(self.max_nodes);
    }

    /// Returns whether the budget is spent or the callback has ended the search.
    pub(crate) fn is_spent(&self) -> bool {
        self.cancelled || self.nodes >= self.max_nodes || self.deadline.has_passed()
    }

    /// Calls the progress callback, with `more` nodes not yet counted. Returns whether to stop.
    pub(crate) fn poll(&mut self, more: u64) -> bool {
        let (peak, at_least) = (self.peak, self.at_least);
        let progress = SearchProgress { nodes: self.nodes.saturating_add(more), peak, at_least };
        self.cancelled |= (self.watch)(&progress).is_break();
        self.is_spent()
    }
}

/// The time at which a search stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    #[cfg(feature = "std")]
    at: Option<std::time::Instant>,
}

impl Deadline {
    #[cfg(feature = "std")]
    const NEVER: Self = Self { at: None };
    #[cfg(not(feature = "std"))]
    const NEVER: Self = Self {};

    /// Creates a deadline after `time`; none if that is too long for the clock.
    #[cfg(feature = "std")]
    fn after(time: core::time::Duration) -> Self {
        Self { at: std::time::Instant::now().checked_add(time) }
    }

    #[cfg(feature = "std")]
    pub(crate) fn has_passed(self) -> bool {
        self.at.is_some_and(|at| std::time::Instant::now() >= at)
    }

    /// Returns the deadline halfway from now.
    #[cfg(feature = "std")]
    pub(crate) fn halved(self) -> Self {
        let now = std::time::Instant::now();
        let half = |at: std::time::Instant| at.checked_duration_since(now).map(|left| now + left / 2);
        Self { at: self.at.map(|at| half(at).unwrap_or(at)) }
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn halved(self) -> Self {
        self
    }

    #[cfg(not(feature = "std"))]
    pub(crate) fn has_passed(self) -> bool {
        false
    }
}
