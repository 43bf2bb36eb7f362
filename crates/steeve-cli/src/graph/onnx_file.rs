//! An ONNX model as the command plans it: its graph, once its free dimensions have sizes.

use steeve_graph::{AssignedGraph, Id, KeyedGraph, TensorId};
use steeve_models::onnx::{DimSizes, Model, OnnxError, OnnxGraph, OnnxKey};
use steeve_view::PlanMap;

use crate::error::{Error, ErrorChain};
use crate::plan_figures::ModelFigures;

/// A model with the sizes of its dimensions.
#[derive(Debug)]
pub(crate) struct OnnxFile {
    graph: OnnxGraph,
    keyed: KeyedGraph<OnnxKey>,
    dims: DimSizes,
}

impl OnnxFile {
    pub(crate) fn new(file: &str, model: &Model, dims: &DimSizes) -> Result<Self, Error> {
        let graph = OnnxGraph::new(model, dims).map_err(|error| {
            let file = file.to_owned();
            match example(&error) {
                Some(example) => Error::FreeDims { file, why: error.to_string(), example },
                None => Error::Onnx { file, source: Box::new(error) },
            }
        })?;
        match KeyedGraph::new(&graph) {
            Ok(keyed) => Ok(Self { graph, keyed, dims: dims.clone() }),
            Err(error) => Err(Error::Place { file: file.to_owned(), why: ErrorChain(&error).to_string() }),
        }
    }

    pub(crate) fn assigned(&self) -> &AssignedGraph {
        self.keyed.assigned()
    }

    /// Returns the names of the dimensions that the model leaves free.
    pub(crate) fn dim_names(&self) -> impl Iterator<Item = &str> {
        self.graph.dim_names()
    }

    /// Returns what is said of the model beside its plan.
    pub(crate) fn figures(&self) -> ModelFigures {
        let own = |name: &str| self.dim_names().any(|known| known == name);
        let dims = self.dims.iter().filter(|(name, _)| own(name)).map(|(name, size)| (name.to_owned(), size));
        ModelFigures { weights: self.graph.weights(), dims: dims.collect() }
    }

    /// Writes the types and shapes of the model into a map of its plan.
    pub(crate) fn describe(&self, map: &mut PlanMap) {
        for tile in map.memories.iter_mut().flat_map(|memory| &mut memory.tiles) {
            let key = tile.id.and_then(|id| self.keyed.key(TensorId::from_index(id as usize)?));
            if let Some(layout) = key.and_then(|key| self.graph.layout(key)) {
                tile.layout = layout;
            }
        }
    }
}

/// Returns options that give each free dimension a size; `None` for any other error.
fn example(error: &OnnxError) -> Option<String> {
    let OnnxError::FreeDims { free } = error else { return None };
    let options = free.iter().map(|dim| format!("--dim {}", shell_word(&format!("{}={}", dim.name, dim.example()))));
    Some(options.collect::<Vec<_>>().join(" "))
}

/// Quotes a word for a shell, if need be.
fn shell_word(word: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "_-./:=+".contains(it);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
