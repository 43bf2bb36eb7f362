//! The interface of kernels, and what they are chosen by.

use std::fmt::Debug;

use steeve_device::{KernelError, Shape};
use steeve_graph::{CallError, Graph, Named, OpCall, TensorId};

use crate::tensor_ptr::{NodeScratch, TensorPtr};

/// A node as kernels are chosen for it: a call whose operands fit together, and their shapes.
///
/// A kernel looks at types and strides. It trusts shapes and parameters, which [`Graph::call`] has checked.
#[derive(Debug)]
pub(crate) struct NodeCall<'a> {
    pub(crate) call: OpCall,
    pub(crate) result: Shape,
    graph: &'a Graph,
}

impl<'a> NodeCall<'a> {
    /// Reads a node.
    ///
    /// # Errors
    ///
    /// What is missing or does not fit together.
    pub(crate) fn new(graph: &'a Graph, node: TensorId) -> Result<Self, String> {
        let result = shapes_of(graph, node)?;
        let call = graph.call(node).map_err(|error| match error {
            CallError::NoRule { .. } => NO_KERNEL.to_owned(),
            error => error.to_string(),
        })?;
        Ok(Self { call, result, graph })
    }

    /// Returns the shape of an operand, unless a number is too large for this machine.
    pub(crate) fn shape(&self, operand: TensorId) -> Result<Shape, String> {
        shape_of(self.graph, operand)
    }

    pub(crate) fn shapes<const N: usize>(&self, operands: [TensorId; N]) -> Result<[Shape; N], String> {
        let mut shapes = [self.result; N];
        for (shape, operand) in shapes.iter_mut().zip(operands) {
            *shape = self.shape(operand)?;
        }
        Ok(shapes)
    }

    /// Returns the shape of an operand that may be missing.
    pub(crate) fn optional(&self, operand: Option<TensorId>) -> Result<Option<Shape>, String> {
        operand.map(|operand| self.shape(operand)).transpose()
    }
}

pub(crate) const NO_KERNEL: &str = "no kernel for this operation";

/// Returns the shape of a node's result. The error says which of its tensors can't be counted here.
pub(crate) fn shapes_of(graph: &Graph, node: TensorId) -> Result<Shape, String> {
    // The largest numbers first: what can't be counted here fits nothing.
    for &source in graph.sources(node).iter().flatten() {
        shape_of(graph, source)?;
    }
    shape_of(graph, node)
}

fn shape_of(graph: &Graph, id: TensorId) -> Result<Shape, String> {
    let shape = Shape::new(&graph.tensor(id).layout);
    shape.ok_or_else(|| format!("too large for this machine: {}", Named::new(id, graph.names())))
}

/// The operands of a kernel. Sources share no byte with the result, unless the kernel may overwrite them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands<'a> {
    pub(crate) result: TensorPtr<'a>,
    pub(crate) sources: &'a [Option<TensorPtr<'a>>],
    /// At least as many bytes as the kernel's prologue has asked for.
    pub(crate) node_scratch: NodeScratch<'a>,
}

impl<'a> Operands<'a> {
    /// Returns a source that was present when the kernel was chosen.
    pub(crate) fn source(&self, slot: usize) -> TensorPtr<'a> {
        match self.sources.get(slot).copied().flatten() {
            Some(source) => source,
            None => unreachable!("the kernel was chosen with a source in slot {slot}"),
        }
    }

    /// Returns a source that may be missing.
    pub(crate) fn optional(&self, slot: usize) -> Option<TensorPtr<'a>> {
        self.sources.get(slot).copied().flatten()
    }
}

/// Computes one node. The work is cut into units, which any thread may take in any order; how they are cut depends on
/// shapes alone, and so does every result.
pub(crate) trait Kernel: Send + Sync + Debug {
    /// Returns the number of units that the work is cut into.
    fn units(&self) -> usize;

    /// Returns the work before all units, and the bytes that it fills.
    fn prologue(&self) -> Prologue {
        Prologue::default()
    }

