//! The parameters of operators, as far as planning needs them.

use super::error::TfliteError;
use super::flatbuffer::{Field, Reader, Table};

/// The parameters of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Options {
    /// The operator has none, or none that planning needs.
    Other,
    /// Of `IF`.
    If {
        /// The subgraph that runs if the condition holds.
        then_subgraph: i32,
        /// The subgraph that runs otherwise.
        else_subgraph: i32,
    },
    /// Of `WHILE`.
    While {
        /// The subgraph that says whether to go on.
        condition: i32,
        /// The subgraph that runs over and over.
        body: i32,
    },
    /// Of `CALL_ONCE`.
    CallOnce {
        /// The subgraph that the first run calls.
        init: i32,
    },
    /// Of `CONV_2D` and `DEPTHWISE_CONV_2D`.
    Convolution {
        /// How the window moves.
        window: Window,
        /// From one element of the filter to the next, in height and width.
        dilation: [i32; 2],
        /// Channels of the result for each channel of the image, if each is convolved alone; otherwise 1.
        depth_multiplier: i32,
    },
    /// Of `AVERAGE_POOL_2D` and `MAX_POOL_2D`.
    Pool {
        /// How the window moves.
        window: Window,
        /// Height and width of the window.
        filter: [i32; 2],
    },
    /// Of `MEAN`, `SUM` and the like.
    Reduce {
        /// Whether reduced dimensions stay, with one element each.
        keep_dims: bool,
    },
}

/// How a window moves over an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Whether the image is padded so that the result is as large as it, but for the stride.
    pub same_padding: bool,
    /// Rows and columns from one element of the result to the next.
    pub stride: [i32; 2],
}

/// Numbers of the union `BuiltinOptions`.
mod kind {
    pub(super) const CONV_2D: u8 = 1;
    pub(super) const DEPTHWISE_CONV_2D: u8 = 2;
    pub(super) const POOL_2D: u8 = 5;
    pub(super) const REDUCER: u8 = 27;
    pub(super) const IF: u8 = 92;
    pub(super) const WHILE: u8 = 93;
    pub(super) const CALL_ONCE: u8 = 103;
}

const OPTIONS_TYPE: Field = Field::new(3, "Operator.builtin_options_type");
const OPTIONS: Field = Field::new(4, "Operator.builtin_options");

impl Options {
    /// Reads the options of an operator.
    pub(crate) fn read(reader: &Reader<'_>, operator: &Table) -> Result<Self, TfliteError> {
        let kind = reader.i8(operator, OPTIONS_TYPE)?.cast_unsigned();
        let is_known = matches!(
            kind,
            kind::CONV_2D
                | kind::DEPTHWISE_CONV_2D
                | kind::POOL_2D
                | kind::REDUCER
                | kind::IF
                | kind::WHILE
                | kind::CALL_ONCE
        );
        if !is_known {
            return Ok(Self::Other);
        }
        let Some(table) = reader.table(operator, OPTIONS)? else { return Ok(Self::Other) };
        let int = |slot, default| reader.i32(&table, Field::new(slot, OPTIONS.name), default);
        let window = || {
            let same_padding = reader.i8(&table, Field::new(0, OPTIONS.name))? == 0;
            Ok::<_, TfliteError>(Window { same_padding, stride: [int(2, 0)?, int(1, 0)?] })
        };
        Ok(match kind {
            kind::CONV_2D => {
                Self::Convolution { window: window()?, dilation: [int(5, 1)?, int(4, 1)?], depth_multiplier: 1 }
            }
            kind::DEPTHWISE_CONV_2D => Self::Convolution {
                window: window()?,
                dilation: [int(6, 1)?, int(5, 1)?],
                depth_multiplier: int(3, 0)?,
            },
            kind::POOL_2D => Self::Pool { window: window()?, filter: [int(4, 0)?, int(3, 0)?] },
            kind::REDUCER => Self::Reduce { keep_dims: reader.bool(&table, Field::new(0, OPTIONS.name))? },
            kind::IF => Self::If { then_subgraph: int(0, 0)?, else_subgraph: int(1, 0)? },
            kind::WHILE => Self::While { condition: int(0, 0)?, body: int(1, 0)? },
            _ => Self::CallOnce { init: int(0, 0)? },
        })
    }

    /// Returns the subgraphs that are called, in the order in which TensorFlow Lite Micro visits them.
    pub(crate) fn calls(&self) -> (Option<i32>, Option<i32>) {
        match *self {
            Self::If { then_subgraph, else_subgraph } => (Some(then_subgraph), Some(else_subgraph)),
            Self::While { condition, body } => (Some(condition), Some(body)),
            Self::CallOnce { init } => (Some(init), None),
            _ => (None, None),
        }
    }

    /// Returns whether subgraphs are called.
    pub(crate) fn calls_any(&self) -> bool {
        self.calls().0.is_some()
    }
}
