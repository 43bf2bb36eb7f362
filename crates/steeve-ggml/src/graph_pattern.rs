//! Whether a graph is the one that a plan was made for. One pass over ggml's tensors, nothing allocated.
//!
//! Each position of the lists, and each source, has a number in the plan. The first time a number is met it is bound to
//! the tensor that is there; every other time it must be the same tensor, and in the end no tensor may have two numbers.
//! So a graph that passes has the planned edges, no more and no fewer.
//!
//! Programs mostly run the same graph again, or build it in the same memory. So the numbers are taken to be bound as the last
//! time at first, and then nothing has to be bound or told apart:
//!
//! ```text
//!   graph --every tensor is the one of the last time?--> yes: same edges
//!         --bind anew-----------------------------------> same edges, or another graph
//! ```
//!
//! Each tensor is looked at in any case. Which ones, comes from the graph alone: a tensor of the last time is only used once
//! the graph was seen to lead to it.

mod number_binding;

use std::ffi::c_int;

use steeve_graph::{Bytes, GraphPlan, Id, MemoryId, TensorId};

use self::number_binding::{FreshBinding, NumberBinding, PreviousBinding};
use crate::ggml_abi::{GgmlBuffer, GgmlTensor, MAX_SOURCES, OP_PARAMS};
use crate::ggml_instance::KnownGgml;
use crate::read_graph::{PlannedMemories, ReadGraph, TensorLists, layout};

/// No tensor.
const NONE: u32 = u32::MAX;

/// The flags that say something about memory.
const FLAGS: i32 = 15;

/// So many sources are kept with the tensor; few operations have more.
const FEW: usize = 4;

/// What a plan expects of a graph.
pub(crate) struct GraphPattern {
    leafs: usize,
    nodes: usize,
    /// Leafs, nodes, then what is in neither list: of these, a root comes behind its views.
    expected: Vec<ExpectedTensor>,
    /// The numbers of all sources but the first few, of tensors that have more.
    more_sources: Vec<[u32; MAX_SOURCES - FEW]>,
    /// Every number once: roots before their views, sources before the nodes that read them.
    pub(crate) targets: Vec<AddressTarget>,
    take_overs: Vec<(u32, u32)>,
    /// Every number once, in the order of their tensors' addresses when they were last sorted.
    by_address: Vec<u32>,
    /// The parameters of tensors in other than plain CPU memory: some backends pad by them.
    params: Vec<(u32, [i32; OP_PARAMS])>,
    /// What the plan was made for, once other shapes are expected.
    planned_shapes: Option<PlannedShapes>,
    /// A place at the start of each buffer of the plan.
    starts: Vec<TensorPlace>,
    /// The buffer and the address of each start. The first is nowhere, for tensors that are not planned.
    bases: Vec<(GgmlBuffer, usize)>,
    /// The tensor of each number in the graph that was compared last, and null behind the last number.
    pub(crate) tensors: Vec<*mut GgmlTensor>,
    /// Whether `tensors` are those of a graph that passed.
    is_bound: bool,
    /// Whether some tensor of the graph that was compared last has no buffer yet.
    pub(crate) has_unplaced: bool,
    /// What all planned tensors take together, were none placed over another.
    pub(crate) bytes: Bytes,
    /// What they take with the shapes that are expected now.
    pub(crate) expected_bytes: Bytes,
}

/// A tensor that gets its address.
#[derive(Clone, Copy)]
pub(crate) struct AddressTarget {
    pub(crate) number: u32,
    /// The number of the root of a view.
    pub(crate) root: u32,
    pub(crate) place: TensorPlace,
}

/// What is expected of the tensor at one position: two lines of a cache.
#[repr(align(64))]
struct ExpectedTensor {
    shape: TensorShape,
    /// Where in its buffer it is planned, and the buffer's position in `bases`.
    offset: usize,
    base: u32,
    number: u32,
    /// Numbers; that of no tensor is one above the last.
    sources: [u32; FEW],
    root: u32,
    /// One above the position of its other sources; 0 if there are none.
    more_sources: u32,
    op: c_int,
    dtype: c_int,
    flags: i32,
    /// Which of the states below it may be in: a sum.
    allowed: u8,
    look: TensorCheck,
}

/// What may differ between graphs that one plan serves.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TensorShape {
    ne: [i64; 4],
    nb: [usize; 4],
    view_offs: usize,
}

