//! What is made of whole rows, against the same written down in double precision.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use filled_context::{FilledContext, assert_close};
use steeve_graph::{DataType, Op, Param, Rope, RopeMode, SoftMax, SortOrder, TensorId};

const FLOATS: [DataType; 3] = [DataType::F32, DataType::F16, DataType::Bf16];

fn tolerance(dtype: DataType) -> f64 {
    match dtype {
        DataType::F16 => 1e-3,
        DataType::Bf16 => 1e-2,
        _ => 4e-6,
    }
}

/// A tensor of some shape and type, with any strides.
fn some(trial: &mut FilledContext) -> TensorId {
    let dtype = trial.pick(&FLOATS);
    let shape =
        [trial.pick(&[1, 2, 7, 8, 33, 200]), trial.pick(&[1, 2, 5]), trial.pick(&[1, 3, 4]), trial.pick(&[1, 2])];
    trial.strided(dtype, shape)
}

/// Applies a function to each row of the values.
fn by_rows(trial: &FilledContext, tensor: TensorId, mut function: impl FnMut(usize, &[f64]) -> Vec<f64>) -> Vec<f64> {
    let length = trial.layout(tensor).ne()[0].max(1) as usize;
    trial.values(tensor).chunks(length).enumerate().flat_map(|(i, row)| function(i, row)).collect()
}

fn mean(row: &[f64]) -> f64 {
    row.iter().sum::<f64>() / row.len() as f64
}

fn squares(row: &[f64]) -> f64 {
    row.iter().map(|x| x * x).sum()
}

#[test]
fn norms_divide_rows_by_what_they_say() {
    const EPSILON: f64 = 1e-3;
    type ExactRow = fn(&[f64]) -> Vec<f64>;
    let cases: [(Op, ExactRow); 3] = [
        (Op::Norm, |row| {
            let centred: Vec<f64> = row.iter().map(|x| x - mean(row)).collect();
            let deviation = (squares(&centred) / row.len() as f64 + EPSILON).sqrt();
            centred.iter().map(|x| x / deviation).collect()
        }),
        (Op::RmsNorm, |row| {
            let rms = (squares(row) / row.len() as f64 + EPSILON).sqrt();
            row.iter().map(|x| x / rms).collect()
        }),
        (Op::L2Norm, |row| row.iter().map(|x| x / squares(row).sqrt().max(EPSILON)).collect()),
    ];
    for seed in 0..60 {
        for (op, exact) in cases {
            let mut trial = FilledContext::new(seed);
            let a = some(&mut trial);
            let to = trial.context.apply(op, &[Some(a)], &[Param::Float(EPSILON as f32)]).unwrap();
            let wanted = by_rows(&trial, a, |_, row| exact(row));
            let what = format!("{} of {}", op.name(), trial.layout(a));
            assert_close(&trial.result(to), &wanted, tolerance(trial.layout(a).dtype()), &what);
        }
    }
}

#[test]
fn the_gradient_of_rms_norm_is_its_slope() {
    let (mut trial, n) = (FilledContext::new(4), 9usize);
    let (gradient, x) = (trial.strided(DataType::F32, [9, 3, 2, 1]), trial.strided(DataType::F32, [9, 3, 2, 1]));
    let to = trial.context.apply(Op::RmsNormBack, &[Some(gradient), Some(x)], &[Param::Float(0.01)]).unwrap();
    let norm = |row: &[f64]| -> Vec<f64> {
        let rms = (squares(row) / row.len() as f64 + 0.01).sqrt();
        row.iter().map(|x| x / rms).collect()
    };
    let gradients = trial.values(gradient);
    let wanted = by_rows(&trial, x, |index, row| {
        (0..n)
            .map(|i| {
                let moved = |by: f64| {
                    let mut row = row.to_vec();
                    row[i] += by;
                    norm(&row).iter().zip(&gradients[index * n..]).map(|(z, dz)| z * dz).sum::<f64>()
                };
                (moved(1e-5) - moved(-1e-5)) / 2e-5
            })
            .collect()
    });
    assert_close(&trial.result(to), &wanted, 1e-5, "rms_norm_back");
}

