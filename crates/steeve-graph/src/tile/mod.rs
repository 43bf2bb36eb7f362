//! Tiles: graph in, a graph out that computes the same and has fewer bytes alive, because a chain of nodes runs in parts.
//!
//! Between two narrow points of a graph there is often something wide: the activations of a feed-forward block, scores of an
//! attention, patches of a convolution. Where every node on the way is *row-wise* (a row of its result depends on one row of
//! some sources, and on all of the others), the rows need not be there at the same time:
//!
//! ```text
//!   x --norm--> n --gate, up--> g u --swiglu--> s --down--> d --add x--> y         s has all rows
//!
//!   x, rows 0..8  --> n --> g u --> s --> d --> rows 0..8 of y                     s has 8 rows,
//!   x, rows 8..16 --> n --> g u --> s --> d --> rows 8..16 of y                    and then the next 8
//! ```
//!
//! [`RowChains`] finds such chains, [`tile`] does them in parts: each part reads views of the rows of what comes from outside,
//! runs the same operations, and its results are written into the rows of one tensor that is there from the start, or over
//! the rows of the chain's own input. The tensors of the graph keep their numbers.
//!
//! Which operations are row-wise along which dimension is in the table of operations; how rows lie in views follows from
//! strides alone. Operations without a rule, writes into tensors from outside of the chain (`SET_ROWS`) and views that merge
//! the rows with other dimensions end a chain.

pub(crate) mod row_rules;
mod split;
mod chain;
mod growth;
mod table;
mod part_writer;

pub(crate) use chain::Inputs;
pub use chain::{RowChain, RowChains};

use self::table::TileWriter;
use crate::{AssignedGraph, GraphError, LayoutError, Unread};

/// Why chains can't be done in parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TileError {
    /// Fewer than one part, or more than the chain has rows.
    #[error("chain of nodes {first} to {last}: number of parts: expected 1 to {rows}, got {parts}")]
    Parts {
        /// The first node.
        first: usize,
        /// The last node.
        last: usize,
        /// How many rows there are.
        rows: u64,
        /// How many parts were demanded.
        parts: u64,
    },
    /// A chain that begins before the one in front of it ends.
    #[error("chains: expected one behind the other, got nodes {first} to {last} and then {next}")]
    Overlap {
        /// The first node of a chain.
        first: usize,
        /// Its last node.
        last: usize,
        /// The first node of the next chain in the list.
        next: usize,
    },
    /// A chain of another graph.
    #[error("chain of nodes {first} to {last}: not one of this graph")]
    Foreign {
        /// The first node.
        first: usize,
        /// The last node.
        last: usize,
    },
    /// More tensors than can be numbered.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A part that is no tensor.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Returns the graph with each chain done in so many parts, one part after the other. Chains are listed in the order of their
/// nodes; the results of the graph are the same. Leafs, and what nodes outside of the chains compute, keep their ids; so do
/// the results of chains.
///
/// ```
/// use steeve_graph::{AssignedGraph, PlanOptions, RowChains, Unread, plan_graph, tile};
/// let graph: AssignedGraph = "
///     w = external f32[16,640]; v = external f32[640,16]
///     x = input f32[16,80]
///     up = mul_mat w x
///     act = silu up
///     down = mul_mat v act
///     y = add down x !output
/// "
/// .parse()?;
/// let chain = RowChains::new(&graph, Unread::default()).around(1, 1).unwrap();
/// let tiled = tile(&graph, &[(chain, 4)])?;
/// let peak = |graph| plan_graph(graph, &PlanOptions::default()).map(|plan| plan.peak().get());
/// assert_eq!((peak(&graph)?, peak(&tiled)?), (215040, 62720));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If a chain has fewer rows than parts, chains overlap, or one is not of this graph.
pub fn tile(assigned: &AssignedGraph, chains: &[(RowChain, u64)]) -> Result<AssignedGraph, TileError> {
    // What lives to the end has been decided where the chains were found.
    let facts = RowChains::new(assigned, Unread::Free);
    let nodes = assigned.graph().nodes().len();
    for (index, (chain, parts)) in chains.iter().enumerate() {
        let (first, last) = (chain.nodes.start, chain.nodes.end - 1);
        if !(1..=chain.rows).contains(parts) {
            return Err(TileError::Parts { first, last, rows: chain.rows, parts: *parts });
        }
        if let Some((next, _)) = chains.get(index + 1).filter(|(next, _)| next.nodes.start <= last) {
            return Err(TileError::Overlap { first, last, next: next.nodes.start });
        }
        let known = facts.without_places(chain.nodes(), chain.rows, &chain.splits);
        let is_over =
            |known: &RowChain| chain.over.is_none_or(|(result, input)| facts.may_be_over(known, result, input));
        if !known.is_some_and(|known| known.is_like(chain) && is_over(&known) && facts.have_bytes(chain)) {
            return Err(TileError::Foreign { first, last });
        }
    }
    let mut writer = TileWriter::new(&facts, chains)?;
    let mut next = 0;
    for (chain, parts) in chains {
        (next..chain.nodes.start).for_each(|at| writer.list_node(at));
        writer.chain(chain, *parts)?;
        next = chain.nodes.end;
    }
    (next..nodes).for_each(|at| writer.list_node(at));
    writer.finish()
}

impl RowChain {
    /// Returns whether both are one chain, wherever their results are written.
    fn is_like(&self, other: &Self) -> bool {
        (&self.splits, &self.results, &self.kept) == (&other.splits, &other.results, &other.kept)
    }
}
