//! Checked graph in, fields of a record out.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Bytes, Id};

use super::schema::{BufferRecord, EMPTY, GraphRecord, OUTSIDE, PlaceRecord, SCHEMA, TensorRecord};
use super::{RecordedGraph, RecordedPlace};
use crate::{MemoryId, Tensor, TensorId};

pub(super) fn write(recorded: &RecordedGraph) -> String {
    let assigned = &recorded.assigned;
    let (graph, assignment) = (assigned.graph(), assigned.assignment());
    let leafs = list(recorded, graph.leafs(), &assignment.leafs);
    let nodes = list(recorded, graph.nodes(), &assignment.nodes);
    let rows = graph.tensors().ids().filter_map(|id| row(recorded, id));
    let tensors: Vec<_> = rows.collect();
    let notes = &recorded.notes;
    let dump = GraphRecord {
        schema: SCHEMA.into(),
        tag: notes.tag.as_str().into(),
        no_alloc: notes.no_alloc,
        n_nodes: nodes.len(),
        n_leafs: leafs.len(),
        n_tensors: tensors.len(),
        time_us: notes.time_us,
        max_free_blocks: notes.max_free_blocks,
        n_view_inplace: notes.n_view_inplace,
        buffers: buffers(recorded),
        leafs,
        nodes,
        tensors,
    };
    // Nothing in these fields can fail to be written: no map has other keys than strings, and the target is memory.
    serde_json::to_string(&dump).unwrap_or_default()
}

fn buffers(recorded: &RecordedGraph) -> Vec<BufferRecord<'_>> {
    let buffer = |(id, memory): (MemoryId, &'_ _)| {
        let memory: &crate::Memory = memory;
        let needs = recorded.needs.get(id).copied().flatten();
        let chunks = recorded.placement.chunks.get(id).map_or(&[][..], |chunks| chunks);
        BufferRecord {
            name: memory.name.clone().into(),
            alignment: memory.align.get(),
            max_size: memory.max_buffer.unwrap_or(Bytes(u64::MAX)).get(),
            shared_with: Some(memory.shared_with.unwrap_or(id).index() as i64),
            host: recorded.hosts.get(id).copied().flatten(),
            hold: needs.map(|needs| needs.extra_lifetime),
            fusion: needs.map(|needs| needs.fusion),
            chunks: chunks.iter().map(|bytes| bytes.get()).collect(),
        }
    };
    recorded.assigned.memories().pairs().map(buffer).collect()
}

/// Returns the id in the record, or the number that says that a tensor is outside.
fn number(recorded: &RecordedGraph, id: TensorId) -> i64 {
    let known = recorded.ids.get(id).copied().flatten();
    known.and_then(|id| i64::try_from(id).ok()).unwrap_or(OUTSIDE)
}

fn list(recorded: &RecordedGraph, tensors: &[TensorId], memories: &[MemoryId]) -> Vec<(i64, i64)> {
    let pairs = tensors.iter().zip(memories);
    pairs.map(|(&tensor, memory)| (number(recorded, tensor), memory.index() as i64)).collect()
}

fn row(recorded: &RecordedGraph, id: TensorId) -> Option<TensorRecord<'_>> {
    let graph = recorded.assigned.graph();
    let tensor = graph.tensor(id);
    let tensors = graph.tensors();
    let source = |source: &Option<TensorId>| source.map_or(EMPTY, |source| number(recorded, source));
    let prior = recorded.prior.get(id).copied().unwrap_or_default();
    let buffer_type = prior.buffer_type.and_then(|index| recorded.buffer_types.get(index as usize));
    // An external tensor must have been something before, or it would be read as a planned one.
    let bits = if tensor.external && prior.bits == 0 { 1 } else { prior.bits };
    Some(TensorRecord {
        id: recorded.ids.get(id).copied().flatten()?,
        name: graph.name(id).into(),
        op: tensors.op_name(tensor.op).into(),
        desc: tensors.kind_name(tensor.op).filter(|kind| !kind.is_empty()).map(Cow::Borrowed),
        dtype: tensor.layout.dtype().name().into(),
        ne: tensor.layout.ne(),
        nb: tensor.layout.nb(),
        flags: tensor.flags.bits().into(),
        nbytes: tensor.nbytes().get(),
        view_src: tensor.view.map(|view| number(recorded, view.root)),
        view_offs: tensor.view.map(|view| view.offset.get()),
        src: graph.sources(id).iter().map(source).collect(),
        pre: bits,
        pre_buft: buffer_type.map(|name| name.as_str().into()),
        alloc_size: alloc_sizes(recorded, id, tensor),
        res: recorded.placement.places.get(id).copied().flatten().map(res),
    })
}

fn alloc_sizes(recorded: &RecordedGraph, id: TensorId, tensor: &Tensor) -> Vec<u64> {
    if !tensor.is_planned() && recorded.assigned.sizes().row(id).is_none() {
        return Vec::new();
    }
    let sizes = recorded.assigned.memories().ids().map(|memory| recorded.assigned.alloc_size(id, memory));
    sizes.map(Bytes::get).collect()
}

fn res(recorded_place: RecordedPlace) -> PlaceRecord {
    PlaceRecord {
        buffer_id: recorded_place.memory.index() as i64,
        chunk: recorded_place.chunk.into(),
        offset: recorded_place.offset.get(),
        size_max: recorded_place.size_max.get(),
    }
}
