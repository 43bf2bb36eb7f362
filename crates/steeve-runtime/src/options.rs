//! Options of a graph allocator.

use std::collections::BTreeMap;

use steeve_graph::{Bytes, PlanOptions};

/// How a [`GraphAllocator`](crate::GraphAllocator) plans, and what it may do by itself.
///
/// ```
/// use steeve_runtime::{AllocOptions, Replan};
/// use steeve_graph::{Best, Budget, Bytes, GraphStrategy, PlanOptions};
/// let best = GraphStrategy::Best(Best::new(Budget::Nodes(10_000)));
/// let options = AllocOptions::new()
///     .with_plan(PlanOptions::new(best))
///     .with_budget(0, Bytes(512 << 20))
///     .with_replan(Replan::Always);
/// assert_eq!(options.budget(0), Some(Bytes(512 << 20)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocOptions {
    pub(crate) plan: PlanOptions,
    pub(crate) replan: Replan,
    pub(crate) plans: usize,
    pub(crate) budgets: BTreeMap<usize, Bytes>,
    pub(crate) small_graphs: SmallGraphs,
}

/// When [`GraphAllocator::alloc`](crate::GraphAllocator::alloc) may plan a graph by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replan {
    /// With one memory. With several the assignment is not known, and a graph that fits no plan is an error that says what
    /// has changed.
    #[default]
    OneMemory,
    /// Always: with several memories each leaf and node is assigned to the memory of the one at its position in the latest
    /// plan.
    Always,
    /// Never: a graph that was not reserved is an error.
    Never,
}

/// How [`GraphAllocator::alloc`](crate::GraphAllocator::alloc) places a graph that is far smaller than the plan that it fits, such as one token in the plan of a long prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SmallGraphs {
    /// By that plan. Its tensors are spread over all of the buffer.
    #[default]
    SharePlan,
    /// With one memory, by a plan of its own at the bottom of the same buffer, if that takes less than a quarter of the bytes, and
    /// if the larger plan has not been used since the buffer was made: memory of the host that is never touched is never
    /// resident. There are a few such plans for each graph, however many sizes it has, and nothing is reallocated for them.
    /// They are made without a search, also with [`GraphStrategy::Best`](steeve_graph::GraphStrategy::Best).
    OwnPlan,
}

impl AllocOptions {
    /// Creates the default options: the default strategy and reuse; no budget; eight plans are kept.
    pub fn new() -> Self {
        let (plan, replan, small_graphs) = (PlanOptions::default(), Replan::default(), SmallGraphs::default());
        Self { plan, replan, plans: 8, budgets: BTreeMap::new(), small_graphs }
    }

    /// Returns these options with another strategy, reuse and search budget.
    #[must_use]
    pub fn with_plan(self, plan: PlanOptions) -> Self {
        Self { plan, ..self }
    }

    /// Returns these options with another rule for when `alloc` may plan by itself.
    #[must_use]
    pub fn with_replan(self, replan: Replan) -> Self {
        Self { replan, ..self }
    }

    /// Returns these options with another number of graphs whose plans are kept, at least one.
    #[must_use]
    pub fn with_plans(self, plans: usize) -> Self {
        Self { plans: plans.max(1), ..self }
    }

    /// Returns these options with another rule for how graphs are placed that are far smaller than the plan that they fit.
    #[must_use]
    pub fn with_small_graphs(self, small_graphs: SmallGraphs) -> Self {
        Self { small_graphs, ..self }
    }

    /// Returns these options with a limit on the bytes of all buffers of memory `index` together. A memory that does not
    /// exist is an error when something is reserved.
    #[must_use]
    pub fn with_budget(mut self, index: usize, bytes: Bytes) -> Self {
        self.budgets.insert(index, bytes);
        self
    }

    /// Returns how many bytes the buffers of memory `index` may take together.
    pub fn budget(&self, index: usize) -> Option<Bytes> {
        self.budgets.get(&index).copied()
    }
}

impl Default for AllocOptions {
    fn default() -> Self {
        Self::new()
    }
}
