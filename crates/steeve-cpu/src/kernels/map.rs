//! Kernels that compute each element of the result from one element of each source.
//!
//! Each is generic over its function, so that there is no call per element. Dense `f32` is computed in place, some
//! elements at a time; everything else is loaded, computed and stored in short pieces. Both read a piece before they
//! write it, so a result may have the memory of a source.

use std::fmt;

use steeve_device::Shape;
use steeve_graph::{DataType, TensorId};

use super::strided_walk::StridedWalk;
use crate::float_rows::{load, store};
use crate::kernel::{Kernel, NodeCall, Operands, RowUnits, ThreadScratch, UnitError};

/// Returns the kernel of a function of one number, for each element of the first source.
pub(crate) fn map_unary(
    node: &NodeCall<'_>,
    a: TensorId,
    function: impl UnaryFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    floats([node.result, a])?;
    let lines = LineUnits::new(StridedWalk::elements([&node.result, &a]));
    let types = [node.result.dtype, a.dtype];
    Ok(Box::new(UnaryMap { function, direct: types == [DataType::F32; 2] && lines.steps == [4; 2], types, lines }))
}

/// Returns the kernel of a function of two numbers: an element of the first source and one of the second, which may be
/// repeated.
pub(crate) fn map_binary(
    node: &NodeCall<'_>,
    a: TensorId,
    b: TensorId,
    function: impl BinaryFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    let [a, b] = node.shapes([a, b])?;
    let walk = repeated(&node.result, &a, &b);
    of_pairs([node.result, a, b], [(0, 0), (1, 0)], walk, function)
}

/// Returns the kernel of a function of two numbers that both are in the first source, in the halves of its rows.
pub(crate) fn map_halves(
    node: &NodeCall<'_>,
    a: TensorId,
    halves: GluHalves,
    function: impl BinaryFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    let (a, result) = (node.shape(a)?, node.result);
    let half = Shape { ne: result.ne, ..a };
    let (low, high) = ((0, 0), (0, result.ne[0] * a.nb[0]));
    let sources = match halves {
        GluHalves::InOrder => [low, high],
        GluHalves::Swapped => [high, low],
    };
    of_pairs([result, half, half], sources, StridedWalk::elements([&result, &half, &half]), function)
}

/// The order of the halves of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GluHalves {
    InOrder,
    Swapped,
}

/// Returns the kernel of a function of one whole number.
pub(crate) fn map_unary_int(
    node: &NodeCall<'_>,
    a: TensorId,
    function: impl UnaryIntFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    let a = node.shape(a)?;
    ints([node.result, a])?;
    Ok(Box::new(UnaryIntMap { function, lines: LineUnits::new(StridedWalk::elements([&node.result, &a])) }))
}

/// Returns the kernel of a function of two whole numbers; the second source may be repeated.
pub(crate) fn map_binary_int(
    node: &NodeCall<'_>,
    a: TensorId,
    b: TensorId,
    function: impl BinaryIntFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    let [a, b] = node.shapes([a, b])?;
    ints([node.result, a, b])?;
    Ok(Box::new(BinaryIntMap { function, lines: LineUnits::new(repeated(&node.result, &a, &b)) }))
}

/// Returns the kernel that writes one number everywhere.
pub(crate) fn constant(node: &NodeCall<'_>, value: f32) -> Result<Box<dyn Kernel>, String> {
    if !node.result.dtype.is_float() && node.result.dtype != DataType::I32 {
        return Err("data type: expected f32, f16, bf16 or i32".into());
    }
    Ok(Box::new(FillConstant {
        value,
        dtype: node.result.dtype,
        lines: LineUnits::new(StridedWalk::elements([&node.result])),
    }))
}

pub(crate) fn floats<const N: usize>(shapes: [Shape; N]) -> Result<(), String> {
    if shapes.iter().all(|shape| shape.dtype.is_float()) {
        Ok(())
    } else {
        Err("data type: expected f32, f16 or bf16".into())
    }
}

