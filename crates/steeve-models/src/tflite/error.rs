//! What can be wrong with a TFLite file, and with a plan for it.

use super::model::TensorIndex;

/// Why a TFLite file can't be read, planned or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TfliteError {
    /// The file identifier is missing.
    #[error("TFLite: not a TFLite file: expected the identifier \"TFL3\" at byte 4")]
    NotTflite,
    /// A part of the file is located outside it.
    #[error("TFLite: {field} is outside the file: {size} bytes at {position}, the file has {file}")]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// Where it should be.
        position: u64,
        /// Its bytes.
        size: u64,
        /// The bytes of the file.
        file: usize,
    },
    /// The same parts of the file are used over and over, as no writer does.
    #[error(
        "TFLite: {field}: its parts share bytes too often: all parts together are four times the file, which has {file} bytes"
    )]
    SharedTooOften {
        /// The field that was read last.
        field: &'static str,
        /// The bytes of the file.
        file: usize,
    },
    /// A field without which the file has no meaning is missing.
    #[error("TFLite: {field} is missing in {of}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What it is missing in.
        of: String,
    },
    /// A number refers to something that does not exist.
    #[error("TFLite: {field} of {of}: no such number: {index}, there are {count}")]
    Index {
        /// The field.
        field: &'static str,
        /// What the field belongs to.
        of: String,
        /// The number.
        index: i64,
        /// How many there are.
        count: usize,
    },
    /// A tensor has a dimension that is not known, or its bytes can't be counted.
    #[error("TFLite: tensor {tensor}: unsupported shape: {shape:?}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        shape: Vec<i32>,
    },
    /// A tensor has a data type whose size is not known.
    #[error("TFLite: tensor {tensor}: unsupported data type: {data_type}")]
    DataType {
        /// The tensor.
        tensor: String,
        /// The name or number of the type.
        data_type: String,
    },
    /// A subgraph calls itself.
    #[error("TFLite: subgraph {} calls itself: {}", .path.first().map_or("", String::as_str), .path.join(" -> "))]
    Recursion {
        /// The subgraphs, from itself to itself.
        path: Vec<String>,
    },
    /// The program has more steps than TensorFlow Lite Micro can count.
    #[error("TFLite: more than {} operators run, calls counted each time", i32::MAX)]
    TooLong,
    /// The record of a plan is too short or is not in the file.
    #[error("TFLite: record of the plan: {bytes} bytes, at least {expected} are needed")]
    RecordSize {
        /// Its bytes.
        bytes: usize,
        /// What is needed.
        expected: usize,
    },
    /// A plan has another number of tensors than the file.
    #[error("TFLite: plan: {got} offsets, the file has {expected} tensors")]
    OffsetCount {
        /// The tensors of all subgraphs.
        expected: usize,
        /// The offsets.
        got: usize,
    },
    /// A plan has an offset that a record can't have.
    #[error("TFLite: plan: offset {offset} of tensor {tensor}: expected a multiple of 16 below 2^31")]
    Offset {
        /// The tensor.
        tensor: TensorIndex,
        /// The offset.
        offset: u64,
    },
    /// The file has a part that can't be moved.
    #[error("TFLite: the file can't be written with a plan: {field} is not known")]
    UnknownField {
        /// The part.
        field: String,
    },
    /// Operators have been compiled with the addresses of the record that the file has.
    #[error(
        "TFLite: the plan of the file can't be changed: its operators {operator} have been compiled for the addresses of its record"
    )]
    Compiled {
        /// The name of the operators.
        operator: String,
    },
    /// The file would be too large for its own offsets.
    #[error("TFLite: the file can't be written with a plan: {bytes} bytes are too many for its offsets")]
    FileSize {
        /// The bytes.
        bytes: u64,
    },
    /// Parts of the file share bytes, so that a record can't be written without a change to something else.
    #[error("TFLite: the file can't be written with a plan: its parts share bytes")]
    SharedBytes,
}
