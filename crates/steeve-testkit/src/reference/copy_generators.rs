//! Generators of copies: rows, caches, joins, casts, and images that grow.

use steeve_graph::{Bytes, DataType, GraphError, Interpolation, Layout, Op, Param, TensorId};

use super::case::Values;
use super::op_generators::{F32, SourceForm, seen_otherwise, source, weight};
use super::random_case::{BuildResult, GraphGenerator};

pub(super) fn add_rows(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let layout = generator.layout(a);
    let [n0, n1, n2, _] = layout.ne();
    let rows = if generator.below(2) == 0 { n1 } else { 5 };
    let b = generator.leaf(layout.dtype(), &[n0, rows], Values::Within(1.0))?;
    let ids = generator.leaf(DataType::I32, &[n1, n2], Values::Below(rows))?;
    generator.sketch.context.apply(Op::AddId, &[Some(a), Some(b), Some(ids)], &[])
}

pub(super) fn take_rows(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = match generator.below(3) {
        0 => weight(generator, &[32, 7])?,
        1 => generator.leaf(DataType::I32, &[5, 6], Values::Below(100))?,
        _ => source(generator, SourceForm::Any)?,
    };
    let [_, n1, n2, n3] = generator.layout(a).ne();
    let count = generator.many(5);
    let ids = generator.leaf(DataType::I32, &[count, n2, n3], Values::Below(n1))?;
    let rows = generator.sketch.context.get_rows(a, ids)?;
    // Not every operation accepts numbers as large as ids may be, but a copy of them can be read.
    if generator.layout(rows).dtype() == DataType::I32 { generator.sketch.context.dup(rows) } else { Ok(rows) }
}

/// Returns a value with that many elements.
fn value_of(generator: &mut GraphGenerator<'_>, shape: [u64; 2]) -> BuildResult {
    let count = shape[0] * shape[1];
    if generator.below(2) == 0 {
        let found = generator.value_where(|layout| layout.elements() == count)?;
        if generator.layout(found).elements() == count {
            return Ok(found);
        }
    }
    let dtype = generator.pick(&[F32, F32, DataType::F16]);
    generator.leaf(dtype, &shape, Values::Within(2.0))
}

/// A cache, and some of its rows as a view.
fn rows_of_cache(generator: &mut GraphGenerator<'_>, count: u64) -> Result<(TensorId, TensorId), GraphError> {
    let caches = generator.caches.clone();
    let cache = generator.pick(&caches);
    let layout = generator.layout(cache);
    let [row, rows, ..] = layout.ne();
    let skip = generator.below((rows - count + 1) as usize) as u64;
    let part = generator.sketch.context.view_2d(cache, [row, count], layout.nb()[1], Bytes(skip * layout.nb()[1]))?;
    Ok((cache, part))
}

pub(super) fn write_cache(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let count = generator.many(4);
    let (cache, part) = rows_of_cache(generator, count)?;
    let layout = generator.layout(cache);
    let (row, size) = (layout.ne()[0], layout.dtype().block_bytes());
    // Also into columns, as in a transposed cache.
    if !layout.dtype().is_quantised() && count <= row && generator.below(3) == 0 {
        let rows = layout.ne()[1];
        let skip = generator.below((row - count + 1) as usize) as u64;
        let columns = generator.sketch.context.view_2d(cache, [count, rows], layout.nb()[1], Bytes(skip * size))?;
        let columns = generator.sketch.context.transpose(columns)?;
        let value = value_of(generator, [rows, count])?;
        return generator.sketch.context.cpy(value, columns);
    }
    let value = value_of(generator, [row, count])?;
    generator.sketch.context.cpy(value, part)
}

/// Rows that a node has computed, read, written again and read again.
pub(super) fn write_value(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let computed = generator.sketch.context.cont(a)?;
    let [n0, n1, n2, n3] = generator.layout(computed).ne();
    let before = generator.sketch.context.sqr(computed)?;
    let skip = generator.below(n1 as usize) as u64;
    let nb = generator.layout(computed).nb();
    let part = generator.sketch.context.view_4d(
        computed,
        [n0, n1 - skip, n2, n3],
        [nb[1], nb[2], nb[3]],
        Bytes(skip * nb[1]),
    )?;
    let value = generator.leaf(F32, &[n0, n1 - skip, n2, n3], Values::Within(2.0))?;
    let written = generator.sketch.context.cpy(value, part)?;
    let read = if skip == 0 && generator.below(2) == 0 { written } else { computed };
    generator.sketch.context.add(before, read)
}

/// Rows of a cache copied to others, which may be some of the same.
pub(super) fn move_cache(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let count = generator.many(4);
    let (cache, part) = rows_of_cache(generator, count)?;
    let layout = generator.layout(cache);
    let skip = generator.below((layout.ne()[1] - count + 1) as usize) as u64;
    let shape = [layout.ne()[0], count];
    let other = generator.sketch.context.view_2d(cache, shape, layout.nb()[1], Bytes(skip * layout.nb()[1]))?;
    generator.sketch.context.cpy(part, other)
}

