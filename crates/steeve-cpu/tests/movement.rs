//! Copies, joins, repetitions and rows that ids name, against loops over elements.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use filled_context::{FilledContext, assert_close, read};
use half::f16;
use steeve_graph::{Bytes, DataType, TensorId};

const PLAIN: [DataType; 8] = [
    DataType::F32,
    DataType::F16,
    DataType::Bf16,
    DataType::F64,
    DataType::I8,
    DataType::I16,
    DataType::I32,
    DataType::I64,
];

/// Another shape of as many elements whose rows are whole blocks.
fn another(trial: &mut FilledContext, shape: [u64; 4], block: u64) -> [u64; 4] {
    let all: u64 = shape.iter().product();
    let rows: Vec<u64> = (1..=all).filter(|row| all.is_multiple_of(*row) && row.is_multiple_of(block)).collect();
    let row = trial.pick(&rows);
    let planes: Vec<u64> = (1..=all / row).filter(|n| (all / row).is_multiple_of(*n)).collect();
    let n = trial.pick(&planes);
    [row, n, all / row / n, 1]
}

#[test]
fn copies_keep_elements_in_order_whatever_shapes_strides_and_types() {
    for seed in 0..300 {
        let mut trial = FilledContext::new(seed);
        let (from, to) = (trial.pick(&PLAIN), trial.pick(&PLAIN));
        let shape = [17, 33, 4, 3].map(|most| trial.pick(&[1, 2, 3, most]));
        let a = trial.strided(from, shape);
        let other = if trial.below(2) == 0 { shape } else { another(&mut trial, shape, 1) };
        let b = trial.strided(to, other);
        let copy = trial.context.cpy(a, b).unwrap();
        let wanted: Vec<f64> =
            trial.values(a).into_iter().map(|x| if to.is_integer() { x.trunc() } else { x }).collect();
        let tolerance = if to == DataType::Bf16 && from.is_integer() { 0.01 } else { 0.0 };
        let what = format!("seed {seed}: {} to {}", trial.layout(a), trial.layout(b));
        assert_close(&trial.result(copy), &wanted, tolerance, &what);
    }
}

#[test]
fn copies_without_gaps_have_the_elements_of_their_source() {
    for seed in 0..200 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&PLAIN);
        let shape = [70, 40, 5, 2].map(|most| trial.pick(&[1, 2, 16.min(most), most]));
        let a = trial.strided(dtype, shape);
        let copy = if trial.below(2) == 0 { trial.context.cont(a) } else { trial.context.dup(a) }.unwrap();
        assert_eq!(trial.result(copy), trial.values(a), "seed {seed}: {}", trial.layout(a));
    }
}

#[test]
fn blocks_are_copied_as_they_are() {
    for seed in 0..100 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&[DataType::Q8_0, DataType::Q4_0]);
        let shape = [32 * (1 + trial.below(3)), 1 + trial.below(4), 1 + trial.below(3), 1 + trial.below(2)];
        let (a, other) = (trial.strided(dtype, shape), another(&mut trial, shape, 32));
        let b = trial.strided(dtype, other);
        let copy = trial.context.cpy(a, b).unwrap();
        assert_eq!(trial.result(copy), trial.values(a));
    }
}

#[test]
fn floats_become_blocks_as_in_the_reference() {
    for seed in 0..100 {
        let mut trial = FilledContext::new(seed);
        let (from, to) = (trial.pick(&[DataType::F32, DataType::F16]), trial.pick(&[DataType::Q8_0, DataType::Q4_0]));
        let shape = [32 * (1 + trial.below(3)), 1 + trial.below(4), 1 + trial.below(3), 1];
        let (a, other) = (trial.strided(from, shape), another(&mut trial, shape, 32));
        let b = trial.strided(to, other);
        let copy = trial.context.cpy(a, b).unwrap();
        let wanted: Vec<f64> = trial.values(a).chunks(32).flat_map(|block| rounded(to, block)).collect();
        assert_eq!(trial.result(copy), wanted, "seed {seed}: {} to {}", trial.layout(a), trial.layout(b));
    }
}

/// What is left of a block, as ggml's reference computes it.
fn rounded(dtype: DataType, block: &[f64]) -> Vec<f64> {
    let block: Vec<f32> = block.iter().map(|x| *x as f32).collect();
    let (mut most, mut farthest) = (0.0f32, 0.0f32);
    for &x in &block {
        if most < x.abs() {
            (most, farthest) = (x.abs(), x);
        }
    }
    let scale = if dtype == DataType::Q8_0 { most / 127.0 } else { farthest / -8.0 };
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let kept = f16::from_f32(scale).to_f64();
    let quant = |x: f32| match dtype {
        DataType::Q8_0 => f64::from((x * inverse).round() as i8),
        _ => f64::from(15.min((x * inverse + 8.5) as i8) - 8),
    };
    block.into_iter().map(|x| kept * quant(x)).collect()
}

