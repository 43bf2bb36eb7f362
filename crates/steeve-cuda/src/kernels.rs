//! Which kernels make an operation, by family. Each family says what it supports, as closely as the processor's does: a
//! kernel reads and writes what shapes say, so shapes that do not fit together stop here.

mod elementwise;
mod rows;
mod rope;
mod movement;
mod image;
mod matrix;
mod attention;

use steeve_graph::Op;

use crate::recipe::{Ask, Recipe};

/// Adds the acts of a node that writes something. The error says what is not supported.
pub(crate) fn choose(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    for (slot, operand) in ask.sources.iter().enumerate() {
        if operand.is_some_and(|operand| !operand.is_at_its_unit()) {
            return Err(format!("the elements of source {slot} do not stand at multiples of their size"));
        }
    }
    if !ask.result.is_at_its_unit() {
        return Err("the elements of the result do not stand at multiples of their size".into());
    }
    if ask.result.shape.overlaps_itself() {
        return Err("elements of the result share bytes".into());
    }
    match ask.op {
        Op::Add | Op::Sub | Op::Mul | Op::Div => elementwise::binary(ask, recipe),
        Op::Add1 => elementwise::add1(ask, recipe),
        Op::AddId => elementwise::add_id(ask, recipe),
        Op::Unary(_) | Op::Sqr | Op::Sqrt | Op::Log | Op::Scale | Op::Clamp => elementwise::unary(ask, recipe),
        Op::SiluBack => elementwise::silu_back(ask, recipe),
        Op::Glu(_) => elementwise::glu(ask, recipe),
        Op::Fill => elementwise::fill(ask, recipe),
        Op::Norm | Op::RmsNorm | Op::L2Norm => rows::norm(ask, recipe),
        Op::RmsNormBack => rows::rms_norm_back(ask, recipe),
        Op::GroupNorm => rows::group_norm(ask, recipe),
        Op::SoftMax => rows::soft_max(ask, recipe),
        Op::SoftMaxBack => rows::soft_max_back(ask, recipe),
        Op::DiagMaskInf | Op::DiagMaskZero => rows::diag_mask(ask, recipe),
        Op::Sum | Op::SumRows | Op::Mean => rows::sum(ask, recipe),
        Op::Argsort | Op::TopK => rows::order(ask, recipe),
        Op::Rope | Op::RopeBack => rope::rope(ask, recipe),
        Op::Cpy | Op::Cont | Op::Dup => movement::copy(ask, recipe),
        Op::Concat => movement::concat(ask, recipe),
        Op::Repeat => movement::repeat(ask, recipe),
        Op::GetRows => movement::get_rows(ask, recipe),
        Op::SetRows => movement::set_rows(ask, recipe),
        Op::Im2col => image::im2col(ask, recipe),
        Op::Pool1d | Op::Pool2d => image::pool(ask, recipe),
        Op::Upscale => image::upscale(ask, recipe),
        Op::Pad => image::pad(ask, recipe),
        Op::MulMat => matrix::mul_mat(ask, recipe),
        Op::MulMatId => matrix::mul_mat_id(ask, recipe),
        Op::FlashAttnExt => attention::flash_attn_ext(ask, recipe),
        Op::Custom => Err("callers' own operations have no kernel here".into()),
        _ => Err("there is no kernel for it".into()),
    }
}

/// Whether a number divides another. Nothing divides nothing.
fn divides(part: u64, whole: u64) -> bool {
    whole.is_multiple_of(part)
}

fn demand(condition: bool, wish: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(wish.into()) }
}
