//! What can be wrong with an ONNX file, and what has to be said before it can be planned.

use std::fmt;

use steeve_graph::TensorGraphError;
use steeve_plan::Clipped;

/// Why an ONNX file can't be read or planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The bytes are no message of the format.
    #[error("ONNX: {field}: {what} at byte {position}, the file has {file} bytes")]
    Damaged {
        /// What was read.
        field: &'static str,
        /// What is wrong there.
        what: &'static str,
        /// Where.
        position: usize,
        /// The bytes of the file.
        file: usize,
    },
    /// Messages are nested deeper than any reader of the format follows.
    #[error(
        "ONNX: {field} at byte {position}: messages nested deeper than {most}, which no reader of the format follows"
    )]
    Nested {
        /// What was read.
        field: &'static str,
        /// Where.
        position: usize,
        /// How deep messages may be.
        most: usize,
    },
    /// A field without which the file has no meaning is missing.
    #[error("ONNX: {field} is missing in {of}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What it is missing in.
        of: String,
    },
    /// A tensor has more dimensions than any runtime has.
    #[error("ONNX: {:?}: too many dimensions: expected at most {most}, got {rank}", Clipped(value))]
    Rank {
        /// The tensor.
        value: String,
        /// The most that there may be.
        most: usize,
        /// The number of dimensions.
        rank: usize,
    },
    /// A node reads what nothing before it computes.
    #[error("ONNX: {node}: reads {value:?}, which no node before it computes and no input or initializer is called")]
    UnknownValue {
        /// The node.
        node: String,
        /// The value.
        value: String,
    },
    /// Two things have one name.
    #[error("ONNX: {node}: computes {value:?}, which is there already")]
    Twice {
        /// The node.
        node: String,
        /// The value.
        value: String,
    },
    /// A function calls itself.
    #[error("ONNX: function {} calls itself: {}", .path.first().map_or("", String::as_str), .path.join(" -> "))]
    Recursion {
        /// The functions, from itself to itself.
        path: Vec<String>,
    },
    /// Functions that call functions, or graphs in each other, are nested deeper than any exporter nests them.
    #[error("ONNX: {node}: functions and graphs nested deeper than {most}")]
    Calls {
        /// The node that goes too deep.
        node: String,
        /// How deep they may be.
        most: usize,
    },
    /// Functions that call functions run more nodes than a file of this size stands for.
    #[error(
        "ONNX: too long: what runs, functions counted at each call, takes more than {most} bytes to hold, for a file of {file} bytes"
    )]
    TooLong {
        /// The bytes that it may take.
        most: u64,
        /// The bytes of the file.
        file: usize,
    },
    /// Shapes or attributes contradict each other.
    #[error("ONNX: {node}: {what}")]
    Shape {
        /// The node.
        node: String,
        /// What is wrong: expected, got.
        what: String,
    },
    /// A size was given twice.
    #[error("ONNX: dimension {name:?}: given twice: {first} and {second}")]
    DimTwice {
        /// The dimension.
        name: String,
        /// The first size.
        first: u64,
        /// The second size.
        second: u64,
    },
    /// A size is larger than a model can name.
    #[error("ONNX: dimension {name:?}: out of range: expected at most {}, got {size}", i64::MAX)]
    DimRange {
        /// The dimension.
        name: String,
        /// The size.
        size: u64,
    },
    /// A size was given of what no tensor has.
    #[error("ONNX: dimension {name:?}: no such dimension: {}", known_list(.known))]
    UnknownDim {
        /// The dimension.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// Dimensions are left of which nothing says how large they are.
    #[error("{}", free_list(.free))]
    FreeDims {
        /// The dimensions, in the order in which they are met.
        free: Vec<FreeDim>,
    },
    /// The shape or type of a result is not known, because the operation is not.
    #[error("ONNX: unknown sizes: {}", clipped_list(.values))]
    UnknownSizes {
        /// The results: each with what computes it.
        values: Vec<String>,
    },
    /// A tensor has more bytes than can be counted, or a type that has no size.
    #[error("ONNX: {tensor}: its bytes can't be counted: {layout}")]
    Size {
        /// The tensor.
        tensor: String,
        /// Its type and shape.
        layout: String,
    },
    /// The graph can't be planned.
    #[error("ONNX: the graph can't be planned")]
    Graph(#[from] TensorGraphError),
}

/// A dimension of which nothing says how large it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreeDim {
    /// The name to give its size under: its own, or that of a tensor, a point, and the axis.
    pub name: String,
    /// The tensor that has it first.
    pub tensor: String,
    /// The operation on whose data it depends; `None` if an input of the model has it.
    pub operation: Option<String>,
}

impl fmt::Display for FreeDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.operation {
            None => write!(f, "{:?} (input {:?})", self.name, self.tensor),
            Some(operation) => write!(f, "{:?} (depends on the data of {operation})", self.name),
        }
    }
}

/// How many of a list an error shows.
const SHOWN: usize = 8;

fn clipped_list<T: fmt::Display>(items: &[T]) -> String {
    let mut shown: Vec<String> = items.iter().take(SHOWN).map(T::to_string).collect();
    if items.len() > SHOWN {
        shown.push(format!("and {} more", items.len() - SHOWN));
    }
    shown.join(", ")
}

fn known_list(known: &[String]) -> String {
    match known {
        [] => "the model leaves none free".to_owned(),
        _ => {
            let quoted: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
            format!("expected one of {}", clipped_list(&quoted))
        }
    }
}

/// Lists free dimensions.
fn free_list(free: &[FreeDim]) -> String {
    let what = if free.len() == 1 { "1 dimension has" } else { &format!("{} dimensions have", free.len()) };
    format!("ONNX: {what} no size: {}", clipped_list(free))
}

impl FreeDim {
    /// Returns a size that a dimension of this name often has, for examples.
    pub fn example(&self) -> u64 {
        let name = self.name.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if has(&["batch"]) || name == "n" {
            1
        } else if has(&["seq", "len", "token"]) {
            128
        } else if has(&["height", "width"]) || name == "h" || name == "w" {
            224
        } else if self.operation.is_some() {
            100
        } else {
            1
        }
    }
}
