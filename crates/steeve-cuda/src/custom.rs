//! Kernels of callers' own operations: CUDA C that is compiled when a node first needs it.
//!
//! ```text
//!   source of the caller   +   helpers, and `Call` for so many sources and parameters   --compile-->   one function
//!   operands of a node     -->   words in the order of `Call`   --launch-->
//! ```
//!
//! A function is compiled once per number of sources and parameters, and kept in files as all kernels are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use steeve_graph::{CustomOp, DataType, Graph, Op, Param, TensorId};

use crate::command_list::{CommandList, Source};
use crate::driver::{Function, Module};
use crate::operand::{Operand, unsigned};
use crate::params::{AssertSite, Tensor};
use crate::sources;

/// A kernel of a caller's own operation on GPUs, in CUDA C.
///
/// The source defines `compute`, which is called for every element of the result, or for every row by all 256 threads of a
/// block. What it may use:
///
/// | | |
/// |---|---|
/// | `call.result`, `call.sources[i]` | a `Tensor`: `data`, sizes `ne[4]`, strides in bytes `nb[4]`, `dtype` (`F32`, `F16`, ...); `data` is null in a slot without a source |
/// | `call.params[i]` | a parameter as `number` (a double) and as `whole` (an i64); `param::slope` is the index of a [declared](CustomOp::with_params) parameter `slope` |
/// | `read(call, i, index)` | what source `i` (f32, f16, bf16) has at the place of an element of the result; a shorter dimension starts over |
/// | `write(call, index, x)` | makes `x` that element of the result |
/// | `load`, `store`, `place_of`, `offset_of`, `row_of` | one element by address and type; places in a tensor |
/// | `block_sum`, `block_max` | over all threads of a block |
/// | `report(call.asserts, value)` | makes the run fail with an error that names the node and the value |
///
/// ```
/// use steeve_cuda::{CudaDevice, CudaKernel};
/// use steeve_graph::CustomOp;
///
/// let leaky = CustomOp::elementwise("LEAKY").with_params(&["slope"]);
/// let source = "__device__ void compute(const Call &call, u64 i) {
///     float x = read(call, 0, i);
///     write(call, i, x > 0 ? x : x * (float)call.params[param::slope].number);
/// }";
/// // SAFETY: it writes its element of the result, and nothing else.
/// let kernel = unsafe { CudaKernel::by_elements(&leaky, source) };
/// if let Ok(devices) = CudaDevice::all() {
///     let devices = devices.into_iter().map(|device| device.with_kernel(kernel.clone()));
///     println!("{} GPUs compute LEAKY", devices.count());
/// }
/// ```
#[derive(Clone)]
pub struct CudaKernel {
    op: CustomOp,
    source: Arc<str>,
    split: WorkSplit,
    types: Arc<[DataType]>,
}

/// What `compute` is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkSplit {
    Elements,
    Rows,
}

impl CudaKernel {
    /// Returns a kernel whose source defines `__device__ void compute(const Call &call, u64 index)`, which is called for every
    /// element of the result by a thread of its own.
    ///
    /// # Safety
    ///
    /// The code is run as it is: it may write the elements of `call.result` that it is called for, and nothing else, and may
    /// read what `call.sources` and `call.result` reach.
    #[allow(unsafe_code, reason = "the caller promises what CUDA C can't")]
    pub unsafe fn by_elements(op: &CustomOp, source: &str) -> Self {
        Self::new(op, source, WorkSplit::Elements)
    }

    /// Returns a kernel whose source defines `__device__ void compute(const Call &call, u64 row)`, which is called for every row
    /// of the result by all threads of a block, 256 of them.
    ///
    /// # Safety
    ///
    /// The code is run as it is: it may write the row of `call.result` that it is called for, and nothing else, and may read
    /// what `call.sources` and `call.result` reach.
    #[allow(unsafe_code, reason = "the caller promises what CUDA C can't")]
    pub unsafe fn by_rows(op: &CustomOp, source: &str) -> Self {
        Self::new(op, source, WorkSplit::Rows)
    }

    fn new(op: &CustomOp, source: &str, split: WorkSplit) -> Self {
        Self { op: op.clone(), source: source.into(), split, types: FLOATS.into() }
    }

    /// Runs the kernel on sources and results of these types, instead of f32, f16 and bf16, which are those that `read`,
    /// `write`, `load` and `store` know.
    #[must_use]
    pub fn with_types(self, types: &[DataType]) -> Self {
        Self { types: types.into(), ..self }
    }
}

