//! What can be wrong with a GGUF file, and with the model in it.

use std::io;

use steeve_graph::{DataType, GraphError, InputTooLarge, LayoutError};
use steeve_plan::Clipped;
use steeve_runtime::sched::SchedError;

use super::model_config::Architecture;

/// Why a GGUF file can't be read, or the model in it can't be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The system can't read it.
    #[error("GGUF: cannot read")]
    Read(#[source] io::Error),
    /// The first bytes are others.
    #[error("GGUF: not a GGUF file: expected the first bytes \"GGUF\", got \"{}\"", .found.escape_ascii())]
    NotGguf {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// The numbers in it are those of a big-endian machine.
    #[error("GGUF: big-endian file: expected version 2 or 3 in little-endian, got version {version} in big-endian")]
    BigEndian {
        /// The version, read as big-endian.
        version: u32,
    },
    /// It is of a version that is not read.
    #[error("GGUF: unsupported version: expected 2 or 3, got {version}")]
    Version {
        /// The version.
        version: u32,
    },
    /// It ends inside the header.
    #[error("GGUF: truncated: the header ends at byte {at}, within {}", Clipped(field))]
    Truncated {
        /// Where the file ends.
        at: u64,
        /// What was being read.
        field: String,
    },
    /// The header is longer than what may be read.
    #[error("GGUF: header too large")]
    TooLarge(#[source] InputTooLarge),
    /// A count is larger than the bytes that may be read.
    #[error("GGUF: {}: too many: got {count}, at most {most} bytes are read", Clipped(field))]
    Count {
        /// What is counted.
        field: String,
        /// The count.
        count: u64,
        /// The limit of the header.
        most: u64,
    },
    /// A name or a text is not UTF-8.
    #[error("GGUF: {}: not UTF-8 text", Clipped(field))]
    NotText {
        /// Which one.
        field: String,
    },
    /// A value is of a type that does not exist, or that arrays can't have.
    #[error("GGUF: value {:?}: unknown type {kind}", Clipped(key))]
    ValueType {
        /// The key.
        key: String,
        /// The number of the type.
        kind: u32,
    },
    /// Two values have one key, or two tensors have one name.
    #[error("GGUF: {field} {:?}: occurs twice", Clipped(name))]
    Twice {
        /// Whether it is a value or a tensor.
        field: &'static str,
        /// The key or the name.
        name: String,
    },
    /// The alignment of the data is none.
    #[error("GGUF: value \"general.alignment\": expected a power of two, got {align}")]
    Align {
        /// The alignment.
        align: u64,
    },
    /// A tensor is of a type that is not known.
    #[error("GGUF: tensor {:?}: unknown data type {dtype}", Clipped(tensor))]
    DataType {
        /// The tensor.
        tensor: String,
        /// The number of the type.
        dtype: u32,
    },
    /// A tensor has more dimensions than there can be.
    #[error("GGUF: tensor {:?}: too many dimensions: expected at most 4, got {dimensions}", Clipped(tensor))]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// The number of dimensions.
        dimensions: u32,
    },
    /// A tensor has an invalid shape.
    #[error("GGUF: tensor {:?}: invalid shape", Clipped(tensor))]
    Layout {
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        source: LayoutError,
    },
    /// The data of a tensor do not start where data can.
    #[error("GGUF: tensor {:?}: misaligned data: expected a multiple of {align}, got offset {offset}", Clipped(tensor))]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Where it starts behind the header.
        offset: u64,
        /// The alignment of the file.
        align: u64,
    },
    /// The data of a tensor are outside the file.
    #[error(
        "GGUF: tensor {:?}: data outside the file: {size} bytes at {position}, the file has {file} bytes",
        Clipped(tensor)
    )]
    OutOfBounds {
        /// The tensor.
        tensor: String,
        /// Where its data are in the file.
        position: u64,
        /// Their bytes.
        size: u64,
        /// The bytes of the file.
        file: u64,
    },
    /// A value without which there is no model is missing.
    #[error("GGUF: value {key:?} is missing")]
    MissingValue {
        /// The key.
        key: String,
    },
    /// A value is not of the type or range that it must have.
    #[error("GGUF: value {key:?}: expected {expected}, got {}", Clipped(got))]
    Value {
        /// The key.
        key: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A model of a family that is not known.
    #[error("GGUF: architecture {:?} is not supported: expected {}", Clipped(found), Architecture::LIST)]
    Architecture {
        /// The name of the family.
        found: String,
    },
    /// The file is one of several.
    #[error("GGUF: part of a model in {parts} files: expected a model in one file")]
    Split {
        /// The number of files.
        parts: u64,
    },
    /// A weight is missing.
    #[error("GGUF: tensor {tensor:?} is missing")]
    MissingTensor {
        /// Its name.
        tensor: String,
    },
    /// A tensor that the family does not have: computing without it would be wrong.
    #[error("GGUF: tensor {:?} is not known in a model of architecture {architecture}", Clipped(tensor))]
    UnknownTensor {
        /// Its name.
        tensor: String,
        /// The family.
        architecture: Architecture,
    },
    /// A weight has another shape than the values say.
    #[error("GGUF: tensor {tensor:?}: wrong shape: expected {expected:?}, got {got:?}")]
    Shape {
        /// Its name.
        tensor: String,
        /// The shape by the values.
        expected: Vec<u64>,
        /// The shape in the file.
        got: Vec<u64>,
    },
    /// A weight has a type that can't be computed with in its place.
    #[error("GGUF: tensor {tensor:?}: expected {expected}, got {got}")]
    WeightType {
        /// Its name.
        tensor: String,
        /// The types it may have.
        expected: &'static str,
        /// Its type.
        got: DataType,
    },
    /// Context, batch or step have a size that does not fit.
    #[error("GGUF: {what}: expected {expected}, got {got}")]
    Size {
        /// Which size.
        what: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        got: u64,
    },
    /// The model's graph can't be built.
    #[error("GGUF: the model's graph can't be built")]
    Graph(#[from] GraphError),
    /// The model's graph can't be spread over devices, or planned.
    #[error("GGUF: the model's graph can't be planned")]
    Sched(#[source] Box<SchedError>),
}

impl From<SchedError> for GgufError {
    fn from(error: SchedError) -> Self {
        Self::Sched(Box::new(error))
    }
}
