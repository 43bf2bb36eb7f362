//! How each operation gets into a random graph: the list of generators, and what they all need.

use steeve_graph::{Bytes, DataType, TensorId};

use super::case::Values;
use super::random_case::{BuildResult, GraphGenerator};
use super::{copy_generators, function_generators, product_generators};
use crate::formats::FORMATS;

pub(super) type OpGenerator = fn(&mut GraphGenerator<'_>) -> BuildResult;

/// All generators; one is as likely as another.
#[rustfmt::skip]
pub(super) const OP_GENERATORS: &[OpGenerator] = &[
    function_generators::unary, function_generators::unary, function_generators::root, function_generators::logarithm, function_generators::scale, function_generators::clamp, function_generators::leaky_relu,
    function_generators::square, function_generators::fill, function_generators::add_one, function_generators::binary, function_generators::binary,
    function_generators::binary, function_generators::division, function_generators::glu_one, function_generators::glu_numbers, function_generators::glu_two,
    function_generators::silu_back, function_generators::norm, function_generators::rms_norm, function_generators::rms_norm, function_generators::l2_norm,
    function_generators::group_norm, function_generators::rms_norm_back, function_generators::mask_zero, function_generators::causal, function_generators::soft_max,
    function_generators::soft_max_masked, function_generators::soft_max_biased, function_generators::soft_max_sinks, function_generators::soft_max_back,
    function_generators::rope, function_generators::rope, function_generators::rope_back, function_generators::order, function_generators::largest, function_generators::sum,
    function_generators::sum_rows, function_generators::mean,
    copy_generators::add_rows, copy_generators::take_rows, copy_generators::take_rows, copy_generators::write_rows, copy_generators::write_heads,
    copy_generators::write_cache, copy_generators::write_cache, copy_generators::write_value, copy_generators::move_cache, copy_generators::read_cache, copy_generators::read_cache,
    copy_generators::join, copy_generators::repeat, copy_generators::pack, copy_generators::pack_shaped, copy_generators::duplicate, copy_generators::upscale,
    copy_generators::pad, copy_generators::cast,
    product_generators::product, product_generators::product, product_generators::product, product_generators::rewritten, product_generators::scores, product_generators::experts, product_generators::mixture,
    product_generators::attention, product_generators::attention, product_generators::patches, product_generators::convolution, product_generators::shortcut, product_generators::convolution_1d,
    product_generators::pool_1d, product_generators::pool_2d,
    view, view, reshape, branch,
];

/// Leafs that are written through views: rows, and how many of them a small graph has.
pub(super) const CACHES: &[(DataType, [u64; 2])] =
    &[(DataType::F32, [16, 12]), (DataType::F16, [32, 8]), (DataType::Q8_0, [64, 6]), (DataType::Bf16, [8, 9])];

pub(super) const F32: DataType = DataType::F32;

/// The strides that a source may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceForm {
    /// Any.
    Any,
    /// Rows without gaps.
    Rows,
    /// No gaps at all.
    Packed,
}

/// Any value of a form that the operation takes: often as it is, else a view of it or a copy.
pub(super) fn source(generator: &mut GraphGenerator<'_>, form: SourceForm) -> BuildResult {
    let a = generator.value()?;
    let a = if generator.below(3) == 0 { seen_otherwise(generator, a)? } else { a };
    let layout = generator.layout(a);
    let fits = match form {
        SourceForm::Any => true,
        SourceForm::Rows => layout.has_contiguous_rows(),
        SourceForm::Packed => layout.is_contiguous(),
    };
    if fits { Ok(a) } else { generator.sketch.context.cont(a) }
}

/// Returns a view of the same memory in another form.
pub(super) fn seen_otherwise(generator: &mut GraphGenerator<'_>, a: TensorId) -> BuildResult {
    let layout = generator.layout(a);
    let (ne, nb) = (layout.ne(), layout.nb());
    let size = layout.dtype().block_bytes();
    match generator.below(5) {
        // Part of each row: the others are gaps. Only where a row has none already.
        0 if ne[0] > 1 && layout.has_contiguous_rows() => {
            let skip = generator.below(ne[0] as usize) as u64;
            let shape = [ne[0] - skip, ne[1], ne[2], ne[3]];
            let from = if generator.below(2) == 0 { skip * size } else { 0 };
            generator.sketch.context.view_4d(a, shape, [nb[1], nb[2], nb[3]], Bytes(from))
        }
        // Some of the rows.
        1 if layout.has_contiguous_rows() => {
            let skip = generator.below(ne[1] as usize) as u64;
            let shape = [ne[0], ne[1] - skip, ne[2], ne[3]];
            generator.sketch.context.view_4d(a, shape, [nb[1], nb[2], nb[3]], Bytes(skip * nb[1]))
        }
        2 => generator.sketch.context.transpose(a),
        3 => {
            let axes = generator.pick(&[[0, 2, 1, 3], [2, 0, 1, 3], [0, 1, 3, 2], [1, 2, 0, 3], [3, 1, 2, 0]]);
            generator.sketch.context.permute(a, axes)
        }
        _ => Ok(a),
    }
}

fn view(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = generator.value()?;
    seen_otherwise(generator, a)
}

fn reshape(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Packed)?;
    let [n0, n1, n2, n3] = generator.layout(a).ne();
    let shape = generator.pick(&[[n0 * n1, n2, n3, 1], [n0, n1 * n2, n3, 1], [n1, n0, n3, n2], [1, n0 * n2, n1, n3]]);
    generator.sketch.context.reshape(a, &shape)
}

pub(super) fn like(generator: &mut GraphGenerator<'_>, a: TensorId) -> BuildResult {
    let layout = generator.layout(a);
    generator.leaf(layout.dtype(), &layout.ne(), Values::Within(2.0))
}

/// Several readers of one value, and a join: the value dies late, and its readers one after another.
fn branch(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Rows)?;
    let (left, right) = (generator.sketch.context.sigmoid(a)?, generator.sketch.context.tanh(a)?);
    let left = generator.sketch.context.add(left, a)?;
    generator.sketch.context.mul(left, right)
}

/// A weight for rows of this length.
pub(super) fn weight(generator: &mut GraphGenerator<'_>, shape: &[u64]) -> BuildResult {
    let row = shape[0];
    let floats = [F32, F32, DataType::F16, DataType::Bf16];
    let formats: Vec<DataType> = FORMATS.into_iter().filter(|dtype| row.is_multiple_of(dtype.block_len())).collect();
    let dtype =
        if formats.is_empty() || generator.below(2) == 0 { generator.pick(&floats) } else { generator.pick(&formats) };
    let most = 1.5 / (row as f64).sqrt();
    match generator.below(3) {
        0 => generator.leaf(dtype, shape, Values::Within(most)),
        _ => generator.sketch.external(dtype, shape, Values::Within(most)),
    }
}
