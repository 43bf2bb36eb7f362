//! Operations on exact numbers: their operands and their results.

use steeve_graph::{DataType, Layout, Op, Param};

use super::matrix::RowRounding;
use super::{attention, elementwise, image, matrix, movement, reduce};

/// The elements of a tensor in order, whatever its strides.
#[derive(Clone, Debug)]
pub struct Array {
    pub dtype: DataType,
    pub ne: [usize; 4],
    pub values: Vec<f64>,
    /// How large the numbers are that make each element.
    pub sizes: Vec<f64>,
}

impl Array {
    pub fn at(&self, [i0, i1, i2, i3]: [usize; 4]) -> f64 {
        let [n0, n1, n2, _] = self.ne;
        self.values[((i3 * n2 + i2) * n1 + i1) * n0 + i0]
    }

    /// Returns the element at this position when the array is repeated.
    pub fn wrapped(&self, index: [usize; 4]) -> f64 {
        self.at(std::array::from_fn(|dim| index[dim] % self.ne[dim]))
    }

    pub fn row(&self, [i1, i2, i3]: [usize; 3]) -> &[f64] {
        let [n0, n1, n2, _] = self.ne;
        &self.values[((i3 * n2 + i2) * n1 + i1) * n0..][..n0]
    }

    /// The sizes of a row.
    pub fn row_sizes(&self, [i1, i2, i3]: [usize; 3]) -> &[f64] {
        let [n0, n1, n2, _] = self.ne;
        &self.sizes[((i3 * n2 + i2) * n1 + i1) * n0..][..n0]
    }

    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks(self.ne[0].max(1))
    }
}

/// A node with its sources.
#[derive(Debug)]
pub struct NodeCall<'a> {
    pub op: Op,
    pub params: &'a [Param],
    pub sources: Vec<Option<Array>>,
    pub result: Layout,
}

impl NodeCall<'_> {
    pub fn source(&self, slot: usize) -> &Array {
        self.maybe(slot).expect("the source is there")
    }

    pub fn maybe(&self, slot: usize) -> Option<&Array> {
        self.sources.get(slot).and_then(Option::as_ref)
    }

    pub fn float(&self, index: usize) -> f64 {
        self.params.get(index).map_or(0.0, |param| f64::from(param.float()))
    }

    pub fn int(&self, index: usize) -> i64 {
        self.params.get(index).and_then(|param| param.int()).unwrap_or(0)
    }

    pub fn count(&self, index: usize) -> usize {
        usize::try_from(self.int(index)).expect("a count")
    }

    /// The shape of the result.
    pub fn ne(&self) -> [usize; 4] {
        self.result.ne().map(|n| n as usize)
    }

    /// An element for each place of the result.
    pub fn each(&self, element: impl Fn([usize; 4]) -> BoundedValue) -> ExpectedValues {
        let mut exact = ExpectedValues::default();
        for index in indices(self.ne()) {
            exact.push(element(index));
        }
        exact
    }
}

/// Every place of a shape, in order.
pub(super) fn indices([n0, n1, n2, n3]: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..n3).flat_map(move |i3| {
        (0..n2).flat_map(move |i2| (0..n1).flat_map(move |i1| (0..n0).map(move |i0| [i0, i1, i2, i3])))
    })
}

/// A value, and how far a kernel that computes in f32 may be from it before it rounds to the type of the result.
#[derive(Clone, Copy, Debug)]
pub struct BoundedValue {
    pub value: f64,
    pub slack: f64,
}

impl BoundedValue {
    /// A value that is copied, or made by one operation that the processor rounds correctly.
    pub fn exact(value: f64) -> Self {
        Self { value, slack: 0.0 }
    }

    pub fn near(value: f64, slack: f64) -> Self {
        Self { value, slack }
    }
}

/// The exact values of a result.
#[derive(Clone, Debug, Default)]
pub struct ExpectedValues {
    pub values: Vec<f64>,
    pub slack: Vec<f64>,
}

impl ExpectedValues {
    pub fn push(&mut self, BoundedValue { value, slack }: BoundedValue) {
        self.values.push(value);
        self.slack.push(slack);
    }
}

/// Evaluates a node, before its result is rounded to its type.
///
/// # Panics
///
/// For operations that have no meaning here.
pub(super) fn evaluate(call: &NodeCall<'_>) -> ExpectedValues {
    match call.op {
        Op::Add | Op::Sub | Op::Mul | Op::Div => elementwise::binary(call),
        Op::Add1 => elementwise::add_one(call),
        Op::AddId => elementwise::add_id(call),
        Op::Sqr | Op::Sqrt | Op::Log | Op::Scale | Op::Clamp | Op::LeakyRelu | Op::Unary(_) => elementwise::unary(call),
        Op::Fill => elementwise::fill(call),
        Op::SiluBack => elementwise::silu_back(call),
        Op::Glu(kind) => elementwise::glu(call, kind),
        Op::DiagMaskInf => elementwise::diag_mask(call, f64::NEG_INFINITY),
        Op::DiagMaskZero => elementwise::diag_mask(call, 0.0),
        Op::Sum => reduce::sum(call),
        Op::SumRows => reduce::sum_rows(call, 1.0),
        Op::Mean => reduce::sum_rows(call, call.source(0).ne[0] as f64),
        Op::Norm => reduce::norm(call),
        Op::RmsNorm => reduce::rms_norm(call),
        Op::RmsNormBack => reduce::rms_norm_back(call),
        Op::GroupNorm => reduce::group_norm(call),
        Op::L2Norm => reduce::l2_norm(call),
        Op::Argsort => reduce::argsort(call),
        Op::TopK => reduce::top_k(call),
        Op::MulMat => matrix::mul_mat(call, RowRounding::Rounded),
        Op::MulMatId => matrix::mul_mat_id(call, RowRounding::Rounded),
        Op::Dup | Op::Cont | Op::Cpy => movement::copy(call),
        Op::Repeat => movement::repeat(call),
        Op::Concat => movement::concat(call),
        Op::GetRows => movement::get_rows(call),
        Op::SoftMax => attention::soft_max(call),
        Op::SoftMaxBack => attention::soft_max_back(call),
        Op::Rope => attention::rope(call, 1.0),
        Op::RopeBack => attention::rope(call, -1.0),
        Op::FlashAttnExt => attention::flash(call),
        Op::Im2col => image::im2col(call),
        Op::Pool1d => image::pool_1d(call),
        Op::Pool2d => image::pool_2d(call),
        Op::Upscale => image::upscale(call),
        Op::Pad => image::pad(call),
        op => panic!("{op:?} has no meaning here"),
    }
}
