//! Writes flatbuffers from front to back: a table, then what it refers to. O(bytes).
//!
//! Offsets between tables point forward, so new tables that refer to those of an old file are located before it:
//!
//! ```text
//!   new file:  [root][TFL3][new tables ...][padding to 16] [the old file, byte for byte]
//!                               |-------------------------------> old tables
//! ```

use super::error::TfliteError;

/// What can be written.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Table(Vec<(u16, Value)>),
    /// A vector of bytes, of which the first is at a multiple of 16.
    Bytes(Vec<u8>),
    Ints(Vec<i32>),
    Longs(Vec<i64>),
    Tables(Vec<Item>),
    Text(String),
    /// Something in the old file, by its position there.
    Old(usize),
}

/// The field of a table.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Byte(u8),
    Int(u32),
    Long(u64),
    Ref(Item),
}

impl Value {
    const fn width(&self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Int(_) | Self::Ref(_) => 4,
            Self::Long(_) => 8,
        }
    }
}

/// The bytes that are before those of an old file.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// Offsets to something in the old file: where they are, and what they refer to.
    old: Vec<(usize, usize)>,
}

impl Writer {
    /// Writes a file with this root table, padded to a multiple of 16.
    pub(crate) fn write(root: &Item) -> Result<Self, TfliteError> {
        let mut writer = Self::default();
        writer.bytes.extend_from_slice(b"\0\0\0\0TFL3");
        writer.refer(0, root)?;
        writer.align(16, 0);
        Ok(writer)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the file: what was written, and the old file behind it.
    pub(crate) fn before(mut self, old: &[u8]) -> Result<Vec<u8>, TfliteError> {
        let start = self.bytes.len();
        for (at, target) in std::mem::take(&mut self.old) {
            self.set_offset(at, start + target)?;
        }
        self.bytes.extend_from_slice(old);
        Ok(self.bytes)
    }

    fn set_offset(&mut self, at: usize, target: usize) -> Result<(), TfliteError> {
        let by = u32::try_from(target - at).map_err(|_| TfliteError::FileSize { bytes: target as u64 })?;
        self.bytes[at..at + 4].copy_from_slice(&by.to_le_bytes());
        Ok(())
    }

    /// Adds zeros until the position `behind` bytes from here is a multiple of `align`.
    fn align(&mut self, align: usize, behind: usize) {
        let end = (self.bytes.len() + behind).next_multiple_of(align) - behind;
        self.bytes.resize(end, 0);
    }

    /// Writes an item, and its offset at `at`.
    fn refer(&mut self, at: usize, item: &Item) -> Result<(), TfliteError> {
        if let Item::Old(target) = item {
            self.old.push((at, *target));
            return Ok(());
        }
        let target = match item {
            Item::Table(fields) => return self.table(at, fields),
            Item::Old(_) => 0,
            Item::Bytes(bytes) => self.vector(16, bytes.len(), bytes),
            Item::Text(text) => {
                let start = self.vector(4, text.len(), text.as_bytes());
                self.bytes.push(0);
                start
            }
            Item::Ints(numbers) => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                self.vector(4, numbers.len(), &bytes)
            }
            Item::Longs(numbers) => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                self.vector(8, numbers.len(), &bytes)
            }
            Item::Tables(items) => {
                let start = self.vector(4, items.len(), &vec![0; 4 * items.len()]);
                for (index, item) in items.iter().enumerate() {
                    self.refer(start + 4 + 4 * index, item)?;
                }
                start
            }
        };
        self.set_offset(at, target)
    }

    fn vector(&mut self, align: usize, len: usize, bytes: &[u8]) -> usize {
        self.align(4, 0);
        self.align(align, 4);
        let start = self.bytes.len();
        // A length beyond 32 bits fails when the offset behind it is set.
        self.bytes.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
        start
    }

    fn table(&mut self, at: usize, fields: &[(u16, Value)]) -> Result<(), TfliteError> {
        let slots = fields.iter().map(|(slot, _)| slot + 1).max().unwrap_or(0);
        let mut places = vec![0u16; usize::from(slots)];
        let mut size = 4usize;
        for (slot, value) in fields {
            size = size.next_multiple_of(value.width());
            places[usize::from(*slot)] = u16::try_from(size).unwrap_or(u16::MAX);
            size += value.width();
        }
        let vtable_size = 4 + 2 * usize::from(slots);
        self.align(8, vtable_size);
        let vtable = self.bytes.len();
        let sizes = [vtable_size, size].map(|size| u16::try_from(size).unwrap_or(u16::MAX));
        for number in sizes.iter().chain(&places) {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        let table = self.bytes.len();
        self.bytes.extend_from_slice(&u32::try_from(table - vtable).unwrap_or(0).to_le_bytes());
        self.bytes.resize(table + size, 0);
        for (slot, value) in fields {
            let place = table + usize::from(places[usize::from(*slot)]);
            match value {
                Value::Byte(byte) => self.bytes[place] = *byte,
                Value::Int(number) => self.bytes[place..place + 4].copy_from_slice(&number.to_le_bytes()),
                Value::Long(number) => self.bytes[place..place + 8].copy_from_slice(&number.to_le_bytes()),
                Value::Ref(_) => {}
            }
        }
        self.set_offset(at, table)?;
        for (slot, value) in fields {
            if let Value::Ref(item) = value {
                self.refer(table + usize::from(places[usize::from(*slot)]), item)?;
            }
        }
        Ok(())
    }
}
