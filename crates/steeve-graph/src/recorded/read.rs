//! Fields in, checked graph out. O(tensors), and O(log tensors) more per id where ids are not counted from 0.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Align, Bytes, Id, IdVec, Offset};

use super::schema::{Buffer, Dump, EMPTY, OUTSIDE, Res, Row, SCHEMA};
use super::{Answer, Answered, BackendNeeds, Before, Fault, Notes, Place, RecordError, Recorded};
use crate::{
    AllocSizes, AssignedGraph, Assignment, DataType, Flags, GraphError, GraphParts, Layout, Memory, MemoryId, Tensor,
    TensorId, View,
};

pub(super) fn read(dump: Dump<'_>) -> Result<Recorded, RecordError> {
    if dump.schema != SCHEMA {
        return Err(RecordError::Schema { found: dump.schema.into_owned() });
    }
    let memories = memories(&dump.buffers)?;
    let mut reader = Reader::new(&dump)?;
    for row in &dump.tensors {
        reader.tensor(row)?;
    }
    reader.outsiders()?;
    let leafs = reader.list(&dump.leafs, Place::Leaf)?;
    let nodes = reader.list(&dump.nodes, Place::Node)?;
    leafs.0.iter().for_each(|&leaf| reader.parts.leaf(leaf));
    nodes.0.iter().for_each(|&node| reader.parts.node(node));

    let Reader { parts, sizes, places, ids, before, buffer_types, .. } = reader;
    let assignment = Assignment { leafs: leafs.1, nodes: nodes.1 };
    let assigned = AssignedGraph::new(parts.finish()?, memories, assignment, sizes)?;
    let chunk_sizes = |buffer: &Buffer<'_>| buffer.chunks.iter().copied().map(Bytes).collect();
    let answer = Answer { places, chunks: dump.buffers.iter().map(chunk_sizes).collect() };
    let notes = Notes {
        tag: dump.tag.into_owned(),
        no_alloc: dump.no_alloc,
        max_free_blocks: dump.max_free_blocks,
        n_view_inplace: dump.n_view_inplace,
        time_us: dump.time_us,
    };
    let hosts = dump.buffers.iter().map(|buffer| buffer.host).collect();
    let needs = |buffer: &Buffer<'_>| Some(BackendNeeds { extra_lifetime: buffer.hold?, fusion: buffer.fusion? });
    let needs = dump.buffers.iter().map(needs).collect();
    Ok(Recorded { assigned, hosts, needs, answer, ids, before, buffer_types, notes })
}