pub(crate) fn ints<const N: usize>(shapes: [Shape; N]) -> Result<(), String> {
    let all = shapes.iter().all(|shape| shape.dtype == DataType::I32);
    if all { Ok(()) } else { Err("data types: expected i32 with i32".into()) }
}

fn of_pairs(
    [result, a, b]: [Shape; 3],
    sources: [(usize, usize); 2],
    walk: StridedWalk<3>,
    function: impl BinaryFn + 'static,
) -> Result<Box<dyn Kernel>, String> {
    floats([result, a, b])?;
    let lines = LineUnits::new(walk);
    let types = [result, a, b].map(|shape| shape.dtype);
    let direct = types == [DataType::F32; 3] && matches!(lines.steps, [4, 4, 4 | 0]);
    Ok(Box::new(BinaryMap { function, sources, types, direct, lines }))
}

/// Returns the walk over a result and a source of its shape, with another source that is repeated until it fills it.
fn repeated(result: &Shape, a: &Shape, b: &Shape) -> StridedWalk<3> {
    let mut walk = StridedWalk::new();
    for dim in 0..4 {
        let (n, part) = (result.ne[dim], b.ne[dim]);
        walk.push_repeated(n, [result.nb[dim], a.nb[dim], b.nb[dim]], part.max(1));
    }
    walk
}

/// Functions that a kernel is made for.
pub(crate) trait UnaryFn: Fn(f32) -> f32 + Send + Sync {}
impl<F: Fn(f32) -> f32 + Send + Sync> UnaryFn for F {}

pub(crate) trait BinaryFn: Fn(f32, f32) -> f32 + Send + Sync {}
impl<F: Fn(f32, f32) -> f32 + Send + Sync> BinaryFn for F {}

pub(crate) trait UnaryIntFn: Fn(i32) -> i32 + Send + Sync {}
impl<F: Fn(i32) -> i32 + Send + Sync> UnaryIntFn for F {}

pub(crate) trait BinaryIntFn: Fn(i32, i32) -> Result<i32, String> + Send + Sync {}
impl<F: Fn(i32, i32) -> Result<i32, String> + Send + Sync> BinaryIntFn for F {}

/// A [`StridedWalk`] cut into lines, and those into units of work.
#[derive(Debug)]
struct LineUnits<const N: usize> {
    /// The number of elements of a line.
    length: usize,
    /// The step of each operand along a line.
    steps: [usize; N],
    /// The walk from line to line.
    walk: StridedWalk<N>,
    /// The number of pieces that a long line is cut into.
    pieces: usize,
    rows: RowUnits,
}

/// The length of the pieces that longer lines are cut into.
const PIECE: usize = 16 * 1024;

/// The length of the parts in which operands are loaded that are not computed in place; they stay in the nearest cache.
const PART: usize = 1024;

impl<const N: usize> LineUnits<N> {
    fn new(walk: StridedWalk<N>) -> Self {
        let (length, steps, walk) = walk.split();
        let pieces = length.div_ceil(PIECE).max(1);
        Self { length, steps, walk, pieces, rows: RowUnits::new(walk.count() * pieces, length.min(PIECE)) }
    }

    /// Calls `act` for each line of a unit: its start in each operand, and its length.
    fn each(&self, unit: usize, mut act: impl FnMut([usize; N], usize)) {
        let lines = self.rows.unit(unit);
        if self.pieces == 1 {
            self.walk.from(lines.start).take(lines.len()).for_each(|offsets| act(offsets, self.length));
            return;
        }
        for piece in lines {
            let start = piece % self.pieces * PIECE;
            for mut offsets in self.walk.from(piece / self.pieces).take(1) {
                (0..N).for_each(|i| offsets[i] += start * self.steps[i]);
                act(offsets, PIECE.min(self.length - start));
            }
        }
    }

