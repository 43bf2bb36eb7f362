//! Writes models of one random operator each, which TensorFlow Lite Micro runs: `random_operators FOLDER COUNT`.
//!
//! For each there are four files: `NUMBER.tflite` without a plan, `NUMBER.planned` in which operand and result overlap as far as
//! the reference kernels allow, and, where they may not be equal, `NUMBER.wrong` in which they overlap by 16 bytes more.
//! `proofs/operators.py` compares what they compute.

use std::path::Path;

use steeve_graph::TensorGraph;
use steeve_graph::fuzz::Choices;
use steeve_models::tflite::{
    BuiltinOp, DataType, GraphOptions, HeadRecord, KernelSet, Model, Options, SmallModel, TensorIndex, TfliteGraph,
    TfliteKey, Window,
};

const UNARY: &[BuiltinOp] = &[
    BuiltinOp::RELU,
    BuiltinOp::RELU6,
    BuiltinOp::LOGISTIC,
    BuiltinOp::TANH,
    BuiltinOp::ABS,
    BuiltinOp::NEG,
    BuiltinOp::EXP,
    BuiltinOp::LOG,
    BuiltinOp::SIN,
    BuiltinOp::COS,
    BuiltinOp::SQRT,
    BuiltinOp::RSQRT,
    BuiltinOp::SQUARE,
    BuiltinOp::FLOOR,
    BuiltinOp::CEIL,
    BuiltinOp::ROUND,
    BuiltinOp::HARD_SWISH,
    BuiltinOp::LEAKY_RELU,
    BuiltinOp::ELU,
    BuiltinOp::QUANTIZE,
    BuiltinOp::DEQUANTIZE,
];
const BINARY: &[BuiltinOp] = &[
    BuiltinOp::ADD,
    BuiltinOp::SUB,
    BuiltinOp::MUL,
    BuiltinOp::DIV,
    BuiltinOp::MAXIMUM,
    BuiltinOp::MINIMUM,
    BuiltinOp::SQUARED_DIFFERENCE,
    BuiltinOp::PRELU,
];

fn dim(choices: &mut Choices<'_>, most: usize) -> i32 {
    i32::try_from(choices.below(most) + 1).unwrap_or(1)
}

/// Returns random numbers as the data of a constant.
fn data(choices: &mut Choices<'_>, data_type: DataType, shape: &[i32]) -> Vec<u8> {
    let count = shape.iter().product::<i32>();
    let one = |choices: &mut Choices<'_>| {
        let number = i16::try_from(choices.below(255)).unwrap_or(0) - 127;
        match data_type {
            DataType::FLOAT32 => (f32::from(number) / 64.0).to_le_bytes().to_vec(),
            DataType::INT16 => number.to_le_bytes().to_vec(),
            _ => number.to_le_bytes()[..1].to_vec(),
        }
    };
    (0..count).flat_map(|_| one(choices)).collect()
}

fn constant(model: &mut SmallModel, choices: &mut Choices<'_>, data_type: DataType, shape: &[i32]) -> usize {
    let bytes = data(choices, data_type, shape);
    model.constant(0, "constant", data_type, shape, &bytes)
}

/// Returns the size of the result along a dimension, as TFLite computes it.
fn moved(same: bool, input: i32, filter: i32, stride: i32, dilation: i32) -> i32 {
    let reach = (filter - 1) * dilation + 1;
    if same { (input + stride - 1) / stride } else { (input + stride - reach) / stride }
}

