//! Rotary positions: pairs of elements rotated by angles that depend on the position of a token.
//!
//! The angles of a token are computed once and used for all its heads. They are computed as in ggml, one from the other
//! in single precision, so that a model gets the same angles.

use std::f32::consts::PI;

use steeve_graph::{DataType, RopeMode, TensorId};

use super::map::floats;
use super::strided_walk::StridedWalk;
use crate::float_rows::{load_row, store_row};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::multiversion::multiversion;
use crate::tensor_ptr::TensorPtr;

/// Returns the kernel that rotates `[dim, head, token]` by the positions of its tokens; back for the gradient.
pub(crate) fn rope(
    node: &NodeCall<'_>,
    a: TensorId,
    positions: TensorId,
    factors: Option<TensorId>,
    rope: steeve_graph::Rope,
    direction: Direction,
) -> Result<Box<dyn Kernel>, String> {
    let ([a, positions], factors) = (node.shapes([a, positions])?, node.optional(factors)?);
    floats([node.result, a])?;
    if positions.dtype != DataType::I32 {
        return Err("positions: expected i32".into());
    }
    if factors.is_some_and(|factors| factors.dtype != DataType::F32) {
        return Err("frequency factors: expected f32".into());
    }
    let params = RopeParams::new(&rope, direction);
    let [length, heads, tokens, outer] = node.result.ne;
    let pairs = params.pairs();
    let (r, mut within, mut walk) = (node.result, StridedWalk::new(), StridedWalk::new());
    within.push(heads, [r.nb[1], a.nb[1]]);
    walk.push(tokens, [r.nb[2], a.nb[2], 1]);
    walk.push(outer, [r.nb[3], a.nb[3], 0]);
    let rows = RowUnits::new(tokens * outer, length * heads);
    Ok(Box::new(RopeRows { params, pairs, tokens, heads: within, walk, rows }))
}

/// Whether elements are rotated by their positions, or back, as for the gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Back,
}

/// Which elements are a pair.
#[derive(Clone, Copy, Debug)]
enum Pairing {
    /// Neighbours.
    Neighbours,
    /// The elements at the same position in both halves of what is rotated.
    GluHalves,
    /// The elements at the same position in both halves of a row, all of which is rotated.
    Vision,
}

/// The part of a position that a pair is rotated by.
#[derive(Clone, Copy, Debug)]
enum SectionRule {
    /// Sections one behind another.
    Sections,
    /// Sections one behind another, and the angles start over in each.
    Restarting,
    /// The first three parts in turn.
    Interleaved,
}

#[derive(Clone, Copy, Debug)]
struct RopeParams {
    dims: usize,
    pairing: Pairing,
    sections: Option<(SectionRule, [usize; 4])>,
    freq_scale: f32,
    /// The factor of an angle from pair to pair.
    theta_scale: f32,
    ext_factor: f32,
    /// The factor of the result.
    magnitude: f32,
    /// The pairs between which YaRN passes from interpolation to extrapolation.
    ramp: [f32; 2],
    /// 1 forward, -1 back.
    sign: f32,
}

impl RopeParams {
    fn new(rope: &steeve_graph::Rope, direction: Direction) -> Self {
        let (pairing, sharing) = match rope.mode {
            RopeMode::Normal => (Pairing::Neighbours, None),
            RopeMode::Neox => (Pairing::GluHalves, None),
            RopeMode::Sections => (Pairing::GluHalves, Some(SectionRule::Sections)),
            RopeMode::Vision => (Pairing::Vision, Some(SectionRule::Restarting)),
            RopeMode::InterleavedSections => (Pairing::GluHalves, Some(SectionRule::Interleaved)),
        };
        let sections = sharing.map(|sharing| (sharing, rope.sections.map(|pairs| pairs as usize)));
        let steeve_graph::Rope { dims, freq_base, freq_scale, ext_factor, .. } = *rope;
        let corrected = if ext_factor == 0.0 { 1.0 } else { 1.0 + 0.1 * (1.0 / freq_scale).ln() };
        let turns = |beta: f32| dims as f32 * (rope.context as f32 / (beta * 2.0 * PI)).ln() / (2.0 * freq_base.ln());
        Self {
            dims: dims as usize,
            pairing,
            sections,
            freq_scale,
            theta_scale: freq_base.powf(-2.0 / dims as f32),
            ext_factor,
            magnitude: rope.attn_factor * corrected,
            ramp: [turns(rope.beta_fast).floor().max(0.0), turns(rope.beta_slow).ceil().min(dims as f32 - 1.0)],
            sign: if direction == Direction::Back { -1.0 } else { 1.0 },
        }
    }

    /// Returns the number of pairs of a row that are rotated.
    fn pairs(&self) -> usize {
        match self.pairing {
            Pairing::Vision => self.dims,
            Pairing::Neighbours | Pairing::GluHalves => self.dims / 2,
        }
    }

