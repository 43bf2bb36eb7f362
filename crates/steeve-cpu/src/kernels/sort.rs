//! Orders of rows. An element and its index are sorted as one word, so that equal elements stay in their order.

use steeve_graph::{DataType, SortOrder, TensorId};

use super::strided_walk::StridedWalk;
use crate::float_rows::load_row;
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::tensor_ptr::TensorPtr;

/// Returns the kernel for the order that sorts each row, or the start of it, as long as the rows of the result.
pub(crate) fn sorted(node: &NodeCall<'_>, a: TensorId, order: SortOrder) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    if !a.dtype.is_float() && a.dtype != DataType::I32 {
        return Err("data type: expected f32, f16, bf16 or i32".into());
    }
    if node.result.dtype != DataType::I32 {
        return Err("result: expected i32".into());
    }
    if i32::try_from(a.ne[0]).is_err() {
        return Err("row too long: expected indices that fit i32".into());
    }
    let (descending, rows) = (order == SortOrder::Descending, RowUnits::new(a.rows(), a.ne[0]));
    Ok(Box::new(SortRows { descending, walk: StridedWalk::rows([&node.result, &a]), rows }))
}

#[derive(Debug)]
struct SortRows {
    descending: bool,
    walk: StridedWalk<2>,
    rows: RowUnits,
}

impl SortRows {
    /// Returns a word that is smaller for what comes first.
    fn word(&self, key: u32, index: usize) -> u64 {
        let key = if self.descending { !key } else { key };
        u64::from(key) << 32 | index as u64
    }

    /// # Safety
    /// The row lies within the source.
    unsafe fn load(&self, a: TensorPtr<'_>, offset: usize, words: &mut [u64], x: &mut [f32]) {
        if a.shape.dtype == DataType::I32 {
            for (i, word) in words.iter_mut().enumerate() {
                // SAFETY: an element of the row.
                let value = unsafe { a.read::<i32>(offset + i * a.shape.nb[0]) };
                *word = self.word(value.cast_unsigned() ^ 1 << 31, i);
            }
            return;
        }
        // SAFETY: a row of floats.
        unsafe { load_row(a, offset, x) };
        for (i, (word, x)) in words.iter_mut().zip(x).enumerate() {
            *word = self.word(key(*x), i);
        }
    }
}

/// Returns a key in the order of the numbers. Both zeros are equal, and NaN is larger than all.
fn key(x: f32) -> u32 {
    let bits = if x.is_nan() { f32::NAN.to_bits() } else { (x + 0.0).to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

impl Kernel for SortRows {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, rows) = (operands.result, operands.source(0), self.rows.unit(unit));
        let (length, count) = (a.shape.ne[0], result.shape.ne[0]);
        let (words, x) = scratch.words_and_row(length);
        for [r, a_] in self.walk.from(rows.start).take(rows.len()) {
            // SAFETY: a row of the source.
            unsafe { self.load(a, a_, words, x) };
            if 0 < count && count < length {
                words.select_nth_unstable(count);
            }
            words[..count].sort_unstable();
            for (i, word) in words[..count].iter().enumerate() {
                // SAFETY: an element of the result's row.
                unsafe { result.write(r + i * result.shape.nb[0], *word as u32 as i32) };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_the_numbers() {
        let numbers = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 1.0, f32::MAX, f32::INFINITY, f32::NAN];
        assert!(numbers.map(key).is_sorted_by(|a, b| a < b));
        assert_eq!((key(-0.0), key(-f32::NAN)), (key(0.0), key(f32::NAN)));
    }
}
