//! Makes small TFLite files in memory, for examples and tests.

use super::names::{BuiltinOp, DataType};
use super::options::Options;
use super::options::Window;
use super::writer::{Item, Value, Writer};

/// A TFLite file that is made in memory.
///
/// ```
/// use steeve_models::tflite::{BuiltinOp, DataType, Model, Options, SmallModel};
///
/// let mut small = SmallModel::new();
/// let input = small.tensor(0, "input", DataType::INT8, &[1, 8]);
/// let output = small.tensor(0, "output", DataType::INT8, &[1, 8]);
/// small.operator(0, BuiltinOp::RELU, &[input], &[output], Options::Other);
/// small.io(0, &[input], &[output]);
/// let model = Model::read(small.to_bytes())?;
/// assert_eq!(model.subgraphs()[0].tensors[output].name, "output");
/// # Ok::<(), steeve_models::tflite::TfliteError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SmallModel {
    codes: Vec<(BuiltinOp, String)>,
    subgraphs: Vec<SmallSubgraph>,
    buffers: Vec<Vec<u8>>,
    metadata: Vec<(String, usize)>,
    /// Where the data of the last buffer are, and how many.
    behind: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct SmallSubgraph {
    tensors: Vec<Item>,
    operators: Vec<Item>,
    inputs: Vec<i32>,
    outputs: Vec<i32>,
}

fn int(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn ints(numbers: &[usize]) -> Vec<i32> {
    numbers.iter().map(|number| i32::try_from(*number).unwrap_or(-1)).collect()
}

impl SmallModel {
    /// Creates a model with one subgraph and nothing in it.
    pub fn new() -> Self {
        Self { subgraphs: vec![SmallSubgraph::default()], buffers: vec![Vec::new()], ..Self::default() }
    }

    /// Creates a model of `RELU`s with tensors of so many bytes.
    pub fn chain(sizes: &[i32]) -> Self {
        let mut model = Self::new();
        let tensor = |(index, size): (usize, &i32)| model.tensor(0, &format!("t{index}"), DataType::INT8, &[1, *size]);
        let tensors: Vec<usize> = sizes.iter().enumerate().map(tensor).collect();
        for pair in tensors.windows(2) {
            model.operator(0, BuiltinOp::RELU, &pair[..1], &pair[1..], Options::Other);
        }
        let (first, last) = (tensors.first().copied().into_iter(), tensors.last().copied().into_iter());
        model.io(0, &first.collect::<Vec<_>>(), &last.collect::<Vec<_>>());
        model
    }

    /// Returns a file like that of [`chain`](Self::chain) with one constant more, whose data are behind everything else, as those of
    /// files that are too large for offsets of 32 bits.
    pub fn large(sizes: &[i32], data: &[u8]) -> Vec<u8> {
        let mut model = Self::chain(sizes);
        model.constant(0, "weights", DataType::INT8, &[i32::try_from(data.len()).unwrap_or(0)], &[]);
        model.behind = Some((1, data.len() as u64));
        let length = model.to_bytes().len();
        model.behind = Some((length as u64, data.len() as u64));
        let mut file = model.to_bytes();
        file.extend_from_slice(data);
        file
    }

    /// Adds a subgraph and returns its number.
    pub fn subgraph(&mut self) -> usize {
        self.subgraphs.push(SmallSubgraph::default());
        self.subgraphs.len() - 1
    }

    /// Adds a tensor to a subgraph and returns its number there.
    ///
    /// # Panics
    ///
    /// If there is no such subgraph, as all methods with a number of one.
    pub fn tensor(&mut self, subgraph: usize, name: &str, data_type: DataType, shape: &[i32]) -> usize {
        self.any_tensor(subgraph, name, data_type, shape, 0, false)
    }

    /// Adds a tensor whose contents stay from one run to the next.
    pub fn variable(&mut self, subgraph: usize, name: &str, data_type: DataType, shape: &[i32]) -> usize {
        self.any_tensor(subgraph, name, data_type, shape, 0, true)
    }

    /// Adds a tensor with these data.
    pub fn constant(&mut self, subgraph: usize, name: &str, data_type: DataType, shape: &[i32], data: &[u8]) -> usize {
        self.buffers.push(data.to_vec());
        self.any_tensor(subgraph, name, data_type, shape, self.buffers.len() - 1, false)
    }

    fn any_tensor(
        &mut self,
        subgraph: usize,
        name: &str,
        data_type: DataType,
        shape: &[i32],
        buffer: usize,
        is_variable: bool,
    ) -> usize {
        let mut fields = vec![
            (0, Value::Ref(Item::Ints(shape.to_vec()))),
            (1, Value::Byte(data_type.0.cast_unsigned())),
            (2, Value::Int(int(buffer))),
            (3, Value::Ref(Item::Text(name.into()))),
            (5, Value::Byte(is_variable.into())),
        ];
        if matches!(data_type, DataType::INT8 | DataType::INT16) {
            // A scale of 1 / 64 and no offset, so that kernels have something to compute with.
            let scale = Item::Ints(vec![0.015_625_f32.to_bits().cast_signed()]);
            let quantization = vec![(2, Value::Ref(scale)), (3, Value::Ref(Item::Longs(vec![0])))];
            fields.push((4, Value::Ref(Item::Table(quantization))));
        }
        let tensors = &mut self.subgraphs[subgraph].tensors;
        tensors.push(Item::Table(fields));
        tensors.len() - 1
    }

    /// Adds an operator to a subgraph and returns its number there.
    pub fn operator(
        &mut self,
        subgraph: usize,
        op: BuiltinOp,
        inputs: &[usize],
        outputs: &[usize],
        options: Options,
    ) -> usize {
        let code = self.codes.iter().position(|(known, _)| *known == op).unwrap_or_else(|| {
            self.codes.push((op, String::new()));
            self.codes.len() - 1
        });
        self.any_operator(subgraph, code, inputs, outputs, options_table(op, &options))
    }

    fn any_operator(
        &mut self,
        subgraph: usize,
        code: usize,
        inputs: &[usize],
        outputs: &[usize],
        options: Option<(u8, Vec<(u16, Value)>)>,
    ) -> usize {
        let mut fields = vec![
            (0, Value::Int(int(code))),
            (1, Value::Ref(Item::Ints(ints(inputs)))),
            (2, Value::Ref(Item::Ints(ints(outputs)))),
        ];
        if let Some((kind, table)) = options {
            fields.push((3, Value::Byte(kind)));
            fields.push((4, Value::Ref(Item::Table(table))));
        }
        let operators = &mut self.subgraphs[subgraph].operators;
        operators.push(Item::Table(fields));
        operators.len() - 1
    }

    /// Adds a custom operator to a subgraph and returns its number there.
    pub fn custom_operator(&mut self, subgraph: usize, name: &str, inputs: &[usize], outputs: &[usize]) -> usize {
        self.codes.push((BuiltinOp::CUSTOM, name.into()));
        self.any_operator(subgraph, self.codes.len() - 1, inputs, outputs, None)
    }

    /// Says which tensors of a subgraph are its inputs and outputs.
    pub fn io(&mut self, subgraph: usize, inputs: &[usize], outputs: &[usize]) {
        let subgraph = &mut self.subgraphs[subgraph];
        (subgraph.inputs, subgraph.outputs) = (ints(inputs), ints(outputs));
    }

    /// Adds metadata with these bytes.
    pub fn metadata(&mut self, name: &str, data: &[u8]) {
        self.buffers.push(data.to_vec());
        self.metadata.push((name.into(), self.buffers.len() - 1));
    }

    /// Returns the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let tables = |items: Vec<Item>| Value::Ref(Item::Tables(items));
        let codes = self.codes.iter().map(|(op, custom)| {
            let old = u8::try_from(op.0).unwrap_or(127).min(127);
            Item::Table(vec![
                (0, Value::Byte(old)),
                (1, Value::Ref(Item::Text(custom.clone()))),
                (2, Value::Int(1)),
                (3, Value::Int(op.0.cast_unsigned())),
            ])
        });
        let subgraphs = self.subgraphs.iter().map(|it| {
            Item::Table(vec![
                (0, tables(it.tensors.clone())),
                (1, Value::Ref(Item::Ints(it.inputs.clone()))),
                (2, Value::Ref(Item::Ints(it.outputs.clone()))),
                (3, tables(it.operators.clone())),
            ])
        });
        let buffers = self.buffers.iter().enumerate().map(|(number, data)| match (data.as_slice(), self.behind) {
            ([], Some((offset, size))) if number + 1 == self.buffers.len() => {
                Item::Table(vec![(1, Value::Long(offset)), (2, Value::Long(size))])
            }
            ([], _) => Item::Table(Vec::new()),
            (data, _) => Item::Table(vec![(0, Value::Ref(Item::Bytes(data.to_vec())))]),
        });
        let metadata = self.metadata.iter().map(|(name, buffer)| {
            Item::Table(vec![(0, Value::Ref(Item::Text(name.clone()))), (1, Value::Int(int(*buffer)))])
        });
        let root = Item::Table(vec![
            (0, Value::Int(3)),
            (1, tables(codes.collect())),
            (2, tables(subgraphs.collect())),
            (3, Value::Ref(Item::Text("small model".into()))),
            (4, tables(buffers.collect())),
            (6, tables(metadata.collect())),
        ]);
        // A file of this size has offsets that fit.
        Writer::write(&root).and_then(|writer| writer.before(&[])).unwrap_or_default()
    }
}

