//! Sums, products, comparisons, rounding and types.

use super::movement::{position, product, strides};
use crate::onnx::call::{Call, axis_of};
use crate::onnx::data_type::DataType;
use crate::onnx::fact::{Elements, Fact};

/// Returns the elements of arithmetic on inputs whose elements are known.
pub(super) fn fold(call: &Call<'_>, result: &Fact, shape: &[u64]) -> Option<Elements> {
    match call.node.op_type.as_str() {
        "Cast" | "CastLike" => {
            let source = call.input(0)?;
            cast(source.elements.as_ref()?, result.data_type)
        }
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "Max" | "Min" | "Sum" | "Equal" | "Greater" | "Less"
        | "GreaterOrEqual" | "LessOrEqual" | "And" | "Or" | "Xor" => variadic(call, result, shape),
        "Where" => {
            let (chosen, inputs) =
                (broadcast(call, 0, shape)?, [broadcast(call, 1, shape)?, broadcast(call, 2, shape)?]);
            let chosen = chosen.ints()?.to_vec();
            let pick = |at: usize| if chosen[at] != 0 { 0 } else { 1 };
            match &inputs {
                [Elements::Ints(a), Elements::Ints(b)] => {
                    Some(Elements::Ints((0..chosen.len()).map(|at| [a, b][pick(at)][at]).collect()))
                }
                [Elements::Floats(a), Elements::Floats(b)] => {
                    Some(Elements::Floats((0..chosen.len()).map(|at| [a, b][pick(at)][at]).collect()))
                }
                _ => None,
            }
        }
        "ReduceProd" | "ReduceSum" | "ReduceMax" | "ReduceMin" => reduce(call, result),
        "Neg" | "Abs" | "Sign" | "Not" | "Floor" | "Ceil" | "Round" | "Sqrt" | "Relu" | "Clip" | "Exp" | "Log"
        | "Reciprocal" => unary(call, result),
        "CumSum" => running_sum(call, result),
        _ => None,
    }
}

/// Returns a whole number as one of a type: the bits that the type has.
fn wrap(data_type: DataType, value: i64) -> i64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "that is what the operation does")]
    match data_type {
        DataType::BOOL => i64::from(value != 0),
        DataType::INT8 => i64::from(value as i8),
        DataType::UINT8 => i64::from(value as u8),
        DataType::INT16 => i64::from(value as i16),
        DataType::UINT16 => i64::from(value as u16),
        DataType::INT32 => i64::from(value as i32),
        DataType::UINT32 => i64::from(value as u32),
        _ => value,
    }
}

/// Returns a number rounded to a type.
#[allow(clippy::cast_possible_truncation, reason = "that is what rounding does")]
fn round_to(data_type: DataType, value: f64) -> f64 {
    if data_type == DataType::FLOAT { f64::from(value as f32) } else { value }
}

fn cast(elements: &Elements, to: DataType) -> Option<Elements> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "that is what a cast does")]
    match elements {
        Elements::Ints(ints) if to.is_int() => Some(Elements::Ints(ints.iter().map(|it| wrap(to, *it)).collect())),
        Elements::Ints(ints) if to.is_float() => {
            Some(Elements::Floats(ints.iter().map(|it| round_to(to, *it as f64)).collect()))
        }
        Elements::Floats(floats) if to == DataType::BOOL => {
            Some(Elements::Ints(floats.iter().map(|it| i64::from(*it != 0.0)).collect()))
        }
        Elements::Floats(floats) if to.is_int() => {
            Some(Elements::Ints(floats.iter().map(|it| wrap(to, *it as i64)).collect()))
        }
        Elements::Floats(floats) if to.is_float() => {
            Some(Elements::Floats(floats.iter().map(|it| round_to(to, *it)).collect()))
        }
        _ => None,
    }
}

/// Returns the elements of an input stretched to a shape.
pub(super) fn broadcast(call: &Call<'_>, slot: usize, shape: &[u64]) -> Option<Elements> {
    let fact = call.input(slot)?;
    let (own, elements) = (fact.known_shape()?, fact.elements.as_ref()?);
    if own == shape {
        return Some(elements.clone());
    }
    let mut steps = vec![0; shape.len()];
    let start = shape.len().checked_sub(own.len())?;
    for (axis, stride) in strides(&own).into_iter().enumerate() {
        steps[start + axis] = if own[axis] == 1 { 0 } else { stride };
    }
    let count = product(shape);
    elements.pick((0..count).map(|at| position(at, shape, &steps)))
}

