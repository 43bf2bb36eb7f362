//! Copies of the elements of a tensor with another layout or type.
//!
//! A copy reads the elements of both tensors in order, whatever their shapes, so it is cut into units along that order.
//! Elements that keep their type are copied block by block, whatever the blocks hold; a plain element is a block of
//! one.

use half::{bf16, f16};
use steeve_device::Shape;
use steeve_graph::{DataType, TensorId};

use super::transpose::turned;
use crate::float_rows::{load, store};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};
use crate::quant::{codec, encoder};
use crate::tensor_ptr::TensorPtr;

/// Returns the kernel for `cpy`, `cont` and `dup`: the first source into the result, perhaps of another type.
pub(crate) fn copy(node: &NodeCall<'_>, a: TensorId) -> Result<Box<dyn Kernel>, String> {
    let (a, result) = (node.shape(a)?, node.result);
    let (from, to) = (in_blocks(a)?, in_blocks(result)?);
    if a.dtype == result.dtype {
        return Ok(turned(&from, &to).unwrap_or_else(|| Box::new(CopyBlocks { from: from.merged(), to: to.merged() })));
    }
    let (from, to) = (from.merged(), to.merged());
    let is_read = a.dtype.is_float() || codec(a.dtype).is_some();
    if is_read && (result.dtype.is_float() || encoder(result.dtype).is_some()) {
        return Ok(Box::new(ConvertFloats { from, to, elements: a.elements() }));
    }
    if !a.dtype.is_quantised() && !result.dtype.is_quantised() {
        return Ok(Box::new(CastElements { from, to }));
    }
    Err(format!("no conversion of {} to {}", a.dtype, result.dtype))
}

/// Returns the shape with rows of blocks, which are copied unchanged.
pub(super) fn in_blocks(shape: Shape) -> Result<Shape, String> {
    shape.in_blocks().ok_or_else(|| format!("rows of {}: expected whole blocks without gaps", shape.dtype))
}

/// Returns the rows of a shape of blocks.
pub(super) fn rows(grid: &Shape) -> RowUnits {
    RowUnits::new(grid.rows(), grid.ne[0] * grid.size() / 4)
}

/// A position in a shape that counts blocks.
struct BlockCursor<'a> {
    grid: &'a Shape,
    at: [usize; 4],
}

impl<'a> BlockCursor<'a> {
    /// Returns the position with `index` blocks before it.
    fn new(grid: &'a Shape, index: usize) -> Self {
        let mut rest = index;
        let at = grid.ne.map(|n| {
            let at = rest % n;
            rest /= n;
            at
        });
        Self { grid, at }
    }

    fn offset(&self) -> usize {
        self.grid.offset(self.at)
    }

    /// Returns how many blocks of this row are left.
    fn left(&self) -> usize {
        self.grid.ne[0] - self.at[0]
    }

    /// Advances by at most as many blocks as are left in the row.
    fn advance(&mut self, blocks: usize) {
        self.at[0] += blocks;
        for dim in 0..3 {
            if self.at[dim] == self.grid.ne[dim] {
                self.at[dim] = 0;
                self.at[dim + 1] += 1;
            }
        }
    }
}

/// Copies `count` blocks of `size` bytes that are `steps` bytes apart, from the second to the first.
///
/// # Safety
/// All of them lie within borrowed memory; the two sides share no byte.
pub(crate) unsafe fn move_blocks([to, from]: [*mut u8; 2], steps: [usize; 2], size: usize, count: usize) {
    /// # Safety
    /// All of the blocks, which have the size of `T`, lie within borrowed memory; the two sides share no byte.
    unsafe fn each<T: Copy>([to, from]: [*mut u8; 2], steps: [usize; 2], count: usize) {
        for i in 0..count {
            // SAFETY: as promised.
            unsafe {
                let block = from.add(i * steps[1]).cast::<T>().read_unaligned();
                to.add(i * steps[0]).cast::<T>().write_unaligned(block);
            }
        }
    }
    // SAFETY: as promised.
    unsafe {
        match size {
            _ if steps == [size; 2] => to.copy_from_nonoverlapping(from, count * size),
            1 => each::<u8>([to, from], steps, count),
            2 => each::<u16>([to, from], steps, count),
            4 => each::<u32>([to, from], steps, count),
            8 => each::<u64>([to, from], steps, count),
            _ => (0..count).for_each(|i| to.add(i * steps[0]).copy_from_nonoverlapping(from.add(i * steps[1]), size)),
        }
    }
}

