//! One element of the result from one of each source: which function goes with which operation, and the way over them.

use steeve_graph::{DataType, Glu, Op, Unary};

use super::{demand, divides};
use crate::act::Kernel;
use crate::recipe::{Ask, Recipe, args, floats};
use crate::shape::{Map, Operand, Shape, is_float, kind};

const NO_KERNEL: &str = "there is no kernel for it";

// As `enum Function` in `cuda/elementwise.cu`.
const SQR: i32 = 22;
const SCALE: i32 = 25;
const FILL: i32 = 27;
const ADD: i32 = 28;
const SILU_BACK: i32 = 32;

/// `a + b` and the like, where `b` may be repeated in any dimension.
pub(crate) fn binary(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let function = match ask.op {
        Op::Add | Op::Add1 => ADD,
        Op::Sub => ADD + 1,
        Op::Mul => ADD + 2,
        Op::Div => ADD + 3,
        _ => return Err(NO_KERNEL.into()),
    };
    of_two(ask, recipe, function, [0.0; 4])
}

/// Adds one number to all elements.
pub(crate) fn add1(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    demand(ask.source(1)?.shape.elements() == 1, "the second source must be one number")?;
    binary(ask, recipe)
}

/// The gradient of silu.
pub(crate) fn silu_back(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    floats([ask.like_result(1)?])?;
    of_two(ask, recipe, SILU_BACK, [0.0; 4])
}

/// A function of each element.
pub(crate) fn unary(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let mut numbers = [0.0; 4];
    let function = match ask.op {
        Op::Sqr => SQR,
        Op::Sqrt => SQR + 1,
        Op::Log => SQR + 2,
        Op::Scale => {
            (numbers[0], numbers[1]) = (ask.float(0)?, ask.float(1).unwrap_or(0.0));
            SCALE
        }
        Op::Clamp => {
            (numbers[0], numbers[1]) = (ask.float(0)?, ask.float(1)?);
            SCALE + 1
        }
        Op::Unary(kind) => {
            if kind == Unary::Xielu {
                let softplus = |x: f32| if x > 20.0 { x } else { (1.0 + x.exp()).ln() };
                let (beta, epsilon) = (ask.float(2)?, ask.float(3)?);
                numbers = [beta + softplus(ask.float(0)?), softplus(ask.float(1)?), beta, epsilon];
            }
            // Both lists have ggml's order.
            let index = Unary::ALL.iter().position(|known| *known == kind).ok_or(NO_KERNEL)?;
            index as i32
        }
        _ => return Err(NO_KERNEL.into()),
    };
    let a = ask.like_result(0)?;
    if ask.result.shape.dtype == DataType::I32 {
        let known =
            matches!(ask.op, Op::Sqr | Op::Unary(Unary::Abs | Unary::Sgn | Unary::Neg | Unary::Step | Unary::Relu));
        demand(known && a.shape.dtype == DataType::I32, "only f32, f16 and bf16")?;
    } else {
        floats([ask.result, a])?;
    }
    Walk::elements([Some(ask.result), Some(a), None]).launch(recipe, function, numbers)
}

/// The same number everywhere; a source, if there is one, only gives the shape.
pub(crate) fn fill(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let dtype = ask.result.shape.dtype;
    demand(is_float(dtype) || dtype == DataType::I32, "only f32, f16, bf16 and i32")?;
    Walk::elements([Some(ask.result), None, None]).launch(recipe, FILL, [ask.float(0)?, 0.0, 0.0, 0.0])
}

/// A gated linear unit: of two sources, or of the halves of the rows of one.
pub(crate) fn glu(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let Op::Glu(kind) = ask.op else { return Err(NO_KERNEL.into()) };
    let mut numbers = [0.0; 4];
    if kind == Glu::SwigluOai {
        (numbers[0], numbers[1]) = (ask.float(1).unwrap_or(1.702), ask.float(2).unwrap_or(7.0));
    }
    let index = Glu::ALL.iter().position(|known| *known == kind).ok_or(NO_KERNEL)?;
    let function = SILU_BACK + 1 + index as i32;
    if ask.optional(1).is_some() {
        floats([ask.like_result(1)?])?;
        return of_two(ask, recipe, function, numbers);
    }
    let (a, result) = (ask.source(0)?, ask.result);
    floats([a, result])?;
    let [n, rest @ ..] = result.shape.ne;
    let halves = Some(a.shape.ne[0]) == n.checked_mul(2) && a.shape.ne[1..] == rest;
    demand(halves, "the rows of the result must be half as long as those of the source")?;
    let low = Operand { shape: Shape { ne: result.shape.ne, ..a.shape }, ..a };
    let high = Operand { address: a.address + n * a.shape.nb[0], ..low };
    let [x, y] = if ask.int(0).unwrap_or(0) == 0 { [low, high] } else { [high, low] };
    Walk::elements([Some(result), Some(x), Some(y)]).launch(recipe, function, numbers)
}

