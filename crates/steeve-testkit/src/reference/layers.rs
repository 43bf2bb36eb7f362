//! Recipes of products: matrices, experts, attention and convolutions.

use steeve_graph::{Bytes, Convolution, DataType, FlashAttention, Order, Pool, SoftMax, Window};

use super::case::Values;
use super::functions::divisor;
use super::generate::{Built, World};
use super::recipes::{F32, Form, source, weight};

pub(super) fn product(world: &mut World<'_>) -> Built {
    let b = source(world, Form::Any)?;
    let [n0, _, n2, n3] = world.layout(b).ne();
    let rows = world.pick(&[1, 3, 8, 16, 17, 32, 65]);
    let (heads, outer) = (divisor(world, n2), divisor(world, n3));
    let weight = weight(world, &[n0, rows, heads, outer])?;
    world.sketch.context.mul_mat(weight, b)
}

/// A product of two values, one of which is repeated over some heads.
pub(super) fn scores(world: &mut World<'_>) -> Built {
    let q = source(world, Form::Any)?;
    let layout = world.layout(q);
    let [n0, _, n2, n3] = layout.ne();
    let k = match world.below(3) {
        0 => q,
        1 => {
            let heads = if n2.is_multiple_of(2) { n2 / 2 } else { 1 };
            let keys = world.leaf(F32, &[n0, heads, 5, n3], Values::Within(0.5))?;
            world.sketch.context.permute(keys, [0, 2, 1, 3])?
        }
        _ => world.value_where(|k| k.ne()[0] == n0 && n2.is_multiple_of(k.ne()[2]) && n3.is_multiple_of(k.ne()[3]))?,
    };
    let scores = world.sketch.context.mul_mat(k, q)?;
    world.sketch.context.scale(scores, 0.25)
}

pub(super) fn experts(world: &mut World<'_>) -> Built {
    let b = source(world, Form::Any)?;
    let [n0, n1, n2, _] = world.layout(b).ne();
    let weight = weight(world, &[n0, 8, 4])?;
    let used = n1 * (1 + world.below(2) as u64);
    let ids = world.leaf(DataType::I32, &[used, n2], Values::Below(4))?;
    world.sketch.context.mul_mat_id(weight, b, ids)
}

/// The weights of the experts that were chosen.
pub(super) fn mixture(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Packed)?;
    let [n0, n1, ..] = world.layout(a).ne();
    let a = world.sketch.context.view_2d(a, [n0, n1], world.layout(a).nb()[1], Bytes(0))?;
    let shares = world.sketch.context.soft_max(a, None, SoftMax::default())?;
    let k = n0.min(2);
    let chosen = match world.below(2) {
        0 => world.sketch.context.top_k(shares, k)?,
        _ => {
            let order = world.sketch.context.argsort(shares, Order::Descending)?;
            world.sketch.context.view_2d(order, [k, n1], 4 * n0, Bytes(0))?
        }
    };
    let single = world.sketch.context.reshape(shares, &[1, n0, n1])?;
    let weights = world.sketch.context.get_rows(single, chosen)?;
    let experts = weight(world, &[8, 6, n0])?;
    let tokens = world.leaf(F32, &[8, 1, n1], Values::Within(1.0))?;
    let mixed = world.sketch.context.mul_mat_id(experts, tokens, chosen)?;
    world.sketch.context.mul(mixed, weights)
}

