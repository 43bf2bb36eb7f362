//! Which kernels make an operation, by family. Each family says what it supports, types and strides: shapes fit
//! together in every call.

mod elementwise;
mod rows;
mod rope;
mod movement;
mod image;
mod matrix;
mod attention;

use steeve_graph::{OpCall, SortOrder};

pub(crate) use elementwise::Function;
pub(crate) use rope::{Pairing, PositionSharing};
pub(crate) use rows::Norm;

use crate::command_list::{CommandList, NO_KERNEL, NodeCall, Source};
use crate::operand::Operand;

/// Adds the commands of a node that writes something. The error says what is not supported.
pub(crate) fn choose(node: &NodeCall<'_>, commands: &mut CommandList) -> Result<(), String> {
    use OpCall as Call;
    match node.call {
        Call::Add { a, b } | Call::Add1 { a, b } => elementwise::binary(node, commands, Function::Add, a, b),
        Call::Sub { a, b } => elementwise::binary(node, commands, Function::Sub, a, b),
        Call::Mul { a, b } => elementwise::binary(node, commands, Function::Mul, a, b),
        Call::Div { a, b } => elementwise::binary(node, commands, Function::Div, a, b),
        Call::AddId { a, b, ids } => elementwise::add_id(node, commands, a, b, ids),
        Call::Sqr { a } => elementwise::unary(node, commands, Function::Sqr, a, [0.0; 4]),
        Call::Sqrt { a } => elementwise::unary(node, commands, Function::Sqrt, a, [0.0; 4]),
        Call::Log { a } => elementwise::unary(node, commands, Function::Log, a, [0.0; 4]),
        Call::Scale { a, factor, bias } => {
            elementwise::unary(node, commands, Function::Scale, a, [factor, bias, 0.0, 0.0])
        }
        Call::Clamp { a, min, max } => elementwise::unary(node, commands, Function::Clamp, a, [min, max, 0.0, 0.0]),
        Call::LeakyRelu { a, slope } => {
            elementwise::unary(node, commands, Function::LeakyRelu, a, [slope, 0.0, 0.0, 0.0])
        }
        Call::Unary { kind, a } => elementwise::unary(node, commands, Function::unary(kind)?, a, [0.0; 4]),
        Call::Xielu { a, numbers } => elementwise::xielu(node, commands, a, numbers),
        Call::SiluBack { gradient, a } => elementwise::silu_back(node, commands, gradient, a),
        Call::Glu { kind, gated, swiglu } => elementwise::glu(node, commands, kind, gated, swiglu),
        Call::Fill { value, .. } => elementwise::fill(node, commands, value),
        Call::Norm { a, epsilon } => rows::norm(node, commands, Norm::Deviation, a, epsilon),
        Call::RmsNorm { a, epsilon } => rows::norm(node, commands, Norm::Rms, a, epsilon),
        Call::L2Norm { a, epsilon } => rows::norm(node, commands, Norm::L2, a, epsilon),
        Call::RmsNormBack { gradient, a, epsilon } => rows::rms_norm_back(node, commands, gradient, a, epsilon),
        Call::GroupNorm { a, groups, epsilon } => rows::group_norm(node, commands, a, groups, epsilon),
        Call::SoftMax { a, mask, sinks, soft_max } => rows::soft_max(node, commands, a, [mask, sinks], soft_max),
        Call::SoftMaxBack { gradient, result, soft_max } => {
            rows::soft_max_back(node, commands, gradient, result, soft_max)
        }
        Call::DiagMaskInf { a, past } => rows::diag_mask(node, commands, a, past, f32::NEG_INFINITY),
        Call::DiagMaskZero { a, past } => rows::diag_mask(node, commands, a, past, 0.0),
        Call::Sum { a } => rows::sum(node, commands, rows::Sum::All, a),
        Call::SumRows { a } => rows::sum(node, commands, rows::Sum::Rows, a),
        Call::Mean { a } => rows::sum(node, commands, rows::Sum::Mean, a),
        Call::Argsort { a, order } => rows::order(node, commands, a, order),
        Call::TopK { a, .. } => rows::order(node, commands, a, SortOrder::Descending),
        Call::Rope { a, positions, factors, rope } => rope::rope(node, commands, [a, positions], factors, rope, 1.0),
        Call::RopeBack { a, positions, factors, rope } => {
            rope::rope(node, commands, [a, positions], factors, rope, -1.0)
        }
        Call::Cpy { a, .. } | Call::Cont { a } | Call::Dup { a } => movement::copy(node, commands, a),
        Call::Concat { a, b, dim } => movement::concat(node, commands, a, b, dim),
        Call::Repeat { a } => movement::repeat(node, commands, a),
        Call::GetRows { a, ids } => movement::get_rows(node, commands, a, ids),
        Call::SetRows { rows, ids, .. } => movement::set_rows(node, commands, rows, ids),
        Call::Im2col { kernel, image, convolution, directions, .. } => {
            image::im2col(node, commands, [kernel, image], convolution, directions)
        }
        Call::Pool1d { a, pool, size, stride, padding } => {
            image::pool_1d(node, commands, a, pool, [size, stride, padding])
        }
        Call::Pool2d { a, pool, window } => image::pool_2d(node, commands, a, pool, window),
        Call::Upscale { a, interpolation } => image::upscale(node, commands, a, interpolation),
        Call::Pad { a, before, .. } => image::pad(node, commands, a, before),
        Call::MulMat { a, b } => matrix::mul_mat(node, commands, a, b),
        Call::MulMatId { experts, b, ids } => matrix::mul_mat_id(node, commands, experts, b, ids),
        Call::FlashAttnExt { q, k, v, mask, sinks, attention } => {
            attention::flash_attn_ext(node, commands, [q, k, v], [mask, sinks], attention)
        }
        Call::Custom {} => Err("no kernel for callers' own operations".into()),
        _ => Err(NO_KERNEL.into()),
    }
}

/// Returns an error unless every element can be read and written at once, and no two of the result share bytes.
pub(crate) fn check_addresses(result: Operand, sources: &[Source]) -> Result<(), String> {
    if let Some(source) = sources.iter().find(|source| !source.operand.is_at_its_unit()) {
        return Err(format!("elements of source {}: expected addresses at multiples of their size", source.slot));
    }
    demand(result.is_at_its_unit(), "elements of the result: expected addresses at multiples of their size")?;
    demand(!result.shape.overlaps_itself(), "elements of the result: expected no shared bytes")
}

/// Returns whether a number divides another. Every number divides zero.
fn divides(part: usize, whole: usize) -> bool {
    whole.is_multiple_of(part)
}

fn demand(condition: bool, wish: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(wish.into()) }
}