/// The number of blocks or elements of a unit; a whole number of blocks of every type.
const UNIT: usize = 32 * 1024;

fn unit_range(unit: usize, all: usize) -> std::ops::Range<usize> {
    unit * UNIT..all.min((unit + 1) * UNIT)
}

/// Copies blocks unchanged.
#[derive(Debug)]
struct CopyBlocks {
    from: Shape,
    to: Shape,
}

impl Kernel for CopyBlocks {
    fn units(&self) -> usize {
        self.to.elements().div_ceil(UNIT)
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, range) = (operands.result, operands.source(0), unit_range(unit, self.to.elements()));
        let (mut from, mut to) = (BlockCursor::new(&self.from, range.start), BlockCursor::new(&self.to, range.start));
        let (size, mut left) = (self.to.size(), range.len());
        while left > 0 {
            let count = left.min(from.left()).min(to.left());
            // SAFETY: blocks of rows of both, and each of the result's is written by one unit.
            unsafe {
                let places = [result.at(to.offset()), a.at(from.offset())];
                move_blocks(places, [self.to.nb[0], self.from.nb[0]], size, count);
            }
            from.advance(count);
            to.advance(count);
            left -= count;
        }
        Ok(())
    }
}

/// Converts elements by way of `f32`.
#[derive(Debug)]
struct ConvertFloats {
    from: Shape,
    to: Shape,
    elements: usize,
}

/// The number of elements that are converted at a time; a whole number of blocks of every type.
const PIECE: usize = 1024;

impl Kernel for ConvertFloats {
    fn units(&self) -> usize {
        self.elements.div_ceil(UNIT)
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, range) = (operands.result, operands.source(0), unit_range(unit, self.elements));
        let [row] = scratch.rows([PIECE]);
        let mut from = FloatCursor::new(&self.from, a, range.start);
        let mut to = FloatCursor::new(&self.to, result, range.start);
        for start in range.clone().step_by(PIECE) {
            let row = &mut row[..PIECE.min(range.end - start)];
            // SAFETY: both have as many elements, and each of the result's is written by one unit.
            unsafe {
                from.load(row);
                to.store(row);
            }
        }
        Ok(())
    }
}

/// A position in a tensor that can be read and written as `f32`.
struct FloatCursor<'a> {
    raw: TensorPtr<'a>,
    /// The elements of a block, and its bytes.
    length: usize,
    size: usize,
    cursor: BlockCursor<'a>,
}

impl<'a> FloatCursor<'a> {
    fn new(grid: &'a Shape, raw: TensorPtr<'a>, element: usize) -> Self {
        let (length, size) = (raw.shape.dtype.block_len() as usize, raw.shape.size());
        Self { raw, length, size, cursor: BlockCursor::new(grid, element / length) }
    }

    /// Returns how many of `count` elements can be read or written at once; at least one.
    fn run(&self, wanted: usize) -> usize {
        // A codec needs adjacent blocks.
        let apart = self.length > 1 && self.cursor.grid.nb[0] != self.size;
        (if apart { self.length } else { self.cursor.left() * self.length }).min(wanted)
    }

    /// # Safety
    /// That many elements are left, and they end between blocks.
    unsafe fn load(&mut self, mut row: &mut [f32]) {
        while !row.is_empty() {
            let (part, rest) = row.split_at_mut(self.run(row.len()));
            let (grid, blocks) = (self.cursor.grid, part.len() / self.length);
            // SAFETY: as promised, blocks of one row.
            unsafe {
                match codec(self.raw.shape.dtype) {
                    None => load(self.raw.shape.dtype, self.raw.at(self.cursor.offset()), grid.nb[0], part),
                    Some(codec) => (codec.decode)(self.raw.bytes(self.cursor.offset(), blocks * self.size), part),
                }
            }
            self.cursor.advance(blocks);
            row = rest;
        }
    }