fn variadic(call: &Call<'_>, result: &Fact, shape: &[u64]) -> Option<Elements> {
    let op = call.node.op_type.as_str();
    let slots = if matches!(op, "Max" | "Min" | "Sum") { call.inputs.len() } else { 2 };
    if call.version < 7 && call.inputs.iter().flatten().any(|fact| fact.count() != result.count()) {
        return None;
    }
    let mut left = broadcast(call, 0, shape)?;
    for slot in 1..slots {
        left = match (left, broadcast(call, slot, shape)?) {
            (Elements::Ints(a), Elements::Ints(b)) => {
                let ints = a.into_iter().zip(b).map(|(a, b)| {
                    int_op(op, a, b, call.is_set("fmod"), call.data_type(0)).map(|it| wrap(result.data_type, it))
                });
                Elements::Ints(ints.collect::<Option<_>>()?)
            }
            (Elements::Floats(a), Elements::Floats(b)) if result.data_type == DataType::BOOL => {
                Elements::Ints(a.into_iter().zip(b).map(|(a, b)| compare(op, a, b)).collect::<Option<_>>()?)
            }
            (Elements::Floats(a), Elements::Floats(b)) => {
                let op = if op == "Mod" && call.is_set("fmod") { "fmod" } else { op };
                let floats =
                    a.into_iter().zip(b).map(|(a, b)| float_op(op, a, b).map(|it| round_to(result.data_type, it)));
                Elements::Floats(floats.collect::<Option<_>>()?)
            }
            _ => return None,
        };
    }
    Some(left)
}

