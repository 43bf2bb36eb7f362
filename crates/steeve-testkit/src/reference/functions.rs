//! Recipes of functions, norms, soft-max, positions, sums and orders.

use steeve_graph::{DataType, Glu, GraphError, Op, Order, Param, Rope, RopeMode, SoftMax, TensorId, Unary};

use super::case::Values;
use super::generate::{Built, World};
use super::recipes::{F32, Form, like, source};

pub(super) fn unary(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Rows)?;
    let kind = world.pick(Unary::ALL);
    match kind {
        Unary::Xielu => world.sketch.context.xielu(a, [0.8, 0.9, 0.5, -1e-6]),
        kind => world.sketch.context.unary(kind, a),
    }
}

/// Something above zero.
fn positive(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Rows)?;
    let a = world.sketch.context.abs(a)?;
    world.sketch.context.scale_bias(a, 1.5, 0.25)
}

pub(super) fn root(world: &mut World<'_>) -> Built {
    let a = positive(world)?;
    world.sketch.context.sqrt(a)
}

pub(super) fn logarithm(world: &mut World<'_>) -> Built {
    let a = positive(world)?;
    world.sketch.context.log(a)
}

pub(super) fn square(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    world.sketch.context.sqr(a)
}

pub(super) fn scale(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Rows)?;
    if world.below(2) == 0 { world.sketch.context.scale(a, -0.7) } else { world.sketch.context.scale_bias(a, 0.8, 0.3) }
}

pub(super) fn clamp(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    world.sketch.context.clamp(a, -0.75, 1.25)
}

pub(super) fn leaky_relu(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    world.sketch.context.leaky_relu(a, 0.1)
}

pub(super) fn fill(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let filled = world.sketch.context.apply(Op::Fill, &[Some(a)], &[Param::Float(0.625)])?;
    // The same number everywhere is not worth much, so it is added to what was there.
    world.sketch.context.add(filled, a)
}

pub(super) fn add_one(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let dtype = world.layout(a).dtype();
    let one = world.leaf(dtype, &[1], Values::Within(1.0))?;
    world.sketch.context.apply(Op::Add1, &[Some(a), Some(one)], &[])
}

/// A number that divides another.
pub(super) fn divisor(world: &mut World<'_>, of: u64) -> u64 {
    let divisors: Vec<u64> = (1..=of).filter(|part| of.is_multiple_of(*part)).collect();
    world.pick(&divisors)
}

/// A second source for `a`: of its shape, or one that is repeated.
fn partner(world: &mut World<'_>, a: TensorId, values: Values) -> Built {
    let layout = world.layout(a);
    let (ne, dtype) = (layout.ne(), layout.dtype());
    let other_type = world.float_type();
    let dtype = if world.below(4) == 0 { other_type } else { dtype };
    match world.below(4) {
        0 => world.leaf(dtype, &ne, values),
        1 => {
            let turned = world.leaf(dtype, &[ne[1], ne[0], ne[2], ne[3]], values)?;
            world.sketch.context.transpose(turned)
        }
        _ => {
            let shape = ne.map(|n| if world.below(2) == 0 { n } else { divisor(world, n) });
            world.leaf(dtype, &shape, values)
        }
    }
}

pub(super) fn binary(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let ne = world.layout(a).ne();
    let b = match world.below(4) {
        0 => world.value_where(|layout| layout.ne() == ne)?,
        1 if world.layout(a).has_contiguous_rows() => world.sketch.context.relu(a)?,
        2 => a,
        _ => partner(world, a, Values::Within(2.0))?,
    };
    let op = world.pick(&[Op::Add, Op::Sub, Op::Mul]);
    world.sketch.context.apply(op, &[Some(a), Some(b)], &[])
}

pub(super) fn division(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let b = partner(world, a, Values::Positive)?;
    world.sketch.context.div(a, b)
}

pub(super) fn glu_one(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Rows)?;
    let kind = world.pick(Glu::ALL);
    world.sketch.context.glu(kind, a)
}

/// With parameters: halves that are swapped, and limits.
pub(super) fn glu_numbers(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Rows)?;
    let layout = world.layout(a);
    let params = [Param::Int(1), Param::Float(1.25), Param::Float(1.5)];
    if world.below(2) == 0 {
        let kind = world.pick(Glu::ALL);
        return world.sketch.context.apply(Op::Glu(kind), &[Some(a)], &params);
    }
    let b = world.leaf(layout.dtype(), &layout.ne(), Values::Within(2.0))?;
    world.sketch.context.apply(Op::Glu(Glu::SwigluOai), &[Some(a), Some(b)], &params)
}

pub(super) fn glu_two(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Rows)?;
    let layout = world.layout(a);
    let b = match world.below(3) {
        0 => world.sketch.context.silu(a)?,
        1 => world.value_where(|other| other.ne() == layout.ne() && other.dtype() == layout.dtype())?,
        _ => world.leaf(layout.dtype(), &layout.ne(), Values::Within(2.0))?,
    };
    let kind = world.pick(Glu::ALL);
    world.sketch.context.glu_split(kind, a, b)
}

pub(super) fn silu_back(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let b = like(world, a)?;
    let sources = if world.below(2) == 0 { [Some(a), Some(b)] } else { [Some(b), Some(a)] };
    world.sketch.context.apply(Op::SiluBack, &sources, &[])
}

pub(super) fn norm(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let epsilon = world.pick(&[1e-3, 0.5]);
    world.sketch.context.norm(a, epsilon)
}

pub(super) fn rms_norm(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let epsilon = world.pick(&[1e-5, 0.5]);
    world.sketch.context.rms_norm(a, epsilon)
}