#[test]
fn blocks_become_floats_across_rows() {
    for seed in 0..50 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&[DataType::Q8_0, DataType::Q4_0]);
        let shape = [32 * (1 + trial.below(3)), 1 + trial.below(4), 1 + trial.below(3), 1];
        let (a, other) = (trial.strided(dtype, shape), another(&mut trial, shape, 1));
        let b = trial.strided(DataType::F32, other);
        let copy = trial.context.cpy(a, b).unwrap();
        assert_close(&trial.result(copy), &trial.values(a), 1e-6, "blocks to f32");
    }
}

#[test]
fn large_copies_are_cut_without_a_seam() {
    for (from, to) in [
        (DataType::F32, DataType::F32),
        (DataType::F32, DataType::F16),
        (DataType::I32, DataType::F32),
        (DataType::F16, DataType::I16),
    ] {
        let mut trial = FilledContext::new(9);
        let (a, b) = (trial.leaf(from, &[301, 333]), trial.leaf(to, &[333, 301]));
        let (a, b) = (trial.context.transpose(a).unwrap(), b);
        let copy = trial.context.cpy(a, b).unwrap();
        let wanted: Vec<f64> =
            trial.values(a).into_iter().map(|x| if to.is_integer() { x.trunc() } else { x }).collect();
        assert_eq!(trial.result(copy), wanted, "{from} to {to}");
    }
}

#[test]
fn numbers_beyond_a_range_end_at_its_end() {
    let mut trial = FilledContext::new(1);
    let a = trial.given(DataType::F32, &[4], &[1e30, -1e30, f64::NAN, -2.9]);
    let b = trial.leaf(DataType::I8, &[4]);
    let copy = trial.context.cpy(a, b).unwrap();
    assert_eq!(trial.result(copy), [127.0, -128.0, 0.0, -2.0]);
}

#[test]
fn a_copy_of_nothing_is_nothing() {
    let mut trial = FilledContext::new(1);
    let (a, b) = (trial.leaf(DataType::F32, &[0, 3]), trial.leaf(DataType::F16, &[5, 0]));
    let copy = trial.context.cpy(a, b).unwrap();
    assert!(trial.result(copy).is_empty());
}

/// Returns the position of an element in the values of a shape.
fn at(ne: [u64; 4], [i0, i1, i2, i3]: [u64; 4]) -> usize {
    (i0 + ne[0] * (i1 + ne[1] * (i2 + ne[2] * i3))) as usize
}

fn positions([n0, n1, n2, n3]: [u64; 4]) -> impl Iterator<Item = [u64; 4]> {
    (0..n0 * n1 * n2 * n3).map(move |i| [i % n0, i / n0 % n1, i / n0 / n1 % n2, i / n0 / n1 / n2])
}

#[test]
fn a_join_has_one_and_then_the_other() {
    for seed in 0..300 {
        let mut trial = FilledContext::new(seed);
        let dtype =
            trial.pick(&[DataType::F32, DataType::F16, DataType::I8, DataType::I32, DataType::I64, DataType::Q8_0]);
        let dim = trial.below(4) as usize;
        let shape = [dtype.block_len(), 1, 1, 1].map(|n| n * (1 + trial.below(5)));
        let mut other = shape;
        other[dim] = trial.below(5) * if dim == 0 { dtype.block_len() } else { 1 };
        let (a, b) = (trial.strided(dtype, shape), trial.strided(dtype, other));
        let joined = trial.context.concat(a, b, dim as u32).unwrap();
        let (x, y, ne) = (trial.values(a), trial.values(b), trial.layout(joined).ne());
        let wanted: Vec<f64> = positions(ne)
            .map(|mut position| match position[dim].checked_sub(shape[dim]) {
                None => x[at(shape, position)],
                Some(behind) => {
                    position[dim] = behind;
                    y[at(other, position)]
                }
            })
            .collect();
        assert_eq!(trial.result(joined), wanted, "seed {seed}: {} and {}", trial.layout(a), trial.layout(b));
    }
}

#[test]
fn a_repetition_starts_over() {
    for seed in 0..200 {
        let mut trial = FilledContext::new(seed);
        let dtype =
            trial.pick(&[DataType::F32, DataType::Bf16, DataType::I8, DataType::I32, DataType::F64, DataType::Q4_0]);
        let shape = [dtype.block_len(), 1, 1, 1].map(|n| n * (1 + trial.below(4)));
        let a = trial.strided(dtype, shape);
        let whole = shape.map(|n| n * (1 + trial.below(3)));
        let repeated = trial.context.repeat(a, &whole).unwrap();
        let x = trial.values(a);
        let wanted: Vec<f64> =
            positions(whole).map(|p| x[at(shape, std::array::from_fn(|dim| p[dim] % shape[dim]))]).collect();
        assert_eq!(trial.result(repeated), wanted, "seed {seed}");
    }
}

