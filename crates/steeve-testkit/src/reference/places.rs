//! Recipes of copies: rows, caches, joins, casts, and images that grow.

use steeve_graph::{Bytes, DataType, GraphError, Interpolation, Layout, Op, Param, TensorId};

use super::case::Values;
use super::generate::{Built, World};
use super::recipes::{F32, Form, seen_otherwise, source, weight};

pub(super) fn add_rows(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let layout = world.layout(a);
    let [n0, n1, n2, _] = layout.ne();
    let rows = if world.below(2) == 0 { n1 } else { 5 };
    let b = world.leaf(layout.dtype(), &[n0, rows], Values::Within(1.0))?;
    let ids = world.leaf(DataType::I32, &[n1, n2], Values::Below(rows))?;
    world.sketch.context.apply(Op::AddId, &[Some(a), Some(b), Some(ids)], &[])
}

pub(super) fn take_rows(world: &mut World<'_>) -> Built {
    let a = match world.below(3) {
        0 => weight(world, &[32, 7])?,
        1 => world.leaf(DataType::I32, &[5, 6], Values::Below(100))?,
        _ => source(world, Form::Any)?,
    };
    let [_, n1, n2, n3] = world.layout(a).ne();
    let count = world.many(5);
    let ids = world.leaf(DataType::I32, &[count, n2, n3], Values::Below(n1))?;
    let rows = world.sketch.context.get_rows(a, ids)?;
    // Numbers as large as ids may be are not for everyone, but they may be shown to everyone.
    if world.layout(rows).dtype() == DataType::I32 { world.sketch.context.dup(rows) } else { Ok(rows) }
}

/// A value with so many elements.
fn value_of(world: &mut World<'_>, shape: [u64; 2]) -> Built {
    let count = shape[0] * shape[1];
    if world.below(2) == 0 {
        let found = world.value_where(|layout| layout.elements() == count)?;
        if world.layout(found).elements() == count {
            return Ok(found);
        }
    }
    let dtype = world.pick(&[F32, F32, DataType::F16]);
    world.leaf(dtype, &shape, Values::Within(2.0))
}

/// A cache, and some of its rows as a view.
fn rows_of_cache(world: &mut World<'_>, count: u64) -> Result<(TensorId, TensorId), GraphError> {
    let caches = world.caches.clone();
    let cache = world.pick(&caches);
    let layout = world.layout(cache);
    let [row, rows, ..] = layout.ne();
    let skip = world.below((rows - count + 1) as usize) as u64;
    let part = world.sketch.context.view_2d(cache, [row, count], layout.nb()[1], Bytes(skip * layout.nb()[1]))?;
    Ok((cache, part))
}

pub(super) fn write_cache(world: &mut World<'_>) -> Built {
    let count = world.many(4);
    let (cache, part) = rows_of_cache(world, count)?;
    let layout = world.layout(cache);
    let (row, size) = (layout.ne()[0], layout.dtype().block_bytes());
    // Also into columns, where a cache stands the other way round.
    if !layout.dtype().is_quantised() && count <= row && world.below(3) == 0 {
        let rows = layout.ne()[1];
        let skip = world.below((row - count + 1) as usize) as u64;
        let columns = world.sketch.context.view_2d(cache, [count, rows], layout.nb()[1], Bytes(skip * size))?;
        let columns = world.sketch.context.transpose(columns)?;
        let value = value_of(world, [rows, count])?;
        return world.sketch.context.cpy(value, columns);
    }
    let value = value_of(world, [row, count])?;
    world.sketch.context.cpy(value, part)
}

/// Rows of a cache copied to others, which may be some of the same.
pub(super) fn move_cache(world: &mut World<'_>) -> Built {
    let count = world.many(4);
    let (cache, part) = rows_of_cache(world, count)?;
    let layout = world.layout(cache);
    let skip = world.below((layout.ne()[1] - count + 1) as usize) as u64;
    let shape = [layout.ne()[0], count];
    let other = world.sketch.context.view_2d(cache, shape, layout.nb()[1], Bytes(skip * layout.nb()[1]))?;
    world.sketch.context.cpy(part, other)
}

pub(super) fn write_rows(world: &mut World<'_>) -> Built {
    let count = world.many(4);
    let caches = world.caches.clone();
    let cache = world.pick(&caches);
    let [row, rows, ..] = world.layout(cache).ne();
    let value = value_of(world, [row, count])?;
    let value = world.sketch.context.reshape(value, &[row, count])?;
    let dtype = world.pick(&[DataType::I64, DataType::I32]);
    let ids = world.leaf(dtype, &[count], Values::Distinct(rows))?;
    world.sketch.context.set_rows(cache, value, ids)
}

