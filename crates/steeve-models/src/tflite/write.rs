//! A model and a record in, the file with the record out. O(file).
//!
//! Where the file has a record of the same length, only its bytes change. Otherwise a new root table, with new vectors of buffers
//! and metadata, is located before the old bytes, which stay what they are but for offsets that count from the start of the
//! file. What is written is read again and compared before it is returned.

use std::collections::BTreeSet;
use std::ops::Range;

use super::error::TfliteError;
use super::flatbuffer::{Field, Reader, Table};
use super::model::{Model, field};
use super::record::{HeadRecord, RECORD_NAME};
use super::writer::{Item, Value, Writer};

/// The fields of the root table that refer to something, as far as they are known.
const ROOT_REFS: Range<u16> = 1..10;

impl Model {
    /// Returns the file with this record in it, instead of any record that it has. Everything else stays as it is.
    ///
    /// Writing the same record twice gives the same bytes.
    ///
    /// # Errors
    ///
    /// If the record has another number of tensors, the file has parts that are not known, or its parts share bytes.
    pub fn with_record(&self, record: &HeadRecord) -> Result<Vec<u8>, TfliteError> {
        let expected = self.tensor_count();
        if record.offsets.len() != expected {
            return Err(TfliteError::OffsetCount { expected, got: record.offsets.len() });
        }
        let data = record.to_bytes();
        let old = self.own_record_buffer();
        let room = old.map(|number| &self.buffers[number]).filter(|buffer| buffer.offset <= 1);
        let room = room.and_then(|buffer| buffer.data.clone()).filter(|room| room.len() == data.len());
        let file = match room {
            Some(room) => {
                let mut file = self.file.clone();
                file[room].copy_from_slice(&data);
                file
            }
            None => self.with_new_root(&data, old)?,
        };
        let written = Self::read(file).map_err(|_| TfliteError::SharedBytes)?;
        if HeadRecord::of(&written)?.as_ref() != Some(record) || !self.is_same_but_record(&written, old) {
            return Err(TfliteError::SharedBytes);
        }
        Ok(written.file)
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.file
    }

    /// Returns the buffer of the only record, if nothing else uses it.
    fn own_record_buffer(&self) -> Option<usize> {
        let mut records = self.metadata.iter().filter(|entry| entry.name == RECORD_NAME);
        let (Some(record), None) = (records.next(), records.next()) else { return None };
        let users = self.metadata.iter().filter(|entry| entry.buffer == record.buffer).count();
        let mut tensors = self.subgraphs.iter().flat_map(|subgraph| &subgraph.tensors);
        let is_own = users == 1 && record.buffer != 0 && !tensors.any(|tensor| tensor.buffer == record.buffer);
        is_own.then_some(record.buffer)
    }

    fn with_new_root(&self, data: &[u8], old: Option<usize>) -> Result<Vec<u8>, TfliteError> {
        let reader = Reader::new(&self.file);
        let root = reader.root()?;
        let mut fields = vec![(0, Value::Int(self.version))];
        for slot in ROOT_REFS {
            let known = Field::new(slot, "Model");
            let Some(place) = reader.place(&root, known, 4)? else { continue };
            if slot != field::BUFFERS.slot && slot != field::METADATA.slot {
                fields.push((slot, Value::Ref(Item::Old(reader.target(place, "Model")?))));
            }
        }
        for slot in ROOT_REFS.end..root.slots() {
            if reader.place(&root, Field::new(slot, "Model"), 1)?.is_some() {
                return Err(TfliteError::UnknownField { field: format!("field {slot} of Model") });
            }
        }
        let mut buffers = old_tables(&reader, &root, field::BUFFERS)?;
        let number = old.unwrap_or(buffers.len());
        let buffer = Item::Table(vec![(0, Value::Ref(Item::Bytes(data.to_vec())))]);
        match buffers.get_mut(number) {
            Some(place) => *place = buffer,
            None => buffers.push(buffer),
        }
        let metadata = old_tables(&reader, &root, field::METADATA)?.into_iter().zip(&self.metadata);
        let mut metadata: Vec<_> =
            metadata.filter(|(_, entry)| entry.name != RECORD_NAME).map(|(item, _)| item).collect();
        metadata.push(Item::Table(vec![
            (0, Value::Ref(Item::Text(RECORD_NAME.into()))),
            (1, Value::Int(u32::try_from(number).unwrap_or(u32::MAX))),
        ]));
        fields.push((field::BUFFERS.slot, Value::Ref(Item::Tables(buffers))));
        fields.push((field::METADATA.slot, Value::Ref(Item::Tables(metadata))));
        let writer = Writer::write(&Item::Table(fields))?;
        let shift = writer.len();
        let mut file = writer.before(&self.file)?;
        for place in absolute_offsets(&reader, &root)? {
            move_by(&mut file[shift + place..shift + place + 8], shift as u64)?;
        }
        Ok(file)
    }

    /// Returns whether a file has everything that this one has, apart from the record.
    fn is_same_but_record(&self, other: &Self, record: Option<usize>) -> bool {
        let rest = |model: &Self| {
            let entries = model.metadata.iter().filter(|entry| entry.name != RECORD_NAME).cloned();
            entries.collect::<Vec<_>>()
        };
        fn data(model: &Model, number: usize) -> Option<&[u8]> {
            model.buffers.get(number)?.data.clone().map(|range| &model.file[range])
        }
        self.version == other.version
            && self.description == other.description
            && self.operator_codes == other.operator_codes
            && self.subgraphs == other.subgraphs
            && rest(self) == rest(other)
            && (0..self.buffers.len()).all(|number| Some(number) == record || data(self, number) == data(other, number))
    }
}

/// Returns the tables of a vector as parts of the old file.
fn old_tables(reader: &Reader<'_>, root: &Table, field: Field) -> Result<Vec<Item>, TfliteError> {
    Ok(reader.tables(root, field)?.iter().map(|table| Item::Old(table.at)).collect())
}

/// Returns where the file has offsets that count from its start: those of data behind all tables.
fn absolute_offsets(reader: &Reader<'_>, root: &Table) -> Result<BTreeSet<usize>, TfliteError> {
    let mut places = BTreeSet::new();
    for buffer in reader.tables(root, field::BUFFERS)? {
        if reader.u64(&buffer, field::OFFSET)? > 1 {
            places.extend(reader.place(&buffer, field::OFFSET, 8)?);
        }
    }
    for subgraph in reader.tables(root, field::SUBGRAPHS)? {
        for operator in reader.tables(&subgraph, field::OPERATORS)? {
            if reader.u64(&operator, field::CUSTOM_OPTIONS_OFFSET)? > 1 {
                places.extend(reader.place(&operator, field::CUSTOM_OPTIONS_OFFSET, 8)?);
            }
        }
    }
    Ok(places)
}

fn move_by(place: &mut [u8], by: u64) -> Result<(), TfliteError> {
    let number: [u8; 8] = (&*place).try_into().map_err(|_| TfliteError::SharedBytes)?;
    let moved = u64::from_le_bytes(number).checked_add(by).ok_or(TfliteError::SharedBytes)?;
    place.copy_from_slice(&moved.to_le_bytes());
    Ok(())
}
