//! Bytes in, something to plan out: a block list, a graph, or a plan that was written before.

use steeve_graph::PlanFile;
use steeve_models::FileContent;
use steeve_plan::InputLimit;
use steeve_plan::csv::Table;

use crate::error::Error;
use crate::graph::{GraphFile, LanguageFile, ModelFile};
use crate::input_source::InputSource;

/// What a file holds.
pub(crate) enum InputFile {
    /// A block list, or the plan of one.
    Blocks(Table),
    /// A graph.
    Graph(Box<GraphFile>),
    /// The plan of a graph.
    Plan(Box<PlanFile>),
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
    let graph = match source.open()?.content(limit)? {
        FileContent::Blocks(table, claims) => return Ok((InputFile::Blocks(table), claims.map(|it| *it))),
        FileContent::Plan(plan) => return Ok((InputFile::Plan(plan), None)),
        FileContent::Text(graph) => GraphFile::text(file, *graph),
        FileContent::Recorded(recorded) => GraphFile::recorded(file, *recorded),
        FileContent::Tflite(model) => {
            let model = ModelFile::new(file.clone(), *model)?;
            GraphFile::of_model(file, model)
        }
        FileContent::Gguf(header) => {
            let model = LanguageFile::new(file.clone(), *header)?;
            GraphFile::of_language_model(file, model)
        }
    };
    Ok((InputFile::Graph(Box::new(graph)), None))
}
