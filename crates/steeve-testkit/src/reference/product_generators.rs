//! Recipes of products: matrices, experts, attention and convolutions.

use steeve_graph::{Bytes, Convolution, DataType, FlashAttention, Pool, SoftMax, SortOrder, Window};

use super::case::Values;
use super::function_generators::divisor;
use super::op_generators::{F32, SourceForm, source, weight};
use super::random_case::{BuildResult, GraphGenerator};

pub(super) fn product(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let b = source(generator, SourceForm::Any)?;
    let [n0, _, n2, n3] = generator.layout(b).ne();
    let rows = generator.pick(&[1, 3, 8, 16, 17, 32, 65]);
    let (heads, outer) = (divisor(generator, n2), divisor(generator, n3));
    let weight = weight(generator, &[n0, rows, heads, outer])?;
    generator.sketch.context.mul_mat(weight, b)
}

/// Products with a computed matrix, before and after it is written again.
pub(super) fn rewritten(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let (row, rows, tokens) = (generator.pick(&[8, 16, 33]), generator.pick(&[1, 3, 8]), generator.many(6));
    let numbers = generator.leaf(F32, &[row, rows], Values::Within(0.5))?;
    let matrix = generator.sketch.context.scale(numbers, 0.5)?;
    let others = generator.leaf(F32, &[row, rows], Values::Within(0.5))?;
    let b = generator.leaf(F32, &[row, tokens], Values::Within(1.0))?;
    let before = generator.sketch.context.mul_mat(matrix, b)?;
    let written = generator.sketch.context.cpy(others, matrix)?;
    let read = generator.pick(&[written, matrix]);
    let after = generator.sketch.context.mul_mat(read, b)?;
    generator.sketch.context.sub(before, after)
}

/// A product of two values, one of which is repeated over some heads.
pub(super) fn scores(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let q = source(generator, SourceForm::Any)?;
    let layout = generator.layout(q);
    let [n0, _, n2, n3] = layout.ne();
    let k = match generator.below(3) {
        0 => q,
        1 => {
            let heads = if n2.is_multiple_of(2) { n2 / 2 } else { 1 };
            let keys = generator.leaf(F32, &[n0, heads, 5, n3], Values::Within(0.5))?;
            generator.sketch.context.permute(keys, [0, 2, 1, 3])?
        }
        _ => generator
            .value_where(|k| k.ne()[0] == n0 && n2.is_multiple_of(k.ne()[2]) && n3.is_multiple_of(k.ne()[3]))?,
    };
    let scores = generator.sketch.context.mul_mat(k, q)?;
    generator.sketch.context.scale(scores, 0.25)
}

pub(super) fn experts(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let b = source(generator, SourceForm::Any)?;
    let [n0, n1, n2, _] = generator.layout(b).ne();
    let weight = weight(generator, &[n0, 8, 4])?;
    let used = n1 * (1 + generator.below(2) as u64);
    let ids = generator.leaf(DataType::I32, &[used, n2], Values::Below(4))?;
    generator.sketch.context.mul_mat_id(weight, b, ids)
}

/// The weights of the experts that were chosen.
pub(super) fn mixture(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Packed)?;
    let [n0, n1, ..] = generator.layout(a).ne();
    let a = generator.sketch.context.view_2d(a, [n0, n1], generator.layout(a).nb()[1], Bytes(0))?;
    let shares = generator.sketch.context.soft_max(a, None, SoftMax::default())?;
    let k = n0.min(2);
    let chosen = match generator.below(2) {
        0 => generator.sketch.context.top_k(shares, k)?,
        _ => {
            let order = generator.sketch.context.argsort(shares, SortOrder::Descending)?;
            generator.sketch.context.view_2d(order, [k, n1], 4 * n0, Bytes(0))?
        }
    };
    let single = generator.sketch.context.reshape(shares, &[1, n0, n1])?;
    let weights = generator.sketch.context.get_rows(single, chosen)?;
    let experts = weight(generator, &[8, 6, n0])?;
    let tokens = generator.leaf(F32, &[8, 1, n1], Values::Within(1.0))?;
    let mixed = generator.sketch.context.mul_mat_id(experts, tokens, chosen)?;
    generator.sketch.context.mul(mixed, weights)
}

