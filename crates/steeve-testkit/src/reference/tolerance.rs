//! Compares the result of a node with what it should be, within a tolerance.

use steeve_graph::{DataType, Op, TensorId, Tensors};

use super::element_codec::{ROUNDING, decode, encode, half_step, stored};
use super::eval_memory::EvalMemory;
use super::evaluate::{Array, ExpectedValues, NodeCall, evaluate};
use super::matrix::other_meaning;

/// A thousand divided by the largest number in f32, about.
const LOST: f64 = 3e-36;

/// Compares the bytes that a node made, without gaps, with what its sources in `memory` say. The answer is how much of the
/// tolerance was used up, from 0 to 1.
pub fn judge(tensors: &Tensors, memory: &EvalMemory, node: TensorId, made: &[u8]) -> Result<f64, String> {
    let layout = tensors[node].layout;
    let dtype = layout.dtype();
    let op = tensors[node].op;
    if op == Op::SetRows {
        let mut after = memory.clone();
        after.step(tensors, node);
        return same_blocks(dtype, &after.bytes(tensors, node), made);
    }
    let call = memory.call(tensors, node);
    if matches!(op, Op::Argsort | Op::TopK) {
        let size = dtype.block_bytes() as usize;
        let ids: Vec<f64> = made.chunks(size).flat_map(|block| decode(dtype, block)).collect();
        return orders(&call, &ids).map(|()| 0.0);
    }
    let exact = evaluate(&call);
    if dtype.is_quantised() {
        let blocks = exact.values.chunks(dtype.block_len() as usize).flat_map(|block| encode(dtype, block));
        return same_blocks(dtype, &blocks.collect::<Vec<u8>>(), made);
    }
    let judged = near(dtype, made, &exact);
    match other_meaning(&call) {
        Some(other) if judged.is_err() => near(dtype, made, &other).or(judged),
        _ => judged,
    }
}

/// Checks that every element is within tolerance.
fn near(dtype: DataType, made: &[u8], exact: &ExpectedValues) -> Result<f64, String> {
    let size = dtype.block_bytes() as usize;
    if made.len() != exact.values.len() * size {
        return Err(format!("{} elements of {}", made.len() / size, exact.values.len()));
    }
    let mut worst = 0.0f64;
    for (index, ((block, &value), &slack)) in made.chunks(size).zip(&exact.values).zip(&exact.slack).enumerate() {
        let made = decode(dtype, block)[0];
        // What is computed in f32 is rounded once more than what is stored, and lost where an exponential that it is divided
        // by passes the largest number.
        let lost = if slack > 0.0 { LOST } else { 0.0 };
        let slack = slack + lost + ROUNDING * value.abs();
        match off(made, value, stored(dtype, value), slack + half_step(dtype, value)) {
            Some(used) => worst = worst.max(used),
            None => {
                let wrong = format!("element {index} is {made:e} and should be {value:e}");
                return Err(format!("{wrong}, give or take {:e} and a rounding to {dtype}", slack));
            }
        }
    }
    Ok(worst)
}

/// Returns how much of the tolerance is used up; `None` if it is not enough.
fn off(made: f64, value: f64, stored: f64, tolerance: f64) -> Option<f64> {
    if value.is_nan() || made.is_nan() {
        return (value.is_nan() && made.is_nan()).then_some(0.0);
    }
    // Infinity, also by storing what is too large; a kernel may stay just below or pass it.
    if made == stored {
        return Some(0.0);
    }
    let used = (made - value).abs() / tolerance;
    (used <= 1.0).then_some(used)
}

fn same_blocks(dtype: DataType, wanted: &[u8], made: &[u8]) -> Result<f64, String> {
    let size = dtype.block_bytes() as usize;
    if wanted.len() != made.len() {
        return Err(format!("{} bytes instead of {}", made.len(), wanted.len()));
    }
    let is_nan = |block: &[u8]| !dtype.is_quantised() && decode(dtype, block)[0].is_nan();
    for (index, (wanted, made)) in wanted.chunks(size).zip(made.chunks(size)).enumerate() {
        if wanted != made && !(is_nan(wanted) && is_nan(made)) {
            let values = |block| decode(dtype, block);
            return Err(format!("block {index} is {:?} and should be {:?}", values(made), values(wanted)));
        }
    }
    Ok(0.0)
}

/// Sorted ids of a row, or the ids of its largest elements in any order. Equal elements may change places.
fn orders(call: &NodeCall<'_>, ids: &[f64]) -> Result<(), String> {
    let (a, count): (&Array, usize) = (call.source(0), call.ne()[0]);
    for (index, (row, ids)) in a.rows().zip(ids.chunks(count.max(1))).enumerate() {
        let mut taken = vec![false; row.len()];
        for id in ids {
            let id = usize::try_from(*id as i64).ok().filter(|id| *id < row.len());
            let Some(id) = id else { return Err(format!("row {index} has an id that is none: {ids:?}")) };
            if std::mem::replace(&mut taken[id], true) {
                return Err(format!("row {index} has {id} twice"));
            }
        }
        let chosen: Vec<f64> = ids.iter().map(|id| row[*id as usize]).collect();
        let in_order = match call.op {
            Op::TopK => {
                let least = chosen.iter().copied().fold(f64::INFINITY, f64::min);
                row.iter().zip(&taken).all(|(x, taken)| *taken || *x <= least)
            }
            _ if call.int(0) == 1 => chosen.is_sorted_by(|a, b| a >= b),
            _ => chosen.is_sorted(),
        };
        if !in_order {
            return Err(format!("row {index}, {row:?}, is not in the order {ids:?}"));
        }
    }
    Ok(())
}
