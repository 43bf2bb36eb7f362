//! Whether a graph is the one that a plan was made for. One pass over ggml's tensors, nothing allocated.
//!
//! Each position of the lists, and each source, has a number in the plan. The first time a number is met it is bound to
//! the tensor that stands there; every other time it must be the same tensor, and in the end no tensor may have two numbers.
//! So a graph that passes has the planned edges, no more and no fewer.

use std::ffi::c_int;

use steeve_graph::{Bytes, GraphPlan, Id, MemoryId, TensorId};

use crate::abi::{Buffer, MAX_SOURCES, OP_PARAMS, Tensor};
use crate::ggml::Known as Ggml;
use crate::read::{Lists, Memories, ReadGraph, layout};

/// No tensor.
const NONE: u32 = u32::MAX;

/// The flags that say something about memory.
const FLAGS: i32 = 15;

/// What a plan expects of a graph.
pub(crate) struct Pattern {
    leafs: usize,
    /// The number at each position: leafs, then nodes.
    listed: Vec<u32>,
    known: Vec<Known>,
    /// Every number once: roots before their views, sources before who reads them.
    pub(crate) order: Vec<u32>,
    take_overs: Vec<(u32, u32)>,
    /// Every number once, in the order in which their tensors stood in memory when they were last sorted.
    by_address: Vec<u32>,
    /// The parameters of those who stand in other than plain CPU memory: some backends pad by them.
    params: Vec<(u32, [i32; OP_PARAMS])>,
    /// Whether some tensor of the graph that was compared last has no buffer yet.
    pub(crate) has_unplaced: bool,
    /// What all planned tensors take together, were none placed over another.
    pub(crate) bytes: u64,
}

/// What is known of one tensor.
struct Known {
    op: c_int,
    flags: i32,
    dtype: c_int,
    place: Place,
    root: u32,
    is_listed: bool,
    /// Whether its sources count: those of leafs and of tensors outside of the lists do not.
    is_node: bool,
    sources: [u32; MAX_SOURCES],
    ne: [i64; 4],
    nb: [usize; 4],
    view_offs: usize,
}

