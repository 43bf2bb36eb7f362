//! Reads flatbuffers: tables, vectors and strings, by offsets that are checked one by one. O(what is read).
//!
//! ```text
//!   file:  [root][TFL3] ... [vtable: its bytes, table bytes, offset of slot 0, slot 1, ...] ... [table: -> vtable, fields]
//!                                   ^--------------------- signed, backwards ---------------------|
//! ```
//!
//! Invariant: nothing outside the file is read, and what a file makes its reader hold is linear in its length, also where
//! its tables and vectors point to each other's bytes over and over: at most about twenty times its length.

use std::cell::Cell;
use std::ops::Range;

use super::error::TfliteError;

/// A field of a table: its slot, and what errors call it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) slot: u16,
    pub(crate) name: &'static str,
}

impl Field {
    pub(crate) const fn new(slot: u16, name: &'static str) -> Self {
        Self { slot, name }
    }
}

/// A table whose vtable is inside the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) at: usize,
    vtable: usize,
    /// The bytes of the vtable, and of the fields that it describes.
    vtable_size: usize,
    size: usize,
}

impl Table {
    /// Returns how many slots the vtable has.
    pub(crate) fn slots(&self) -> u16 {
        u16::try_from(self.vtable_size.saturating_sub(4) / 2).unwrap_or(u16::MAX)
    }
}

/// A vector whose elements are inside the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector {
    /// Where the first element is.
    pub(crate) at: usize,
    pub(crate) len: usize,
    name: &'static str,
}

/// The bytes of a file, and how much may still be read from them.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    left: Cell<u64>,
}

/// What reading a table costs: about a fifth of what it takes in memory, and four times the least that a table of its own has in a
/// file, an offset to it and one to its vtable.
const TABLE_COST: u64 = 32;

impl<'a> Reader<'a> {
    /// Starts to read a file. What is read in all is at most four times its length: a file without shared parts takes less than
    /// once, and files share small vectors and strings.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, left: Cell::new((bytes.len() as u64).saturating_mul(4).saturating_add(1024)) }
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the table that the file starts with.
    pub(crate) fn root(&self) -> Result<Table, TfliteError> {
        self.follow_table(0, "Model")
    }

