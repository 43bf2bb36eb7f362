//! Attention in one step.
//!
//! ```text
//!   for each block of keys:   scores = keys x queries   scale, softcap, mask
//!                             weights = exp(scores - the largest so far)
//!                             sums = sums * (what the largest has grown by) + values x weights
//!   result = sums / (sum of the weights)
//! ```
//!
//! Scores of one block at a time are all that exists of them (Milakov and Gimelshein 2018; Dao et al. 2022). A unit is a
//! few queries that share their keys: tokens, and the heads of a group. How they are cut depends on shapes alone.

use steeve_device::Shape;
use steeve_graph::{DataType, FlashAttention, TensorId};

use super::functions::{exp, tanh};
use super::gemm::{FEW, GemmOperands, MatrixView, ProductOutput, ProductSize, product, readable};
use crate::float_rows::{load_row, store};
use crate::kernel::{Kernel, NodeCall, Operands, ThreadScratch, UnitError};
use crate::multiversion::multiversion;
use crate::tensor_ptr::TensorPtr;

/// Returns the kernel for attention: `q` `[d, token, head]`, `k` `[d, key, head]`, `v` `[dv, key, head]` and a mask
/// `[key, token]` make `[dv, head, token]`. Slot 4 may have sinks: one more score for each head, with no value.
pub(crate) fn flash_attn_ext(
    node: &NodeCall<'_>,
    operands: [TensorId; 3],
    mask: Option<TensorId>,
    sinks: Option<TensorId>,
    FlashAttention { scale, max_bias, softcap }: FlashAttention,
) -> Result<Box<dyn Kernel>, String> {
    let [q, k, v] = node.shapes(operands)?;
    can_be_read([&q, &k, &v], node.optional(mask)?, node.optional(sinks)?)?;
    if node.result.dtype != DataType::F32 {
        return Err("result: expected f32".into());
    }
    let [_, tokens, heads, outer] = q.ne;
    // Heads whose keys and values differ have nothing to share.
    let group = if k.ne[2] == v.ne[2] { heads / k.ne[2].max(1) } else { 1 };
    let (groups, queries) = (heads / group.max(1) * outer, group * tokens);
    // All threads should have something, though keys are then read more than once.
    let block = queries.div_ceil(UNITS.div_ceil(groups.max(1))).clamp(FEW / 2, QUERIES);
    let scale = if softcap == 0.0 { scale } else { scale / softcap };
    let slopes = (0..heads).map(|head| slope(head, heads, max_bias)).collect();
    Ok(Box::new(Attention { scale, softcap, slopes, group, block, units: queries.div_ceil(block) * groups }))
}

/// The largest number of queries of a unit.
const QUERIES: usize = 64;

/// The least number of units.
const UNITS: usize = 16;

/// The number of keys of a block.
const KEYS: usize = 256;

/// Checks that there are kernels for these types, and that rows have elements.
fn can_be_read([q, k, v]: [&Shape; 3], mask: Option<Shape>, sinks: Option<Shape>) -> Result<(), String> {
    let demand = |condition: bool, wish: &str| if condition { Ok(()) } else { Err(wish.to_owned()) };
    readable(k)?;
    readable(v)?;
    demand(q.dtype.is_float(), "queries: expected f32, f16 or bf16")?;
    demand(q.ne[0] > 0, "queries: expected at least one element each")?;
    demand(mask.is_none_or(|mask| mask.dtype.is_float()), "mask: expected f32, f16 or bf16")?;
    demand(sinks.is_none_or(|sinks| sinks.dtype == DataType::F32), "sinks: expected f32")
}

/// Returns the slope of a head, by which the mask is multiplied (ALiBi, Press et al. 2021), as ggml computes it.
fn slope(head: usize, heads: usize, max_bias: f32) -> f32 {
    if max_bias <= 0.0 {
        return 1.0;
    }
    let whole = 1usize << heads.ilog2();
    let (m0, m1) = ((-max_bias / whole as f32).exp2(), (-max_bias / 2.0 / whole as f32).exp2());
    if head < whole { m0.powi(head as i32 + 1) } else { m1.powi(2 * (head - whole) as i32 + 1) }
}

#[derive(Debug)]
struct Attention {
    scale: f32,
    /// Zero for none.
    softcap: f32,
    slopes: Vec<f32>,
    /// The number of heads that share their keys and values.
    group: usize,
    /// The number of queries of a group in a unit.
    block: usize,
    units: usize,
}

