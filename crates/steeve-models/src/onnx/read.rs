//! Bytes in, a [`Model`] out. O(bytes).
//!
//! Field numbers are those of `onnx.proto`. Of data, only small tensors are decoded, since shapes depend on them.

use std::collections::BTreeMap;

use super::data_type::DataType;
use super::error::OnnxError;
use super::fact::Elements;
use super::model::{
    Attribute, AttributeValue, Declared, DeclaredDim, Function, Graph, Model, Node, Tensor, ValueInfo, domain_of,
};
use super::protobuf::{FieldValue, Message};

/// Returns whether these first bytes can be those of an ONNX file: the version of the format, and a field of the model after it. The
/// format has no mark of its own, but no text starts so.
pub fn is_onnx(head: &[u8]) -> bool {
    // The version, then a text, a number, a graph or an operation set.
    matches!(head, [0x08, 1..=0x7f, 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42, ..])
}

impl Model {
    /// Reads a file. Files beside it, in which large models have their weights, are not read.
    ///
    /// # Errors
    ///
    /// If the bytes are no ONNX model.
    pub fn read(bytes: &[u8]) -> Result<Self, OnnxError> {
        let mut model = Self { bytes: bytes.len(), ..Self::default() };
        let mut has_graph = false;
        let mut fields = Message::of_file(bytes, "ModelProto").fields();
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => model.ir_version = value.int(),
                2 => model.producer = value.text(),
                3 if value.bytes().is_some_and(|text| !text.is_empty()) => {
                    model.producer = format!("{} {}", model.producer, value.text());
                }
                7 => {
                    if let Some(message) = value.message("GraphProto")? {
                        has_graph = true;
                        read_graph(&mut model.graph, message)?;
                    }
                }
                8 => read_opset(&mut model.opsets, value)?,
                25 => model.functions.extend(value.message("FunctionProto")?.map(read_function).transpose()?),
                _ => {}
            }
        }
        let raw = model.graph.initializers.iter().map(|tensor| tensor.raw_bytes).sum();
        model.structure_bytes = (bytes.len() as u64).saturating_sub(raw);
        match has_graph {
            true => Ok(model),
            false => Err(OnnxError::Missing { field: "the graph", of: "the model".to_owned() }),
        }
    }
}

fn read_opset(opsets: &mut BTreeMap<String, i64>, value: FieldValue<'_>) -> Result<(), OnnxError> {
    let Some(message) = value.message("OperatorSetIdProto")? else { return Ok(()) };
    let (mut domain, mut version) = (String::new(), 1);
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => domain = domain_of(&value.text()).to_owned(),
            2 => version = value.int(),
            _ => {}
        }
    }
    opsets.insert(domain, version);
    Ok(())
}

fn read_graph(graph: &mut Graph, message: Message<'_>) -> Result<(), OnnxError> {
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => graph.nodes.extend(value.message("NodeProto")?.map(read_node).transpose()?),
            5 => graph.initializers.extend(value.message("TensorProto")?.map(read_tensor).transpose()?),
            11 => graph.inputs.extend(read_value_info(value)?),
            12 => graph.outputs.extend(read_value_info(value)?),
            13 => graph.value_info.extend(read_value_info(value)?),
            15 => graph.initializers.extend(value.message("SparseTensorProto")?.map(read_sparse).transpose()?),
            _ => {}
        }
    }
    Ok(())
}

fn read_node(message: Message<'_>) -> Result<Node, OnnxError> {
    let mut node = Node::default();
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => node.inputs.push(value.text()),
            2 => node.outputs.push(value.text()),
            3 => node.name = value.text(),
            4 => node.op_type = value.text(),
            5 => node.attributes.extend(value.message("AttributeProto")?.map(read_attribute).transpose()?),
            7 => node.domain = domain_of(&value.text()).to_owned(),
            8 => node.overload = value.text(),
            _ => {}
        }
    }
    if node.op_type.is_empty() {
        return Err(OnnxError::Missing { field: "the operation", of: format!("node {:?}", node.name) });
    }
    Ok(node)
}

