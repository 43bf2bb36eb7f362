//! A caller's own graph in, an [`AssignedGraph`] out that remembers the caller's keys. O(edges * log tensors).
//!
//! An engine implements [`TensorGraph`] for the graph it has, and keeps that graph alone. [`KeyedGraph::new`] numbers its
//! tensors once, so that liveness, aliases, certification, replay, plan files and pictures are those of every other graph:
//!
//! ```text
//!   TensorGraph --number, check--> KeyedGraph --plan_tensor_graph--> KeyedPlan
//!   keys                           keys and numbers                  places by key
//! ```
//!
//! Invariant: the graph in a [`KeyedGraph`] has passed the checks of every graph ([`GraphParts::finish`]); a wrong
//! implementation is an error that names its tensors, and never a panic or a wrong plan.

mod error;
mod numbering;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;

use steeve_plan::{Align, Bytes, Id};

pub use error::TensorGraphError;
use numbering::TensorNumbering;

use crate::{AssignedGraph, Memory, MemoryId, Reuse, TensorId, TensorPlace, TensorPlaces, Unread, replay};
#[cfg(doc)]
use crate::{GraphParts, KeyedPlan};

/// A graph that an engine has already: all that planning its memory needs to know.
///
/// Four kinds of tensors are told apart. *Nodes* are computed, in the order of [`nodes`](Self::nodes). *Inputs* have their
/// contents before the run, in memory that is planned. *External* tensors (weights, caches) have memory of the caller's.
/// *Views* share the bytes of another tensor; a view that is a node writes into those bytes. What a node reads must be one of
/// them.
///
/// Methods may be called several times for one tensor and must give the same answer each time.
///
/// ```
/// use steeve_graph::{Bytes, PlanOptions, TensorGraph, plan_tensor_graph};
///
/// /// An engine's graph: what each instruction reads, and the bytes of its result.
/// struct Instructions(Vec<(&'static [usize], u64)>);
///
/// impl TensorGraph for Instructions {
///     type Key = usize;
///
///     fn nodes(&self) -> impl Iterator<Item = usize> {
///         1..self.0.len()
///     }
///
///     fn inputs(&self) -> impl Iterator<Item = usize> {
///         0..1
///     }
///
///     fn sources(&self, node: usize) -> impl Iterator<Item = usize> {
///         self.0[node].0.iter().copied()
///     }
///
///     fn size(&self, tensor: usize) -> Bytes {
///         Bytes(self.0[tensor].1)
///     }
/// }
///
/// let instructions = Instructions(vec![(&[], 1024), (&[0], 4096), (&[1], 1024), (&[2], 4096)]);
/// let plan = plan_tensor_graph(&instructions, &PlanOptions::default())?;
/// assert_eq!(plan.peak(), Bytes(4096 + 1024));
/// let (conv, pool) = (plan.place(1).unwrap(), plan.place(2).unwrap());
/// assert!(conv.offset.0 + 4096 <= pool.offset.0 || pool.offset.0 + 1024 <= conv.offset.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TensorGraph {
    /// What identifies a tensor in this graph: an index, a handle, a name.
    type Key: Copy + Ord + Debug;

    /// Returns the tensors that are computed, in the order in which they are. *Order is meaning*: a node runs when all before
    /// it have run.
    fn nodes(&self) -> impl Iterator<Item = Self::Key>;

    /// Returns the tensors that a node reads.
    fn sources(&self, node: Self::Key) -> impl Iterator<Item = Self::Key>;

    /// Returns what a node computes beside itself, at the same time and from the same sources: the other results of a split, the
    /// state of a recurrent layer. Nothing by default.
    ///
    /// In the graph of numbers each of them is a node of its own just before `node`, with the same operation and sources, and
    /// `node` reads it, so that all results have bytes of their own when the last source dies. `may_overwrite` and `overlap` are
    /// asked for `node` alone.
    fn more_results(&self, _node: Self::Key) -> impl Iterator<Item = Self::Key> {
        core::iter::empty()
    }

    /// Returns the bytes that a tensor takes.
    fn size(&self, tensor: Self::Key) -> Bytes;

    /// Returns the tensors that are written before the run, into planned memory. After its last reader the bytes of an input
    /// are used for other tensors. None by default.
    fn inputs(&self) -> impl Iterator<Item = Self::Key> {
        core::iter::empty()
    }

    /// Returns the tensors that are read after the run. None by default; [`PlanOptions::default`](crate::PlanOptions) keeps
    /// nodes that no node reads as well, and [`Unread::Free`] does not.
    fn outputs(&self) -> impl Iterator<Item = Self::Key> {
        core::iter::empty()
    }

    /// Returns whether the caller provides the memory of a tensor, as for weights. No by default.
    fn is_external(&self, _tensor: Self::Key) -> bool {
        false
    }

    /// Returns the tensor that a view is one of, and where in its bytes the view starts. That tensor may be a view as
    /// well. No tensor is a view by default.
    fn view_of(&self, _tensor: Self::Key) -> Option<(Self::Key, Bytes)> {
        None
    }

    /// Returns whether the kernel of `node` may write its result over `source`, one of its sources: every byte of
    /// `source` is read before the byte at the same distance from the start is written. No by default.
    ///
    /// It is a permission and not a wish: the planner uses it where no other tensor needs the bytes of `source` any
    /// more, no other source of the node is a view of them, `source` is at the start of its root, and the result is
    /// not the larger one. Sources behind the sixteenth are never overwritten, and neither is a source in a memory
    /// with an [extra lifetime](Memory::extra_lifetime) or fusion.
    fn may_overwrite(&self, _node: Self::Key, _source: Self::Key) -> bool {
        false
    }

    /// Returns by how many bytes the start of `source` must be above that of the result of `node` where they share bytes:
    /// writing in the order of its kernel, the result never reaches a byte of `source` that is still to be read. `None`, the
    /// default, if they must be disjoint or [equal](Self::may_overwrite).
    ///
    /// The planner uses it where it may write over a source, but for the sizes: the result may be the larger one.
    fn overlap(&self, _node: Self::Key, _source: Self::Key) -> Option<Bytes> {
        None
    }

    /// Returns external tensors and views that have a number though no node reads them and they are no outputs. They change no
    /// plan. None by default.
    fn more_tensors(&self) -> impl Iterator<Item = Self::Key> {
        core::iter::empty()
    }

    /// Returns what errors, plan files and pictures call a tensor: its key by default.
    fn name(&self, tensor: Self::Key) -> String {
        format!("{tensor:?}")
    }

    /// Returns what pictures and plan files call the operation of a node, in lower case. It has no other meaning.
    fn op_name(&self, _node: Self::Key) -> &str {
        "node"
    }

    /// Returns the memories there are. One by default, aligned to 64 bytes: a line of the cache, and enough for vector loads.
    fn memories(&self) -> Vec<Memory> {
        let align = Align::new(64).unwrap_or(Align::ONE);
        vec![Memory::new("memory", align)]
    }

    /// Returns the memory that an input or a node belongs to: the first by default.
    fn memory(&self, _tensor: Self::Key) -> MemoryId {
        MemoryId::FIRST
    }
}