impl Kernel for Attention {
    fn units(&self) -> usize {
        self.units
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (q, k, v) = (operands.source(0), operands.source(1), operands.source(2));
        let ([d, _, heads, _], keys, dv) = (q.shape.ne, k.shape.ne[1], v.shape.ne[0]);
        let part = self.part(operands, unit);
        let size = ProductSize { m: KEYS.min(keys), n: part.count, k: d };
        let lengths =
            [part.count * d, part.count * size.m, part.count * (dv + 2), size.m, size.m * dv, size.workspace()];
        let [queries, scores, so_far, mask, values_workspace, workspace] = scratch.rows(lengths);
        for (i, row) in queries.chunks_mut(d).enumerate() {
            let (head, token) = part.query(i);
            // SAFETY: a row of the queries.
            unsafe { load_row(q, q.shape.row_offset([token, head, part.outer]), row) };
        }
        let mut so_far = OnlineSoftMax::new(so_far, part.count, dv);
        // Where the keys and the values of these heads start.
        let start = |of: TensorPtr<'_>, key: usize| {
            of.shape.row_offset([key, part.head / (heads / of.shape.ne[2]), part.outer])
        };
        for first in (0..keys).step_by(KEYS) {
            // SAFETY: there are so many keys.
            let seen = unsafe { part.seen(first, &mut mask[..KEYS.min(keys - first)]) };
            if seen == 0 {
                continue;
            }
            let size = ProductSize { m: seen, ..size };
            let (scores, mask) = (&mut scores[..size.m * part.count], &mut mask[..size.m]);
            // SAFETY: a block of keys.
            unsafe {
                let keys = MatrixView::new(k, start(k, first));
                product(keys, MatrixView::loaded(queries, d), size, ProductOutput::dense(scores, size.m), workspace);
            }
            for (i, scores) in scores.chunks_mut(size.m).enumerate() {
                finish(scores, self.scale, self.softcap);
                // SAFETY: a part of a row of the mask.
                if unsafe { part.load_mask(i, first, mask) } {
                    add_mask(scores, mask, self.slopes[part.query(i).0]);
                }
                so_far.soften(i, scores);
            }
            let size = ProductSize { m: dv, n: part.count, k: size.m };
            // SAFETY: a block of values, and a weight for each of them and each query.
            unsafe { add_values(MatrixView::new(v, start(v, first)), scores, size, so_far.sums, values_workspace) };
        }
        // SAFETY: the rows of the result that only this unit writes.
        unsafe { part.write(&mut so_far, operands) };
        Ok(())
    }
}

impl Attention {
    fn part<'a>(&self, operands: &Operands<'a>, unit: usize) -> QueryBlock<'a> {
        let [_, tokens, heads, _] = operands.source(0).shape.ne;
        let (queries, groups) = (self.group * tokens, heads / self.group);
        let blocks = queries.div_ceil(self.block);
        let (first, rest) = (unit % blocks * self.block, unit / blocks);
        let (head, outer) = (rest % groups * self.group, rest / groups);
        QueryBlock {
            mask: operands.optional(3),
            first,
            count: self.block.min(queries - first),
            head,
            group: self.group,
            outer,
        }
    }
}

/// The queries of a unit.
struct QueryBlock<'a> {
    mask: Option<TensorPtr<'a>>,
    first: usize,
    count: usize,
    /// The first head of their group.
    head: usize,
    group: usize,
    /// The outermost position.
    outer: usize,
}

