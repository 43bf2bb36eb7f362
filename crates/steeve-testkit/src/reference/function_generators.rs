//! Recipes of functions, norms, soft-max, positions, sums and orders.

use steeve_graph::{DataType, Glu, GraphError, Op, Param, Rope, RopeMode, SoftMax, SortOrder, TensorId, Unary};

use super::case::Values;
use super::op_generators::{F32, SourceForm, like, source};
use super::random_case::{BuildResult, GraphGenerator};

pub(super) fn unary(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Rows)?;
    let kind = generator.pick(Unary::ALL);
    match kind {
        Unary::Xielu => generator.sketch.context.xielu(a, [0.8, 0.9, 0.5, -1e-6]),
        kind => generator.sketch.context.unary(kind, a),
    }
}

/// Something above zero.
fn positive(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Rows)?;
    let a = generator.sketch.context.abs(a)?;
    generator.sketch.context.scale_bias(a, 1.5, 0.25)
}

pub(super) fn root(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = positive(generator)?;
    generator.sketch.context.sqrt(a)
}

pub(super) fn logarithm(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = positive(generator)?;
    generator.sketch.context.log(a)
}

pub(super) fn square(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    generator.sketch.context.sqr(a)
}

pub(super) fn scale(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Rows)?;
    if generator.below(2) == 0 {
        generator.sketch.context.scale(a, -0.7)
    } else {
        generator.sketch.context.scale_bias(a, 0.8, 0.3)
    }
}

pub(super) fn clamp(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    generator.sketch.context.clamp(a, -0.75, 1.25)
}

pub(super) fn leaky_relu(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    generator.sketch.context.leaky_relu(a, 0.1)
}

pub(super) fn fill(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let filled = generator.sketch.context.apply(Op::Fill, &[Some(a)], &[Param::Float(0.625)])?;
    // The same number everywhere is not worth much, so it is added to what was there.
    generator.sketch.context.add(filled, a)
}

pub(super) fn add_one(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let dtype = generator.layout(a).dtype();
    let one = generator.leaf(dtype, &[1], Values::Within(1.0))?;
    generator.sketch.context.apply(Op::Add1, &[Some(a), Some(one)], &[])
}

/// A number that divides another.
pub(super) fn divisor(generator: &mut GraphGenerator<'_>, of: u64) -> u64 {
    let divisors: Vec<u64> = (1..=of).filter(|part| of.is_multiple_of(*part)).collect();
    generator.pick(&divisors)
}

/// A second source for `a`: of its shape, or one that is repeated.
fn partner(generator: &mut GraphGenerator<'_>, a: TensorId, values: Values) -> BuildResult {
    let layout = generator.layout(a);
    let (ne, dtype) = (layout.ne(), layout.dtype());
    let other_type = generator.float_type();
    let dtype = if generator.below(4) == 0 { other_type } else { dtype };
    match generator.below(4) {
        0 => generator.leaf(dtype, &ne, values),
        1 => {
            let turned = generator.leaf(dtype, &[ne[1], ne[0], ne[2], ne[3]], values)?;
            generator.sketch.context.transpose(turned)
        }
        _ => {
            let shape = ne.map(|n| if generator.below(2) == 0 { n } else { divisor(generator, n) });
            generator.leaf(dtype, &shape, values)
        }
    }
}

pub(super) fn binary(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let ne = generator.layout(a).ne();
    let b = match generator.below(4) {
        0 => generator.value_where(|layout| layout.ne() == ne)?,
        1 if generator.layout(a).has_contiguous_rows() => generator.sketch.context.relu(a)?,
        2 => a,
        _ => partner(generator, a, Values::Within(2.0))?,
    };
    let op = generator.pick(&[Op::Add, Op::Sub, Op::Mul]);
    generator.sketch.context.apply(op, &[Some(a), Some(b)], &[])
}

pub(super) fn division(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let b = partner(generator, a, Values::Positive)?;
    generator.sketch.context.div(a, b)
}

