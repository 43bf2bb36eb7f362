//! Attention against soft-max over all scores at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use filled_context::{FilledContext, assert_close};
use steeve_graph::{DataType, FlashAttention, Op, Param, TensorId};

struct AttentionCase {
    q: TensorId,
    k: TensorId,
    v: TensorId,
    mask: Option<TensorId>,
    sinks: Option<TensorId>,
    numbers: FlashAttention,
}

/// Element `[i0, i1, i2, i3]` of a shape, in order; positions beyond the shape start over.
fn at(ne: [u64; 4], position: [u64; 4]) -> usize {
    let [i0, i1, i2, i3] = std::array::from_fn(|dim| position[dim] % ne[dim]);
    (i0 + ne[0] * (i1 + ne[1] * (i2 + ne[2] * i3))) as usize
}

fn slope(head: u64, heads: u64, max_bias: f64) -> f64 {
    if max_bias <= 0.0 {
        return 1.0;
    }
    let whole = 1u64 << heads.ilog2();
    match head < whole {
        true => 2f64.powf(-max_bias / whole as f64 * (head + 1) as f64),
        false => 2f64.powf(-max_bias / 2.0 / whole as f64 * (2 * (head - whole) + 1) as f64),
    }
}

fn naive(trial: &FilledContext, case: &AttentionCase) -> Vec<f64> {
    let values = |tensor: TensorId| (trial.layout(tensor).ne(), trial.values(tensor));
    let ((qn, q), (kn, k), (vn, v)) = (values(case.q), values(case.k), values(case.v));
    let (mask, sinks) = (case.mask.map(values), case.sinks.map(|sinks| trial.values(sinks)));
    let [d, tokens, heads, outer] = qn;
    let (scale, softcap) = (f64::from(case.numbers.scale), f64::from(case.numbers.softcap));
    let mut wanted = Vec::new();
    for i3 in 0..outer {
        for token in 0..tokens {
            for head in 0..heads {
                let (k_head, v_head) = (head / (heads / kn[2]), head / (heads / vn[2]));
                let mut scores: Vec<f64> = (0..kn[1])
                    .map(|key| {
                        let dot: f64 =
                            (0..d).map(|i| q[at(qn, [i, token, head, i3])] * k[at(kn, [i, key, k_head, i3])]).sum();
                        let score = if softcap == 0.0 { dot * scale } else { softcap * (dot * scale / softcap).tanh() };
                        let bias = mask.as_ref().map_or(0.0, |(mn, mask)| mask[at(*mn, [key, token, head, i3])]);
                        score + slope(head, heads, case.numbers.max_bias.into()) * bias
                    })
                    .collect();
                if let Some(sinks) = &sinks {
                    scores.push(sinks[head as usize]);
                }
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let total: f64 = weights.iter().sum();
                for i in 0..vn[0] {
                    let sum: f64 = (0..kn[1]).map(|key| weights[key as usize] * v[at(vn, [i, key, v_head, i3])]).sum();
                    wanted.push(if most == f64::NEG_INFINITY { 0.0 } else { sum / total });
                }
            }
        }
    }
    wanted
}

fn result(trial: &mut FilledContext, case: &AttentionCase) -> TensorId {
    let numbers = [case.numbers.scale, case.numbers.max_bias, case.numbers.softcap].map(Param::Float);
    let sources = [Some(case.q), Some(case.k), Some(case.v), case.mask, case.sinks];
    trial.context.apply(Op::FlashAttnExt, &sources, &numbers).unwrap()
}

#[test]
fn attention_is_a_soft_max_over_all_keys() {
    for seed in 0..80 {
        let mut trial = FilledContext::new(seed);
        let dtype = trial.pick(&[DataType::F32, DataType::F16, DataType::Bf16, DataType::Q8_0, DataType::Q4_0]);
        let step = dtype.block_len();
        let (d, dv) = (step * (1 + trial.below(3)), step * (1 + trial.below(3)));
        let [d, dv] = if step == 1 { [d * 7, dv * 9] } else { [d, dv] };
        let (tokens, keys) = (trial.pick(&[1, 2, 5, 30, 70]), trial.pick(&[1, 3, 40, 257, 300, 513]));
        let (groups, group) = (1 + trial.below(3), trial.pick(&[1, 2, 3]));
        let (heads, outer) = (groups * group, 1 + trial.below(2));
        let queries = trial.pick(&[DataType::F32, DataType::F32, DataType::F16]);
        let q = trial.strided(queries, [d, tokens, heads, outer]);
        let k = trial.strided(dtype, [d, keys, groups, outer]);
        let v_heads = trial.pick(&[groups, groups, heads]);
        let v = trial.strided(dtype, [dv, keys, v_heads, outer]);
        let masked = trial.below(3) > 0;
        let mask = masked.then(|| {
            let (m2, m3) = (trial.pick(&[1, heads]), trial.pick(&[1, outer]));
            let numbers: Vec<f64> = (0..keys * (tokens + 2) * m2 * m3)
                .map(|_| if trial.below(3) == 0 { f64::NEG_INFINITY } else { f64::from(trial.number()) })
                .collect();
            trial.given(DataType::F16, &[keys, tokens + 2, m2, m3], &numbers)
        });
        let sinks = (trial.below(4) == 0).then(|| trial.leaf(DataType::F32, &[heads]));
        let numbers = FlashAttention {
            scale: 1.0 / (d as f32).sqrt(),
            max_bias: if masked { trial.pick(&[0.0, 8.0]) } else { 0.0 },
            softcap: trial.pick(&[0.0, 0.0, 5.0]),
        };
        let case = AttentionCase { q, k, v, mask, sinks, numbers };
        let ours = result(&mut trial, &case);
        let what = format!("seed {seed}: {} {} {}", trial.layout(q), trial.layout(k), trial.layout(v));
        assert_close(&trial.result(ours), &naive(&trial, &case), 1e-5, &what);
    }
}