fn of_two(ask: &Ask<'_>, recipe: &mut Recipe, function: i32, numbers: [f32; 4]) -> Result<(), String> {
    let (a, b) = (ask.like_result(0)?, ask.source(1)?);
    let ints = [ask.result, a, b].iter().filter(|it| it.shape.dtype == DataType::I32).count();
    if ints == 3 {
        demand((ADD..ADD + 4).contains(&function), "only f32, f16 and bf16")?;
    } else {
        floats([ask.result, a, b])?;
    }
    let mut walk = Walk::new([Some(ask.result), Some(a), Some(b)]);
    for dim in 0..4 {
        let (n, part) = (ask.result.shape.ne[dim], b.shape.ne[dim]);
        demand(part > 0 && divides(part, n), "the second source does not fill the result when it is repeated")?;
        let steps = [ask.result, a, b].map(|operand| operand.shape.nb[dim]);
        walk.push_repeated(n, steps, part);
    }
    walk.launch(recipe, function, numbers)
}

/// Adds to each row of `a` `[n, used, token]` the row of `b` `[n, expert]` that `ids` `[used, token]` names.
pub(crate) fn add_id(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let (a, b, ids) = (ask.like_result(0)?, ask.source(1)?, ask.source(2)?);
    floats([ask.result, a, b])?;
    demand(ids.shape.dtype == DataType::I32, "the ids must be i32")?;
    demand(b.shape.ne[0] == a.shape.ne[0], "both must have rows of one length")?;
    demand(ids.shape.ne[..2] == a.shape.ne[1..3], "there must be one id for each row")?;
    let threads = ask.result.shape.ne[0].next_multiple_of(32).min(256) as u32;
    recipe.launch(Kernel::AddId, [ask.result.shape.rows(), 1, 1], threads, args(ask.result, ask.sources))
}

/// The way over the elements of a result and two sources, any of which may be missing.
///
/// Dimensions without gaps between them become one, and those of one element none. A dimension in which an operand is
/// repeated has no step in it.
#[derive(Debug)]
struct Walk {
    operands: [Option<Operand>; 3],
    dims: usize,
    ne: [u64; 8],
    steps: [[u64; 3]; 8],
}

impl Walk {
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

    /// `n` steps outside of what there is so far.
    fn push(&mut self, n: u64, steps: [u64; 3]) {
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

    /// The same, and the last operand is repeated every `part` steps.
    fn push_repeated(&mut self, n: u64, steps: [u64; 3], part: u64) {
        if part == 1 {
            return self.push(n, [steps[0], steps[1], 0]);
        }
        self.push(part, steps);
        let outer = steps.map(|step| step.wrapping_mul(part));
        self.push(n / part, [outer[0], outer[1], 0]);
    }

    /// Whether an operand has four elements side by side wherever four are taken, or one number for all of them.
    fn goes_in_fours(&self, operand: usize) -> bool {
        let Some(it) = self.operands[operand] else { return true };
        let (size, steps) = (it.shape.size(), self.steps[..self.dims].iter().map(|steps| steps[operand]));
        let mut steps = steps;
        match steps.next() {
            Some(0) => operand > 0,
            Some(step) if step == size => {
                it.address.is_multiple_of(4 * size) && steps.all(|step| step.is_multiple_of(4 * size))
            }
            _ => false,
        }
    }

    fn launch(&self, recipe: &mut Recipe, function: i32, numbers: [f32; 4]) -> Result<(), String> {
        let mut map = Map { op: function, f: numbers, dims: self.dims.max(1) as i32, ne: self.ne, ..Map::default() };
        for (index, operand) in self.operands.iter().enumerate() {
            let Some(operand) = operand else { continue };
            (map.p[index], map.kind[index]) = (operand.address, kind(operand.shape.dtype));
            for dim in 0..self.dims {
                map.nb[index][dim] = self.steps[dim][index].cast_signed();
            }
        }
        map.n = self.ne[..self.dims].iter().product();
        let is_int = self.operands[0].is_some_and(|result| result.shape.dtype == DataType::I32);
        if is_int {
            return recipe.launch_map(Kernel::MapInt, 1, map);
        }
        let in_fours = self.dims > 0 && self.ne[0].is_multiple_of(4) && (0..3).all(|index| self.goes_in_fours(index));
        if !in_fours {
            return recipe.launch_map(Kernel::Map1, 2, map);
        }
        map.ne[0] /= 4;
        map.n /= 4;
        for index in 0..3 {
            if map.nb[index][0] == 0 {
                map.splat |= 1 << index;
            }
            map.nb[index][0] *= 4;
        }
        let is_f32 = self.operands.iter().flatten().all(|operand| operand.shape.dtype == DataType::F32);
        recipe.launch_map(if is_f32 { Kernel::Map4F32 } else { Kernel::Map4 }, 2, map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_numbers_that_kernels_know_them_by() {
        assert_eq!((Unary::ALL.len(), SQR as usize), (22, 22));
        assert_eq!(Unary::ALL.iter().position(|kind| *kind == Unary::GeluErf), Some(16));
        assert_eq!(Glu::ALL[2], Glu::Swiglu);
    }

    #[test]
    fn dimensions_without_gaps_are_one() {
        let mut walk = Walk::new([None; 3]);
        walk.push(1, [4, 4, 4]);
        walk.push(3, [4, 8, 4]);
        walk.push(5, [12, 24, 12]);
        walk.push_repeated(2, [60, 120, 60], 1);
        assert_eq!((walk.dims, walk.ne[0], walk.steps[1]), (2, 15, [60, 120, 0]));
    }
}
