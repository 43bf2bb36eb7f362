//! The record of a plan in a TFLite file: read, and written.
//!
//! It is the buffer of the metadata `OfflineMemoryAllocation`: little-endian numbers of 32 bits.
//!
//! ```text
//!   [version] [subgraphs] [n] [offset of tensor 0] ... [offset of tensor n - 1]        -1: TensorFlow Lite Micro decides
//! ```
//!
//! The tensors of all subgraphs are numbered one after the other, the first subgraph's first. That is what the format says; but
//! the runtime looks up tensor `i` *of each subgraph* at position `i` of the record. [`HeadRecord::effective_offsets`]
//! is what the runtime does, and records made here are right by either reading.

use super::error::TfliteError;
use super::model::{Model, TensorIndex};
use super::sizes::{FlatIndex, HEAD_ALIGN};

/// The name of the metadata with the record.
pub(crate) const RECORD_NAME: &str = "OfflineMemoryAllocation";

/// Where a record places each tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRecord {
    /// The version; the runtime ignores it.
    pub version: i32,
    /// How many subgraphs the record says there are; the runtime ignores it.
    pub subgraphs: i32,
    /// The offset of each tensor in the head, in the order of [`Model::tensors`]. -1: the runtime decides.
    pub offsets: Vec<i32>,
}

impl HeadRecord {
    /// Creates the record of a plan: an offset for each tensor of all subgraphs, or `None` where the runtime decides.
    ///
    /// # Errors
    ///
    /// If there is not one offset per tensor, or one is not a multiple of 16 below 2^31.
    pub fn new(model: &Model, offsets: &[Option<u64>]) -> Result<Self, TfliteError> {
        let expected = model.tensor_count();
        if offsets.len() != expected {
            return Err(TfliteError::OffsetCount { expected, got: offsets.len() });
        }
        let number = |(tensor, offset): (TensorIndex, &Option<u64>)| match *offset {
            None => Ok(-1),
            Some(offset) if !offset.is_multiple_of(HEAD_ALIGN) => Err(TfliteError::Offset { tensor, offset }),
            Some(offset) => i32::try_from(offset).map_err(|_| TfliteError::Offset { tensor, offset }),
        };
        let offsets = model.tensors().zip(offsets).map(number).collect::<Result<_, _>>()?;
        Ok(Self { version: 1, subgraphs: i32::try_from(model.subgraphs.len()).unwrap_or(i32::MAX), offsets })
    }

    /// Reads the record of a model; `None` if it has none. Of several, the runtime uses the last.
    ///
    /// # Errors
    ///
    /// If the record is shorter than it says.
    pub fn of(model: &Model) -> Result<Option<Self>, TfliteError> {
        let Some(entry) = model.metadata.iter().rfind(|entry| entry.name == RECORD_NAME) else { return Ok(None) };
        let data = model.buffers.get(entry.buffer).and_then(|buffer| model.file.get(buffer.data.clone()?));
        Self::from_bytes(data.unwrap_or_default()).map(Some)
    }

    /// Reads a record from its bytes.
    fn from_bytes(bytes: &[u8]) -> Result<Self, TfliteError> {
        let short = |expected| TfliteError::RecordSize { bytes: bytes.len(), expected };
        let mut numbers = bytes.chunks_exact(4).filter_map(|it| it.try_into().ok()).map(i32::from_le_bytes);
        let (Some(version), Some(subgraphs), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return Err(short(12));
        };
        let count = usize::try_from(count.cast_unsigned()).unwrap_or(usize::MAX);
        let expected = count.saturating_mul(4).saturating_add(12);
        if bytes.len() < expected {
            return Err(short(expected));
        }
        Ok(Self { version, subgraphs, offsets: numbers.take(count).collect() })
    }

    /// Returns the bytes of the record.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let count = i32::try_from(self.offsets.len()).unwrap_or(i32::MAX);
        let head = [self.version, self.subgraphs, count];
        head.iter().chain(&self.offsets).flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Returns where the runtime takes each tensor to be, in the order of [`Model::tensors`]: the position in the record is the
    /// tensor's number in its own subgraph.
    ///
    /// # Errors
    ///
    /// If the record does not have one offset per tensor; the runtime does not load such a file.
    pub fn effective_offsets(&self, model: &Model) -> Result<Vec<Option<i64>>, TfliteError> {
        let expected = model.tensor_count();
        if self.offsets.len() != expected {
            return Err(TfliteError::OffsetCount { expected, got: self.offsets.len() });
        }
        let offset = |index: TensorIndex| self.offsets.get(index.tensor).copied();
        Ok(model.tensors().map(|index| offset(index).filter(|it| *it != -1).map(i64::from)).collect())
    }

    /// Returns where each tensor is if the record is read as its format says.
    pub(crate) fn documented_offsets(&self) -> Vec<Option<i64>> {
        self.offsets.iter().map(|it| Some(*it).filter(|it| *it != -1).map(i64::from)).collect()
    }
}

/// The positions of a record at which the same number must stand for both readings to agree. O(tensors).
#[derive(Clone, Debug)]
pub(crate) struct RecordClasses {
    /// By position: the first position of its class.
    pub(crate) first: Vec<usize>,
}

impl RecordClasses {
    /// Joins the position at which the runtime looks up a tensor with the one that the format gives it. `uses` says of which
    /// tensors the offset matters.
    pub(crate) fn new(model: &Model, uses: impl Fn(usize) -> bool) -> Self {
        let flat = FlatIndex::new(model);
        let mut first: Vec<usize> = (0..flat.len()).collect();
        for index in model.tensors().filter(|index| uses(flat.of(*index))) {
            let (a, b) = (find(&mut first, index.tensor), find(&mut first, flat.of(index)));
            first[a.max(b)] = a.min(b);
        }
        let first = (0..first.len()).map(|position| find(&mut first, position)).collect();
        Self { first }
    }
}

/// Finds the first position of a class, and shortens the way to it.
fn find(first: &mut [usize], mut position: usize) -> usize {
    while first[position] != position {
        first[position] = first[first[position]];
        position = first[position];
    }
    position
}
