//! Fields in, checked graph out. O(tensors), and O(log tensors) more per id where ids are not counted from 0.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Align, Bytes, Id, IdVec, Offset};

use super::schema::{BufferRecord, EMPTY, GraphRecord, OUTSIDE, PlaceRecord, SCHEMA, TensorRecord};
use super::{
    BackendNeeds, PriorAllocation, RecordError, RecordLocation, RecordedGraph, RecordedPlace, RecordedPlacement,
    RecordedTensorFault, RecordingNotes,
};
use crate::{
    AllocSizes, AssignedGraph, Assignment, DataType, Flags, GraphError, GraphParts, Layout, Memory, MemoryId, Tensor,
    TensorId, View,
};

pub(super) fn read(dump: GraphRecord<'_>) -> Result<RecordedGraph, RecordError> {
    if dump.schema != SCHEMA {
        return Err(RecordError::Schema { found: dump.schema.into_owned() });
    }
    let memories = memories(&dump.buffers)?;
    let mut reader = RecordReader::new(&dump)?;
    for row in &dump.tensors {
        reader.tensor(row)?;
    }
    reader.outsiders()?;
    let leafs = reader.list(&dump.leafs, RecordLocation::Leaf)?;
    let nodes = reader.list(&dump.nodes, RecordLocation::Node)?;
    leafs.0.iter().for_each(|&leaf| reader.parts.leaf(leaf));
    nodes.0.iter().for_each(|&node| reader.parts.node(node));

    let RecordReader { parts, sizes, places, ids, prior, buffer_types, .. } = reader;
    let assignment = Assignment { leafs: leafs.1, nodes: nodes.1 };
    let assigned = AssignedGraph::new(parts.finish()?, memories, assignment, sizes)?;
    let chunk_sizes = |buffer: &BufferRecord<'_>| buffer.chunks.iter().copied().map(Bytes).collect();
    let placement = RecordedPlacement { places, chunks: dump.buffers.iter().map(chunk_sizes).collect() };
    let notes = RecordingNotes {
        tag: dump.tag.into_owned(),
        no_alloc: dump.no_alloc,
        max_free_blocks: dump.max_free_blocks,
        n_view_inplace: dump.n_view_inplace,
        time_us: dump.time_us,
    };
    let hosts = dump.buffers.iter().map(|buffer| buffer.host).collect();
    let needs = |buffer: &BufferRecord<'_>| Some(BackendNeeds { extra_lifetime: buffer.hold?, fusion: buffer.fusion? });
    let needs = dump.buffers.iter().map(needs).collect();
    Ok(RecordedGraph { assigned, hosts, needs, placement, ids, prior, buffer_types, notes })
}

