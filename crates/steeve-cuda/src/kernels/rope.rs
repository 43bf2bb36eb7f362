//! Rotary positions.

use std::f32::consts::PI;

use steeve_graph::{DataType, Rope, RopeMode, TensorId};

use super::demand;
use crate::command::Kernel;
use crate::command_list::{CommandList, NodeCall, args, floats};

/// Rotates `[dim, head, token]` by the positions of its tokens; back, as for the gradient, if `sign` is -1.
pub(crate) fn rope(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    operands: [TensorId; 2],
    factors: Option<TensorId>,
    rope: Rope,
    sign: f32,
) -> Result<(), String> {
    let ([a, positions], factors) = (node.operands(operands)?, node.optional(factors)?);
    floats([node.result, a])?;
    demand(positions.shape.dtype == DataType::I32, "the positions must be i32")?;
    let factors_are_read = factors.is_none_or(|factors| factors.shape.dtype == DataType::F32);
    demand(factors_are_read, "the frequency factors must be f32")?;
    // Whether pairs are neighbours or halves, and how four parts of a position are shared: in sections, in sections that
    // start over, or in turn.
    let (pairing, sharing) = match rope.mode {
        RopeMode::Normal => (0, 0),
        RopeMode::Neox => (1, 0),
        RopeMode::Sections => (1, 1),
        RopeMode::Vision => (1, 2),
        RopeMode::InterleavedSections => (1, 3),
    };
    let [length, heads, tokens, outer] = node.result.shape.ne;
    let dims = i64::from(rope.dims);
    let pairs = if rope.mode == RopeMode::Vision { dims } else { dims / 2 };
    let mut args = args(node.result, &[Some(a), Some(positions), factors]);
    if rope.mode.has_sections() {
        args.i[3..7].copy_from_slice(&rope.sections.map(i64::from));
    }
    let Rope { freq_base, freq_scale, ext_factor, .. } = rope;
    let corrected = if ext_factor == 0.0 { 1.0 } else { 1.0 + 0.1 * (1.0 / freq_scale).ln() };
    let turns = |beta: f32| dims as f32 * (rope.context as f32 / (beta * 2.0 * PI)).ln() / (2.0 * freq_base.ln());
    let ramp = [turns(rope.beta_fast).floor().max(0.0), turns(rope.beta_slow).ceil().min(dims as f32 - 1.0)];
    let theta_scale = freq_base.powf(-2.0 / dims as f32);
    let magnitude = rope.attn_factor * corrected;
    args.f[..7].copy_from_slice(&[freq_scale, theta_scale, ext_factor, magnitude, ramp[0], ramp[1], sign]);
    // A pair each, and then what is behind them.
    let in_row = length.cast_signed() - pairs;
    let work = in_row.cast_unsigned() * heads * tokens * outer;
    (args.i[0], args.i[1], args.i[2]) = (dims, pairing, sharing);
    (args.i[7], args.i[8], args.i[9]) = (pairs, work.cast_signed(), in_row);
    commands.launch(Kernel::Rope, [work.div_ceil(256), 1, 1], 256, args)
}
