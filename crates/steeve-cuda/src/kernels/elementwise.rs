//! One element of the result from one of each source: which function goes with which operation, and the way over them.

use steeve_device::Shape;
use steeve_graph::{DataType, Gated, Glu, SwigluOai, TensorId, Unary};

use super::demand;
use crate::command_list::{CommandList, NO_KERNEL, NodeCall, floats};
use crate::cuda_c::{DevicePointer, cuda_enum};
use crate::data_types::number;
use crate::kernel_list::{self as kernel, Kernel};
use crate::operand::{Operand, signed, unsigned};
use crate::params::{AddIdParams, MapParams};

cuda_enum! {
    /// What is made of an element of each source.
    Function {
        // Of one source. They have the names of `Unary`.
        Abs, Sgn, Neg, Step, Tanh, Elu, Relu, Sigmoid, Gelu, GeluQuick, Silu, Hardswish, Hardsigmoid, Exp, Expm1, Softplus,
        GeluErf, Xielu, Floor, Ceil, Round, Trunc,
        Sqr, Sqrt, Log, Scale, Clamp, LeakyRelu, Fill,
        // Of two.
        Add, Sub, Mul, Div, SiluBack,
        // Of two, and they have the names of `Glu`.
        Reglu, Geglu, Swiglu, SwigluOai, GegluErf, GegluQuick,
    }
}

/// The function of the same name, if there is one.
macro_rules! of_same_name {
    ($kind:expr, $from:ident { $($variant:ident)* }) => {
        match $kind {
            $($from::$variant => Ok(Function::$variant),)*
            _ => Err(NO_KERNEL.into()),
        }
    };
}

impl Function {
    pub(crate) fn unary(kind: Unary) -> Result<Self, String> {
        of_same_name!(kind, Unary {
            Abs Sgn Neg Step Tanh Elu Relu Sigmoid Gelu GeluQuick Silu Hardswish Hardsigmoid Exp Expm1 Softplus GeluErf
            Xielu Floor Ceil Round Trunc
        })
    }

    fn glu(kind: Glu) -> Result<Self, String> {
        of_same_name!(kind, Glu { Reglu Geglu Swiglu SwigluOai GegluErf GegluQuick })
    }

    /// Returns whether there is one of whole numbers.
    fn has_ints(self) -> bool {
        use Function::{Abs, Add, Div, Mul, Neg, Relu, Sgn, Sqr, Step, Sub};
        matches!(self, Abs | Sgn | Neg | Step | Relu | Sqr | Add | Sub | Mul | Div)
    }
}

/// `a + b` and the like, where `b` may be repeated in any dimension.
pub(crate) fn binary(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    function: Function,
    a: TensorId,
    b: TensorId,
) -> Result<(), String> {
    let [a, b] = node.operands([a, b])?;
    of_two(node, commands, function, [a, b], [0.0; 4])
}

/// The gradient of silu.
pub(crate) fn silu_back(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    gradient: TensorId,
    a: TensorId,
) -> Result<(), String> {
    let both = node.operands([gradient, a])?;
    of_two(node, commands, Function::SiluBack, both, [0.0; 4])
}

/// A function of each element.
pub(crate) fn unary(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    function: Function,
    a: TensorId,
    numbers: [f32; 4],
) -> Result<(), String> {
    let a = node.operand(a)?;
    if node.result.shape.dtype == DataType::I32 {
        demand(function.has_ints() && a.shape.dtype == DataType::I32, "data type: expected f32, f16 or bf16")?;
    } else {
        floats([node.result, a])?;
    }
    ElementwiseLoop::elements([Some(node.result), Some(a), None]).launch(commands, function, numbers)
}

/// The trainable activation.
pub(crate) fn xielu(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    [negative, positive, beta, epsilon]: [f32; 4],
) -> Result<(), String> {
    let softplus = |x: f32| if x > 20.0 { x } else { (1.0 + x.exp()).ln() };
    let numbers = [beta + softplus(negative), softplus(positive), beta, epsilon];
    unary(node, commands, Function::unary(Unary::Xielu)?, a, numbers)
}

/// Writes one number everywhere.
pub(crate) fn fill(node: &NodeCall<'_>, commands: &mut CommandList, value: f32) -> Result<(), String> {
    let dtype = node.result.shape.dtype;
    demand(dtype.is_float() || dtype == DataType::I32, "data type: expected f32, f16, bf16 or i32")?;
    ElementwiseLoop::elements([Some(node.result), None, None]).launch(commands, Function::Fill, [value, 0.0, 0.0, 0.0])
}