    /// Calls `act` for parts of each line of a unit that fit into scratch memory.
    fn each_part(&self, unit: usize, mut act: impl FnMut([usize; N], usize)) {
        self.each(unit, |mut offsets, length| {
            for start in (0..length).step_by(PART) {
                act(offsets, PART.min(length - start));
                (0..N).for_each(|i| offsets[i] = offsets[i].wrapping_add(self.steps[i].wrapping_mul(PART)));
            }
        });
    }
}

/// The number of elements that are read before as many are written.
const BLOCK: usize = 64;

/// The number of elements below which blocks do not pay.
const FEW: usize = 16;

/// Compiles a loop over a function for the baseline of the target and for AVX2. Both compute the same.
macro_rules! wide_loop {
    ($(#[$doc:meta])* unsafe fn $name:ident($($arg:ident: $type:ty),*; $function:ident: $bound:ident) $body:block) => {
        $(#[$doc])*
        unsafe fn $name<F: $bound>($($arg: $type,)* $function: &F) {
            #[inline(always)]
            unsafe fn plain<F: $bound>($($arg: $type,)* $function: &F) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                unsafe fn wide<F: $bound>($($arg: $type,)* $function: &F) {
                    // SAFETY: as the caller promises.
                    unsafe { plain($($arg,)* $function) }
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: as the caller promises; the processor has this feature.
                    return unsafe { wide($($arg,)* $function) };
                }
            }
            // SAFETY: as the caller promises.
            unsafe { plain($($arg,)* $function) }
        }
    };
}

wide_loop! {
    /// # Safety
    /// `length` elements of `f32` can be read at `from` and written at `to`, and the two are equal or share no byte.
    unsafe fn map_one(to: *mut u8, from: *const u8, length: usize; function: UnaryFn) {
        let (to, from) = (to.cast::<f32>(), from.cast::<f32>());
        let whole = length - length % BLOCK;
        // SAFETY: as promised.
        unsafe {
            for i in (0..whole).step_by(BLOCK) {
                let mut block = from.add(i).cast::<[f32; BLOCK]>().read_unaligned();
                block.iter_mut().for_each(|x| *x = function(*x));
                to.add(i).cast::<[f32; BLOCK]>().write_unaligned(block);
            }
            if length - whole < FEW {
                for i in whole..length {
                    to.add(i).write_unaligned(function(from.add(i).read_unaligned()));
                }
                return;
            }
            let (mut block, bytes) = ([0.0; BLOCK], 4 * (length - whole));
            from.add(whole).cast::<u8>().copy_to_nonoverlapping(block.as_mut_ptr().cast(), bytes);
            block[..length - whole].iter_mut().for_each(|x| *x = function(*x));
            to.add(whole).cast::<u8>().copy_from_nonoverlapping(block.as_ptr().cast(), bytes);
        }
    }
}

wide_loop! {
    /// # Safety
    /// The contract of [`map_one`] holds, with two sources.
    unsafe fn map_two(to: *mut u8, a: *const u8, b: *const u8, length: usize; function: BinaryFn) {
        let (to, a, b) = (to.cast::<f32>(), a.cast::<f32>(), b.cast::<f32>());
        let whole = length - length % BLOCK;
        // SAFETY: as promised.
        unsafe {
            for i in (0..whole).step_by(BLOCK) {
                let mut block = a.add(i).cast::<[f32; BLOCK]>().read_unaligned();
                let other = b.add(i).cast::<[f32; BLOCK]>().read_unaligned();
                block.iter_mut().zip(other).for_each(|(x, y)| *x = function(*x, y));
                to.add(i).cast::<[f32; BLOCK]>().write_unaligned(block);
            }
            if length - whole < FEW {
                for i in whole..length {
                    to.add(i).write_unaligned(function(a.add(i).read_unaligned(), b.add(i).read_unaligned()));
                }
                return;
            }
            let (mut block, mut other, bytes) = ([0.0; BLOCK], [0.0; BLOCK], 4 * (length - whole));
            a.add(whole).cast::<u8>().copy_to_nonoverlapping(block.as_mut_ptr().cast(), bytes);
            b.add(whole).cast::<u8>().copy_to_nonoverlapping(other.as_mut_ptr().cast(), bytes);
            block[..length - whole].iter_mut().zip(&other).for_each(|(x, y)| *x = function(*x, *y));
            to.add(whole).cast::<u8>().copy_from_nonoverlapping(block.as_ptr().cast(), bytes);
        }
    }
}

struct UnaryMap<F> {
    function: F,
    types: [DataType; 2],
    /// Whether it is computed in place.
    direct: bool,
    lines: LineUnits<2>,
}

impl<F: UnaryFn> Kernel for UnaryMap<F> {
    fn units(&self) -> usize {
        self.lines.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a) = (operands.result, operands.source(0));
        let ([to, from], [to_step, from_step]) = (self.types, self.lines.steps);
        if self.direct {
            // SAFETY: lines of the operands, which have the same memory or share no byte.
            self.lines.each(unit, |[r, a_], n| unsafe { map_one(result.at(r), a.at(a_), n, &self.function) });
            return Ok(());
        }
        let [x] = scratch.rows([PART]);
        self.lines.each_part(unit, |[r, a_], n| {
            let x = &mut x[..n];
            // SAFETY: parts of the operands' lines; the source's is copied before the result's is written.
            unsafe {
                load(from, a.at(a_), from_step, x);
                let x = x.as_mut_ptr().cast::<u8>();
                map_one(x, x, n, &self.function);
            }
            // SAFETY: parts of the operands' lines; the source's has been copied.
            unsafe { store(to, result.at(r), to_step, x) };
        });
        Ok(())
    }
}

