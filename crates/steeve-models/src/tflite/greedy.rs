//! TensorFlow Lite Micro's own planner, to the byte. O(tensors^2), as it is there.
//!
//! Buffers are placed by falling size, those of equal size last come first, each into the first gap of sufficient size between
//! those that live at the same time. What a record places is there before all others, wherever the record says, and
//! not checked:
//!
//! ```text
//!   head |        [ c ]          c: its first gap is above a, since b is placed already
//!        | [ a       ][ b  ]
//! ```

use super::error::TfliteError;
use super::lifetimes::TflmLifetimes;
use super::model::Model;
use super::program::Program;
use super::record::HeadRecord;
use super::scratch::ScratchBuffer;
use super::sizes::{FlatIndex, TensorKind, tensor_kinds};

/// Where TensorFlow Lite Micro puts each tensor, and the bytes of the head that it allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TflmPlacement {
    /// The bytes of the head: what the runtime prints as "Arena allocation head".
    pub head: u64,
    /// The offset of each tensor, in the order of [`Model::tensors`]; `None` for those that are not in the head.
    pub offsets: Vec<Option<i64>>,
}

/// A buffer as the planner sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadBuffer {
    pub(crate) size: u64,
    /// The first and the last scope.
    pub(crate) life: (i64, i64),
    /// Where a record places it.
    pub(crate) fixed: Option<i64>,
}

impl HeadBuffer {
    fn lives_with(&self, other: &Self) -> bool {
        self.life.0 <= other.life.1 && other.life.0 <= self.life.1
    }

    fn end(&self, offset: i64) -> i64 {
        offset.saturating_add(i64::try_from(self.size).unwrap_or(i64::MAX))
    }
}

/// Returns the offset of each buffer.
pub(crate) fn place_greedily(buffers: &[HeadBuffer]) -> Vec<i64> {
    let fixed = (0..buffers.len()).filter(|it| buffers[*it].fixed.is_some());
    let mut online: Vec<usize> = (0..buffers.len()).rev().filter(|it| buffers[*it].fixed.is_none()).collect();
    online.sort_by_key(|it| std::cmp::Reverse(buffers[*it].size));
    let mut offsets = vec![0; buffers.len()];
    // By offset; of equal offsets, in the order in which they were placed.
    let mut placed: Vec<usize> = Vec::with_capacity(buffers.len());
    for buffer in fixed.chain(online) {
        let it = &buffers[buffer];
        let offset = it.fixed.unwrap_or_else(|| first_gap(buffers, &placed, &offsets, it));
        offsets[buffer] = offset;
        let position = placed.partition_point(|other| offsets[*other] <= offset);
        placed.insert(position, buffer);
    }
    offsets
}

fn first_gap(buffers: &[HeadBuffer], placed: &[usize], offsets: &[i64], wanted: &HeadBuffer) -> i64 {
    let size = i64::try_from(wanted.size).unwrap_or(i64::MAX);
    let mut candidate = 0;
    for other in placed.iter().filter(|other| buffers[**other].lives_with(wanted)) {
        if offsets[*other].saturating_sub(candidate) >= size {
            break;
        }
        candidate = candidate.max(buffers[*other].end(offsets[*other]));
    }
    candidate
}

/// Computes where TensorFlow Lite Micro puts the tensors of a model: by its own planner, around what `record` places.
///
/// `scratch` are the buffers that kernels ask for while they are prepared, which are not in the file; see
/// [`reference_scratch`](super::reference_scratch) for those that are known.
///
/// ```
/// use steeve_models::tflite::{Model, SmallModel, tflm_placement};
///
/// let model = Model::read(SmallModel::chain(&[64, 32, 16]).to_bytes())?;
/// assert_eq!(tflm_placement(&model, None, &[])?.head, 64 + 32);
/// # Ok::<(), steeve_models::tflite::TfliteError>(())
/// ```
///
/// # Errors
///
/// If a tensor has no size, a subgraph calls itself, or the record has another number of tensors.
pub fn tflm_placement(
    model: &Model,
    record: Option<&HeadRecord>,
    scratch: &[ScratchBuffer],
) -> Result<TflmPlacement, TfliteError> {
    let kinds = tensor_kinds(model)?;
    let program = Program::new(model, &kinds)?;
    let lifetimes = TflmLifetimes::new(model, &program)?;
    let flat = FlatIndex::new(model);
    let fixed = match record {
        Some(record) => record.effective_offsets(model)?,
        None => vec![None; flat.len()],
    };
    let mut buffers = Vec::new();
    let mut places = vec![None; flat.len()];
    for (tensor, kind) in kinds.iter().enumerate() {
        let size = match *kind {
            TensorKind::Planned(size) => size,
            TensorKind::Variable(size) if fixed[tensor].is_some() => size,
            _ => continue,
        };
        places[tensor] = Some(buffers.len());
        buffers.push(HeadBuffer { size, life: lifetimes.tensors[tensor], fixed: fixed[tensor] });
    }
    for it in scratch {
        let life = lifetimes.operators.get(it.subgraph).and_then(|operators| operators.get(it.operator));
        let size = it.bytes.saturating_add(super::HEAD_ALIGN - 1) / super::HEAD_ALIGN * super::HEAD_ALIGN;
        buffers.push(HeadBuffer { size, life: life.copied().unwrap_or((-1, -1)), fixed: None });
    }
    let offsets = place_greedily(&buffers);
    let ends = buffers.iter().zip(&offsets).map(|(buffer, offset)| buffer.end(*offset));
    let head = ends.max().and_then(|end| u64::try_from(end).ok()).unwrap_or(0);
    Ok(TflmPlacement { head, offsets: places.into_iter().map(|place| Some(offsets[place?])).collect() })
}