    /// Does one unit of the prologue.
    ///
    /// # Safety
    /// The promises of [`run`](Self::run) hold, except that the prologue may be incomplete, and no other thread
    /// accesses the part of the node scratch that belongs to this unit.
    unsafe fn run_prologue(&self, _: &Operands<'_>, _: usize, _: &mut ThreadScratch) {}

    /// Does one unit.
    ///
    /// # Errors
    ///
    /// What data alone can show to be wrong, such as a row that does not exist.
    ///
    /// # Safety
    /// The operands have the shapes that the kernel was chosen for, their memory is borrowed, and no other thread
    /// writes what this unit touches. The result may have exactly the memory of a source whose slot the operation
    /// overwrites; otherwise sources and result share no byte. Every unit of [`run_prologue`](Self::run_prologue) has
    /// been done.
    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError>;
}

/// Why a unit of work failed.
#[derive(Debug)]
pub(crate) enum UnitError {
    /// Data that only a run can show to be wrong.
    Data(String),
    /// The error of a caller's own kernel of operation `op`.
    Kernel { op: String, source: KernelError },
}

impl From<String> for UnitError {
    fn from(why: String) -> Self {
        Self::Data(why)
    }
}

/// The work before the units of a kernel, which fills memory that all of them read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prologue {
    pub(crate) units: usize,
    pub(crate) bytes: usize,
}

/// Scratch memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadScratch {
    floats: Vec<f32>,
    words: Vec<u64>,
    bytes: Vec<i8>,
}

impl ThreadScratch {
    /// Returns `N` rows of the given lengths, with the contents of earlier uses.
    pub(crate) fn rows<const N: usize>(&mut self, lengths: [usize; N]) -> [&mut [f32]; N] {
        Self::rows_of(&mut self.floats, lengths)
    }

    fn rows_of<const N: usize>(floats: &mut Vec<f32>, lengths: [usize; N]) -> [&mut [f32]; N] {
        let total: usize = lengths.iter().sum();
        if floats.len() < total {
            floats.resize(total, 0.0);
        }
        let mut rest = floats.as_mut_slice();
        lengths.map(|length| {
            let (row, behind) = std::mem::take(&mut rest).split_at_mut(length);
            rest = behind;
            row
        })
    }

    /// Returns `bytes` bytes and a row of `length` elements, with the contents of earlier uses.
    pub(crate) fn bytes_and_row(&mut self, bytes: usize, length: usize) -> (&mut [i8], &mut [f32]) {
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
        let [row] = Self::rows_of(&mut self.floats, [length]);
        (&mut self.bytes[..bytes], row)
    }

    /// Returns `length` words and a row of that length, with the contents of earlier uses.
    pub(crate) fn words_and_row(&mut self, length: usize) -> (&mut [u64], &mut [f32]) {
        if self.words.len() < length {
            self.words.resize(length, 0);
        }
        if self.floats.len() < length {
            self.floats.resize(length, 0.0);
        }
        (&mut self.words[..length], &mut self.floats[..length])
    }
}

/// Rows cut into units of about equal numbers of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowUnits {
    rows: usize,
    per_unit: usize,
}

impl RowUnits {
    /// Enough to be worth waking a thread, few enough for all threads to have some.
    const ELEMENTS: usize = 16 * 1024;

    /// Cuts `rows` rows that cost about `elements` each.
    pub(crate) fn new(rows: usize, elements: usize) -> Self {
        Self { rows, per_unit: (Self::ELEMENTS / elements.max(1)).max(1) }
    }

    /// Cuts the rows of a tensor.
    pub(crate) fn of(result: &Shape) -> Self {
        Self::new(result.rows(), result.ne[0])
    }

    pub(crate) fn units(&self) -> usize {
        self.rows.div_ceil(self.per_unit)
    }

    /// Returns the rows of a unit.
    pub(crate) fn unit(&self, unit: usize) -> std::ops::Range<usize> {
        let start = unit * self.per_unit;
        start..(start + self.per_unit).min(self.rows)
    }
}
