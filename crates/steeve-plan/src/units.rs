//! Units that do not mix: bytes are not offsets, and neither is a step.
//!
//! Any `u64` is a valid [`Bytes`], [`Offset`] or [`Step`], so their field is public. [`Align`] and [`Lifetime`] have a
//! rule to keep and can only be made by a function that checks it.

use core::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name(pub u64);

        impl $name {
            /// Returns the plain number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                Self(value)
            }
        }
    };
}

unit! {
    /// A number of bytes.
    Bytes
}
unit! {
    /// Where in a buffer something starts, in bytes from its beginning.
    Offset
}
unit! {
    /// A point in time of the run, counted as the caller likes.
    Step
}

impl Bytes {
    /// No bytes at all.
    pub const ZERO: Self = Self(0);

    /// Returns the sum, or `None` beyond 2^64 - 1.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
}

impl Offset {
    /// Returns the offset just behind `bytes` that start here, or `None` beyond 2^64 - 1.
    pub fn checked_add(self, bytes: Bytes) -> Option<Self> {
        self.0.checked_add(bytes.0).map(Self)
    }
}

/// An alignment: a power of two, at least 1.
///
/// ```
/// use steeve_plan::{Align, Bytes};
/// let align = Align::new(32)?;
/// assert_eq!(align.round_up(Bytes(33)), Some(Bytes(64)));
/// assert!(Align::new(48).is_err());
/// # Ok::<(), steeve_plan::UnitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "u64", into = "u64"))]
pub struct Align {
    log2: u8,
}

impl Align {
    /// Every offset is aligned to 1.
    pub const ONE: Self = Self { log2: 0 };

    /// Creates an alignment. Fails unless `bytes` is a power of two.
    pub const fn new(bytes: u64) -> Result<Self, UnitError> {
        if bytes.is_power_of_two() {
            Ok(Self { log2: bytes.trailing_zeros() as u8 })
        } else {
            Err(UnitError::Align { bytes })
        }
    }

    /// Returns the alignment in bytes.
    pub const fn get(self) -> u64 {
        1 << self.log2
    }

    /// Returns the least multiple of the alignment that is not below `bytes`, or `None` beyond 2^64 - 1.
    pub fn round_up(self, bytes: Bytes) -> Option<Bytes> {
        let mask = self.get() - 1;
        bytes.0.checked_add(mask).map(|sum| Bytes(sum & !mask))
    }

    /// Returns whether `offset` is a multiple of the alignment.
    pub fn accepts(self, offset: Offset) -> bool {
        offset.0 & (self.get() - 1) == 0
    }
}

impl Default for Align {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Debug for Align {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Align({})", self.get())
    }
}

impl fmt::Display for Align {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.get(), f)
    }
}

impl TryFrom<u64> for Align {
    type Error = UnitError;

    fn try_from(bytes: u64) -> Result<Self, UnitError> {
        Self::new(bytes)
    }
}

impl From<Align> for u64 {
    fn from(align: Align) -> u64 {
        align.get()
    }
}

/// The steps at which something is needed: half-open, `[start, end)`, and never empty.
///
/// ```
/// use steeve_plan::Lifetime;
/// let first = Lifetime::new(0, 7)?;
/// let second = Lifetime::new(7, 9)?;
/// // What ends at 7 is out of the way of what starts at 7.
/// assert!(!first.overlaps(second));
/// assert!(Lifetime::new(3, 3).is_err());
/// # Ok::<(), steeve_plan::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "(u64, u64)", into = "(u64, u64)")
)]
pub struct Lifetime {
    start: Step,
    end: Step,
}

impl Lifetime {
    /// Creates a lifetime. Fails unless `start < end`.
    pub fn new(start: impl Into<Step>, end: impl Into<Step>) -> Result<Self, UnitError> {
        let (start, end) = (start.into(), end.into());
        if start < end { Ok(Self { start, end }) } else { Err(UnitError::Lifetime { start, end }) }
    }

    /// Returns the first step of the lifetime.
    pub const fn start(self) -> Step {
        self.start
    }

    /// Returns the first step after the lifetime.
    pub const fn end(self) -> Step {
        self.end
    }

    /// Returns whether there is a step within both lifetimes.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Returns whether `step` is within the lifetime.
    pub fn contains(self, step: Step) -> bool {
        self.start <= step && step < self.end
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

impl TryFrom<(u64, u64)> for Lifetime {
    type Error = UnitError;

    fn try_from((start, end): (u64, u64)) -> Result<Self, UnitError> {
        Self::new(start, end)
    }
}

impl From<Lifetime> for (u64, u64) {
    fn from(life: Lifetime) -> Self {
        (life.start.0, life.end.0)
    }
}

/// A number that can't be the unit it was meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// An alignment that is no power of two.
    #[error("alignment: not a power of two: {bytes}")]
    Align {
        /// The number that was given.
        bytes: u64,
    },
    /// A lifetime without a step in it.
    #[error("lifetime: empty: starts at step {start}, ends at step {end}")]
    Lifetime {
        /// The start that was given.
        start: Step,
        /// The end that was given.
        end: Step,
    },
}
