//! The plan file: one JSON object for the plan of a block list and for that of a graph.
//!
//! ```text
//! {"schema":"steeve-plan", "version":3, "strategy":"fast",
//!  "memories":[{"name":"memory", "peak":4096, "lower_bound":4096, "buffers":[4096],
//!               "blocks":[{"name":"conv", "size":4096, "live":[0,3], "buffer":0, "offset":0}, ...]}]}
//! ```
//!
//! The plan of a graph has more of the same: how it was planned, what is known of each memory, and the tensor of each block.
//! `docs/plan-file.md` describes every field. A file is a claim. It is parsed here ([`PlanFile::from_json`]) and turned into
//! a proven [`Plan`] by [`FileMemory::certify`]; [`FileMemory::faults`] lists everything that is wrong with one. What depends
//! on the graph is checked in `steeve-graph`.

mod check;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub use check::{FileFault, FileFaults};

use serde::{Deserialize, Serialize};

use crate::csv::{Table, TableError};
use crate::{
    Align, Block, BlockId, BufferId, Bytes, Clipped, Id, IdVec, InputLimit, InputTooLarge, Lifetime, Offset, Overlap,
    Place, Plan, lower_bound,
};

/// The name of the schema.
pub const SCHEMA: &str = "steeve-plan";

/// The value of [`PlanFile::planned_as`] for a graph that was planned by the rules of the drop-in.
pub const DROP_IN: &str = "drop-in";

/// The strategy of a plan of which only the places are known.
const GIVEN: &str = "given";

/// The version of the schema. Readers refuse any other. (Files of versions 1 and 2 do not name a schema.)
pub const VERSION: u32 = 3;

/// A plan as a file. Nothing in it is proven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlanFile {
    schema: String,
    version: u32,
    /// The file that was planned, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which strategy made the plan.
    pub strategy: String,
    /// For the plan of a graph: which nodes are computed in place of a source (`ggml`, `more` or `none`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<String>,
    /// For the plan of a graph: what becomes of tensors that no node reads (`keep`, `free-inputs` or `free`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// For the plan of a graph: `drop-in` if it was planned by the rules of the drop-in.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub planned_as: Option<String>,
    /// For the plan of a graph: its fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// For the plan of a graph whose text numbers tensors in another way: the fingerprint of what the text is read as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// For the plan of a graph that runs in another order than the graph's own: the positions of the nodes there, in the order in
    /// which they run. Live ranges count in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<u32>>,
    /// The memories, in the order of the graph. A block list has one.
    pub memories: Vec<FileMemory>,
}

/// One memory of a [`PlanFile`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMemory {
    /// Its name.
    pub name: String,
    /// Every offset is a multiple of this.
    #[serde(default, skip_serializing_if = "is_default")]
    pub alignment: Align,
    /// The largest buffer that the plan was allowed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_buffer: Option<Bytes>,
    /// For the plan of a graph: for how many nodes after its last reader a tensor stays.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold: u32,
    /// For the plan of a graph: what is kept so that nodes can be fused (`none`, `checked` or `kept`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub fusion: Option<String>,
    /// For the plan of a graph: whether the layout is ggml's own, which keeps to no `hold`, `fusion` and `max_buffer`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ggml_layout: bool,
    /// For the plan of a graph: the memory that owns these bytes, by its index. Such a memory has no blocks of its own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shared_with: Option<u32>,
    /// The sum of `buffers`.
    pub peak: Bytes,
    /// No plan of these blocks takes less.
    pub lower_bound: Bytes,
    /// The size of each buffer.
    pub buffers: Vec<Bytes>,
    /// What is allocated, and where.
    pub blocks: Vec<FileBlock>,
}

/// One block of a [`PlanFile`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileBlock {
    /// Its name, or that of its tensor.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: String,
    /// Its bytes.
    pub size: Bytes,
    /// Its live range, in steps, the end left out. In a graph, step 0 is before the run and node `n` runs at step `n + 1`.
    pub live: Lifetime,
    /// Where it differs from the memory's: what its offset is a multiple of.
    #[serde(default, skip_serializing_if = "is_default")]
    pub alignment: Option<Align>,
    /// Its buffer, by index.
    pub buffer: BufferId,
    /// Its offset in the buffer.
    pub offset: Offset,
    /// The block of this memory whose bytes it reuses in place, by its index.
    #[serde(default, skip_serializing_if = "is_default")]
    pub follows: Option<BlockId>,
    /// The block of this memory that it may share bytes with at its first step.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overlaps: Option<FileOverlap>,
    /// For the plan of a graph: the tensor that is allocated there.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tensor: Option<FileTensor>,
}