#[test]
fn groups_of_channels_are_normed_together() {
    for seed in 0..80 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&FLOATS);
        let [w, h] = [trial.pick(&[1, 2, 7, 40]), trial.pick(&[1, 3, 33])];
        let (channels, outer) = (1 + trial.below(7), 1 + trial.below(2));
        let a = trial.strided(dtype, [w, h, channels, outer]);
        let groups = 1 + trial.below(9) as u32;
        let to = trial.context.group_norm(a, groups, 1e-3).unwrap();
        let per_group = channels.div_ceil(groups.into());
        let plane = (w * h) as usize;
        let wanted: Vec<f64> = trial
            .values(a)
            .chunks(plane * channels as usize)
            .flat_map(|image| image.chunks(plane * per_group as usize))
            .flat_map(|group| {
                let centred: Vec<f64> = group.iter().map(|x| x - mean(group)).collect();
                let deviation = (squares(&centred) / group.len() as f64 + 1e-3).sqrt();
                centred.into_iter().map(move |x| x / deviation)
            })
            .collect();
        let what = format!("{groups} groups of {}", trial.layout(a));
        assert_close(&trial.result(to), &wanted, tolerance(dtype), &what);
    }
}

#[test]
fn the_part_above_the_diagonal_is_masked() {
    for seed in 0..60 {
        let mut trial = FilledContext::new(seed);
        let (a, past) = (some(&mut trial), trial.below(5) as u32);
        let (inf, zero) =
            (trial.context.diag_mask_inf(a, past).unwrap(), trial.context.diag_mask_zero(a, past).unwrap());
        let rows = trial.layout(a).ne()[1] as usize;
        for (to, value) in [(inf, f64::NEG_INFINITY), (zero, 0.0)] {
            let wanted = by_rows(&trial, a, |index, row| {
                let above = |i: usize| i > past as usize + index % rows;
                row.iter().enumerate().map(|(i, x)| if above(i) { value } else { *x }).collect()
            });
            assert_close(&trial.result(to), &wanted, 0.0, &format!("{} {past}", trial.layout(a)));
        }
    }
}

#[test]
fn soft_max_scales_masks_and_leaves_a_share_to_the_sink() {
    for seed in 0..150 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&FLOATS);
        let (m2, m3) = (trial.pick(&[1, 2]), trial.pick(&[1, 2]));
        let [n, rows] = [trial.pick(&[1, 3, 16, 37, 300]), trial.pick(&[1, 2, 5])];
        let (heads, outer) = (m2 * trial.pick(&[1, 3, 4]), m3 * trial.pick(&[1, 2]));
        let a = trial.leaf(dtype, &[n, rows, heads, outer]);
        let mask = (trial.below(4) > 0).then(|| {
            let dtype = trial.pick(&[DataType::F32, DataType::F16]);
            let more = trial.below(3);
            trial.leaf(dtype, &[n, rows + more, m2, m3])
        });
        let max_bias = if mask.is_some() { trial.pick(&[0.0, 8.0]) } else { 0.0 };
        let sinks = (trial.below(2) > 0).then(|| trial.leaf(DataType::F32, &[heads]));
        let params = [Param::Float(1.75), Param::Float(max_bias)];
        let to = trial.context.apply(Op::SoftMax, &[Some(a), mask, sinks], &params).unwrap();
        let first = 1usize << heads.ilog2();
        let slope = |head: usize| match head < first {
            _ if max_bias == 0.0 => 1.0,
            true => 2f64.powf(-f64::from(max_bias) / first as f64).powf(head as f64 + 1.0),
            false => 2f64.powf(-f64::from(max_bias) / 2.0 / first as f64).powf(2.0 * (head - first) as f64 + 1.0),
        };
        let masks = mask.map(|mask| (trial.values(mask), trial.layout(mask).ne()[1]));
        let sinks = sinks.map(|sinks| trial.values(sinks));
        let wanted = by_rows(&trial, a, |index, row| {
            let index = index as u64;
            let [i1, i2, i3] = [index % rows, index / rows % heads, index / rows / heads];
            let head = i2 as usize;
            let added = |i: usize| {
                let Some((mask, more)) = &masks else { return 0.0 };
                slope(head) * mask[i + (n * (i1 + more * (i2 % m2 + m2 * (i3 % m3)))) as usize]
            };
            let powers: Vec<f64> = row.iter().enumerate().map(|(i, x)| (x * 1.75 + added(i)).exp()).collect();
            let total = powers.iter().sum::<f64>() + sinks.as_ref().map_or(0.0, |sinks| sinks[head].exp());
            powers.iter().map(|x| x / total).collect()
        });
        let what = format!("{} {mask:?} {max_bias}", trial.layout(a));
        assert_close(&trial.result(to), &wanted, tolerance(dtype), &what);
    }
}

