//! Kernels of callers' own operations: a closure over views of memory that is safe to use.
//!
//! The result of a node may have the memory of a source, and several threads may compute rows of one result. So a result is
//! lent as rows of cells, and a source as rows that can only be read. A call reaches those rows of the result that are its
//! own, and of sources that may have the result's memory the same rows; so no thread sees another write, whatever a closure
//! does. Views stay on the thread that they were lent to.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use steeve_device::{Element, KernelError, Shape};
use steeve_graph::{CustomOp, DataType, Graph, Param, TensorId};

use crate::kernel::{Kernel, Operands, RowUnits, ThreadScratch, UnitError};
use crate::tensor_ptr::TensorPtr;

/// What a closure returns: an error ends the run, and names the node.
pub type KernelResult = Result<(), Box<dyn Error + Send + Sync>>;

type KernelFn = dyn Fn(&CustomCall<'_>) -> KernelResult + Send + Sync;

/// A kernel of a caller's own operation on the processor.
///
/// ```
/// use steeve_alloc::GraphAllocator;
/// use steeve_cpu::{CpuBackend, CpuKernel};
/// use steeve_device::{Backend, Bindings};
/// use steeve_graph::{Context, CustomOp, DataType, Graph};
///
/// let leaky = CustomOp::elementwise("LEAKY").with_params(&["slope"]);
/// let kernel = CpuKernel::new(&leaky, |call| {
///     let slope = call.param_named("slope")?.float();
///     let (source, result) = (call.source(0)?, call.result());
///     for row in call.rows() {
///         let from = source.row::<f32>(row)?;
///         for (i, to) in result.row::<f32>(row)?.iter().enumerate() {
///             to.set(from.get(i).max(slope * from.get(i)));
///         }
///     }
///     Ok(())
/// });
/// let backend = CpuBackend::new(2).with_kernel(kernel.by_rows());
///
/// let mut context = Context::new();
/// let x = context.input(DataType::F32, &[2, 2])?;
/// let y = context.custom(&leaky, &[x], &[0.5.into()])?;
/// context.set_output(y)?;
/// let graph = Graph::from_outputs(&context, &[y])?;
/// let mut allocator = GraphAllocator::new(&backend.buffer_type());
/// let allocation = allocator.alloc(&graph, &Bindings::new())?;
/// allocation.write(x, &[1.0f32, -2.0, 3.0, -4.0])?;
/// allocation.compute(&backend)?;
/// assert_eq!(allocation.read::<f32>(y)?, [1.0, -1.0, 3.0, -2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CpuKernel {
    op: CustomOp,
    closure: Arc<KernelFn>,
    split: WorkSplit,
}

/// How the work of a node is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkSplit {
    Whole,
    Rows,
}

impl CpuKernel {
    /// Returns a kernel that computes each node in one call, on one thread.
    ///
    /// A kernel of an operation that has the name of one in the table, such as `RELU` or `relu`, is never called: no graph can
    /// be built with that operation, and the backend's own kernels compute those in the table.
    pub fn new(op: &CustomOp, closure: impl Fn(&CustomCall<'_>) -> KernelResult + Send + Sync + 'static) -> Self {
        Self { op: op.clone(), closure: Arc::new(closure), split: WorkSplit::Whole }
    }

    /// Lets several threads compute rows of one result. A call then reaches its own [rows](CustomCall::rows) of the result and
    /// of sources that the operation may overwrite or writes into, and no others.
    pub fn by_rows(mut self) -> Self {
        self.split = WorkSplit::Rows;
        self
    }
}

impl fmt::Debug for CpuKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuKernel").field("op", &self.op).field("split", &self.split).finish_non_exhaustive()
    }
}

/// The kernels of callers' own operations, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct CustomKernels(Arc<BTreeMap<String, CpuKernel>>);

impl CustomKernels {
    /// Adds a kernel; one of the same name is replaced.
    pub(crate) fn insert(&mut self, kernel: CpuKernel) {
        Arc::make_mut(&mut self.0).insert(kernel.op.name().to_owned(), kernel);
    }

