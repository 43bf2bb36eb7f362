//! Plans that stand in a file already: drawn as they are, right or wrong.

use std::collections::BTreeMap;

use steeve_graph::{Bytes, Flags, Id, Offset};
use steeve_plan::csv::Table;
use steeve_plan::{
    Align, Block, BlockId, BufferId, Clipped, IdVec, Lifetime, Place, Placement, Problem, Violations, certify,
};
use steeve_view::{Also, Map, MemoryMap, Role, Tile, Unit};

use crate::error::Error;
use crate::explain;
use crate::figures::ONLY_MEMORY;
use crate::graph::{BufferClaim, TensorClaim, TensorPlan, ViewClaim};

/// What a file claims, and what is wrong with it.
pub(crate) struct Standing {
    pub(crate) map: Map,
    /// One sentence, if the plan does not hold.
    pub(crate) wrong: Option<String>,
    /// A memory of which the file does not say how it is aligned.
    pub(crate) unaligned: Option<String>,
}

/// A block list in which every block has an offset.
pub(crate) fn of_blocks(file: &str, name: &str, table: &Table) -> Result<Standing, Error> {
    let failed = |why: String| Error::Block { file: file.to_owned(), why };
    let problem = table.problem().map_err(|error| failed(explain::problem_error(&error, table.ids())))?;
    let placement = table.placement().map_err(|source| Error::Table { file: file.to_owned(), source })?;
    match certify(problem, placement) {
        Ok(plan) => {
            Ok(Standing { map: Map::of_blocks(name, ONLY_MEMORY, &plan, table.ids()), wrong: None, unaligned: None })
        }
        Err(wrong) => {
            let tile = |(block, id): (BlockId, &String)| {
                let (it, place) = (&table.blocks()[block], table.places()[block]?);
                let mut tile = Tile::new(id, it.life, place.offset, it.size);
                // A number that no plan could have would ask for as many buffers.
                tile.buffer = place.buffer.index().min(table.ids().len());
                tile.align = it.align.get();
                tile.follows = it.follows.map(Id::index);
                Some(tile)
            };
            let tiles: Vec<Tile> = table.ids().pairs().filter_map(tile).collect();
            let memory = MemoryMap::new(ONLY_MEMORY, buffers(&tiles), tiles);
            let wrong = Some(explain::violations(&wrong, table.ids()));
            Ok(Standing { map: Map::new(name, vec![memory]), wrong, unaligned: None })
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
    let mut memories: Vec<Claims<'_>> = plan.buffers.iter().map(|_| Claims::default()).collect();
    for claim in &plan.tensors {
        let tile = tile_of(claim).map_err(failed)?;
        let Some(memory) = memories.get_mut(claim.buffer) else {
            let why =
                format!("tensor {} stands in buffer {}, and there are {}", claim.id, claim.buffer, plan.buffers.len());
            return Err(failed(why));
        };
        memory.claims.push(claim);
        memory.tiles.push(tile);
    }
    let mut wrong = Vec::new();
    let mut drawn = Vec::new();
    let mut unaligned = None;
    for (buffer, claims) in plan.buffers.iter().zip(memories) {
        let tiles = match buffer.alignment {
            Some(align) => claims.joined(align).map_err(failed)?,
            None => claims.merged(),
        };
        if buffer.alignment.is_none() && !tiles.is_empty() {
            unaligned.get_or_insert_with(|| buffer.name.clone());
        }
        wrong.extend(outside(&tiles, &buffer.chunks));
        wrong.extend(contradictions(&tiles));
        drawn.push(memory_of(buffer, tiles));
    }
    let mut map = Map::new(name, drawn);
    map.unit = Unit::Node;
    let wrong = if wrong.is_empty() { None } else { Some(wrong.join("; ")) };
    Ok(Standing { map: map.with_spread_roles(), wrong, unaligned })
}

/// One memory, in which everything can be seen, wherever it stands.
fn memory_of(buffer: &BufferClaim, mut tiles: Vec<Tile>) -> MemoryMap {
    // A chunk is as large as what passes its end; what stands in none has one of its own.
    tiles.iter_mut().for_each(|tile| tile.buffer = tile.buffer.min(buffer.chunks.len()));
    let mut chunks = buffer.chunks.clone();
    for (index, size) in buffers(&tiles).into_iter().enumerate() {
        match chunks.get_mut(index) {
            Some(chunk) => *chunk = size.max(*chunk),
            None => chunks.push(size),
        }
    }
    let mut memory = MemoryMap::new(&buffer.name, chunks, tiles);
    // A search may have found a better bound than the live bytes; it is taken over if it can be true.
    memory.bound =
        buffer.lower_bound.filter(|bound| (memory.bound..=memory.peak()).contains(bound)).unwrap_or(memory.bound);
    memory
}

/// What a file says of one memory: a tile for each claim.
#[derive(Default)]
struct Claims<'a> {
    claims: Vec<&'a TensorClaim>,
    tiles: Vec<Tile>,
}

impl Claims<'_> {
    /// One tile for each block, as the file says itself which tensors share one and which take over another's bytes.
    fn joined(self, align: Align) -> Result<Vec<Tile>, String> {
        let Self { claims, tiles } = self;
        let claimed: BTreeMap<u64, usize> = claims.iter().enumerate().map(|(at, claim)| (claim.id, at)).collect();
        // Only what stands in just the same bytes for just the same time can be within another.
        let place = |at: usize| (tiles[at].buffer, tiles[at].offset, tiles[at].size, tiles[at].life);
        let owner = |at: usize| -> Option<usize> {
            let owner = claimed.get(&claims[at].within?).copied()?;
            (claims[owner].within.is_none() && place(owner) == place(at)).then_some(owner)
        };
        let owners: Vec<Option<usize>> = (0..claims.len()).map(owner).collect();
        let mut index = vec![0; claims.len()];
        let mut joined: Vec<Tile> = Vec::new();
        for (at, tile) in tiles.iter().enumerate().filter(|(at, _)| owners[*at].is_none()) {
            index[at] = joined.len();
            let mut tile = tile.clone();
            tile.align = align.get();
            tile.occupied = align.round_up(tile.size).unwrap_or(tile.size);
            joined.push(tile);
        }
        let block = |at: usize| index[owners[at].unwrap_or(at)];
        let mut also: Vec<Vec<(Option<u64>, Also)>> = joined.iter().map(|_| Vec::new()).collect();
        for (at, claim) in claims.iter().enumerate() {
            let within = &mut also[block(at)];
            if owners[at].is_some() {
                within.push((Some(claim.id), Also::new(&tiles[at].name, tiles[at].offset, tiles[at].size)));
            }
            let view = |it: &ViewClaim| (it.id, Also::new(label(&it.name, it.id), it.offset, it.size));
            within.extend(claim.views.iter().map(view));
            if let Some(before) = claim.follows {
                let Some(before) = claimed.get(&before) else {
                    return Err(format!("tensor {} follows tensor {before}, which is not in the file", claim.id));
                };
                joined[block(at)].follows = Some(block(*before));
            }
        }
        for (tile, mut also) in joined.iter_mut().zip(also) {
            also.sort_by_key(|(id, _)| (id.is_none(), *id));
            tile.also = also.into_iter().map(|(_, also)| also).collect();
        }
        Ok(joined)
    }

    /// Of older files: tensors that were given the same bytes for the same time are one block.
    fn merged(self) -> Vec<Tile> {
        let mut at: BTreeMap<(usize, Offset, u64, u64), usize> = BTreeMap::new();
        let mut merged: Vec<Tile> = Vec::new();
        for tile in self.tiles {
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
}

fn tile_of(claim: &TensorClaim) -> Result<Tile, String> {
    let TensorClaim { id, name, chunk, offset, size, first, last, op, r#type, .. } = claim;
    // Node -1 is before the run, which is step 0.
    let step = |node: i64| u64::try_from(node.saturating_add(1)).ok();
    let life = first.zip(*last).and_then(|(first, last)| Lifetime::new(step(first)?, step(last)?.checked_add(1)?).ok());
    let Some(life) = life else {
        return Err(format!(
            "tensor {id} ({}) does not say at which nodes it is there (first and last); write the plan again",
            Clipped(name)
        ));
    };
    let mut tile = Tile::new(label(name, Some(*id)), life, *offset, *size);
    tile.buffer = *chunk;
    // What no operation makes is told by what it is to the graph.
    let operation = if ["input", "param", "leaf"].contains(&op.as_str()) { "" } else { op };
    let named = |name: &&str| op == name || claim.flags.iter().any(|flag| flag == name);
    let flags = Flags::ALL.into_iter().filter(|(_, name)| named(name)).fold(Flags::NONE, |all, (flag, _)| all | flag);
    tile.role = Role::guess(flags, name, operation);
    tile.operation = operation.to_owned();
    tile.layout.clone_from(r#type);
    Ok(tile)
}

fn label(name: &str, id: Option<u64>) -> String {
    match id {
        Some(id) if name.trim().is_empty() => format!("#{id}"),
        _ => name.to_owned(),
    }
}

/// A sentence for the first few that are not within their chunk.
fn outside(tiles: &[Tile], chunks: &[Bytes]) -> Vec<String> {
    const SHOWN: usize = 3;
    let sentence = |tile: &Tile| {
        let Tile { buffer, offset, size, .. } = tile;
        let name = Clipped(&tile.name);
        match (chunks.get(*buffer), offset.0.checked_add(size.0)) {
            // Nothing needs no chunk.
            (None, _) if *size == Bytes::ZERO => None,
            (None, _) => Some(format!("block {name} stands in chunk {buffer}, and there are {}", chunks.len())),
            (Some(chunk), Some(end)) if end <= chunk.0 => None,
            (Some(chunk), _) => Some(format!(
                "block {name} of {size} bytes at offset {offset} passes the end of chunk {buffer}, which has {chunk} bytes"
            )),
        }
    };
    tiles.iter().filter_map(sentence).take(SHOWN).collect()
}

/// What is wrong between blocks, or with their alignment; or why they can't be blocks at all.
fn contradictions(tiles: &[Tile]) -> Option<String> {
    let block = |tile: &Tile| Block {
        follows: tile.follows.and_then(BlockId::from_index),
        ..Block::new(tile.size, tile.life).aligned(Align::new(tile.align).unwrap_or(Align::ONE))
    };
    let place = |tile: &Tile| Some(Place { buffer: BufferId::from_index(tile.buffer)?, offset: tile.offset });
    let names: IdVec<_, String> = tiles.iter().map(|tile| tile.name.clone()).collect();
    let problem = match Problem::new(tiles.iter().map(block).collect::<Vec<_>>()) {
        Ok(problem) => problem,
        Err(error) => return Some(explain::problem_error(&error, &names)),
    };
    let places = tiles.iter().map(place).collect::<Option<Vec<Place>>>()?;
    let explained = |wrong: Violations| explain::violations(&wrong, &names);
    certify(problem, Placement::new(places)).err().map(explained)
}
