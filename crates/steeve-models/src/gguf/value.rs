//! The values of a header: numbers, texts, and arrays of them.

use std::fmt;

/// The type of a value, as files number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A number of 8 bits.
    U8,
    /// A number of 8 bits with a sign.
    I8,
    /// A number of 16 bits.
    U16,
    /// A number of 16 bits with a sign.
    I16,
    /// A number of 32 bits.
    U32,
    /// A number of 32 bits with a sign.
    I32,
    /// A fraction of 32 bits.
    F32,
    /// A byte that is zero or not.
    Bool,
    /// A number of 64 bits.
    U64,
    /// A number of 64 bits with a sign.
    I64,
    /// A fraction of 64 bits.
    F64,
}

/// The number of the type of texts.
pub(super) const TEXT: u32 = 8;
/// The number of the type of arrays.
pub(super) const ARRAY: u32 = 9;

impl ValueKind {
    const ALL: [(u32, Self, usize); 11] = [
        (0, Self::U8, 1),
        (1, Self::I8, 1),
        (2, Self::U16, 2),
        (3, Self::I16, 2),
        (4, Self::U32, 4),
        (5, Self::I32, 4),
        (6, Self::F32, 4),
        (7, Self::Bool, 1),
        (10, Self::U64, 8),
        (11, Self::I64, 8),
        (12, Self::F64, 8),
    ];

    /// Returns the kind with this number in files; `None` for texts, arrays and unknown ones.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().find(|entry| entry.0 == number).map(|entry| entry.1)
    }

    /// Returns its number in files.
    pub fn number(self) -> u32 {
        self.entry().0
    }

    /// Returns the bytes of one value.
    pub fn width(self) -> usize {
        self.entry().2
    }

    fn entry(self) -> (u32, Self, usize) {
        Self::ALL.into_iter().find(|entry| entry.1 == self).unwrap_or((7, Self::Bool, 1))
    }

    /// Returns the value of these little-endian bytes, of which there are as many as it has.
    fn value(self, bytes: &[u8]) -> GgufValue {
        let mut wide = [0; 8];
        wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let bits = u64::from_le_bytes(wide);
        // Signs are those of the narrow numbers, so they are cut to their bits first.
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => GgufValue::Unsigned(bits),
            Self::I8 => GgufValue::Signed((bits as u8).cast_signed().into()),
            Self::I16 => GgufValue::Signed((bits as u16).cast_signed().into()),
            Self::I32 => GgufValue::Signed((bits as u32).cast_signed().into()),
            Self::I64 => GgufValue::Signed(bits.cast_signed()),
            Self::F32 => GgufValue::Float(f32::from_bits(bits as u32).into()),
            Self::F64 => GgufValue::Float(f64::from_bits(bits)),
            Self::Bool => GgufValue::Bool(bits != 0),
        }
    }
}

/// A value of a header. Numbers are as wide as they get; a file says how wide they are in it.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    /// A number without a sign.
    Unsigned(u64),
    /// A number with a sign.
    Signed(i64),
    /// A fraction.
    Float(f64),
    /// Yes or no.
    Bool(bool),
    /// A text.
    Text(String),
    /// Many numbers of one kind.
    Numbers(GgufNumbers),
    /// Many texts.
    Texts(GgufTexts),
}

impl GgufValue {
    /// Returns the value of these little-endian bytes.
    pub(super) fn of_bytes(kind: ValueKind, bytes: &[u8]) -> Self {
        kind.value(bytes)
    }

    /// Returns a number that is zero or above.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(number) => Some(number),
            Self::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// Returns a number or a fraction.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::Float(number) => Some(number as f32),
            Self::Unsigned(number) => Some(number as f32),
            Self::Signed(number) => Some(number as f32),
            _ => None,
        }
    }

    /// Returns a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Shows single values whole, and how many there are of an array.
impl fmt::Display for GgufValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Numbers(numbers) => write!(f, "{} numbers", numbers.len()),
            Self::Texts(texts) => write!(f, "{} texts", texts.len()),
        }
    }
}

/// Numbers of one kind, as in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufNumbers {
    kind: ValueKind,
    bytes: Vec<u8>,
}

impl GgufNumbers {
    pub(super) fn new(kind: ValueKind, bytes: Vec<u8>) -> Self {
        Self { kind, bytes }
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.kind.width()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns them one by one.
    pub fn iter(&self) -> impl Iterator<Item = GgufValue> {
        self.bytes.chunks_exact(self.kind.width()).map(|bytes| self.kind.value(bytes))
    }
}

/// Texts one behind another. A vocabulary has many short ones, and an allocation for each would take more than they do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GgufTexts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl GgufTexts {
    pub(super) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes of a text, which need not be UTF-8; `None` if there are not so many.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.bytes.get(start..end)
    }
}