/// The [`Overlap`] of a [`FileBlock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileOverlap {
    /// The source that it may overlap, by its index.
    pub block: BlockId,
    /// How far below its source it starts at least, if they share bytes.
    pub distance: Bytes,
}

impl From<Overlap> for FileOverlap {
    fn from(overlap: Overlap) -> Self {
        Self { block: overlap.source, distance: overlap.distance }
    }
}

impl From<FileOverlap> for Overlap {
    fn from(overlap: FileOverlap) -> Self {
        Self { source: overlap.block, distance: overlap.distance }
    }
}

/// The tensor of a [`FileBlock`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTensor {
    /// Its number in the graph.
    pub id: u32,
    /// Where it differs from `id`: its number in the text of the graph.
    #[serde(default, skip_serializing_if = "is_default")]
    pub line: Option<u32>,
    /// Where it differs from the block's: the memory that decides how many bytes it takes, by its index.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sized_by: Option<u32>,
    /// The operation that computes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub op: String,
    /// Its data type and shape.
    #[serde(default, skip_serializing_if = "is_default")]
    pub r#type: String,
    /// `input`, `output`, `param`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flags: Vec<String>,
    /// The last node that reads it, also through a view.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_reader: Option<u32>,
    /// Whether it is kept to the end of the run because it, or a view of it, is an output.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kept: bool,
    /// What it is for, as pictures and summaries group tensors.
    #[serde(default, skip_serializing_if = "is_default")]
    pub role: Option<String>,
    /// The block of a network that it belongs to.
    #[serde(default, skip_serializing_if = "is_default")]
    pub layer: Option<u32>,
    /// The tensors within its bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub views: Vec<FileView>,
}

/// A view of a [`FileTensor`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileView {
    /// Its number in the graph.
    pub id: u32,
    /// Its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: String,
    /// Its offset in the buffer.
    pub offset: Offset,
    /// Its bytes.
    pub size: Bytes,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Why a text is no plan file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFileError {
    /// It is no JSON, or a field is missing, unknown or of another kind.
    #[error("not a plan file: malformed JSON, or a field that is missing, unknown or of another type")]
    Json(#[from] JsonError),
    /// A text that is longer than is read.
    #[error(transparent)]
    InputTooLarge(#[from] InputTooLarge),
    /// It names another schema.
    #[error("schema: unknown: expected {SCHEMA:?}, got {:?}", Clipped(found))]
    Schema {
        /// The schema in the file.
        found: String,
    },
    /// Written by another version.
    #[error("version: not supported: expected {VERSION}, got {found}; make it again with steeve plan -o")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// A word that is not known.
    #[error("{field}: unknown value: expected {known}, got {:?}", Clipped(found))]
    UnknownValue {
        /// The field.
        field: &'static str,
        /// What the file says.
        found: String,
        /// What it may say.
        known: &'static str,
    },
    /// A field that only the plan of a graph has.
    #[error("{field}: only allowed in the plan of a graph, and the file names no graph")]
    GraphField {
        /// The field.
        field: &'static str,
    },
    /// No graph, and not the one memory of a block list.
    #[error("memories: wrong number for the plan of a block list: expected 1, got {found}")]
    MemoryCount {
        /// How many there are.
        found: usize,
    },
    /// No schema is named, as in the plan files of older versions.
    #[error(
        "schema: missing: expected {SCHEMA:?} (plan files of older versions have none); make it again with steeve plan -o"
    )]
    NoSchema,
}

/// An error of serde_json, whose message shows at most the beginning of a long text from the file.
#[derive(Debug)]
pub struct JsonError(pub serde_json::Error);

impl core::fmt::Display for JsonError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        JsonMessage(&self.0).fmt(f)
    }
}

impl core::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.0.source()
    }
}

/// Shows an error of serde_json: whole if short, else its beginning, since text from the file may be of any length.
#[derive(Clone, Copy, Debug)]
pub struct JsonMessage<'a>(pub &'a serde_json::Error);

impl core::fmt::Display for JsonMessage<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let message = self.0.to_string();
        match Clipped(&message).parts() {
            (whole, 0) => f.write_str(whole),
            _ => write!(f, "{} at line {} column {}", Clipped(&message), self.0.line(), self.0.column()),
        }
    }
}

/// The fields that are read before the version is known.
#[derive(Deserialize)]
struct FileHeader {
    schema: Option<String>,
    version: Option<u32>,
}

