//! A file in, what can be planned out: a block list, a graph, a model, or a plan that was written before.
//!
//! ```text
//!   path, pipe --FileReader--> bytes, unpacked, within a limit --content--> FileContent
//! ```
//!
//! What a file is, its content says, not its name: gzip and models by their first bytes, JSON by its brace and its fields,
//! a graph in text by its first line, and any other text is a block list. (ONNX has no
//! mark of its own: it is known by its first fields, or else by its name.) New kinds of files are new arms of [`FileContent`].

mod atomic_write;
mod error;
mod identity;
mod reader;

use serde::Deserialize;
use serde_json::value::RawValue;
use steeve_graph::recorded::SCHEMA as RECORDED;
use steeve_graph::{AssignedGraph, InputLimit, PlanFile, PlanFileError, RecordedGraph, text};
use steeve_plan::csv::{self, Table};

pub use atomic_write::write_atomically;
pub use error::{FileError, InputLength};
pub use identity::FileIdentity;
pub use reader::FileReader;

use crate::gguf::{GgufHeader, is_gguf};
use crate::onnx::{self, is_onnx};
use crate::tflite::{Model, is_tflite};

/// What a file holds. New kinds are new variants, and whoever matches this should be told of them, so it is exhaustive.
#[derive(Debug)]
pub enum FileContent {
    /// A block list. Read from the plan of one, with what that file claims beside blocks and places.
    Blocks(Table, Option<Box<PlanFile>>),
    /// A graph as text.
    Text(Box<AssignedGraph>),
    /// A recorded ggml graph.
    Recorded(Box<RecordedGraph>),
    /// A TFLite model.
    Tflite(Box<Model>),
    /// The header of a GGUF file, of whose data nothing is read.
    Gguf(Box<GgufHeader>),
    /// An ONNX model, whose free dimensions have no sizes yet.
    Onnx(Box<onnx::Model>),
    /// The plan of a graph.
    Plan(Box<PlanFile>),
}

impl FileReader<'_> {
    /// Reads at most `limit` bytes and says what they hold.
    ///
    /// ```
    /// use steeve_graph::InputLimit;
    /// use steeve_models::{FileContent, FileReader};
    /// let text = "x = input 64; y = silu x !output".as_bytes();
    /// let content = FileReader::of_reader("net.graph", text)?.content(InputLimit::DEFAULT)?;
    /// assert!(matches!(content, FileContent::Text(graph) if graph.graph().nodes().len() == 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If it can't be read, is longer than `limit`, has nothing in it that can be planned, or is damaged.
    pub fn content(self, limit: InputLimit) -> Result<FileContent, FileError> {
        let file = self.name().to_owned();
        // What is only called so is a model that can't be read.
        if is_gguf(self.head()) || self.is_called(".gguf") {
            let header =
                self.gguf_header(limit).map_err(|source| FileError::Gguf { file, source: Box::new(source) })?;
            return Ok(FileContent::Gguf(Box::new(header)));
        }
        let (is_called_tflite, is_called_onnx) = (self.is_called(".tflite"), self.is_called(".onnx"));
        let is_called_graph = self.is_called(".graph");
        let bytes = self.bytes(limit)?;
        if is_tflite(&bytes) || is_called_tflite {
            let model = Model::read(bytes).map_err(|source| FileError::Tflite { file, source })?;
            return Ok(FileContent::Tflite(Box::new(model)));
        }
        if is_onnx(&bytes) || is_called_onnx {
            let model =
                onnx::Model::read(&bytes).map_err(|source| FileError::Onnx { file, source: Box::new(source) })?;
            return Ok(FileContent::Onnx(Box::new(model)));
        }
        match TextForm::of(&bytes, is_called_graph) {
            TextForm::Empty => Err(FileError::Empty { file }),
            TextForm::Binary => Err(FileError::NotText { file }),
            TextForm::Json(text) => json_content(file, text, limit),
            TextForm::Graph(text) => match text::read_within(text, limit) {
                Ok(graph) if graph.graph().tensors().is_empty() => Err(FileError::NoTensors { file }),
                Ok(graph) => Ok(FileContent::Text(Box::new(graph))),
                Err(error) => Err(FileError::Text { file, source: Box::new(error) }),
            },
            TextForm::BlockList(text) => match csv::read_within(text, limit) {
                Ok(table) => blocks(file, table, None),
                Err(source) => Err(FileError::Csv { file, source }),
            },
        }
    }
}

