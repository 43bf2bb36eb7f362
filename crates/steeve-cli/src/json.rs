//! Results and plans as JSON, and plans back from it.
//!
//! One line per result (`--json`); the same with every block's place is a plan file (`-o plan.json`).

use serde::{Deserialize, Serialize};
use steeve_plan::csv::Table;
use steeve_plan::{
    Align, Block, BlockId, BufferId, Bytes, Id, IdVec, Lifetime, Offset, Place, Plan, Strategy, Verdict,
};

use crate::error::Error;
use crate::input::Job;
use crate::solve::Solved;

/// The version of both forms. A reader refuses any other.
pub(crate) const VERSION: u32 = 1;

/// What `--json` prints for one file.
#[derive(Debug, Serialize)]
pub(crate) struct ResultLine<'a> {
    version: u32,
    file: &'a str,
    strategy: String,
    status: &'static str,
    plan_us: u64,
    buffers: Vec<MemoryEntry<'a>>,
}

impl<'a> ResultLine<'a> {
    pub(crate) fn new(job: &'a Job, strategy: &Strategy, solved: &'a [Solved]) -> Self {
        let micros = solved.iter().map(|it| it.time.as_micros()).sum::<u128>();
        Self {
            version: VERSION,
            file: &job.file,
            strategy: strategy.to_string(),
            status: status(solved),
            plan_us: u64::try_from(micros).unwrap_or(u64::MAX),
            buffers: entries(job, solved),
        }
    }
}

/// What `-o plan.json` holds. Only a [`Plan`] has places that may be written.
#[derive(Debug, Serialize)]
pub(crate) struct PlanFile<'a> {
    version: u32,
    file: &'a str,
    strategy: String,
    status: &'static str,
    buffers: Vec<MemoryEntry<'a>>,
    blocks: Vec<BlockEntry<'a>>,
}

impl<'a> PlanFile<'a> {
    pub(crate) fn new(job: &'a Job, strategy: &Strategy, solved: &'a [Solved]) -> Self {
        let memories = job.memories.iter().zip(solved);
        Self {
            version: VERSION,
            file: &job.file,
            strategy: strategy.to_string(),
            status: status(solved),
            buffers: entries(job, solved),
            blocks: memories.flat_map(|(memory, solved)| block_entries(&memory.ids, &solved.plan)).collect(),
        }
    }
}

/// One memory of a result.
#[derive(Debug, Serialize)]
struct MemoryEntry<'a> {
    name: &'a str,
    blocks: usize,
    peak: Bytes,
    lower_bound: Bytes,
    optimal: bool,
    chunks: &'a [Bytes],
}

fn entries<'a>(job: &'a Job, solved: &'a [Solved]) -> Vec<MemoryEntry<'a>> {
    let entry = |(memory, solved): (&'a crate::input::Memory, &'a Solved)| MemoryEntry {
        name: &memory.name,
        blocks: memory.problem.blocks().len(),
        peak: solved.plan.peak(),
        lower_bound: solved.at_least,
        optimal: solved.is_optimal(),
        chunks: solved.plan.buffers().as_slice(),
    };
    job.memories.iter().zip(solved).map(entry).collect()
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

/// The word for several memories together: the worst one's.
fn status(solved: &[Solved]) -> &'static str {
    let any = |verdict| solved.iter().any(|it| it.verdict == verdict);
    if any(Verdict::CannotFit) {
        "cannot-fit"
    } else if any(Verdict::NotFound) {
        "not-found"
    } else if solved.iter().all(|it| it.verdict == Verdict::Optimal) {
        "optimal"
    } else {
        "fits"
    }
}

/// A JSON file before anyone knows what it is. Of our own files only the blocks count: the figures are made again.
#[derive(Deserialize)]
struct Unknown {
    schema: Option<serde_json::Value>,
    version: Option<serde_json::Value>,
    blocks: Option<Vec<UncheckedBlock>>,
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
pub(crate) fn read_plan_file(file: &str, text: &str) -> Result<Table, Error> {
    let file = file.to_owned();
    let unknown: Unknown = match serde_json::from_str(text) {
        Ok(unknown) => unknown,
        Err(source) => return Err(Error::Json { file, source }),
    };
    if unknown.schema.is_some() {
        return Err(Error::RecordedGraph { file });
    }
    match unknown.version {
        None => return Err(Error::NoPlan { file, missing: "version" }),
        Some(found) if found != VERSION => return Err(Error::Version { file, found }),
        Some(_) => {}
    }
    let Some(entries) = unknown.blocks else { return Err(Error::NoPlan { file, missing: "blocks" }) };
    table(entries).map_err(|trouble| trouble.within(file))
}

/// What can be wrong with the blocks.
enum Trouble {
    Block { id: String, why: String },
    Table(steeve_plan::csv::TableError),
}

impl Trouble {
    fn within(self, file: String) -> Error {
        match self {
            Self::Block { id, why } => Error::Block { file, why: format!("block {id}: {why}") },
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
            let why = format!("it follows block {follows}, which is not in the file");
            return Err(Trouble::Block { id: named.ids()[block].clone(), why });
        };
        blocks[block].follows = Some(before);
    }
    Table::new(named.ids().clone(), blocks, named.places().clone()).map_err(Trouble::Table)
}