pub(super) fn glu_one(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Rows)?;
    let kind = generator.pick(Glu::ALL);
    generator.sketch.context.glu(kind, a)
}

/// With parameters: halves that are swapped, and limits.
pub(super) fn glu_numbers(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Rows)?;
    let layout = generator.layout(a);
    let params = [Param::Int(1), Param::Float(1.25), Param::Float(1.5)];
    if generator.below(2) == 0 {
        let kind = generator.pick(Glu::ALL);
        return generator.sketch.context.apply(Op::Glu(kind), &[Some(a)], &params);
    }
    let b = generator.leaf(layout.dtype(), &layout.ne(), Values::Within(2.0))?;
    generator.sketch.context.apply(Op::Glu(Glu::SwigluOai), &[Some(a), Some(b)], &params)
}

pub(super) fn glu_two(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Rows)?;
    let layout = generator.layout(a);
    let b = match generator.below(3) {
        0 => generator.sketch.context.silu(a)?,
        1 => generator.value_where(|other| other.ne() == layout.ne() && other.dtype() == layout.dtype())?,
        _ => generator.leaf(layout.dtype(), &layout.ne(), Values::Within(2.0))?,
    };
    let kind = generator.pick(Glu::ALL);
    generator.sketch.context.glu_split(kind, a, b)
}

pub(super) fn silu_back(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let b = like(generator, a)?;
    let sources = if generator.below(2) == 0 { [Some(a), Some(b)] } else { [Some(b), Some(a)] };
    generator.sketch.context.apply(Op::SiluBack, &sources, &[])
}

pub(super) fn norm(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let epsilon = generator.pick(&[1e-3, 0.5]);
    generator.sketch.context.norm(a, epsilon)
}

pub(super) fn rms_norm(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let epsilon = generator.pick(&[1e-5, 0.5]);
    generator.sketch.context.rms_norm(a, epsilon)
}

pub(super) fn l2_norm(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let epsilon = generator.pick(&[1e-6, 3.0]);
    generator.sketch.context.l2_norm(a, epsilon)
}

pub(super) fn group_norm(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let channels = generator.layout(a).ne()[2];
    let groups = 1 + generator.below(channels as usize) as u32;
    let epsilon = generator.pick(&[1e-3, 0.5]);
    generator.sketch.context.group_norm(a, groups, epsilon)
}

pub(super) fn rms_norm_back(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let b = like(generator, a)?;
    let sources = if generator.below(2) == 0 { [Some(a), Some(b)] } else { [Some(b), Some(a)] };
    generator.sketch.context.apply(Op::RmsNormBack, &sources, &[Param::Float(1e-3)])
}

pub(super) fn mask_zero(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let past = generator.below(4) as u32;
    generator.sketch.context.diag_mask_zero(a, past)
}

pub(super) fn causal(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let past = generator.below(4) as u32;
    let masked = generator.sketch.context.diag_mask_inf(a, past)?;
    generator.sketch.context.soft_max(masked, None, SoftMax::default())
}

pub(super) fn soft_max(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Packed)?;
    generator.sketch.context.soft_max(a, None, SoftMax { scale: 0.75, max_bias: 0.0 })
}

/// A mask for the rows of `a`, perhaps with rows to spare, one for all heads or one for some.
fn mask(generator: &mut GraphGenerator<'_>, a: TensorId) -> BuildResult {
    let [n0, n1, n2, n3] = generator.layout(a).ne();
    let dtype = generator.pick(&[F32, F32, DataType::F16]);
    let spare = if generator.below(3) == 0 { 2 } else { 0 };
    let (heads, outer) = (divisor(generator, n2), divisor(generator, n3));
    let values = generator.pick(&[Values::Within(3.0), Values::Within(3.0), Values::Hiding(3.0)]);
    generator.leaf(dtype, &[n0, n1 + spare, heads, outer], values)
}

