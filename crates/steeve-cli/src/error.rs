//! Everything that can go wrong, each with the file and what to do about it.

use std::io;

use steeve_plan::csv::{CsvError, TableError};

use crate::answer::Answer;

/// Why a file, or the whole command, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("{file}: can't be read: {source}; check the path")]
    Read { file: String, source: io::Error },
    #[error("{file}: is a folder; name a file in it")]
    Folder { file: String },
    #[error("{file}: there is no .csv and no .csv.gz in this folder; name the files themselves")]
    EmptyFolder { file: String },
    #[error("{file}: the gzip data is damaged ({source}); compress or copy it again")]
    Gzip { file: String, source: io::Error },
    #[error("{file}: is empty; write a block list with the header id,lower,upper,size into it")]
    Empty { file: String },
    #[error("{file}: is not text in UTF-8; steeve reads block lists as CSV and plans as JSON, plain or gzip")]
    NotText { file: String },
    #[error(
        "{file}: is {kind} model, which can't be planned directly, for it does not say when each tensor is needed; give a block list (CSV) of its computation"
    )]
    Model { file: String, kind: &'static str },
    #[error("{file}: is a recorded graph, which this version can't plan; give a block list (CSV)")]
    RecordedGraph { file: String },
    #[error("{file}: {source}")]
    Csv { file: String, source: CsvError },
    #[error("{file}: is not a plan in JSON: {source}; write one with steeve plan -o")]
    Json { file: String, source: serde_json::Error },
    #[error("{file}: is JSON but no plan, for it has no \"{missing}\"; write one with steeve plan -o")]
    NoPlan { file: String, missing: &'static str },
    #[error("{file}: the plan has version {found}, and this program reads version {known}; write it again", known = crate::json::VERSION)]
    Version { file: String, found: serde_json::Value },
    #[error("{file}: {why}")]
    Block { file: String, why: String },
    #[error("{file}: {source}")]
    Table { file: String, source: TableError },
    #[error("{file}: no block has an offset, so there is no plan to check; {advice}")]
    NoOffsets { file: String, advice: &'static str },
    #[error("{file}: the pinned blocks contradict each other: {why}; change their offsets or plan without --pinned")]
    Pinned { file: String, why: String },
    #[error("{file}: the blocks can't be placed within 2^64 bytes; raise --max-buffer or make them smaller")]
    AddressSpace { file: String },
    #[error("{file}: can't be planned: {why}")]
    Place { file: String, why: String },
    #[error("{file}: can't be written: {source}; check the folder and its permissions")]
    Write { file: String, source: io::Error },
    #[error("the output can't be written: {0}")]
    Output(io::Error),
}

impl Error {
    pub(crate) fn answer(&self) -> Answer {
        match self {
            // The input is sound; there is just no plan.
            Self::Pinned { .. } | Self::AddressSpace { .. } | Self::Place { .. } => Answer::No,
            _ => Answer::Bad,
        }
    }
}