    /// Returns the declaration of an operation that has a kernel.
    pub(crate) fn op(&self, name: &str) -> Option<&CustomOp> {
        self.0.get(name).map(|kernel| &kernel.op)
    }

    /// Returns the kernel of a node whose operation the table does not have. The error says what is missing or does not fit.
    pub(crate) fn choose(&self, graph: &Graph, node: TensorId, result: &Shape) -> Result<Box<dyn Kernel>, String> {
        let name = graph.tensors().op_name(graph.tensor(node).op);
        let kernel = self.0.get(name).ok_or_else(|| format!("no kernel of {name} is registered"))?;
        kernel.op.check(graph, node).map_err(|error| error.to_string())?;
        let (sources, writes_into) = (graph.sources(node), kernel.op.writes_into());
        let form = |tensor: TensorId| (graph.tensor(tensor).layout.dtype(), graph.tensor(tensor).layout.ne());
        let may_share = |slot: usize| {
            // Memory that is the same element by element has one type and shape.
            let is_alike = sources[slot].is_some_and(|source| form(source) == form(node));
            is_alike && (kernel.op.overwrites(slot) || writes_into == Some(slot))
        };
        let shares = (0..sources.len()).map(may_share).collect();
        Ok(Box::new(CustomNode {
            kernel: kernel.clone(),
            params: graph.params(node).into(),
            shares,
            rows: RowUnits::of(result),
        }))
    }
}

/// The kernel of one node.
#[derive(Debug)]
struct CustomNode {
    kernel: CpuKernel,
    params: Box<[Param]>,
    /// By slot: whether the result may have the memory of the source.
    shares: Box<[bool]>,
    rows: RowUnits,
}

impl Kernel for CustomNode {
    fn units(&self) -> usize {
        match self.kernel.split {
            WorkSplit::Whole => 1,
            WorkSplit::Rows => self.rows.units(),
        }
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let rows = match self.kernel.split {
            WorkSplit::Whole => 0..operands.result.shape.rows(),
            WorkSplit::Rows => self.rows.unit(unit),
        };
        let (op, params, shares) = (&self.kernel.op, &*self.params, &*self.shares);
        let call = CustomCall { op, operands, rows, params, shares, local: PhantomData };
        let done = catch_unwind(AssertUnwindSafe(|| (self.kernel.closure)(&call)))
            .unwrap_or_else(|panic| Err(format!("kernel panicked: {}", panic_message(&*panic)).into()));
        done.map_err(|error| UnitError::Kernel { op: op.name().into(), source: KernelError::new(error) })
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// What a kernel asked for and can't have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CustomCallError {
    /// The node has no source in this slot.
    NoSource {
        /// The slot, from 0.
        slot: usize,
    },
    /// The node has fewer parameters.
    NoParam {
        /// Which parameter, from 0.
        index: usize,
        /// How many there are.
        params: usize,
    },
    /// The operation declares no parameter of this name.
    NoParamNamed {
        /// The name that was asked for.
        name: String,
        /// The names that are declared.
        declared: Vec<String>,
    },
    /// The tensor has another data type.
    DataType {
        /// The type of the tensor.
        expected: DataType,
        /// The type that was asked for.
        found: DataType,
    },
    /// The row is not one that this call may reach.
    Row {
        /// The row.
        row: usize,
        /// The rows that can be reached.
        reach: Range<usize>,
    },
    /// The elements of a row are not side by side, or not at a multiple of their alignment.
    Strided {
        /// The row.
        row: usize,
    },
}

impl fmt::Display for CustomCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSource { slot } => write!(f, "no source in slot {slot}"),
            Self::NoParam { index, params } => {
                write!(f, "no such parameter: expected an index below {params}, got {index}")
            }
            Self::NoParamNamed { name, declared } if declared.is_empty() => {
                write!(f, "no such parameter: expected an index, since no names are declared, got \"{name}\"")
            }
            Self::NoParamNamed { name, declared } => {
                write!(f, "no such parameter: expected one of {}, got \"{name}\"", declared.join(", "))
            }
            Self::DataType { expected, found } => write!(f, "wrong data type: expected {expected}, got {found}"),
            Self::Row { row, reach } => {
                write!(f, "row out of reach: expected one in {reach:?}, got {row}")
            }
            Self::Strided { row } => write!(f, "strided row: expected adjacent, aligned elements in row {row}"),
        }
    }
}

