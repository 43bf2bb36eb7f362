//! What a file says: operations, tensors, attributes and declared shapes, without the data of weights.

use std::collections::BTreeMap;

use super::data_type::DataType;
use super::fact::Elements;

/// An ONNX model, as the file has it.
///
/// Weights are not kept, only their types and shapes; of small tensors of whole numbers also the elements, since shapes are
/// computed from these. [`OnnxGraph`](super::OnnxGraph) has the shapes of everything.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The program that has written the file, with its version.
    pub producer: String,
    /// The version of the format.
    pub ir_version: i64,
    /// The versions of the sets of operations, by domain.
    pub opsets: BTreeMap<String, i64>,
    pub(crate) graph: Graph,
    pub(crate) functions: Vec<Function>,
    /// The bytes of the file.
    pub(crate) bytes: usize,
    /// Of these, those that are no data of weights.
    pub(crate) structure_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) initializers: Vec<Tensor>,
    pub(crate) inputs: Vec<ValueInfo>,
    pub(crate) outputs: Vec<ValueInfo>,
    pub(crate) value_info: Vec<ValueInfo>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) op_type: String,
    pub(crate) domain: String,
    pub(crate) overload: String,
    /// Empty names stand for what is left out.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) attributes: Vec<Attribute>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    /// The attribute of the function around it whose value it has; empty for a value of its own.
    pub(crate) reference: String,
    pub(crate) value: AttributeValue,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum AttributeValue {
    #[default]
    Other,
    Int(i64),
    Float(f32),
    Text(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    /// Only how many there are.
    Texts(usize),
    Tensor(Box<Tensor>),
    Graph(Box<Graph>),
}

/// A tensor whose data are in the file, or in a file beside it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) dims: Vec<i64>,
    /// The elements, if they are numbers and few.
    pub(crate) elements: Option<Elements>,
    /// The bytes of data that the file has for it in one piece.
    pub(crate) raw_bytes: u64,
    /// Whether the data are in another file.
    pub(crate) is_external: bool,
    /// Whether only elements that are not zero are in the file; of these, how many bytes there are.
    pub(crate) sparse_bytes: Option<u64>,
}

impl Tensor {
    /// Returns the dimensions; `None` if one is negative.
    pub(crate) fn shape(&self) -> Option<Vec<u64>> {
        self.dims.iter().map(|dim| u64::try_from(*dim).ok()).collect()
    }

    pub(crate) fn count(&self) -> Option<u64> {
        self.shape()?.into_iter().try_fold(1, u64::checked_mul)
    }

    /// Returns the bytes of its data.
    pub(crate) fn stored_bytes(&self) -> Option<u64> {
        self.sparse_bytes.or_else(|| self.data_type.bytes(self.count()?))
    }
}

/// The type and shape that a file declares of a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueInfo {
    pub(crate) name: String,
    pub(crate) declared: Declared,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Declared {
    pub(crate) data_type: DataType,
    /// `None` if not even the rank is said.
    pub(crate) shape: Option<Vec<DeclaredDim>>,
    /// Whether it is a list of such tensors.
    pub(crate) is_sequence: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeclaredDim {
    Known(u64),
    Named(String),
    #[default]
    Unknown,
}

/// A function of the model's own, which is computed in the place of each call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) overload: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) opsets: BTreeMap<String, i64>,
    /// What attributes are if a call does not say.
    pub(crate) defaults: Vec<Attribute>,
    pub(crate) value_info: Vec<ValueInfo>,
}

impl Node {
    /// Returns what errors call it: its name, or else its first result, and its operation.
    pub(crate) fn title(&self) -> String {
        let name = match self.name.as_str() {
            "" => self.outputs.iter().find(|output| !output.is_empty()).map_or("", String::as_str),
            name => name,
        };
        format!("{} ({name})", self.op_type)
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }
}

/// Returns the domain under the one name that is used for it.
pub(crate) fn domain_of(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}
