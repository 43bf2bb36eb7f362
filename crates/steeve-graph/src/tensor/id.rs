//! Ids of tensors, and the tables they come from.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering as AtomicOrdering};

use steeve_plan::Id;

/// A tensor of a [`Context`](crate::Context), and of the graphs made from it.
///
/// It is a number, and it remembers where it comes from: a context, graph or allocation refuses the id of another one, and
/// one from before a [`rewind`](crate::Context::rewind), although it has a tensor of that number. Two ids are equal if their
/// numbers are: graphs of different contexts share plans by equal ids. An id that is made
/// [from an index](steeve_plan::Id::from_index) comes from nowhere in particular and is accepted everywhere.
///
/// ```
/// use steeve_graph::{Context, DataType, GraphError};
/// let (mut one, mut other) = (Context::new(), Context::new());
/// let x = one.input(DataType::F32, &[4])?;
/// let y = other.input(DataType::F32, &[4])?;
/// assert_eq!(x, y);
/// assert!(matches!(one.neg(y), Err(GraphError::Foreign { .. })));
/// # Ok::<(), GraphError>(())
/// ```
#[derive(Clone, Copy)]
pub struct TensorId {
    number: NonZeroU32,
    origin: TableOrigin,
}

impl Id for TensorId {
    fn from_index(index: usize) -> Option<Self> {
        if index >= u32::MAX as usize {
            return None;
        }
        NonZeroU32::new(index as u32 + 1).map(|number| Self { number, origin: TableOrigin::ANY })
    }

    fn index(self) -> usize {
        self.number.get() as usize - 1
    }
}

impl PartialEq for TensorId {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for TensorId {}

impl PartialOrd for TensorId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TensorId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl Hash for TensorId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl fmt::Display for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.index(), f)
    }
}

impl fmt::Debug for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorId({})", self.index())
    }
}

impl TensorId {
    /// Returns whether it comes from a particular context or graph, and not from a number alone.
    pub fn has_origin(self) -> bool {
        self.origin != TableOrigin::ANY
    }

    /// Returns whether both ids name one tensor: equal numbers, and no different origins.
    pub fn is_same(self, other: Self) -> bool {
        self == other && self.origin.agrees(other.origin)
    }

    pub(super) fn origin(self) -> TableOrigin {
        self.origin
    }

    /// Returns the tensor of this number in the table that has this origin.
    pub(super) fn with_origin(self, origin: TableOrigin) -> Self {
        Self { origin, ..self }
    }
}

/// A context, as its marks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContextId(TableOrigin);

/// A new one each time.
impl Default for ContextId {
    fn default() -> Self {
        Self(TableOrigin::new())
    }
}

/// The section of a table that an id comes from. Every table that tensors are appended to has origins of its own,
/// also one that was cloned or cut off: so two tensors of one number never have one origin, until 2^32 of them are in
/// use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableOrigin(u32);

impl TableOrigin {
    /// Of an id that was made from a number, and of a table that takes such ids only.
    const ANY: Self = Self(0);

    /// Returns an origin that no other table has.
    fn new() -> Self {
        // The only thing it is used for is being different, so no other memory need be seen in any order.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, AtomicOrdering::Relaxed).max(1))
    }

    pub(super) fn agrees(self, other: Self) -> bool {
        self == other || self == Self::ANY || other == Self::ANY
    }
}

/// Where the tensors of a table come from.
#[derive(Clone, Debug)]
pub(super) enum TableOrigins {
    /// Nowhere in particular: ids are taken by their numbers.
    Any,
    /// The origin of each stretch, with the index at which it starts.
    Sections {
        list: Vec<(u32, TableOrigin)>,
        /// Whether the next tensor belongs to the last one.
        is_open: bool,
    },
}

impl Default for TableOrigins {
    fn default() -> Self {
        Self::Sections { list: Vec::new(), is_open: false }
    }
}

impl TableOrigins {
    pub(super) fn of(&self, index: usize) -> TableOrigin {
        let Self::Sections { list, .. } = self else { return TableOrigin::ANY };
        // Most tables have one stretch or two, and most questions are about the last.
        let section = list.iter().rev().find(|(start, _)| *start as usize <= index);
        section.map_or(TableOrigin::ANY, |(_, origin)| *origin)
    }

    /// Notes that a tensor is appended at `index`.
    pub(super) fn append(&mut self, index: usize) {
        if let Self::Sections { list, is_open } = self
            && !core::mem::replace(is_open, true)
        {
            list.push((index as u32, TableOrigin::new()));
        }
    }

    /// Gives what is appended from now on an origin of its own; only the first `tensors` are still there.
    pub(super) fn close(&mut self, tensors: usize) {
        if let Self::Sections { list, is_open } = self {
            list.retain(|(start, _)| (*start as usize) < tensors);
            *is_open = false;
        }
    }
}
