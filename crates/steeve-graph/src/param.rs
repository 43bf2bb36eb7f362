//! The numbers an operation takes besides its sources.

use core::fmt;

/// One number: a scale, an axis, a stride.
///
/// Two parameters are equal if they are the same bits; all numbers that are none (NaN) count as one.
#[derive(Clone, Copy, Debug)]
pub enum Param {
    /// A count, an index or a choice.
    Int(i64),
    /// A real number.
    Float(f32),
}

impl Param {
    /// Returns a number of elements or bytes as a parameter. Larger ones than fit, which no tensor has, become the
    /// largest that does.
    pub(crate) fn count(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// Returns the number, if it is an integer.
    pub const fn int(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Float(_) => None,
        }
    }

    /// Returns the number as a real one.
    pub const fn float(self) -> f32 {
        match self {
            Self::Int(value) => value as f32,
            Self::Float(value) => value,
        }
    }

    const fn key(self) -> (bool, u64) {
        match self {
            Self::Int(value) => (false, value.cast_unsigned()),
            Self::Float(value) if value.is_nan() => (true, f32::NAN.to_bits() as u64),
            Self::Float(value) => (true, value.to_bits() as u64),
        }
    }
}

impl PartialEq for Param {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Param {}

impl core::hash::Hash for Param {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// An integer without, a real number with a point or an exponent, so that a reader can tell them apart.
impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
        }
    }
}

impl From<i64> for Param {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f32> for Param {
    fn from(value: f32) -> Self {
        Self::Float(value)
    }
}