pub(super) fn write_rows(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let count = generator.many(4);
    let caches = generator.caches.clone();
    let cache = generator.pick(&caches);
    let [row, rows, ..] = generator.layout(cache).ne();
    let value = value_of(generator, [row, count])?;
    let value = generator.sketch.context.reshape(value, &[row, count])?;
    let dtype = generator.pick(&[DataType::I64, DataType::I32]);
    let ids = generator.leaf(dtype, &[count], Values::Distinct(rows))?;
    generator.sketch.context.set_rows(cache, value, ids)
}

/// Writes rows of several heads, which have ids of their own or share them.
pub(super) fn write_heads(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let (heads, outer) = (generator.pick(&[2, 3]), generator.pick(&[1, 2]));
    let (row, rows) = (generator.pick(&[5, 32]), generator.many(8) + 17);
    let types = [F32, DataType::F16, DataType::Q8_0, DataType::Q4_0];
    let dtype = generator.pick(if row == 32 { &types } else { &types[..2] });
    let target = generator.leaf(dtype, &[row, rows, heads, outer], Values::Within(1.0))?;
    let value = generator.leaf(F32, &[row, 3, heads, outer], Values::Within(1.0))?;
    let share = generator.pick(&[1, heads]);
    let ids = generator.leaf(DataType::I64, &[3, share, 1], Values::Distinct(rows))?;
    let written = generator.sketch.context.set_rows(target, value, ids)?;
    if !dtype.is_quantised() { Ok(written) } else { generator.sketch.context.dup(written) }
}

pub(super) fn read_cache(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let count = generator.many(5);
    let (cache, part) = rows_of_cache(generator, count)?;
    let row = generator.layout(cache).ne()[0];
    match generator.below(4) {
        0 if !generator.layout(cache).dtype().is_quantised() => generator.sketch.context.cont(part),
        1 => {
            let ids = generator.leaf(DataType::I32, &[3], Values::Below(generator.layout(cache).ne()[1]))?;
            generator.sketch.context.get_rows(cache, ids)
        }
        2 => {
            let rows = generator.many(3);
            let b = generator.leaf(F32, &[row, rows], Values::Within(0.3))?;
            generator.sketch.context.mul_mat(part, b)
        }
        _ if !generator.layout(cache).dtype().is_quantised() => Ok(part),
        _ => generator.sketch.context.dup(part),
    }
}

pub(super) fn join(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let layout = generator.layout(a);
    let dim = generator.below(4);
    let mut ne = layout.ne();
    let fits = move |other: &Layout| {
        other.dtype() == layout.dtype() && (0..4).all(|d| d == dim || other.ne()[d] == layout.ne()[d])
    };
    let b = match generator.below(3) {
        0 => a,
        1 => generator.value_where(fits)?,
        _ => {
            ne[dim] = 1 + generator.below(4) as u64;
            generator.leaf(layout.dtype(), &ne, Values::Within(2.0))?
        }
    };
    generator.sketch.context.concat(a, b, dim as u32)
}

pub(super) fn repeat(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let ne = generator.layout(a).ne().map(|n| n * generator.pick(&[1, 1, 2, 3]));
    if ne.iter().product::<u64>() > 100_000 {
        return Ok(a);
    }
    generator.sketch.context.repeat(a, &ne)
}

pub(super) fn pack(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = generator.value()?;
    let a = seen_otherwise(generator, a)?;
    generator.sketch.context.cont(a)
}

pub(super) fn pack_shaped(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = generator.value()?;
    let a = seen_otherwise(generator, a)?;
    let [n0, n1, n2, n3] = generator.layout(a).ne();
    generator.sketch.context.cont_shaped(a, &[n0 * n1, n2 * n3])
}

pub(super) fn duplicate(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    generator.sketch.context.dup(a)
}

/// Another type, by a copy into a leaf that is nothing but a place for it.
pub(super) fn cast(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let layout = generator.layout(a);
    let types = [DataType::F16, DataType::Bf16, F32, DataType::I32, DataType::Q8_0, DataType::Q4_0];
    let dtype = generator.pick(if layout.ne()[0].is_multiple_of(32) { &types } else { &types[..4] });
    if dtype == DataType::I32 {
        // There and back again: whole numbers are for no other function.
        let (scaled, place) =
            (generator.sketch.context.cont(a)?, generator.leaf(dtype, &layout.ne(), Values::Below(9))?);
        let whole = generator.sketch.context.cpy(scaled, place)?;
        let back = generator.leaf(F32, &layout.ne(), Values::Within(1.0))?;
        return generator.sketch.context.cpy(whole, back);
    }
    let place = generator.leaf(dtype, &layout.ne(), Values::Within(1.0))?;
    generator.sketch.context.cpy(a, place)
}

pub(super) fn upscale(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    let how = generator.pick(&[Interpolation::Nearest, Interpolation::Bilinear]);
    let factor = 1 + generator.below(3) as u32;
    generator.sketch.context.upscale(a, factor, how)
}

pub(super) fn pad(generator: &mut GraphGenerator<'_>) -> BuildResult {
    let a = source(generator, SourceForm::Any)?;
    if generator.below(2) == 0 {
        let behind = [(); 4].map(|()| generator.below(3) as u32);
        return generator.sketch.context.pad(a, behind);
    }
    let around = [(); 8].map(|()| Param::Int(generator.below(2) as i64));
    generator.sketch.context.apply(Op::Pad, &[Some(a)], &around)
}