pub(super) fn soft_max_masked(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Packed)?;
    let mask = mask(generator, a)?;
    generator.sketch.context.soft_max(a, Some(mask), SoftMax { scale: 0.5, max_bias: 0.0 })
}

pub(super) fn soft_max_biased(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Packed)?;
    let mask = mask(generator, a)?;
    generator.sketch.context.soft_max(a, Some(mask), SoftMax { scale: 0.5, max_bias: 8.0 })
}

pub(super) fn soft_max_sinks(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Packed)?;
    let mask = mask(generator, a)?;
    let heads = generator.layout(a).ne()[2];
    let sinks = generator.leaf(F32, &[heads], Values::Within(2.0))?;
    let params = [Param::Float(0.5), Param::Float(0.0)];
    generator.sketch.context.apply(Op::SoftMax, &[Some(a), Some(mask), Some(sinks)], &params)
}

pub(super) fn soft_max_back(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let b = like(generator, a)?;
    let sources = if generator.below(2) == 0 { [Some(a), Some(b)] } else { [Some(b), Some(a)] };
    generator.sketch.context.apply(Op::SoftMaxBack, &sources, &[Param::Float(0.5), Param::Float(0.0)])
}

/// Positions, factors and numbers for a rope of `a`.
fn rotation(generator: &mut GraphGenerator<'_>, a: TensorId) -> Result<(TensorId, Option<TensorId>, Rope), GraphError> {
    let [n0, _, n2, _] = generator.layout(a).ne();
    let mode = generator.pick(&[0, 0, 2, 2, 8, 24, 40]);
    let parts = if mode & 8 == 0 { 1 } else { 4 };
    let positions = generator.leaf(DataType::I32, &[n2 * parts], Values::Below(60))?;
    let even = (n0 / 2 * 2) as u32;
    let dims = match mode {
        24 => even / 2,
        _ => generator.pick(&[even, even, even / 4 * 2]),
    };
    let factors = match generator.below(3) {
        0 => Some(generator.leaf(F32, &[n0.max(1)], Values::Positive)?),
        _ => None,
    };
    let sections = if mode & 8 == 0 { [0; 4] } else { [1 + dims / 8, dims / 8, dims / 8, dims / 8] };
    let mode = RopeMode::from_ggml_id(mode).expect("these are the modes");
    let plain = Rope { dims, mode, sections, ..Rope::default() };
    let numbers = match generator.below(3) {
        0 => Rope { context: 128, freq_scale: 0.25, ext_factor: 1.0, attn_factor: 0.9, ..plain },
        1 => Rope { freq_base: 500.0, freq_scale: 0.5, attn_factor: 1.1, ..plain },
        _ => plain,
    };
    Ok((positions, factors, numbers))
}

pub(super) fn rope(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let (positions, factors, numbers) = rotation(generator, a)?;
    generator.sketch.context.rope(a, positions, factors, numbers)
}

pub(super) fn rope_back(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let (positions, factors, numbers) = rotation(generator, a)?;
    // The parameters are those of a rope, so one has to be built.
    let mut other = generator.sketch.context.clone();
    let rope = other.rope(a, positions, factors, numbers)?;
    let params = other.tensors().params(rope).to_vec();
    generator.sketch.context.apply(Op::RopeBack, &[Some(a), Some(positions), factors], &params)
}

pub(super) fn sum(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    generator.sketch.context.sum(a)
}

pub(super) fn sum_rows(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    generator.sketch.context.sum_rows(a)
}

pub(super) fn mean(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    generator.sketch.context.mean(a)
}

pub(super) fn order(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let order = generator.pick(&[SortOrder::Ascending, SortOrder::Descending]);
    generator.sketch.context.argsort(a, order)
}

pub(super) fn largest(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let k = 1 + generator.below(generator.layout(a).ne()[0].min(6) as usize) as u64;
    generator.sketch.context.top_k(a, k)
}
