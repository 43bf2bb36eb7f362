//! Matrix products against sums that are written down.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use filled_context::formats::{FORMATS, rounded_for};
use filled_context::{FilledContext, assert_close};
use steeve_graph::{Bytes, DataType, TensorId};

/// `[m, n]` for each plane, as ggml repeats the first source.
fn naive(trial: &FilledContext, a: TensorId, b: TensorId) -> Vec<f64> {
    let ([k, m, a2, a3], [_, n, b2, b3]) = (trial.layout(a).ne(), trial.layout(b).ne());
    let (x, y) = (trial.values(a), multiplied(trial, a, b));
    let mut wanted = Vec::new();
    for i3 in 0..b3 {
        for i2 in 0..b2 {
            let plane = i2 / (b2 / a2) + a2 * (i3 / (b3 / a3));
            for j in 0..n {
                for i in 0..m {
                    let row = |start: u64| (start * k) as usize..((start + 1) * k) as usize;
                    let (x, y) = (&x[row(i + m * plane)], &y[row(j + n * (i2 + b2 * i3))]);
                    wanted.push(x.iter().zip(y).map(|(x, y)| x * y).sum());
                }
            }
        }
    }
    wanted
}

/// What the rows of `b` are when they are multiplied with those of `a`.
fn multiplied(trial: &FilledContext, a: TensorId, b: TensorId) -> Vec<f64> {
    let (dtype, k) = (trial.layout(a).dtype(), trial.layout(b).ne()[0] as usize);
    trial.values(b).chunks(k).flat_map(|row| rounded_for(dtype, row)).collect()
}

/// Floats as often as blocks.
fn weights(trial: &mut FilledContext) -> DataType {
    match trial.below(2) {
        0 => trial.pick(&[DataType::F32, DataType::F16, DataType::Bf16]),
        _ => trial.pick(&FORMATS),
    }
}

#[test]
fn products_are_sums_of_products_for_all_types_and_strides() {
    for seed in 0..500 {
        let mut trial = FilledContext::new(seed);
        let weights = weights(&mut trial);
        let k = match weights.block_len() {
            1 => trial.pick(&[1, 2, 3, 7, 33, 64, 130]),
            block => block * (1 + trial.below(384 / block)),
        };
        let (m, n) = (trial.pick(&[1, 2, 5, 17, 20, 40, 131]), trial.pick(&[1, 2, 3, 4, 8, 9, 17, 33, 40]));
        let (a2, a3) = (1 + trial.below(2), 1 + trial.below(2));
        let (r2, r3) = (1 + trial.below(3), 1 + trial.below(2));
        let a = trial.strided(weights, [k, m, a2, a3]);
        if trial.layout(a).is_transposed() {
            continue;
        }
        let other = trial.pick(&[DataType::F32, DataType::F32, DataType::F16, DataType::Bf16]);
        let b = trial.strided(other, [k, n, a2 * r2, a3 * r3]);
        let product = trial.context.mul_mat(a, b).unwrap();
        let what = format!("{} with {}", trial.layout(a), trial.layout(b));
        assert_close(&trial.result(product), &naive(&trial, a, b), 1e-5, &what);
    }
}

#[test]
fn long_and_wide_products_are_cut_without_a_seam() {
    for (dtype, [k, m, n]) in [
        (DataType::F32, [1100, 130, 20]),
        (DataType::F16, [2080, 50, 17]),
        (DataType::Q4_0, [1056, 140, 520]),
        (DataType::Q8_0, [2048, 300, 1]),
        (DataType::Q4K, [2048, 300, 1]),
        (DataType::Q6K, [512, 700, 261]),
        (DataType::Q5_1, [1056, 300, 270]),
        (DataType::Mxfp4, [320, 1700, 3]),
        (DataType::F32, [40, 3, 600]),
    ] {
        let mut trial = FilledContext::new(k);
        let (a, b) = (trial.leaf(dtype, &[k, m]), trial.leaf(DataType::F32, &[k, n]));
        let product = trial.context.mul_mat(a, b).unwrap();
        // What is added up is several times as large as the sum where blocks have least elements.
        use DataType::{Q2K, Q4_1, Q4K, Q5_1, Q5K};
        let tolerance = if matches!(dtype, Q4_1 | Q5_1 | Q2K | Q4K | Q5K) { 5e-5 } else { 2e-5 };
        assert_close(&trial.result(product), &naive(&trial, a, b), tolerance, &format!("{dtype} {k} {m} {n}"));
    }
}

#[test]
fn a_sum_of_nothing_is_zero() {
    for n in [1, 40] {
        let mut trial = FilledContext::new(n);
        let (a, b) = (trial.leaf(DataType::F32, &[1, 20]), trial.leaf(DataType::F32, &[0, n]));
        // Without a step from row to row it would count as transposed.
        let a = trial.context.view_2d(a, [0, 20], 4, Bytes(0)).unwrap();
        let product = trial.context.mul_mat(a, b).unwrap();
        assert_eq!(trial.result(product), vec![0.0; 20 * n as usize]);
    }
}

