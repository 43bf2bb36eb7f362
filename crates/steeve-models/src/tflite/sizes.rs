//! How many bytes of the arena's head each tensor takes. O(tensors).
//!
//! The *head* is the part of TensorFlow Lite Micro's arena that is planned. Constants stay in the file, and variables are
//! located behind the head unless a record places them.

use super::error::TfliteError;
use super::model::{Model, Tensor, TensorIndex};
use super::names::BuiltinOp;

/// What TensorFlow Lite Micro aligns tensors to, and rounds their sizes up to.
pub const HEAD_ALIGN: u64 = 16;

/// The number of a tensor among those of all subgraphs, and the other way round.
#[derive(Clone, Debug)]
pub(crate) struct FlatIndex {
    /// By subgraph: the number of its first tensor. One more at the end.
    starts: Vec<usize>,
}

impl FlatIndex {
    pub(crate) fn new(model: &Model) -> Self {
        let mut starts = vec![0];
        let mut end = 0;
        for subgraph in &model.subgraphs {
            end += subgraph.tensors.len();
            starts.push(end);
        }
        Self { starts }
    }

    pub(crate) fn of(&self, index: TensorIndex) -> usize {
        self.starts[index.subgraph] + index.tensor
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }
}

/// What a tensor is to the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorKind {
    /// It takes so many bytes of the head, a multiple of 16.
    Planned(u64),
    /// Its contents stay from run to run. It takes bytes of the head only if a record says where.
    Variable(u64),
    /// It is in the file, of so many bytes.
    Constant(u64),
    /// It has no bytes, or the kernel that computes it has them.
    Empty,
}

impl TensorKind {
    /// Returns the bytes of the head that every plan has to have for this tensor.
    pub(crate) fn planned(self) -> Option<u64> {
        match self {
            Self::Planned(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Returns what each tensor is, in the order in which records have them.
pub(crate) fn tensor_kinds(model: &Model) -> Result<Vec<TensorKind>, TfliteError> {
    let tensors = model.tensors().filter_map(|index| Some((index, model.tensor(index)?)));
    let mut kinds = tensors.map(|(index, tensor)| kind(model, index, tensor)).collect::<Result<Vec<_>, _>>()?;
    let flat = FlatIndex::new(model);
    for (number, subgraph) in model.subgraphs.iter().enumerate() {
        // The kernel has the handle in memory of its own, and points the tensor to that when it is prepared.
        for op in subgraph.operators.iter().filter(|op| model.builtin(op) == BuiltinOp::VAR_HANDLE) {
            op.outputs.iter().for_each(|output| kinds[flat.of(TensorIndex::new(number, *output))] = TensorKind::Empty);
        }
    }
    Ok(kinds)
}

fn kind(model: &Model, index: TensorIndex, tensor: &Tensor) -> Result<TensorKind, TfliteError> {
    if model.is_constant(tensor) {
        return Ok(TensorKind::Constant(model.data(tensor).map_or(0, |data| data.len() as u64)));
    }
    let bytes = byte_count(index, tensor)?;
    Ok(match bytes.next_multiple_of(HEAD_ALIGN) {
        0 => TensorKind::Empty,
        bytes if tensor.is_variable => TensorKind::Variable(bytes),
        bytes => TensorKind::Planned(bytes),
    })
}

/// Returns the bytes of a tensor, not rounded.
pub(crate) fn byte_count(index: TensorIndex, tensor: &Tensor) -> Result<u64, TfliteError> {
    let called = || format!("{index} ({})", tensor.name);
    let Some(element) = tensor.data_type.size() else {
        return Err(TfliteError::DataType { tensor: called(), data_type: tensor.data_type.name() });
    };
    let dims = tensor.shape.iter().map(|dim| u64::try_from(*dim).ok());
    let bytes = dims.into_iter().try_fold(element, |bytes, dim| bytes.checked_mul(dim?));
    // TensorFlow Lite Micro counts bytes in 32 bits.
    let bytes = bytes.filter(|bytes| *bytes <= (i32::MAX as u64) - HEAD_ALIGN);
    bytes.ok_or_else(|| TfliteError::Shape { tensor: called(), shape: tensor.shape.clone() })
}