fn memories(buffers: &[BufferRecord<'_>]) -> Result<IdVec<MemoryId, Memory>, RecordError> {
    let memory = |(index, buffer): (usize, &BufferRecord<'_>)| {
        let align = Align::new(buffer.alignment).map_err(|error| RecordError::Align { buffer: index, error })?;
        let with = buffer.shared_with.filter(|&with| usize::try_from(with) != Ok(index));
        let shared_with = match with {
            Some(with) => Some(memory_id(with, buffers.len(), RecordLocation::Buffer(index))?),
            None => None,
        };
        // ggml's word for "no limit" is the largest number there is.
        let max_buffer = Some(Bytes(buffer.max_size)).filter(|&max| max != Bytes(u64::MAX));
        Ok(Memory { max_buffer, shared_with, ..Memory::new(buffer.name.as_ref(), align) })
    };
    buffers.iter().enumerate().map(memory).collect()
}

fn memory_id(buffer: i64, buffers: usize, place: RecordLocation) -> Result<MemoryId, RecordError> {
    let index = usize::try_from(buffer).ok().filter(|&index| index < buffers);
    index.and_then(MemoryId::from_index).ok_or(RecordError::UnknownBuffer { place, buffer, buffers })
}

/// From the ids of the record to ours. Most records count from 0; others are looked up.
enum RecordIds {
    Counted(usize),
    Sorted(Vec<(u64, TensorId)>),
}

impl RecordIds {
    fn new(rows: &[TensorRecord<'_>]) -> Result<Self, RecordError> {
        if rows.iter().enumerate().all(|(index, row)| row.id == index as u64) {
            return Ok(Self::Counted(rows.len()));
        }
        let numbered = |(index, row): (usize, &TensorRecord<'_>)| match TensorId::from_index(index) {
            Some(id) => Ok((row.id, id)),
            None => Err(GraphError::TooMany { tensors: rows.len() }),
        };
        let mut ids: Vec<_> = rows.iter().enumerate().map(numbered).collect::<Result<_, _>>()?;
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(RecordError::SameId { id: pair[0].0 }),
            None => Ok(Self::Sorted(ids)),
        }
    }

    fn get(&self, id: i64, place: RecordLocation) -> Result<TensorId, RecordError> {
        let found = match (self, u64::try_from(id)) {
            (Self::Counted(count), Ok(id)) => {
                usize::try_from(id).ok().filter(|id| id < count).and_then(TensorId::from_index)
            }
            (Self::Sorted(ids), Ok(id)) => ids.binary_search_by_key(&id, |&(id, _)| id).ok().map(|index| ids[index].1),
            (_, Err(_)) => None,
        };
        found.ok_or(RecordError::UnknownId { place, id })
    }
}

struct RecordReader {
    numbers: RecordIds,
    memories: usize,
    parts: GraphParts,
    sizes: AllocSizes,
    places: IdVec<TensorId, Option<RecordedPlace>>,
    ids: IdVec<TensorId, Option<u64>>,
    prior: IdVec<TensorId, PriorAllocation>,
    buffer_types: Vec<String>,
    /// The positions in `buffer_types` by name.
    buffer_type_ids: BTreeMap<String, u32>,
    sources: Vec<Option<TensorId>>,
    /// The substitute for all sources outside of the record, and how large each root outside of it must be. They get
    /// their ids, behind all others, when they are first met.
    outside: Option<TensorId>,
    outsiders: Vec<u64>,
    rows: usize,
}

impl RecordReader {
    fn new(dump: &GraphRecord<'_>) -> Result<Self, RecordError> {
        let (memories, rows) = (dump.buffers.len(), dump.tensors.len());
        let mut parts = GraphParts::default();
        parts.tensors.reserve(rows, dump.tensors.iter().map(|row| row.src.len()).sum());
        Ok(Self {
            numbers: RecordIds::new(&dump.tensors)?,
            memories,
            parts,
            sizes: AllocSizes::new(memories),
            places: IdVec::new(),
            ids: IdVec::new(),
            prior: IdVec::new(),
            buffer_types: Vec::new(),
            buffer_type_ids: BTreeMap::new(),
            sources: Vec::new(),
            outside: None,
            outsiders: Vec::new(),
            rows,
        })
    }

    fn tensor(&mut self, row: &TensorRecord<'_>) -> Result<(), RecordError> {
        let fault = |fault| RecordError::Tensor { id: row.id, name: row.name.clone().into_owned(), fault };
        let layout = layout(row).map_err(fault)?;
        let view = self.view(row)?;
        let op = self.parts.op(&row.op, row.desc.as_deref())?;
        let (flags, external) = (Flags::from_bits(row.flags), row.pre != 0 && view.is_none());
        let tensor = Tensor { layout, op, flags, external, view };
        self.sources(row)?;
        let id = self.parts.push(tensor, &self.sources)?;
        self.parts.set_name(id, &row.name)?;
        if !row.alloc_size.is_empty() {
            let sizes: Vec<Bytes> = row.alloc_size.iter().copied().map(Bytes).collect();
            self.sizes.set(id, &tensor, &sizes)?;
        }
        let recorded_place = self.recorded_place(row)?;
        let prior = PriorAllocation { bits: row.pre, buffer_type: self.buffer_type(row.pre_buft.as_ref()) };
        self.note(Some(row.id), prior, recorded_place);
        Ok(())
    }

    fn note(&mut self, id: Option<u64>, prior: PriorAllocation, recorded_place: Option<RecordedPlace>) {
        self.ids.push(id);
        self.prior.push(prior);
        self.places.push(recorded_place);
    }

    fn sources(&mut self, row: &TensorRecord<'_>) -> Result<(), RecordError> {
        self.sources.clear();
        for &source in &row.src {
            let source = match source {
                EMPTY => None,
                OUTSIDE => Some(self.outside()?),
                id => Some(self.numbers.get(id, RecordLocation::Source(row.id))?),
            };
            self.sources.push(source);
        }
        Ok(())
    }

    fn view(&mut self, row: &TensorRecord<'_>) -> Result<Option<View>, RecordError> {
        let (source, offset) = match (row.view_src, row.view_offs) {
            (None, None) => return Ok(None),
            (Some(source), Some(offset)) => (source, offset),
            _ => {
                let name = row.name.clone().into_owned();
                return Err(RecordError::Tensor { id: row.id, name, fault: RecordedTensorFault::HalfView });
            }
        };
        let root = match source {
            OUTSIDE => self.outsider(offset.saturating_add(row.nbytes))?,
            id => self.numbers.get(id, RecordLocation::ViewSource(row.id))?,
        };
        Ok(Some(View { root, offset: Bytes(offset) }))
    }

    /// Returns the one tensor of no bytes that replaces every source outside of the record.
    fn outside(&mut self) -> Result<TensorId, RecordError> {
        match self.outside {
            Some(id) => Ok(id),
            None => {
                let id = self.outsider(0)?;
                self.outside = Some(id);
                Ok(id)
            }
        }
    }

    fn outsider(&mut self, bytes: u64) -> Result<TensorId, RecordError> {
        let index = self.rows + self.outsiders.len();
        let id = TensorId::from_index(index).ok_or(GraphError::TooMany { tensors: index })?;
        self.outsiders.push(bytes);
        Ok(id)
    }

    /// Appends the substitutes, in the order in which they got their ids.
    fn outsiders(&mut self) -> Result<(), RecordError> {
        for bytes in core::mem::take(&mut self.outsiders) {
            let layout = Layout::contiguous(DataType::I8, &[bytes]).map_err(GraphError::from)?;
            self.parts.push(Tensor { external: true, ..Tensor::new(layout) }, &[])?;
            self.note(None, PriorAllocation::default(), None);
        }
        Ok(())
    }

    fn buffer_type(&mut self, name: Option<&Cow<'_, str>>) -> Option<u32> {
        let name = name?;
        if let Some(known) = self.buffer_type_ids.get(name.as_ref()) {
            return Some(*known);
        }
        let id = u32::try_from(self.buffer_types.len()).ok()?;
        self.buffer_types.push(name.clone().into_owned());
        self.buffer_type_ids.insert(name.clone().into_owned(), id);
        Some(id)
    }

    fn recorded_place(&self, row: &TensorRecord<'_>) -> Result<Option<RecordedPlace>, RecordError> {
        let Some(PlaceRecord { buffer_id, chunk, offset, size_max }) = row.res else { return Ok(None) };
        if buffer_id < 0 {
            return Ok(None);
        }
        let memory = memory_id(buffer_id, self.memories, RecordLocation::Placement(row.id))?;
        let chunk = u32::try_from(chunk).map_err(|_| RecordError::Tensor {
            id: row.id,
            name: row.name.clone().into_owned(),
            fault: RecordedTensorFault::Chunk(chunk),
        })?;
        Ok(Some(RecordedPlace { memory, chunk, offset: Offset(offset), size_max: Bytes(size_max) }))
    }

    fn list(
        &self,
        pairs: &[(i64, i64)],
        place: fn(usize) -> RecordLocation,
    ) -> Result<(Vec<TensorId>, Vec<MemoryId>), RecordError> {
        let mut lists = (Vec::with_capacity(pairs.len()), Vec::with_capacity(pairs.len()));
        for (index, &(id, buffer)) in pairs.iter().enumerate() {
            lists.0.push(self.numbers.get(id, place(index))?);
            lists.1.push(memory_id(buffer, self.memories, place(index))?);
        }
        Ok(lists)
    }
}

fn layout(row: &TensorRecord<'_>) -> Result<Layout, RecordedTensorFault> {
    let dtype: DataType = row.dtype.parse().map_err(|_| RecordedTensorFault::Type(row.dtype.clone().into_owned()))?;
    let layout = Layout::new(dtype, row.ne, row.nb)?;
    if layout.nbytes() == Bytes(row.nbytes) {
        Ok(layout)
    } else {
        let (recorded, computed) = (row.nbytes, layout.nbytes());
        Err(RecordedTensorFault::Bytes { recorded, computed, dtype, ne: row.ne, nb: row.nb })
    }
}
