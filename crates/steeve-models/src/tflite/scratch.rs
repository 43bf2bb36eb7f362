//! Buffers that kernels ask for beside their operands, which are not in the file. O(operators).
//!
//! TensorFlow Lite Micro places them in the head, around what a record has fixed. Which kernel asks for how much is the
//! kernel's own affair, and differs from one set of optimised kernels to the next.

use super::model::{Model, Operator, Tensor, TensorIndex};
use super::names::{BuiltinOp, DataType};

/// A buffer that a kernel needs while its operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScratchBuffer {
    /// The subgraph of the operator.
    pub subgraph: usize,
    /// The number of the operator there.
    pub operator: usize,
    /// The bytes.
    pub bytes: u64,
}

/// Returns one buffer of `bytes` bytes for each operator: room for kernels of which nothing is known.
pub fn uniform_scratch(model: &Model, bytes: u64) -> Vec<ScratchBuffer> {
    let each = model.subgraphs.iter().enumerate();
    each.flat_map(|(subgraph, it)| {
        (0..it.operators.len()).map(move |operator| ScratchBuffer { subgraph, operator, bytes })
    })
    .filter(|it| it.bytes > 0)
    .collect()
}

/// Returns the buffers that TensorFlow Lite Micro's reference kernels ask for, as far as they are known: those of reductions,
/// transposed convolutions, sums of many operands, mirrored borders, recurrent layers, and the Fourier transform of the signal
/// library.
pub fn reference_scratch(model: &Model) -> Vec<ScratchBuffer> {
    let mut found = Vec::new();
    for (subgraph, it) in model.subgraphs.iter().enumerate() {
        for (operator, op) in it.operators.iter().enumerate() {
            let sizes = of_operator(model, subgraph, op);
            found.extend(sizes.into_iter().map(|bytes| ScratchBuffer { subgraph, operator, bytes }));
        }
    }
    found
}

fn of_operator(model: &Model, subgraph: usize, op: &Operator) -> Vec<u64> {
    let tensor = |number: Option<usize>| number.and_then(|tensor| model.tensor(TensorIndex::new(subgraph, tensor)));
    let input = |slot: usize| tensor(op.inputs.get(slot).copied().flatten());
    let rank = |slot: usize| input(slot).map_or(0, |tensor| tensor.shape.len() as u64);
    let dim = |tensor: Option<&Tensor>, dim: usize| {
        tensor.and_then(|tensor| u64::try_from(*tensor.shape.get(dim)?).ok()).unwrap_or(0)
    };
    let is_small =
        input(0).is_some_and(|it| matches!(it.data_type, DataType::INT8 | DataType::UINT8 | DataType::INT16));
    match model.builtin(op) {
        // The index of an element, and the axes with the negative ones resolved.
        BuiltinOp::REDUCE_MAX | BuiltinOp::REDUCE_MIN | BuiltinOp::SUM | BuiltinOp::MEAN => {
            let mut sizes = Vec::new();
            if is_small && matches!(model.builtin(op), BuiltinOp::SUM | BuiltinOp::MEAN) {
                sizes.push(tensor(op.outputs.first().copied()).map_or(0, elements).saturating_mul(4));
            }
            sizes.extend([4 * rank(0), input(1).map_or(0, elements).saturating_mul(4)]);
            sizes
        }
        // Sums of 32 or 64 bits, for each element of the result.
        BuiltinOp::TRANSPOSE_CONV => {
            let sums = match input(2).map(|it| it.data_type) {
                Some(DataType::INT8) => 4,
                Some(DataType::INT16) => 8,
                _ => 0,
            };
            vec![tensor(op.outputs.first().copied()).map_or(0, elements).saturating_mul(sums)]
        }
        // The addresses of all operands; a microcontroller's have half that size.
        BuiltinOp::ADD_N => vec![8 * op.inputs.len() as u64],
        // Offsets of both sides.
        BuiltinOp::MIRROR_PAD => vec![4 * rank(0); 2],
        // Sums of 32 bits, for each filter and for each unit.
        BuiltinOp::SVDF if is_small => {
            let (batch, filters) = (dim(input(0), 0), dim(input(1), 0));
            let units = dim(tensor(op.outputs.first().copied()), 1);
            vec![batch.saturating_mul(filters).saturating_mul(4), batch.saturating_mul(units).saturating_mul(4)]
        }
        // The four gates of a step, in 16 bits.
        BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM if is_small => {
            let state = input(18).map_or(0, elements);
            vec![state.saturating_mul(2); 4]
        }
        // The samples, in the type of the result.
        BuiltinOp::CUSTOM if model.op_name(op) == "SignalRfft" => {
            let result = tensor(op.outputs.first().copied());
            let samples = result.and_then(|it| u64::try_from(*it.shape.last()?).ok()).unwrap_or(0).saturating_sub(2);
            vec![samples.saturating_mul(result.and_then(|it| it.data_type.size()).unwrap_or(0))]
        }
        _ => Vec::new(),
    }
    .into_iter()
    .filter(|bytes| *bytes > 0)
    .collect()
}

fn elements(tensor: &Tensor) -> u64 {
    tensor.shape.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).fold(1, u64::saturating_mul)
}
