//! Tensors one behind another, and again and again. Blocks are moved, whatever they hold.

use steeve_graph::TensorId;

use super::movement::{Grid, move_blocks};
use crate::kernel::{Kernel, NodeCall, Operands, Rows, Scratch};

/// One tensor behind another along a dimension.
pub(crate) fn concat(node: &NodeCall<'_>, a: TensorId, b: TensorId, dim: usize) -> Result<Box<dyn Kernel>, String> {
    let [a, b] = node.shapes([a, b])?;
    if a.dtype != node.result.dtype || b.dtype != node.result.dtype {
        return Err("all types must be equal".into());
    }
    let (to, parts) = (Grid::new(&node.result)?, [Grid::new(&a)?, Grid::new(&b)?]);
    Ok(Box::new(Joined { to, parts, dim, rows: to.rows() }))
}

#[derive(Debug)]
struct Joined {
    to: Grid,
    parts: [Grid; 2],
    dim: usize,
    rows: Rows,
}

impl Kernel for Joined {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut Scratch) -> Result<(), String> {
        let (result, sources) = (operands.result, [operands.source(0), operands.source(1)]);
        for row in self.rows.unit(unit) {
            let at = self.to.row_at(row);
            let mut start = self.to.row_offset(at);
            let mut copy = |part: usize, at: [usize; 3]| {
                let grid = &self.parts[part];
                let steps = [self.to.nb[0], grid.nb[0]];
                // SAFETY: rows of both, and each of the result's is written by one unit.
                unsafe {
                    let places = [result.at(start), sources[part].at(grid.row_offset(at))];
                    move_blocks(places, steps, grid.size, grid.ne[0]);
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

/// A tensor again and again until it fills the result.
pub(crate) fn repeat(node: &NodeCall<'_>, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    if a.dtype != node.result.dtype {
        return Err("both types must be equal".into());
    }
    let (to, from) = (Grid::new(&node.result)?, Grid::new(&a)?);
    Ok(Box::new(Repeated { to, from, rows: to.rows() }))
}

#[derive(Debug)]
struct Repeated {
    to: Grid,
    from: Grid,
    rows: Rows,
}

impl Kernel for Repeated {
    fn units(&self) -> usize {
        self.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut Scratch) -> Result<(), String> {
        let (result, a, (to, from)) = (operands.result, operands.source(0), (&self.to, &self.from));
        for row in self.rows.unit(unit) {
            let at = to.row_at(row);
            let start = from.row_offset(std::array::from_fn(|i| at[i] % from.ne[i + 1]));
            for first in (0..to.ne[0]).step_by(from.ne[0]) {
                // SAFETY: rows of both, and each of the result's is written by one unit.
                unsafe {
                    let places = [result.at(to.row_offset(at) + first * to.nb[0]), a.at(start)];
                    move_blocks(places, [to.nb[0], from.nb[0]], to.size, from.ne[0]);
                }
            }
        }
        Ok(())
    }
}
