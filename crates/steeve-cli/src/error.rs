//! Everything that can go wrong, each with the file and what to do about it.

use std::process::ExitStatus;
use std::time::Duration;
use std::{fmt, io};

use steeve_graph::file::SCHEMA as PLAN;
use steeve_graph::recorded::SCHEMA as RECORDED;
use steeve_graph::{ErrorChain, JsonMessage, PlanFileError, RecordError, TextError};
use steeve_plan::csv::{CsvError, TableError};
use steeve_plan::{Bytes, Clipped};

use crate::answer::Answer;

/// Why a file, or the whole command, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("{file}: can't be read: {source}; check the path")]
    Read { file: String, source: io::Error },
    #[error("{folder}: is a folder, and {file} is none; name two files or two folders")]
    FolderAndFile { folder: String, file: String },
    #[error("{before}: has no file with the name of one in {after}; name the files themselves")]
    NothingInBoth { before: String, after: String },
    #[error("{file}: is a folder; name a file in it")]
    Folder { file: String },
    #[error("{file}: there is no .csv, .json or .graph (plain or .gz) in this folder; name the files themselves")]
    EmptyFolder { file: String },
    #[error("{pattern}: no file fits this pattern; check the folder, and put the pattern in quotes")]
    NothingFits { pattern: String },
    #[error("{pattern}: is no pattern of file names ({why}); use *, ?, [abc] and **")]
    Pattern { pattern: String, why: String },
    #[error(
        "{file}: is too large: at most {limit} bytes are read, and it has {length}; raise the limit with --max-input"
    )]
    TooLarge { file: String, limit: Bytes, length: Length },
    #[error(
        "{file}: out of memory: {read} bytes of it are read, and there is no room for more; use a smaller file, or a machine with more memory"
    )]
    OutOfMemory { file: String, read: Bytes },
    #[error("{file}: the gzip data is damaged ({source}); compress or copy it again")]
    Gzip { file: String, source: io::Error },
    #[error(
        "{file}: is empty; write a block list with the header id,lower,upper,size into it, or a graph such as x = input 16"
    )]
    Empty { file: String },
    #[error(
        "{file}: is not text in UTF-8; steeve reads graphs as JSON or text, block lists as CSV and plans as JSON, plain or gzip"
    )]
    NotText { file: String },
    #[error(
        "{file}: is {kind} model, and steeve does not read models yet; record the graph while a program runs the model (steeve record -- PROGRAM ARGS), or write the graph in the text form (steeve help plan shows it)"
    )]
    Model { file: String, kind: &'static str },
    #[error("{file}: has no blocks: expected a line for each below the header")]
    NoBlocks { file: String },
    #[error("{file}: has no tensors: expected at least one, such as x = input 16")]
    NoTensors { file: String },
    #[error(
        "{file}: is a graph (a recorded graph or one in text) and no plan; give the problem first and then its plan"
    )]
    NotAPlan { file: String },
    #[error("{file}: is the plan of a graph; give the graph itself, and to check this plan: steeve check GRAPH {file}")]
    PlanOfGraph { file: String },
    #[error(
        "{file}: is the plan of a {found}, and {problem} is a {wanted}; give the plan file (.json) that was made for it"
    )]
    OtherPlan { file: String, problem: String, found: &'static str, wanted: &'static str },
    #[error(
        "{file}: the schema is {:?}, and this program reads {PLAN:?} and {RECORDED:?}; plan or record the graph again",
        Clipped(found)
    )]
    Schema { file: String, found: String },
    #[error("{file}: {}; record it again, or leave it out", ErrorChain(source))]
    Record { file: String, source: Box<RecordError> },
    #[error("{file}: {}", ErrorChain(source))]
    Text { file: String, source: Box<TextError> },
    #[error("{file}: {source}")]
    Csv { file: String, source: CsvError },
    #[error(
        "{file}: is not a plan in JSON and no recorded graph: {}; write a plan with steeve plan -o, or record the graph again",
        JsonMessage(source)
    )]
    Json { file: String, source: serde_json::Error },
    #[error("{file}: {source}")]
    PlanFile { file: String, source: PlanFileError },
    #[error("{file}: {why}")]
    Block { file: String, why: String },
    #[error("{file}: {source}")]
    Table { file: String, source: TableError },
    #[error("{file}: the plan does not hold: {why}; no header is made of it")]
    DoesNotHold { file: String, why: String },
    #[error("{file}: no block has an offset, so there is no plan to check; {advice}")]
    NoOffsets { file: String, advice: &'static str },
    #[error("{file}: the pinned blocks do not hold: {why}; change their offsets or plan without --pinned")]
    Pinned { file: String, why: String },
    #[error("{file}: the blocks can't be placed within 2^64 bytes; raise --max-buffer or make them smaller")]
    AddressSpace { file: String },
    #[error("{file}: can't be planned: {why}")]
    Place { file: String, why: String },
    #[error(
        "the drop-in library is not at {looked}; build it with cargo build --release -p steeve-ggml, and name it with --library target/release/{name} or STEEVE_LIBRARY",
        name = crate::drop_in::NAME
    )]
    NoLibrary { looked: String },
    #[error("{file}: is no shared library; name the {name} that cargo build --release -p steeve-ggml makes", name = crate::drop_in::NAME)]
    NotALibrary { file: String },
    #[error(
        "{file}: can't be preloaded, for the loader ends a path at a space or colon; copy the library to a folder without them"
    )]
    LibraryPath { file: String },
    #[error("{folder}: can't be used as a folder for graphs: {source}; name another with --out")]
    RecordFolder { folder: String, source: io::Error },
    #[error("{folder}: can't be used as a folder for plans: {source}; name another with --out")]
    PlanFolder { folder: String, source: io::Error },
    #[error("{program}: there is no such program; check its name or path")]
    NoProgram { program: String },
    #[error("{program}: can't be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program}: failed ({status}) before it planned anything with ggml{printed}")]
    ProgramFailed { program: String, status: ExitStatus, printed: Printed },
    #[error(
        "{program}: ended without planning anything with ggml's graph allocator; have it load a model, and see docs/ggml.md, \"When nothing happens\""
    )]
    EndedWithoutPlan { program: String },
    #[error(
        "{program}: has planned nothing with ggml's graph allocator within {timeout:?}; raise --timeout, or see docs/ggml.md, \"When nothing happens\""
    )]
    NothingPlanned { program: String, timeout: Duration },
    #[error(
        "{program}: has planned nothing that could be seen: ggml is inside of {file}, and no preloaded library can take its place there; use a build with shared libraries (docs/ggml.md)"
    )]
    GgmlInside { program: String, file: String },
    #[error(
        "{program}: has not loaded the drop-in: it is linked statically, set-user-id, or made for another C library; use a build that is not"
    )]
    NotPreloaded { program: String },
    #[error("{program}: steeve's allocator can't be used, so ggml's own plans its graphs: {}", Clipped(why))]
    GgmlsOwn { program: String, why: String },
    #[error("{program}: ended by Ctrl-C before it planned anything with ggml")]
    EstimateStopped { program: String },
    #[error("--capacity {memory}: there is no such memory; there are: {memories}")]
    NoSuchMemory { memory: String, memories: String },
    #[error("{folder}: can't be used for the drop-in's report: {source}; set TMPDIR to another folder")]
    Workplace { folder: String, source: io::Error },
    #[error("the drop-in's report can't be read: {source}")]
    Report { source: io::Error },
    #[error("the drop-in's report has another version than this program reads; build both from the same source")]
    ReportVersion,
    #[error("the drop-in's report has a damaged line: {}; see whether the disk of TMPDIR is full", JsonMessage(source))]
    ReportLine { source: serde_json::Error },
    #[error("{file}: can't be written: {source}; check the folder and its permissions")]
    Write { file: String, source: io::Error },
    #[error("{file}: can't be written: no space is left on its disk; make room, or name a file elsewhere with -o")]
    NoSpace { file: String },
    #[error("{file}: is the input {input} itself, which would be lost; name another file with -o")]
    OverInput { file: String, input: String },
    #[error("the output can't be written: {0}")]
    Output(io::Error),
}

impl Error {
    pub(crate) fn answer(&self) -> Answer {
        match self {
            // The input is sound; there is just no plan.
            Self::DoesNotHold { .. } | Self::Pinned { .. } | Self::AddressSpace { .. } | Self::Place { .. } => {
                Answer::No
            }
            _ => Answer::Bad,
        }
    }
}

/// The last lines that a program printed, behind a message.
#[derive(Debug)]
pub(crate) struct Printed(pub(crate) Vec<String>);

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("; it has printed nothing");
        }
        f.write_str("; its last lines:")?;
        self.0.iter().try_for_each(|line| write!(f, "\n  {}", Clipped(line)))
    }
}

/// How long an input is, as far as it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Known(Bytes),
    More,
    MoreUnpacked,
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(bytes) => bytes.fmt(f),
            Self::More => f.write_str("more"),
            Self::MoreUnpacked => f.write_str("more when it is unpacked"),
        }
    }
}
