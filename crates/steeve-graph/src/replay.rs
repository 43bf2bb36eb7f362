//! The second checker: knows no lifetimes, only what nodes read and write.
//!
//! The node list is executed twice on maps from bytes to tags: once with every root in memory of its own, once at the
//! planned addresses. A tag is the last write of a byte. Every read must see equal tags in both, and at the end so
//! must every output and everything that is never freed:
//!
//! ```text
//!   apart    a: [aaaa]   b: [bbbb]                       node 2 reads a: aaaa
//!   planned  [aaaa]  then b is put over its half: [aabb] node 2 reads a: aabb, so b overwrote it too early
//! ```
//!
//! A node that reads bytes without a tag reads whatever was in memory before, and that is a fault of the graph
//! whatever the plan. The check of node order refuses such graphs, and this checker does not rely on it.
//! `docs/checkers.md` has the definitions.
//!
//! Nothing here is shared with liveness, aliases or the strategies, but for the map of ranges, which knows of neither.
//! O(accesses * log of pieces).

mod fault;
mod meaning;
mod tags;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

pub use fault::{LastWriter, PlaceFault, ReplayFault, ReplayFaults};

use meaning::{GraphMeaning, WrittenPieces, in_callers_order, pieces};
use steeve_plan::{BufferId, Bytes, Id, IdVec, Offset};
use tags::{WriterTag, WriterTags};

use crate::fusion::{GroupRead, KeptExtent, group_reads, prefix};
use crate::{
    AssignedGraph, Fusion, Graph, Memory, MemoryId, Named, NodeOrder, Op, Reuse, TensorId, TensorPlace, Unread,
};

/// A claim where the tensors of a graph are located, to be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPlaces {
    /// For each tensor with bytes of its own where they are; nothing for views and external tensors.
    pub places: IdVec<TensorId, Option<TensorPlace>>,
    /// The order in which the nodes run, where it is not the graph's own. Then every node must read what it reads in that one.
    pub order: Option<NodeOrder>,
    /// Which sources a node may write over: [`Reuse::Ggml`] those of ggml's list, otherwise those of our own table.
    pub reuse: Reuse,
    /// Which tensors that no node reads must survive the run.
    pub unread: Unread,
    /// The memories whose extra lifetime and fusion it does not keep to, as ggml's own plans do not. In the others,
    /// reads are repeated for as many steps as those say.
    pub without_extra_lifetime: Vec<MemoryId>,
}

/// Executes the graph at the planned addresses and beside them, and compares.
///
/// ```
/// use steeve_graph::{AssignedGraph, Offset, PlanOptions, plan_graph, replay};
/// let graph: AssignedGraph = "x = input f32[64]; a = sqr x; b = neg a; c = add a b !output".parse()?;
/// let mut places = plan_graph(&graph, &PlanOptions::default())?.places();
/// assert!(replay(&graph, &places).is_ok());
/// // Put `b` where `a` still is:
/// let nodes = graph.graph().nodes();
/// places.places[nodes[1]] = places.places[nodes[0]];
/// let faults = replay(&graph, &places).unwrap_err();
/// assert!(faults.to_string().contains("reads tensor 1 (a), but node 1"), "{faults}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Every fault, in the order in which they happen.
pub fn replay(assigned: &AssignedGraph, places: &TensorPlaces) -> Result<(), ReplayFaults> {
    let faults = match &places.order {
        None => ReplayRun::new(assigned, places, MeaningUse::None).run().0,
        Some(order) => {
            let ordered =
                order.apply_unchecked(assigned).map_err(|error| ReplayFaults([ReplayFault::Order(error)].into()))?;
            let (_, meaning) = ReplayRun::new(assigned, places, MeaningUse::Note(GraphMeaning::default())).run();
            ReplayRun::new(&ordered, places, MeaningUse::Compare(order, meaning)).run().0
        }
    };
    if faults.is_empty() { Ok(()) } else { Err(ReplayFaults(faults)) }
}

/// What is done with what nodes read.
enum MeaningUse<'a> {
    None,
    /// It is noted: the graph runs in its own order.
    Note(GraphMeaning),
    /// It is compared with what was noted: the graph runs in this order.
    Compare(&'a NodeOrder, GraphMeaning),
}

/// An address space: the memory of one root, or a planned buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AddressSpace {
    Root(TensorId),
    Buffer(MemoryId, BufferId),
}