    pub(crate) fn spend(&self, cost: u64, field: &'static str) -> Result<(), TfliteError> {
        match self.left.get().checked_sub(cost) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(TfliteError::SharedTooOften { field, file: self.bytes.len() }),
        }
    }

    fn array<const N: usize>(&self, at: usize, field: &'static str) -> Result<[u8; N], TfliteError> {
        let end = at.checked_add(N);
        let range = end.and_then(|end| self.bytes.get(at..end));
        range.and_then(|range| range.try_into().ok()).ok_or_else(|| self.outside(at, N as u64, field))
    }

    fn outside(&self, at: usize, size: u64, field: &'static str) -> TfliteError {
        TfliteError::OutOfBounds { field, position: at as u64, size, file: self.bytes.len() }
    }

    pub(crate) fn u32_at(&self, at: usize, field: &'static str) -> Result<u32, TfliteError> {
        self.array(at, field).map(u32::from_le_bytes)
    }

    pub(crate) fn i32_at(&self, at: usize, field: &'static str) -> Result<i32, TfliteError> {
        self.array(at, field).map(i32::from_le_bytes)
    }

    fn u16_at(&self, at: usize, field: &'static str) -> Result<u16, TfliteError> {
        self.array(at, field).map(u16::from_le_bytes)
    }

    /// Returns where the offset at `at` points to.
    fn follow(&self, at: usize, field: &'static str) -> Result<usize, TfliteError> {
        let by = self.u32_at(at, field)?;
        usize::try_from(by).ok().and_then(|by| at.checked_add(by)).ok_or_else(|| self.outside(at, u64::from(by), field))
    }

    /// Returns where the offset at `at` points to, if that is inside the file.
    pub(crate) fn target(&self, at: usize, field: &'static str) -> Result<usize, TfliteError> {
        let target = self.follow(at, field)?;
        self.u32_at(target, field).map(|_| target)
    }

    pub(crate) fn follow_table(&self, at: usize, field: &'static str) -> Result<Table, TfliteError> {
        self.spend(TABLE_COST, field)?;
        let table = self.follow(at, field)?;
        let back = self.i32_at(table, field)?;
        let vtable = (table as i128) - i128::from(back);
        let vtable = usize::try_from(vtable).map_err(|_| self.outside(table, 4, field))?;
        let vtable_size = usize::from(self.u16_at(vtable, field)?);
        let size = usize::from(self.u16_at(vtable.saturating_add(2), field)?);
        let ends = |start: usize, size: usize| start.checked_add(size).is_some_and(|end| end <= self.bytes.len());
        if vtable_size < 4 || !ends(vtable, vtable_size) {
            return Err(self.outside(vtable, vtable_size as u64, field));
        }
        if size < 4 || !ends(table, size) {
            return Err(self.outside(table, size as u64, field));
        }
        Ok(Table { at: table, vtable, vtable_size, size })
    }

    /// Returns where a field is; `None` if the table has its default. `width` is the bytes that the field takes.
    pub(crate) fn place(&self, table: &Table, field: Field, width: usize) -> Result<Option<usize>, TfliteError> {
        let entry = 4 + 2 * usize::from(field.slot);
        if entry + 2 > table.vtable_size {
            return Ok(None);
        }
        let offset = usize::from(self.u16_at(table.vtable + entry, field.name)?);
        match offset {
            0 => Ok(None),
            offset if offset + width <= table.size => Ok(Some(table.at + offset)),
            offset => Err(self.outside(table.at + offset, width as u64, field.name)),
        }
    }

    fn scalar<const N: usize>(&self, table: &Table, field: Field) -> Result<Option<[u8; N]>, TfliteError> {
        self.place(table, field, N)?.map(|at| self.array(at, field.name)).transpose()
    }

    pub(crate) fn i8(&self, table: &Table, field: Field) -> Result<i8, TfliteError> {
        Ok(i8::from_le_bytes(self.scalar(table, field)?.unwrap_or_default()))
    }

    pub(crate) fn bool(&self, table: &Table, field: Field) -> Result<bool, TfliteError> {
        Ok(self.i8(table, field)? != 0)
    }

    pub(crate) fn i32(&self, table: &Table, field: Field, default: i32) -> Result<i32, TfliteError> {
        Ok(self.scalar(table, field)?.map_or(default, i32::from_le_bytes))
    }

    pub(crate) fn u32(&self, table: &Table, field: Field) -> Result<u32, TfliteError> {
        Ok(u32::from_le_bytes(self.scalar(table, field)?.unwrap_or_default()))
    }

    pub(crate) fn u64(&self, table: &Table, field: Field) -> Result<u64, TfliteError> {
        Ok(u64::from_le_bytes(self.scalar(table, field)?.unwrap_or_default()))
    }

    pub(crate) fn table(&self, table: &Table, field: Field) -> Result<Option<Table>, TfliteError> {
        self.place(table, field, 4)?.map(|at| self.follow_table(at, field.name)).transpose()
    }

    /// Returns the vector of a field; `width` is the bytes of an element.
    pub(crate) fn vector(&self, table: &Table, field: Field, width: usize) -> Result<Option<Vector>, TfliteError> {
        let Some(place) = self.place(table, field, 4)? else { return Ok(None) };
        let start = self.follow(place, field.name)?;
        let len = self.u32_at(start, field.name)?;
        let at = start + 4;
        let size = u64::from(len) * width as u64;
        match usize::try_from(len) {
            Ok(len) if size <= (self.bytes.len() - at) as u64 => Ok(Some(Vector { at, len, name: field.name })),
            _ => Err(self.outside(at, size, field.name)),
        }
    }

    /// Returns the tables of a vector; none if there is no vector.
    pub(crate) fn tables(&self, table: &Table, field: Field) -> Result<Vec<Table>, TfliteError> {
        let Some(vector) = self.vector(table, field, 4)? else { return Ok(Vec::new()) };
        (0..vector.len).map(|index| self.follow_table(vector.at + 4 * index, vector.name)).collect()
    }

    /// Returns the numbers of a vector; `None` if there is no vector.
    pub(crate) fn ints(&self, table: &Table, field: Field) -> Result<Option<Vec<i32>>, TfliteError> {
        let Some(vector) = self.vector(table, field, 4)? else { return Ok(None) };
        self.spend(4 * vector.len as u64, field.name)?;
        (0..vector.len).map(|index| self.i32_at(vector.at + 4 * index, vector.name)).collect::<Result<_, _>>().map(Some)
    }

    /// Returns where the bytes of a vector are; `None` if there is no vector.
    pub(crate) fn data(&self, table: &Table, field: Field) -> Result<Option<Range<usize>>, TfliteError> {
        let Some(vector) = self.vector(table, field, 1)? else { return Ok(None) };
        self.spend(vector.len as u64, field.name)?;
        Ok(Some(vector.at..vector.at + vector.len))
    }

    /// Returns a text, in which bytes that are not UTF-8 are replaced; empty if there is none.
    pub(crate) fn text(&self, table: &Table, field: Field) -> Result<String, TfliteError> {
        let Some(vector) = self.vector(table, field, 1)? else { return Ok(String::new()) };
        self.spend(vector.len as u64, field.name)?;
        Ok(String::from_utf8_lossy(&self.bytes[vector.at..vector.at + vector.len]).into_owned())
    }
}
