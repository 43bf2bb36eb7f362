//! Products of matrices, and what is made of them.

use std::collections::BTreeMap;

use super::elementwise::broadcast;
use crate::onnx::call::{Call, Facts, Stuck, one, wrong};
use crate::onnx::data_type::DataType;
use crate::onnx::fact::{Dim, Fact};

/// Returns the shape of a product of stacks of matrices.
pub(super) fn product(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, Stuck> {
    let (Some(depth_a), Some(_)) = (a.last(), b.last()) else {
        return wrong("expected matrices, got a number");
    };
    let depth_b = if b.len() == 1 { b[0] } else { b[b.len() - 2] };
    if let (Some(a), Some(b)) = (*depth_a, depth_b)
        && a != b
    {
        return wrong(format!(
            "matrices can't be multiplied: expected inner dimensions that are equal, got {a} and {b}"
        ));
    }
    let stack = |shape: &[Dim]| shape[..shape.len().saturating_sub(2)].to_vec();
    let mut shape = broadcast([stack(a).as_slice(), stack(b).as_slice()])?;
    shape.extend((a.len() > 1).then(|| a[a.len() - 2]));
    shape.extend((b.len() > 1).then(|| b[b.len() - 1]));
    Ok(shape)
}

/// Returns the product of two inputs.
pub(super) fn matmul(call: &Call<'_>, slots: [usize; 2], data_type: DataType) -> Facts {
    one(data_type, product(call.dims(slots[0])?, call.dims(slots[1])?)?)
}

/// Returns a product of matrices that may be turned first.
pub(super) fn turned_matmul(call: &Call<'_>) -> Facts {
    let turned = |slot: usize, last: &str, batch: &str| {
        let mut dims = call.dims(slot)?.to_vec();
        let rank = dims.len();
        if rank > 1 && call.is_set(batch) {
            dims[..rank - 1].rotate_left(1);
        }
        if rank > 1 && call.is_set(last) {
            dims.swap(rank - 1, rank - 2);
        }
        Ok::<_, Stuck>(dims)
    };
    let (a, b) = (turned(0, "transA", "transBatchA")?, turned(1, "transB", "transBatchB")?);
    one(call.data_type(0), product(&a, &b)?)
}

/// Returns a product of two matrices with something added.
pub(super) fn gemm(call: &Call<'_>, slots: [usize; 2], data_type: DataType) -> Facts {
    let sides = |slot: usize, turns: bool| match call.dims(slot)? {
        [rows, columns] if turns => Ok([*columns, *rows]),
        [rows, columns] => Ok([*rows, *columns]),
        // Before version 7 anything was taken for a matrix.
        [rows, rest @ ..] if call.version < 7 => Ok([*rows, crate::onnx::fact::count(rest)]),
        dims => wrong(format!("input {slot}: expected 2 dimensions, got {}", dims.len())),
    };
    let (a, b) = (sides(slots[0], call.is_set("transA"))?, sides(slots[1], call.is_set("transB"))?);
    if let (Some(a), Some(b)) = (a[1], b[0])
        && a != b
    {
        return wrong(format!(
            "matrices can't be multiplied: expected inner dimensions that are equal, got {a} and {b}"
        ));
    }
    one(data_type, vec![a[0], b[1]])
}

/// Returns a product with a matrix of few bits, whose sides are attributes.
pub(super) fn matmul_bits(call: &Call<'_>) -> Facts {
    let mut shape = call.dims(0)?.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = call.int("N").and_then(|it| u64::try_from(it).ok());
    }
    one(call.data_type(0), shape)
}

/// Returns what an equation of letters makes of its inputs.
pub(super) fn einsum(call: &Call<'_>) -> Facts {
    let equation: String = call.text("equation").chars().filter(|it| !it.is_whitespace()).collect();
    let (terms, result) = match equation.split_once("->") {
        Some((terms, result)) => (terms, Some(result)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = terms.split(',').collect();
    if terms.len() != call.inputs.len() {
        return wrong(format!("equation: expected {} terms, got {}", call.inputs.len(), terms.len()));
    }
    let mut letters: BTreeMap<char, (Dim, usize)> = BTreeMap::new();
    let mut rest: Vec<Vec<Dim>> = Vec::new();
    for (slot, term) in terms.iter().enumerate() {
        let dims = call.dims(slot)?;
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        let named = before.chars().count() + after.chars().count();
        let Some(more) = dims.len().checked_sub(named).filter(|more| *more == 0 || term.contains("...")) else {
            return wrong(format!("equation: term {term:?} for {} dimensions", dims.len()));
        };
        let start = before.chars().count();
        rest.push(dims[start..start + more].to_vec());
        let of_letters = dims[..start].iter().chain(&dims[start + more..]);
        for (letter, dim) in before.chars().chain(after.chars()).zip(of_letters) {
            let entry = letters.entry(letter).or_insert((*dim, 0));
            entry.0 = if entry.0 == Some(1) || entry.0.is_none() { *dim } else { entry.0 };
            entry.1 += 1;
        }
    }
    let rest = broadcast(rest.iter().map(Vec::as_slice))?;
    let implied: String = letters.iter().filter(|(_, (_, count))| *count == 1).map(|(letter, _)| *letter).collect();
    let result = result.map_or(format!("...{implied}"), str::to_owned);
    let (before, after) = result.split_once("...").unwrap_or((&result, ""));
    let dims = |letters_of: &str| -> Result<Vec<Dim>, Stuck> {
        let dim = |letter: char| match letters.get(&letter) {
            Some((dim, _)) => Ok(*dim),
            None => wrong(format!("equation: {letter:?} is in no term")),
        };
        letters_of.chars().map(dim).collect()
    };
    let rest = if result.contains("...") { rest } else { Vec::new() };
    one(call.data_type(0), [dims(before)?, rest, dims(after)?].concat())
}

/// Returns the determinants of a stack of matrices.
pub(super) fn determinant(call: &Call<'_>) -> Facts {
    let dims = call.dims(0)?;
    one(call.data_type(0), dims[..dims.len().saturating_sub(2)].to_vec())
}

/// Returns the results of a recurrent layer: all steps, and the last state of each kind.
pub(super) fn recurrent(call: &Call<'_>, states: usize) -> Facts {
    let [a, b, _] = call.dims(0)? else { return wrong("input 0: expected 3 dimensions") };
    let directions = Some(if call.text("direction") == "bidirectional" { 2 } else { 1 });
    let hidden = match call.int("hidden_size") {
        Some(size) => u64::try_from(size).ok(),
        None => call.dims(2)?.last().copied().flatten(),
    };
    let is_batch_first = call.is_set("layout");
    let (steps, batch) = if is_batch_first { (*b, *a) } else { (*a, *b) };
    let (all, last) = match is_batch_first {
        true => (vec![batch, steps, directions, hidden], vec![batch, directions, hidden]),
        false => (vec![steps, directions, batch, hidden], vec![directions, batch, hidden]),
    };
    let mut facts = vec![Fact::new(call.data_type(0), all)];
    facts.extend((0..states).map(|_| Fact::new(call.data_type(0), last.clone())));
    Ok(facts)
}