impl PlanFile {
    /// Returns a file with these memories, made by this strategy.
    pub fn new(strategy: impl Into<String>, memories: Vec<FileMemory>) -> Self {
        Self {
            schema: SCHEMA.into(),
            version: VERSION,
            source: None,
            strategy: strategy.into(),
            reuse: None,
            unread: None,
            planned_as: None,
            graph: None,
            text: None,
            order: None,
            memories,
        }
    }

    /// Returns the plan of a block list as a file. `at_least` is what a search has proven of the problem, or its bound.
    ///
    /// ```
    /// use steeve_plan::file::PlanFile;
    /// use steeve_plan::{Strategy, csv, plan};
    /// let table = csv::read("id,lower,upper,size\nconv,0,3,4096\nrelu,3,5,1024\n")?;
    /// let plan = plan(table.problem()?, &Strategy::Fast)?;
    /// let file = PlanFile::of_blocks("fast", &plan, table.ids(), plan.bound().bytes);
    /// let read = PlanFile::from_json(&file.to_json())?;
    /// assert_eq!(read.memories[0].certify()?, plan);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_blocks(strategy: &str, plan: &Plan, names: &IdVec<BlockId, String>, at_least: Bytes) -> Self {
        let mut memory = FileMemory::of_plan("memory", plan, at_least);
        for (block, name) in memory.blocks.iter_mut().zip(names) {
            block.name.clone_from(name);
        }
        Self::new(strategy, Vec::from([memory]))
    }

    /// Converts a block list to a file. Fails if a block has no place.
    pub fn of_table(table: &Table) -> Result<Self, TableError> {
        let places = table.placement()?.places;
        let blocks = table.blocks().pairs().map(|(id, block)| FileBlock {
            name: table.ids()[id].clone(),
            alignment: (block.align != Align::ONE).then_some(block.align),
            ..FileBlock::new(block, places[id])
        });
        let blocks: Vec<FileBlock> = blocks.collect();
        let mut memory = FileMemory { name: "memory".into(), blocks, ..FileMemory::default() };
        memory.buffers = memory.used_sizes();
        memory.peak = memory.buffers.iter().fold(Bytes::ZERO, |sum, size| Bytes(sum.0.saturating_add(size.0)));
        // Where blocks overlap, the peak may be below what any plan takes, and that is said of the blocks.
        let bound = table.problem().map_or(memory.peak, |problem| lower_bound(&problem).bytes);
        memory.lower_bound = bound.min(memory.peak);
        Ok(Self::new(GIVEN, Vec::from([memory])))
    }

    /// Returns whether this is the plan of a graph.
    pub fn is_of_graph(&self) -> bool {
        self.graph.is_some()
    }

    /// Returns the text, the same for the same plan.
    pub fn to_json(&self) -> String {
        // Texts and numbers alone, which JSON can't refuse.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses a file. Fails if the text has more than [`InputLimit::DEFAULT`] bytes.
    pub fn from_json(text: &str) -> Result<Self, PlanFileError> {
        Self::from_json_within(text, InputLimit::DEFAULT)
    }

    /// Parses a file of at most `limit` bytes.
    pub fn from_json_within(text: &str, limit: InputLimit) -> Result<Self, PlanFileError> {
        limit.check(text.len())?;
        let read = serde_json::from_str::<Self>(text);
        match read {
            Ok(file) if (file.schema.as_str(), file.version) == (SCHEMA, VERSION) => file.checked(),
            // A file of another version may look quite different, and then the version is what is wrong with it.
            read => match serde_json::from_str(text) {
                Ok(FileHeader { schema: Some(found), .. }) if found != SCHEMA => Err(PlanFileError::Schema { found }),
                Ok(FileHeader { schema: Some(_), version: Some(found) }) if found != VERSION => {
                    Err(PlanFileError::Version { found })
                }
                Ok(FileHeader { schema: None, .. }) => Err(PlanFileError::NoSchema),
                _ => Ok(read.map_err(JsonError)?),
            },
        }
    }

    /// Checks for unknown values, and for fields that the plan of a block list does not have.
    fn checked(self) -> Result<Self, PlanFileError> {
        if !["ggml", "fast", "best", "best-fit", GIVEN].contains(&self.strategy.as_str()) {
            let known = "ggml, fast, best or best-fit";
            return Err(PlanFileError::UnknownValue { field: "strategy", found: self.strategy, known });
        }
        if let Some(found) = self.planned_as.clone().filter(|word| word != DROP_IN) {
            return Err(PlanFileError::UnknownValue { field: "as", found, known: DROP_IN });
        }
        match self.field_of_graph() {
            _ if self.is_of_graph() => Ok(self),
            Some(field) => Err(PlanFileError::GraphField { field }),
            None if self.memories.len() == 1 => Ok(self),
            None => Err(PlanFileError::MemoryCount { found: self.memories.len() }),
        }
    }

    /// Finds a field that only the plan of a graph has.
    fn field_of_graph(&self) -> Option<&'static str> {
        let of_memory = |it: &FileMemory| {
            let fields = [
                ("hold", it.hold != 0),
                ("fusion", it.fusion.is_some()),
                ("ggml_layout", it.ggml_layout),
                ("shared_with", it.shared_with.is_some()),
                ("tensor", it.blocks.iter().any(|block| block.tensor.is_some())),
            ];
            fields.into_iter().find(|(_, is_there)| *is_there).map(|(field, _)| field)
        };
        let fields = [
            ("reuse", self.reuse.is_some()),
            ("unread", self.unread.is_some()),
            ("as", self.planned_as.is_some()),
            ("text", self.text.is_some()),
        ];
        let own = fields.into_iter().find(|(_, is_there)| *is_there).map(|(field, _)| field);
        own.or_else(|| self.memories.iter().find_map(of_memory))
    }

    /// Returns the plan of a block list as a table. Fails if names are missing or appear twice.
    pub fn table(&self) -> Result<Table, TableError> {
        let Some(memory) = self.memories.first() else {
            return Table::new(Vec::new(), Vec::new(), Vec::new());
        };
        let names: Vec<String> = memory.blocks.iter().map(|block| block.name.clone()).collect();
        let places: Vec<Option<Place>> = memory.places().into_iter().map(Some).collect();
        Table::new(names, memory.problem_blocks(), places)
    }
}