impl fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaKernel").field("op", &self.op).field("split", &self.split).finish_non_exhaustive()
    }
}

const FLOATS: [DataType; 3] = [DataType::F32, DataType::F16, DataType::Bf16];

/// The threads of a block.
const THREADS: u32 = 256;

/// As many bytes of parameters are passed to a kernel by every driver.
const MOST_BYTES: usize = 4096;

/// The kernels of callers' own operations, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct CustomKernels(Arc<BTreeMap<String, CudaKernel>>);

/// Compiles a kernel for a call, or finds the function that was made for it.
pub(crate) type CompileKernel<'a> = &'a dyn Fn(&CudaKernel, CallShape) -> Result<Arc<CustomFunction>, String>;

/// A compiled kernel, the module that it is in, and the source that its key speaks of.
#[derive(Debug)]
pub(crate) struct CustomFunction {
    pub(crate) function: Function,
    pub(crate) _module: Module,
    pub(crate) _source: Arc<str>,
}

/// What a function was compiled for. The source is known by its address: a function is kept with its source.
pub(crate) type FunctionKey = (usize, WorkSplit, CallShape);

impl CustomKernels {
    /// Adds a kernel; one of the same name is replaced.
    pub(crate) fn insert(&mut self, kernel: CudaKernel) {
        Arc::make_mut(&mut self.0).insert(kernel.op.name().to_owned(), kernel);
    }

    /// Returns the kernel of a node whose operation the table does not have, and `None` for any other node. The error says
    /// what is missing or does not fit.
    pub(crate) fn kernel(&self, graph: &Graph, node: TensorId) -> Result<Option<&CudaKernel>, String> {
        let Op::Other(_) = graph.tensor(node).op else { return Ok(None) };
        let name = graph.tensors().op_name(graph.tensor(node).op);
        let kernel = self.0.get(name).ok_or_else(|| format!("no kernel of {name} is registered"))?;
        kernel.op.check(graph, node).map_err(|error| error.to_string())?;
        kernel.check_operands(graph, node)?;
        Ok(Some(kernel))
    }
}

impl CudaKernel {
    /// Returns the declaration of the operation.
    pub(crate) fn op(&self) -> &CustomOp {
        &self.op
    }

    /// Returns what a function of this kernel is kept by, and the source that the key speaks of.
    pub(crate) fn key(&self, call: CallShape) -> (FunctionKey, Arc<str>) {
        ((self.source.as_ptr().addr(), self.split, call), Arc::clone(&self.source))
    }

    /// Returns an error unless the kernel can be launched for a node of its operation.
    fn check_operands(&self, graph: &Graph, node: TensorId) -> Result<(), String> {
        let (sources, params) = (graph.sources(node), graph.params(node));
        let bytes = CallShape::of(graph, node).bytes();
        if bytes > MOST_BYTES {
            let (sources, params) = (sources.len(), params.len());
            return Err(format!(
                "too many operands: expected at most {MOST_BYTES} bytes, got {bytes} for {sources} sources and {params} parameters"
            ));
        }
        let listed = sources.iter().enumerate().filter_map(|(slot, source)| Some((Some(slot), (*source)?)));
        for (slot, tensor) in listed.chain([(None, node)]) {
            let layout = graph.tensor(tensor).layout;
            let named = || slot.map_or_else(|| String::from("result"), |slot| format!("source {slot}"));
            if !self.types.contains(&layout.dtype()) {
                let types: Vec<&str> = self.types.iter().map(|dtype| dtype.name()).collect();
                return Err(format!("{}: expected {}, got {}", named(), types.join(" or "), layout.dtype()));
            }
            let is_read = self.split == WorkSplit::Elements && slot.is_some();
            if is_read && layout.elements() == 0 && graph.tensor(node).layout.elements() > 0 {
                return Err(format!("{}: no elements: expected some for each of the result", named()));
            }
        }
        Ok(())
    }

    /// Adds the launch of a node of this operation.
    pub(crate) fn lower(
        &self,
        (graph, node): (&Graph, TensorId),
        result: Operand,
        located: &[Source],
        compile: CompileKernel<'_>,
        commands: &mut CommandList,
    ) -> Result<(), String> {
        let call = CallShape::of(graph, node);
        let function = compile(self, call)?;
        let (count, grid) = match self.split {
            WorkSplit::Elements => (result.shape.elements(), result.shape.elements().div_ceil(THREADS as usize)),
            WorkSplit::Rows => (result.shape.rows(), result.shape.rows()),
        };
        let mut operands = vec![Tensor::optional(None); call.sources];
        located.iter().for_each(|source| operands[source.slot] = source.operand.into());
        let mut params: Vec<CustomParam> = graph.params(node).iter().copied().map(CustomParam::from).collect();
        params.resize(call.params, CustomParam::default());
        commands.launch_custom(function, grid.min(i32::MAX as usize), THREADS, |words| {
            words.push(Tensor::from(result));
            words.push(unsigned(count));
            operands.into_iter().for_each(|operand| words.push(operand));
            params.into_iter().for_each(|param| words.push(param));
        })
    }