struct BinaryMap<F> {
    function: F,
    /// The slots of the two sources, and their offsets there.
    sources: [(usize, usize); 2],
    types: [DataType; 3],
    direct: bool,
    lines: LineUnits<3>,
}

impl<F: BinaryFn> Kernel for BinaryMap<F> {
    fn units(&self) -> usize {
        self.lines.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let [(a_slot, a_start), (b_slot, b_start)] = self.sources;
        let (result, a, b) = (operands.result, operands.source(a_slot), operands.source(b_slot));
        let ([to, a_type, b_type], [to_step, a_step, b_step]) = (self.types, self.lines.steps);
        if self.direct {
            // SAFETY: lines of the operands, which have the same memory or share no byte; a repeated one shares none.
            self.lines.each(unit, |[r, a_, b_], n| unsafe {
                let (to, x, y) = (result.at(r), a.at(a_start + a_), b.at(b_start + b_));
                if b_step == 0 {
                    let y = y.cast::<f32>().read_unaligned();
                    map_one(to, x, n, &|x| (self.function)(x, y));
                } else {
                    map_two(to, x, y, n, &self.function);
                }
            });
            return Ok(());
        }
        let [x, y] = scratch.rows([PART; 2]);
        self.lines.each_part(unit, |[r, a_, b_], n| {
            let (x, y) = (&mut x[..n], &mut y[..n]);
            // SAFETY: parts of the operands' lines; the sources' are copied before the result's is written.
            unsafe {
                load(a_type, a.at(a_start + a_), a_step, x);
                load(b_type, b.at(b_start + b_), b_step, y);
                let x = x.as_mut_ptr().cast::<u8>();
                map_two(x, x, y.as_ptr().cast(), n, &self.function);
            }
            // SAFETY: parts of the operands' lines; the sources' have been copied.
            unsafe { store(to, result.at(r), to_step, x) };
        });
        Ok(())
    }
}

struct UnaryIntMap<F> {
    function: F,
    lines: LineUnits<2>,
}