/// A gated linear unit: of two operands, or of the halves of the rows of one.
pub(crate) fn glu(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    kind: Glu,
    gated: Gated,
    SwigluOai { alpha, limit }: SwigluOai,
) -> Result<(), String> {
    let numbers = if kind == Glu::SwigluOai { [alpha, limit, 0.0, 0.0] } else { [0.0; 4] };
    let function = Function::glu(kind)?;
    let (a, is_swapped) = match gated {
        Gated::Split { a, b } => return of_two(node, commands, function, node.operands([a, b])?, numbers),
        Gated::Halves { a } => (node.operand(a)?, false),
        Gated::SwappedHalves { a } => (node.operand(a)?, true),
    };
    let result = node.result;
    floats([a, result])?;
    let low = Operand { shape: Shape { ne: result.shape.ne, ..a.shape }, ..a };
    let high = Operand { address: a.at(result.shape.ne[0] * a.shape.nb[0]), ..low };
    let [x, y] = if is_swapped { [high, low] } else { [low, high] };
    ElementwiseLoop::elements([Some(result), Some(x), Some(y)]).launch(commands, function, numbers)
}

fn of_two(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    function: Function,
    [a, b]: [Operand; 2],
    numbers: [f32; 4],
) -> Result<(), String> {
    let ints = [node.result, a, b].iter().filter(|it| it.shape.dtype == DataType::I32).count();
    if ints == 3 {
        demand(function.has_ints(), "data type: expected f32, f16 or bf16")?;
    } else {
        floats([node.result, a, b])?;
    }
    let mut walk = ElementwiseLoop::new([Some(node.result), Some(a), Some(b)]);
    for dim in 0..4 {
        let steps = [node.result, a, b].map(|operand| operand.shape.nb[dim]);
        walk.push_repeated(node.result.shape.ne[dim], steps, b.shape.ne[dim]);
    }
    walk.launch(commands, function, numbers)
}

/// Adds to each row of `a` `[n, used, token]` the row of `b` `[n, expert]` that `ids` `[used, token]` names.
pub(crate) fn add_id(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    a: TensorId,
    b: TensorId,
    ids: TensorId,
) -> Result<(), String> {
    let [a, b, ids] = node.operands([a, b, ids])?;
    floats([node.result, a, b])?;
    demand(ids.shape.dtype == DataType::I32, "ids: expected i32")?;
    let threads = node.result.shape.ne[0].next_multiple_of(32).min(256) as u32;
    let params = AddIdParams { result: node.result.into(), a: a.into(), b: b.into(), ids: ids.into() };
    commands.launch(kernel::add_id, [node.result.shape.rows(), 1, 1], threads, params)
}

/// The way over the elements of a result and two sources, any of which may be missing.
///
/// Dimensions without gaps between them become one, and those of one element none. A dimension in which an operand is
/// repeated has no step in it.
#[derive(Debug)]
struct ElementwiseLoop {
    operands: [Option<Operand>; 3],
    dims: usize,
    ne: [usize; 8],
    steps: [[usize; 3]; 8],
}

impl ElementwiseLoop {
    fn new(operands: [Option<Operand>; 3]) -> Self {
        Self { operands, dims: 0, ne: [1; 8], steps: [[0; 3]; 8] }
    }

    /// All elements of operands of one shape.
    fn elements(operands: [Option<Operand>; 3]) -> Self {
        let mut walk = Self::new(operands);
        let ne = operands[0].map_or([1; 4], |result| result.shape.ne);
        for (dim, n) in ne.into_iter().enumerate() {
            walk.push(n, operands.map(|operand| operand.map_or(0, |it| it.shape.nb[dim])));
        }
        walk
    }

    /// Adds `n` steps outside of what there is so far.
    fn push(&mut self, n: usize, steps: [usize; 3]) {
        if n == 1 {
            return;
        }
        if let Some(last) = self.dims.checked_sub(1) {
            let ends = self.steps[last].map(|step| step.checked_mul(self.ne[last]));
            if ends == steps.map(Some) {
                self.ne[last] *= n;
                return;
            }
        }
        (self.ne[self.dims], self.steps[self.dims]) = (n, steps);
        self.dims += 1;
    }