    /// Returns all that is compiled for a node. Errors of the compiler name the operation.
    pub(crate) fn text(&self, call: CallShape) -> String {
        let plain = |it: char| if it.is_ascii_alphanumeric() { it } else { '_' };
        let name: String = self.op.name().chars().map(plain).collect();
        // A grid has fewer blocks than a large tensor may have rows.
        let calls = match self.split {
            WorkSplit::Elements => {
                "for (u64 i = element(); i < a.count; i += (u64)gridDim.x * blockDim.x) compute(a, i);"
            }
            WorkSplit::Rows => {
                "for (u64 row = blockIdx.x; row < a.count; row += gridDim.x) { compute(a, row); __syncthreads(); }"
            }
        };
        let source = &self.source;
        let kernel = format!(
            "__device__ void compute(const Call &call, u64 index);\n\
             #line 1 \"{name}\"\n{source}\n#line 1 \"custom kernel\"\n\
             KERNEL(custom)(const Call &a) {{ {calls} }}\n"
        );
        sources::custom(&(call.declaration() + &self.param_indices())) + &kernel
    }

    /// Returns the index of each declared parameter that has a name of C's.
    fn param_indices(&self) -> String {
        let is_name = |name: &str| {
            name.starts_with(|it: char| it.is_ascii_alphabetic())
                && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
        };
        let names = self.op.params().iter().enumerate().filter(|(_, name)| is_name(name));
        let indices: String = names.map(|(index, name)| format!(" constexpr int {name} = {index};")).collect();
        format!("namespace param {{{indices} }}\n")
    }
}

/// The function of what is compiled.
pub(crate) const ENTRY: &str = "steeve_custom";

/// How many sources and parameters a kernel is told. There is at least one of each, since C++ has no arrays of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallShape {
    sources: usize,
    params: usize,
}

impl CallShape {
    fn of(graph: &Graph, node: TensorId) -> Self {
        Self { sources: graph.sources(node).len().max(1), params: graph.params(node).len().max(1) }
    }

    fn bytes(self) -> usize {
        let head = size_of::<AssertSite>() + size_of::<Tensor>() + size_of::<u64>();
        head + self.sources * size_of::<Tensor>() + self.params * size_of::<CustomParam>()
    }

    fn declaration(self) -> String {
        let Self { sources, params } = self;
        format!(
            "struct CustomParam {{ double number; i64 whole; }};\n\
             struct Call {{\n    AssertSite asserts;\n    Tensor result;\n    // The elements, or the rows.\n    u64 count;\n    \
             Tensor sources[{sources}];\n    CustomParam params[{params}];\n}};\n\
             static_assert(sizeof(Call) == {}, \"as in Rust\");\n",
            self.bytes()
        )
    }
}

/// A parameter as a kernel is told it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct CustomParam {
    number: f64,
    whole: i64,
}

impl From<Param> for CustomParam {
    fn from(param: Param) -> Self {
        match param {
            Param::Int(whole) => Self { number: whole as f64, whole },
            Param::Float(number) => Self { number: number.into(), whole: number as i64 },
        }
    }
}

/// Returns the texts of two kernels, for the tests of the compiler.
#[cfg(test)]
pub(crate) fn texts_for_tests() -> [String; 2] {
    let op = CustomOp::elementwise("TEST").with_params(&["left", "not a name", "right"]);
    let elements = "__device__ void compute(const Call &call, u64 i) { write(call, i, -read(call, 1, i)); }";
    let rows = "__device__ void compute(const Call &call, u64 row) {
        if (threadIdx.x == 0) report(call.asserts, call.params[param::right].whole + (i64)row);
    }";
    let kernel = |source: &str, split| CudaKernel::new(&op, source, split);
    let call = |sources, params| CallShape { sources, params };
    [kernel(elements, WorkSplit::Elements).text(call(2, 1)), kernel(rows, WorkSplit::Rows).text(call(1, 3))]
}