/// Writes rows of several heads, which have ids of their own or share them.
pub(super) fn write_heads(world: &mut World<'_>) -> Built {
    let (heads, outer) = (world.pick(&[2, 3]), world.pick(&[1, 2]));
    let (row, rows) = (world.pick(&[5, 32]), world.many(8) + 17);
    let types = [F32, DataType::F16, DataType::Q8_0, DataType::Q4_0];
    let dtype = world.pick(if row == 32 { &types } else { &types[..2] });
    let target = world.leaf(dtype, &[row, rows, heads, outer], Values::Within(1.0))?;
    let value = world.leaf(F32, &[row, 3, heads, outer], Values::Within(1.0))?;
    let share = world.pick(&[1, heads]);
    let ids = world.leaf(DataType::I64, &[3, share, 1], Values::Distinct(rows))?;
    let written = world.sketch.context.set_rows(target, value, ids)?;
    if !dtype.is_quantised() { Ok(written) } else { world.sketch.context.dup(written) }
}

pub(super) fn read_cache(world: &mut World<'_>) -> Built {
    let count = world.many(5);
    let (cache, part) = rows_of_cache(world, count)?;
    let row = world.layout(cache).ne()[0];
    match world.below(4) {
        0 if !world.layout(cache).dtype().is_quantised() => world.sketch.context.cont(part),
        1 => {
            let ids = world.leaf(DataType::I32, &[3], Values::Below(world.layout(cache).ne()[1]))?;
            world.sketch.context.get_rows(cache, ids)
        }
        2 => {
            let rows = world.many(3);
            let b = world.leaf(F32, &[row, rows], Values::Within(0.3))?;
            world.sketch.context.mul_mat(part, b)
        }
        _ if !world.layout(cache).dtype().is_quantised() => Ok(part),
        _ => world.sketch.context.dup(part),
    }
}

pub(super) fn join(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let layout = world.layout(a);
    let dim = world.below(4);
    let mut ne = layout.ne();
    let fits = move |other: &Layout| {
        other.dtype() == layout.dtype() && (0..4).all(|d| d == dim || other.ne()[d] == layout.ne()[d])
    };
    let b = match world.below(3) {
        0 => a,
        1 => world.value_where(fits)?,
        _ => {
            ne[dim] = 1 + world.below(4) as u64;
            world.leaf(layout.dtype(), &ne, Values::Within(2.0))?
        }
    };
    world.sketch.context.concat(a, b, dim as u32)
}

pub(super) fn repeat(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let ne = world.layout(a).ne().map(|n| n * world.pick(&[1, 1, 2, 3]));
    if ne.iter().product::<u64>() > 100_000 {
        return Ok(a);
    }
    world.sketch.context.repeat(a, &ne)
}

pub(super) fn pack(world: &mut World<'_>) -> Built {
    let a = world.value()?;
    let a = seen_otherwise(world, a)?;
    world.sketch.context.cont(a)
}

pub(super) fn pack_shaped(world: &mut World<'_>) -> Built {
    let a = world.value()?;
    let a = seen_otherwise(world, a)?;
    let [n0, n1, n2, n3] = world.layout(a).ne();
    world.sketch.context.cont_shaped(a, &[n0 * n1, n2 * n3])
}

pub(super) fn duplicate(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    world.sketch.context.dup(a)
}

/// Another type, by a copy into a leaf that is nothing but a place for it.
pub(super) fn cast(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let layout = world.layout(a);
    let types = [DataType::F16, DataType::Bf16, F32, DataType::I32, DataType::Q8_0, DataType::Q4_0];
    let dtype = world.pick(if layout.ne()[0].is_multiple_of(32) { &types } else { &types[..4] });
    if dtype == DataType::I32 {
        // There and back again: whole numbers are for no other function.
        let (scaled, place) = (world.sketch.context.cont(a)?, world.leaf(dtype, &layout.ne(), Values::Below(9))?);
        let whole = world.sketch.context.cpy(scaled, place)?;
        let back = world.leaf(F32, &layout.ne(), Values::Within(1.0))?;
        return world.sketch.context.cpy(whole, back);
    }
    let place = world.leaf(dtype, &layout.ne(), Values::Within(1.0))?;
    world.sketch.context.cpy(a, place)
}

pub(super) fn upscale(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    let how = world.pick(&[Interpolation::Nearest, Interpolation::Bilinear]);
    let factor = 1 + world.below(3) as u32;
    world.sketch.context.upscale(a, factor, how)
}

pub(super) fn pad(world: &mut World<'_>) -> Built {
    let a = source(world, Form::Any)?;
    if world.below(2) == 0 {
        let behind = [(); 4].map(|()| world.below(3) as u32);
        return world.sketch.context.pad(a, behind);
    }
    let around = [(); 8].map(|()| Param::Int(world.below(2) as i64));
    world.sketch.context.apply(Op::Pad, &[Some(a)], &around)
}