impl FileBlock {
    fn new(block: &Block, place: Place) -> Self {
        Self {
            name: String::new(),
            size: block.size,
            live: block.life,
            alignment: None,
            buffer: place.buffer,
            offset: place.offset,
            follows: block.follows,
            overlaps: block.overlaps.map(FileOverlap::from),
            tensor: None,
        }
    }
}

impl FileMemory {
    /// Returns the plan of one memory, whose blocks have no names yet.
    pub fn of_plan(name: &str, plan: &Plan, at_least: Bytes) -> Self {
        let blocks = plan.problem().blocks();
        let alignment = blocks.iter().map(|block| block.align).max().unwrap_or_default();
        let aligned = |block: &Block| (block.align != alignment).then_some(block.align);
        let block = |(id, block): (BlockId, &Block)| FileBlock {
            alignment: aligned(block),
            ..FileBlock::new(block, plan.place(id))
        };
        Self {
            name: name.into(),
            alignment,
            max_buffer: plan.problem().max_buffer(),
            peak: plan.peak(),
            lower_bound: at_least,
            buffers: plan.buffers().as_slice().to_vec(),
            blocks: blocks.pairs().map(block).collect(),
            ..Self::default()
        }
    }

    /// Returns the blocks as a problem has them.
    pub fn problem_blocks(&self) -> Vec<Block> {
        let block = |it: &FileBlock| Block {
            follows: it.follows,
            overlaps: it.overlaps.map(Overlap::from),
            ..Block::new(it.size, it.live).aligned(it.alignment.unwrap_or(self.alignment))
        };
        self.blocks.iter().map(block).collect()
    }

    /// Returns where the file says that the blocks are.
    pub fn places(&self) -> Vec<Place> {
        self.blocks.iter().map(|it| Place { buffer: it.buffer, offset: it.offset }).collect()
    }

    /// Returns how large each buffer must be for the blocks in it. `n` blocks are in `n` buffers at most, so a larger index counts
    /// as the last of these.
    pub fn used_sizes(&self) -> Vec<Bytes> {
        let mut sizes: Vec<Bytes> = Vec::new();
        for block in &self.blocks {
            let buffer = block.buffer.index().min(self.blocks.len() - 1);
            if sizes.len() <= buffer {
                sizes.resize(buffer + 1, Bytes::ZERO);
            }
            if block.size > Bytes::ZERO {
                let align = block.alignment.unwrap_or(self.alignment);
                let end = Bytes(block.offset.0.saturating_add(align.round_up(block.size).unwrap_or(block.size).0));
                sizes[buffer] = sizes[buffer].max(end);
            }
        }
        sizes
    }
}
