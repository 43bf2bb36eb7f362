//! Reads protobuf messages: fields one by one, each checked to be inside its message. O(what is read).
//!
//! ```text
//!   message:  [tag: number, kind][value] [tag][length][bytes ...] ...
//! ```
//!
//! Invariant: nothing outside the message is read, nothing is copied, and no byte is read as part of two fields, so what a
//! file makes its reader hold is linear in its length.

use super::error::OnnxError;

/// How deep messages may be nested, as in the readers that Google distributes: a file that is deeper is not read anywhere, and
/// this reader follows messages by recursion.
const MOST_NESTED: usize = 100;

/// The bytes of a message, with its place in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    bytes: &'a [u8],
    /// Where in the file it starts.
    start: usize,
    /// The bytes of the file.
    file: usize,
    depth: usize,
    name: &'static str,
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldValue<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(Message<'a>),
    Fixed32([u8; 4]),
}

impl<'a> Message<'a> {
    /// Returns a whole file as one message.
    pub(crate) fn of_file(bytes: &'a [u8], name: &'static str) -> Self {
        Self { bytes, start: 0, file: bytes.len(), depth: 0, name }
    }

    pub(crate) fn fields(&self) -> Fields<'a> {
        Fields { message: *self, at: 0 }
    }

    /// Returns these bytes as a message inside another, under a name.
    pub(crate) fn inner(self, name: &'static str) -> Result<Self, OnnxError> {
        match self.depth + 1 {
            depth if depth > MOST_NESTED => {
                Err(OnnxError::Nested { field: name, position: self.start, most: MOST_NESTED })
            }
            depth => Ok(Self { depth, name, ..self }),
        }
    }

    fn damaged(&self, at: usize, what: &'static str) -> OnnxError {
        OnnxError::Damaged { field: self.name, what, position: self.start + at, file: self.file }
    }

    fn varint(&self, at: &mut usize) -> Result<u64, OnnxError> {
        let start = *at;
        let mut number = 0u64;
        for shift in (0..70).step_by(7) {
            let Some(byte) = self.bytes.get(*at) else { return Err(self.damaged(start, "a number ends too early")) };
            *at += 1;
            // Of the tenth byte only one bit counts.
            number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.damaged(start, "a number of more than ten bytes"))
    }

    fn array<const N: usize>(&self, at: &mut usize) -> Result<[u8; N], OnnxError> {
        let found = self.bytes.get(*at..).and_then(|rest| rest.first_chunk());
        let found = found.ok_or_else(|| self.damaged(*at, "a number ends too early"))?;
        *at += N;
        Ok(*found)
    }
}

/// The fields of a message, in the order of the file.
pub(crate) struct Fields<'a> {
    message: Message<'a>,
    at: usize,
}

impl<'a> Fields<'a> {
    /// Returns the next field: its number and its value.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, FieldValue<'a>)>, OnnxError> {
        let message = self.message;
        if self.at >= message.bytes.len() {
            return Ok(None);
        }
        let start = self.at;
        let tag = message.varint(&mut self.at)?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| message.damaged(start, "a field without a number"))?;
        let value = match tag & 7 {
            0 => FieldValue::Varint(message.varint(&mut self.at)?),
            1 => FieldValue::Fixed64(message.array(&mut self.at)?),
            2 => {
                let length = message.varint(&mut self.at)?;
                let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
                let bytes = end.and_then(|end| message.bytes.get(self.at..end));
                let bytes = bytes.ok_or_else(|| message.damaged(start, "a field that ends outside its message"))?;
                let inner = Message { bytes, start: message.start + self.at, ..message };
                self.at += bytes.len();
                FieldValue::Bytes(inner)
            }
            5 => FieldValue::Fixed32(message.array(&mut self.at)?),
            _ => return Err(message.damaged(start, "a field of an unknown kind")),
        };
        Ok(Some((number, value)))
    }
}

impl<'a> FieldValue<'a> {
    /// Returns the number; 0 for a field of another kind, which readers of the format skip.
    pub(crate) fn int(self) -> i64 {
        match self {
            Self::Varint(number) => number.cast_signed(),
            _ => 0,
        }
    }

    pub(crate) fn float(self) -> f32 {
        match self {
            Self::Fixed32(bytes) => f32::from_le_bytes(bytes),
            _ => 0.0,
        }
    }

    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(message) => Some(message.bytes),
            _ => None,
        }
    }

    /// Returns a text, in which bytes that are not UTF-8 are replaced.
    pub(crate) fn text(self) -> String {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }

    /// Returns the message under a name; `None` for a field of another kind.
    pub(crate) fn message(self, name: &'static str) -> Result<Option<Message<'a>>, OnnxError> {
        match self {
            Self::Bytes(message) => message.inner(name).map(Some),
            _ => Ok(None),
        }
    }

    /// Hands out the numbers of a repeated field: one, or several that are packed.
    pub(crate) fn ints(self, mut take: impl FnMut(i64)) -> Result<(), OnnxError> {
        match self {
            Self::Varint(number) => take(number.cast_signed()),
            Self::Bytes(packed) => {
                let mut at = 0;
                while at < packed.bytes.len() {
                    take(packed.varint(&mut at)?.cast_signed());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Hands out the numbers of a repeated field: one, or several that are packed.
    pub(crate) fn floats(self, mut take: impl FnMut(f32)) {
        match self {
            Self::Fixed32(bytes) => take(f32::from_le_bytes(bytes)),
            Self::Bytes(packed) => packed.bytes.as_chunks().0.iter().for_each(|bytes| take(f32::from_le_bytes(*bytes))),
            _ => {}
        }
    }

    /// Hands out the numbers of a repeated field: one, or several that are packed.
    pub(crate) fn doubles(self, mut take: impl FnMut(f64)) {
        match self {
            Self::Fixed64(bytes) => take(f64::from_le_bytes(bytes)),
            Self::Bytes(packed) => packed.bytes.as_chunks().0.iter().for_each(|bytes| take(f64::from_le_bytes(*bytes))),
            _ => {}
        }
    }
}
