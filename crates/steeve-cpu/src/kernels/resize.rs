//! Images of another size: larger ones, and zeros around them. What is only moved may be of any plain type.

use std::marker::PhantomData;

use steeve_device::Shape;
use steeve_graph::{Interpolation, TensorId};

use super::map::floats;
use crate::float_rows::{load_row, store_row};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};

/// Returns the kernel for an image of another size.
pub(crate) fn upscale(
    node: &NodeCall<'_>,
    a: TensorId,
    interpolation: Interpolation,
) -> Result<Box<dyn Kernel>, String> {
    let (a, result) = (node.shape(a)?, node.result);
    match interpolation {
        Interpolation::Nearest => {
            let scale = ScaleFactors::new(&a, &result);
            let columns = (0..result.ne[0]).map(|at| scale.nearest(0, at) * a.nb[0]).collect();
            moved(&a, &result, ResizeRule::Nearest { scale, columns })
        }
        Interpolation::Bilinear => {
            floats([a, result])?;
            let scale = ScaleFactors::new(&a, &result);
            let columns = (0..result.ne[0]).map(|at| scale.around(0, at)).collect();
            Ok(Box::new(BilinearUpscale { scale, columns, rows: RowUnits::of(&result) }))
        }
    }
}

/// The factors by which each dimension grows.
#[derive(Clone, Copy, Debug)]
struct ScaleFactors {
    factors: [f32; 4],
    lengths: [usize; 4],
}

impl ScaleFactors {
    fn new(a: &Shape, result: &Shape) -> Self {
        let factors = std::array::from_fn(|dim| result.ne[dim] as f32 / a.ne[dim] as f32);
        Self { factors, lengths: a.ne }
    }

    /// Returns the nearest element of the source.
    fn nearest(&self, dim: usize, at: usize) -> usize {
        ((at as f32 / self.factors[dim]) as usize).min(self.lengths[dim].saturating_sub(1))
    }

    /// Returns the two elements of the source around, and the distance from the first.
    fn around(&self, dim: usize, at: usize) -> (usize, usize, f32) {
        let position = (at as f32 + 0.5) / self.factors[dim] - 0.5;
        let last = self.lengths[dim].saturating_sub(1);
        let floor = position.floor() as i64;
        let within = |at: i64| usize::try_from(at).unwrap_or(0).min(last);
        let first = within(floor);
        (first, within(floor + 1), (position - first as f32).clamp(0.0, 1.0))
    }
}

#[derive(Debug)]
struct BilinearUpscale {
    scale: ScaleFactors,
    /// The two columns around each of the result, and the distance from the first.
    columns: Vec<(usize, usize, f32)>,
    rows: RowUnits,
}

impl Kernel for BilinearUpscale {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, rows) = (operands.result, operands.source(0), self.rows.unit(unit));
        let [above, below, out] = scratch.rows([a.shape.ne[0], a.shape.ne[0], result.shape.ne[0]]);
        for row in rows {
            let at @ [i1, i2, i3] = result.shape.row_at(row);
            let (y0, y1, dy) = self.scale.around(1, i1);
            let (plane, cube) = (self.scale.nearest(2, i2), self.scale.nearest(3, i3));
            // SAFETY: rows of the operands.
            unsafe {
                load_row(a, a.shape.row_offset([y0, plane, cube]), above);
                load_row(a, a.shape.row_offset([y1, plane, cube]), below);
                for (out, &(x0, x1, dx)) in out.iter_mut().zip(&self.columns) {
                    *out = above[x0] * (1.0 - dx) * (1.0 - dy)
                        + above[x1] * dx * (1.0 - dy)
                        + below[x0] * (1.0 - dx) * dy
                        + below[x1] * dx * dy;
                }
                store_row(result, result.shape.row_offset(at), out);
            }
        }
        Ok(())
    }
}

/// Returns the kernel for zeros before and behind the elements of each dimension.
pub(crate) fn pad(node: &NodeCall<'_>, a: TensorId, before: [u32; 4]) -> Result<Box<dyn Kernel>, String> {
    let (a, result) = (node.shape(a)?, node.result);
    let before = before.map(|zeros| zeros as usize);
    moved(&a, &result, ResizeRule::Pad { before })
}

/// The rule by which elements are copied.
#[derive(Debug)]
enum ResizeRule {
    /// The nearest one, with the source column of each column of the result, in bytes.
    Nearest {
        scale: ScaleFactors,
        columns: Vec<usize>,
    },
    Pad {
        before: [usize; 4],
    },
}

fn moved(a: &Shape, result: &Shape, how: ResizeRule) -> Result<Box<dyn Kernel>, String> {
    if a.dtype != result.dtype {
        return Err("data types: expected equal ones".into());
    }
    let rows = RowUnits::of(result);
    match (a.dtype.block_len(), a.dtype.block_bytes()) {
        (1, 1) => Ok(Box::new(ResizeByCopy::<u8> { how, rows, element: PhantomData })),
        (1, 2) => Ok(Box::new(ResizeByCopy::<u16> { how, rows, element: PhantomData })),
        (1, 4) => Ok(Box::new(ResizeByCopy::<u32> { how, rows, element: PhantomData })),
        (1, 8) => Ok(Box::new(ResizeByCopy::<u64> { how, rows, element: PhantomData })),
        _ => Err("data type: expected a plain type".into()),
    }
}

/// Copies elements of the size of `T`.
#[derive(Debug)]
struct ResizeByCopy<T> {
    how: ResizeRule,
    rows: RowUnits,
    element: PhantomData<T>,
}

impl<T: Copy + Default + Send + Sync + std::fmt::Debug> Kernel for ResizeByCopy<T> {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a) = (operands.result, operands.source(0));
        let (r, s) = (result.shape, a.shape);
        for row in self.rows.unit(unit) {
            let at = r.row_at(row);
            let to = r.row_offset(at);
            let zeros = |range: std::ops::Range<usize>| {
                // SAFETY: elements of a row of the result.
                range.for_each(|i| unsafe { result.write(to + i * r.nb[0], T::default()) });
            };
            match &self.how {
                ResizeRule::Nearest { scale, columns } => {
                    let from =
                        s.row_offset([scale.nearest(1, at[0]), scale.nearest(2, at[1]), scale.nearest(3, at[2])]);
                    for (i, column) in columns.iter().enumerate() {
                        // SAFETY: an element of each row.
                        unsafe { result.write::<T>(to + i * r.nb[0], a.read(from + column)) };
                    }
                }
                ResizeRule::Pad { before: [first, outer @ ..] } => {
                    // Rows without elements may have any stride.
                    let inner = |i: usize| {
                        at[i].checked_sub(outer[i]).filter(|&position| position < s.ne[i + 1] && s.ne[0] > 0)
                    };
                    let (Some(i1), Some(i2), Some(i3)) = (inner(0), inner(1), inner(2)) else {
                        zeros(0..r.ne[0]);
                        continue;
                    };
                    let from = s.row_offset([i1, i2, i3]);
                    zeros(0..*first);
                    for i in 0..s.ne[0] {
                        // SAFETY: an element of each row.
                        unsafe { result.write::<T>(to + (first + i) * r.nb[0], a.read(from + i * s.nb[0])) };
                    }
                    zeros(first + s.ne[0]..r.ne[0]);
                }
            }
        }
        Ok(())
    }
}