impl Error for CustomCallError {}

/// A node of a caller's own operation, or some rows of it, to be computed.
pub struct CustomCall<'a> {
    op: &'a CustomOp,
    operands: &'a Operands<'a>,
    rows: Range<usize>,
    params: &'a [Param],
    shares: &'a [bool],
    /// Stays on its thread.
    local: PhantomData<*mut u8>,
}

impl<'a> CustomCall<'a> {
    /// Returns the rows of the result that this call must compute. Rows are counted through the outer three dimensions.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Returns the parameters of the node.
    pub fn params(&self) -> &'a [Param] {
        self.params
    }

    /// Returns a parameter of the node.
    ///
    /// # Errors
    ///
    /// If there are fewer.
    pub fn param(&self, index: usize) -> Result<Param, CustomCallError> {
        let missing = CustomCallError::NoParam { index, params: self.params.len() };
        self.params.get(index).copied().ok_or(missing)
    }

    /// Returns the parameter of a [declared](CustomOp::with_params) name.
    ///
    /// # Errors
    ///
    /// If the operation declares none of this name.
    pub fn param_named(&self, name: &str) -> Result<Param, CustomCallError> {
        let declared = self.op.params();
        match declared.iter().position(|declared| declared == name) {
            Some(index) => self.param(index),
            None => Err(CustomCallError::NoParamNamed { name: name.into(), declared: declared.into() }),
        }
    }

    /// Returns how many slots for sources the node has.
    pub fn slots(&self) -> usize {
        self.operands.sources.len()
    }

    /// Returns what is to be computed.
    pub fn result(&self) -> ResultView<'a> {
        ResultView(TensorView { raw: self.operands.result, reach: self.rows.clone(), local: PhantomData })
    }

    /// Returns a source.
    ///
    /// # Errors
    ///
    /// If the slot is empty.
    pub fn source(&self, slot: usize) -> Result<SourceView<'a>, CustomCallError> {
        let raw = self.operands.optional(slot).ok_or(CustomCallError::NoSource { slot })?;
        let is_shared = self.shares.get(slot).copied().unwrap_or(false);
        let reach = if is_shared { self.rows.clone() } else { 0..raw.shape.rows() };
        Ok(SourceView { view: TensorView { raw, reach, local: PhantomData }, is_shared })
    }
}

/// The rows of a tensor that a call reaches.
struct TensorView<'a> {
    raw: TensorPtr<'a>,
    reach: Range<usize>,
    local: PhantomData<*mut u8>,
}

impl<'a> TensorView<'a> {
    fn row<T: Element>(&self, row: usize) -> Result<&'a [Cell<T>], CustomCallError> {
        let shape = self.raw.shape;
        if shape.dtype != T::TYPE {
            return Err(CustomCallError::DataType { expected: shape.dtype, found: T::TYPE });
        }
        if shape.nb[0] != size_of::<T>() && shape.ne[0] > 1 {
            return Err(CustomCallError::Strided { row });
        }
        self.cells(row, shape.ne[0])
    }

    fn row_bytes(&self, row: usize) -> Result<&'a [Cell<u8>], CustomCallError> {
        let shape = self.raw.shape;
        if shape.nb[0] != shape.dtype.block_bytes() as usize && shape.ne[0] > shape.dtype.block_len() as usize {
            return Err(CustomCallError::Strided { row });
        }
        self.cells(row, shape.ne[0] / shape.dtype.block_len() as usize * shape.dtype.block_bytes() as usize)
    }

    /// Returns `count` elements from the start of a row on, which are those of the tensor or its bytes. The caller has seen that
    /// they are side by side.
    fn cells<T: bytemuck::Pod>(&self, row: usize, count: usize) -> Result<&'a [Cell<T>], CustomCallError> {
        let shape = self.raw.shape;
        if !self.reach.contains(&row) {
            return Err(CustomCallError::Row { row, reach: self.reach.clone() });
        }
        let offset = shape.row_offset(shape.row_at(row));
        let ends_inside =
            count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset)) <= Some(shape.bytes);
        if !ends_inside {
            return Err(CustomCallError::Strided { row });
        }
        // SAFETY: within the tensor, as was just seen.
        let start = unsafe { self.raw.at(offset) }.cast::<Cell<T>>();
        if !start.is_aligned() {
            return Err(CustomCallError::Strided { row });
        }
        // SAFETY: within the tensor and aligned, and every bit pattern is a `T`. Cells may share bytes with other cells of this
        // thread. Other threads touch none of them: if the tensor is the result, or may have its memory, its rows belong to
        // one call each (units of a result whose rows share bytes run one after another), and else no thread writes it.
        Ok(unsafe { std::slice::from_raw_parts(start, count) })
    }
}

