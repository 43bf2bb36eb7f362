//! Node order: every byte that a node reads is written before it. O(tensors + sources).
//!
//! A root that a node computes is written by that node, whatever else it is. Leafs, inputs, external tensors and constants
//! that no node computes have their contents before the run. What a node reads through a view is its root's, so the order of
//! roots is what is checked:
//!
//! ```text
//!   x = input; v = view y; z = sqr v; y = sqr x      refused: node 1 (z) reads y, which node 2 writes
//! ```
//!
//! Three forms of ggml's own graphs look out of order and are harmless, so they are accepted:
//!
//! - a tensor without an operation that is both a leaf and a node: as a leaf it has its contents before the run;
//! - a `CPY` that names itself as its destination, slot 1 (`ggml_cast` builds those): that is written, not read;
//! - a `VIEW`, `RESHAPE`, `PERMUTE`, `TRANSPOSE` or `NONE` that is listed after a node that names it: such a node only
//!   describes memory, and nothing waits for its turn. Its root is checked like any other.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use steeve_plan::Id;

use crate::{GraphError, Named, Names, Op, TensorId, Tensors};

/// An access that comes before the bytes it needs are written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderFault {
    /// The node that reads, or that writes into a view.
    pub node: Named,
    /// Its position in the node order.
    pub position: usize,
    /// The slot it reads; `None` where it writes into a view of `root`.
    pub slot: Option<usize>,
    /// The tensor in that slot, or the view.
    pub tensor: Named,
    /// The tensor that owns the bytes.
    pub root: Named,
    /// The position of the node that writes them; `None` if no node does.
    pub written_at: Option<usize>,
}

impl fmt::Display for OrderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, position, slot, tensor, root, written_at } = self;
        match slot {
            Some(slot) if tensor == node => write!(f, "node {position} ({node}): reads itself in slot {slot}")?,
            Some(slot) => write!(f, "node {position} ({node}): reads {tensor} in slot {slot}")?,
            None => write!(f, "node {position} ({node}): writes into {root}")?,
        }
        if slot.is_some() && tensor != root {
            write!(f, ", a view of {root}")?;
        }
        match written_at {
            Some(at) if at == position => write!(f, ", before it is written"),
            Some(at) => write!(f, ", which node {at} writes later"),
            None => write!(f, ", which no node writes"),
        }
    }
}

/// When the bytes of a root are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteTime {
    BeforeTheRun,
    At(usize),
    Never,
}

/// Checks that no node is listed twice, and that every node finds its sources, and the root that it writes into, written.
pub(crate) fn check_order(
    tensors: &Tensors,
    names: &Names,
    nodes: &[TensorId],
    leafs: &[TensorId],
) -> Result<(), GraphError> {
    let written = written(tensors, names, nodes, leafs)?;
    for (position, &node) in nodes.iter().enumerate() {
        let op = tensors[node].op;
        if op.writes_nothing() {
            continue;
        }
        let check = |slot: Option<usize>, tensor: TensorId| {
            let root = tensors.root(tensor);
            let written_at = match written[root.index()] {
                WriteTime::BeforeTheRun => return Ok(()),
                WriteTime::At(at) if at < position => return Ok(()),
                WriteTime::At(at) => Some(at),
                WriteTime::Never => None,
            };
            let named = |id| Named::new(id, names);
            let (node, tensor, root) = (named(node), named(tensor), named(root));
            Err(GraphError::Order(OrderFault { node, position, slot, tensor, root, written_at }.into()))
        };
        for (slot, source) in tensors.sources(node).iter().enumerate() {
            match *source {
                Some(source) if source == node && op == Op::Cpy && slot == 1 => {}
                Some(source) => check(Some(slot), source)?,
                None => {}
            }
        }
        if tensors[node].is_view() {
            check(None, node)?;
        }
    }
    Ok(())
}

fn written(
    tensors: &Tensors,
    names: &Names,
    nodes: &[TensorId],
    leafs: &[TensorId],
) -> Result<Vec<WriteTime>, GraphError> {
    let mut written: Vec<WriteTime> = Vec::with_capacity(tensors.len());
    written.extend(tensors.iter().map(|it| match it.external || it.flags.is_input() || it.op == Op::None {
        true => WriteTime::BeforeTheRun,
        false => WriteTime::Never,
    }));
    let mut is_leaf = vec![false; tensors.len()];
    for leaf in leafs {
        is_leaf[leaf.index()] = true;
        written[leaf.index()] = WriteTime::BeforeTheRun;
    }
    let mut listed = vec![false; tensors.len()];
    for (position, &node) in nodes.iter().enumerate() {
        if core::mem::replace(&mut listed[node.index()], true) {
            let first = nodes.iter().position(|other| *other == node).unwrap_or(position);
            return Err(GraphError::ListedTwice { node: Named::new(node, names), first, second: position });
        }
        let it = &tensors[node];
        // A node without an operation that is no leaf is filled when its turn comes: a copy of ggml's scheduler.
        let is_copy = it.op == Op::None && !it.flags.is_input() && !is_leaf[node.index()];
        if it.is_planned() && (is_copy || !it.op.writes_nothing()) {
            written[node.index()] = WriteTime::At(position);
        }
    }
    Ok(written)
}