#[test]
fn a_masked_element_has_no_share() {
    let mut trial = FilledContext::new(1);
    let a = trial.given(DataType::F32, &[4], &[1.0, 2.0, 1.0, 50.0]);
    let mask = trial.given(DataType::F16, &[4], &[0.0, f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY]);
    let to = trial.context.soft_max(a, Some(mask), SoftMax::default()).unwrap();
    assert_eq!(trial.result(to), [0.5, 0.0, 0.5, 0.0]);
}

#[test]
fn the_gradient_of_soft_max_is_its_slope() {
    for seed in 0..20 {
        let mut trial = FilledContext::new(seed);
        let (gradient, y) = (trial.strided(DataType::F32, [19, 3, 2, 1]), trial.strided(DataType::F32, [19, 3, 2, 1]));
        let params = [Param::Float(0.5), Param::Float(0.0)];
        let to = trial.context.apply(Op::SoftMaxBack, &[Some(gradient), Some(y)], &params).unwrap();
        let gradients = trial.values(gradient);
        let wanted = by_rows(&trial, y, |index, y| {
            let dy = &gradients[index * 19..][..19];
            let dot: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            y.iter().zip(dy).map(|(y, dy)| 0.5 * y * (dy - dot)).collect()
        });
        assert_close(&trial.result(to), &wanted, 4e-6, "soft_max_back");
    }
}

/// Which part of a position pair `pair` is turned by, and by how many steps its angle has shrunk.
fn part_of(mode: u32, sections: [usize; 4], pair: usize) -> (usize, usize) {
    if mode & 8 == 0 {
        return (0, pair);
    }
    let sector = pair % sections.iter().sum::<usize>();
    if mode == 40 {
        let turn = sector % 3;
        return (if sector < 3 * sections[turn] { turn } else { 3 }, pair);
    }
    let mut start = 0;
    for (part, length) in sections.into_iter().enumerate() {
        if sector < start + length {
            return (part, if mode == 24 { sector - start } else { pair });
        }
        start += length;
    }
    unreachable!("a sector is in a section")
}

#[test]
fn rope_turns_pairs_by_their_positions() {
    for seed in 0..200 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&FLOATS);
        let mode = trial.pick(&[0u32, 2, 8, 24, 40]);
        let dims = trial.pick(&[2u64, 8, 24]);
        let length = if mode == 24 { 2 * dims } else { dims + trial.pick(&[0, 1, 6]) };
        let [heads, tokens, outer] = [1 + trial.below(4), 1 + trial.below(5), 1 + trial.below(2)];
        let a = trial.strided(dtype, [length, heads, tokens, outer]);
        let parts = if mode & 8 == 0 { 1 } else { 4 };
        let places: Vec<f64> = (0..tokens * parts).map(|_| trial.below(50) as f64 - 10.0).collect();
        let positions = trial.given(DataType::I32, &[tokens * parts], &places);
        let pairs = if mode == 24 { dims } else { dims / 2 } as usize;
        let factors = (trial.below(2) > 0).then(|| {
            let numbers: Vec<f64> = (0..pairs).map(|_| 1.0 + trial.below(8) as f64 / 8.0).collect();
            trial.given(DataType::F32, &[pairs as u64], &numbers)
        });
        // Where angles start over, ggml forgets it for a section behind an empty one.
        let least = if mode == 24 { 1 } else { 0 };
        let sections = [1, least, least, least].map(|least| least + trial.below(3) as u32);
        let numbers = Rope {
            dims: dims as u32,
            mode: RopeMode::from_ggml_id(mode.into()).unwrap(),
            context: 512,
            freq_base: 100.0,
            freq_scale: trial.pick(&[1.0, 0.25]),
            ext_factor: trial.pick(&[0.0, 1.0, 0.5]),
            attn_factor: trial.pick(&[1.0, 1.5]),
            beta_fast: 32.0,
            beta_slow: 1.0,
            sections,
        };
        let forward = trial.context.rope(a, positions, factors, numbers).unwrap();
        let params = trial.context.tensors().params(forward).to_vec();
        let back = trial.context.apply(Op::RopeBack, &[Some(a), Some(positions), factors], &params).unwrap();

        let factors = factors.map(|factors| trial.values(factors));
        let turns = |beta: f64| dims as f64 * (512.0 / (beta * std::f64::consts::TAU)).ln() / (2.0 * 100f64.ln());
        let (low, high) = (turns(32.0).floor().max(0.0), turns(1.0).ceil().min(dims as f64 - 1.0));
        let [scale, mixed, magnitude] = [numbers.freq_scale, numbers.ext_factor, numbers.attn_factor].map(f64::from);
        for (to, sign) in [(forward, 1.0), (back, -1.0)] {
            let wanted = by_rows(&trial, a, |index, row| {
                let token = index as u64 / heads % tokens;
                let mut row = row.to_vec();
                for pair in 0..pairs {
                    let (part, shrunk) = part_of(mode, sections.map(|it| it as usize), pair);
                    let position = places[(token + part as u64 * tokens) as usize];
                    let own = position * 100f64.powf(-2.0 * shrunk as f64 / dims as f64)
                        / factors.as_ref().map_or(1.0, |factors| factors[pair]);
                    let along = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    let mix = (1.0 - along) * mixed;
                    let angle = own * scale * (1.0 - mix) + own * mix;
                    let magnitude = if mixed == 0.0 { magnitude } else { magnitude * (1.0 - 0.1 * scale.ln()) };
                    let (sin, cos) = angle.sin_cos();
                    let (sin, cos) = (sin * magnitude * sign, cos * magnitude);
                    let (i, j) = match mode {
                        0 => (2 * pair, 2 * pair + 1),
                        _ => (pair, pair + pairs),
                    };
                    (row[i], row[j]) = (row[i] * cos - row[j] * sin, row[i] * sin + row[j] * cos);
                }
                row
            });
            let what = format!("seed {seed}: {numbers:?} of {}", trial.layout(a));
            assert_close(&trial.result(to), &wanted, 10.0 * tolerance(dtype), &what);
        }
    }
}

