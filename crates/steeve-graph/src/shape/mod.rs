//! What the result of an operation looks like: layouts of the sources in, layout of the result out.
//!
//! The rules are ggml's. A rule that refuses says what it wanted; the [`Context`](crate::Context) adds the operation
//! and the shapes.

pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod image;
pub(crate) mod matrix;
pub(crate) mod reduce;
pub(crate) mod rows;
pub(crate) mod view;

use steeve_plan::Bytes;

use crate::{Layout, LayoutError, Param};

/// What an operation makes of what it is given.
pub(crate) type ShapeRule = fn(&ShapeInput<'_>) -> Result<InferredShape, ShapeError>;

/// What an operation is given.
pub(crate) struct ShapeInput<'a> {
    pub(crate) sources: &'a [Option<Layout>],
    pub(crate) params: &'a [Param],
    /// What the caller wants the result to be, where that is for the caller to say.
    pub(crate) wanted: Option<Layout>,
    pub(crate) checks: OperandChecks,
}

/// How closely a rule looks at what does not change the meaning of an operation: data types and strides of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandChecks {
    /// Those that ggml's builders check.
    Ggml,
    /// Not at all. A node is a view of any strides perhaps, and a backend knows which types and strides its kernels read.
    ShapesOnly,
}

impl ShapeInput<'_> {
    pub(crate) fn source(&self, slot: usize) -> Result<Layout, ShapeError> {
        self.maybe(slot).ok_or(ShapeError::Missing { slot })
    }

    pub(crate) fn maybe(&self, slot: usize) -> Option<Layout> {
        self.sources.get(slot).copied().flatten()
    }

    /// Checks what ggml's kernels demand, and the meaning of the operation does not.
    pub(crate) fn demand_ggml(&self, condition: bool, wish: &'static str) -> Result<(), ShapeError> {
        demand(condition || self.checks == OperandChecks::ShapesOnly, wish)
    }

    /// Returns a parameter that is a whole number, if it is there.
    pub(crate) fn given_int(&self, index: usize) -> Option<i64> {
        self.params.get(index).and_then(|param| param.int())
    }

    pub(crate) fn wanted(&self) -> Result<Layout, ShapeError> {
        self.wanted.ok_or(ShapeError::Undetermined)
    }

    /// Returns a parameter that must be an integer from 0.
    pub(crate) fn count(&self, index: usize) -> Result<u64, ShapeError> {
        let value = self.params.get(index).and_then(|param| param.int());
        value.and_then(|value| u64::try_from(value).ok()).ok_or(ShapeError::Param { index })
    }

    pub(crate) fn float(&self, index: usize) -> Result<f32, ShapeError> {
        self.params.get(index).map(|param| param.float()).ok_or(ShapeError::Param { index })
    }
}

/// What an operation makes.
pub(crate) struct InferredShape {
    pub(crate) layout: Layout,
    /// The source whose memory the result is a view of, and how far from that source's start.
    pub(crate) shares: Option<(usize, Bytes)>,
}

impl InferredShape {
    pub(crate) fn own(layout: Layout) -> Result<Self, ShapeError> {
        Ok(Self { layout, shares: None })
    }

    pub(crate) fn shared(layout: Layout, slot: usize, offset: Bytes) -> Result<Self, ShapeError> {
        Ok(Self { layout, shares: Some((slot, offset)) })
    }
}

/// Why an operation can't be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A source it needs was not given.
    #[error("source {slot}: missing")]
    Missing {
        /// Which one, from 0.
        slot: usize,
    },
    /// A parameter it needs was not given, or makes no sense.
    #[error("parameter {index}: missing or out of range")]
    Param {
        /// Which one, from 0.
        index: usize,
    },
    /// The shape of the result does not follow from the sources, and is not given.
    #[error("result: its shape does not follow from the sources: expected one that is given")]
    Undetermined,
    /// Types, shapes or strides do not fit together.
    #[error("{0}")]
    Unfit(&'static str),
    /// The result is no tensor.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

pub(crate) fn demand(condition: bool, wish: &'static str) -> Result<(), ShapeError> {
    if condition { Ok(()) } else { Err(ShapeError::Unfit(wish)) }
}

/// Returns whether copies of `part` fill `whole` exactly.
pub(crate) fn repeats_to(part: &Layout, whole: &Layout) -> bool {
    if part.ne().contains(&0) {
        return whole.ne().contains(&0);
    }
    part.ne().iter().zip(whole.ne()).all(|(&part, whole)| whole.is_multiple_of(part))
}

/// Returns whether `of` is a multiple of `part`; a part of nothing fills only nothing.
pub(crate) fn divides(part: u64, of: u64) -> bool {
    of.is_multiple_of(part)
}
