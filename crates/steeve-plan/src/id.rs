//! Typed ids, and vectors that only the right kind of id indexes.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

/// A position in an [`IdVec`]. Made by [`id_type!`](crate::id_type).
pub trait Id: Copy + Eq + Ord + fmt::Debug + fmt::Display {
    /// Returns the id at `index`, or `None` where an id can't count that far.
    fn from_index(index: usize) -> Option<Self>;

    /// Returns the position, from 0.
    fn index(self) -> usize;
}

/// Defines an id type of four bytes; an `Option` of it takes four bytes too.
///
/// ```
/// steeve_plan::id_type! {
///     /// A chapter of a book.
///     pub struct ChapterId;
/// }
/// use steeve_plan::Id;
/// let third = ChapterId::from_index(2).unwrap();
/// assert_eq!(third.index(), 2);
/// assert_eq!(size_of::<Option<ChapterId>>(), 4);
/// ```
#[macro_export]
macro_rules! id_type {
    ($(#[$doc:meta])* $vis:vis struct $name:ident;) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(::core::num::NonZeroU32);

        impl $crate::Id for $name {
            fn from_index(index: usize) -> Option<Self> {
                if index >= u32::MAX as usize {
                    return None;
                }
                ::core::num::NonZeroU32::new(index as u32 + 1).map(Self)
            }

            fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(&$crate::Id::index(*self), f)
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, "{}({})", stringify!($name), $crate::Id::index(*self))
            }
        }
    };
}

id_type! {
    /// A block of a [`Problem`](crate::Problem).
    pub struct BlockId;
}

id_type! {
    /// A buffer: one piece of memory, in which offsets count from 0.
    pub struct BufferId;
}

impl BlockId {
    /// The first block.
    pub const FIRST: Self = Self(core::num::NonZeroU32::MIN);
}

impl BufferId {
    /// The first buffer. Without a limit on the size of a buffer it is the only one.
    pub const FIRST: Self = Self(core::num::NonZeroU32::MIN);
}

#[cfg(feature = "serde")]
mod as_index {
    use super::{BlockId, BufferId, Id};

    macro_rules! as_index {
        ($name:ident) => {
            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    to.serialize_u64(self.index() as u64)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    let index = usize::deserialize(from)?;
                    Self::from_index(index)
                        .ok_or_else(|| serde::de::Error::custom(format_args!("{index} is too large for an id")))
                }
            }
        };
    }
    as_index!(BlockId);
    as_index!(BufferId);
}

/// A vector whose index is one kind of id.
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent, bound(serialize = "T: serde::Serialize", deserialize = "T: serde::Deserialize<'de>"))
)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    #[cfg_attr(feature = "serde", serde(skip))]
    ids: PhantomData<fn(I) -> I>,
}

impl<I: Id, T> IdVec<I, T> {
    /// Creates an empty vector.
    pub const fn new() -> Self {
        Self { items: Vec::new(), ids: PhantomData }
    }

    /// Appends an item and returns its id. Returns `None`, and changes nothing, where ids can't count that far.
    pub fn push(&mut self, item: T) -> Option<I> {
        let id = I::from_index(self.items.len())?;
        self.items.push(item);
        Some(id)
    }

    /// Returns how many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the item, or `None` for an id of another, longer vector.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// Returns the ids in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        // `push` builds no vector that is longer than ids can count. One made from a `Vec` may be; code that takes such
        // a vector from a caller checks its length first, as `Problem` does.
        (0..self.items.len()).map(|index| match I::from_index(index) {
            Some(id) => id,
            None => unreachable!("an IdVec is no longer than its ids can count"),
        })
    }

    /// Returns the items in order.
    pub fn iter(&self) -> core::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// Returns ids and items in order.
    pub fn pairs(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.ids().zip(self.items.iter())
    }

    /// Returns the items without their ids.
    pub fn as_slice(&self) -> &[T] {
        &self.items
    }

    /// Returns the plain vector.
    pub fn into_vec(self) -> Vec<T> {
        self.items
    }
}

impl<I: Id, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I, T> From<Vec<T>> for IdVec<I, T> {
    fn from(items: Vec<T>) -> Self {
        Self { items, ids: PhantomData }
    }
}

impl<I: Id, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(items: A) -> Self {
        Self::from(items.into_iter().collect::<Vec<_>>())
    }
}

impl<'a, I: Id, T> IntoIterator for &'a IdVec<I, T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

impl<I, T: fmt::Debug> fmt::Debug for IdVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.items, f)
    }
}
