//! How each operation gets into a random graph: the list of recipes, and what they all need.

use steeve_graph::{Bytes, DataType, TensorId};

use super::case::Values;
use super::generate::{Built, World};
use super::{functions, layers, places};
use crate::formats::FORMATS;

pub(super) type Recipe = fn(&mut World<'_>) -> Built;

/// All of them; one is as likely as another.
#[rustfmt::skip]
pub(super) const RECIPES: &[Recipe] = &[
    functions::unary, functions::unary, functions::root, functions::logarithm, functions::scale, functions::clamp, functions::leaky_relu,
    functions::square, functions::fill, functions::add_one, functions::binary, functions::binary,
    functions::binary, functions::division, functions::glu_one, functions::glu_numbers, functions::glu_two,
    functions::silu_back, functions::norm, functions::rms_norm, functions::rms_norm, functions::l2_norm,
    functions::group_norm, functions::rms_norm_back, functions::mask_zero, functions::causal, functions::soft_max,
    functions::soft_max_masked, functions::soft_max_biased, functions::soft_max_sinks, functions::soft_max_back,
    functions::rope, functions::rope, functions::rope_back, functions::order, functions::largest, functions::sum,
    functions::sum_rows, functions::mean,
    places::add_rows, places::take_rows, places::take_rows, places::write_rows, places::write_heads,
    places::write_cache, places::write_cache, places::move_cache, places::read_cache, places::read_cache,
    places::join, places::repeat, places::pack, places::pack_shaped, places::duplicate, places::upscale,
    places::pad, places::cast,
    layers::product, layers::product, layers::product, layers::scores, layers::experts, layers::mixture,
    layers::attention, layers::attention, layers::patches, layers::convolution, layers::convolution_1d,
    layers::pool_1d, layers::pool_2d,
    view, view, reshape, branch,
];

/// Leafs that are written through views: rows, and how many of them a small graph has.
pub(super) const CACHES: &[(DataType, [u64; 2])] =
    &[(DataType::F32, [16, 12]), (DataType::F16, [32, 8]), (DataType::Q8_0, [64, 6]), (DataType::Bf16, [8, 9])];

pub(super) const F32: DataType = DataType::F32;

/// What strides a source may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Any.
    Any,
    /// Rows without gaps.
    Rows,
    /// No gaps at all.
    Packed,
}

/// Any value of a form that the operation takes: often as it is, else a view of it or a copy.
pub(super) fn source(world: &mut World<'_>, form: Form) -> Built {
    let a = world.value()?;
    let a = if world.below(3) == 0 { seen_otherwise(world, a)? } else { a };
    let layout = world.layout(a);
    let fits = match form {
        Form::Any => true,
        Form::Rows => layout.has_contiguous_rows(),
        Form::Packed => layout.is_contiguous(),
    };
    if fits { Ok(a) } else { world.sketch.context.cont(a) }
}

/// The same memory, looked at in another way.
pub(super) fn seen_otherwise(world: &mut World<'_>, a: TensorId) -> Built {
    let layout = world.layout(a);
    let (ne, nb) = (layout.ne(), layout.nb());
    let size = layout.dtype().block_bytes();
    match world.below(5) {
        // Part of each row: the others are gaps. Only where a row has none already.
        0 if ne[0] > 1 && layout.has_contiguous_rows() => {
            let skip = world.below(ne[0] as usize) as u64;
            let shape = [ne[0] - skip, ne[1], ne[2], ne[3]];
            let from = if world.below(2) == 0 { skip * size } else { 0 };
            world.sketch.context.view_4d(a, shape, [nb[1], nb[2], nb[3]], Bytes(from))
        }
        // Some of the rows.
        1 if layout.has_contiguous_rows() => {
            let skip = world.below(ne[1] as usize) as u64;
            let shape = [ne[0], ne[1] - skip, ne[2], ne[3]];
            world.sketch.context.view_4d(a, shape, [nb[1], nb[2], nb[3]], Bytes(skip * nb[1]))
        }
        2 => world.sketch.context.transpose(a),
        3 => {
            let axes = world.pick(&[[0, 2, 1, 3], [2, 0, 1, 3], [0, 1, 3, 2], [1, 2, 0, 3], [3, 1, 2, 0]]);
            world.sketch.context.permute(a, axes)
        }
        _ => Ok(a),
    }
}

fn view(world: &mut World<'_>) -> Built {
    let a = world.value()?;
    seen_otherwise(world, a)
}

fn reshape(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Packed)?;
    let [n0, n1, n2, n3] = world.layout(a).ne();
    let shape = world.pick(&[[n0 * n1, n2, n3, 1], [n0, n1 * n2, n3, 1], [n1, n0, n3, n2], [1, n0 * n2, n1, n3]]);
    world.sketch.context.reshape(a, &shape)
}

pub(super) fn like(world: &mut World<'_>, a: TensorId) -> Built {
    let layout = world.layout(a);
    world.leaf(layout.dtype(), &layout.ne(), Values::Within(2.0))
}

/// Several readers of one value, and a join: the value dies late, and its readers one after another.
fn branch(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Rows)?;
    let (left, right) = (world.sketch.context.sigmoid(a)?, world.sketch.context.tanh(a)?);
    let left = world.sketch.context.add(left, a)?;
    world.sketch.context.mul(left, right)
}

/// A weight for rows of this length.
pub(super) fn weight(world: &mut World<'_>, shape: &[u64]) -> Built {
    let row = shape[0];
    let floats = [F32, F32, DataType::F16, DataType::Bf16];
    let formats: Vec<DataType> = FORMATS.into_iter().filter(|dtype| row.is_multiple_of(dtype.block_len())).collect();
    let dtype = if formats.is_empty() || world.below(2) == 0 { world.pick(&floats) } else { world.pick(&formats) };
    let most = 1.5 / (row as f64).sqrt();
    match world.below(3) {
        0 => world.leaf(dtype, shape, Values::Within(most)),
        _ => world.sketch.external(dtype, shape, Values::Within(most)),
    }
}