impl<F: UnaryIntFn> Kernel for UnaryIntMap<F> {
    fn units(&self) -> usize {
        self.lines.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, [to, from]) = (operands.result, operands.source(0), self.lines.steps);
        self.lines.each(unit, |[r, a_], n| {
            for i in 0..n {
                // SAFETY: an element of each operand.
                unsafe { result.write(r + i * to, (self.function)(a.read(a_ + i * from))) };
            }
        });
        Ok(())
    }
}

struct BinaryIntMap<F> {
    function: F,
    lines: LineUnits<3>,
}

impl<F: BinaryIntFn> Kernel for BinaryIntMap<F> {
    fn units(&self) -> usize {
        self.lines.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, _: &mut ThreadScratch) -> Result<(), UnitError> {
        let (result, a, b) = (operands.result, operands.source(0), operands.source(1));
        let [to, a_step, b_step] = self.lines.steps;
        let mut done = Ok(());
        self.lines.each(unit, |[r, a_, b_], n| {
            for i in 0..n {
                // SAFETY: an element of each operand.
                unsafe {
                    match (self.function)(a.read(a_ + i * a_step), b.read(b_ + i * b_step)) {
                        Ok(value) => result.write(r + i * to, value),
                        Err(why) => done = Err(why),
                    }
                }
            }
        });
        Ok(done?)
    }
}

struct FillConstant {
    value: f32,
    dtype: DataType,
    lines: LineUnits<1>,
}

impl Kernel for FillConstant {
    fn units(&self) -> usize {
        self.lines.rows.units()
    }

    unsafe fn run(&self, operands: &Operands<'_>, unit: usize, scratch: &mut ThreadScratch) -> Result<(), UnitError> {
        let ([x], [step]) = (scratch.rows([PART.min(self.lines.length)]), self.lines.steps);
        // As bits, an i32 is stored like any other four bytes.
        let (value, dtype) = match self.dtype {
            DataType::I32 => (f32::from_bits((self.value as i32).cast_unsigned()), DataType::F32),
            dtype => (self.value, dtype),
        };
        x.fill(value);
        // SAFETY: parts of the result's lines.
        self.lines.each_part(unit, |[r], n| unsafe { store(dtype, operands.result.at(r), step, &x[..n]) });
        Ok(())
    }
}

macro_rules! without_function {
    ($($kernel:ident<F>),*) => {
        $(impl<F> fmt::Debug for $kernel<F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($kernel)).field("lines", &self.lines).finish_non_exhaustive()
            }
        })*
    };
}

without_function! { UnaryMap<F>, BinaryMap<F>, UnaryIntMap<F>, BinaryIntMap<F> }

impl fmt::Debug for FillConstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constant").field("value", &self.value).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::functions as f;
    use super::*;

    #[test]
    fn an_element_does_not_depend_on_its_neighbours() {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-40, -1e-40, 88.8, -103.9];
        for length in [1, 15, 16, 63, 64, 65, 200] {
            let from: Vec<f32> =
                (0..length).map(|i| if i % 9 == 0 { special[i / 9 % 8] } else { i as f32 / 7.0 - 9.0 }).collect();
            macro_rules! check {
                ($($function:expr),*) => {
                    $({
                        let mut to = vec![0.0f32; length];
                        // SAFETY: both have that length.
                        unsafe { map_one(to.as_mut_ptr().cast(), from.as_ptr().cast(), length, &$function) };
                        for (to, from) in to.iter().zip(&from) {
                            let alone = std::hint::black_box($function)(std::hint::black_box(*from));
                            assert!(to.to_bits() == alone.to_bits() || to.is_nan() && alone.is_nan(), "of {from}: {to}, {alone}");
                        }
                    })*
                };
            }
            check!(f::exp, f::silu, f::gelu, f::gelu_erf, f::tanh, f::sigmoid, f32::sqrt, f::sgn);
        }
    }
}