fn read_attribute(message: Message<'_>) -> Result<Attribute, OnnxError> {
    let mut attribute = Attribute::default();
    let (mut ints, mut floats, mut texts) = (Vec::new(), Vec::new(), 0);
    let mut kind = None;
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => attribute.name = value.text(),
            2 => attribute.value = AttributeValue::Float(value.float()),
            3 => attribute.value = AttributeValue::Int(value.int()),
            4 => attribute.value = AttributeValue::Text(value.text()),
            5 => {
                if let Some(message) = value.message("TensorProto")? {
                    attribute.value = AttributeValue::Tensor(Box::new(read_tensor(message)?));
                }
            }
            6 => {
                if let Some(message) = value.message("GraphProto")? {
                    let mut graph = Graph::default();
                    read_graph(&mut graph, message)?;
                    attribute.value = AttributeValue::Graph(Box::new(graph));
                }
            }
            7 => value.floats(|it| floats.push(it)),
            8 => value.ints(|it| ints.push(it))?,
            9 => texts += 1,
            20 => kind = Some(value.int()),
            21 => attribute.reference = value.text(),
            22 => {
                if let Some(message) = value.message("SparseTensorProto")? {
                    attribute.value = AttributeValue::Tensor(Box::new(read_sparse(message)?));
                }
            }
            _ => {}
        }
    }
    // A list without elements has no fields, only its kind.
    if matches!(attribute.value, AttributeValue::Other) {
        attribute.value = match kind {
            _ if !ints.is_empty() => AttributeValue::Ints(ints),
            _ if !floats.is_empty() => AttributeValue::Floats(floats),
            _ if texts > 0 => AttributeValue::Texts(texts),
            Some(1) => AttributeValue::Float(0.0),
            Some(2) => AttributeValue::Int(0),
            Some(3) => AttributeValue::Text(String::new()),
            Some(6) => AttributeValue::Floats(floats),
            Some(7) => AttributeValue::Ints(ints),
            Some(8) => AttributeValue::Texts(0),
            _ => AttributeValue::Other,
        };
    }
    Ok(attribute)
}

/// The data of a tensor, where the file may have them.
#[derive(Default)]
struct TensorData<'a> {
    raw: Option<&'a [u8]>,
    floats: Vec<FieldValue<'a>>,
    doubles: Vec<FieldValue<'a>>,
    /// Those of 32 bits, of 64 bits, and of 64 bits without a sign: a tensor has one of them.
    ints: Vec<FieldValue<'a>>,
}

fn read_tensor(message: Message<'_>) -> Result<Tensor, OnnxError> {
    let mut tensor = Tensor::default();
    let mut data = TensorData::default();
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => value.ints(|dim| tensor.dims.push(dim))?,
            2 => tensor.data_type = DataType(i32::try_from(value.int()).unwrap_or(0)),
            4 => data.floats.push(value),
            5 | 7 | 11 => data.ints.push(value),
            8 => tensor.name = value.text(),
            9 => {
                data.raw = value.bytes();
                tensor.raw_bytes = data.raw.map_or(0, |raw| raw.len() as u64);
            }
            10 => data.doubles.push(value),
            13 => tensor.is_external = true,
            14 => tensor.is_external |= value.int() == 1,
            _ => {}
        }
    }
    if !tensor.is_external {
        tensor.elements = decode(&tensor, &data)?;
    }
    Ok(tensor)
}

/// Returns the elements of a tensor, if they are few enough to compute shapes from and there are as many as its shape says.
fn decode(tensor: &Tensor, data: &TensorData<'_>) -> Result<Option<Elements>, OnnxError> {
    let Some(count) = tensor.count().filter(|count| Elements::are_few(tensor.data_type, *count)) else {
        return Ok(None);
    };
    let elements = match (tensor.data_type, data.raw) {
        (data_type, Some(raw)) => Elements::of_raw(data_type, raw),
        (DataType::FLOAT, None) => {
            let mut floats = Vec::new();
            data.floats.iter().for_each(|value| value.floats(|it| floats.push(f64::from(it))));
            Elements::Floats(floats)
        }
        (DataType::DOUBLE, None) => {
            let mut floats = Vec::new();
            data.doubles.iter().for_each(|value| value.doubles(|it| floats.push(it)));
            Elements::Floats(floats)
        }
        (_, None) => {
            let mut ints = Vec::new();
            data.ints.iter().try_for_each(|value| value.ints(|it| ints.push(it)))?;
            Elements::Ints(ints)
        }
    };
    Ok(Some(elements).filter(|elements| elements.len() as u64 == count))
}