/// Heads of queries that share heads of keys and values, with a cache laid out as in real models.
pub(super) fn attention(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let (d, dv) = (generator.pick(&[8, 16, 32]), generator.pick(&[8, 16, 32]));
    let (kv_heads, share, tokens, keys) =
        (generator.pick(&[1, 2]), generator.pick(&[1, 2, 3]), generator.many(5), generator.many(9));
    let (heads, outer) = (kv_heads * share, generator.pick(&[1, 1, 2]));
    let q = match generator.below(2) {
        0 => generator.leaf(F32, &[d, tokens, heads, outer], Values::Within(1.5))?,
        _ => {
            let q = generator.leaf(F32, &[d, heads, tokens, outer], Values::Within(1.5))?;
            generator.sketch.context.permute(q, [0, 2, 1, 3])?
        }
    };
    let types = [DataType::F16, DataType::F16, F32, DataType::Bf16, DataType::Q8_0];
    let dtype = generator.pick(if d == 32 && dv == 32 { &types } else { &types[..4] });
    let mut rows = |width: u64| {
        let all = generator.leaf(dtype, &[width, kv_heads, keys, outer], Values::Within(1.5))?;
        generator.sketch.context.permute(all, [0, 2, 1, 3])
    };
    let (k, v) = (rows(d)?, rows(dv)?);
    let scale = 1.0 / (d as f32).sqrt();
    let plain = FlashAttention { scale, ..FlashAttention::default() };
    match generator.below(4) {
        0 => generator.sketch.context.flash_attn_ext(q, k, v, None, plain),
        1 => generator.sketch.context.flash_attn_ext(q, k, v, None, FlashAttention { softcap: 3.0, ..plain }),
        kind => {
            let rows = tokens + if generator.below(2) == 0 { 3 } else { 0 };
            let values = generator.pick(&[Values::Within(3.0), Values::Hiding(3.0)]);
            let (some, more) = (divisor(generator, heads), divisor(generator, outer));
            let mask = generator.leaf(DataType::F16, &[keys, rows, some, more], values)?;
            let max_bias = if kind == 2 { 0.0 } else { 4.0 };
            generator.sketch.context.flash_attn_ext(q, k, v, Some(mask), FlashAttention { max_bias, ..plain })
        }
    }
}

/// The strides, paddings and dilations of a convolution.
fn convolving(generator: &mut GraphGenerator<'_>) -> Convolution {
    let mut both = |items: &[u32]| [generator.pick(items), generator.pick(items)];
    Convolution { stride: both(&[1, 1, 2]), padding: both(&[0, 1, 2]), dilation: both(&[1, 1, 2]) }
}

fn kernel(generator: &mut GraphGenerator<'_>, shape: &[u64]) -> BuildResult {
    let dtype = generator.pick(&[F32, DataType::F16]);
    generator.sketch.external(dtype, shape, Values::Within(0.5))
}

pub(super) fn patches(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let kernel = kernel(generator, &[2, 2, generator.layout(a).ne()[2], 3])?;
    let (plan_variant, dtype) = (convolving(generator), generator.pick(&[F32, DataType::F16]));
    generator.sketch.context.im2col(kernel, a, plan_variant, dtype)
}

pub(super) fn convolution(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let kernel = kernel(generator, &[3, 3, generator.layout(a).ne()[2], 4])?;
    let plan_variant = convolving(generator);
    generator.sketch.context.conv_2d(kernel, a, plan_variant)
}

/// Two convolutions of one image that make images of one size, as where a block has a shortcut; then rows in pairs.
pub(super) fn shortcut(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let channels = generator.layout(a).ne()[2];
    let (wide, narrow) = (kernel(generator, &[3, 3, channels, 4])?, kernel(generator, &[1, 1, channels, 4])?);
    let stride = generator.pick(&[[1, 1], [1, 2], [2, 1]]);
    let with_padding = |padding| Convolution { stride, padding: [padding; 2], dilation: [1, 1] };
    let wide = generator.sketch.context.conv_2d(wide, a, with_padding(1))?;
    let narrow = generator.sketch.context.conv_2d(narrow, a, with_padding(0))?;
    let sum = generator.sketch.context.add(wide, narrow)?;
    let [width, height, channels, images] = generator.layout(sum).ne();
    if !height.is_multiple_of(2) || generator.below(2) == 0 {
        return Ok(sum);
    }
    let pairs = generator.sketch.context.reshape(sum, &[2 * width, height / 2, channels, images])?;
    generator.sketch.context.tanh(pairs)
}

pub(super) fn convolution_1d(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let kernel = kernel(generator, &[3, generator.layout(a).ne()[1], 4])?;
    let plan_variant = convolving(generator);
    generator.sketch.context.conv_1d(kernel, a, plan_variant)
}

pub(super) fn pool_1d(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let pool = generator.pick(&[Pool::Max, Pool::Mean]);
    let (size, stride) = (1 + generator.below(3) as u32, 1 + generator.below(3) as u32);
    let padding = generator.below(size as usize) as u32;
    generator.sketch.context.pool_1d(a, pool, size, stride, padding)
}

pub(super) fn pool_2d(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let pool = generator.pick(&[Pool::Max, Pool::Mean]);
    let size = [1 + generator.below(3) as u32, 1 + generator.below(3) as u32];
    let stride = [1 + generator.below(3) as u32, 1 + generator.below(3) as u32];
    // A fraction counts for the size of the result, and is cut where the window moves.
    let padding = size.map(|size| generator.below(size as usize) as f32 + generator.pick(&[0.0, 0.0, 0.5]));
    generator.sketch.context.pool_2d(a, pool, Window { size, stride, padding })
}