impl TensorShape {
    #[inline(always)]
    fn of(tensor: &GgmlTensor) -> Self {
        Self { ne: tensor.ne, nb: tensor.nb, view_offs: tensor.view_offs }
    }
}

/// The shapes and parameters of the graph that a plan was made for.
struct PlannedShapes {
    /// In the order of [`GraphPattern::expected`].
    shapes: Vec<TensorShape>,
    params: Vec<(u32, [i32; OP_PARAMS])>,
}

/// The tensor has neither a buffer nor an address.
const UNPLACED: u8 = 1;
/// The tensor has one of the two.
const PLACED: u8 = 2;
/// The tensor is where the plan says.
const AS_PLANNED: u8 = 4;

/// How closely a tensor is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TensorCheck {
    /// At everything.
    Node,
    /// Not at its sources: it is a leaf, or in neither list.
    NoNode,
    /// The caller has put it somewhere and no node computes it: all that matters is that it is no view.
    External,
}

/// What is known of the tensor of one number when the pattern is made.
struct KnownTensor {
    place: TensorPlace,
    root: u32,
    sources: [u32; MAX_SOURCES],
    look: TensorCheck,
}

/// Where a tensor is located.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorPlace {
    /// Where its root does.
    View,
    /// Where the caller put it.
    External,
    /// Where the plan says.
    Planned {
        /// Which of the plan's memories.
        buffer_set: u32,
        /// Which of that memory's buffers.
        buffer: u32,
        offset: u64,
        room: u64,
        /// The memory that says how many bytes it takes.
        asked: MemoryId,
    },
    /// The graph does not use it.
    Nowhere,
}

/// Whether a graph is the planned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphMatch {
    /// To the last stride.
    Same,
    /// But for shapes.
    Reshaped,
    /// Not at all.
    Other,
}

impl GraphPattern {
    /// Makes the pattern of a graph and its plan.
    ///
    /// # Safety
    /// The tensors are those that the graph was read from.
    pub(crate) unsafe fn new(read: &ReadGraph, plan: &GraphPlan, memories: &PlannedMemories) -> Self {
        let graph = read.assigned.graph();
        let number = |id: &TensorId| id.index() as u32;
        let listed: Vec<u32> = graph.leafs().iter().chain(graph.nodes()).map(number).collect();
        let mut is_listed = vec![false; read.tensors.len()];
        listed.iter().for_each(|number| is_listed[*number as usize] = true);
        let unlisted = (0..).zip(is_listed).filter(|(_, is_listed)| !is_listed).map(|(number, _)| number);
        let known = known(read, plan);
        let is_padded = |known: &KnownTensor| match known.place {
            TensorPlace::Planned { asked, .. } => !memories.pads_nothing[asked.index()],
            _ => false,
        };
        let padded = (0..).zip(&known).filter(|(_, known)| is_padded(known));
        // SAFETY: as promised.
        let params: Vec<_> =
            padded.map(|(number, _)| (number, unsafe { (*read.tensors[number as usize]).op_params })).collect();
        let room = |known: &KnownTensor| if let TensorPlace::Planned { room, .. } = known.place { room } else { 0 };
        let bytes = Bytes(known.iter().map(room).fold(0, u64::saturating_add));
        let mut tensors = read.tensors.clone();
        tensors.push(std::ptr::null_mut());
        let mut pattern = Self {
            leafs: graph.leafs().len(),
            nodes: graph.nodes().len(),
            expected: Vec::with_capacity(listed.len()),
            more_sources: Vec::new(),
            targets: targets(&listed, &known),
            take_overs: plan.in_place_aliases().iter().map(|(node, slot)| (number(node), *slot)).collect(),
            by_address: (0..known.len() as u32).collect(),
            params,
            planned_shapes: None,
            starts: Vec::new(),
            bases: Vec::new(),
            tensors,
            is_bound: false,
            has_unplaced: true,
            bytes,
            expected_bytes: bytes,
        };
        for number in listed.into_iter().chain(unlisted) {
            // SAFETY: as promised.
            let tensor = unsafe { &*read.tensors[number as usize] };
            pattern.expect(number, &known[number as usize], tensor);
        }
        pattern
    }

