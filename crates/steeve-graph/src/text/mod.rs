//! Graphs as text: one line per tensor, for tests and bug reports.
//!
//! ```text
//! memory gpu align=128 max=1073741824 hold=2      a memory; without such lines there is one, aligned to 1
//! memory host align=64
//! x = input f32[64,32]                            leafs: input, external, leaf (a constant), param (a node)
//! w = external q4_K[256,64] "blk.0.w (copy)"      a name that is no label, behind in quotes
//! cache = external f16[128,256]
//! q = mul_mat f32[64,32] w x @host                operation, type and shape, sources, memory
//! s = soft_max(0.125,0.0) q - mask                parameters in parentheses; - is an empty slot
//! k = view f16[128,32]{2,512,16384,16384}+4096 cache    strides, if they have gaps; offset in the root
//! z = view f32[8]+0^q                             a root that does not follow from the source
//! y = silu q !output size=8448                    flags; bytes it takes, if more than it spans
//! t = ?SSM_SCAN f32[64] x q                       an operation that is not in the table
//! u = ?my_relu f32[64] t overwrites=0             the slots of the sources that such an operation may overwrite
//! v = ?my_conv f32[64] t overlaps=0+32            how many bytes below such sources the result may start
//! w = ?my_split f32[64] t v results=1             the slots of the sources that such a node computes beside its own result
//! %7 = neg y                                      a label with % is no name
//! leaf x                                          x is listed once more, here among the leafs
//! ```
//!
//! Statements end with the line or with `;`, comments start with `#`. Type and shape may be left out where the
//! operation and its sources say them, and `16` is short for `f32[16]` (in a view, for
//! the type of its root): `a = fill 16; b = neg a`. One `size=` is for all memories, as long as there are at most 64.
//!
//! Line order is node order. `!leaf`, `!node` and `!aside` (in neither list) say where a tensor is listed, if not where
//! its operation suggests; `!owner` says that a view operation made no view; `!external` that memory is the caller's.
//! Reading what was written gives the [compact](Graph::compact) graph.

mod cursor;
mod lexer;
mod read;
mod write;

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use steeve_plan::{Clipped, InputLimit, InputTooLarge};

use crate::{AssignedGraph, Graph, GraphError, LayoutError, Op, Tensor};

/// The line and column, from 1, at which a text is no graph, and why.
///
/// ```
/// use steeve_graph::Graph;
/// let error = "x = input 16\ny = neg z".parse::<Graph>().unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 9: tensor z: unknown");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
    /// What is wrong there.
    pub fault: TextFault,
}

/// The position and the fault; an input that is too large is wrong as a whole.
impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(self.fault, TextFault::InputTooLarge(_)) {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        write!(f, "{}", self.fault)
    }
}

/// The fault is part of the message, so the source is that of the fault.
impl core::error::Error for TextError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.fault.source()
    }
}

/// What can be wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextFault {
    /// A character that means nothing.
    #[error("unknown character: got {0:?}")]
    Character(char),
    /// A quoted name without its end.
    #[error("quoted name: no end on its line, or an escape other than \\\\, \\\", \\n, \\r, \\t and \\u{{..}}")]
    Quote,
    /// Something else was expected.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A number that is none, or too large.
    #[error("number: none that fits here: got {}", Clipped(.0))]
    Number(String),
    /// An operation that is not in the table.
    #[error("operation {name}: unknown: expected one of the table, or ?{name} to keep the name", name = Clipped(.0))]
    Op(String),
    /// A flag that does not exist.
    #[error("flag !{}: unknown", Clipped(.0))]
    Flag(String),
    /// An attribute that does not exist.
    #[error("attribute {}=: unknown", Clipped(.0))]
    Attribute(String),
    /// A label that nothing has.
    #[error("tensor {}: unknown", Clipped(.0))]
    Tensor(String),
    /// A memory that was not declared.
    #[error("memory {}: unknown", Clipped(.0))]
    Memory(String),
    /// A label that two things have.
    #[error("label {}: given twice", Clipped(.0))]
    Duplicate(String),
    /// Type and shape were left out, and the sources do not say them.
    #[error("type and shape: missing, and not known from the sources")]
    UnknownShape(#[source] crate::ShapeError),
    /// A statement with more words and symbols than any can need.
    #[error("statement: too long: expected at most {} words and symbols", lexer::MOST_TOKENS)]
    TooLong,
    /// A text that is longer than is read.
    #[error(transparent)]
    InputTooLarge(#[from] InputTooLarge),
    /// The root of a view was left out, and the sources do not say it.
    #[error("root of the view: missing: expected one, as in +0^root")]
    NoRoot,
    /// A shape that no tensor can have.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The parts do not fit together.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Reads a graph of at most `limit` bytes of text, as `text.parse()` does with [`InputLimit::DEFAULT`].
///
/// ```
/// use steeve_graph::{Bytes, InputLimit, text};
/// assert!(text::read_within("x = input 16; y = neg x", InputLimit::new(Bytes(100))).is_ok());
/// let error = text::read_within("x = input 16; y = neg x", InputLimit::new(Bytes(10))).unwrap_err();
/// assert_eq!(error.to_string(), "input too large: at most 10 bytes are read, got 23");
/// ```
///
/// # Errors
///
/// The first fault, with its line and column.
pub fn read_within(text: &str, limit: InputLimit) -> Result<AssignedGraph, TextError> {
    match limit.check(text.len()) {
        Ok(()) => read::read(text),
        Err(error) => Err(TextError { line: 1, column: 1, fault: error.into() }),
    }
}

/// The memories are read and dropped. Fails if the text has more than [`InputLimit::DEFAULT`] bytes.
impl FromStr for Graph {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        Ok(read_within(text, InputLimit::DEFAULT)?.into_graph())
    }
}

/// Fails if the text has more than [`InputLimit::DEFAULT`] bytes.
impl FromStr for AssignedGraph {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        read_within(text, InputLimit::DEFAULT)
    }
}

/// The text form, without memories.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write::write(f, self, None)
    }
}

/// The text form.
impl fmt::Display for AssignedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write::write(f, self.graph(), Some(self))
    }
}

/// The list of a graph that a tensor is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GraphList {
    Leafs,
    Nodes,
    Neither,
}

impl GraphList {
    /// Returns the list that a tensor is in unless its line says otherwise.
    fn usual(tensor: &Tensor) -> Self {
        if tensor.op == Op::None && !tensor.flags.is_param() { Self::Leafs } else { Self::Nodes }
    }

    fn flag(self) -> &'static str {
        match self {
            Self::Leafs => "leaf",
            Self::Nodes => "node",
            Self::Neither => "aside",
        }
    }
}

/// Up to how many memories one size may be written once for all of them. A text with more has a size for each, so
/// that no short text describes a large table.
const SAME_SIZE_MEMORIES: usize = 64;

/// Returns the slot that the result of an operation usually is a view of; the first for a plain view.
fn usual_view(op: Op) -> usize {
    op.entry().view_of.unwrap_or(0)
}