struct ReplayRun<'a> {
    assigned: &'a AssignedGraph,
    places: &'a TensorPlaces,
    isolated: BTreeMap<TensorId, WriterTags>,
    planned: BTreeMap<AddressSpace, WriterTags>,
    /// Whether a node computes each tensor.
    computed: Vec<bool>,
    /// By node: the root it has written over as its operation allows.
    overwritten: BTreeMap<usize, TensorId>,
    /// For how many nodes a read is repeated at most.
    longest_extra_lifetime: usize,
    /// What fused groups read to their end, in the order of nodes; how many of these have begun; and those that have not ended.
    groups: Vec<GroupRead>,
    begun: usize,
    open: Vec<GroupRead>,
    meaning: MeaningUse<'a>,
    faults: Vec<ReplayFault>,
}

impl<'a> ReplayRun<'a> {
    fn new(assigned: &'a AssignedGraph, places: &'a TensorPlaces, meaning: MeaningUse<'a>) -> Self {
        let (isolated, planned, overwritten) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let graph = assigned.graph();
        let mut computed = vec![false; graph.tensors().len()];
        for node in graph.nodes() {
            computed[node.index()] = graph.tensor(*node).is_planned() && !graph.tensor(*node).op.writes_nothing();
        }
        let memories = assigned.memories();
        let longest_extra_lifetime = memories.iter().map(|memory| memory.extra_lifetime as usize).max().unwrap_or(0);
        let fuses = memories.iter().any(|memory| memory.fusion == Fusion::Kept);
        let groups = if fuses { group_reads(assigned) } else { Vec::new() };
        Self {
            assigned,
            places,
            isolated,
            planned,
            computed,
            overwritten,
            longest_extra_lifetime,
            groups,
            begun: 0,
            open: Vec::new(),
            meaning,
            faults: Vec::new(),
        }
    }

    /// Executes the whole graph. Returns what is wrong, and what nodes have read.
    fn run(mut self) -> (Vec<ReplayFault>, GraphMeaning) {
        self.check_claims();
        self.before_the_run();
        for index in 0..self.graph().nodes().len() {
            self.node(index);
        }
        self.after_the_run();
        self.compare_ends();
        match self.meaning {
            MeaningUse::None => (self.faults, GraphMeaning::default()),
            MeaningUse::Note(meaning) | MeaningUse::Compare(_, meaning) => (self.faults, meaning),
        }
    }

    /// Returns the position of a node in the graph's own order, in which faults count.
    fn position(&self, node: usize) -> usize {
        match &self.meaning {
            MeaningUse::Compare(order, _) => order.positions().get(node).map_or(node, |position| *position as usize),
            MeaningUse::None | MeaningUse::Note(_) => node,
        }
    }

    /// Notes what a node reads, or checks that it is what it reads in the graph's own order.
    fn compare_read(&mut self, node: usize, source: TensorId) {
        let tensors = self.graph().tensors();
        let (root, start) = (tensors.root(source), tensors.offset(source).0);
        let range = start..start.saturating_add(self.graph().tensor(source).nbytes().0);
        let found = self.isolated.get(&root).map(|tags| pieces(tags, range)).unwrap_or_default();
        match &mut self.meaning {
            MeaningUse::None => {}
            MeaningUse::Note(meaning) => meaning.note_read(node, source, found),
            MeaningUse::Compare(order, meaning) => {
                let position = order.positions().get(node).map_or(node, |position| *position as usize);
                let found = in_callers_order(found, order);
                if let Some((byte, expected)) = meaning.other_read(position, source, &found) {
                    let reader = Some((position, self.named(self.graph().nodes()[node])));
                    self.report_reordered(reader, source, byte, expected, &found);
                }
            }
        }
    }

    /// Notes the contents of all roots after the run, or checks that they are the same: a caller may look at whatever survives.
    fn compare_ends(&mut self) {
        match &mut self.meaning {
            MeaningUse::None => {}
            MeaningUse::Note(meaning) => meaning.note_ends(&self.isolated),
            MeaningUse::Compare(order, meaning) => {
                let mut others = Vec::new();
                for (root, tags) in &self.isolated {
                    let found = in_callers_order(pieces(tags, 0..u64::MAX), order);
                    if let Some((byte, expected)) = meaning.other_end(*root, &found) {
                        others.push((*root, byte, expected, found));
                    }
                }
                for (root, byte, expected, found) in others {
                    self.report_reordered(None, root, byte, expected, &found);
                }
            }
        }
    }