fn int_op(op: &str, a: i64, b: i64, is_c_remainder: bool, data_type: DataType) -> Option<i64> {
    Some(match op {
        "Add" | "Sum" => a.wrapping_add(b),
        "Sub" => a.wrapping_sub(b),
        "Mul" => a.wrapping_mul(b),
        // The bits of large numbers without a sign would be taken for those of negative ones.
        "Div" | "Mod" if b == 0 || data_type == DataType::UINT64 && (a < 0 || b < 0) => return None,
        "Div" => a.wrapping_div(b),
        "Mod" if is_c_remainder => a.wrapping_rem(b),
        "Mod" => {
            let rest = a.wrapping_rem(b);
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        "Pow" => a.checked_pow(u32::try_from(b).ok()?)?,
        "Max" => a.max(b),
        "Min" => a.min(b),
        _ => return compare(op, a, b).or_else(|| truth(op, a != 0, b != 0)),
    })
}

fn truth(op: &str, a: bool, b: bool) -> Option<i64> {
    Some(i64::from(match op {
        "And" => a && b,
        "Or" => a || b,
        "Xor" => a != b,
        _ => return None,
    }))
}

fn compare<T: PartialOrd>(op: &str, a: T, b: T) -> Option<i64> {
    Some(i64::from(match op {
        "Equal" => a == b,
        "Greater" => a > b,
        "Less" => a < b,
        "GreaterOrEqual" => a >= b,
        "LessOrEqual" => a <= b,
        _ => return None,
    }))
}

fn float_op(op: &str, a: f64, b: f64) -> Option<f64> {
    Some(match op {
        "Add" | "Sum" => a + b,
        "Sub" => a - b,
        "Mul" => a * b,
        "Div" => a / b,
        "fmod" => a % b,
        "Mod" => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        "Pow" => a.powf(b),
        "Max" => a.max(b),
        "Min" => a.min(b),
        _ => return None,
    })
}

fn unary(call: &Call<'_>, result: &Fact) -> Option<Elements> {
    let op = call.node.op_type.as_str();
    if op == "Clip" {
        return clip(call);
    }
    match call.input(0)?.elements.as_ref()? {
        Elements::Ints(ints) => {
            let of = |it: i64| {
                Some(match op {
                    "Neg" => it.wrapping_neg(),
                    "Abs" => it.wrapping_abs(),
                    "Sign" => it.signum(),
                    "Not" => i64::from(it == 0),
                    "Relu" => it.max(0),
                    _ => return None,
                })
            };
            ints.iter()
                .map(|it| of(*it).map(|it| wrap(result.data_type, it)))
                .collect::<Option<_>>()
                .map(Elements::Ints)
        }
        Elements::Floats(floats) => {
            let of = |it: f64| {
                Some(match op {
                    "Neg" => -it,
                    "Abs" => it.abs(),
                    "Sign" => {
                        if it == 0.0 {
                            0.0
                        } else {
                            it.signum()
                        }
                    }
                    "Floor" => it.floor(),
                    "Ceil" => it.ceil(),
                    "Round" => it.round_ties_even(),
                    "Sqrt" => it.sqrt(),
                    "Exp" => it.exp(),
                    "Log" => it.ln(),
                    "Reciprocal" => 1.0 / it,
                    "Relu" => it.max(0.0),
                    _ => return None,
                })
            };
            let floats = floats.iter().map(|it| of(*it).map(|it| round_to(result.data_type, it)));
            floats.collect::<Option<_>>().map(Elements::Floats)
        }
    }
}

/// Returns the first input within limits, which are attributes or inputs.
fn clip(call: &Call<'_>) -> Option<Elements> {
    let limit = |slot: usize| match call.input(slot) {
        None => Some(None),
        Some(fact) => Some(Some(fact.elements.as_ref()?)),
    };
    let (least, most) = (limit(1)?, limit(2)?);
    match call.input(0)?.elements.as_ref()? {
        Elements::Ints(ints) => {
            let least = least.map_or(Some(i64::MIN), |it| it.ints()?.first().copied())?;
            let most = most.map_or(Some(i64::MAX), |it| it.ints()?.first().copied())?;
            Some(Elements::Ints(ints.iter().map(|it| (*it).max(least).min(most)).collect()))
        }
        Elements::Floats(floats) => {
            let given = |name: &str, default: f64| call.float(name).map_or(default, f64::from);
            let least = least.map_or(Some(given("min", f64::NEG_INFINITY)), |it| it.float(0))?;
            let most = most.map_or(Some(given("max", f64::INFINITY)), |it| it.float(0))?;
            Some(Elements::Floats(floats.iter().map(|it| it.max(least).min(most)).collect()))
        }
    }
}

/// Returns sums, products, or the largest elements, over axes.
fn reduce(call: &Call<'_>, result: &Fact) -> Option<Elements> {
    let source = call.input(0)?;
    let (shape, elements) = (source.known_shape()?, source.elements.as_ref()?);
    let axes = call.attribute_or_input("axes", 1).ok()?.unwrap_or(&[]);
    let mut kept: Vec<bool> = vec![axes.is_empty() && call.is_set("noop_with_empty_axes"); shape.len()];
    if !axes.is_empty() {
        kept = vec![true; shape.len()];
        for axis in axes {
            kept[axis_of(*axis, shape.len()).ok()?] = false;
        }
    }
    // Where each element is added: the axes that are reduced do not move.
    let sides: Vec<u64> = shape.iter().zip(&kept).map(|(dim, kept)| if *kept { *dim } else { 1 }).collect();
    let steps: Vec<u64> =
        strides(&sides).into_iter().zip(&kept).map(|(step, kept)| if *kept { step } else { 0 }).collect();
    let count = usize::try_from(product(&sides)).ok()?;
    let op = match call.node.op_type.as_str() {
        "ReduceProd" => "Mul",
        "ReduceSum" => "Add",
        "ReduceMax" => "Max",
        _ => "Min",
    };
    let target = |at: usize| position(at as u64, &shape, &steps);
    match elements {
        Elements::Ints(ints) => {
            let mut sums: Vec<Option<i64>> = vec![None; count];
            for (at, it) in ints.iter().enumerate() {
                let sum = sums.get_mut(target(at))?;
                *sum = Some(match *sum {
                    None => *it,
                    Some(sum) => int_op(op, sum, *it, false, result.data_type).map(|it| wrap(result.data_type, it))?,
                });
            }
            sums.into_iter().collect::<Option<_>>().map(Elements::Ints)
        }
        Elements::Floats(floats) => {
            let mut sums: Vec<Option<f64>> = vec![None; count];
            for (at, it) in floats.iter().enumerate() {
                let sum = sums.get_mut(target(at))?;
                *sum = Some(match *sum {
                    None => *it,
                    Some(sum) => float_op(op, sum, *it).map(|it| round_to(result.data_type, it))?,
                });
            }
            sums.into_iter().collect::<Option<_>>().map(Elements::Floats)
        }
    }
}

/// Returns the sums of a vector up to each element.
fn running_sum(call: &Call<'_>, result: &Fact) -> Option<Elements> {
    let source = call.input(0)?;
    if source.known_shape()?.len() != 1 || call.is_set("exclusive") || call.is_set("reverse") {
        return None;
    }
    let mut sum = 0i64;
    let sums = source.elements.as_ref()?.ints()?.iter().map(|it| {
        sum = wrap(result.data_type, sum.wrapping_add(*it));
        sum
    });
    Some(Elements::Ints(sums.collect()))
}
