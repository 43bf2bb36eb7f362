//! Rotary positions.

use std::f32::consts::PI;

use steeve_graph::{DataType, Op};

use super::demand;
use crate::act::Kernel;
use crate::recipe::{Ask, Recipe, args, floats};

/// Rotates `[dim, head, token]` by the positions of its tokens; back for the gradient.
pub(crate) fn rope(ask: &Ask<'_>, recipe: &mut Recipe) -> Result<(), String> {
    let (a, positions) = (ask.like_result(0)?, ask.source(1)?);
    floats([ask.result, a])?;
    let (dims, context) = (ask.count(0)?, ask.int(2)?);
    // Whether pairs are neighbours or halves, and how four parts of a position are shared: in sections, in sections that
    // start over, or in turn.
    let (pairing, sharing) = match ask.int(1)? {
        0 => (0, 0),
        2 => (1, 0),
        8 => (1, 1),
        24 => (1, 2),
        40 => (1, 3),
        mode => return Err(format!("mode {mode} is none of 0, 2, 8, 24 and 40")),
    };
    let [length, heads, tokens, outer] = ask.result.shape.ne;
    let is_vision = sharing == 2;
    let rotated = if is_vision { 2 * dims } else { dims };
    let fits = if is_vision { rotated.cast_unsigned() == length } else { dims.cast_unsigned() <= length };
    demand(fits && rotated % 2 == 0, &format!("{dims} of {length} elements can't be rotated in pairs"))?;
    let pairs = rotated / 2;
    let mut args = args(ask.result, ask.sources);
    let parts = if sharing == 0 { 1 } else { 4 };
    if sharing != 0 {
        let sections = [ask.count(9)?, ask.count(10)?, ask.count(11)?, ask.count(12)?];
        let makes_sense = sections.iter().any(|&it| it > 0) && sections.iter().all(|&it| it <= 1 << 30);
        demand(makes_sense, &format!("sections of {sections:?} pairs make no sense"))?;
        args.i[3..7].copy_from_slice(&sections);
    }
    let positions = positions.shape;
    let enough = positions.dtype == DataType::I32 && Some(positions.elements()) == tokens.checked_mul(parts);
    demand(enough, &format!("there must be {parts} positions of i32 for each token"))?;
    demand(positions.ne[0] == positions.elements(), "the positions must be one row")?;
    if let Some(factors) = ask.optional(2) {
        let fits = factors.shape.dtype == DataType::F32 && factors.shape.ne[0].cast_signed() >= pairs;
        demand(fits, &format!("there must be a frequency factor of f32 for each of {pairs} pairs"))?;
    }
    let (freq_base, freq_scale, ext_factor) = (ask.float(3)?, ask.float(4)?, ask.float(5)?);
    let corrected = if ext_factor == 0.0 { 1.0 } else { 1.0 + 0.1 * (1.0 / freq_scale).ln() };
    let turns = |beta: f32| dims as f32 * (context as f32 / (beta * 2.0 * PI)).ln() / (2.0 * freq_base.ln());
    let ramp = [turns(ask.float(7)?).floor().max(0.0), turns(ask.float(8)?).ceil().min(dims as f32 - 1.0)];
    let sign = if ask.op == Op::RopeBack { -1.0 } else { 1.0 };
    let theta_scale = freq_base.powf(-2.0 / dims as f32);
    let magnitude = ask.float(6)? * corrected;
    args.f[..7].copy_from_slice(&[freq_scale, theta_scale, ext_factor, magnitude, ramp[0], ramp[1], sign]);
    // A pair each, and then what is behind them.
    let in_row = length.cast_signed() - pairs;
    let work = in_row.cast_unsigned() * heads * tokens * outer;
    (args.i[0], args.i[1], args.i[2]) = (dims, pairing, sharing);
    (args.i[7], args.i[8], args.i[9]) = (pairs, work.cast_signed(), in_row);
    recipe.launch(Kernel::Rope, [work.div_ceil(256), 1, 1], 256, args)
}
