//! One element of the result from one element of each source: which function goes with which operation.

use steeve_graph::{DataType, Gated, Glu, SwigluOai, TensorId, Unary};

use super::functions as f;
use super::map::{GluHalves, floats, map_binary, map_binary_int, map_halves, map_unary, map_unary_int};
use super::strided_walk::StridedWalk;
use crate::float_rows::{load_row, store_row};
use crate::kernel::{Kernel, NO_KERNEL, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::multiversion::multiversion;

/// Defines the kernel for a function of two floats, or of two whole numbers, where `b` may be repeated in any
/// dimension.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, $function:expr, $ints:expr;)*) => {
        $($(#[$doc])* pub(crate) fn $name(node: &NodeCall<'_>, a: TensorId, b: TensorId) -> Result<Box<dyn Kernel>, String> {
            match node.result.dtype {
                DataType::I32 => map_binary_int(node, a, b, $ints),
                _ => map_binary(node, a, b, $function),
            }
        })*
    };
}

binary! {
    /// `a + b`.
    add, |a, b| a + b, |a, b| Ok(a.wrapping_add(b));
    /// `a - b`.
    sub, |a, b| a - b, |a, b| Ok(a.wrapping_sub(b));
    /// `a * b`.
    mul, |a, b| a * b, |a, b| Ok(a.wrapping_mul(b));
    /// `a / b`.
    div, |a, b| a / b, |a, b| match b {
        0 => Err(format!("division by zero: {a}")),
        b => Ok(a.wrapping_div(b)),
    };
}

/// Returns the kernel for the square.
pub(crate) fn sqr(node: &NodeCall<'_>, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    match node.result.dtype {
        DataType::I32 => map_unary_int(node, a, |x| x.wrapping_mul(x)),
        _ => map_unary(node, a, |x| x * x),
    }
}

/// Returns the kernel for `a * factor + bias`.
pub(crate) fn scale(node: &NodeCall<'_>, a: TensorId, factor: f32, bias: f32) -> Result<Box<dyn Kernel>, String> {
    match bias {
        0.0 => map_unary(node, a, move |x| x * factor),
        _ => map_unary(node, a, move |x| x * factor + bias),
    }
}

/// Returns the kernel for xielu, the trainable activation.
pub(crate) fn xielu(node: &NodeCall<'_>, a: TensorId, numbers: [f32; 4]) -> Result<Box<dyn Kernel>, String> {
    let xielu = f::Xielu::new(numbers);
    map_unary(node, a, move |x| xielu.at(x))
}

/// Returns the kernel for a function of each element.
pub(crate) fn unary(node: &NodeCall<'_>, kind: Unary, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    if node.result.dtype == DataType::I32 {
        return unary_int(node, kind, a);
    }
    match kind {
        Unary::Abs => map_unary(node, a, f32::abs),
        Unary::Sgn => map_unary(node, a, f::sgn),
        Unary::Neg => map_unary(node, a, |x| -x),
        Unary::Step => map_unary(node, a, f::step),
        Unary::Tanh => map_unary(node, a, f::tanh),
        Unary::Elu => map_unary(node, a, f::elu),
        Unary::Relu => map_unary(node, a, f::relu),
        Unary::Sigmoid => map_unary(node, a, f::sigmoid),
        Unary::Gelu => map_unary(node, a, f::gelu),
        Unary::GeluQuick => map_unary(node, a, f::gelu_quick),
        Unary::GeluErf => map_unary(node, a, f::gelu_erf),
        Unary::Silu => map_unary(node, a, f::silu),
        Unary::Hardswish => map_unary(node, a, |x| x * f::hardsigmoid(x)),
        Unary::Hardsigmoid => map_unary(node, a, f::hardsigmoid),
        Unary::Exp => map_unary(node, a, f::exp),
        Unary::Expm1 => map_unary(node, a, f32::exp_m1),
        Unary::Softplus => map_unary(node, a, f::softplus),
        Unary::Floor => map_unary(node, a, f32::floor),
        Unary::Ceil => map_unary(node, a, f32::ceil),
        Unary::Round => map_unary(node, a, f32::round),
        Unary::Trunc => map_unary(node, a, f32::trunc),
        _ => Err(NO_KERNEL.into()),
    }
}