#[test]
fn nothing_is_made_of_no_rows() {
    for (m, n) in [(0, 3), (3, 0), (0, 0)] {
        let mut trial = FilledContext::new(1);
        let (a, b) = (trial.leaf(DataType::F32, &[8, m]), trial.leaf(DataType::F32, &[8, n]));
        let product = trial.context.mul_mat(a, b).unwrap();
        assert!(trial.result(product).is_empty());
    }
}

#[test]
fn what_can_not_be_multiplied_says_so() {
    let mut trial = FilledContext::new(1);
    let (a, b) = (trial.context.external(DataType::Iq4Xs, &[256, 4]).unwrap(), trial.leaf(DataType::F32, &[256, 1]));
    let product = trial.context.mul_mat(a, b).unwrap();
    assert!(trial.refusal(product).ends_with("no conversion of iq4_xs to f32"), "{}", trial.refusal(product));
}

#[test]
fn each_token_gets_the_experts_that_its_ids_name() {
    for seed in 0..250 {
        let mut trial = FilledContext::new(seed);
        let weights = weights(&mut trial);
        let k = match weights.block_len() {
            1 => trial.pick(&[1, 3, 33, 100]),
            block => block * (1 + trial.below(3)),
        };
        let (m, count) = (trial.pick(&[1, 5, 40, 150]), 1 + trial.below(5));
        let (used, tokens) = (1 + trial.below(4), trial.pick(&[1, 2, 9, 70]));
        let rows = trial.pick(&[1, used]);
        let experts = trial.strided(weights, [k, m, count, 1]);
        if trial.layout(experts).is_transposed() {
            continue;
        }
        let b = trial.strided(DataType::F32, [k, rows, tokens, 1]);
        let ids: Vec<f64> = (0..used * tokens).map(|_| trial.below(count) as f64).collect();
        let ids_tensor = trial.given(DataType::I32, &[used, tokens], &ids);
        let product = trial.context.mul_mat_id(experts, b, ids_tensor).unwrap();
        let (x, y) = (trial.values(experts), multiplied(&trial, experts, b));
        let mut wanted = Vec::new();
        for (pair, id) in ids.iter().enumerate() {
            let (slot, token) = (pair as u64 % used, pair as u64 / used);
            let start = ((slot % rows + rows * token) * k) as usize;
            for i in 0..m {
                let row = ((i + m * *id as u64) * k) as usize;
                let (x, y) = (&x[row..row + k as usize], &y[start..start + k as usize]);
                wanted.push(x.iter().zip(y).map(|(x, y)| x * y).sum());
            }
        }
        let what = format!("seed {seed}: {} with {}", trial.layout(experts), trial.layout(b));
        assert_close(&trial.result(product), &wanted, 1e-5, &what);
    }
}

#[test]
fn ids_that_name_no_expert_are_named() {
    for (id, wrong) in [
        (3.0, "no such expert: expected an id below 3, got 3"),
        (-2.0, "no such expert: expected an id below 3, got -2"),
    ] {
        let mut trial = FilledContext::new(1);
        let (experts, b) = (trial.leaf(DataType::F32, &[8, 4, 3]), trial.leaf(DataType::F32, &[8, 1, 2]));
        let ids = trial.given(DataType::I32, &[2, 2], &[0.0, 1.0, id, 2.0]);
        let product = trial.context.mul_mat_id(experts, b, ids).unwrap();
        assert!(trial.refusal(product).ends_with(wrong), "{}", trial.refusal(product));
    }
}

/// Both kinds of rows that can't be rounded: the products with them are NaN, and no others are touched.
#[test]
fn what_is_no_number_stays_in_its_column() {
    for dtype in FORMATS {
        for odd in [f64::NAN, f64::INFINITY] {
            let mut trial = FilledContext::new(3);
            let mut numbers: Vec<f64> = (0..3 * 256).map(|_| f64::from(trial.number())).collect();
            numbers[256 + 17] = odd;
            let (a, b) = (trial.leaf(dtype, &[256, 5]), trial.given(DataType::F32, &[256, 3], &numbers));
            let product = trial.context.mul_mat(a, b).unwrap();
            let made = trial.result(product);
            for (column, made) in made.chunks(5).enumerate() {
                assert!(made.iter().all(|x| x.is_nan() == (column == 1)), "{dtype}, {odd}: {made:?}");
            }
        }
    }
}

/// The price of eight bits: half of a 127th part of the farthest element, for each.
#[test]
fn rounding_costs_no_more_than_half_a_step() {
    for dtype in FORMATS {
        let mut trial = FilledContext::new(4);
        let (a, b) = (trial.leaf(dtype, &[512, 9]), trial.leaf(DataType::F32, &[512, 2]));
        let product = trial.context.mul_mat(a, b).unwrap();
        let (made, x, y) = (trial.result(product), trial.values(a), trial.values(b));
        for (index, made) in made.iter().enumerate() {
            let (x, y) = (&x[index % 9 * 512..][..512], &y[index / 9 * 512..][..512]);
            let exact: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
            let most = 0.501 / 127.0 * x.iter().map(|x| x.abs()).sum::<f64>();
            assert!((made - exact).abs() <= most, "{dtype}: {made}, exactly {exact}, give or take {most}");
        }
    }
}
