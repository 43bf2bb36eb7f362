//! Makes small ONNX files in memory, for examples and tests.

use super::data_type::DataType;

/// An ONNX file that is made in memory.
///
/// ```
/// use steeve_models::onnx::{DataType, Model, SmallModel};
///
/// let mut small = SmallModel::new();
/// small.input("x", DataType::FLOAT, &["1", "n"]);
/// small.node("Relu", &["x"], &["y"]);
/// small.output("y");
/// assert_eq!(Model::read(&small.to_bytes())?.opsets[""], 21);
/// # Ok::<(), steeve_models::onnx::OnnxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SmallModel {
    opset: u64,
    graph: Message,
    functions: Vec<Message>,
}

/// The bytes of a message.
#[derive(Clone, Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
            number >>= 7;
        }
        self.0.push(u8::try_from(number).unwrap_or(0));
    }

    fn int(&mut self, field: u64, number: i64) {
        self.varint(field << 3);
        self.varint(number.cast_unsigned());
    }

    fn float(&mut self, field: u64, number: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }
}

/// An attribute of a node that is made in memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SmallAttribute {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f32),
    /// A text.
    Text(String),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Texts.
    Texts(Vec<String>),
    /// A vector of whole numbers, as a tensor.
    Tensor(Vec<i64>),
    /// The graph of a branch or of a body.
    Graph(Box<SmallModel>),
    /// The attribute of the function around the node.
    Reference(String),
}

impl Default for SmallModel {
    fn default() -> Self {
        Self::new()
    }
}

impl SmallModel {
    /// Creates a model with nothing in it, of version 21 of the standard operations.
    pub fn new() -> Self {
        Self { opset: 21, graph: Message::default(), functions: Vec::new() }
    }

    /// Creates a model of `Relu`s with tensors of so many numbers of 32 bits.
    pub fn chain(sizes: &[u64]) -> Self {
        let mut model = Self::new();
        let first = sizes.first().copied().unwrap_or(1);
        model.input("t0", DataType::FLOAT, &[&first.to_string()]);
        for (index, pair) in sizes.windows(2).enumerate() {
            let (from, to) = (format!("t{index}"), format!("t{}", index + 1));
            let weights = format!("w{index}");
            let dim = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
            model.constant(&weights, DataType::FLOAT, &[dim(pair[0]), dim(pair[1])]);
            model.node("MatMul", &[&from, &weights], &[&to]);
        }
        model.output(&format!("t{}", sizes.len().saturating_sub(1)));
        model
    }

    /// Sets the version of the standard operations.
    pub fn opset(&mut self, version: u64) {
        self.opset = version;
    }

    /// Adds an input; dimensions that are no numbers are names, and an empty name is none.
    pub fn input(&mut self, name: &str, data_type: DataType, dims: &[&str]) {
        let info = value_info(name, Some((data_type, dims)));
        self.graph.message(11, &info);
    }

    /// Adds an output by name.
    pub fn output(&mut self, name: &str) {
        self.graph.message(12, &value_info(name, None));
    }

    /// Declares the type and shape of a value.
    pub fn value_info(&mut self, name: &str, data_type: DataType, dims: &[&str]) {
        let info = value_info(name, Some((data_type, dims)));
        self.graph.message(13, &info);
    }

    /// Adds a constant whose data are in another file.
    pub fn constant(&mut self, name: &str, data_type: DataType, dims: &[i64]) {
        let mut tensor = Message::default();
        dims.iter().for_each(|dim| tensor.int(1, *dim));
        tensor.int(2, i64::from(data_type.0));
        tensor.text(8, name);
        tensor.int(14, 1);
        self.graph.message(5, &tensor);
    }

    /// Adds a constant vector of whole numbers.
    pub fn ints(&mut self, name: &str, ints: &[i64]) {
        let tensor = int_tensor(name, ints);
        self.graph.message(5, &tensor);
    }

    /// Adds a constant vector of numbers.
    pub fn floats(&mut self, name: &str, floats: &[f32]) {
        let mut tensor = Message::default();
        tensor.int(1, i64::try_from(floats.len()).unwrap_or(i64::MAX));
        tensor.int(2, i64::from(DataType::FLOAT.0));
        tensor.text(8, name);
        tensor.bytes(9, &floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<u8>>());
        self.graph.message(5, &tensor);
    }

    /// Adds an input that is a list of tensors of one shape.
    pub fn list_input(&mut self, name: &str, data_type: DataType, dims: &[&str]) {
        let mut info = Message::default();
        info.text(1, name);
        let (mut sequence, mut kind) = (Message::default(), Message::default());
        sequence.message(1, &tensor_type(data_type, dims));
        kind.message(4, &sequence);
        info.message(2, &kind);
        self.graph.message(11, &info);
    }

