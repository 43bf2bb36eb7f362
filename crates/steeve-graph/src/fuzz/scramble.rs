//! Graphs that make no sense but are graphs: any operation, any source, any order.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::{Align, Bytes, Id};

use super::Choices;
use crate::{
    AllocSizes, AssignedGraph, Assignment, DataType, Flags, Fusion, Glu, GraphParts, Layout, Memory, MemoryId, Op,
    Param, Tensor, TensorId, Unary, View,
};

/// Builds a graph that keeps the rules of [`GraphParts`] and no other: operations with any sources, views of
/// anything, empty tensors, tensors in both lists or in none, leafs listed twice. For functions that must survive any
/// graph.
pub fn scrambled_graph(choices: &mut Choices<'_>) -> AssignedGraph {
    // Most are refused for their order, and a fuzzer's bytes come to an end.
    let tries = (0..16).find_map(|_| scrambled_parts(choices).and_then(|parts| assign(choices, parts)));
    tries.unwrap_or_else(|| super::random_graph(choices))
}

/// Builds parts that keep every rule of [`GraphParts::finish`] but, now and then, the order of nodes: sources behind
/// their readers, nodes that read themselves or are listed twice.
pub(super) fn scrambled_parts(choices: &mut Choices<'_>) -> Option<GraphParts> {
    let count = 1 + choices.below(12);
    // Half of them have every source in front of its reader, so that not all are refused.
    let orderly = choices.once_in(2);
    let mut parts = GraphParts::default();
    let mut roots: Vec<(TensorId, u64)> = Vec::new();
    for index in 0..count {
        let layout = layout(choices);
        let view = if choices.once_in(3) { within(choices, &roots, &layout) } else { None };
        let op = op(choices, &mut parts);
        let flags = Flags::from_bits(choices.below(16) as u64 & choices.below(16) as u64);
        let external = choices.once_in(4);
        let known = if orderly { index } else { count };
        let sources: Vec<_> = (0..choices.below(4)).map(|_| TensorId::from_index(choices.below(known + 1))).collect();
        let sources: Vec<_> = sources.iter().map(|source| source.filter(|source| source.index() < known)).collect();
        let params: Vec<_> = (0..choices.below(3) * choices.below(2)).map(|_| param(choices)).collect();
        let id = parts.push_with(Tensor { layout, op, flags, external, view }, &sources, &params).ok()?;
        if view.is_none() {
            roots.push((id, layout.nbytes().get()));
        }
        let name = match choices.below(5) {
            0 => String::new(),
            1 => "odd \"name\";\n# \u{7} \u{1F6A2}".into(),
            2 => "same".into(),
            _ => format!("t{index}"),
        };
        parts.set_name(id, &name).ok()?;
    }
    if orderly {
        list_all(choices, &mut parts)
    } else {
        list_any(choices, count, &mut parts)
    }
    Some(parts)
}

fn layout(choices: &mut Choices<'_>) -> Layout {
    let dtype = choices.pick(DataType::ALL).unwrap_or(DataType::F32);
    let ne = [dtype.block_len() * choices.below(4) as u64, 1 + choices.below(3) as u64, 1, 1 + choices.below(2) as u64];
    let packed = Layout::contiguous(dtype, &ne).ok();
    let strided = packed.and_then(|packed| {
        let nb = packed.nb();
        let wider = [nb[0], nb[1] * 2, nb[2] * 2, nb[3] * (1 + choices.below(3) as u64)];
        Layout::new(dtype, ne, wider).ok().filter(|_| choices.once_in(3))
    });
    strided.or(packed).unwrap_or_else(smallest)
}

/// Returns one byte, which is always a layout.
fn smallest() -> Layout {
    match Layout::contiguous(DataType::I8, &[1]) {
        Ok(layout) => layout,
        Err(_) => unreachable!("one byte is a layout"),
    }
}

fn within(choices: &mut Choices<'_>, roots: &[(TensorId, u64)], layout: &Layout) -> Option<View> {
    let (root, room) = choices.pick(roots)?;
    if layout.nbytes() == Bytes::ZERO && choices.once_in(2) {
        // A view of no bytes is never out of range.
        return Some(View { root, offset: Bytes(choices.pick(&[room, room + 1, 8192, u64::MAX - 1, u64::MAX])?) });
    }
    let spare = room.checked_sub(layout.nbytes().get())?;
    let offset = Bytes(choices.below(usize::try_from(spare).ok()? + 1) as u64);
    Some(View { root, offset })
}

