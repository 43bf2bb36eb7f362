//! One element of the result from one element of each source: which function goes with which operation.

use steeve_graph::{DataType, Glu, Op, Unary};

use super::functions as f;
use super::map::{Halves, constant, floats, of_halves, of_one, of_one_int, of_two, of_two_ints};
use super::walk::Walk;
use crate::kernel::{Ask, Kernel, Operands, Rows, Scratch};
use crate::number::{load_row, store_row};
use crate::wide::wide;

const NO_KERNEL: &str = "there is no kernel for it";

/// `a + b` and the like, where `b` may be repeated in any dimension.
pub(crate) fn binary(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    if ask.result.dtype == DataType::I32 {
        return match ask.op {
            Op::Add | Op::Add1 => of_two_ints(ask, |a, b| Ok(a.wrapping_add(b))),
            Op::Sub => of_two_ints(ask, |a, b| Ok(a.wrapping_sub(b))),
            Op::Mul => of_two_ints(ask, |a, b| Ok(a.wrapping_mul(b))),
            Op::Div => of_two_ints(ask, |a, b| match b {
                0 => Err(format!("{a} is divided by zero")),
                b => Ok(a.wrapping_div(b)),
            }),
            _ => Err("only f32, f16 and bf16".into()),
        };
    }
    match ask.op {
        Op::Add | Op::Add1 => of_two(ask, |a, b| a + b),
        Op::Sub => of_two(ask, |a, b| a - b),
        Op::Mul => of_two(ask, |a, b| a * b),
        Op::Div => of_two(ask, |a, b| a / b),
        _ => Err(NO_KERNEL.into()),
    }
}

/// Adds one number to all elements.
pub(crate) fn add1(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    match ask.source(1)?.elements() {
        1 => binary(ask),
        elements => Err(format!("the second source must be one number, and has {elements}")),
    }
}

/// The gradient of silu.
pub(crate) fn silu_back(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    ask.like_result(1)?;
    of_two(ask, f::silu_back)
}

/// A function of each element.
pub(crate) fn unary(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    if ask.result.dtype == DataType::I32 {
        return unary_int(ask);
    }
    match ask.op {
        Op::Sqr => of_one(ask, |x| x * x),
        Op::Sqrt => of_one(ask, f32::sqrt),
        Op::Log => of_one(ask, f32::ln),
        Op::Scale => match (ask.float(0)?, ask.float(1).unwrap_or(0.0)) {
            (factor, 0.0) => of_one(ask, move |x| x * factor),
            (factor, bias) => of_one(ask, move |x| x * factor + bias),
        },
        Op::Clamp => {
            let (min, max) = (ask.float(0)?, ask.float(1)?);
            of_one(ask, move |x| f::clamp(x, min, max))
        }
        Op::Unary(kind) => unary_kind(ask, kind),
        _ => Err(NO_KERNEL.into()),
    }
}

fn unary_kind(ask: &Ask<'_>, kind: Unary) -> Result<Box<dyn Kernel>, String> {
    match kind {
        Unary::Abs => of_one(ask, f32::abs),
        Unary::Sgn => of_one(ask, f::sgn),
        Unary::Neg => of_one(ask, |x| -x),
        Unary::Step => of_one(ask, f::step),
        Unary::Tanh => of_one(ask, f::tanh),
        Unary::Elu => of_one(ask, f::elu),
        Unary::Relu => of_one(ask, f::relu),
        Unary::Sigmoid => of_one(ask, f::sigmoid),
        Unary::Gelu => of_one(ask, f::gelu),
        Unary::GeluQuick => of_one(ask, f::gelu_quick),
        Unary::GeluErf => of_one(ask, f::gelu_erf),
        Unary::Silu => of_one(ask, f::silu),
        Unary::Hardswish => of_one(ask, |x| x * f::hardsigmoid(x)),
        Unary::Hardsigmoid => of_one(ask, f::hardsigmoid),
        Unary::Exp => of_one(ask, f::exp),
        Unary::Expm1 => of_one(ask, f32::exp_m1),
        Unary::Softplus => of_one(ask, f::softplus),
        Unary::Floor => of_one(ask, f32::floor),
        Unary::Ceil => of_one(ask, f32::ceil),
        Unary::Round => of_one(ask, f32::round),
        Unary::Trunc => of_one(ask, f32::trunc),
        Unary::Xielu => {
            let xielu = f::Xielu::new([ask.float(0)?, ask.float(1)?, ask.float(2)?, ask.float(3)?]);
            of_one(ask, move |x| xielu.at(x))
        }
        _ => Err(NO_KERNEL.into()),
    }
}