fn memories(buffers: &[Buffer<'_>]) -> Result<IdVec<MemoryId, Memory>, RecordError> {
    let memory = |(index, buffer): (usize, &Buffer<'_>)| {
        let align = Align::new(buffer.alignment).map_err(|error| RecordError::Align { buffer: index, error })?;
        let with = buffer.shared_with.filter(|&with| usize::try_from(with) != Ok(index));
        let shared_with = match with {
            Some(with) => Some(memory_id(with, buffers.len(), Place::Buffer(index))?),
            None => None,
        };
        // ggml's word for "no limit" is the largest number there is.
        let max_buffer = Some(Bytes(buffer.max_size)).filter(|&max| max != Bytes(u64::MAX));
        Ok(Memory { max_buffer, shared_with, ..Memory::new(buffer.name.as_ref(), align) })
    };
    buffers.iter().enumerate().map(memory).collect()
}

fn memory_id(buffer: i64, buffers: usize, place: Place) -> Result<MemoryId, RecordError> {
    let index = usize::try_from(buffer).ok().filter(|&index| index < buffers);
    index.and_then(MemoryId::from_index).ok_or(RecordError::UnknownBuffer { place, buffer, buffers })
}

/// From the ids of the record to ours. Most records count from 0; others are looked up.
enum Numbers {
    Counted(usize),
    Sorted(Vec<(u64, TensorId)>),
}

impl Numbers {
    fn new(rows: &[Row<'_>]) -> Result<Self, RecordError> {
        if rows.iter().enumerate().all(|(index, row)| row.id == index as u64) {
            return Ok(Self::Counted(rows.len()));
        }
        let numbered = |(index, row): (usize, &Row<'_>)| match TensorId::from_index(index) {
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

    fn get(&self, id: i64, place: Place) -> Result<TensorId, RecordError> {
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

struct Reader {
    numbers: Numbers,
    memories: usize,
    parts: GraphParts,
    sizes: AllocSizes,
    places: IdVec<TensorId, Option<Answered>>,
    ids: IdVec<TensorId, Option<u64>>,
    before: IdVec<TensorId, Before>,
    buffer_types: Vec<String>,
    /// The positions in `buffer_types` by name.
    buffer_type_ids: BTreeMap<String, u32>,
    sources: Vec<Option<TensorId>>,
    /// The stand-in for all sources outside of the record, and how large each root outside of it must be. They get
    /// their ids, behind all others, when they are first met.
    outside: Option<TensorId>,
    outsiders: Vec<u64>,
    rows: usize,
}

impl Reader {
    fn new(dump: &Dump<'_>) -> Result<Self, RecordError> {
        let (memories, rows) = (dump.buffers.len(), dump.tensors.len());
        let mut parts = GraphParts::default();
        parts.tensors.reserve(rows, dump.tensors.iter().map(|row| row.src.len()).sum());
        Ok(Self {
            numbers: Numbers::new(&dump.tensors)?,
            memories,
            parts,
            sizes: AllocSizes::new(memories),
            places: IdVec::new(),
            ids: IdVec::new(),
            before: IdVec::new(),
            buffer_types: Vec::new(),
            buffer_type_ids: BTreeMap::new(),
            sources: Vec::new(),
            outside: None,
            outsiders: Vec::new(),
            rows,
        })
    }

    fn tensor(&mut self, row: &Row<'_>) -> Result<(), RecordError> {
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
        let answered = self.answered(row)?;
        let before = Before { bits: row.pre, buffer_type: self.buffer_type(row.pre_buft.as_ref()) };
        self.note(Some(row.id), before, answered);
        Ok(())
    }

    fn note(&mut self, id: Option<u64>, before: Before, answered: Option<Answered>) {
        self.ids.push(id);
        self.before.push(before);
        self.places.push(answered);
    }

    fn sources(&mut self, row: &Row<'_>) -> Result<(), RecordError> {
        self.sources.clear();
        for &source in &row.src {
            let source = match source {
                EMPTY => None,
                OUTSIDE => Some(self.outside()?),
                id => Some(self.numbers.get(id, Place::Source(row.id))?),
            };
            self.sources.push(source);
        }
        Ok(())
    }

    fn view(&mut self, row: &Row<'_>) -> Result<Option<View>, RecordError> {
        let (source, offset) = match (row.view_src, row.view_offs) {
            (None, None) => return Ok(None),
            (Some(source), Some(offset)) => (source, offset),
            _ => {
                let name = row.name.clone().into_owned();
                return Err(RecordError::Tensor { id: row.id, name, fault: Fault::HalfView });
            }
        };
        let root = match source {
            OUTSIDE => self.outsider(offset.saturating_add(row.nbytes))?,
            id => self.numbers.get(id, Place::ViewSource(row.id))?,
        };
        Ok(Some(View { root, offset: Bytes(offset) }))
    }

    /// The one tensor of no bytes that stands for every source outside of the record.
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

    /// Appends the stand-ins, in the order in which they got their ids.
    fn outsiders(&mut self) -> Result<(), RecordError> {
        for bytes in core::mem::take(&mut self.outsiders) {
            let layout = Layout::contiguous(DataType::I8, &[bytes]).map_err(GraphError::from)?;
            self.parts.push(Tensor { external: true, ..Tensor::new(layout) }, &[])?;
            self.note(None, Before::default(), None);
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

    fn answered(&self, row: &Row<'_>) -> Result<Option<Answered>, RecordError> {
        let Some(Res { buffer_id, chunk, offset, size_max }) = row.res else { return Ok(None) };
        if buffer_id < 0 {
            return Ok(None);
        }
        let memory = memory_id(buffer_id, self.memories, Place::Answer(row.id))?;
        let chunk = u32::try_from(chunk).map_err(|_| RecordError::Tensor {
            id: row.id,
            name: row.name.clone().into_owned(),
            fault: Fault::Chunk(chunk),
        })?;
        Ok(Some(Answered { memory, chunk, offset: Offset(offset), size_max: Bytes(size_max) }))
    }

    fn list(
        &self,
        pairs: &[(i64, i64)],
        place: fn(usize) -> Place,
    ) -> Result<(Vec<TensorId>, Vec<MemoryId>), RecordError> {
        let mut lists = (Vec::with_capacity(pairs.len()), Vec::with_capacity(pairs.len()));
        for (index, &(id, buffer)) in pairs.iter().enumerate() {
            lists.0.push(self.numbers.get(id, place(index))?);
            lists.1.push(memory_id(buffer, self.memories, place(index))?);
        }
        Ok(lists)
    }
}

fn layout(row: &Row<'_>) -> Result<Layout, Fault> {
    let dtype: DataType = row.dtype.parse().map_err(|_| Fault::Type(row.dtype.clone().into_owned()))?;
    let layout = Layout::new(dtype, row.ne, row.nb)?;
    if layout.nbytes() == Bytes(row.nbytes) {
        Ok(layout)
    } else {
        let (recorded, computed) = (row.nbytes, layout.nbytes());
        Err(Fault::Bytes { recorded, computed, dtype, ne: row.ne, nb: row.nb })
    }
}
