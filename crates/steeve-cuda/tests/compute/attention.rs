//! Attention: one query and many, over every type of cache.

use steeve_cpu::CpuBackend;
use steeve_graph::{DataType, FlashAttention, Op, Param};

use crate::frame::on_each_gpu;
use crate::proof::{Where, run_node};
use crate::reference::{CaseBuilder, Values, contents_of};

/// Longer keys than one block takes, grouped heads, masks, every type of cache.
#[test]
fn attention_over_many_keys_is_right() {
    on_each_gpu(100, |proof| {
        for dtype in [DataType::F32, DataType::F16, DataType::Bf16, DataType::Q8_0, DataType::Q4_0] {
            let sizes = [[64, 1000, 1], [128, 700, 2], [32, 300, 17], [96, 5, 3], [256, 130, 1], [512, 140, 2]];
            let long = [[128, 9000, 1], [64, 9000, 3]];
            for [d, keys, tokens] in sizes.into_iter().chain(long) {
                let mut sketch = proof.sketch();
                let q = sketch.input(DataType::F32, &[d, tokens, 4], Values::Within(1.0)).unwrap();
                let k = sketch.external(dtype, &[d, keys, 2], Values::Within(1.0)).unwrap();
                let v = sketch.external(dtype, &[d, keys, 2], Values::Within(1.0)).unwrap();
                let mask = sketch.input(DataType::F16, &[keys, tokens], Values::Hiding(2.0)).unwrap();
                let numbers = FlashAttention { scale: 0.1, ..FlashAttention::default() };
                let out = sketch.context.flash_attn_ext(q, k, v, Some(mask), numbers).unwrap();
                proof.prove(sketch, &[out], format_args!("{dtype} {d} {keys} {tokens}"));
            }
        }
    });
}

/// A mask of f16: zeros, and minus infinity where `hides` of a token and a key.
fn mask_of(keys: u64, tokens: u64, hides: impl Fn(u64, u64) -> bool) -> Vec<u8> {
    let all = (0..tokens).flat_map(|token| (0..keys).map(move |key| (token, key)));
    all.flat_map(|(token, key)| (0xfc00 * u16::from(hides(token, key))).to_le_bytes()).collect()
}

/// Prompts: as many queries as tensor cores are for, of all sizes of heads, with every kind of mask.
#[test]
fn attention_of_many_queries_is_right() {
    on_each_gpu(200, |proof| {
        // Elements of keys and of values, keys, tokens, heads of keys, outer.
        let sizes = [
            [64, 64, 200, 70, 2, 1],
            [80, 80, 129, 40, 1, 2],
            [96, 96, 64, 33, 2, 1],
            [128, 128, 330, 60, 2, 1],
            [128, 128, 1100, 17, 1, 1],
            [128, 64, 1, 64, 2, 1],
            [40, 128, 130, 65, 3, 1],
            [256, 256, 70, 70, 4, 2],
            [192, 128, 33, 70, 4, 2],
        ];
        for (dtype, [d, dv, keys, tokens, groups, outer]) in
            [DataType::F16, DataType::Bf16].into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size)))
        {
            for (kind, softcap) in [("none", 0.0), ("causal", 0.0), ("hiding", 3.0), ("bias", 0.0)] {
                let (mut sketch, heads) = (proof.sketch(), 2 * groups);
                let q = sketch.input(DataType::F32, &[d, tokens, heads, outer], Values::Within(1.0)).unwrap();
                let k = sketch.external(dtype, &[d, keys, groups, outer], Values::Within(1.0)).unwrap();
                let v = sketch.external(dtype, &[dv, keys, groups, outer], Values::Within(1.0)).unwrap();
                let mask = match kind {
                    "none" => None,
                    "causal" => {
                        let mask = sketch.input(DataType::F16, &[keys, tokens], Values::Same(0.0)).unwrap();
                        // Tokens at the end of all keys, each of which sees those up to its own.
                        let hides = |token, key| key + tokens > keys + token;
                        sketch.contents.last_mut().unwrap().1 = mask_of(keys, tokens, hides);
                        Some(mask)
                    }
                    "hiding" => Some(sketch.input(DataType::F16, &[keys, tokens], Values::Hiding(2.0)).unwrap()),
                    _ => {
                        let shape = [keys, tokens + 3, heads, outer];
                        Some(sketch.input(DataType::F16, &shape, Values::Hiding(2.0)).unwrap())
                    }
                };
                let max_bias = if kind == "bias" { 8.0 } else { 0.0 };
                let numbers = FlashAttention { scale: 0.1, max_bias, softcap };
                let out = sketch.context.flash_attn_ext(q, k, v, mask, numbers).unwrap();
                proof.prove(sketch, &[out], format_args!("{dtype} {d} {dv} {keys} {tokens}, {kind}"));
            }
        }
    });
}

/// What is hidden may be no number, and sinks count: beside the processor, with keys and values that are all numbers there.
#[test]
fn what_is_hidden_from_a_query_never_reaches_it() {
    const D: u64 = 128;
    let floats = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect::<Vec<f32>>();
    on_each_gpu(0, |proof| {
        let cpu = CpuBackend::new(2);
        for (dtype, [keys, tokens, unwritten, poisoned]) in
            [DataType::F16, DataType::Bf16].into_iter().flat_map(|dtype| {
                // All keys behind some were never written; one that a few tokens see is no number.
                [[200, 70, 20, 0], [130, 130, 1, 80], [1400, 40, 600, 0], [1400, 40, 0, 1370]].map(|it| (dtype, it))
            })
        {
            let mut sketch = CaseBuilder::new(keys);
            let q = sketch.input(DataType::F32, &[D, tokens, 4], Values::Within(1.0)).unwrap();
            let k = sketch.external(dtype, &[D, keys, 2], Values::Within(1.0)).unwrap();
            let v = sketch.external(dtype, &[D, keys, 2], Values::Within(1.0)).unwrap();
            let mask = sketch.input(DataType::F16, &[keys, tokens], Values::Same(0.0)).unwrap();
            let seen = keys - unwritten;
            let hides = |token: u64, key: u64| key >= seen || key + tokens > seen + token;
            sketch.contents.last_mut().unwrap().1 = mask_of(keys, tokens, hides);
            let sinks = sketch.external(DataType::F32, &[4], Values::Within(3.0)).unwrap();
            let sources = [q, k, v, mask, sinks].map(Some);
            let numbers = [0.1, 0.0, 0.0].map(Param::Float);
            let out = sketch.context.apply(Op::FlashAttnExt, &sources, &numbers).unwrap();
            let mut case = sketch.case(&[out]).unwrap();
            let wanted = run_node(&cpu, &case.graph, out, &contents_of(&case), Where::Apart).unwrap();
            for (id, bytes) in case.contents.iter_mut().filter(|(id, _)| [k, v].contains(id)) {
                for (number, row) in bytes.chunks_mut(2 * D as usize).enumerate() {
                    let key = number as u64 % keys;
                    if key >= seen || key == poisoned && poisoned > 0 && *id == v {
                        row.fill(0xFF);
                    }
                }
            }
            let made = proof.made(&case, out);
            for (index, (made, wanted)) in floats(&made).into_iter().zip(floats(&wanted)).enumerate() {
                let token = index as u64 / (4 * D);
                let right = match poisoned > 0 && !hides(token, poisoned) {
                    true => made.is_nan(),
                    false => (made - wanted).abs() < 2e-6,
                };
                assert!(right, "{dtype} {keys} {tokens}: element {index} is {made} and should be {wanted}");
            }
        }
    });
}