    /// # Safety
    /// That many elements are left, and they end between blocks; no other thread accesses them.
    unsafe fn store(&mut self, mut row: &[f32]) {
        while !row.is_empty() {
            let (part, rest) = row.split_at(self.run(row.len()));
            let (grid, blocks) = (self.cursor.grid, part.len() / self.length);
            // SAFETY: as promised, blocks of one row.
            unsafe {
                match encoder(self.raw.shape.dtype) {
                    None => store(self.raw.shape.dtype, self.raw.at(self.cursor.offset()), grid.nb[0], part),
                    Some(encode) => encode(part, self.raw.bytes_mut(self.cursor.offset(), blocks * self.size)),
                }
            }
            self.cursor.advance(blocks);
            row = rest;
        }
    }
}

/// Converts plain numbers of which one side is whole or double: rare, so one at a time.
#[derive(Debug)]
struct CastElements {
    from: Shape,
    to: Shape,
}

impl Kernel for CastElements {
    fn units(&self) -> usize {
        self.to.elements().div_ceil(UNIT)
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, range) = (operands.result, operands.source(0), unit_range(unit, self.to.elements()));
        let (mut from, mut to) = (BlockCursor::new(&self.from, range.start), BlockCursor::new(&self.to, range.start));
        for _ in range {
            // SAFETY: an element of each.
            unsafe { CastValue::read(a, from.offset()).write(result, to.offset()) };
            from.advance(1);
            to.advance(1);
        }
        Ok(())
    }
}

/// A number of any plain type. Real ones lose their fraction when they become whole, and are clamped to the range of
/// the type; whole ones keep their lowest bits. That is what casts in C do, where it is defined.
#[derive(Clone, Copy, Debug)]
enum CastValue {
    Whole(i64),
    Real(f64),
}

impl CastValue {
    /// # Safety
    /// There is an element of that plain type.
    unsafe fn read(from: TensorPtr<'_>, offset: usize) -> Self {
        // SAFETY: as promised.
        unsafe {
            match from.shape.dtype {
                DataType::F32 => Self::Real(from.read::<f32>(offset).into()),
                DataType::F16 => Self::Real(from.read::<f16>(offset).into()),
                DataType::Bf16 => Self::Real(from.read::<bf16>(offset).into()),
                DataType::F64 => Self::Real(from.read::<f64>(offset)),
                DataType::I8 => Self::Whole(from.read::<i8>(offset).into()),
                DataType::I16 => Self::Whole(from.read::<i16>(offset).into()),
                DataType::I32 => Self::Whole(from.read::<i32>(offset).into()),
                DataType::I64 => Self::Whole(from.read::<i64>(offset)),
                dtype => unreachable!("{dtype} is not plain"),
            }
        }
    }

    /// # Safety
    /// There is an element of that plain type, and no other thread accesses it.
    unsafe fn write(self, to: TensorPtr<'_>, offset: usize) {
        let real = match self {
            Self::Whole(x) => x as f64,
            Self::Real(x) => x,
        };
        macro_rules! whole {
            ($type:ty) => {
                match self {
                    Self::Whole(x) => x as $type,
                    Self::Real(x) => x as $type,
                }
            };
        }
        // SAFETY: as promised.
        unsafe {
            match to.shape.dtype {
                DataType::F32 => to.write(offset, real as f32),
                DataType::F16 => to.write(offset, f16::from_f64(real)),
                DataType::Bf16 => to.write(offset, bf16::from_f64(real)),
                DataType::F64 => to.write(offset, real),
                DataType::I8 => to.write(offset, whole!(i8)),
                DataType::I16 => to.write(offset, whole!(i16)),
                DataType::I32 => to.write(offset, whole!(i32)),
                DataType::I64 => to.write(offset, whole!(i64)),
                dtype => unreachable!("{dtype} is not plain"),
            }
        }
    }
}