/// The result of a node, to be written.
pub struct ResultView<'a>(TensorView<'a>);

impl<'a> ResultView<'a> {
    /// Returns the data type.
    pub fn data_type(&self) -> DataType {
        self.0.raw.shape.dtype
    }

    /// Returns the number of elements in each dimension.
    pub fn shape(&self) -> [usize; 4] {
        self.0.raw.shape.ne
    }

    /// Returns the elements of a row, to be written or read.
    ///
    /// # Errors
    ///
    /// If `T` is not the data type, the row is not one of the [call's](CustomCall::rows), or its elements are not side by
    /// side in memory.
    pub fn row<T: Element>(&self, row: usize) -> Result<&'a [Cell<T>], CustomCallError> {
        self.0.row(row)
    }

    /// Returns the bytes of a row, of any data type.
    ///
    /// # Errors
    ///
    /// If the row is not one of the [call's](CustomCall::rows), or its elements are not side by side in memory.
    pub fn row_bytes(&self, row: usize) -> Result<&'a [Cell<u8>], CustomCallError> {
        self.0.row_bytes(row)
    }
}

/// A source of a node, to be read.
pub struct SourceView<'a> {
    view: TensorView<'a>,
    /// Whether the result may have its memory.
    is_shared: bool,
}

impl<'a> SourceView<'a> {
    /// Returns the data type.
    pub fn data_type(&self) -> DataType {
        self.view.raw.shape.dtype
    }

    /// Returns the number of elements in each dimension.
    pub fn shape(&self) -> [usize; 4] {
        self.view.raw.shape.ne
    }

    /// Returns the elements of a row.
    ///
    /// # Errors
    ///
    /// If `T` is not the data type, the row is out of reach (see [`CpuKernel::by_rows`]), or its elements are not side by side
    /// in memory.
    pub fn row<T: Element>(&self, row: usize) -> Result<SourceRow<'a, T>, CustomCallError> {
        Ok(SourceRow { cells: self.view.row(row)?, is_shared: self.is_shared })
    }

    /// Returns the bytes of a row, of any data type.
    ///
    /// # Errors
    ///
    /// If the row is out of reach (see [`CpuKernel::by_rows`]), or its elements are not side by side in memory.
    pub fn row_bytes(&self, row: usize) -> Result<SourceRow<'a, u8>, CustomCallError> {
        Ok(SourceRow { cells: self.view.row_bytes(row)?, is_shared: self.is_shared })
    }
}

/// A row of a source. Where the operation may overwrite the source, elements may change while the result is written.
#[derive(Clone, Copy)]
pub struct SourceRow<'a, T> {
    cells: &'a [Cell<T>],
    is_shared: bool,
}

impl<'a, T: bytemuck::Pod> SourceRow<'a, T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Returns an element. Panics like a slice if there are fewer; the backend turns a kernel's panic into an error.
    pub fn get(&self, index: usize) -> T {
        self.cells[index].get()
    }

    /// Returns the elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + use<'a, T> {
        self.cells.iter().map(Cell::get)
    }

    /// Returns the elements as a slice, unless the operation may overwrite this source or writes into it.
    pub fn as_slice(&self) -> Option<&'a [T]> {
        if self.is_shared {
            return None;
        }
        // SAFETY: the result shares no byte with this source, and nothing else is written while the node runs.
        Some(unsafe { std::slice::from_raw_parts(self.cells.as_ptr().cast(), self.cells.len()) })
    }
}