#[test]
fn rows_are_taken_where_ids_say() {
    for seed in 0..200 {
        let mut trial = FilledContext::new(seed);
        let dtype =
            trial.pick(&[DataType::F32, DataType::F16, DataType::Bf16, DataType::I32, DataType::Q8_0, DataType::Q4_0]);
        let [row, rows] = [dtype.block_len() * (1 + trial.below(3)), 1 + trial.below(9)];
        let (planes, cubes, count) = (1 + trial.below(3), 1 + trial.below(2), trial.below(12));
        let a = trial.strided(dtype, [row, rows, planes, cubes]);
        let ids: Vec<f64> = (0..count * planes * cubes).map(|_| trial.below(rows) as f64).collect();
        let ids_tensor = trial.given(DataType::I32, &[count, planes, cubes], &ids);
        let taken = trial.context.get_rows(a, ids_tensor).unwrap();
        let x = trial.values(a);
        let wanted: Vec<f64> = positions([row, count, planes, cubes])
            .map(|[i0, i1, i2, i3]| {
                let id = ids[at([count, planes, cubes, 1], [i1, i2, i3, 0])] as u64;
                x[at([row, rows, planes, cubes], [i0, id, i2, i3])]
            })
            .collect();
        assert_close(&trial.result(taken), &wanted, 1e-6, &format!("seed {seed}: {}", trial.layout(a)));
    }
}

#[test]
fn rows_are_written_where_ids_say_and_the_last_one_stays() {
    for seed in 0..200 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&[DataType::F32, DataType::F16, DataType::Bf16, DataType::Q8_0, DataType::Q4_0]);
        let row = if dtype.is_quantised() { 32 * trial.pick(&[1, 2, 40]) } else { trial.pick(&[1, 5, 1500]) };
        let (rows, planes, cubes, count) = (1 + trial.below(6), 1 + trial.below(3), 1 + trial.below(2), trial.below(9));
        let target = dense_rows(&mut trial, dtype, [row, rows, planes, cubes]);
        let from = trial.pick(&[DataType::F32, DataType::F16]);
        let new = dense_rows(&mut trial, from, [row, count, planes, cubes]);
        let (p, c) = (trial.pick(&[1, planes]), trial.pick(&[1, cubes]));
        let ids: Vec<f64> = (0..count * p * c).map(|_| trial.below(rows) as f64).collect();
        let width = trial.pick(&[DataType::I32, DataType::I64]);
        let ids_tensor = trial.given(width, &[count, p, c], &ids);
        let written = trial.context.set_rows(target, new, ids_tensor).unwrap();
        let (mut wanted, y) = (trial.values(target), trial.values(new));
        for [i1, i2, i3, _] in positions([count, planes, cubes, 1]) {
            let id = ids[at([count, p, c, 1], [i1, i2 % p, i3 % c, 0])] as u64;
            let source = at([row, count, planes, cubes], [0, i1, i2, i3]);
            let numbers = &y[source..source + row as usize];
            let numbers = match dtype.block_len() {
                1 => numbers.to_vec(),
                _ => numbers.chunks(32).flat_map(|block| rounded(dtype, block)).collect(),
            };
            let start = at([row, rows, planes, cubes], [0, id, i2, i3]);
            wanted[start..start + row as usize].copy_from_slice(&numbers);
        }
        assert_eq!(trial.result(written), wanted, "seed {seed}: {} into {}", trial.layout(new), trial.layout(target));
    }
}

/// Perhaps with gaps between rows, but none within.
fn dense_rows(trial: &mut FilledContext, dtype: DataType, shape: [u64; 4]) -> TensorId {
    loop {
        let tensor = trial.strided(dtype, shape);
        if trial.layout(tensor).has_contiguous_rows() && trial.layout(tensor).ne() == shape {
            return tensor;
        }
    }
}

#[test]
fn ids_that_name_no_row_are_named() {
    for (id, wrong) in
        [(7.0, "no such row: expected an id below 4, got 7"), (-1.0, "no such row: expected an id below 4, got -1")]
    {
        let mut trial = FilledContext::new(1);
        let (a, ids) = (trial.leaf(DataType::F32, &[8, 4]), trial.given(DataType::I32, &[3], &[0.0, id, 3.0]));
        let taken = trial.context.get_rows(a, ids).unwrap();
        assert!(trial.refusal(taken).ends_with(wrong), "{}", trial.refusal(taken));
        let rows = trial.leaf(DataType::F32, &[8, 3]);
        let written = trial.context.set_rows(a, rows, ids).unwrap();
        assert!(trial.refusal(written).ends_with(wrong), "{}", trial.refusal(written));
    }
}

#[test]
fn a_copy_into_places_that_share_bytes_ends_with_the_last() {
    let mut trial = FilledContext::new(1);
    let (a, root) = (trial.leaf(DataType::F32, &[4096, 64]), trial.leaf(DataType::F32, &[4096]));
    let all = trial.context.view_2d(root, [4096, 64], 0, Bytes(0)).unwrap();
    let copy = trial.context.cpy(a, all).unwrap();
    for threads in [1, 2, 3] {
        let bytes = trial.run(&[copy], threads, 0).unwrap().remove(0);
        assert_eq!(read(&trial.layout(root), &bytes), trial.values(a)[63 * 4096..]);
    }
}
