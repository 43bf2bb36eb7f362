//! Tensors, and the table they are kept in.
//!
//! A [`Tensor`] owns nothing: its sources, its parameters and the names of unknown operations are in shared vectors
//! of its [`Tensors`], and its own name in [`Names`](crate::Names), so a table is cheap to copy and quick to walk.
//!
//! A [`TensorId`] remembers the table it comes from, so that a context or graph can refuse ids of another.

mod id;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use core::ops::{BitOr, BitOrAssign, Index, Range};

use steeve_plan::{Bytes, Id, IdVec};

use self::id::TableOrigins;
use crate::{Glu, GraphError, Layout, Op, OtherName, Param, Unary};

pub(crate) use id::ContextId;
pub use id::TensorId;

/// What a tensor is and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Type, shape and strides.
    pub layout: Layout,
    /// What makes it.
    pub op: Op,
    /// What it means to the caller.
    pub flags: Flags,
    /// Whether the caller provides its memory. Only roots are external; a view is where its root is.
    pub external: bool,
    /// The root whose memory it is a view of, if it owns none.
    pub view: Option<View>,
}

impl Tensor {
    /// Returns a tensor that no node computes and whose memory will be planned.
    pub const fn new(layout: Layout) -> Self {
        Self { layout, op: Op::None, flags: Flags::NONE, external: false, view: None }
    }

    /// Returns the bytes from its first to its last.
    pub const fn nbytes(&self) -> Bytes {
        self.layout.nbytes()
    }

    /// Returns whether it is a view of another tensor's memory.
    pub const fn is_view(&self) -> bool {
        self.view.is_some()
    }

    /// Returns whether the planner has to find memory for it.
    pub const fn is_planned(&self) -> bool {
        self.view.is_none() && !self.external
    }
}

/// Where in its root a view starts. A root is never a view itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The tensor that owns the memory.
    pub root: TensorId,
    /// How far from the root's start.
    pub offset: Bytes,
}

/// What a tensor means to the caller.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The caller writes it before a run.
    pub const INPUT: Self = Self(1);
    /// The caller reads it after a run.
    pub const OUTPUT: Self = Self(2);
    /// Training changes it.
    pub const PARAM: Self = Self(4);
    /// Training minimises it.
    pub const LOSS: Self = Self(8);

    /// Each flag with its name.
    pub const ALL: [(Self, &str); 4] =
        [(Self::INPUT, "input"), (Self::OUTPUT, "output"), (Self::PARAM, "param"), (Self::LOSS, "loss")];

    /// Returns the flags of ggml's number. Bits that say nothing about memory are dropped.
    pub const fn from_bits(bits: u64) -> Self {
        Self((bits & 15) as u8)
    }

    /// Returns ggml's number.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns whether it is an input.
    pub const fn is_input(self) -> bool {
        self.contains(Self::INPUT)
    }

    /// Returns whether it is an output.
    pub const fn is_output(self) -> bool {
        self.contains(Self::OUTPUT)
    }

    /// Returns whether it is a parameter.
    pub const fn is_param(self) -> bool {
        self.contains(Self::PARAM)
    }

    /// Returns the names of the flags that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Where the sources and parameters of a tensor start in the shared vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TensorSpans {
    sources: u32,
    params: u32,
}

/// A table of tensors with their sources and parameters.
///
/// ```
/// use steeve_graph::{DataType, Layout, Op, Tensor, Tensors, Unary};
/// let layout = Layout::contiguous(DataType::F32, &[8])?;
/// let mut tensors = Tensors::default();
/// let x = tensors.push(Tensor::new(layout), &[], &[])?;
/// let y = tensors.push(Tensor { op: Op::Unary(Unary::Neg), ..Tensor::new(layout) }, &[Some(x)], &[])?;
/// assert_eq!(tensors.sources(y), [Some(x)]);
/// assert_eq!(tensors.root(y), y);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Tensors {
    table: IdVec<TensorId, Tensor>,
    origins: TableOrigins,
    /// Where the spans of each tensor start; they end where the next one's start.
    spans: Vec<TensorSpans>,
    sources: Vec<Option<TensorId>>,
    params: Vec<Param>,
    others: IdVec<OtherName, Box<str>>,
    /// The ids of `others` by name.
    other_ids: BTreeMap<Box<str>, OtherName>,
    /// For each tensor the slots that it may overwrite beside those of its operation, one bit per slot. Ends with the last
    /// tensor that has some, so most tables have none.
    overwrites: Vec<u16>,
    /// By number and slot, how many bytes below a source the result of a tensor may start; see [`Graph::may_overlap`].
    overlaps: BTreeMap<(usize, usize), Bytes>,
    /// By number and slot, which sources of a tensor are results of the same call: the tensor's node computes them as well.
    own_results: BTreeSet<(usize, usize)>,
}