impl QueryBlock<'_> {
    /// Returns the head and the token of a query. The heads of a token follow one another.
    fn query(&self, i: usize) -> (usize, usize) {
        (self.head + (self.first + i) % self.group, (self.first + i) / self.group)
    }

    /// Loads a part of a query's row of the mask, from `key` on. Returns whether there is one.
    ///
    /// # Safety
    /// There are that many keys.
    unsafe fn load_mask(&self, i: usize, key: usize, row: &mut [f32]) -> bool {
        let (Some(mask), (head, token)) = (self.mask, self.query(i)) else { return false };
        // The outer dimensions of a mask wrap around.
        let offset = mask.shape.row_offset([token, head, self.outer]) + key * mask.shape.nb[0];
        // SAFETY: as promised.
        unsafe { load_row(mask, offset, row) };
        true
    }

    /// Returns how many keys of a block are left without those at its end that no query sees: a cache is longer than
    /// what is written, and behind each token of a prompt are others.
    ///
    /// # Safety
    /// There are as many keys from `first` on as `row` has elements.
    unsafe fn seen(&self, first: usize, row: &mut [f32]) -> usize {
        let mut seen = 0;
        for i in 0..self.count {
            // SAFETY: as promised.
            if seen == row.len() || !unsafe { self.load_mask(i, first, row) } {
                return row.len();
            }
            seen = row.iter().rposition(|x| *x != NOTHING).map_or(seen, |last| seen.max(last + 1));
        }
        seen
    }

    /// # Safety
    /// No other thread accesses the rows of these queries.
    unsafe fn write(&self, so_far: &mut OnlineSoftMax<'_>, operands: &Operands<'_>) {
        let (result, sinks) = (operands.result, operands.optional(4));
        for i in 0..self.count {
            let (head, token) = self.query(i);
            if let Some(sinks) = sinks {
                // SAFETY: there is a sink for each head.
                so_far.soften(i, &mut [unsafe { sinks.read(head * sinks.shape.nb[0]) }]);
            }
            let offset = result.shape.row_offset([head, token, self.outer]);
            // SAFETY: as promised.
            unsafe { store(DataType::F32, result.at(offset), result.shape.nb[0], so_far.mean(i)) };
        }
    }
}

/// The running state of each query.
struct OnlineSoftMax<'a> {
    /// The largest score so far.
    largest: &'a mut [f32],
    /// The sum of the weights, relative to the largest score.
    totals: &'a mut [f32],
    /// Rows of sums of values times weights.
    sums: &'a mut [f32],
    length: usize,
}

impl<'a> OnlineSoftMax<'a> {
    fn new(workspace: &'a mut [f32], queries: usize, length: usize) -> Self {
        let (largest, rest) = workspace.split_at_mut(queries);
        let (totals, sums) = rest.split_at_mut(queries);
        largest.fill(NOTHING);
        totals.fill(0.0);
        sums.fill(0.0);
        Self { largest, totals, sums, length }
    }

    fn row(&mut self, i: usize) -> &mut [f32] {
        &mut self.sums[i * self.length..(i + 1) * self.length]
    }

    /// Turns scores into weights, and rescales the sums where a larger score has come.
    fn soften(&mut self, i: usize, scores: &mut [f32]) {
        let grown = soften(scores, &mut self.largest[i], &mut self.totals[i]);
        if grown != 1.0 {
            scale(self.row(i), grown);
        }
    }

    /// Returns the sums of a query divided by its weights; zero where it has seen no key.
    fn mean(&mut self, i: usize) -> &[f32] {
        let part = if self.totals[i] == 0.0 { 0.0 } else { 1.0 / self.totals[i] };
        let row = self.row(i);
        scale(row, part);
        row
    }
}

const NOTHING: f32 = f32::NEG_INFINITY;