    /// Reports that something else is read than in the graph's own order. Tags count in that order.
    fn report_reordered(
        &mut self,
        reader: Option<(usize, Named)>,
        tensor: TensorId,
        byte: u64,
        expected: Option<WriterTag>,
        found: &WrittenPieces,
    ) {
        let found = found.iter().find(|(piece, _)| piece.contains(&byte)).map(|(_, tag)| *tag);
        let by = |tag: Option<WriterTag>| match (tag, &self.places.order) {
            (Some(WriterTag::Node(position)), Some(order)) => {
                let place = order.positions().iter().position(|it| *it as usize == position).unwrap_or(position);
                LastWriter::Node(position, self.named(self.graph().nodes()[place]))
            }
            (tag, _) => self.writer(tag),
        };
        let (tensor, found, expected) = (self.named(tensor), by(found), by(expected));
        self.faults.push(ReplayFault::Reordered { reader, tensor, byte: Offset(byte), found, expected });
    }

    fn graph(&self) -> &'a Graph {
        self.assigned.graph()
    }

    fn named(&self, tensor: TensorId) -> Named {
        Named::new(tensor, self.graph().names())
    }

    /// Checks each place by itself: its memory, its alignment, its size.
    fn check_claims(&mut self) {
        for (tensor, place) in self.places.places.pairs() {
            let (Some(place), Some(it)) = (*place, self.graph().tensors().get(tensor)) else { continue };
            if !it.is_planned() {
                continue;
            }
            if let Some(why) = self.place_fault(tensor, place) {
                let TensorPlace { memory, offset, size, .. } = place;
                let tensor = self.named(tensor);
                self.faults.push(ReplayFault::Place { tensor, memory, offset, size, why });
            }
        }
    }

    fn place_fault(&self, tensor: TensorId, place: TensorPlace) -> Option<PlaceFault> {
        let memories = self.assigned.memories();
        let Some(memory) = memories.get(place.memory) else { return Some(PlaceFault::NoMemory) };
        if !memory.align.accepts(place.offset) {
            return Some(PlaceFault::Misaligned(memory.align));
        }
        let needed = self.assigned.least_alloc_size(tensor, place.memory);
        (place.size < needed).then_some(PlaceFault::TooSmall(needed))
    }

    /// Writes what is there before the run: leafs, inputs and what the caller owns.
    fn before_the_run(&mut self) {
        let graph = self.graph();
        let mut seen = vec![false; graph.tensors().len()];
        let leafs = graph.leafs().iter().copied().filter(|leaf| !graph.tensor(*leaf).is_view());
        let touched = graph.nodes().iter().flat_map(|node| {
            let tensors = core::iter::once(*node).chain(graph.sources(*node).iter().copied().flatten());
            tensors.map(|tensor| graph.root(tensor))
        });
        // What no node makes is there from the start, in a list or not.
        let mut made = vec![false; graph.tensors().len()];
        graph.nodes().iter().for_each(|node| made[node.index()] = true);
        let given = |root: &TensorId| {
            let it = graph.tensor(*root);
            it.external || it.flags.is_input() || (it.op == Op::None && !made[root.index()])
        };
        for root in leafs.chain(touched.filter(given)) {
            if !core::mem::replace(&mut seen[root.index()], true) {
                let size = self.size(root);
                self.check_disjoint(root, size);
                self.write(root, 0..size, WriterTag::Caller(root));
            }
        }
    }

    /// Checks that a root shares no byte with those that are written before the run already: the caller writes in any
    /// order.
    fn check_disjoint(&mut self, root: TensorId, size: u64) {
        let Some((space, start)) = self.start_of(root) else { return };
        let range = start..start.saturating_add(size);
        let mut there = self.planned.get(&space).into_iter().flat_map(|tags| tags.overlapping(range.clone()));
        if let Some((piece, &WriterTag::Caller(other))) = there.next() {
            let (memory, buffer) = self.buffer_of(root);
            let (tensor, other, offset) = (self.named(root), self.named(other), Offset(piece.start));
            self.faults.push(ReplayFault::InitialOverlap { tensor, other, memory, buffer, offset });
        }
    }

    fn node(&mut self, index: usize) {
        let graph = self.graph();
        let node = graph.nodes()[index];
        let tensor = graph.tensor(node);
        if tensor.op == Op::None && tensor.is_planned() {
            // A node without an operation is filled at its turn from outside of the graph, as copies of the scheduler
            // are.
            let size = self.size(node);
            self.write(node, 0..size, WriterTag::Node(index));
        }
        if tensor.op.writes_nothing() {
            return;
        }
        for (slot, source) in graph.sources(node).iter().enumerate() {
            let Some(source) = *source else { continue };
            // A CPY may name itself as its destination, which it does not read.
            if source != node || tensor.op != Op::Cpy || slot != 1 {
                self.read(index, source);
                self.compare_read(index, source);
            }
        }
        self.check_in_place(index, node);
        let root = graph.root(node);
        self.check_placed(index, node);
        let range = match graph.tensor(node).view {
            None => 0..self.size(root),
            Some(view) => view.offset.0..view.offset.0 + graph.tensor(node).nbytes().0,
        };
        self.write(root, range, WriterTag::Node(index));
        // A fused or concurrent kernel may read its sources later than its turn.
        for earlier in index.saturating_sub(self.longest_extra_lifetime)..index {
            self.read_again(earlier, index);
        }
        self.read_groups(index);
    }

    /// Checks what must be there at the end: outputs, and what no node has read.
    fn after_the_run(&mut self) {
        let graph = self.graph();
        let mut read = vec![false; graph.tensors().len()];
        let mut viewed = vec![false; graph.tensors().len()];
        let mut touched = vec![false; graph.tensors().len()];
        for node in graph.nodes() {
            touched[graph.root(*node).index()] = true;
            for source in graph.sources(*node).iter().copied().flatten() {
                read[source.index()] = true;
                touched[graph.root(source).index()] = true;
            }
            let tensor = graph.tensor(*node);
            if let (Some(view), true) = (tensor.view, tensor.op != Op::None) {
                viewed[view.root.index()] = true;
            }
        }
        for tensor in graph.leafs().iter().chain(graph.nodes()).copied() {
            let it = graph.tensor(tensor);
            // A view without an operation is a mark in the node order, not a result.
            let result = if it.is_view() { it.op != Op::None } else { !viewed[tensor.index()] };
            let freed = match self.places.unread {
                Unread::Keep => false,
                Unread::FreeInputs => it.flags.is_input() && !touched[graph.root(tensor).index()],
                Unread::Free => true,
            };
            let unread = !read[tensor.index()] && result && !freed;
            if it.flags.is_output() || unread {
                self.check_survives(tensor);
            }
        }
    }

    /// Returns the bytes that a root has: those of its place, but not fewer than it needs.
    fn size(&self, root: TensorId) -> u64 {
        let needed = self.graph().tensor(root).nbytes().0;
        self.places.places.get(root).copied().flatten().map_or(needed, |place| place.size.0.max(needed))
    }

    /// Returns where a root starts in the planned memory; `None` if it has no place.
    fn start_of(&self, root: TensorId) -> Option<(AddressSpace, u64)> {
        if self.graph().tensor(root).external {
            return Some((AddressSpace::Root(root), 0));
        }
        let place = self.places.places.get(root).copied().flatten()?;
        Some((AddressSpace::Buffer(place.memory, place.buffer), place.offset.0))
    }

    fn write(&mut self, root: TensorId, range: Range<u64>, tag: WriterTag) {
        self.isolated.entry(root).or_default().insert(range.clone(), tag);
        if let Some((space, start)) = self.start_of(root) {
            let range = start.saturating_add(range.start)..start.saturating_add(range.end);
            self.planned.entry(space).or_default().insert(range, tag);
        }
    }

    /// Returns the first byte of a tensor at which the two memories differ, with the tag of the planned one.
    fn difference(&self, tensor: TensorId) -> Option<(u64, Option<WriterTag>)> {
        self.difference_within(tensor, u64::MAX)
    }

    /// Returns the first byte that differs among the first `most` bytes of the tensor's root, as
    /// [`difference`](Self::difference) does.
    fn difference_within(&self, tensor: TensorId, most: u64) -> Option<(u64, Option<WriterTag>)> {
        let tensors = self.graph().tensors();
        let root = tensors.root(tensor);
        let first = tensors.offset(tensor).0;
        let range = first..(first + self.graph().tensor(tensor).nbytes().0).min(most);
        if range.is_empty() {
            return None;
        }
        let isolated = self.isolated.get(&root)?;
        let (space, start) = self.start_of(root)?;
        let nothing = WriterTags::default();
        let planned = self.planned.get(&space).unwrap_or(&nothing);
        // Bytes that nothing has written mean nothing in either memory.
        isolated.overlapping(range).find_map(|(piece, tag)| {
            let there = start.saturating_add(piece.start)..start.saturating_add(piece.end);
            planned.first_other(there, |found| found == tag).map(|(at, found)| (at, found.copied()))
        })
    }

    /// Checks that a tensor that a node reads or writes has a place. Reports it if not.
    fn check_placed(&mut self, node: usize, tensor: TensorId) -> bool {
        let root = self.graph().root(tensor);
        let is_placed = self.start_of(root).is_some() || self.graph().tensor(root).nbytes() == Bytes::ZERO;
        if !is_placed {
            self.faults.push(ReplayFault::Unplaced { node: self.position(node), tensor: self.named(tensor) });
        }
        is_placed
    }

    fn read(&mut self, node: usize, source: TensorId) {
        if !self.check_placed(node, source) {
            return;
        }
        if let Some(byte) = self.unwritten(source) {
            let (reader, tensor) = (self.named(self.graph().nodes()[node]), self.named(source));
            let node = self.position(node);
            self.faults.push(ReplayFault::Unwritten { node, reader, tensor, byte: Offset(byte) });
            return;
        }
        if let Some((offset, by)) = self.difference(source) {
            self.report_read(node, source, offset, by);
        }
    }

    /// Returns the first byte of a tensor that nothing has written, counted from the start of the tensor. What the
    /// caller may have written where a node computes does not count.
    fn unwritten(&self, tensor: TensorId) -> Option<u64> {
        let tensors = self.graph().tensors();
        let first = tensors.offset(tensor).0;
        let last = first + self.graph().tensor(tensor).nbytes().0;
        let is_written = |tag: &WriterTag| !matches!(tag, WriterTag::Caller(root) if self.computed[root.index()]);
        match self.isolated.get(&tensors.root(tensor)) {
            None => (first < last).then_some(0),
            Some(isolated) => isolated.first_other(first..last, is_written).map(|(at, _)| at - first),
        }
    }

    /// Returns the memory in which a root is located, if the plan extends live ranges there.
    fn extending_memory(&self, root: TensorId) -> Option<&'a Memory> {
        let Some((AddressSpace::Buffer(memory, _), _)) = self.start_of(root) else { return None };
        self.assigned.memories().get(memory).filter(|_| !self.places.without_extra_lifetime.contains(&memory))
    }

    /// Repeats the reads of fused groups after `now`.
    fn read_groups(&mut self, now: usize) {
        while let Some(read) = self.groups.get(self.begun).copied().filter(|read| read.node <= now) {
            self.begun += 1;
            self.open.push(read);
        }
        let mut open = core::mem::take(&mut self.open);
        // Each is reported once.
        open.retain(|read| read.last >= now && self.is_kept(read));
        self.open = open;
    }

    /// Returns whether a source of a fused group is still there, where the plan keeps such sources. Reports it if
    /// not.
    fn is_kept(&mut self, read: &GroupRead) -> bool {
        let root = self.graph().root(read.source);
        if self.extending_memory(root).is_none_or(|it| it.fusion != Fusion::Kept) {
            return true;
        }
        let most = match read.extent {
            KeptExtent::Whole => u64::MAX,
            KeptExtent::Prefix => prefix(self.graph().tensor(root), Bytes(self.size(root))).0,
        };
        let difference = self.difference_within(read.source, most);
        let Some((offset, by)) = difference.filter(|(_, by)| !self.overwrote_in_place(*by, root)) else { return true };
        let (memory, buffer) = self.buffer_of(read.source);
        let reader = self.named(self.graph().nodes()[read.node]);
        let (tensor, by, offset) = (self.named(read.source), self.writer(by), Offset(offset));
        let (node, last) = (self.position(read.node), self.position(read.last));
        self.faults.push(ReplayFault::Fusion { node, last, reader, tensor, by, memory, buffer, offset });
        false
    }

    /// Repeats the reads of `earlier` after `now`: only nodes that are written over the source in place may have
    /// changed it.
    fn read_again(&mut self, earlier: usize, now: usize) {
        let graph = self.graph();
        let node = graph.nodes()[earlier];
        if graph.tensor(node).op.writes_nothing() {
            return;
        }
        for source in graph.sources(node).iter().copied().flatten() {
            let root = graph.root(source);
            let Some(memory) = self.extending_memory(root) else { continue };
            if now - earlier <= memory.extra_lifetime as usize
                && let Some((offset, by)) = self.difference(source)
                && !self.overwrote_in_place(by, root)
            {
                self.report_read(earlier, source, offset, by);
            }
        }
    }

    /// Returns whether `by` is written over `root` in place, or over one that is, as its operation allows. Writes
    /// into a root count as those of the node that made the root: they depend on it, so they come after everything it
    /// reads.
    fn overwrote_in_place(&self, by: Option<WriterTag>, root: TensorId) -> bool {
        let graph = self.graph();
        let Some(WriterTag::Node(mut node)) = by else { return false };
        loop {
            let written = graph.root(graph.nodes()[node]);
            if written == root {
                return true;
            }
            let is_into = written != graph.nodes()[node];
            let Some(before) = (if is_into { Some(written) } else { self.overwritten.get(&node).copied() }) else {
                return false;
            };
            if before == root {
                return true;
            }
            let Some(maker) = graph.nodes()[..node].iter().rposition(|it| *it == before) else { return false };
            node = maker;
        }
    }

    fn check_survives(&mut self, tensor: TensorId) {
        let Some((offset, by)) = self.difference(tensor) else { return };
        let (memory, buffer) = self.buffer_of(tensor);
        let by = self.writer(by);
        let tensor = self.named(tensor);
        self.faults.push(ReplayFault::Lost { tensor, by, memory, buffer, offset: Offset(offset) });
    }

    fn report_read(&mut self, node: usize, source: TensorId, offset: u64, by: Option<WriterTag>) {
        let (memory, buffer) = self.buffer_of(source);
        let reader = self.named(self.graph().nodes()[node]);
        let (tensor, by, offset) = (self.named(source), self.writer(by), Offset(offset));
        let node = self.position(node);
        self.faults.push(ReplayFault::Overwritten { node, reader, tensor, by, memory, buffer, offset });
    }

    fn buffer_of(&self, tensor: TensorId) -> (String, BufferId) {
        match self.start_of(self.graph().root(tensor)) {
            Some((AddressSpace::Buffer(memory, buffer), _)) => {
                (self.assigned.memories().get(memory).map_or(String::new(), |it| it.name.clone()), buffer)
            }
            _ => ("the caller's memory".into(), BufferId::FIRST),
        }
    }

    fn writer(&self, tag: Option<WriterTag>) -> LastWriter {
        match tag {
            None => LastWriter::Nothing,
            Some(WriterTag::Caller(tensor)) => LastWriter::Caller(self.named(tensor)),
            Some(WriterTag::Node(node)) => {
                LastWriter::Node(self.position(node), self.named(self.graph().nodes()[node]))
            }
        }
    }

    /// Checks that a node whose result shares bytes with a source has an operation that allows that, and starts where
    /// the source starts.
    fn check_in_place(&mut self, index: usize, node: TensorId) {
        let graph = self.graph();
        if graph.tensor(node).is_view() {
            return;
        }
        let Some((space, start)) = self.start_of(node) else { return };
        let end = start.saturating_add(self.size(node));
        let sources = graph.sources(node);
        for (slot, source) in sources.iter().enumerate() {
            let Some(source) = *source else { continue };
            let root = graph.root(source);
            let Some((other, base)) = self.start_of(root).filter(|_| root != node) else { continue };
            let first = base.saturating_add(graph.tensors().offset(source).0);
            let last = first.saturating_add(graph.tensor(source).nbytes().0);
            let overlaps = first.max(start) < last.min(end);
            if other != space || !overlaps {
                continue;
            }
            let alone = sources.iter().flatten().filter(|it| graph.root(**it) == root).count() == 1;
            let equal = graph.tensor(source).layout == graph.tensor(node).layout;
            let free = || self.extending_memory(root).is_none_or(|memory| !memory.keeps_ggml_in_place());
            let allowed = match self.places.reuse {
                Reuse::Ggml => graph.tensor(node).op.ggml_in_place() && equal,
                // Where nodes are fused or run side by side, only what ggml does is known to be safe.
                Reuse::Extended => {
                    graph.may_overwrite(node, slot) && (free() || graph.tensor(node).op.ggml_in_place() && equal)
                }
                Reuse::None => false,
            };
            let overlaps =
                || graph.may_overlap(node, slot).is_some_and(|distance| start.saturating_add(distance.0) <= first);
            let overlaps = self.places.reuse == Reuse::Extended && free() && overlaps();
            if alone && (overlaps || allowed && first == start) {
                self.overwritten.insert(index, root);
            } else {
                let operation = graph.tensors().op_title(graph.tensor(node).op).into();
                let (writer, tensor) = (self.named(node), self.named(source));
                self.faults.push(ReplayFault::InPlace { node: self.position(index), writer, slot, tensor, operation });
            }
        }
    }
}