impl Tensors {
    /// Appends a tensor. Its sources and its root may be tensors that are yet to come: [`GraphParts`](crate::GraphParts)
    /// looks at the whole table in the end. A view is never external itself.
    pub fn push(
        &mut self,
        tensor: Tensor,
        sources: &[Option<TensorId>],
        params: &[Param],
    ) -> Result<TensorId, GraphError> {
        let too_many = GraphError::TooMany { tensors: self.table.len() };
        let (Ok(first_source), Ok(first_param)) = (u32::try_from(self.sources.len()), u32::try_from(self.params.len()))
        else {
            return Err(too_many);
        };
        let external = tensor.external && tensor.view.is_none();
        let id = self.table.push(Tensor { external, ..tensor }).ok_or(too_many)?;
        self.origins.append(id.index());
        let id = self.named(id);
        self.spans.push(TensorSpans { sources: first_source, params: first_param });
        self.sources.extend_from_slice(sources);
        self.params.extend_from_slice(params);
        Ok(id)
    }

    /// Reserves room for `tensors` more of them with `sources` slots in all.
    pub fn reserve(&mut self, tensors: usize, sources: usize) {
        self.spans.reserve(tensors);
        self.sources.reserve(sources);
    }

    /// Returns how many tensors there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Returns the ids in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = TensorId> + ExactSizeIterator {
        self.table.ids().map(|id| self.named(id))
    }

    /// Returns the tensors in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Tensor> {
        self.table.iter()
    }

    /// Returns ids and tensors in order.
    pub fn pairs(&self) -> impl DoubleEndedIterator<Item = (TensorId, &Tensor)> + ExactSizeIterator {
        self.ids().zip(self.table.iter())
    }

    /// Returns the tensor, or `None` for an id of another table.
    pub fn get(&self, id: TensorId) -> Option<&Tensor> {
        self.table.get(id).filter(|_| self.origins.of(id.index()).agrees(id.origin()))
    }

    /// Returns the tensor, or an error that says why this table has none of this id.
    pub fn find(&self, id: TensorId) -> Result<&Tensor, GraphError> {
        match self.get(id) {
            Some(tensor) => Ok(tensor),
            None if id.index() < self.len() => Err(GraphError::Foreign { tensor: id }),
            None => Err(GraphError::Unknown { tensor: id, tensors: self.len() }),
        }
    }

    /// Returns the tensor, or `None` if no tensor has this number: for lists that may name tensors of several graphs.
    ///
    /// # Errors
    ///
    /// If a tensor has this number, and the id comes from another context or graph.
    pub fn find_if_there(&self, id: TensorId) -> Result<Option<&Tensor>, GraphError> {
        if self.has_number(id) { self.find(id).map(Some) } else { Ok(None) }
    }

    /// Returns whether a tensor of this number is here, wherever the id comes from.
    pub(crate) fn has_number(&self, id: TensorId) -> bool {
        id.index() < self.len()
    }

    /// Returns the id of this table with the number of `id`.
    pub(crate) fn named(&self, id: TensorId) -> TensorId {
        id.with_origin(self.origins.of(id.index()))
    }

    /// Takes ids of every table by their numbers from now on, and gives out such ids.
    pub(crate) fn detach(&mut self) {
        self.origins = TableOrigins::Any;
    }

    /// Makes the sources of a tensor and the root of its view, which have been checked, ids of this table.
    pub(crate) fn adopt(&mut self, id: TensorId, view: Option<View>) {
        for index in self.span(id, |spans| spans.sources, self.sources.len()) {
            self.sources[index] = self.sources[index].map(|source| self.named(source));
        }
        self.table[id].view = view.map(|view| View { root: self.named(view.root), ..view });
    }

    /// Returns the sources in slot order; an empty slot keeps its place.
    ///
    /// # Panics
    ///
    /// For an id of another table, like an index.
    pub fn sources(&self, id: TensorId) -> &[Option<TensorId>] {
        &self.sources[self.span(id, |spans| spans.sources, self.sources.len())]
    }

    /// Returns the parameters of the operation; none where they are not known, as in recorded graphs.
    ///
    /// # Panics
    ///
    /// For an id of another table, like an index.
    pub fn params(&self, id: TensorId) -> &[Param] {
        &self.params[self.span(id, |spans| spans.params, self.params.len())]
    }

    fn span(&self, id: TensorId, start: impl Fn(&TensorSpans) -> u32, all: usize) -> Range<usize> {
        let end = self.spans.get(id.index() + 1).map_or(all, |next| start(next) as usize);
        start(&self.spans[id.index()]) as usize..end
    }

    /// Returns the tensor that owns the memory: itself, unless it is a view.
    pub fn root(&self, id: TensorId) -> TensorId {
        self.table[id].view.map_or(id, |view| view.root)
    }

    /// Returns where it starts, counted from the start of its root.
    pub fn offset(&self, id: TensorId) -> Bytes {
        self.table[id].view.map_or(Bytes::ZERO, |view| view.offset)
    }

    /// Returns whether its memory, or its root's, is the caller's.
    pub fn is_external(&self, id: TensorId) -> bool {
        self.table[self.root(id)].external
    }

    /// Returns ggml's name of the operation, also of one that is not in the table.
    pub fn op_name(&self, op: Op) -> &str {
        match op {
            Op::Other(name) => self.other(name),
            _ => op.name(),
        }
    }

    /// Returns ggml's name of the kind of an operation that has kinds.
    pub fn kind_name(&self, op: Op) -> Option<&str> {
        match op {
            Op::Unary(Unary::Other(name)) | Op::Glu(Glu::Other(name)) => Some(self.other(name)),
            Op::Unary(kind) => Some(kind.name()),
            Op::Glu(kind) => Some(kind.name()),
            _ => None,
        }
    }

    /// Returns the kind if there is one, else the operation: `SILU`, `MUL_MAT`.
    pub fn op_title(&self, op: Op) -> &str {
        self.kind_name(op).filter(|kind| !kind.is_empty()).unwrap_or_else(|| self.op_name(op))
    }

    fn other(&self, name: OtherName) -> &str {
        self.others.get(name).map_or("", |name| name)
    }

    /// Returns the operation with ggml's name and, for `UNARY` and `GLU`, its kind. What is not in the tables is kept
    /// by name.
    pub fn op(&mut self, name: &str, kind: Option<&str>) -> Result<Op, GraphError> {
        let kind = kind.unwrap_or("");
        Ok(match name {
            "UNARY" => Op::Unary(match Unary::from_name(kind) {
                Some(kind) => kind,
                None => Unary::Other(self.keep(kind)?),
            }),
            "GLU" => Op::Glu(match Glu::from_name(kind) {
                Some(kind) => kind,
                None => Glu::Other(self.keep(kind)?),
            }),
            _ => match Op::plain(name) {
                Some(op) => op,
                None => Op::Other(self.keep(name)?),
            },
        })
    }

    /// Keeps an operation by name, also where the tables have one of this name: the caller's operation is another one.
    pub(crate) fn other_op(&mut self, name: &str) -> Result<Op, GraphError> {
        Ok(Op::Other(self.keep(name)?))
    }

    /// Allows a tensor to overwrite its source in `slot`, whatever its operation. Slots above 15 are left alone: the planner
    /// does not look at them.
    pub(crate) fn permit_overwrite(&mut self, id: TensorId, slot: usize) {
        if slot >= u16::BITS as usize || !self.has_number(id) {
            return;
        }
        if self.overwrites.len() <= id.index() {
            self.overwrites.resize(id.index() + 1, 0);
        }
        self.overwrites[id.index()] |= 1 << slot;
    }

    /// Returns the slots that a tensor may overwrite beside those of its operation, one bit per slot.
    pub(crate) fn permitted_slots(&self, id: TensorId) -> u16 {
        self.overwrites.get(id.index()).copied().unwrap_or(0)
    }

    /// Allows the result of a tensor to start `distance` bytes or more below its source in `slot`. Slots above 15 are left
    /// alone: the planner does not look at them.
    pub(crate) fn permit_overlap(&mut self, id: TensorId, slot: usize, distance: Bytes) {
        if slot < u16::BITS as usize && self.has_number(id) {
            self.overlaps.insert((id.index(), slot), distance);
        }
    }

    /// Returns the slots whose sources the result of a tensor may overlap, and how many bytes below them it may start.
    pub(crate) fn permitted_overlaps(&self, id: TensorId) -> impl Iterator<Item = (usize, Bytes)> {
        let of_tensor = self.overlaps.range((id.index(), 0)..(id.index(), usize::MAX));
        of_tensor.map(|((_, slot), distance)| (*slot, *distance))
    }

    /// Returns how many bytes below its source in `slot` the result of a tensor may start.
    pub(crate) fn permitted_overlap(&self, id: TensorId, slot: usize) -> Option<Bytes> {
        self.overlaps.get(&(id.index(), slot)).copied()
    }

    /// Says that the source of a tensor in `slot` is a result of the same call: it has its bytes from its own place in the order
    /// on, and is written when the tensor is.
    pub(crate) fn mark_own_result(&mut self, id: TensorId, slot: usize) {
        if self.has_number(id) {
            self.own_results.insert((id.index(), slot));
        }
    }

    /// Returns the slots of a tensor whose sources are results of the same call.
    pub(crate) fn own_result_slots(&self, id: TensorId) -> impl Iterator<Item = usize> {
        self.own_results.range((id.index(), 0)..=(id.index(), usize::MAX)).map(|(_, slot)| *slot)
    }

    /// Returns the other results of the call that computes a tensor: nodes before it that have bytes of their own, and are written
    /// when the tensor is.
    ///
    /// # Panics
    ///
    /// For an id of another table, like an index.
    pub fn own_results(&self, id: TensorId) -> impl Iterator<Item = TensorId> {
        self.own_result_slots(id).filter_map(move |slot| self.sources(id).get(slot).copied().flatten())
    }

    fn keep(&mut self, name: &str) -> Result<OtherName, GraphError> {
        if let Some(known) = self.other_ids.get(name) {
            return Ok(*known);
        }
        let id = self.others.push(name.into()).ok_or(GraphError::TooMany { tensors: self.table.len() })?;
        self.other_ids.insert(name.into(), id);
        Ok(id)
    }

    pub(crate) fn sources_mut(&mut self, id: TensorId) -> &mut [Option<TensorId>] {
        let span = self.span(id, |spans| spans.sources, self.sources.len());
        &mut self.sources[span]
    }

    /// Returns the tensor to be changed, or an error that says why this table has none of this id.
    pub(crate) fn find_mut(&mut self, id: TensorId) -> Result<&mut Tensor, GraphError> {
        self.find(id)?;
        Ok(&mut self.table[id])
    }

    /// Keeps the first `tensors` only.
    pub(crate) fn truncate(&mut self, tensors: usize) {
        if let Some(&TensorSpans { sources, params }) = self.spans.get(tensors) {
            self.spans.truncate(tensors);
            self.sources.truncate(sources as usize);
            self.params.truncate(params as usize);
            self.overwrites.truncate(tensors);
            while self.overwrites.last() == Some(&0) {
                self.overwrites.pop();
            }
            drop(self.overlaps.split_off(&(tensors, 0)));
            drop(self.own_results.split_off(&(tensors, 0)));
            let mut table = core::mem::take(&mut self.table).into_vec();
            table.truncate(tensors);
            self.table = table.into();
            self.origins.close(tensors);
        }
    }

    /// Forgets all tensors and keeps the memory they stood in.
    pub(crate) fn clear(&mut self) {
        self.truncate(0);
        self.others = IdVec::new();
        self.other_ids.clear();
    }

    /// Returns whether the tensor of this number is equal in both, names of unknown operations included and flags
    /// not.
    pub(crate) fn same(&self, id: TensorId, other: &Self) -> bool {
        let (Some(a), Some(b)) = (self.table.get(id), other.table.get(id)) else { return false };
        (a.layout, a.view) == (b.layout, b.view)
            && (self.op_name(a.op), self.kind_name(a.op)) == (other.op_name(b.op), other.kind_name(b.op))
            && self.sources(id) == other.sources(id)
            && self.params(id) == other.params(id)
            && self.permitted_slots(id) == other.permitted_slots(id)
            && self.permitted_overlaps(id).eq(other.permitted_overlaps(id))
            && self.own_result_slots(id).eq(other.own_result_slots(id))
    }
}