    /// Appends what is expected of a tensor.
    fn expect(&mut self, number: u32, known: &KnownTensor, tensor: &GgmlTensor) {
        let null = self.tensors.len() as u32 - 1;
        let at = |number: u32| if number == NONE { null } else { number };
        let sources = known.sources.map(at);
        let more: [u32; MAX_SOURCES - FEW] = std::array::from_fn(|slot| sources[FEW + slot]);
        let mut more_sources = 0;
        if more.iter().any(|source| *source != null) {
            self.more_sources.push(more);
            more_sources = self.more_sources.len() as u32;
        }
        let (mut base, mut offset) = (0, 0);
        let allowed = match known.place {
            TensorPlace::View => UNPLACED | PLACED,
            TensorPlace::External => PLACED,
            TensorPlace::Nowhere => UNPLACED,
            TensorPlace::Planned { buffer_set, buffer, offset: from_start, asked, .. } => {
                let start = TensorPlace::Planned { buffer_set, buffer, offset: 0, room: 0, asked };
                let found = self.starts.iter().position(|it| *it == start).unwrap_or(self.starts.len());
                if found == self.starts.len() {
                    self.starts.push(start);
                }
                (base, offset) = (found as u32 + 1, from_start as usize);
                UNPLACED | AS_PLANNED
            }
        };
        // Where backends pad tensors, they may do so by the shapes of sources.
        let look = match known.look {
            TensorCheck::External if !self.params.is_empty() => TensorCheck::NoNode,
            look => look,
        };
        self.expected.push(ExpectedTensor {
            shape: TensorShape::of(tensor),
            offset,
            base,
            number,
            sources: std::array::from_fn(|slot| sources[slot]),
            root: at(known.root),
            more_sources,
            op: tensor.op,
            dtype: tensor.dtype,
            flags: tensor.flags & FLAGS,
            allowed,
            look,
        });
    }