/// Where a tensor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where its root does.
    View,
    /// Where the caller put it.
    External,
    /// Where the plan says.
    Planned {
        /// Which of the plan's memories.
        part: u32,
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
pub(crate) enum Match {
    /// To the last stride.
    Same,
    /// But for shapes.
    Reshaped,
    /// Not at all.
    Other,
}

impl Pattern {
    /// # Safety
    /// The tensors are those that the graph was read from.
    pub(crate) unsafe fn new(read: &ReadGraph, plan: &GraphPlan, memories: &Memories) -> Self {
        let graph = read.assigned.graph();
        let number = |id: &TensorId| id.index() as u32;
        let listed: Vec<u32> = graph.leafs().iter().chain(graph.nodes()).map(number).collect();
        let mut is_listed = vec![false; read.tensors.len()];
        listed.iter().for_each(|number| is_listed[*number as usize] = true);
        let mut is_node = vec![false; read.tensors.len()];
        graph.nodes().iter().for_each(|node| is_node[node.index()] = true);
        let part_of = |memory: MemoryId| plan.memories().iter().position(|it| it.memory == memory).unwrap_or(0) as u32;
        let place = |id: TensorId| match (graph.tensor(id).view, graph.tensor(id).external, plan.place(id)) {
            (Some(_), ..) => Place::View,
            (None, true, _) => Place::External,
            (None, false, None) => Place::Nowhere,
            (None, false, Some(place)) => Place::Planned {
                part: part_of(place.memory),
                buffer: place.buffer.index() as u32,
                offset: place.offset.0,
                room: place.size.0,
                asked: plan.asked(id).unwrap_or(place.memory),
            },
        };
        let known = graph.tensors().ids().map(|id| {
            let mut sources = [NONE; MAX_SOURCES];
            for (source, is) in sources.iter_mut().zip(graph.sources(id)) {
                *source = is.as_ref().map_or(NONE, number);
            }
            // SAFETY: as promised.
            let tensor = unsafe { &*read.tensors[id.index()] };
            Known {
                op: tensor.op,
                flags: tensor.flags & FLAGS,
                dtype: tensor.dtype,
                place: place(id),
                root: graph.tensor(id).view.map_or(NONE, |view| number(&view.root)),
                is_listed: is_listed[id.index()],
                is_node: is_node[id.index()],
                sources,
                ne: tensor.ne,
                nb: tensor.nb,
                view_offs: tensor.view_offs,
            }
        });
        let known: Vec<Known> = known.collect();
        let order = order(&listed, &known);
        let take_overs = plan.take_overs().iter().map(|(node, slot)| (number(node), *slot)).collect();
        let by_address = (0..known.len() as u32).collect();
        let is_padded = |known: &Known| match known.place {
            Place::Planned { asked, .. } => !memories.is_cpu[asked.index()],
            _ => false,
        };
        let padded = (0..).zip(&known).filter(|(_, known)| is_padded(known));
        // SAFETY: as promised.
        let params =
            padded.map(|(number, _)| (number, unsafe { (*read.tensors[number as usize]).op_params })).collect();
        let leafs = graph.leafs().len();
        let room = |known: &Known| if let Place::Planned { room, .. } = known.place { room } else { 0 };
        let bytes = known.iter().map(room).fold(0, u64::saturating_add);
        Self { leafs, listed, known, order, take_overs, by_address, params, has_unplaced: true, bytes }
    }

    pub(crate) fn place(&self, number: u32) -> Place {
        self.known[number as usize].place
    }

    pub(crate) fn root(&self, number: u32) -> u32 {
        self.known[number as usize].root
    }

    /// Whether this plan can be used for the graph that `other` was made for.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_covered = |(ours, theirs): (&Known, &Known)| {
            let is_alike = (ours.op, ours.flags, ours.dtype, ours.root, ours.sources)
                == (theirs.op, theirs.flags, theirs.dtype, theirs.root, theirs.sources);
            let has_room = match (ours.place, theirs.place) {
                (Place::Planned { room, asked, .. }, Place::Planned { room: needed, asked: by, .. }) => {
                    room >= needed && asked == by
                }
                (ours, theirs) => ours == theirs,
            };
            is_alike && has_room
        };
        let in_place = |(node, slot): &(u32, u32)| {
            let node = &other.known[*node as usize];
            let source = &other.known[node.sources[*slot as usize] as usize];
            let offset = if source.root == NONE { 0 } else { source.view_offs };
            (node.dtype, node.ne, node.nb, 0) == (source.dtype, source.ne, source.nb, offset)
        };
        (self.leafs, &self.listed, self.known.len()) == (other.leafs, &other.listed, other.known.len())
            && self.known.iter().zip(&other.known).all(is_covered)
            && self.take_overs.iter().all(in_place)
    }

    /// Compares, and binds each number to its tensor in `bound`. `placed` says where a planned tensor would stand, so that
    /// one that stands there already counts as planned.
    ///
    /// # Safety
    /// The lists are a graph of ggml's: every pointer that can be reached is null or a tensor.
    pub(crate) unsafe fn compare(
        &mut self,
        lists: Lists<'_>,
        bound: &mut Vec<*mut Tensor>,
        placed: impl Fn(Place) -> Option<(Buffer, usize)>,
    ) -> Match {
        if lists.leafs.len() != self.leafs || lists.leafs.len() + lists.nodes.len() != self.listed.len() {
            return Match::Other;
        }
        bound.clear();
        bound.resize(self.known.len(), std::ptr::null_mut());
        let mut has_unplaced = false;
        let mut verdict = Match::Same;
        for (&number, &tensor) in self.listed.iter().zip(lists.leafs.iter().chain(lists.nodes)) {
            if !bind(bound, number, tensor) {
                return Match::Other;
            }
            // SAFETY: a listed tensor, as promised.
            let tensor = unsafe { &*tensor };
            has_unplaced |= tensor.buffer.is_null();
            // SAFETY: as above.
            verdict = verdict.and(unsafe { self.compare_one(number, tensor, bound, &placed) });
            if verdict == Match::Other {
                return verdict;
            }
        }
        // Whoever is in neither list was bound by whoever uses it; a root's number is above its view's here.
        for number in (0..self.known.len() as u32).filter(|number| !self.known[*number as usize].is_listed) {
            // SAFETY: null, or a source or a root of a listed tensor, as promised.
            let Some(tensor) = (unsafe { bound[number as usize].as_ref() }) else { return Match::Other };
            has_unplaced |= tensor.buffer.is_null();
            // SAFETY: as above.
            verdict = verdict.and(unsafe { self.compare_one(number, tensor, bound, &placed) });
            if verdict == Match::Other {
                return verdict;
            }
        }
        self.has_unplaced = has_unplaced;
        // SAFETY: all numbers are bound, as just seen.
        let is_told_so = |(number, params): &(u32, _)| unsafe { (*bound[*number as usize]).op_params == *params };
        if !self.params.iter().all(is_told_so) {
            verdict = verdict.and(Match::Reshaped);
        }
        if self.are_distinct(bound) { verdict } else { Match::Other }
    }

    unsafe fn compare_one(
        &self,
        number: u32,
        tensor: &Tensor,
        bound: &mut [*mut Tensor],
        placed: &impl Fn(Place) -> Option<(Buffer, usize)>,
    ) -> Match {
        let known = &self.known[number as usize];
        if (tensor.op, tensor.flags & FLAGS, tensor.dtype) != (known.op, known.flags, known.dtype) {
            return Match::Other;
        }
        let is_same_root = match known.root {
            NONE => tensor.view_src.is_null(),
            root => bind(bound, root, tensor.view_src),
        };
        let is_where_it_was = match known.place {
            Place::View => true,
            Place::External => tensor.is_placed(),
            Place::Nowhere => !tensor.is_placed(),
            place => !tensor.is_placed() || placed(place) == Some((tensor.buffer, tensor.data.addr())),
        };
        if !is_same_root || !is_where_it_was {
            return Match::Other;
        }
        if known.is_node {
            for (&source, &is) in known.sources.iter().zip(&tensor.src) {
                let fits = if source == NONE { is.is_null() } else { bind(bound, source, is) };
                if !fits {
                    return Match::Other;
                }
            }
        }
        let is_same = (&tensor.ne, &tensor.nb, tensor.view_offs) == (&known.ne, &known.nb, known.view_offs);
        if is_same { Match::Same } else { Match::Reshaped }
    }

    /// Whether no tensor has two numbers. Graphs are mostly built in the same way and in the same memory: then the tensors
    /// stand in the order of the last time, and that is seen in one pass.
    fn are_distinct(&mut self, bound: &[*mut Tensor]) -> bool {
        let address = |number: u32| bound[number as usize].addr();
        let is_rising = |numbers: &[u32]| numbers.windows(2).all(|pair| address(pair[0]) < address(pair[1]));
        if !is_rising(&self.by_address) {
            self.by_address.sort_unstable_by_key(|number| address(*number));
            return is_rising(&self.by_address);
        }
        true
    }

    /// Whether a reshaped graph still has room: no tensor above its place, no view beyond its root, and whoever takes over a
    /// source still looks like it. Returns what its planned tensors take together, `None` if it has no room.
    ///
    /// # Safety
    /// `bound` comes from `compare` with the same graph, whose pointers are still good.
    pub(crate) unsafe fn has_room(&self, ggml: &Ggml, memories: &Memories, bound: &[*mut Tensor]) -> Option<u64> {
        // SAFETY: as promised.
        let at = |number: u32| unsafe { &*bound[number as usize] };
        let get_alloc_size = ggml.functions.ggml_backend_buft_get_alloc_size;
        let bytes = |tensor: &Tensor| layout(ggml, tensor).ok().map(|layout| layout.nbytes());
        let mut sum: u64 = 0;
        let mut fits = |(number, known): (u32, &Known)| {
            let tensor = at(number);
            let Some(needed) = bytes(tensor) else { return false };
            match known.place {
                Place::Planned { room, asked, .. } => {
                    // SAFETY: a buffer type and a tensor of the same ggml.
                    let size = unsafe { get_alloc_size(memories.types[asked.index()], tensor) };
                    sum = sum.saturating_add(size as u64);
                    size as u64 <= room
                }
                // A view of no bytes is never out of range.
                Place::View if needed == Bytes::ZERO => true,
                Place::View => {
                    let end = Bytes(tensor.view_offs as u64).checked_add(needed);
                    let root = bytes(at(known.root));
                    end.is_some_and(|end| root.is_some_and(|root| end <= root))
                }
                Place::External | Place::Nowhere => true,
            }
        };
        let in_place = |&(node, slot): &(u32, u32)| {
            let source = at(node).src[slot as usize];
            // SAFETY: as promised; `compare` has seen that there is a source where the plan has one.
            let (node, source) = (at(node), unsafe { &*source });
            let offset = if source.view_src.is_null() { 0 } else { source.view_offs };
            (node.dtype, node.ne, node.nb, 0) == (source.dtype, source.ne, source.nb, offset)
        };
        ((0..).zip(&self.known).all(&mut fits) && self.take_overs.iter().all(in_place)).then_some(sum)
    }
}

impl Match {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Same, Self::Same) => Self::Same,
            (Self::Other, _) | (_, Self::Other) => Self::Other,
            _ => Self::Reshaped,
        }
    }
}

/// Whether the number stands for this tensor; if for none yet, it does from now on.
#[inline]
fn bind(bound: &mut [*mut Tensor], number: u32, tensor: *mut Tensor) -> bool {
    let slot = &mut bound[number as usize];
    if slot.is_null() {
        *slot = tensor;
    }
    *slot == tensor && !tensor.is_null()
}

/// The order in which ggml gives out addresses: leafs, then each node behind its sources.
fn order(listed: &[u32], known: &[Known]) -> Vec<u32> {
    let mut done = vec![false; known.len()];
    let mut order = Vec::with_capacity(known.len());
    let mut visit = |number: u32| {
        let root = known[number as usize].root;
        for number in [root, number] {
            if number != NONE && !std::mem::replace(&mut done[number as usize], true) {
                order.push(number);
            }
        }
    };
    for &number in listed {
        let sources = known[number as usize].sources;
        sources.into_iter().filter(|source| *source != NONE).for_each(&mut visit);
        visit(number);
    }
    (0..known.len() as u32).for_each(visit);
    order
}
