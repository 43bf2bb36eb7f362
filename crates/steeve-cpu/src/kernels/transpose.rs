//! Copies that turn rows into columns.
//!
//! Copied element by element, one side would touch a cache line for each. So squares are copied, which take whole lines
//! on both sides, by way of a small one that stays in the nearest cache.

use std::marker::PhantomData;

use steeve_device::Shape;

use crate::kernel::{Kernel, Operands, RowUnits, ThreadScratch, UnitError};

/// Returns the kernel for a copy between two tensors of one shape where the rows of one side are columns of the other;
/// `None` for other copies.
pub(crate) fn turned(from: &Shape, to: &Shape) -> Option<Box<dyn Kernel>> {
    if from.ne != to.ne || from.size() != to.size() {
        return None;
    }
    let dense = |grid: &Shape, dim: usize| grid.nb[dim] == grid.size() && grid.ne[dim] > 1;
    let across = (1..4).find(|&dim| (dense(from, dim) && dense(to, 0)) || (dense(from, 0) && dense(to, dim)))?;
    let from_rows = dense(from, 0);
    let mut order = [0, across, 0, 0];
    for (place, dim) in order[2..].iter_mut().zip((1..4).filter(|&dim| dim != across)) {
        *place = dim;
    }
    let sorted = |grid: &Shape| Shape { ne: order.map(|dim| grid.ne[dim]), nb: order.map(|dim| grid.nb[dim]), ..*grid };
    let (from, to) = (sorted(from), sorted(to));
    match to.size() {
        2 => Some(Box::new(Transpose::<u16> { from, to, from_rows, element: PhantomData })),
        4 => Some(Box::new(Transpose::<u32> { from, to, from_rows, element: PhantomData })),
        _ => None,
    }
}

/// The side of a square: a cache line of `f32`.
const SIDE: usize = 16;

/// Copies by squares. In both shapes the first two dimensions are the ones that change places.
#[derive(Debug)]
struct Transpose<T> {
    from: Shape,
    to: Shape,
    /// Whether the source is dense along the first dimension and the result along the second, or the other way round.
    from_rows: bool,
    element: PhantomData<T>,
}

impl<T> Transpose<T> {
    /// Returns the number of squares along and across a plane.
    fn squares(&self) -> [usize; 2] {
        [self.to.ne[0].div_ceil(SIDE), self.to.ne[1].div_ceil(SIDE)]
    }

    fn rows(&self) -> RowUnits {
        let ([along, across], [n0, n1, n2, n3]) = (self.squares(), self.to.ne);
        RowUnits::new(along * across * n2 * n3, n0.min(SIDE) * n1.min(SIDE))
    }
}

impl<T: Copy + Default + Send + Sync + std::fmt::Debug> Kernel for Transpose<T> {
    fn units(&self) -> usize {
        self.rows().units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a) = (operands.result, operands.source(0));
        let [along, across] = self.squares();
        let [n0, n1, n2, _] = self.to.ne;
        for square in self.rows().unit(unit) {
            let (first, row, plane) = (square / across % along * SIDE, square % across * SIDE, square / along / across);
            let start = |grid: &Shape| grid.offset([first, row, plane % n2, plane / n2]);
            let size = [SIDE.min(n0 - first), SIDE.min(n1 - row)];
            let ([f0, f1, ..], [t0, t1, ..]) = (self.from.nb, self.to.nb);
            // SAFETY: a square of both, and each element of the result is written by one unit.
            unsafe {
                let (to, from) = (result.at(start(&self.to)), a.at(start(&self.from)));
                if self.from_rows {
                    copy::<T>(to, [t1, t0], from, [f0, f1], size);
                } else {
                    copy::<T>(to, [t0, t1], from, [f1, f0], [size[1], size[0]]);
                }
            }
        }
        Ok(())
    }
}

/// Copies a square of `[across, along]` elements, as the source counts them. Steps are given with the dense one first.
///
/// # Safety
/// There are such squares at both addresses, and no other thread accesses the one that is written.
unsafe fn copy<T: Copy + Default>(
    to: *mut u8,
    to_steps: [usize; 2],
    from: *const u8,
    from_steps: [usize; 2],
    size: [usize; 2],
) {
    let mut square = [[T::default(); SIDE]; SIDE];
    let mut copy = |[across, along]: [usize; 2]| {
        for j in 0..along {
            for (i, column) in square.iter_mut().enumerate().take(across) {
                // SAFETY: as promised.
                column[j] = unsafe { from.add(i * from_steps[0] + j * from_steps[1]).cast::<T>().read_unaligned() };
            }
        }
        for (i, column) in square.iter().enumerate().take(across) {
            for (j, element) in column.iter().enumerate().take(along) {
                // SAFETY: as promised.
                unsafe { to.add(j * to_steps[0] + i * to_steps[1]).cast::<T>().write_unaligned(*element) };
            }
        }
    };
    // Most are whole, and then there are no loops.
    if size == [SIDE; 2] { copy([SIDE; 2]) } else { copy(size) }
}
