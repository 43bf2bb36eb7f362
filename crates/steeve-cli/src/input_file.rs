//! Bytes in, something to plan out: a block list, a graph, or a plan that was written before.

use steeve_graph::PlanFile;
use steeve_models::FileContent;
use steeve_plan::InputLimit;
use steeve_plan::csv::Table;

use crate::args::GivenDims;
use crate::error::Error;
use crate::graph::{GraphFile, LanguageFile, ModelFile, OnnxFile};
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

/// How files are read.
#[derive(Clone, Copy)]
pub(crate) struct ReadOptions<'a> {
    pub(crate) limit: InputLimit,
    /// The sizes of the free dimensions of models.
    pub(crate) dims: &'a GivenDims,
}

/// Reads a file, whatever it holds. Of the plan of a block list only the blocks and their places count.
pub(crate) fn read(source: &InputSource, options: ReadOptions<'_>) -> Result<InputFile, Error> {
    read_with_claims(source, options).map(|(input, _)| input)
}

/// Reads a file, whatever it holds. If that is the plan file of a block list, with what the file claims.
pub(crate) fn read_with_claims(
    source: &InputSource,
    options: ReadOptions<'_>,
) -> Result<(InputFile, Option<PlanFile>), Error> {
    let mut claims = None;
    let mut inputs = read_settings(source, options, &mut claims)?;
    match inputs.pop() {
        Some((_, input)) => Ok((input, claims)),
        None => Err(Error::Usage("--dim: expected one size".to_owned())),
    }
}

/// Reads a file, whatever it holds: a model once for each setting of its free dimensions, with what these settings differ in, and
/// anything else once.
pub(crate) fn read_each(source: &InputSource, options: ReadOptions<'_>) -> Result<Vec<(String, InputFile)>, Error> {
    read_settings(source, options, &mut None)
}

fn read_settings(
    source: &InputSource,
    options: ReadOptions<'_>,
    claims: &mut Option<PlanFile>,
) -> Result<Vec<(String, InputFile)>, Error> {
    let read = inputs_of(source, options, claims);
    if read.is_err() {
        options.dims.note_failure();
    }
    read
}

fn inputs_of(
    source: &InputSource,
    options: ReadOptions<'_>,
    claims: &mut Option<PlanFile>,
) -> Result<Vec<(String, InputFile)>, Error> {
    let file = source.to_string();
    let graph = match source.open()?.content(options.limit)? {
        FileContent::Blocks(table, claimed) => {
            *claims = claimed.map(|it| *it);
            return Ok(vec![(String::new(), InputFile::Blocks(table))]);
        }
        FileContent::Plan(plan) => return Ok(vec![(String::new(), InputFile::Plan(plan))]),
        FileContent::Text(graph) => GraphFile::text(file, *graph),
        FileContent::Recorded(recorded) => GraphFile::recorded(file, *recorded),
        FileContent::Tflite(model) => {
            let model = ModelFile::new(file.clone(), *model)?;
            GraphFile::of_model(file, model)
        }
        FileContent::Onnx(model) => {
            let settings = options.dims.settings().iter().map(|setting| {
                let model = OnnxFile::new(&file, &model, &setting.sizes)?;
                options.dims.note(&mut model.dim_names());
                let graph = GraphFile::of_onnx(file.clone(), model);
                Ok((setting.chosen.clone(), InputFile::Graph(Box::new(graph))))
            });
            return settings.collect();
        }
        FileContent::Gguf(header) => {
            let model = LanguageFile::new(file.clone(), *header)?;
            GraphFile::of_language_model(file, model)
        }
    };
    Ok(vec![(String::new(), InputFile::Graph(Box::new(graph)))])
}