#[test]
fn rope_refuses_what_it_can_not_turn() {
    let mut trial = FilledContext::new(1);
    let (a, positions) = (trial.leaf(DataType::F32, &[8, 2, 3]), trial.given(DataType::I32, &[3], &[0.0, 1.0, 2.0]));
    let four = trial.leaf(DataType::I32, &[12]);
    let rope = |dims, mode| Rope { dims, mode, ..Rope::default() };
    let whole = Rope { sections: [1; 4], ..rope(8, RopeMode::Vision) };
    for (positions, numbers) in
        [(positions, rope(10, RopeMode::Normal)), (positions, rope(3, RopeMode::Neox)), (four, whole)]
    {
        let error = trial.context.rope(a, positions, None, numbers).unwrap_err().to_string();
        assert!(error.ends_with("the rotated elements of a row must be pairs"), "{error}");
    }
    // ggml's numbers, of which not all are modes.
    let to = trial.context.rope(a, positions, None, rope(8, RopeMode::Normal)).unwrap();
    let mut params = trial.context.tensors().params(to).to_vec();
    params[1] = Param::Int(4);
    let to = trial.context.apply(Op::Rope, &[Some(a), Some(positions)], &params).unwrap();
    let why = trial.refusal(to);
    assert!(why.ends_with("mode: unknown: expected 0, 2, 8, 24 or 40, got 4"), "{why}");
    let to = trial.context.rope(a, four, None, rope(8, RopeMode::Sections)).unwrap();
    let why = trial.refusal(to);
    assert!(why.ends_with("sections: no pairs or too many: expected at most 2^30 in each, got [0, 0, 0, 0]"), "{why}");
}

#[test]
fn sums_and_means_are_what_they_are() {
    for seed in 0..80 {
        let mut trial = FilledContext::new(seed);
        let a = some(&mut trial);
        let dtype = trial.layout(a).dtype();
        let (sum, rows) = (trial.context.sum(a).unwrap(), trial.context.sum_rows(a).unwrap());
        let means = trial.context.mean(a).unwrap();
        let all = trial.values(a);
        // A sum of numbers with few digits is exact before it is stored.
        let total = all.iter().sum();
        assert_close(&trial.result(sum), &[total], tolerance(dtype), &format!("sum of {}", trial.layout(a)));
        let wanted = by_rows(&trial, a, |_, row| vec![row.iter().sum()]);
        assert_close(&trial.result(rows), &wanted, tolerance(dtype), "sum_rows");
        assert_close(&trial.result(means), &by_rows(&trial, a, |_, row| vec![mean(row)]), 1e-6, "mean");
    }
}

