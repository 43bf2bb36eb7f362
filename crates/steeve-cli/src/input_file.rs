//! Bytes in, something to plan out: a block list, a graph, or a plan that was written before.
//!
//! What a file is, its content says, not its name: gzip and models by their first bytes, JSON by its brace and its fields,
//! a graph in text by its first line, and any other text is a block list. (Only ONNX has no mark of its own.) New kinds
//! of input are new arms of [`FileContent`] and [`InputFile`].

use steeve_graph::recorded::SCHEMA as RECORDED;
use steeve_graph::{PlanFile, PlanFileError, RecordedGraph, text};
use steeve_plan::InputLimit;
use steeve_plan::csv::{self, Table};

use crate::error::{Error, JsonError};
use crate::graph::{GraphFile, ModelFile};
use crate::input_source::InputSource;
use crate::json_lines;

/// What a file holds.
pub(crate) enum InputFile {
    /// A block list, or the plan of one.
    Blocks(Table),
    /// A graph.
    Graph(Box<GraphFile>),
    /// The plan of a graph.
    Plan(Box<PlanFile>),
}

impl InputFile {
    /// Refuses what has nothing in it: a list without blocks, a graph without tensors. What could be said of their plans
    /// would be true and useless, and the file is rarely what it was meant to be.
    fn reject_empty(self, file: String) -> Result<Self, Error> {
        match &self {
            Self::Blocks(table) if table.ids().is_empty() => Err(Error::NoBlocks { file }),
            Self::Graph(graph) if graph.assigned.graph().tensors().is_empty() => Err(Error::NoTensors { file }),
            _ => Ok(self),
        }
    }
}

/// Reads a file of at most `limit` bytes, whatever it holds. Of the plan of a block list only the blocks and their places count.
pub(crate) fn read(source: &InputSource, limit: InputLimit) -> Result<InputFile, Error> {
    read_with_claims(source, limit).map(|(input, _)| input)
}

/// Reads a file of at most `limit` bytes, whatever it holds. If that is the plan file of a block list, with what the file
/// claims.
pub(crate) fn read_with_claims(
    source: &InputSource,
    limit: InputLimit,
) -> Result<(InputFile, Option<PlanFile>), Error> {
    let file = source.to_string();
    let unpacked = source.open()?;
    // A model is often larger than anything that is read, and what it is says more than how large it is.
    if let Some(kind) = model_kind(source, unpacked.head()) {
        return Err(Error::Model { file, kind });
    }
    let bytes = unpacked.read(limit)?;
    if is_tflite(source, &bytes) {
        let model = ModelFile::read(file.clone(), bytes)?;
        return Ok((InputFile::Graph(Box::new(GraphFile::of_model(file, model))), None));
    }
    let read = match FileContent::of(source, &bytes) {
        FileContent::Empty => return Err(Error::Empty { file }),
        FileContent::Binary => return Err(Error::NotText { file }),
        FileContent::Json(text) => {
            let (input, claims) = read_json(file.clone(), text, limit)?;
            return Ok((input.reject_empty(file)?, claims));
        }
        FileContent::Graph(text) => match text::read_within(text, limit) {
            Ok(assigned) => InputFile::Graph(Box::new(GraphFile::text(file.clone(), assigned))),
            Err(error) => return Err(Error::Text { file, source: Box::new(error) }),
        },
        FileContent::BlockList(text) => match csv::read_within(text, limit) {
            Ok(table) => InputFile::Blocks(table),
            Err(source) => return Err(Error::Csv { file, source }),
        },
    };
    Ok((read.reject_empty(file)?, None))
}

/// Returns the kind of a model file that is not read, by its first bytes or its name; `None` for any other file.
fn model_kind(source: &InputSource, head: &[u8]) -> Option<&'static str> {
    const KINDS: [(&str, &str); 2] = [(".gguf", "a GGUF"), (".onnx", "an ONNX")];
    if head.starts_with(b"GGUF") {
        return Some("a GGUF");
    }
    KINDS.into_iter().find(|(ending, _)| source.ends_with(ending)).map(|(_, kind)| kind)
}

/// Returns whether a file is a TFLite model, by its first bytes; what is only called so is one that can't be read.
fn is_tflite(source: &InputSource, bytes: &[u8]) -> bool {
    steeve_models::tflite::is_tflite(bytes) || source.ends_with(".tflite")
}

fn read_json(file: String, text: &str, limit: InputLimit) -> Result<(InputFile, Option<PlanFile>), Error> {
    if json_lines::names_schema(text, RECORDED) {
        return match RecordedGraph::from_json_within(text, limit) {
            Ok(recorded) => Ok((InputFile::Graph(Box::new(GraphFile::recorded(file, recorded))), None)),
            Err(error) => Err(Error::Record { file, source: Box::new(error) }),
        };
    }
    let plan = match PlanFile::from_json_within(text, limit) {
        Ok(plan) => plan,
        Err(PlanFileError::Json(error)) => return Err(Error::Json { file, source: JsonError(error.0) }),
        Err(PlanFileError::Schema { found }) => return Err(Error::Schema { file, found }),
        Err(source) => return Err(Error::PlanFile { file, source }),
    };
    if plan.is_of_graph() {
        return Ok((InputFile::Plan(Box::new(plan)), None));
    }
    match plan.table() {
        Ok(table) => Ok((InputFile::Blocks(table), Some(plan))),
        Err(source) => Err(Error::Table { file, source }),
    }
}

/// What the bytes of a file are.
enum FileContent<'a> {
    Empty,
    Binary,
    Json(&'a str),
    Graph(&'a str),
    BlockList(&'a str),
}

impl<'a> FileContent<'a> {
    fn of(source: &InputSource, bytes: &'a [u8]) -> Self {
        let Ok(text) = str::from_utf8(bytes) else { return Self::Binary };
        let text = text.trim_start_matches('\u{feff}');
        match text.trim_start().chars().next() {
            None => Self::Empty,
            Some('\0') => Self::Binary,
            // No header of a block list begins so, nor does a graph.
            Some('{' | '[') => Self::Json(text),
            Some(_) if source.ends_with(".graph") || looks_like_graph_text(text) => Self::Graph(text),
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