/// Refuses a list without blocks: what could be said of its plan would be true and useless, and the file is rarely what it was
/// meant to be.
fn blocks(file: String, table: Table, claims: Option<Box<PlanFile>>) -> Result<FileContent, FileError> {
    if table.ids().is_empty() { Err(FileError::NoBlocks { file }) } else { Ok(FileContent::Blocks(table, claims)) }
}

fn json_content(file: String, text: &str, limit: InputLimit) -> Result<FileContent, FileError> {
    if names_schema(text, RECORDED) {
        return match RecordedGraph::from_json_within(text, limit) {
            Ok(recorded) if recorded.assigned.graph().tensors().is_empty() => Err(FileError::NoTensors { file }),
            Ok(recorded) => Ok(FileContent::Recorded(Box::new(recorded))),
            Err(error) => Err(FileError::Record { file, source: Box::new(error) }),
        };
    }
    let plan = match PlanFile::from_json_within(text, limit) {
        Ok(plan) => Box::new(plan),
        Err(PlanFileError::Json(error)) => return Err(FileError::Json { file, source: error }),
        Err(PlanFileError::Schema { found }) => return Err(FileError::Schema { file, found }),
        Err(source) => return Err(FileError::PlanFile { file, source }),
    };
    if plan.is_of_graph() {
        return Ok(FileContent::Plan(plan));
    }
    match plan.table() {
        Ok(table) => blocks(file, table, Some(plan)),
        Err(source) => Err(FileError::Table { file, source }),
    }
}

/// Only the field that tells what a JSON file is.
#[derive(Deserialize)]
struct SchemaField<'a> {
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
}

/// Returns whether a JSON file names this schema. The rest of it may be anything.
fn names_schema(text: &str, schema: &str) -> bool {
    let is_it = |found: &RawValue| serde_json::from_str::<String>(found.get()).is_ok_and(|found| found == schema);
    serde_json::from_str::<SchemaField<'_>>(text).is_ok_and(|head| head.schema.is_some_and(is_it))
}

/// What the bytes of a file that is no model are.
enum TextForm<'a> {
    Empty,
    Binary,
    Json(&'a str),
    Graph(&'a str),
    BlockList(&'a str),
}

impl<'a> TextForm<'a> {
    fn of(bytes: &'a [u8], is_called_graph: bool) -> Self {
        let Ok(text) = str::from_utf8(bytes) else { return Self::Binary };
        let text = text.trim_start_matches('\u{feff}');
        match text.trim_start().chars().next() {
            None => Self::Empty,
            Some('\0') => Self::Binary,
            // No header of a block list begins so, nor does a graph.
            Some('{' | '[') => Self::Json(text),
            Some(_) if is_called_graph || looks_like_graph_text(text) => Self::Graph(text),
            Some(_) => Self::BlockList(text),
        }
    }
}

/// Returns whether the first line that is no comment defines a tensor or a memory. No header of a block list has an `=`.
fn looks_like_graph_text(text: &str) -> bool {
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.find(|line| !line.is_empty()).is_some_and(|line| line.contains('=') || line.starts_with("memory "))
}

#[cfg(test)]
mod tests {
    use super::looks_like_graph_text;

    #[test]
    fn a_graph_is_known_by_its_first_line() {
        assert!(looks_like_graph_text("# a comment, with = in it\n\n x = input 16\n"));
        assert!(looks_like_graph_text("memory gpu align=128\n"));
        assert!(looks_like_graph_text("memory gpu\n"));
        assert!(!looks_like_graph_text("id,lower,upper,size\na=b,0,1,1\n"));
        assert!(!looks_like_graph_text("nonsense"));
        assert!(!looks_like_graph_text("# nothing = but a comment"));
    }
}
