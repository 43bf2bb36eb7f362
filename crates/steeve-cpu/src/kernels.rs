//! The kernels, by family. Each family knows its operations and which types and strides it supports.

mod strided_walk;
mod functions;
mod lane_sum;
mod map;
mod row_map;
mod elementwise;
mod norm;
mod softmax;
mod rope;
mod reduce;
mod sort;
mod image;
mod resize;
mod gemm;
mod rounded_rows;
mod block_dots;
mod block_product;
mod mul_mat;
mod mul_mat_id;
mod attention;
mod gather;
mod copy;
mod concat;
mod transpose;

use steeve_graph::{OpCall, SortOrder};

use crate::kernel::{Kernel, NO_KERNEL, NodeCall};

/// Returns the kernel for a node that writes something.
///
/// # Errors
///
/// What is not supported.
pub(crate) fn choose(node: &NodeCall<'_>) -> Result<Box<dyn Kernel>, String> {
    use OpCall as Call;
    match node.call {
        Call::Add { a, b } => elementwise::add(node, a, b),
        Call::Sub { a, b } => elementwise::sub(node, a, b),
        Call::Mul { a, b } => elementwise::mul(node, a, b),
        Call::Div { a, b } => elementwise::div(node, a, b),
        Call::Add1 { a, b } => elementwise::add(node, a, b),
        Call::AddId { a, b, ids } => elementwise::add_id(node, a, b, ids),
        Call::Sqr { a } => elementwise::sqr(node, a),
        Call::Sqrt { a } => map::map_unary(node, a, f32::sqrt),
        Call::Log { a } => map::map_unary(node, a, f32::ln),
        Call::Scale { a, factor, bias } => elementwise::scale(node, a, factor, bias),
        Call::Clamp { a, min, max } => map::map_unary(node, a, move |x| functions::clamp(x, min, max)),
        Call::LeakyRelu { a, slope } => map::map_unary(node, a, move |x| functions::leaky_relu(x, slope)),
        Call::Unary { kind, a } => elementwise::unary(node, kind, a),
        Call::Xielu { a, numbers } => elementwise::xielu(node, a, numbers),
        Call::SiluBack { gradient, a } => map::map_binary(node, gradient, a, functions::silu_back),
        Call::Glu { kind, gated, swiglu } => elementwise::glu(node, kind, gated, swiglu),
        Call::Fill { value, .. } => map::constant(node, value),
        Call::Norm { a, epsilon } => norm::norm(node, a, epsilon),
        Call::RmsNorm { a, epsilon } => norm::rms_norm(node, a, epsilon),
        Call::RmsNormBack { gradient, a, epsilon } => norm::rms_norm_back(node, gradient, a, epsilon),
        Call::GroupNorm { a, groups, epsilon } => norm::group_norm(node, a, groups, epsilon),
        Call::L2Norm { a, epsilon } => norm::l2_norm(node, a, epsilon),
        Call::SoftMax { a, mask, sinks, soft_max } => softmax::soft_max(node, a, mask, sinks, soft_max),
        Call::SoftMaxBack { gradient, result, soft_max } => softmax::soft_max_back(node, gradient, result, soft_max),
        Call::DiagMaskInf { a, past } => softmax::diag_mask(node, a, past, f32::NEG_INFINITY),
        Call::DiagMaskZero { a, past } => softmax::diag_mask(node, a, past, 0.0),
        Call::Rope { a, positions, factors, rope } => {
            rope::rope(node, a, positions, factors, rope, rope::Direction::Forward)
        }
        Call::RopeBack { a, positions, factors, rope } => {
            rope::rope(node, a, positions, factors, rope, rope::Direction::Back)
        }
        Call::Sum { a } => reduce::sum(node, a),
        Call::SumRows { a } => reduce::sum_rows(node, a),
        Call::Mean { a } => reduce::mean(node, a),
        Call::Argsort { a, order } => sort::sorted(node, a, order),
        Call::TopK { a, .. } => sort::sorted(node, a, SortOrder::Descending),
        Call::Im2col { kernel, image, convolution, directions, .. } => {
            image::im2col(node, kernel, image, convolution, directions)
        }
        Call::Pool1d { a, pool, size, stride, padding } => image::pool_1d(node, a, pool, [size, stride, padding]),
        Call::Pool2d { a, pool, window } => image::pool_2d(node, a, pool, window),
        Call::Upscale { a, interpolation } => resize::upscale(node, a, interpolation),
        Call::Pad { a, before, .. } => resize::pad(node, a, before),
        Call::MulMat { a, b } => mul_mat::mul_mat(node, a, b),
        Call::MulMatId { experts, b, ids } => mul_mat_id::mul_mat_id(node, experts, b, ids),
        Call::FlashAttnExt { q, k, v, mask, sinks, attention } => {
            attention::flash_attn_ext(node, [q, k, v], mask, sinks, attention)
        }
        Call::GetRows { a, ids } => gather::get_rows(node, a, ids),
        Call::SetRows { rows, ids, .. } => gather::set_rows(node, rows, ids),
        Call::Cpy { a, .. } | Call::Cont { a } | Call::Dup { a } => copy::copy(node, a),
        Call::Concat { a, b, dim } => concat::concat(node, a, b, dim),
        Call::Repeat { a } => concat::repeat(node, a),
        Call::Custom {} => {
            Err("no kernel for ggml's opaque operation CUSTOM: expected an own operation, which has a name".into())
        }
        _ => Err(NO_KERNEL.into()),
    }
}