/// A caller's graph as the planner sees it, with a number for each key.
///
/// [`plan_tensor_graph`](crate::plan_tensor_graph) makes one by itself; this is for everything else that takes an
/// [`AssignedGraph`].
#[derive(Clone, Debug)]
pub struct KeyedGraph<K> {
    pub(crate) assigned: AssignedGraph,
    pub(crate) keys: KeyTable<K>,
}

impl<K: Copy + Ord + Debug> KeyedGraph<K> {
    /// Numbers the tensors of a graph and checks it: inputs come first, then nodes, then what nodes read beside these,
    /// then outputs and [`more_tensors`](TensorGraph::more_tensors). A view that is no node becomes one, before its first reader.
    ///
    /// # Errors
    ///
    /// If the graph names tensors that it does not have, computes one twice or out of order, or has a view outside its root.
    pub fn new(graph: &impl TensorGraph<Key = K>) -> Result<Self, TensorGraphError> {
        TensorNumbering::new(graph, &[]).finish()
    }

    /// Numbers the tensors of a graph as those of another one, as far as both have them.
    pub(crate) fn like(graph: &impl TensorGraph<Key = K>, keys: &KeyTable<K>) -> Result<Self, TensorGraphError> {
        TensorNumbering::new(graph, &keys.by_number).finish()
    }

    /// Returns the graph.
    pub const fn assigned(&self) -> &AssignedGraph {
        &self.assigned
    }

    /// Returns the number of a tensor; `None` for one that the graph does not reach.
    pub fn number(&self, key: K) -> Option<TensorId> {
        self.keys.number(key)
    }

    /// Returns the key of a number.
    pub fn key(&self, number: TensorId) -> Option<K> {
        self.keys.key(number)
    }

    /// Checks the places that another allocator has given to the tensors of this graph: executes the graph at these
    /// addresses and beside them, and compares. `place` says where a tensor is located; it is not called for views
    /// and external tensors. Every node that no node reads may be overwritten after its turn, outputs may not.
    ///
    /// # Errors
    ///
    /// If a node reads what another one has overwritten, an output is lost, or a place is misaligned, too small or missing.
    pub fn replay(&self, place: impl Fn(K) -> Option<TensorPlace>) -> Result<(), TensorGraphError> {
        let tensors = self.assigned.graph().tensors();
        let own = |(id, tensor): (TensorId, &crate::Tensor)| {
            if tensor.is_planned() { self.keys.key(id).and_then(&place) } else { None }
        };
        let places = tensors.pairs().map(own).collect();
        let places = TensorPlaces {
            places,
            order: None,
            reuse: Reuse::Extended,
            unread: Unread::Free,
            without_extra_lifetime: Vec::new(),
        };
        Ok(replay(&self.assigned, &places)?)
    }
}

/// The keys of a graph's tensors, and the other way round.
#[derive(Clone, Debug)]
pub(crate) struct KeyTable<K> {
    pub(crate) by_number: Vec<K>,
    numbers: BTreeMap<K, TensorId>,
}

impl<K: Copy + Ord> KeyTable<K> {
    pub(crate) fn number(&self, key: K) -> Option<TensorId> {
        self.numbers.get(&key).copied()
    }

    pub(crate) fn key(&self, number: TensorId) -> Option<K> {
        self.by_number.get(number.index()).copied()
    }
}