fn random_operator(choices: &mut Choices<'_>) -> SmallModel {
    let mut model = SmallModel::new();
    let types = [DataType::FLOAT32, DataType::INT8, DataType::INT16];
    let data_type = types[choices.below(types.len())];
    let weights = if data_type == DataType::FLOAT32 { DataType::FLOAT32 } else { DataType::INT8 };
    let (height, width, depth) = (dim(choices, 9), dim(choices, 9), dim(choices, 6));
    let shape = [1, height, width, depth];
    let x = model.tensor(0, "x", data_type, &shape);
    let window = Window { same_padding: choices.once_in(2), stride: [dim(choices, 3), dim(choices, 3)] };
    let (filter, dilation) = ([dim(choices, 4), dim(choices, 4)], [dim(choices, 2), dim(choices, 2)]);
    let along = |dim: usize, dilation: i32| {
        moved(window.same_padding, shape[dim + 1], filter[dim], window.stride[dim], dilation).max(1)
    };
    let to = [along(0, dilation[0]), along(1, dilation[1])];
    let y = match choices.below(7) {
        0 => {
            let result = dim(choices, 12);
            let constant = constant(&mut model, choices, weights, &[result, filter[0], filter[1], depth]);
            let y = model.tensor(0, "y", data_type, &[1, to[0], to[1], result]);
            let options = Options::Convolution { window, dilation, depth_multiplier: 1 };
            model.operator(0, BuiltinOp::CONV_2D, &[x, constant], &[y], options);
            y
        }
        1 => {
            let depth_multiplier = dim(choices, 3);
            let result = depth * depth_multiplier;
            let constant = constant(&mut model, choices, weights, &[1, filter[0], filter[1], result]);
            let y = model.tensor(0, "y", data_type, &[1, to[0], to[1], result]);
            let options = Options::Convolution { window, dilation, depth_multiplier };
            model.operator(0, BuiltinOp::DEPTHWISE_CONV_2D, &[x, constant], &[y], options);
            y
        }
        2 => {
            let op = if choices.once_in(2) { BuiltinOp::AVERAGE_POOL_2D } else { BuiltinOp::MAX_POOL_2D };
            let y = model.tensor(0, "y", data_type, &[1, along(0, 1), along(1, 1), depth]);
            model.operator(0, op, &[x], &[y], Options::Pool { window, filter });
            y
        }
        3 => {
            let mut added = || [0, 0].map(|_| i32::try_from(choices.below(3)).unwrap_or(0));
            let pads = [[0, 0], added(), added(), added()];
            let numbers: Vec<u8> = pads.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
            let constant = model.constant(0, "pads", DataType::INT32, &[4, 2], &numbers);
            let to: Vec<i32> = shape.iter().zip(pads).map(|(size, [before, behind])| size + before + behind).collect();
            let y = model.tensor(0, "y", data_type, &to);
            model.operator(0, BuiltinOp::PAD, &[x, constant], &[y], Options::Other);
            y
        }
        4 => {
            let result = dim(choices, 12);
            let constant = constant(&mut model, choices, weights, &[result, depth]);
            let y = model.tensor(0, "y", data_type, &[height * width, result]);
            model.operator(0, BuiltinOp::FULLY_CONNECTED, &[x, constant], &[y], Options::Other);
            y
        }
        5 => {
            let op = UNARY[choices.below(UNARY.len())];
            let to = match op {
                BuiltinOp::QUANTIZE | BuiltinOp::DEQUANTIZE => types[choices.below(types.len())],
                _ => data_type,
            };
            let y = model.tensor(0, "y", to, &shape);
            model.operator(0, op, &[x], &[y], Options::Other);
            y
        }
        _ => {
            let op = BINARY[choices.below(BINARY.len())];
            let other = if choices.once_in(2) && op != BuiltinOp::PRELU { shape } else { [1, 1, 1, depth] };
            let constant = constant(&mut model, choices, data_type, &other);
            let y = model.tensor(0, "y", data_type, &shape);
            let operands = if choices.once_in(2) && op != BuiltinOp::PRELU { [constant, x] } else { [x, constant] };
            model.operator(0, op, &operands, &[y], Options::Other);
            y
        }
    };
    model.io(0, &[x], &[y]);
    model
}

fn write(folder: &Path, number: u64) -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::read(random_operator(&mut Choices::from_seed(number)).to_bytes())?;
    let graph = TfliteGraph::new(&model, GraphOptions::default().with_overlap(KernelSet::TflmReference))?;
    let inputs = &model.subgraphs()[0].inputs;
    let outputs = &model.subgraphs()[0].outputs;
    let (x, y) = (TensorIndex::new(0, inputs[0]), TensorIndex::new(0, outputs[0]));
    let Some(distance) = graph.overlap(TfliteKey::Tensor(y), TfliteKey::Tensor(x)) else { return Ok(()) };
    let at = |distance: u64| {
        let offset = |tensor| if tensor == x { Some(distance) } else { Some(0).filter(|_| tensor == y) };
        let offsets: Vec<_> = model.tensors().map(offset).collect();
        HeadRecord::new(&model, &offsets).and_then(|record| model.with_record(&record))
    };
    std::fs::write(folder.join(format!("{number}.tflite")), model.bytes())?;
    let distance = distance.get().next_multiple_of(16);
    std::fs::write(folder.join(format!("{number}.planned")), at(distance)?)?;
    if let Some(closer) = distance.checked_sub(16) {
        std::fs::write(folder.join(format!("{number}.wrong")), at(closer)?)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count] = arguments.as_slice() else { return Err("usage: random_operators FOLDER COUNT".into()) };
    for number in 0..count.parse()? {
        write(Path::new(folder), number)?;
    }
    Ok(())
}