/// What is appended to a clone is none of the other table's, so it has an origin of its own.
impl Clone for Tensors {
    fn clone(&self) -> Self {
        let mut origins = self.origins.clone();
        origins.close(self.len());
        Self {
            table: self.table.clone(),
            origins,
            spans: self.spans.clone(),
            sources: self.sources.clone(),
            params: self.params.clone(),
            others: self.others.clone(),
            other_ids: self.other_ids.clone(),
            overwrites: self.overwrites.clone(),
            own_results: self.own_results.clone(),
            overlaps: self.overlaps.clone(),
        }
    }
}

/// Does not ask where an id comes from; [`Tensors::get`] and [`Tensors::find`] do.
impl Index<TensorId> for Tensors {
    type Output = Tensor;

    fn index(&self, id: TensorId) -> &Tensor {
        &self.table[id]
    }
}

/// Equal tensors in equal order. How the shared vectors came about does not matter.
impl PartialEq for Tensors {
    fn eq(&self, other: &Self) -> bool {
        if self.others == other.others {
            // Unknown operations have equal numbers in both, so their names need not be compared.
            return self.table == other.table
                && self.spans == other.spans
                && self.sources == other.sources
                && self.params == other.params
                && self.overwrites == other.overwrites
                && self.overlaps == other.overlaps;
        }
        let marks = |tensor: &Tensor| (tensor.flags, tensor.external);
        self.len() == other.len() && self.ids().all(|id| self.same(id, other) && marks(&self[id]) == marks(&other[id]))
    }
}

impl Eq for Tensors {}