pub(super) fn l2_norm(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let epsilon = world.pick(&[1e-6, 3.0]);
    world.sketch.context.l2_norm(a, epsilon)
}

pub(super) fn group_norm(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let channels = world.layout(a).ne()[2];
    let groups = 1 + world.below(channels as usize) as u32;
    let epsilon = world.pick(&[1e-3, 0.5]);
    world.sketch.context.group_norm(a, groups, epsilon)
}

pub(super) fn rms_norm_back(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let b = like(world, a)?;
    let sources = if world.below(2) == 0 { [Some(a), Some(b)] } else { [Some(b), Some(a)] };
    world.sketch.context.apply(Op::RmsNormBack, &sources, &[Param::Float(1e-3)])
}

pub(super) fn mask_zero(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let past = world.below(4) as u32;
    world.sketch.context.diag_mask_zero(a, past)
}

pub(super) fn causal(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let past = world.below(4) as u32;
    let masked = world.sketch.context.diag_mask_inf(a, past)?;
    world.sketch.context.soft_max(masked, None, SoftMax::default())
}

pub(super) fn soft_max(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Packed)?;
    world.sketch.context.soft_max(a, None, SoftMax { scale: 0.75, max_bias: 0.0 })
}

/// A mask for the rows of `a`, perhaps with rows to spare, one for all heads or one for some.
fn mask(world: &mut World<'_>, a: TensorId) -> Built {
    let [n0, n1, n2, n3] = world.layout(a).ne();
    let dtype = world.pick(&[F32, F32, DataType::F16]);
    let spare = if world.below(3) == 0 { 2 } else { 0 };
    let (heads, outer) = (divisor(world, n2), divisor(world, n3));
    let values = world.pick(&[Values::Within(3.0), Values::Within(3.0), Values::Hiding(3.0)]);
    world.leaf(dtype, &[n0, n1 + spare, heads, outer], values)
}

pub(super) fn soft_max_masked(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Packed)?;
    let mask = mask(world, a)?;
    world.sketch.context.soft_max(a, Some(mask), SoftMax { scale: 0.5, max_bias: 0.0 })
}

pub(super) fn soft_max_biased(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Packed)?;
    let mask = mask(world, a)?;
    world.sketch.context.soft_max(a, Some(mask), SoftMax { scale: 0.5, max_bias: 8.0 })
}

pub(super) fn soft_max_sinks(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Packed)?;
    let mask = mask(world, a)?;
    let heads = world.layout(a).ne()[2];
    let sinks = world.leaf(F32, &[heads], Values::Within(2.0))?;
    let params = [Param::Float(0.5), Param::Float(0.0)];
    world.sketch.context.apply(Op::SoftMax, &[Some(a), Some(mask), Some(sinks)], &params)
}

pub(super) fn soft_max_back(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let b = like(world, a)?;
    let sources = if world.below(2) == 0 { [Some(a), Some(b)] } else { [Some(b), Some(a)] };
    world.sketch.context.apply(Op::SoftMaxBack, &sources, &[Param::Float(0.5), Param::Float(0.0)])
}

/// Positions, factors and numbers for a rope of `a`.
fn rotation(world: &mut World<'_>, a: TensorId) -> Result<(TensorId, Option<TensorId>, Rope), GraphError> {
    let [n0, _, n2, _] = world.layout(a).ne();
    let mode = world.pick(&[0, 0, 2, 2, 8, 24, 40]);
    let parts = if mode & 8 == 0 { 1 } else { 4 };
    let positions = world.leaf(DataType::I32, &[n2 * parts], Values::Below(60))?;
    let even = (n0 / 2 * 2) as u32;
    let dims = match mode {
        24 => even / 2,
        _ => world.pick(&[even, even, even / 4 * 2]),
    };
    let factors = match world.below(3) {
        0 => Some(world.leaf(F32, &[n0.max(1)], Values::Positive)?),
        _ => None,
    };
    let sections = if mode & 8 == 0 { [0; 4] } else { [1 + dims / 8, dims / 8, dims / 8, dims / 8] };
    let mode = RopeMode::from_ggml_id(mode).expect("these are the modes");
    let plain = Rope { dims, mode, sections, ..Rope::default() };
    let numbers = match world.below(3) {
        0 => Rope { context: 128, freq_scale: 0.25, ext_factor: 1.0, attn_factor: 0.9, ..plain },
        1 => Rope { freq_base: 500.0, freq_scale: 0.5, attn_factor: 1.1, ..plain },
        _ => plain,
    };
    Ok((positions, factors, numbers))
}

pub(super) fn rope(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let (positions, factors, numbers) = rotation(world, a)?;
    world.sketch.context.rope(a, positions, factors, numbers)
}

pub(super) fn rope_back(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let (positions, factors, numbers) = rotation(world, a)?;
    // The parameters are those of a rope, which somebody has to build.
    let mut other = world.sketch.context.clone();
    let rope = other.rope(a, positions, factors, numbers)?;
    let params = other.tensors().params(rope).to_vec();
    world.sketch.context.apply(Op::RopeBack, &[Some(a), Some(positions), factors], &params)
}

pub(super) fn sum(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    world.sketch.context.sum(a)
}

pub(super) fn sum_rows(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    world.sketch.context.sum_rows(a)
}

pub(super) fn mean(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    world.sketch.context.mean(a)
}

pub(super) fn order(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let order = world.pick(&[Order::Ascending, Order::Descending]);
    world.sketch.context.argsort(a, order)
}

pub(super) fn largest(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let k = 1 + world.below(world.layout(a).ne()[0].min(6) as usize) as u64;
    world.sketch.context.top_k(a, k)
}