multiversion! {
    fn scale(row: &mut [f32], factor: f32) {
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

multiversion! {
    /// Computes scores before the mask.
    fn finish(scores: &mut [f32], scale: f32, softcap: f32) {
        scores.iter_mut().for_each(|score| *score *= scale);
        if softcap != 0.0 {
            scores.iter_mut().for_each(|score| *score = softcap * tanh(*score));
        }
    }
}

multiversion! {
    /// Where the mask hides a key the score is minus infinity, whatever the key holds: it may never have been written.
    fn add_mask(scores: &mut [f32], mask: &[f32], slope: f32) {
        for (score, mask) in scores.iter_mut().zip(mask) {
            *score = if *mask == NOTHING { NOTHING } else { *score + slope * mask };
        }
    }
}

multiversion! {
    /// Turns scores into weights and adds those up. Returns the factor for all weights before, because of a larger
    /// score.
    fn soften(scores: &mut [f32], largest: &mut f32, total: &mut f32) -> f32 {
        let (chunks, rest) = scores.as_chunks_mut::<8>();
        let mut most = [*largest; 8];
        for chunk in &*chunks {
            for (most, score) in most.iter_mut().zip(chunk) {
                *most = if *score > *most { *score } else { *most };
            }
        }
        let new = most.iter().chain(&*rest).fold(NOTHING, |most, score| if *score > most { *score } else { most });
        // Minus infinity less minus infinity is NaN, and where no key has been seen any number will do.
        let base = if new == NOTHING { 0.0 } else { new };
        let mut sums = [0.0; 8];
        for chunk in chunks {
            for (sum, score) in sums.iter_mut().zip(chunk) {
                *score = exp(*score - base);
                *sum += *score;
            }
        }
        for (sum, score) in sums.iter_mut().zip(rest) {
            *score = exp(*score - base);
            *sum += *score;
        }
        let grown = if *largest == new { 1.0 } else { exp(*largest - base) };
        *total = *total * grown + sums.iter().sum::<f32>();
        *largest = new;
        grown
    }
}

/// Adds `k` rows of values, each times its weight, to each of `n` rows of sums of length `m`. Weights are rows of `k`.
/// Values without any weight are not read: they may never have been written.
///
/// # Safety
/// There are that many rows of values, and `workspace` holds them.
unsafe fn add_values(
    values: MatrixView<'_>,
    weights: &[f32],
    size: ProductSize,
    sums: &mut [f32],
    workspace: &mut [f32],
) {
    let ProductSize { m, n, k } = size;
    if n <= FEW || m <= FEW {
        for first in (0..k).step_by(TOGETHER) {
            let count = TOGETHER.min(k - first);
            for (key, row) in (first..).zip(workspace.chunks_mut(m).take(count)) {
                // SAFETY: as promised.
                unsafe { values.load(key, 0, row) };
            }
            add_rows(&workspace[..count * m], m, &weights[first..], k, sums);
        }
        return;
    }
    let mut used = [0.0f32; KEYS];
    for weights in weights.chunks(k) {
        used.iter_mut().zip(weights).for_each(|(used, weight)| *used += weight);
    }
    let hides = weights.contains(&0.0);
    let in_place = values.in_place().filter(|(_, stride)| *stride >= m && !hides);
    let (a, stride) = in_place.unwrap_or_else(|| {
        for (key, row) in workspace.chunks_mut(m).take(k).enumerate() {
            if used[key] == 0.0 {
                row.fill(0.0);
            } else {
                // SAFETY: as promised.
                unsafe { values.load(key, 0, row) };
            }
        }
        (workspace.as_ptr(), m)
    });
    // What one query sees and another does not must not reach the other, and zero times infinity would.
    if hides && !workspace[..k * m].iter().all(|value| value.is_finite()) {
        for (key, row) in workspace.chunks(m).take(k).enumerate() {
            add_weighted(row, &weights[key..], k, sums);
        }
        return;
    }
    let sum = GemmOperands { a, a_row: 1, a_column: stride, b: weights.as_ptr(), b_column: k };
    // SAFETY: `k` rows of values, and the weights.
    unsafe { sum.add_to(sums.as_mut_ptr(), m, size) };
}

/// The number of rows of values that are added to sums while those are in registers.
const TOGETHER: usize = 4;

multiversion! {
    /// Adds rows of length `m`, one behind another, to each row of sums, times the first of each `stride` weights.
    fn add_rows(rows: &[f32], m: usize, weights: &[f32], stride: usize, sums: &mut [f32]) {
        for (j, sums) in sums.chunks_mut(m).enumerate() {
            let weights = &weights[j * stride..][..rows.len() / m];
            match *weights {
                [a, b, c, d] if a != 0.0 && b != 0.0 && c != 0.0 && d != 0.0 => {
                    let (first, rest) = rows.split_at(m);
                    let (second, rest) = rest.split_at(m);
                    let (third, fourth) = rest.split_at(m);
                    let both = first.iter().zip(second).zip(third.iter().zip(fourth));
                    for (sum, ((w, x), (y, z))) in sums.iter_mut().zip(both) {
                        *sum = *sum + a * w + b * x + c * y + d * z;
                    }
                }
                _ => rows.chunks(m).zip(weights).for_each(|(row, weight)| add_one(row, *weight, sums)),
            }
        }
    }
}

/// Adds a row to sums, unless it has no weight.
#[inline(always)]
fn add_one(row: &[f32], weight: f32, sums: &mut [f32]) {
    if weight != 0.0 {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
    }
}

multiversion! {
    /// Adds a row to each row of sums, times the first of each `stride` weights.
    fn add_weighted(row: &[f32], weights: &[f32], stride: usize, sums: &mut [f32]) {
        for (sums, weight) in sums.chunks_mut(row.len().max(1)).zip(weights.iter().step_by(stride)) {
            add_one(row, *weight, sums);
        }
    }
}