    /// Adds `n` steps outside of what there is so far, where the last operand is repeated every `part` steps.
    fn push_repeated(&mut self, n: usize, steps: [usize; 3], part: usize) {
        if part == 1 {
            return self.push(n, [steps[0], steps[1], 0]);
        }
        self.push(part, steps);
        let outer = steps.map(|step| step.wrapping_mul(part));
        self.push(n / part, [outer[0], outer[1], 0]);
    }

    /// Returns whether an operand has four elements side by side wherever four are taken, or one number for all of them.
    fn goes_in_fours(&self, operand: usize) -> bool {
        let Some(it) = self.operands[operand] else { return true };
        let (size, steps) = (it.shape.size(), self.steps[..self.dims].iter().map(|steps| steps[operand]));
        let mut steps = steps;
        match steps.next() {
            Some(0) => operand > 0,
            Some(step) if step == size => it.starts_at(4 * size) && steps.all(|step| step.is_multiple_of(4 * size)),
            _ => false,
        }
    }

    fn launch(&self, commands: &mut CommandList, function: Function, numbers: [f32; 4]) -> Result<(), String> {
        let (mut params, count) = (self.params(function, numbers), self.count());
        if self.operands[0].is_some_and(|result| result.shape.dtype == DataType::I32) {
            return launch_map(commands, kernel::map_int, count, params);
        }
        let in_fours = self.dims > 0 && self.ne[0].is_multiple_of(4) && (0..3).all(|index| self.goes_in_fours(index));
        if !in_fours {
            return launch_map(commands, kernel::map_1, count.div_ceil(2), params);
        }
        params.ne[0] /= 4;
        params.count /= 4;
        for index in 0..3 {
            if params.nb[index][0] == 0 {
                params.splat |= 1 << index;
            }
            params.nb[index][0] *= 4;
        }
        let is_f32 = self.operands.iter().flatten().all(|operand| operand.shape.dtype == DataType::F32);
        launch_map(commands, if is_f32 { kernel::map_4_f32 } else { kernel::map_4 }, (count / 4).div_ceil(2), params)
    }

    /// Returns the number of elements.
    fn count(&self) -> usize {
        self.ne[..self.dims].iter().product()
    }

    /// Returns the parameters for one element at a time.
    fn params(&self, function: Function, numbers: [f32; 4]) -> MapParams {
        let address =
            |operand: Option<Operand>| operand.map_or(DevicePointer::NULL, |it| DevicePointer::new(it.address));
        // An operand that is missing has no steps.
        let step = |index: usize, dim: usize| match self.operands[index] {
            Some(_) if dim < self.dims => signed(self.steps[dim][index]),
            _ => 0,
        };
        MapParams {
            data: self.operands.map(address),
            nb: std::array::from_fn(|index| std::array::from_fn(|dim| step(index, dim))),
            ne: self.ne.map(unsigned),
            count: unsigned(self.count()),
            dims: self.dims.max(1) as i32,
            function,
            dtypes: self.operands.map(|operand| operand.map_or(0, |it| number(it.shape.dtype))),
            splat: 0,
            numbers,
        }
    }
}

/// Launches an elementwise kernel with so many threads.
fn launch_map(
    commands: &mut CommandList,
    kernel: Kernel<MapParams>,
    threads: usize,
    params: MapParams,
) -> Result<(), String> {
    commands.launch_each(kernel, threads, params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unary_function_and_gated_unit_has_a_function_of_its_name() {
        let name = |function: Result<Function, String>| format!("{:?}", function.unwrap());
        assert!(Unary::ALL.iter().all(|kind| name(Function::unary(*kind)) == format!("{kind:?}")));
        assert!(Glu::ALL.iter().all(|kind| name(Function::glu(*kind)) == format!("{kind:?}")));
    }

    #[test]
    fn dimensions_without_gaps_are_one() {
        let mut walk = ElementwiseLoop::new([None; 3]);
        walk.push(1, [4, 4, 4]);
        walk.push(3, [4, 8, 4]);
        walk.push(5, [12, 24, 12]);
        walk.push_repeated(2, [60, 120, 60], 1);
        assert_eq!((walk.dims, walk.ne[0], walk.steps[1]), (2, 15, [60, 120, 0]));
    }
}
