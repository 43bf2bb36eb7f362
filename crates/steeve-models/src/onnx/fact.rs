//! What is known of a value before the model runs: type, shape, and the elements where they are few.

use std::fmt;

use super::data_type::DataType;

/// A dimension, or `None` if it is not known.
pub(crate) type Dim = Option<u64>;

/// What is known of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fact {
    /// The type of its elements.
    pub(crate) data_type: DataType,
    /// `None` if not even the rank is known.
    pub(crate) shape: Option<Vec<Dim>>,
    /// The elements, if they are known and few.
    pub(crate) elements: Option<Elements>,
    /// What is in it, if it is a list of tensors.
    pub(crate) list: Option<ListFact>,
}

/// What is known of a list of tensors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ListFact {
    /// Each of its tensors.
    Items(Vec<Fact>),
    /// Not how many there are.
    Unknown,
}

/// The elements of a small tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    /// Whole numbers and truth values, those of 64 bits without a sign as their bits.
    Ints(Vec<i64>),
    /// Numbers, each rounded to the type of the tensor.
    Floats(Vec<f64>),
}

impl Elements {
    /// Returns whether so many elements of a type are kept. Shapes are computed from a few numbers; masks and positions are longer,
    /// and of more than these no shape depends.
    pub(crate) fn are_few(data_type: DataType, count: u64) -> bool {
        data_type.is_int() && count <= 1 << 16 || data_type.is_float() && count <= 1 << 10
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ints(ints) => ints.len(),
            Self::Floats(floats) => floats.len(),
        }
    }

    /// Returns the elements that bytes stand for, without those at the end that are incomplete.
    pub(crate) fn of_raw(data_type: DataType, raw: &[u8]) -> Self {
        macro_rules! ints {
            ($type:ty) => {
                Self::Ints(raw.as_chunks().0.iter().map(|it| i64::from(<$type>::from_le_bytes(*it))).collect())
            };
        }
        match data_type {
            DataType::FLOAT => {
                Self::Floats(raw.as_chunks().0.iter().map(|it| f64::from(f32::from_le_bytes(*it))).collect())
            }
            DataType::DOUBLE => Self::Floats(raw.as_chunks().0.iter().map(|it| f64::from_le_bytes(*it)).collect()),
            DataType::INT8 => ints!(i8),
            DataType::UINT8 | DataType::BOOL => ints!(u8),
            DataType::INT16 => ints!(i16),
            DataType::UINT16 => ints!(u16),
            DataType::INT32 => ints!(i32),
            DataType::UINT32 => ints!(u32),
            _ => ints!(i64),
        }
    }

    pub(crate) fn ints(&self) -> Option<&[i64]> {
        match self {
            Self::Ints(ints) => Some(ints),
            Self::Floats(_) => None,
        }
    }

    /// Returns an element as a number with a fraction.
    pub(crate) fn float(&self, index: usize) -> Option<f64> {
        match self {
            #[allow(clippy::cast_precision_loss, reason = "that is what the operation does")]
            Self::Ints(ints) => ints.get(index).map(|it| *it as f64),
            Self::Floats(floats) => floats.get(index).copied(),
        }
    }

    /// Returns the elements at these positions; `None` if there is no such one.
    pub(crate) fn pick(&self, positions: impl Iterator<Item = usize>) -> Option<Self> {
        match self {
            Self::Ints(ints) => positions.map(|at| ints.get(at).copied()).collect::<Option<_>>().map(Self::Ints),
            Self::Floats(floats) => {
                positions.map(|at| floats.get(at).copied()).collect::<Option<_>>().map(Self::Floats)
            }
        }
    }
}

impl Fact {
    pub(crate) fn new(data_type: DataType, shape: Vec<Dim>) -> Self {
        Self { data_type, shape: Some(shape), ..Self::default() }
    }

    /// Returns what is known of a result of which only the type may be.
    pub(crate) fn of_type(data_type: DataType) -> Self {
        Self { data_type, ..Self::default() }
    }

    pub(crate) fn known(data_type: DataType, shape: &[u64]) -> Self {
        Self::new(data_type, shape.iter().copied().map(Some).collect())
    }

    /// Returns the same without the elements.
    pub(crate) fn without_elements(&self) -> Self {
        Self { data_type: self.data_type, shape: self.shape.clone(), elements: None, list: self.list.clone() }
    }

    /// Returns the shape, if all of it is known.
    pub(crate) fn known_shape(&self) -> Option<Vec<u64>> {
        self.shape.as_ref()?.iter().copied().collect()
    }

    /// Returns how many elements it has; `None` if that is not known or can't be counted.
    pub(crate) fn count(&self) -> Option<u64> {
        count(self.shape.as_ref()?)
    }

    /// Returns its bytes; `None` if they are not known or can't be counted.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match &self.list {
            Some(ListFact::Items(items)) => items.iter().try_fold(0u64, |sum, item| sum.checked_add(item.bytes()?)),
            Some(ListFact::Unknown) => None,
            None => self.data_type.bytes(self.count()?),
        }
    }

    /// Returns whether type and shape are known.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.list {
            Some(ListFact::Items(items)) => items.iter().all(Self::is_complete),
            Some(ListFact::Unknown) => false,
            None => self.data_type.is_known() && self.shape.as_ref().is_some_and(|it| it.iter().all(Option::is_some)),
        }
    }
}

/// Returns how many elements a shape has. One dimension of none is enough for none, also beside dimensions that are not known.
pub(crate) fn count(shape: &[Dim]) -> Option<u64> {
    if shape.contains(&Some(0)) {
        return Some(0);
    }
    shape.iter().try_fold(1u64, |count, dim| count.checked_mul((*dim)?))
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(list) = &self.list {
            return match list {
                ListFact::Items(items) => write!(f, "list of {} tensors", items.len()),
                ListFact::Unknown => f.write_str("list of tensors, how many is not known"),
            };
        }
        match self.data_type.is_known() {
            true => write!(f, "{}", self.data_type)?,
            false => f.write_str("?")?,
        }
        match &self.shape {
            None => f.write_str("[...]"),
            Some(shape) => {
                let dims: Vec<String> = shape.iter().map(|it| it.map_or("?".to_owned(), |it| it.to_string())).collect();
                write!(f, "[{}]", dims.join(","))
            }
        }
    }
}
