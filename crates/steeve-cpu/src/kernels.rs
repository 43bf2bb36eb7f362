//! The kernels, by family. Each family says which operations it knows and what it supports of them.

mod walk;
mod functions;
mod sum;
mod map;
mod rows;
mod elementwise;
mod norm;
mod softmax;
mod rope;
mod reduce;
mod sort;
mod image;
mod resize;
mod product;
mod rounded;
mod dots;
mod blocks;
mod matrix;
mod experts;
mod attention;
mod gather;
mod movement;
mod join;
mod turn;

use steeve_graph::Op;

use crate::kernel::{Ask, Kernel};

/// The kernel for a node that writes something. The error says what is not supported.
pub(crate) fn choose(ask: &Ask<'_>) -> Result<Box<dyn Kernel>, String> {
    match ask.op {
        Op::Add | Op::Sub | Op::Mul | Op::Div => elementwise::binary(ask),
        Op::Add1 => elementwise::add1(ask),
        Op::AddId => elementwise::add_id(ask),
        Op::Unary(_) | Op::Sqr | Op::Sqrt | Op::Log | Op::Scale | Op::Clamp => elementwise::unary(ask),
        Op::SiluBack => elementwise::silu_back(ask),
        Op::Glu(_) => elementwise::glu(ask),
        Op::Fill => elementwise::fill(ask),
        Op::Norm => norm::norm(ask),
        Op::RmsNorm => norm::rms_norm(ask),
        Op::RmsNormBack => norm::rms_norm_back(ask),
        Op::GroupNorm => norm::group_norm(ask),
        Op::L2Norm => norm::l2_norm(ask),
        Op::SoftMax => softmax::soft_max(ask),
        Op::SoftMaxBack => softmax::soft_max_back(ask),
        Op::DiagMaskInf | Op::DiagMaskZero => softmax::diag_mask(ask),
        Op::Rope | Op::RopeBack => rope::rope(ask),
        Op::Sum => reduce::sum(ask),
        Op::SumRows | Op::Mean => reduce::of_rows(ask),
        Op::Argsort => sort::argsort(ask),
        Op::TopK => sort::top_k(ask),
        Op::Im2col => image::im2col(ask),
        Op::Pool1d | Op::Pool2d => image::pool(ask),
        Op::Upscale => resize::upscale(ask),
        Op::Pad => resize::pad(ask),
        Op::MulMat => matrix::mul_mat(ask),
        Op::MulMatId => experts::mul_mat_id(ask),
        Op::FlashAttnExt => attention::flash_attn_ext(ask),
        Op::GetRows => gather::get_rows(ask),
        Op::SetRows => gather::set_rows(ask),
        Op::Cpy | Op::Cont | Op::Dup => movement::copy(ask),
        Op::Concat => join::concat(ask),
        Op::Repeat => join::repeat(ask),
        Op::Custom => Err("callers' own operations have no kernel here".into()),
        _ => Err("there is no kernel for it".into()),
    }
}
