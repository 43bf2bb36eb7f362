//! Rows in order: which element comes first, and which is largest.

use steeve_graph::{DataType, SortOrder, TensorId};

use crate::frame::on_each_gpu;
use crate::reference::{CaseBuilder, Values, named};

/// What the memory of a row has, so that many are equal: numbers, both zeros, infinities and what is none.
fn crowded(dtype: DataType, sketch: &mut CaseBuilder, count: u64) -> (Vec<f64>, Vec<u8>) {
    let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN];
    let (mut values, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let value = match sketch.choices.below(8) {
            0 if dtype != DataType::I32 => special[sketch.choices.below(special.len())],
            _ => sketch.choices.below(4001) as f64 - 2000.0,
        };
        // Whole numbers of this size are exact but for bf16.
        match dtype {
            DataType::I32 => bytes.extend((value as i32).to_le_bytes()),
            DataType::F32 => bytes.extend((value as f32).to_le_bytes()),
            DataType::F16 => bytes.extend(half::f16::from_f64(value).to_le_bytes()),
            _ => bytes.extend(half::bf16::from_f64(value).to_le_bytes()),
        }
        values.push(if dtype == DataType::Bf16 { half::bf16::from_f64(value).to_f64() } else { value });
    }
    (values, bytes)
}

/// In the order of the numbers: what is none comes last, zeros are equal, and equal ones stay in order.
fn sorted(row: &[f64], order: SortOrder) -> Vec<i32> {
    use std::cmp::Ordering;
    let compare = |x: f64, y: f64| match (x.is_nan(), y.is_nan()) {
        (false, false) => x.partial_cmp(&y).unwrap_or(Ordering::Equal),
        (x, y) => x.cmp(&y),
    };
    let mut ids: Vec<i32> = (0..row.len() as i32).collect();
    ids.sort_by(|i, j| {
        let (x, y) = (row[*i as usize], row[*j as usize]);
        if order == SortOrder::Ascending { compare(x, y) } else { compare(y, x) }
    });
    ids
}

fn whole_numbers(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks().0.iter().map(|it| i32::from_le_bytes(*it)).collect()
}

#[test]
fn rows_of_any_length_are_sorted() {
    on_each_gpu(400, |proof| {
        for dtype in [DataType::F32, DataType::F16, DataType::Bf16, DataType::I32] {
            for (n, rows) in
                [1, 2, 31, 1000, 1024, 1025, 2048, 2049, 5000, 300_000].map(|n| (n, if n < 9 { 40 } else { 3 }))
            {
                let mut sketch = proof.sketch();
                let dense = sketch.input(dtype, &[n, rows], Values::Below(9)).unwrap();
                let turned = sketch.input(dtype, &[rows, n], Values::Below(9)).unwrap();
                let numbers: Vec<Vec<f64>> = (0..2)
                    .map(|leaf| {
                        let (values, bytes) = crowded(dtype, &mut sketch, n * rows);
                        sketch.contents[leaf].1 = bytes;
                        values
                    })
                    .collect();
                let turned = sketch.context.transpose(turned).unwrap();
                let (n, rows) = (n as usize, rows as usize);
                let row_of = |which: usize, row: usize| -> Vec<f64> {
                    let at = |i: usize| if which == 0 { row * n + i } else { i * rows + row };
                    (0..n).map(|i| numbers[which][at(i)]).collect()
                };
                let mut wanted = Vec::new();
                for (which, source) in [dense, turned].into_iter().enumerate() {
                    for order in [SortOrder::Ascending, SortOrder::Descending] {
                        let node = sketch.context.argsort(source, order).unwrap();
                        let rows: Vec<Vec<i32>> = (0..rows).map(|row| sorted(&row_of(which, row), order)).collect();
                        if order == SortOrder::Descending {
                            for k in [1, n.min(2), n.min(7), n.div_ceil(2)] {
                                let largest = sketch.context.top_k(source, k as u64).unwrap();
                                wanted.push((largest, rows.iter().flat_map(|row| row[..k].to_vec()).collect()));
                            }
                        }
                        wanted.push((node, rows.concat()));
                    }
                }
                let outputs: Vec<TensorId> = wanted.iter().map(|(node, _)| *node).collect();
                let case = sketch.case(&outputs).unwrap();
                for (node, ids) in wanted {
                    let made = whole_numbers(&proof.made(&case, node));
                    let at = made.iter().zip(&ids).position(|(a, b)| a != b);
                    assert_eq!(at, None, "{dtype} {n}: {} differs", named(&case.graph, node));
                    assert_eq!(made.len(), ids.len());
                }
            }
        }
    });
}

/// More elements than are merged at a time.
#[test]
fn many_rows_are_sorted_some_at_a_time() {
    on_each_gpu(800, |proof| {
        let (n, rows, k) = (2100, 8100, 5);
        let mut sketch = proof.sketch();
        let a = sketch.input(DataType::F32, &[n, rows], Values::Below(9)).unwrap();
        let (values, bytes) = crowded(DataType::F32, &mut sketch, n * rows);
        sketch.contents[0].1 = bytes;
        let order = sketch.context.argsort(a, SortOrder::Descending).unwrap();
        let largest = sketch.context.top_k(a, k).unwrap();
        let case = sketch.case(&[order, largest]).unwrap();
        let [orders, largest] = [order, largest].map(|node| whole_numbers(&proof.made(&case, node)));
        let (n, k) = (n as usize, k as usize);
        for (row, values) in values.chunks(n).enumerate() {
            let wanted = sorted(values, SortOrder::Descending);
            assert!(orders[row * n..][..n] == wanted, "row {row}");
            assert_eq!(largest[row * k..][..k], wanted[..k], "row {row}");
        }
    });
}
