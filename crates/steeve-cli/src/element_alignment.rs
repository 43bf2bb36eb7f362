//! How the elements of tensors must be aligned for a C program to read them: a header is of no use otherwise.

use steeve_graph::{Align, DataType};
use steeve_view::{PlanMap, Tile};

use crate::graph::GraphFile;
use crate::verbosity::Verbosity;

/// Returns the alignment that the largest element of all planned tensors needs.
pub(crate) fn largest_element_align(graph: &GraphFile) -> Align {
    let tensors = graph.assigned.graph().tensors();
    let planned = tensors.pairs().filter(|(_, tensor)| tensor.is_planned());
    planned.map(|(_, tensor)| align_of(tensor.layout.dtype())).max().unwrap_or(Align::ONE)
}

/// Returns the alignment that a C program needs to read a type. An alignment divides the size, so it is at most the largest power
/// of two that does; and no type that ggml knows has parts of more than eight bytes.
fn align_of(dtype: DataType) -> Align {
    const MOST: u64 = 8;
    let bytes = dtype.block_bytes();
    let power = if bytes == 0 { 1 } else { 1 << bytes.trailing_zeros() };
    Align::new(MOST.min(power)).unwrap_or(Align::ONE)
}

/// Says of the plan of a file where a C program could not read a tensor.
pub(crate) fn note_misaligned_elements(file: &str, map: &PlanMap, verbosity: Verbosity) {
    if let Some(why) = misaligned_element(map) {
        verbosity.note(format!("{file}: {why}"));
    }
}

/// Describes the first tensor whose offset is not aligned for its elements; `None` if there is none.
fn misaligned_element(map: &PlanMap) -> Option<String> {
    let needs = |tile: &Tile| {
        let name = tile.layout.split('[').next()?;
        let dtype = name.parse::<DataType>().ok()?;
        let align = align_of(dtype);
        (!align.accepts(tile.offset) || tile.align < align.get()).then_some((dtype, align))
    };
    let tiles = map.memories.iter().flat_map(|memory| &memory.tiles);
    let (tile, (dtype, align)) = tiles.filter_map(|tile| Some((tile, needs(tile)?))).next()?;
    Some(format!(
        "{} is {dtype} at offset {} of an arena aligned to {}, which not every machine can read; plan with --align {align}",
        steeve_view::printable(&tile.name),
        tile.offset,
        tile.align,
    ))
}
