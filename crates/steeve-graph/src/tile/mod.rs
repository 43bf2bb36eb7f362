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
mod part_writer;

pub(crate) use chain::Inputs;
pub use chain::{RowChain, RowChains};
pub use part_writer::{TileError, tile};
