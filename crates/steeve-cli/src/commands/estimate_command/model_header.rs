//! The header of a model among a program's arguments: how many tensors it has and their bytes. Nothing of the weights is read.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde::Serialize;
use steeve_models::gguf::GgufHeader;
use steeve_plan::InputLimit;

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ModelHeader {
    pub(super) file: String,
    pub(super) tensors: u64,
    /// The bytes of all tensors.
    pub(super) weights: u64,
}

/// Returns the header of a model; `None` for a file that is none, or that can't be understood.
pub(super) fn model_header(path: &Path) -> Option<ModelHeader> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let header = GgufHeader::read(BufReader::new(File::open(path).ok()?), InputLimit::DEFAULT).ok()?;
    let (tensors, weights) = (header.tensors().len() as u64, header.weights().0);
    Some(ModelHeader { file: path.display().to_string(), tensors, weights })
}