/// Reads a tensor of which only the elements that are not zero are in the file.
fn read_sparse(message: Message<'_>) -> Result<Tensor, OnnxError> {
    let (mut tensor, mut indices) = (Tensor::default(), Tensor::default());
    let mut dims = Vec::new();
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => tensor = value.message("TensorProto")?.map(read_tensor).transpose()?.unwrap_or_default(),
            2 => indices = value.message("TensorProto")?.map(read_tensor).transpose()?.unwrap_or_default(),
            3 => value.ints(|dim| dims.push(dim))?,
            _ => {}
        }
    }
    let bytes = tensor.stored_bytes().zip(indices.stored_bytes());
    let sparse_bytes = bytes.and_then(|(values, indices)| values.checked_add(indices));
    Ok(Tensor { dims, elements: None, sparse_bytes: sparse_bytes.or(Some(0)), ..tensor })
}

fn read_value_info(value: FieldValue<'_>) -> Result<Option<ValueInfo>, OnnxError> {
    let Some(message) = value.message("ValueInfoProto")? else { return Ok(None) };
    let mut info = ValueInfo::default();
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => info.name = value.text(),
            2 => info.declared = value.message("TypeProto")?.map(read_type).transpose()?.unwrap_or_default(),
            _ => {}
        }
    }
    Ok(Some(info))
}

fn read_type(message: Message<'_>) -> Result<Declared, OnnxError> {
    let mut declared = Declared::default();
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            // A tensor, also a sparse one.
            1 | 8 => {
                let Some(message) = value.message("TypeProto.Tensor")? else { continue };
                let mut fields = message.fields();
                while let Some((number, value)) = fields.next()? {
                    match number {
                        1 => declared.data_type = DataType(i32::try_from(value.int()).unwrap_or(0)),
                        2 => declared.shape = value.message("TensorShapeProto")?.map(read_shape).transpose()?,
                        _ => {}
                    }
                }
            }
            // A list of others, or what may be absent.
            4 | 9 => {
                let Some(message) = value.message("TypeProto.Sequence")? else { continue };
                let mut fields = message.fields();
                while let Some((number_inside, value)) = fields.next()? {
                    if number_inside == 1
                        && let Some(message) = value.message("TypeProto")?
                    {
                        declared = read_type(message)?;
                        declared.is_sequence |= number == 4;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(declared)
}

fn read_shape(message: Message<'_>) -> Result<Vec<DeclaredDim>, OnnxError> {
    let mut dims = Vec::new();
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        if number != 1 {
            continue;
        }
        let Some(message) = value.message("TensorShapeProto.Dimension")? else { continue };
        let mut dim = DeclaredDim::Unknown;
        let mut fields = message.fields();
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => dim = u64::try_from(value.int()).map_or(DeclaredDim::Unknown, DeclaredDim::Known),
                2 => {
                    let name = value.text();
                    // Some writers have no better name for what they do not know.
                    let is_name = !matches!(name.as_str(), "" | "?" | "-1" | "None");
                    dim = if is_name { DeclaredDim::Named(name) } else { DeclaredDim::Unknown };
                }
                _ => {}
            }
        }
        dims.push(dim);
    }
    Ok(dims)
}

fn read_function(message: Message<'_>) -> Result<Function, OnnxError> {
    let mut function = Function::default();
    let mut fields = message.fields();
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => function.name = value.text(),
            4 => function.inputs.push(value.text()),
            5 => function.outputs.push(value.text()),
            7 => function.nodes.extend(value.message("NodeProto")?.map(read_node).transpose()?),
            9 => read_opset(&mut function.opsets, value)?,
            10 => function.domain = domain_of(&value.text()).to_owned(),
            11 => function.defaults.extend(value.message("AttributeProto")?.map(read_attribute).transpose()?),
            12 => function.value_info.extend(read_value_info(value)?),
            13 => function.overload = value.text(),
            _ => {}
        }
    }
    Ok(function)
}
