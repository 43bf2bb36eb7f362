//! Plans that stand in a file already: drawn as they are, right or wrong.

use std::collections::BTreeMap;

use steeve_graph::{Bytes, Id, Offset};
use steeve_plan::csv::Table;
use steeve_plan::{Block, BufferId, IdVec, Lifetime, Place, Placement, Problem, Violations, certify};
use steeve_view::{Also, Map, MemoryMap, Role, Tile, Unit};

use crate::error::Error;
use crate::explain;
use crate::graph::{TensorClaim, TensorPlan};
use crate::solve::ONLY_MEMORY;

/// What a file claims, and what is wrong with it.
pub(crate) struct Standing {
    pub(crate) map: Map,
    /// One sentence, if the plan does not hold.
    pub(crate) wrong: Option<String>,
}

/// A block list in which every block has an offset.
pub(crate) fn of_blocks(file: &str, name: &str, table: &Table) -> Result<Standing, Error> {
    let failed = |why: String| Error::Block { file: file.to_owned(), why };
    let problem = table.problem().map_err(|error| failed(explain::problem_error(&error, table.ids())))?;
    let placement = table.placement().map_err(|source| Error::Table { file: file.to_owned(), source })?;
    match certify(problem, placement) {
        Ok(plan) => Ok(Standing { map: Map::of_blocks(name, ONLY_MEMORY, &plan, table.ids()), wrong: None }),
        Err(wrong) => {
            let tile = |(block, id): (steeve_plan::BlockId, &String)| {
                let (it, place) = (&table.blocks()[block], table.places()[block]?);
                let mut tile = Tile::new(id, it.life, place.offset, it.size);
                tile.buffer = place.buffer.index();
                tile.align = it.align.get();
                tile.follows = it.follows.map(Id::index);
                Some(tile)
            };
            let tiles: Vec<Tile> = table.ids().pairs().filter_map(tile).collect();
            let memory = MemoryMap::new(ONLY_MEMORY, buffers(&tiles), tiles);
            let wrong = Some(explain::violations(&wrong, table.ids()));
            Ok(Standing { map: Map::new(name, vec![memory]), wrong })
        }
    }
}

/// How large each buffer must be for what stands in it.
fn buffers(tiles: &[Tile]) -> Vec<Bytes> {
    let mut sizes: Vec<Bytes> = Vec::new();
    for tile in tiles {
        if sizes.len() <= tile.buffer {
            sizes.resize(tile.buffer + 1, Bytes::ZERO);
        }
        let end = Bytes(tile.offset.0.saturating_add(tile.size.0));
        sizes[tile.buffer] = sizes[tile.buffer].max(end);
    }
    sizes
}

/// The saved plan of a graph.
pub(crate) fn of_tensors(name: &str, plan: &TensorPlan) -> Result<Standing, Error> {
    let failed = |why: String| Error::Block { file: plan.file.clone(), why };
    let mut memories: Vec<Vec<Tile>> = plan.buffers.iter().map(|_| Vec::new()).collect();
    for claim in &plan.tensors {
        let tile = tile_of(claim).map_err(failed)?;
        let Some(tiles) = memories.get_mut(claim.buffer) else {
            let why =
                format!("tensor {} stands in buffer {}, and there are {}", claim.id, claim.buffer, plan.buffers.len());
            return Err(failed(why));
        };
        if claim.chunk >= plan.buffers[claim.buffer].chunks.len() && claim.size > Bytes::ZERO {
            let (id, chunk, chunks) = (claim.id, claim.chunk, plan.buffers[claim.buffer].chunks.len());
            return Err(failed(format!("tensor {id} stands in chunk {chunk}, and there are {chunks}")));
        }
        tiles.push(tile);
    }
    let mut wrong = None;
    let mut drawn = Vec::new();
    for (buffer, tiles) in plan.buffers.iter().zip(memories) {
        let tiles = sharers_merged(tiles);
        wrong = wrong.or_else(|| overlaps(&tiles));
        let mut memory = MemoryMap::new(&buffer.name, buffer.chunks.clone(), tiles);
        // Alignments are not in the file, so the bound that is said there may be the better one, if it can be true.
        memory.bound =
            buffer.lower_bound.filter(|bound| (memory.bound..=memory.peak()).contains(bound)).unwrap_or(memory.bound);
        drawn.push(memory);
    }
    let mut map = Map::new(name, drawn);
    map.unit = Unit::Node;
    Ok(Standing { map: map.with_spread_roles(), wrong })
}

fn tile_of(claim: &TensorClaim) -> Result<Tile, String> {
    let TensorClaim { id, name, chunk, offset, size, first, last, op, r#type, .. } = claim;
    // Node -1 is before the run, which is step 0.
    let step = |node: i64| u64::try_from(node.saturating_add(1)).ok();
    let life = first.zip(*last).and_then(|(first, last)| Lifetime::new(step(first)?, step(last)?.checked_add(1)?).ok());
    let Some(life) = life else {
        return Err(format!(
            "tensor {id} ({name}) does not say at which nodes it is there (first and last); write the plan again"
        ));
    };
    let label = if name.trim().is_empty() { format!("#{id}") } else { name.clone() };
    let mut tile = Tile::new(label, life, *offset, *size);
    tile.buffer = *chunk;
    let flags = match op.as_str() {
        "input" => steeve_graph::Flags::INPUT,
        _ => steeve_graph::Flags::NONE,
    };
    tile.role = Role::guess(flags, name, op);
    tile.operation.clone_from(op);
    tile.layout.clone_from(r#type);
    Ok(tile)
}

/// Tensors that were given the same bytes for the same time are one block.
fn sharers_merged(tiles: Vec<Tile>) -> Vec<Tile> {
    let mut at: BTreeMap<(usize, Offset, u64, u64), usize> = BTreeMap::new();
    let mut merged: Vec<Tile> = Vec::new();
    for tile in tiles {
        let key = (tile.buffer, tile.offset, tile.life.start().0, tile.life.end().0);
        match at.get(&key) {
            Some(owner) if merged[*owner].size == tile.size => {
                merged[*owner].also.push(Also::new(tile.name, tile.offset, tile.size));
            }
            _ => {
                at.insert(key, merged.len());
                merged.push(tile);
            }
        }
    }
    merged
}

/// The first two that stand on the same bytes at the same time.
fn overlaps(tiles: &[Tile]) -> Option<String> {
    let block = |tile: &Tile| Block::new(tile.size, tile.life);
    let place = |tile: &Tile| Some(Place { buffer: BufferId::from_index(tile.buffer)?, offset: tile.offset });
    let problem = Problem::new(tiles.iter().map(block).collect::<Vec<_>>()).ok()?;
    let places = tiles.iter().map(place).collect::<Option<Vec<Place>>>()?;
    let names: IdVec<_, String> = tiles.iter().map(|tile| tile.name.clone()).collect();
    let explained = |wrong: Violations| explain::violations(&wrong, &names);
    certify(problem, Placement::new(places)).err().map(explained)
}