fn options_table(op: BuiltinOp, options: &Options) -> Option<(u8, Vec<(u16, Value)>)> {
    let number = |number: &i32| Value::Int(number.cast_unsigned());
    let window = |window: &Window| {
        let [height, width] = &window.stride;
        vec![(0, Value::Byte((!window.same_padding).into())), (1, number(width)), (2, number(height))]
    };
    Some(match options {
        Options::If { then_subgraph, else_subgraph } => {
            (92, vec![(0, number(then_subgraph)), (1, number(else_subgraph))])
        }
        Options::While { condition, body } => (93, vec![(0, number(condition)), (1, number(body))]),
        Options::CallOnce { init } => (103, vec![(0, number(init))]),
        Options::Convolution { window: it, dilation: [height, width], depth_multiplier } => {
            let mut fields = window(it);
            let (kind, slot) = if op == BuiltinOp::CONV_2D {
                (1, 4)
            } else {
                fields.push((3, number(depth_multiplier)));
                (2, 5)
            };
            fields.extend([(slot, number(width)), (slot + 1, number(height))]);
            (kind, fields)
        }
        Options::Pool { window: it, filter: [height, width] } => {
            let mut fields = window(it);
            fields.extend([(3, number(width)), (4, number(height))]);
            (5, fields)
        }
        Options::Reduce { keep_dims } => (27, vec![(0, Value::Byte((*keep_dims).into()))]),
        Options::Other => return None,
    })
}