fn op(choices: &mut Choices<'_>, parts: &mut GraphParts) -> Op {
    let named = match choices.below(8) {
        0 => parts.op("UNARY", choices.pick(Unary::ALL).map(Unary::name)),
        1 => parts.op("GLU", choices.pick(Glu::ALL).map(Glu::name)),
        2 => parts.op(choices.pick(&["SSM_SCAN", "odd one", ""]).unwrap_or("X"), None),
        3 => parts.op("UNARY", choices.pick(&["NEW", ""])),
        _ => Ok(choices.pick(Op::PLAIN).unwrap_or(Op::None)),
    };
    named.unwrap_or(Op::None)
}

fn param(choices: &mut Choices<'_>) -> Param {
    match choices.below(3) {
        0 => Param::Int(choices.below(2000) as i64 - 1000),
        1 => Param::Float(choices.pick(&[0.1, -1e-30, 1e20, f32::INFINITY, f32::NAN, -0.0]).unwrap_or(0.0)),
        _ => Param::Float(choices.below(1 << 20) as f32 / 7.0),
    }
}

/// Lists most tensors once, some in both lists, twice or in none, in any order.
fn list_any(choices: &mut Choices<'_>, count: usize, parts: &mut GraphParts) {
    for _ in 0..count + choices.below(3) {
        let Some(id) = TensorId::from_index(choices.below(count)) else { continue };
        if choices.once_in(2) { parts.leaf(id) } else { parts.node(id) }
    }
}

/// Lists every tensor in the order of the table; some leafs twice, or in both lists, and some tensors in none.
fn list_all(choices: &mut Choices<'_>, parts: &mut GraphParts) {
    let ids: Vec<_> = parts.tensors().ids().collect();
    for id in ids {
        match choices.below(12) {
            0 => {}
            1..4 => parts.leaf(id),
            4 => {
                parts.leaf(id);
                if choices.once_in(2) { parts.leaf(id) } else { parts.node(id) }
            }
            _ => parts.node(id),
        }
    }
}

fn assign(choices: &mut Choices<'_>, parts: GraphParts) -> Option<AssignedGraph> {
    let memories: Vec<Memory> = (0..1 + choices.below(3)).map(|index| memory(choices, index)).collect();
    let mut sizes = AllocSizes::new(memories.len());
    for (id, tensor) in parts.tensors().pairs() {
        if choices.once_in(4) {
            let padded = |_| Bytes(tensor.nbytes().get() + choices.below(2) as u64 * 64);
            let row: Vec<_> = (0..memories.len()).map(padded).collect();
            // The sizes are as many as the memories and not below what the tensor spans.
            let _ = sizes.set(id, tensor, &row);
        }
    }
    let count = memories.len();
    let graph = parts.finish().ok()?;
    let mut any = |_: &TensorId| MemoryId::from_index(choices.below(count)).unwrap_or(MemoryId::FIRST);
    let leafs = graph.leafs().iter().map(&mut any).collect();
    let nodes = graph.nodes().iter().map(&mut any).collect();
    let assigned = AssignedGraph::new(graph.clone(), memories, Assignment { leafs, nodes }, sizes);
    Some(assigned.unwrap_or_else(|_| graph.into()))
}

pub(super) fn memory(choices: &mut Choices<'_>, index: usize) -> Memory {
    let name = choices.pick(&["cpu", "gpu", "an odd one"]).unwrap_or("cpu");
    let align = Align::new(1 << choices.below(8)).unwrap_or(Align::ONE);
    let max_buffer = if choices.once_in(4) { Some(Bytes(1 << (8 + choices.below(8)))) } else { None };
    let extra_lifetime = if choices.once_in(6) { 1 + choices.below(2) as u32 } else { 0 };
    let shared_with = if index > 0 && choices.once_in(4) { Some(MemoryId::FIRST) } else { None };
    let fusion = if choices.once_in(4) { Fusion::ALL[choices.below(3)] } else { Fusion::None };
    Memory { max_buffer, extra_lifetime, fusion, shared_with, ..Memory::new(name, align) }
}
