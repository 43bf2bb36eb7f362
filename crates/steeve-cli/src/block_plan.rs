//! The plan of a block list as a file (`-o plan.json`, `-o plan.csv`), and back from it.

use serde::{Deserialize, Serialize};
use steeve_plan::csv::Table;
use steeve_plan::{Align, Block, BlockId, BufferId, Bytes, Clipped, Id, IdVec, Lifetime, Offset, Place, Plan};

use crate::block_list::BlockList;
use crate::error::Error;
use crate::figures::Figures;
use crate::json::{MemoryEntry, VERSION, entries};
use crate::solve::Solved;

/// A plan to be written. Only a [`Plan`] has places that may be.
pub(crate) struct BlockPlan<'a> {
    pub(crate) list: &'a BlockList,
    pub(crate) solved: &'a Solved,
    pub(crate) figures: &'a Figures,
}

impl BlockPlan<'_> {
    /// One block per line.
    pub(crate) fn csv(&self) -> Result<String, Error> {
        let table = Table::of_plan(&self.solved.plan, self.list.ids.clone());
        table.map(|table| table.to_string()).map_err(|source| Error::Table { file: self.list.file.clone(), source })
    }

    /// One object, without the end of its line.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&PlanFile {
            version: VERSION,
            file: &self.list.file,
            strategy: self.figures.strategy,
            status: self.figures.status(),
            buffers: entries(self.figures),
            blocks: block_entries(&self.list.ids, &self.solved.plan).collect(),
        })
    }
}

/// What `-o plan.json` holds.
#[derive(Debug, Serialize)]
struct PlanFile<'a> {
    version: u32,
    file: &'a str,
    strategy: &'static str,
    status: &'static str,
    buffers: Vec<MemoryEntry<'a>>,
    blocks: Vec<BlockEntry<'a>>,
}

/// One block of a plan file.
#[derive(Debug, Serialize)]
struct BlockEntry<'a> {
    id: &'a str,
    lower: u64,
    upper: u64,
    size: Bytes,
    alignment: Align,
    buffer: BufferId,
    offset: Offset,
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<&'a str>,
}

fn block_entries<'a>(ids: &'a IdVec<BlockId, String>, plan: &'a Plan) -> impl Iterator<Item = BlockEntry<'a>> {
    plan.problem().blocks().pairs().map(|(id, block)| {
        let Place { buffer, offset } = plan.place(id);
        BlockEntry {
            id: &ids[id],
            lower: block.life.start().0,
            upper: block.life.end().0,
            size: block.size,
            alignment: block.align,
            buffer,
            offset,
            follows: block.follows.map(|before| ids[before].as_str()),
        }
    })
}

/// Of our own files only the blocks count: the figures are made again.
#[derive(Deserialize)]
struct Unchecked {
    blocks: Vec<UncheckedBlock>,
}

#[derive(Deserialize)]
struct UncheckedBlock {
    id: String,
    lower: u64,
    upper: u64,
    size: Bytes,
    #[serde(default)]
    alignment: Align,
    #[serde(default)]
    buffer: usize,
    offset: Option<Offset>,
    follows: Option<String>,
}

/// The blocks of a plan file and where it says they stand.
pub(crate) fn read(file: &str, text: &str) -> Result<Table, Error> {
    match serde_json::from_str::<Unchecked>(text) {
        Ok(unchecked) => table(unchecked.blocks).map_err(|trouble| trouble.within(file.to_owned())),
        Err(source) => Err(Error::Json { file: file.to_owned(), source }),
    }
}

/// What can be wrong with the blocks.
enum Trouble {
    Block { id: String, why: String },
    Table(steeve_plan::csv::TableError),
}

impl Trouble {
    fn within(self, file: String) -> Error {
        match self {
            Self::Block { id, why } => Error::Block { file, why: format!("block {}: {why}", Clipped(&id)) },
            Self::Table(source) => Error::Table { file, source },
        }
    }
}

fn table(entries: Vec<UncheckedBlock>) -> Result<Table, Trouble> {
    let mut blocks = Vec::with_capacity(entries.len());
    let mut places = Vec::with_capacity(entries.len());
    for entry in &entries {
        let trouble = |why: String| Trouble::Block { id: entry.id.clone(), why };
        let life = Lifetime::new(entry.lower, entry.upper).map_err(|error| trouble(error.to_string()))?;
        let buffer = BufferId::from_index(entry.buffer);
        let buffer = buffer.ok_or_else(|| trouble(format!("there can't be a buffer {}", entry.buffer)))?;
        blocks.push(Block::new(entry.size, life).aligned(entry.alignment));
        places.push(entry.offset.map(|offset| Place { buffer, offset }));
    }
    let (ids, follows): (Vec<String>, Vec<Option<String>>) =
        entries.into_iter().map(|entry| (entry.id, entry.follows)).unzip();
    // The names are unique only once there is a table, and followers are found by name.
    let named = Table::new(ids, blocks, places).map_err(Trouble::Table)?;
    if follows.iter().all(Option::is_none) {
        return Ok(named);
    }
    let mut blocks = named.blocks().clone();
    for (block, follows) in named.blocks().ids().zip(follows) {
        let Some(follows) = follows else { continue };
        let Some(before) = named.find(&follows) else {
            let why = format!("it follows block {}, which is not in the file", Clipped(&follows));
            return Err(Trouble::Block { id: named.ids()[block].clone(), why });
        };
        blocks[block].follows = Some(before);
    }
    Table::new(named.ids().clone(), blocks, named.places().clone()).map_err(Trouble::Table)
}
