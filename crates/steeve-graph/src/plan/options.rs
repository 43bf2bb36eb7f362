//! How a graph is planned.

use steeve_plan::Best;

use crate::OrderSearch;

/// How a graph is planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanOptions {
    /// How live ranges are placed.
    pub strategy: GraphStrategy,
    /// Which nodes are written over a source in place. [`GraphStrategy::Ggml`] implies [`Reuse::Ggml`].
    pub reuse: Reuse,
    /// What becomes of tensors that no node reads. [`GraphStrategy::Ggml`] implies [`Unread::Keep`].
    pub unread: Unread,
    /// Whether nodes may run in another order than the caller's. [`GraphStrategy::Ggml`] implies [`Order::Keep`].
    pub order: Order,
    /// How another order is searched for, and when it is used.
    pub order_search: OrderSearch,
}

impl PlanOptions {
    /// Returns the default options with another strategy. [`GraphStrategy::Ggml`] is ggml's to the byte, so it has ggml's
    /// reuse and keeps what is not read, whatever the other two options say.
    pub const fn new(strategy: GraphStrategy) -> Self {
        let order_search = OrderSearch::new();
        Self { strategy, reuse: Reuse::Extended, unread: Unread::FreeInputs, order: Order::Keep, order_search }
    }

    /// Sets which nodes are written over a source in place.
    #[must_use]
    pub const fn with_reuse(mut self, reuse: Reuse) -> Self {
        self.reuse = reuse;
        self
    }

    /// Sets what becomes of tensors that no node reads.
    #[must_use]
    pub const fn with_unread(mut self, unread: Unread) -> Self {
        self.unread = unread;
        self
    }

    /// Sets whether nodes may run in another order than the caller's.
    #[must_use]
    pub const fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets how another order is searched for, and when it is used.
    #[must_use]
    pub const fn with_order_search(mut self, search: OrderSearch) -> Self {
        self.order_search = search;
        self
    }

    /// Returns what is really done, where the strategy implies something else than the options say.
    pub(crate) fn implied(self) -> Self {
        match self.strategy {
            GraphStrategy::Ggml => Self { reuse: Reuse::Ggml, unread: Unread::Keep, order: Order::Keep, ..self },
            GraphStrategy::Fast | GraphStrategy::Best(_) => self,
        }
    }
}

/// How the live ranges of a graph are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphStrategy {
    /// ggml's placement, to the byte.
    Ggml,
    /// Quick; with in-place aliases never larger than ggml's plan (but for memories with an [extra
    /// lifetime](crate::Memory::extra_lifetime) or [`Fusion::Kept`](crate::Fusion::Kept)).
    #[default]
    Fast,
    /// [`GraphStrategy::Fast`], then a search with a budget for each memory.
    Best(Best),
}

impl GraphStrategy {
    /// Returns the name in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ggml => "ggml",
            Self::Fast => "fast",
            Self::Best(_) => "best",
        }
    }
}

/// In which order the nodes run.
///
/// ```
/// use steeve_graph::{AssignedGraph, Order, PlanOptions, plan_graph};
/// // `wide` is made long before it is read, and `a` and `b` take as much.
/// let graph: AssignedGraph = "
///     x = input f32[64]
///     wide = repeat f32[4096] x
///     a = repeat f32[4096] x
///     b = sum_rows a
///     y = add f32[4096] wide b !output
/// "
/// .parse()?;
/// let peak = |order| plan_graph(&graph, &PlanOptions::default().with_order(order)).map(|plan| plan.peak());
/// assert_eq!(peak(Order::Keep)?.get(), 2 * 16384 + 256);
/// assert_eq!(peak(Order::Best)?.get(), 16384 + 256 + 4); // `wide` is made last
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// In the caller's.
    #[default]
    Keep,
    /// In another one, where one is found that needs fewer bytes: every node reads what it reads in the caller's. The plan has
    /// the order ([`GraphPlan::order`](crate::GraphPlan::order)); allocators run it.
    Best,
}

impl Order {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::Keep, Self::Best];

    /// Returns the name in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Best => "best",
        }
    }

    /// Finds a variant by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// Which nodes are written over a source that dies at them. Files, settings and tables call the variants `ggml`,
/// `more` and `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reuse {
    /// Those that ggml chooses, exactly.
    Ggml,
    /// All that the table of operations allows, also through views. Files, options and settings call it `more`.
    #[default]
    Extended,
    /// None: every tensor has bytes of its own while it lives.
    None,
}

impl Reuse {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Ggml, Self::Extended, Self::None];

    /// Returns the name in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ggml => "ggml",
            Self::Extended => "more",
            Self::None => "none",
        }
    }

    /// Finds a variant by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// How long tensors live that no node reads. Outputs always live to the end.
///
/// ```
/// use steeve_graph::{AssignedGraph, Bytes, PlanOptions, Unread, plan_graph};
/// let graph: AssignedGraph = "
///     spare = input f32[1024]
///     x = input f32[256]
///     a = sqr x
///     side = sqr x
///     y = concat f32[256,4] a a !output
/// "
/// .parse()?;
/// let peak = |unread| plan_graph(&graph, &PlanOptions::default().with_unread(unread)).map(|plan| plan.peak());
/// assert_eq!(peak(Unread::Keep)?, Bytes(4096 + 1024 + 1024 + 4096));
/// assert_eq!(peak(Unread::FreeInputs)?, Bytes(1024 + 1024 + 4096)); // `y` is allocated over `spare`
/// assert_eq!(peak(Unread::Free)?, Bytes(1024 + 4096)); // and over `side`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In this order: each frees what those before it free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Unread {
    /// To the end, as with ggml: a program may read such a node after a run, or want the memory of a leaf.
    Keep,
    /// Nodes and leafs live to the end, but for inputs that no node touches, directly or through a view: these live before
    /// the run alone, beside the other inputs, so that writing them does no harm. An input that is an output too is kept.
    #[default]
    FreeInputs,
    /// Only outputs live to the end.
    Free,
}

impl Unread {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Keep, Self::FreeInputs, Self::Free];

    /// Returns the name in plan files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::FreeInputs => "free-inputs",
            Self::Free => "free",
        }
    }

    /// Finds a variant by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}