    /// Returns whether this plan can replace `other`'s: there is room for every tensor as large as `other` has planned it, and
    /// a node that runs in place here has the layout of its source by the shapes that `other` expects now. These may be smaller than
    /// the planned ones, so this is no proof: a graph that is allocated by this plan is checked on its own.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_alike = |(ours, theirs): (&ExpectedTensor, &ExpectedTensor)| {
            (ours.number, ours.op, ours.flags, ours.dtype, ours.root, ours.sources, ours.more_sources)
                == (
                    theirs.number,
                    theirs.op,
                    theirs.flags,
                    theirs.dtype,
                    theirs.root,
                    theirs.sources,
                    theirs.more_sources,
                )
        };
        let has_room = |(ours, theirs): (&AddressTarget, &AddressTarget)| {
            let has_room = match (ours.place, theirs.place) {
                (TensorPlace::Planned { room, asked, .. }, TensorPlace::Planned { room: needed, asked: by, .. }) => {
                    room >= needed && asked == by
                }
                (ours, theirs) => ours == theirs,
            };
            (ours.number, ours.root) == (theirs.number, theirs.root) && has_room
        };
        (self.leafs, self.nodes) == (other.leafs, other.nodes)
            && self.expected.len() == other.expected.len()
            && self.more_sources == other.more_sources
            && self.expected.iter().zip(&other.expected).all(is_alike)
            && self.targets.iter().zip(&other.targets).all(has_room)
            && other.can_take_over(&self.take_overs)
    }

    /// Returns whether each of these nodes has the layout of its source in this slot, by the shapes that are expected now.
    fn can_take_over(&self, take_overs: &[(u32, u32)]) -> bool {
        let null = self.tensors.len() - 1;
        let mut by_number: Vec<Option<&ExpectedTensor>> = vec![None; null];
        self.expected.iter().for_each(|expected| by_number[expected.number as usize] = Some(expected));
        let at = |number: u32| by_number.get(number as usize).copied().flatten();
        take_overs.iter().all(|&(node, slot)| {
            let Some(node) = at(node) else { return false };
            let source = self.source(node, slot as usize).and_then(at);
            source.is_some_and(|source| {
                let offset = if source.root as usize == null { 0 } else { source.shape.view_offs };
                (node.dtype, node.shape.ne, node.shape.nb, 0)
                    == (source.dtype, source.shape.ne, source.shape.nb, offset)
            })
        })
    }

    /// Returns the number in a slot of a tensor's sources.
    fn source(&self, expected: &ExpectedTensor, slot: usize) -> Option<u32> {
        match (slot.checked_sub(FEW), (expected.more_sources as usize).checked_sub(1)) {
            (None, _) => expected.sources.get(slot).copied(),
            (Some(slot), Some(index)) => self.more_sources.get(index)?.get(slot).copied(),
            (Some(_), None) => None,
        }
    }

    /// Compares, and binds each number to its tensor. `placed` says where a planned tensor would be allocated, so that one
    /// that is there already counts as planned.
    ///
    /// # Safety
    /// The lists are a graph of ggml's: every pointer that can be reached is null or a tensor.
    pub(crate) unsafe fn compare(
        &mut self,
        lists: TensorLists<'_>,
        placed: impl Fn(TensorPlace) -> Option<(GgmlBuffer, usize)>,
    ) -> GraphMatch {
        if (lists.leafs.len(), lists.nodes.len()) != (self.leafs, self.nodes) {
            return GraphMatch::Other;
        }
        // A buffer that is not there is where no tensor is.
        let nowhere = (std::ptr::null_mut(), usize::MAX);
        self.bases.clear();
        self.bases.push(nowhere);
        self.bases.extend(self.starts.iter().map(|start| placed(*start).unwrap_or(nowhere)));
        if self.is_bound {
            let tensors = self.tensors.as_slice();
            // SAFETY: passed on; `expect` has taken all numbers from ids of these tensors, and that of none from their end.
            let (verdict, has_unplaced) = unsafe { self.walk(lists, &mut PreviousBinding::new(tensors)) };
            if verdict != GraphMatch::Other {
                self.has_unplaced = has_unplaced;
                return verdict;
            }
        }
        self.is_bound = false;
        let mut tensors = std::mem::take(&mut self.tensors);
        tensors.iter_mut().for_each(|tensor| *tensor = std::ptr::null_mut());
        // SAFETY: passed on.
        let (verdict, has_unplaced) = unsafe { self.walk(lists, &mut FreshBinding(&mut tensors)) };
        self.is_bound = verdict != GraphMatch::Other && self.are_distinct(&tensors);
        (self.tensors, self.has_unplaced) = (tensors, has_unplaced);
        if self.is_bound { verdict } else { GraphMatch::Other }
    }

    /// Compares every tensor with the plan, and notes whether one of them has no buffer yet.
    ///
    /// # Safety
    /// As [`compare`](Self::compare).
    unsafe fn walk(&self, lists: TensorLists<'_>, numbers: &mut impl NumberBinding) -> (GraphMatch, bool) {
        let mut state_of_walk = WalkState { verdict: GraphMatch::Same, has_unplaced: false };
        let (leafs, others) = self.expected.split_at(self.leafs);
        let (nodes, unlisted) = others.split_at(self.nodes);
        for (expected, tensors) in [(leafs, lists.leafs), (nodes, lists.nodes)] {
            for (expected, &tensor) in expected.iter().zip(tensors) {
                // SAFETY: a listed tensor, as promised.
                let is_it = numbers.is(expected.number, tensor)
                    && self.matches_tensor(expected, unsafe { &*tensor }, numbers, &mut state_of_walk);
                if !is_it {
                    return (GraphMatch::Other, false);
                }
            }
        }
        for expected in unlisted {
            // SAFETY: null, or a source or a root of a tensor that was looked at, as promised.
            let Some(tensor) = (unsafe { numbers.tensor(expected.number).as_ref() }) else {
                return (GraphMatch::Other, false);
            };
            if !self.matches_tensor(expected, tensor, numbers, &mut state_of_walk) {
                return (GraphMatch::Other, false);
            }
        }
        // SAFETY: all numbers are bound, as just seen.
        let is_told_so = |(number, params): &(u32, _)| unsafe { (*numbers.tensor(*number)).op_params == *params };
        if !self.params.iter().all(is_told_so) {
            state_of_walk.verdict = GraphMatch::Reshaped;
        }
        (state_of_walk.verdict, state_of_walk.has_unplaced)
    }

    /// Returns whether a tensor is as expected but for its shape. Hardly a branch for what may differ: mostly nothing does, and the
    /// time goes into fetching the tensor.
    #[inline(always)]
    fn matches_tensor(
        &self,
        expected: &ExpectedTensor,
        tensor: &GgmlTensor,
        numbers: &mut impl NumberBinding,
        state_of_walk: &mut WalkState,
    ) -> bool {
        if expected.look == TensorCheck::External {
            return tensor.view_src.is_null() && tensor.is_placed();
        }
        let mut is_it = numbers.is(expected.root, tensor.view_src);
        if expected.look == TensorCheck::Node {
            let (few, more) = tensor.src.split_at(FEW);
            is_it &= expected.sources.iter().zip(few).fold(true, |all, (source, is)| all & numbers.is(*source, *is));
            is_it = is_it
                && match expected.more_sources {
                    0 => more.iter().fold(0, |any, source| any | source.addr()) == 0,
                    one_above => {
                        let sources = self.more_sources[one_above as usize - 1].iter();
                        sources.zip(more).all(|(source, is)| numbers.is(*source, *is))
                    }
                };
        }
        if !is_it {
            return false;
        }
        let marks =
            (tensor.op ^ expected.op) | (tensor.dtype ^ expected.dtype) | (tensor.flags & FLAGS ^ expected.flags);
        let (buffer, base) = self.bases[expected.base as usize];
        let is_as_planned = (tensor.buffer == buffer) & (tensor.data.addr() == base.wrapping_add(expected.offset));
        let state = if tensor.is_placed() { PLACED } else { UNPLACED } | if is_as_planned { AS_PLANNED } else { 0 };
        state_of_walk.has_unplaced |= tensor.buffer.is_null();
        let is_same_shape = (tensor.ne == expected.shape.ne) & (tensor.nb == expected.shape.nb);
        if !is_same_shape | (tensor.view_offs != expected.shape.view_offs) {
            state_of_walk.verdict = GraphMatch::Reshaped;
        }
        (marks == 0) & (state & expected.allowed != 0)
    }

    /// Returns whether the graph that was compared last, with this outcome, is the planned one to the last stride.
    ///
    /// # Safety
    /// `compare` has just bound the tensors, and their graph is still there.
    pub(crate) unsafe fn is_planned_graph(&self, verdict: GraphMatch) -> bool {
        let Some(planned) = &self.planned_shapes else { return verdict == GraphMatch::Same };
        // SAFETY: as promised.
        let at = |number: u32| unsafe { &*self.tensors[number as usize] };
        let has_shape = |(expected, shape): (&ExpectedTensor, &TensorShape)| {
            expected.look == TensorCheck::External || TensorShape::of(at(expected.number)) == *shape
        };
        verdict != GraphMatch::Other
            && self.expected.iter().zip(&planned.shapes).all(has_shape)
            && planned.params.iter().all(|(number, params)| at(*number).op_params == *params)
    }

    /// Expects from now on the shapes of the graph that was compared last, because it has room; its planned tensors take so
    /// many bytes together.
    ///
    /// # Safety
    /// `compare` has just bound the tensors, and their graph is still there.
    pub(crate) unsafe fn expect_these_shapes(&mut self, bytes: Bytes) {
        self.expected_bytes = bytes;
        self.planned_shapes.get_or_insert_with(|| PlannedShapes {
            shapes: self.expected.iter().map(|expected| expected.shape).collect(),
            params: self.params.clone(),
        });
        for expected in &mut self.expected {
            // SAFETY: as promised.
            expected.shape = TensorShape::of(unsafe { &*self.tensors[expected.number as usize] });
        }
        for (number, params) in &mut self.params {
            // SAFETY: as promised.
            *params = unsafe { (*self.tensors[*number as usize]).op_params };
        }
    }

    /// Returns whether no tensor has two numbers. Graphs are mostly built in one way and in one memory: then the tensors are in
    /// the order of the last time, and that is seen in one pass.
    fn are_distinct(&mut self, bound: &[*mut GgmlTensor]) -> bool {
        let address = |number: u32| bound[number as usize].addr();
        let is_rising = |numbers: &[u32]| numbers.windows(2).all(|pair| address(pair[0]) < address(pair[1]));
        if !is_rising(&self.by_address) {
            self.by_address.sort_unstable_by_key(|number| address(*number));
            return is_rising(&self.by_address);
        }
        true
    }

    /// Checks whether a reshaped graph still has room: no tensor above its place, no view beyond its root, and each node that runs in
    /// place with the layout of its source. Returns the bytes of its planned tensors; `None` if it has no room.
    ///
    /// # Safety
    /// `compare` has just bound the tensors, and their graph is still there.
    pub(crate) unsafe fn has_room(&self, ggml: &KnownGgml, memories: &PlannedMemories) -> Option<Bytes> {
        // SAFETY: as promised.
        let at = |number: u32| unsafe { &*self.tensors[number as usize] };
        let get_alloc_size = ggml.functions.ggml_backend_buft_get_alloc_size;
        let bytes = |tensor: &GgmlTensor| layout(ggml, tensor).ok().map(|layout| layout.nbytes());
        let mut sum: u64 = 0;
        let mut fits = |&AddressTarget { number, root, place }: &AddressTarget| {
            let tensor = at(number);
            let Some(needed) = bytes(tensor) else { return false };
            match place {
                TensorPlace::Planned { room, asked, .. } => {
                    // SAFETY: a buffer type and a tensor of the same ggml.
                    let size = unsafe { get_alloc_size(memories.types[asked.index()], tensor) };
                    sum = sum.saturating_add(size as u64);
                    size as u64 <= room
                }
                // A view of no bytes is never out of range.
                TensorPlace::View if needed == Bytes::ZERO => true,
                TensorPlace::View => {
                    let end = Bytes(tensor.view_offs as u64).checked_add(needed);
                    let root = bytes(at(root));
                    end.is_some_and(|end| root.is_some_and(|root| end <= root))
                }
                TensorPlace::External | TensorPlace::Nowhere => true,
            }
        };
        let in_place = |&(node, slot): &(u32, u32)| {
            let source = at(node).src[slot as usize];
            // SAFETY: as promised; `compare` has seen that there is a source where the plan has one.
            let (node, source) = (at(node), unsafe { &*source });
            let offset = if source.view_src.is_null() { 0 } else { source.view_offs };
            (node.dtype, node.ne, node.nb, 0) == (source.dtype, source.ne, source.nb, offset)
        };
        (self.targets.iter().all(&mut fits) && self.take_overs.iter().all(in_place)).then_some(Bytes(sum))
    }
}