/// Returns the kernel for a function of each whole number, where there is one.
fn unary_int(node: &NodeCall<'_>, kind: Unary, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    match kind {
        Unary::Abs => map_unary_int(node, a, i32::wrapping_abs),
        Unary::Sgn => map_unary_int(node, a, i32::signum),
        Unary::Neg => map_unary_int(node, a, i32::wrapping_neg),
        Unary::Step => map_unary_int(node, a, |x| i32::from(x > 0)),
        Unary::Relu => map_unary_int(node, a, |x| x.max(0)),
        _ => Err("data type: expected f32, f16 or bf16".into()),
    }
}

/// Returns the kernel for a gated linear unit: of two operands, or of the halves of the rows of one.
pub(crate) fn glu(
    node: &NodeCall<'_>,
    kind: Glu,
    gated: Gated,
    SwigluOai { alpha, limit }: SwigluOai,
) -> Result<Box<dyn Kernel>, String> {
    match kind {
        // A closed gate lets nothing through, not even infinity.
        Glu::Reglu => gate(node, gated, |x, y| if x > 0.0 { x * y } else { 0.0 }),
        Glu::Geglu => gate(node, gated, |x, y| f::gelu(x) * y),
        Glu::Swiglu => gate(node, gated, |x, y| f::silu(x) * y),
        Glu::GegluErf => gate(node, gated, |x, y| f::gelu_erf(x) * y),
        Glu::GegluQuick => gate(node, gated, |x, y| f::gelu_quick(x) * y),
        Glu::SwigluOai => gate(node, gated, move |x, y| f::swiglu_oai(x, y, alpha, limit)),
        _ => Err(NO_KERNEL.into()),
    }
}

fn gate(
    node: &NodeCall<'_>,
    gated: Gated,
    function: impl super::map::BinaryFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    match gated {
        Gated::Split { a, b } => map_binary(node, a, b, function),
        Gated::Halves { a } => map_halves(node, a, GluHalves::InOrder, function),
        Gated::SwappedHalves { a } => map_halves(node, a, GluHalves::Swapped, function),
    }
}

/// Returns the kernel that adds to each row of `a` `[n, used, token]` the row of `b` `[n, expert]` that `ids` `[used,
/// token]` selects.
pub(crate) fn add_id(node: &NodeCall<'_>, a: TensorId, b: TensorId, ids: TensorId) -> Result<Box<dyn Kernel>, String> {
    let [a, b, ids] = node.shapes([a, b, ids])?;
    floats([node.result, a, b])?;
    if ids.dtype != DataType::I32 {
        return Err("ids: expected i32".into());
    }
    let (r, mut walk) = (node.result, StridedWalk::new());
    walk.push(r.ne[1], [r.nb[1], a.nb[1], ids.nb[0]]);
    walk.push(r.ne[2], [r.nb[2], a.nb[2], ids.nb[1]]);
    walk.push(r.ne[3], [r.nb[3], a.nb[3], 0]);
    Ok(Box::new(AddId { walk, rows: RowUnits::of(&r) }))
}

#[derive(Debug)]
struct AddId {
    /// From row to row, and from id to id.
    walk: StridedWalk<3>,
    rows: RowUnits,
}

impl Kernel for AddId {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, b, ids) = (operands.result, operands.source(0), operands.source(1), operands.source(2));
        let [x, y] = scratch.rows([a.shape.ne[0]; 2]);
        let (rows, count) = (self.rows.unit(unit), b.shape.ne[1]);
        for [r, a_, id] in self.walk.from(rows.start).take(rows.len()) {
            // SAFETY: an id, and rows of the operands; both are copied before the result's is written.
            unsafe {
                let id = ids.read::<i32>(id);
                let Some(row) = usize::try_from(id).ok().filter(|&row| row < count) else {
                    return Err(format!("no such row: expected an id below {count}, got {id}").into());
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

multiversion! {
    fn add_row(row: &mut [f32], other: &[f32]) {
        row.iter_mut().zip(other).for_each(|(x, y)| *x += y);
    }
}