#[test]
fn whole_numbers_are_added_up() {
    let mut trial = FilledContext::new(1);
    let a = trial.given(DataType::I32, &[3, 2], &[f64::from(i32::MAX), 1.0, 1.0, -4.0, 1.0, -3.0]);
    let (sum, rows) = (trial.context.sum(a).unwrap(), trial.context.sum_rows(a).unwrap());
    let means = trial.context.mean(a).unwrap();
    assert_eq!(trial.result(sum), [f64::from(i32::MAX.wrapping_add(2).wrapping_sub(6))]);
    assert_eq!(trial.result(rows), [f64::from(i32::MIN + 1), -6.0]);
    assert_eq!(trial.result(means), [f64::from((f64::from(i32::MAX) + 2.0) as f32 / 3.0), -2.0]);
}

#[test]
fn nothing_adds_up_to_nothing() {
    let mut trial = FilledContext::new(1);
    let a = trial.leaf(DataType::F32, &[0, 3]);
    let (sum, rows) = (trial.context.sum(a).unwrap(), trial.context.sum_rows(a).unwrap());
    assert_eq!((trial.result(sum), trial.result(rows)), (vec![0.0], vec![0.0; 3]));
}

#[test]
fn long_and_many_rows_are_cut_without_a_seam() {
    for shape in [[50_000, 3, 1, 1], [1, 40_000, 1, 1], [3, 5, 1000, 2], [700, 40, 1, 2]] {
        let mut trial = FilledContext::new(shape[0]);
        let a = trial.leaf(DataType::F32, &shape);
        let (norm, sums) = (trial.context.rms_norm(a, 1e-5).unwrap(), trial.context.sum_rows(a).unwrap());
        let soft = trial.context.soft_max(a, None, SoftMax::default()).unwrap();
        let groups = trial.context.group_norm(a, 7, 1e-5).unwrap();
        let wanted = by_rows(&trial, a, |_, row| {
            let rms = (squares(row) / row.len() as f64 + 1e-5).sqrt();
            row.iter().map(|x| x / rms).collect()
        });
        assert_close(&trial.result(norm), &wanted, 2e-6, "rms_norm");
        assert_close(&trial.result(sums), &by_rows(&trial, a, |_, row| vec![row.iter().sum()]), 2e-6, "sum_rows");
        let shares: Vec<f64> = trial.result(soft).chunks(shape[0] as usize).map(|row| row.iter().sum()).collect();
        assert_close(&shares, &vec![1.0; shares.len()], 1e-5, "shares");
        let all = trial.result(groups);
        assert!(mean(&all).abs() < 1e-5, "a normed tensor has no mean");
    }
}

/// Indices of a row in order; equal elements stay in theirs.
fn sorted(row: &[f64], order: SortOrder) -> Vec<f64> {
    let mut indices: Vec<usize> = (0..row.len()).collect();
    indices.sort_by(|&i, &j| match order {
        SortOrder::Ascending => row[i].total_cmp(&row[j]),
        SortOrder::Descending => row[j].total_cmp(&row[i]),
    });
    indices.into_iter().map(|i| i as f64).collect()
}

#[test]
fn orders_are_stable() {
    for seed in 0..80 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&[DataType::F32, DataType::F16, DataType::Bf16, DataType::I32]);
        let shape = [trial.pick(&[1, 2, 9, 100, 999]), 1 + trial.below(4), 1 + trial.below(3), 1];
        let a = trial.strided(dtype, shape);
        for order in [SortOrder::Ascending, SortOrder::Descending] {
            let to = trial.context.argsort(a, order).unwrap();
            let wanted = by_rows(&trial, a, |_, row| sorted(row, order));
            assert_eq!(trial.result(to), wanted, "{order:?} {}", trial.layout(a));
        }
        let k = trial.below(shape[0] + 1);
        let to = trial.context.top_k(a, k).unwrap();
        let wanted = by_rows(&trial, a, |_, row| sorted(row, SortOrder::Descending)[..k as usize].to_vec());
        assert_eq!(trial.result(to), wanted, "{k} of {}", trial.layout(a));
    }
}