/// What is found out about all tensors together.
struct WalkState {
    verdict: GraphMatch,
    has_unplaced: bool,
}

/// Collects what is known of each number.
fn known(read: &ReadGraph, plan: &GraphPlan) -> Vec<KnownTensor> {
    let graph = read.assigned.graph();
    let number = |id: &TensorId| id.index() as u32;
    let mut is_node = vec![false; read.tensors.len()];
    graph.nodes().iter().for_each(|node| is_node[node.index()] = true);
    let buffer_set_of =
        |memory: MemoryId| plan.memories().iter().position(|it| it.memory == memory).unwrap_or(0) as u32;
    let place = |id: TensorId| match (graph.tensor(id).view, graph.tensor(id).external, plan.place(id)) {
        (Some(_), ..) => TensorPlace::View,
        (None, true, _) => TensorPlace::External,
        (None, false, None) => TensorPlace::Nowhere,
        (None, false, Some(place)) => TensorPlace::Planned {
            buffer_set: buffer_set_of(place.memory),
            buffer: place.buffer.index() as u32,
            offset: place.offset.0,
            room: place.size.0,
            asked: plan.sized_by(id).unwrap_or(place.memory),
        },
    };
    let known = graph.tensors().ids().map(|id| {
        let mut sources = [NONE; MAX_SOURCES];
        for (source, is) in sources.iter_mut().zip(graph.sources(id)) {
            *source = is.as_ref().map_or(NONE, number);
        }
        let place = place(id);
        let look = match place {
            _ if is_node[id.index()] => TensorCheck::Node,
            TensorPlace::External => TensorCheck::External,
            _ => TensorCheck::NoNode,
        };
        KnownTensor { place, root: graph.tensor(id).view.map_or(NONE, |view| number(&view.root)), sources, look }
    });
    known.collect()
}

/// Returns the order in which ggml gives out addresses: leafs, then each node behind its sources.
fn targets(listed: &[u32], known: &[KnownTensor]) -> Vec<AddressTarget> {
    let mut done = vec![false; known.len()];
    let mut targets = Vec::with_capacity(known.len());
    let mut visit = |number: u32| {
        let root = known[number as usize].root;
        for number in [root, number] {
            if number != NONE && !std::mem::replace(&mut done[number as usize], true) {
                let KnownTensor { root, place, .. } = known[number as usize];
                targets.push(AddressTarget { number, root, place });
            }
        }
    };
    for &number in listed {
        let sources = known[number as usize].sources;
        sources.into_iter().filter(|source| *source != NONE).for_each(&mut visit);
        visit(number);
    }
    (0..known.len() as u32).for_each(visit);
    targets
}