/// What makes sense for whole numbers.
fn unary_int(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    match ask.op {
        Op::Sqr => of_one_int(ask, |x| x.wrapping_mul(x)),
        Op::Unary(Unary::Abs) => of_one_int(ask, i32::wrapping_abs),
        Op::Unary(Unary::Sgn) => of_one_int(ask, i32::signum),
        Op::Unary(Unary::Neg) => of_one_int(ask, i32::wrapping_neg),
        Op::Unary(Unary::Step) => of_one_int(ask, |x| i32::from(x > 0)),
        Op::Unary(Unary::Relu) => of_one_int(ask, |x| x.max(0)),
        _ => Err("only f32, f16 and bf16".into()),
    }
}

/// The same number everywhere; a source, if there is one, only gives the shape.
pub(crate) fn fill(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    constant(ask, ask.float(0)?)
}

/// A gated linear unit: of two sources, or of the halves of the rows of one. It may have ggml's parameters behind the
/// kind: 1 if the halves are swapped, and the two numbers of swiglu_oai, which are those of gpt-oss unless given.
pub(crate) fn glu(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    let Op::Glu(kind) = ask.op else { return Err(NO_KERNEL.into()) };
    match kind {
        // A shut gate lets nothing through, not even what is infinite.
        Glu::Reglu => gate(ask, |x, y| if x > 0.0 { x * y } else { 0.0 }),
        Glu::Geglu => gate(ask, |x, y| f::gelu(x) * y),
        Glu::Swiglu => gate(ask, |x, y| f::silu(x) * y),
        Glu::GegluErf => gate(ask, |x, y| f::gelu_erf(x) * y),
        Glu::GegluQuick => gate(ask, |x, y| f::gelu_quick(x) * y),
        Glu::SwigluOai => {
            let (alpha, limit) = (ask.float(1).unwrap_or(1.702), ask.float(2).unwrap_or(7.0));
            gate(ask, move |x, y| f::swiglu_oai(x, y, alpha, limit))
        }
        _ => Err(NO_KERNEL.into()),
    }
}

fn gate(ask: &Ask<'_>, function: impl super::map::Two + 'static) -> Result<Box<dyn Kernel>, String> {
    if ask.optional(1).is_some() {
        ask.like_result(1)?;
        return of_two(ask, function);
    }
    let halves = if ask.int(0).unwrap_or(0) == 0 { Halves::InOrder } else { Halves::Swapped };
    of_halves(ask, halves, function)
}

/// Adds to each row of `a` `[n, used, token]` the row of `b` `[n, expert]` that `ids` `[used, token]` names.
pub(crate) fn add_id(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    let (a, b, ids) = (ask.like_result(0)?, ask.source(1)?, ask.source(2)?);
    floats([ask.result, a, b])?;
    if ids.dtype != DataType::I32 {
        return Err("the ids must be i32".into());
    }
    if b.ne[0] != a.ne[0] {
        return Err("both must have rows of one length".into());
    }
    if ids.ne[..2] != a.ne[1..3] {
        return Err("there must be one id for each row".into());
    }
    let (r, mut walk) = (ask.result, Walk::new());
    walk.push(r.ne[1], [r.nb[1], a.nb[1], ids.nb[0]]);
    walk.push(r.ne[2], [r.nb[2], a.nb[2], ids.nb[1]]);
    walk.push(r.ne[3], [r.nb[3], a.nb[3], 0]);
    Ok(Box::new(AddId { walk, rows: Rows::of(&r) }))
}

#[derive(Debug)]
struct AddId {
    /// From row to row, and from id to id.
    walk: Walk<3>,
    rows: Rows,
}

impl Kernel for AddId {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut Scratch) -> Result<(), String> {
        let (result, a, b, ids) = (operands.result, operands.source(0), operands.source(1), operands.source(2));
        let [x, y] = scratch.rows([a.shape.ne[0]; 2]);
        let (rows, count) = (self.rows.unit(unit), b.shape.ne[1]);
        for [r, a_, id] in self.walk.from(rows.start).take(rows.len()) {
            // SAFETY: an id, and rows of the operands; both are copied before the result's is written.
            unsafe {
                let id = ids.read::<i32>(id);
                let Some(row) = usize::try_from(id).ok().filter(|&row| row < count) else {
                    return Err(format!("id {id} names none of the {count} rows"));
                };
                load_row(a, a_, x);
                load_row(b, row * b.shape.nb[1], y);
                add_row(x, y);
                store_row(result, r, x);
            }
        }
        Ok(())
    }
}

wide! {
    fn add_row(row: &mut [f32], other: &[f32]) {
        row.iter_mut().zip(other).for_each(|(x, y)| *x += y);
    }
}