#[test]
fn what_the_mask_hides_is_never_looked_at() {
    for tokens in [1, 40] {
        let mut trial = FilledContext::new(3);
        let (keys, hole) = (300, [0, 100, 299]);
        let spoiled = |key: u64| hole.contains(&key) || key >= 280;
        let q = trial.leaf(DataType::F32, &[32, tokens, 2]);
        let rows = |scale: f64| -> Vec<f64> {
            (0..2 * keys)
                .flat_map(|row| (0..32).map(move |i| (row % keys, i)))
                .map(|(key, i)| if spoiled(key) { f64::NAN } else { scale * ((key * 7 + i * 3) % 11) as f64 / 11.0 })
                .collect()
        };
        let (keys_data, values_data) = (rows(1.0), rows(-1.0));
        let k = trial.given(DataType::F32, &[32, keys, 2], &keys_data);
        let v = trial.given(DataType::F32, &[32, keys, 2], &values_data);
        let mask: Vec<f64> =
            (0..tokens * keys).map(|i| if spoiled(i % keys) { f64::NEG_INFINITY } else { 0.0 }).collect();
        let mask = Some(trial.given(DataType::F16, &[keys, tokens], &mask));
        let numbers = FlashAttention { scale: 0.2, ..Default::default() };
        let ours = result(&mut trial, &AttentionCase { q, k, v, mask, sinks: None, numbers });
        assert!(trial.result(ours).iter().all(|x| x.is_finite()), "{tokens} tokens");
    }
}

#[test]
fn a_query_that_sees_nothing_gives_nothing() {
    let mut trial = FilledContext::new(1);
    let (q, k) = (trial.leaf(DataType::F32, &[8, 2, 2]), trial.leaf(DataType::F32, &[8, 5, 1]));
    let v = trial.leaf(DataType::F32, &[6, 5, 1]);
    let hidden = [0.0, 0.0, 0.0, 0.0, 0.0].into_iter().chain([f64::NEG_INFINITY; 5]).collect::<Vec<_>>();
    let mask = trial.given(DataType::F16, &[5, 2], &hidden);
    let numbers = FlashAttention { scale: 1.0, ..Default::default() };
    let ours = trial.context.flash_attn_ext(q, k, v, Some(mask), numbers).unwrap();
    let numbers = trial.result(ours);
    assert!(numbers[..12].iter().all(|x| *x != 0.0) && numbers[12..].iter().all(|x| *x == 0.0), "{numbers:?}");
}

#[test]
fn no_keys_give_nothing() {
    let mut trial = FilledContext::new(1);
    let (q, k) = (trial.leaf(DataType::F32, &[8, 2, 2]), trial.leaf(DataType::F32, &[8, 0, 1]));
    let v = trial.leaf(DataType::F32, &[6, 0, 1]);
    let ours = trial.context.flash_attn_ext(q, k, v, None, FlashAttention::default()).unwrap();
    assert_eq!(trial.result(ours), vec![0.0; 24]);
}

#[test]
fn heads_and_masks_that_do_not_fit_are_refused() {
    let mut trial = FilledContext::new(1);
    let (q, k) = (trial.leaf(DataType::F32, &[8, 2, 4]), trial.leaf(DataType::F32, &[8, 5, 2]));
    let v = trial.leaf(DataType::F32, &[6, 5, 3]);
    let error = trial.context.flash_attn_ext(q, k, v, None, FlashAttention::default()).unwrap_err().to_string();
    assert!(error.ends_with("the heads of the values must divide those of the queries"), "{error}");
    let (v, mask) = (trial.leaf(DataType::F32, &[6, 5, 2]), trial.leaf(DataType::F16, &[4, 2]));
    let error = trial.context.flash_attn_ext(q, k, v, Some(mask), FlashAttention::default()).unwrap_err().to_string();
    assert!(error.ends_with("the mask must have an element for each key"), "{error}");
}