    /// Returns cosine and sine of a pair, for the angle without scaling.
    fn turn(&self, pair: usize, theta: f32) -> (f32, f32) {
        let mut angle = self.freq_scale * theta;
        if self.ext_factor != 0.0 {
            let [low, high] = self.ramp;
            let along = (pair as f32 - low) / (high - low).max(0.001);
            let mix = (1.0 - along.clamp(0.0, 1.0)) * self.ext_factor;
            angle = angle * (1.0 - mix) + theta * mix;
        }
        let (sin, cos) = angle.sin_cos();
        (cos * self.magnitude, sin * self.magnitude * self.sign)
    }

    /// Computes cosines and sines of all pairs. `factor` divides the angle of a pair.
    fn turns(&self, parts: [f32; 4], cos: &mut [f32], sin: &mut [f32], factor: impl Fn(usize) -> f32) {
        let mut thetas = parts;
        for (pair, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
            let mut part = 0;
            if let Some((sharing, sections)) = &self.sections {
                let sector = pair % sections.iter().sum::<usize>();
                let ends = [sections[0], sections[0] + sections[1], sections[0] + sections[1] + sections[2]];
                part = match sharing {
                    SectionRule::Interleaved if sector < 3 * sections[sector % 3] => sector % 3,
                    SectionRule::Interleaved => 3,
                    _ => ends.iter().filter(|&&end| sector >= end).count(),
                };
                if let SectionRule::Restarting = sharing {
                    // Of sections with one start, only the first starts over, as in ggml.
                    let starts = [0, ends[0], ends[1], ends[2]];
                    if let Some(first) = starts.iter().position(|&start| start == sector) {
                        thetas[first] = parts[first];
                    }
                }
            }
            (*cos, *sin) = self.turn(pair, thetas[part] / factor(pair));
            thetas.iter_mut().for_each(|theta| *theta *= self.theta_scale);
        }
    }

    fn rotate(&self, row: &mut [f32], cos: &[f32], sin: &[f32]) {
        match self.pairing {
            Pairing::Neighbours => turn_neighbours(row[..self.dims].as_chunks_mut::<2>().0, cos, sin),
            Pairing::GluHalves | Pairing::Vision => {
                let (first, second) = row.split_at_mut(cos.len());
                turn_halves(first, second, cos, sin);
            }
        }
    }
}

#[inline(always)]
fn turned(x: f32, y: f32, cos: f32, sin: f32) -> (f32, f32) {
    (x * cos - y * sin, x * sin + y * cos)
}

multiversion! {
    fn turn_neighbours(pairs: &mut [[f32; 2]], cos: &[f32], sin: &[f32]) {
        for ([x, y], (cos, sin)) in pairs.iter_mut().zip(cos.iter().zip(sin)) {
            (*x, *y) = turned(*x, *y, *cos, *sin);
        }
    }
}

multiversion! {
    fn turn_halves(first: &mut [f32], second: &mut [f32], cos: &[f32], sin: &[f32]) {
        for ((x, y), (cos, sin)) in first.iter_mut().zip(second).zip(cos.iter().zip(sin)) {
            (*x, *y) = turned(*x, *y, *cos, *sin);
        }
    }
}

#[derive(Debug)]
struct RopeRows {
    params: RopeParams,
    pairs: usize,
    tokens: usize,
    /// From head to head: result, source.
    heads: StridedWalk<2>,
    /// From token to token: result, source, position.
    walk: StridedWalk<3>,
    rows: RowUnits,
}

impl RopeRows {
    /// # Safety
    /// The token is one of the operands'.
    unsafe fn turns(
        &self,
        positions: TensorPtr<'_>,
        factors: Option<TensorPtr<'_>>,
        token: usize,
        cos: &mut [f32],
        sin: &mut [f32],
    ) {
        // SAFETY: there is a position for each part and token, and a factor for each pair.
        unsafe {
            let at = |part: usize| positions.read::<i32>((token + part * self.tokens) * positions.shape.nb[0]) as f32;
            let parts = if self.params.sections.is_some() { std::array::from_fn(at) } else { [at(0); 4] };
            match factors {
                Some(factors) => {
                    self.params.turns(parts, cos, sin, |pair| factors.read::<f32>(pair * factors.shape.nb[0]));
                }
                None => self.params.turns(parts, cos, sin, |_| 1.0),
            }
        }
    }
}

impl Kernel for RopeRows {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, positions) = (operands.result, operands.source(0), operands.source(1));
        let [x, cos, sin] = scratch.rows([result.shape.ne[0], self.pairs, self.pairs]);
        let tokens = self.rows.unit(unit);
        for [r, a_, token] in self.walk.from(tokens.start).take(tokens.len()) {
            // SAFETY: a token of the operands.
            unsafe { self.turns(positions, operands.optional(2), token, cos, sin) };
            for [to, from] in self.heads.from(0).take(self.heads.count()) {
                // SAFETY: rows of the operands; the source's is copied before the result's is written.
                unsafe {
                    load_row(a, a_ + from, x);
                    self.params.rotate(x, cos, sin);
                    store_row(result, r + to, x);
                }
            }
        }
        Ok(())
    }
}
