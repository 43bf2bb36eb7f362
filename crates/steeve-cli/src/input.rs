//! Bytes in, something to plan out: a block list, a graph, or a plan that was written before.
//!
//! What a file is, its content says, not its name: gzip and GGUF by their first bytes, JSON by its brace and its fields,
//! a graph in text by its first line, and any other text is a block list. (Only ONNX has no mark of its own.) New kinds
//! of input are new arms of [`Content`] and [`Input`].

use steeve_graph::{AssignedGraph, Recorded};
use steeve_plan::csv::{self, Table};

use crate::block_plan;
use crate::error::Error;
use crate::graph::{GraphFile, TensorPlan};
use crate::json::{self, Kind};
use crate::source::Source;

/// What a file holds.
pub(crate) enum Input {
    /// A block list, or the plan of one.
    Blocks(Table),
    /// A graph.
    Graph(Box<GraphFile>),
    /// The plan of a graph.
    Tensors(TensorPlan),
}

/// Reads a file, whatever it holds.
pub(crate) fn read(source: &Source) -> Result<Input, Error> {
    let file = source.to_string();
    let bytes = source.unpacked()?;
    match Content::of(source, &bytes) {
        Content::Empty => Err(Error::Empty { file }),
        Content::Model(kind) => Err(Error::Model { file, kind }),
        Content::Binary => Err(Error::NotText { file }),
        Content::Json(text) => read_json(file, text),
        Content::Graph(text) => match text.parse::<AssignedGraph>() {
            Ok(assigned) => Ok(Input::Graph(Box::new(GraphFile::text(file, assigned)))),
            Err(error) => Err(Error::Text { file, source: Box::new(error) }),
        },
        Content::BlockList(text) => match csv::read(text) {
            Ok(table) => Ok(Input::Blocks(table)),
            Err(source) => Err(Error::Csv { file, source }),
        },
    }
}

fn read_json(file: String, text: &str) -> Result<Input, Error> {
    match json::kind(&file, text)? {
        Kind::Recorded => match Recorded::from_json(text) {
            Ok(recorded) => Ok(Input::Graph(Box::new(GraphFile::recorded(file, recorded)))),
            Err(error) => Err(Error::Record { file, source: Box::new(error) }),
        },
        Kind::Blocks => block_plan::read(&file, text).map(Input::Blocks),
        Kind::Tensors => TensorPlan::read(file, text).map(Input::Tensors),
    }
}

/// What the bytes of a file are.
enum Content<'a> {
    Empty,
    Model(&'static str),
    Binary,
    Json(&'a str),
    Graph(&'a str),
    BlockList(&'a str),
}

impl<'a> Content<'a> {
    fn of(source: &Source, bytes: &'a [u8]) -> Self {
        if bytes.starts_with(b"GGUF") || source.ends_with(".gguf") {
            return Self::Model("a GGUF");
        }
        if source.ends_with(".onnx") {
            return Self::Model("an ONNX");
        }
        let Ok(text) = str::from_utf8(bytes) else { return Self::Binary };
        let text = text.trim_start_matches('\u{feff}');
        match text.trim_start().chars().next() {
            None => Self::Empty,
            Some('\0') => Self::Binary,
            // No header of a block list begins so, nor does a graph.
            Some('{' | '[') => Self::Json(text),
            Some(_) if source.ends_with(".graph") || starts_as_a_graph(text) => Self::Graph(text),
            Some(_) => Self::BlockList(text),
        }
    }
}

/// The first line that is no comment defines a tensor or a memory. No header of a block list has an `=` in it.
fn starts_as_a_graph(text: &str) -> bool {
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.find(|line| !line.is_empty()).is_some_and(|line| line.contains('=') || line.starts_with("memory "))
}

#[cfg(test)]
mod tests {
    use super::starts_as_a_graph;

    #[test]
    fn a_graph_is_known_by_its_first_line() {
        assert!(starts_as_a_graph("# a comment, with = in it\n\n x = input 16\n"));
        assert!(starts_as_a_graph("memory gpu align=128\n"));
        assert!(starts_as_a_graph("memory gpu\n"));
        assert!(!starts_as_a_graph("id,lower,upper,size\na=b,0,1,1\n"));
        assert!(!starts_as_a_graph("nonsense"));
        assert!(!starts_as_a_graph("# nothing = but a comment"));
    }
}
