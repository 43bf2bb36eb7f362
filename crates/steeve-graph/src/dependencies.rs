//! Graph in, the order that must be kept out: which node reads what another wrote, and which overwrites it.
//!
//! Nodes are taken in order. For each root that a node writes, the byte ranges are kept separately, with their last
//! writer and the nodes that have read them since.
//!
//! ```text
//!    root   0 ........ 64 ........ 128 ........ 256
//!    writer    node 3      node 5       node 3
//!    readers   4, 6        -            4
//! ```
//!
//! O(log ranges) per access and range it covers. A range is from the first byte of a view to its last: strides with gaps
//! are taken as touching the gaps, which may give an edge too many and never one too few.

use alloc::vec::Vec;
use core::ops::Range;

use steeve_plan::IdVec;

use crate::{Graph, IntervalMap, TensorId};

/// Why one node must wait for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hazard {
    /// The later one reads what the earlier one wrote.
    ReadAfterWrite,
    /// The later one overwrites what the earlier one read.
    WriteAfterRead,
    /// The later one overwrites what the earlier one wrote.
    WriteAfterWrite,
}

/// Node `after` must wait for node `before`. Both are places in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependency {
    /// The one that waits.
    pub after: usize,
    /// The one it waits for.
    pub before: usize,
    /// Why.
    pub hazard: Hazard,
}

impl Graph {
    /// Returns which nodes must wait for which, sorted by the one that waits; each pair and reason once.
    ///
    /// Views and other nodes that only describe memory neither wait nor are waited for. Edges that follow from others
    /// are left out where a range has been overwritten in between.
    ///
    /// ```
    /// use steeve_graph::{Dependency, Graph, Hazard};
    /// // A cache is written, read through a sibling view, and written again.
    /// let graph: Graph = "
    ///     cache = external 64; x = input 16
    ///     there = view f32[16]+0 cache; write = cpy x there
    ///     all = view f32[32]+0 cache;   read = neg all
    ///     again = cpy x there"
    ///     .parse()?;
    /// assert_eq!(graph.dependencies(), [
    ///     Dependency { after: 3, before: 1, hazard: Hazard::ReadAfterWrite },
    ///     Dependency { after: 4, before: 1, hazard: Hazard::ReadAfterWrite },
    ///     Dependency { after: 4, before: 1, hazard: Hazard::WriteAfterWrite },
    ///     Dependency { after: 4, before: 3, hazard: Hazard::WriteAfterRead },
    /// ]);
    /// # Ok::<(), steeve_graph::TextError>(())
    /// ```
    pub fn dependencies(&self) -> Vec<Dependency> {
        let mut found = Vec::new();
        let mut roots = self.written_roots();
        let mut edges = Vec::new();
        for (after, &node) in self.nodes().iter().enumerate() {
            let tensor = self.tensor(node);
            if tensor.op.writes_nothing() {
                continue;
            }
            for &source in self.sources(node).iter().flatten() {
                if let Some(ranges) = &mut roots[self.root(source)] {
                    ranges.read(self.extent(source), after, &mut edges);
                }
            }
            if let Some(ranges) = &mut roots[self.root(node)] {
                ranges.write(self.extent(node), after, &mut edges);
            }
            edges.sort_unstable();
            edges.dedup();
            let others = edges.drain(..).filter(|&(before, _)| before != after);
            found.extend(others.map(|(before, hazard)| Dependency { after, before, hazard }));
        }
        found
    }

    /// Returns empty ranges for the roots that some node writes; a root that no node writes orders nothing.
    fn written_roots(&self) -> IdVec<TensorId, Option<RootAccesses>> {
        let mut roots: IdVec<TensorId, Option<RootAccesses>> = self.tensors().iter().map(|_| None).collect();
        for &node in self.nodes() {
            if !self.tensor(node).op.writes_nothing() {
                roots[self.root(node)].get_or_insert_default();
            }
        }
        roots
    }

    /// Returns the bytes of its root that a tensor touches.
    fn extent(&self, id: TensorId) -> Range<u64> {
        let start = self.tensors().offset(id).get();
        // A view lies within its root, so its end can be counted.
        start..start.saturating_add(self.tensor(id).nbytes().get())
    }
}

type HazardEdges = Vec<(usize, Hazard)>;

steeve_plan::id_type! {
    /// A reader of a range, in a list that ranges share.
    struct RangeReaderId;
}

/// A reader, and the nodes that read these bytes before it. A range that is cut in two leaves both halves with one
/// list, so a list may be part of many others.
#[derive(Clone, Copy, Debug)]
struct RangeReader {
    node: usize,
    before: Option<RangeReaderId>,
    /// The last node that waited for this reader: it has waited for all readers before this one as well.
    waited_for_by: Option<usize>,
}

/// What happened to the bytes of a range.
#[derive(Clone, Copy, Debug, Default)]
struct AccessHistory {
    writer: Option<usize>,
    /// The last of the nodes that have read them since.
    readers: Option<RangeReaderId>,
}

/// The bytes of a root. Those in no range have neither been read nor written.
#[derive(Default)]
struct RootAccesses {
    histories: IntervalMap<AccessHistory>,
    readers: IdVec<RangeReaderId, RangeReader>,
}

impl RootAccesses {
    fn read(&mut self, range: Range<u64>, node: usize, edges: &mut HazardEdges) {
        let readers = &mut self.readers;
        self.histories.update(range, &AccessHistory::default(), |_, history| {
            edges.extend(history.writer.map(|writer| (writer, Hazard::ReadAfterWrite)));
            if history.readers.is_none_or(|last| readers[last].node != node) {
                history.readers = readers.push(RangeReader { node, before: history.readers, waited_for_by: None });
            }
        });
    }

    fn write(&mut self, range: Range<u64>, node: usize, edges: &mut HazardEdges) {
        let readers = &mut self.readers;
        self.histories.replace(range, AccessHistory { writer: Some(node), readers: None }, |_, history| {
            edges.extend(history.writer.map(|writer| (writer, Hazard::WriteAfterWrite)));
            wait_for_readers(readers, history.readers, node, edges);
        });
    }
}

fn wait_for_readers(
    readers: &mut IdVec<RangeReaderId, RangeReader>,
    mut last: Option<RangeReaderId>,
    node: usize,
    edges: &mut HazardEdges,
) {
    while let Some(id) = last {
        let reader = &mut readers[id];
        if reader.waited_for_by == Some(node) {
            return;
        }
        reader.waited_for_by = Some(node);
        edges.push((reader.node, Hazard::WriteAfterRead));
        last = reader.before;
    }
}
