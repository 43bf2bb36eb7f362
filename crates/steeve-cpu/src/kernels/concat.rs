//! Concatenation and repetition of tensors. Blocks are copied, whatever they hold.

use steeve_device::Shape;
use steeve_graph::TensorId;

use super::copy::{in_blocks, move_blocks, rows};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};

/// Returns the kernel for one tensor behind another along a dimension.
pub(crate) fn concat(node: &NodeCall<'_>, a: TensorId, b: TensorId, dim: usize) -> Result<Box<dyn Kernel>, String> {
    let [a, b] = node.shapes([a, b])?;
    if a.dtype != node.result.dtype || b.dtype != node.result.dtype {
        return Err("data types: expected equal ones".into());
    }
    let (to, parts) = (in_blocks(node.result)?, [in_blocks(a)?, in_blocks(b)?]);
    Ok(Box::new(Concat { to, parts, dim, rows: rows(&to) }))
}

#[derive(Debug)]
struct Concat {
    to: Shape,
    parts: [Shape; 2],
    dim: usize,
    rows: RowUnits,
}

impl Kernel for Concat {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, sources) = (operands.result, [operands.source(0), operands.source(1)]);
        for row in self.rows.unit(unit) {
            let at @ [i1, i2, i3] = self.to.row_at(row);
            let mut start = self.to.offset([0, i1, i2, i3]);
            let mut copy = |part: usize, [i1, i2, i3]: [usize; 3]| {
                let grid = &self.parts[part];
                let steps = [self.to.nb[0], grid.nb[0]];
                // SAFETY: rows of both, and each of the result's is written by one unit.
                unsafe {
                    let places = [result.at(start), sources[part].at(grid.offset([0, i1, i2, i3]))];
                    move_blocks(places, steps, grid.size(), grid.ne[0]);
                }
                start += grid.ne[0] * self.to.nb[0];
            };
            match self.dim.checked_sub(1) {
                None => (0..2).for_each(|part| {
                    if self.parts[part].ne[0] > 0 {
                        copy(part, at)
                    }
                }),
                Some(axis) => match at[axis].checked_sub(self.parts[0].ne[self.dim]) {
                    None => copy(0, at),
                    Some(behind) => copy(1, std::array::from_fn(|i| if i == axis { behind } else { at[i] })),
                },
            }
        }
        Ok(())
    }
}

/// Returns the kernel for a tensor that is repeated until it fills the result.
pub(crate) fn repeat(node: &NodeCall<'_>, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    if a.dtype != node.result.dtype {
        return Err("data types: expected equal ones".into());
    }
    let (to, from) = (in_blocks(node.result)?, in_blocks(a)?);
    Ok(Box::new(Repeat { to, from, rows: rows(&to) }))
}

#[derive(Debug)]
struct Repeat {
    to: Shape,
    from: Shape,
    rows: RowUnits,
}

impl Kernel for Repeat {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, (to, from)) = (operands.result, operands.source(0), (&self.to, &self.from));
        for row in self.rows.unit(unit) {
            let at @ [i1, i2, i3] = to.row_at(row);
            let start = from.row_offset(at);
            for first in (0..to.ne[0]).step_by(from.ne[0]) {
                // SAFETY: rows of both, and each of the result's is written by one unit.
                unsafe {
                    let places = [result.at(to.offset([0, i1, i2, i3]) + first * to.nb[0]), a.at(start)];
                    move_blocks(places, [to.nb[0], from.nb[0]], to.size(), from.ne[0]);
                }
            }
        }
        Ok(())
    }
}
