//! Rotary positions.

use std::f32::consts::PI;

use steeve_graph::{DataType, Rope, RopeMode, TensorId};

use super::demand;
use crate::command_list::{CommandList, NodeCall, floats};
use crate::cuda_c::cuda_enum;
use crate::kernel_list as kernel;
use crate::operand::{signed, unsigned};
use crate::params::{RopeParams, Tensor};

cuda_enum! {
    /// What makes a pair of a row: neighbours, or the same place of both halves.
    Pairing { Neighbours, Halves, }
}

cuda_enum! {
    /// How pairs share the four parts of a position: there is one part, sections of pairs have one each, each section but the
    /// first starts with the first angle again, or pairs take them in turn.
    PositionSharing { None, Sections, StartingOver, InTurn, }
}

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
    demand(positions.shape.dtype == DataType::I32, "positions: expected i32")?;
    let factors_are_read = factors.is_none_or(|factors| factors.shape.dtype == DataType::F32);
    demand(factors_are_read, "frequency factors: expected f32")?;
    let (pairing, sharing) = match rope.mode {
        RopeMode::Normal => (Pairing::Neighbours, PositionSharing::None),
        RopeMode::Neox => (Pairing::Halves, PositionSharing::None),
        RopeMode::Sections => (Pairing::Halves, PositionSharing::Sections),
        RopeMode::Vision => (Pairing::Halves, PositionSharing::StartingOver),
        RopeMode::InterleavedSections => (Pairing::Halves, PositionSharing::InTurn),
    };
    let [length, heads, tokens, outer] = node.result.shape.ne;
    let dims = rope.dims as usize;
    let pairs = if rope.mode == RopeMode::Vision { dims } else { dims / 2 };
    let Rope { freq_base, freq_scale, ext_factor, .. } = rope;
    let corrected = if ext_factor == 0.0 { 1.0 } else { 1.0 + 0.1 * (1.0 / freq_scale).ln() };
    let turns = |beta: f32| dims as f32 * (rope.context as f32 / (beta * 2.0 * PI)).ln() / (2.0 * freq_base.ln());
    let ramp = [turns(rope.beta_fast).floor().max(0.0), turns(rope.beta_slow).ceil().min(dims as f32 - 1.0)];
    let theta_scale = freq_base.powf(-2.0 / dims as f32);
    let magnitude = rope.attn_factor * corrected;
    // A pair each, and then what is behind them.
    let units = length - pairs;
    let count = units * heads * tokens * outer;
    let params = RopeParams {
        result: node.result.into(),
        source: a.into(),
        positions: positions.into(),
        factors: Tensor::optional(factors),
        sections: if rope.mode.has_sections() { rope.sections.map(i64::from) } else { [0; 4] },
        pairs: signed(pairs),
        units: signed(units),
        count: unsigned(count),
        pairing,
        sharing,
        freq_scale,
        theta_scale,
        ext_factor,
        magnitude,
        ramp,
        sign,
    };
    commands.launch_each(kernel::rope, count, params)
}