/// Heads of queries that share heads of keys and values, which stand in a cache the way models have them.
pub(super) fn attention(world: &mut World<'_>) -> Built {
    let (d, dv) = (world.pick(&[8, 16, 32]), world.pick(&[8, 16, 32]));
    let (kv_heads, share, tokens, keys) = (world.pick(&[1, 2]), world.pick(&[1, 2, 3]), world.many(5), world.many(9));
    let (heads, outer) = (kv_heads * share, world.pick(&[1, 1, 2]));
    let q = match world.below(2) {
        0 => world.leaf(F32, &[d, tokens, heads, outer], Values::Within(1.5))?,
        _ => {
            let q = world.leaf(F32, &[d, heads, tokens, outer], Values::Within(1.5))?;
            world.sketch.context.permute(q, [0, 2, 1, 3])?
        }
    };
    let types = [DataType::F16, DataType::F16, F32, DataType::Bf16, DataType::Q8_0];
    let dtype = world.pick(if d == 32 && dv == 32 { &types } else { &types[..4] });
    let mut rows = |width: u64| {
        let all = world.leaf(dtype, &[width, kv_heads, keys, outer], Values::Within(1.5))?;
        world.sketch.context.permute(all, [0, 2, 1, 3])
    };
    let (k, v) = (rows(d)?, rows(dv)?);
    let scale = 1.0 / (d as f32).sqrt();
    let plain = FlashAttention { scale, ..FlashAttention::default() };
    match world.below(4) {
        0 => world.sketch.context.flash_attn_ext(q, k, v, None, plain),
        1 => world.sketch.context.flash_attn_ext(q, k, v, None, FlashAttention { softcap: 3.0, ..plain }),
        kind => {
            let rows = tokens + if world.below(2) == 0 { 3 } else { 0 };
            let values = world.pick(&[Values::Within(3.0), Values::Hiding(3.0)]);
            let (some, more) = (divisor(world, heads), divisor(world, outer));
            let mask = world.leaf(DataType::F16, &[keys, rows, some, more], values)?;
            let max_bias = if kind == 2 { 0.0 } else { 4.0 };
            world.sketch.context.flash_attn_ext(q, k, v, Some(mask), FlashAttention { max_bias, ..plain })
        }
    }
}

/// How a kernel moves.
fn convolving(world: &mut World<'_>) -> Convolution {
    let mut both = |items: &[u32]| [world.pick(items), world.pick(items)];
    Convolution { stride: both(&[1, 1, 2]), padding: both(&[0, 1, 2]), dilation: both(&[1, 1, 2]) }
}

fn kernel(world: &mut World<'_>, shape: &[u64]) -> Built {
    let dtype = world.pick(&[F32, DataType::F16]);
    world.sketch.external(dtype, shape, Values::Within(0.5))
}

pub(super) fn patches(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let kernel = kernel(world, &[2, 2, world.layout(a).ne()[2], 3])?;
    let (way, dtype) = (convolving(world), world.pick(&[F32, DataType::F16]));
    world.sketch.context.im2col(kernel, a, way, dtype)
}

pub(super) fn convolution(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let kernel = kernel(world, &[3, 3, world.layout(a).ne()[2], 4])?;
    let way = convolving(world);
    world.sketch.context.conv_2d(kernel, a, way)
}

pub(super) fn convolution_1d(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let kernel = kernel(world, &[3, world.layout(a).ne()[1], 4])?;
    let way = convolving(world);
    world.sketch.context.conv_1d(kernel, a, way)
}

pub(super) fn pool_1d(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let pool = world.pick(&[Pool::Max, Pool::Mean]);
    let (size, stride) = (1 + world.below(3) as u32, 1 + world.below(3) as u32);
    let padding = world.below(size as usize) as u32;
    world.sketch.context.pool_1d(a, pool, size, stride, padding)
}

pub(super) fn pool_2d(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let pool = world.pick(&[Pool::Max, Pool::Mean]);
    let size = [1 + world.below(3) as u32, 1 + world.below(3) as u32];
    let stride = [1 + world.below(3) as u32, 1 + world.below(3) as u32];
    // A fraction counts for the size of the result, and is cut where the window moves.
    let padding = size.map(|size| world.below(size as usize) as f32 + world.pick(&[0.0, 0.0, 0.5]));
    world.sketch.context.pool_2d(a, pool, Window { size, stride, padding })
}
