//! Why a file can't be planned: `file: what is wrong: expected, got`, with the cause as its source.

use std::{fmt, io};

use steeve_graph::file::SCHEMA as PLAN;
use steeve_graph::recorded::SCHEMA as RECORDED;
use steeve_graph::{Bytes, PlanFileError, RecordError, TextError};
use steeve_plan::Clipped;
use steeve_plan::csv::{CsvError, TableError};
use steeve_plan::file::JsonError;

use crate::gguf::GgufError;
use crate::onnx::OnnxError;
use crate::tflite::TfliteError;

/// Why a file can't be planned. Each names the file as the caller did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each field is what its name says: the file, and the cause")]
pub enum FileError {
    /// The system can't read it.
    #[error("{file}: cannot read")]
    Read { file: String, source: io::Error },
    /// It is a folder.
    #[error("{file}: is a folder: expected a file")]
    Folder { file: String },
    /// It is longer than what may be read.
    #[error("{file}: too large: expected at most {limit} bytes, got {length}")]
    TooLarge { file: String, limit: Bytes, length: InputLength },
    /// There is no memory for it.
    #[error("{file}: out of memory: {read} bytes read, no room for more")]
    OutOfMemory { file: String, read: Bytes },
    /// It is gzip data that can't be unpacked.
    #[error("{file}: damaged gzip data")]
    Gzip { file: String, source: io::Error },
    /// There is nothing in it.
    #[error("{file}: empty: expected a graph, a block list or a plan")]
    Empty { file: String },
    /// It is neither text nor a model that is known.
    #[error(
        "{file}: not UTF-8 text: expected a graph (JSON or text), a block list (CSV) or a plan (JSON), plain or gzip"
    )]
    NotText { file: String },
    /// It is no TFLite model that can be planned.
    #[error("{file}: cannot be used as a model")]
    Tflite { file: String, source: TfliteError },
    /// It is no GGUF file that can be read.
    #[error("{file}: cannot be used as a model")]
    Gguf { file: String, source: Box<GgufError> },
    /// It is no ONNX model that can be planned.
    #[error("{file}: cannot be used as a model")]
    Onnx { file: String, source: Box<OnnxError> },
    /// It is a list without blocks.
    #[error("{file}: no blocks: expected a line for each below the header")]
    NoBlocks { file: String },
    /// It is a graph without tensors.
    #[error("{file}: no tensors: expected at least one, such as x = input 16")]
    NoTensors { file: String },
    /// It is JSON of another schema.
    #[error("{file}: unknown schema: expected {PLAN:?} or {RECORDED:?}, got {:?}", Clipped(found))]
    Schema { file: String, found: String },
    /// It is a damaged recording.
    #[error("{file}: invalid recording")]
    Record { file: String, source: Box<RecordError> },
    /// It is a wrong graph as text.
    #[error("{file}: invalid graph")]
    Text { file: String, source: Box<TextError> },
    /// It is a wrong block list.
    #[error("{file}: invalid block list")]
    Csv { file: String, source: CsvError },
    /// It is JSON, and neither a recording nor a plan.
    #[error("{file}: not a recorded graph or plan")]
    Json { file: String, source: JsonError },
    /// It is a damaged plan.
    #[error("{file}: invalid plan")]
    PlanFile { file: String, source: PlanFileError },
    /// It is the plan of a wrong block list.
    #[error("{file}: invalid block list")]
    Table { file: String, source: TableError },
}

/// How long an input is, as far as it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputLength {
    /// This many bytes.
    Known(Bytes),
    /// More than may be read.
    More,
    /// More than may be read, when it is unpacked.
    MoreUnpacked,
}

impl fmt::Display for InputLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(bytes) => bytes.fmt(f),
            Self::More => f.write_str("more"),
            Self::MoreUnpacked => f.write_str("more when unpacked"),
        }
    }
}