    /// Adds a node of the standard operations.
    pub fn node(&mut self, op: &str, inputs: &[&str], outputs: &[&str]) {
        self.node_with(("", op), inputs, outputs, &[]);
    }

    /// Adds a node of an operation by its domain and name, with attributes.
    pub fn node_with(
        &mut self,
        op: (&str, &str),
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, SmallAttribute)],
    ) {
        let node = node(op, inputs, outputs, attributes);
        self.graph.message(1, &node);
    }

    /// Adds a function of the domain `own`: its nodes are those of another model.
    pub fn function(&mut self, name: &str, inputs: &[&str], outputs: &[&str], body: &SmallModel) {
        let mut function = Message::default();
        function.text(1, name);
        inputs.iter().for_each(|input| function.text(4, input));
        outputs.iter().for_each(|output| function.text(5, output));
        // The nodes of a graph are its field 1, those of a function field 7.
        let mut rest = body.graph.0.as_slice();
        while let [0x0a, after @ ..] = rest {
            let mut length = 0usize;
            let mut start = 0;
            for (at, byte) in after.iter().enumerate() {
                length |= usize::from(byte & 0x7f) << (7 * at);
                start = at + 1;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let end = (start + length).min(after.len());
            function.bytes(7, &after[start..end]);
            rest = &after[end..];
        }
        function.message(9, &opset("", body.opset));
        function.text(10, "own");
        self.functions.push(function);
    }

    fn named_graph(&self) -> Message {
        let mut graph = self.graph.clone();
        graph.text(2, "graph");
        graph
    }

    /// Returns the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut model = Message::default();
        model.int(1, 10);
        model.text(2, "steeve");
        model.message(8, &opset("", self.opset));
        model.message(7, &self.named_graph());
        self.functions.iter().for_each(|function| model.message(25, function));
        model.0
    }
}

fn opset(domain: &str, version: u64) -> Message {
    let mut opset = Message::default();
    opset.text(1, domain);
    opset.int(2, version.cast_signed());
    opset
}

fn node(op: (&str, &str), inputs: &[&str], outputs: &[&str], attributes: &[(&str, SmallAttribute)]) -> Message {
    let mut node = Message::default();
    inputs.iter().for_each(|input| node.text(1, input));
    outputs.iter().for_each(|output| node.text(2, output));
    node.text(4, op.1);
    node.text(7, op.0);
    for (name, value) in attributes {
        let mut attribute = Message::default();
        attribute.text(1, name);
        let kind = match value {
            SmallAttribute::Int(int) => {
                attribute.int(3, *int);
                2
            }
            SmallAttribute::Float(float) => {
                attribute.float(2, *float);
                1
            }
            SmallAttribute::Text(text) => {
                attribute.text(4, text);
                3
            }
            SmallAttribute::Ints(ints) => {
                ints.iter().for_each(|int| attribute.int(8, *int));
                7
            }
            SmallAttribute::Floats(floats) => {
                floats.iter().for_each(|float| attribute.float(7, *float));
                6
            }
            SmallAttribute::Texts(texts) => {
                texts.iter().for_each(|text| attribute.text(9, text));
                8
            }
            SmallAttribute::Tensor(ints) => {
                attribute.message(5, &int_tensor("", ints));
                4
            }
            SmallAttribute::Graph(model) => {
                attribute.message(6, &model.named_graph());
                5
            }
            SmallAttribute::Reference(name) => {
                attribute.text(21, name);
                0
            }
        };
        attribute.int(20, kind);
        node.message(5, &attribute);
    }
    node
}

fn int_tensor(name: &str, ints: &[i64]) -> Message {
    let mut tensor = Message::default();
    tensor.int(1, i64::try_from(ints.len()).unwrap_or(i64::MAX));
    tensor.int(2, i64::from(DataType::INT64.0));
    tensor.text(8, name);
    ints.iter().for_each(|int| tensor.int(7, *int));
    tensor
}

fn value_info(name: &str, layout: Option<(DataType, &[&str])>) -> Message {
    let mut info = Message::default();
    info.text(1, name);
    if let Some((data_type, dims)) = layout {
        info.message(2, &tensor_type(data_type, dims));
    }
    info
}

fn tensor_type(data_type: DataType, dims: &[&str]) -> Message {
    let mut shape = Message::default();
    for dim in dims {
        let mut message = Message::default();
        match dim.parse() {
            Ok(number) => message.int(1, number),
            Err(_) if dim.is_empty() => {}
            Err(_) => message.text(2, dim),
        }
        shape.message(1, &message);
    }
    let (mut tensor, mut kind) = (Message::default(), Message::default());
    tensor.int(1, i64::from(data_type.0));
    tensor.message(2, &shape);
    kind.message(1, &tensor);
    kind
}
