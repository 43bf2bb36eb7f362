//! Products of a few hundred rows with a few hundred rows, from which matrix products and attention are built.
//!
//! ```text
//!   a  m rows of k        b  n rows of k        out[i, j] = sum over k of a[i, k] * b[j, k]
//! ```
//!
//! With few rows on one side each row of the other is read once and multiplied with all of them, because reading takes
//! most of the time; with one, `f16` and `bf16` are converted in registers. Otherwise both are cut along `k` and given
//! to the gemm library, piece by piece, converted to `f32` where needed. The method and the cuts depend on `m`, `n` and
//! `k` alone, and so does every result: strides, addresses and types only decide what is copied. Matrix products with
//! blocks are in `block_product`; attention reads keys and values in blocks here.

use std::marker::PhantomData;
use std::ops::Range;

use half::f16;
use steeve_device::Shape;
use steeve_graph::DataType;

use crate::float_rows::load;
use crate::multiversion::multiversion;
use crate::quant::codec;
use crate::tensor_ptr::TensorPtr;

/// The number of rows on one side up to which the library is not faster.
pub(crate) const FEW: usize = 16;

/// The part of `k` that is converted and multiplied at a time.
const PIECE: usize = 1024;

/// The part of a row that is converted at a time where it is read once.
const CHUNK: usize = 256;

/// The number of rows that are read at a time, which keeps more of memory busy than one.
const ROWS: usize = 4;

/// The number of partial sums of each sum, so that an addition need not wait for the one before.
const LANES: usize = 16;

/// Checks that the rows of a tensor can be read as `f32`.
pub(crate) fn readable(shape: &Shape) -> Result<(), String> {
    if shape.dtype.is_float() {
        return Ok(());
    }
    let dtype = shape.dtype;
    if codec(dtype).is_none() {
        return Err(format!("no conversion of {dtype} to f32"));
    }
    let whole = (shape.ne[0] as u64).is_multiple_of(dtype.block_len()) && shape.nb[0] as u64 == dtype.block_bytes();
    if whole { Ok(()) } else { Err(format!("rows of {dtype}: expected whole blocks without gaps")) }
}

/// Rows in memory that can be read as `f32`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixView<'a> {
    start: *const u8,
    dtype: DataType,
    /// Bytes from one row to the next.
    row: usize,
    /// Bytes from one element, or block, to the next.
    step: usize,
    borrow: PhantomData<&'a [u8]>,
}

impl<'a> MatrixView<'a> {
    /// Returns the rows of a plane of a [`readable`] tensor, from the one at `offset` on.
    ///
    /// # Safety
    /// `offset` is the start of a row, and the tensor is not written while the matrix is in use.
    pub(crate) unsafe fn new(raw: TensorPtr<'a>, offset: usize) -> Self {
        let shape = raw.shape;
        // SAFETY: as promised.
        let start = unsafe { raw.at(offset) };
        Self { start, dtype: shape.dtype, row: shape.nb[1], step: shape.nb[0], borrow: PhantomData }
    }

    /// Returns loaded rows, one behind another.
    pub(crate) fn loaded(rows: &'a [f32], length: usize) -> Self {
        Self { start: rows.as_ptr().cast(), dtype: DataType::F32, row: 4 * length, step: 4, borrow: PhantomData }
    }

    /// Loads a part of a row. It starts and ends between blocks.
    ///
    /// # Safety
    /// There is such a row, and it has that part.
    pub(crate) unsafe fn load(&self, row: usize, from: usize, into: &mut [f32]) {
        match codec(self.dtype) {
            // SAFETY: as promised.
            None => unsafe { load(self.dtype, self.start.add(row * self.row + from * self.step), self.step, into) },
            Some(codec) => {
                let (block, size) = (self.dtype.block_len() as usize, self.dtype.block_bytes() as usize);
                // SAFETY: the caller promises the part, and blocks are adjacent in what is readable.
                let blocks = unsafe {
                    let start = self.start.add(row * self.row + from / block * size);
                    std::slice::from_raw_parts(start, into.len() / block * size)
                };
                (codec.decode)(blocks, into);
            }
        }
    }

    /// Returns a part of a row as `f32`, in place or in `workspace`.
    ///
    /// # Safety
    /// The contract of [`load`](Self::load) holds.
    unsafe fn part<'b>(&'b self, row: usize, from: usize, length: usize, workspace: &'b mut [f32]) -> &'b [f32] {
        match self.in_place() {
            // SAFETY: as promised.
            Some((start, stride)) => unsafe { std::slice::from_raw_parts(start.add(row * stride + from), length) },
            None => {
                // SAFETY: as promised.
                unsafe { self.load(row, from, &mut workspace[..length]) };
                &workspace[..length]
            }
        }
    }

    /// Returns the start of the rows and their distance in elements, if they can be read in place as `f32`.
    pub(crate) fn in_place(&self) -> Option<(*const f32, usize)> {
        let start = self.start.cast::<f32>();
        let fits = self.dtype == DataType::F32 && self.step == 4 && self.row.is_multiple_of(4) && start.is_aligned();
        fits.then_some((start, self.row / 4))
    }

    /// Returns how a row is multiplied with one of `f32`, if its elements have two bytes and no gaps.
    fn narrow(&self) -> Option<AddNarrow> {
        match (self.dtype, self.step) {
            (DataType::F16, 2) => Some(add_f16),
            (DataType::Bf16, 2) => Some(add_bf16),
            _ => None,
        }
    }

    /// Returns the start of a piece of each of `rows` rows as `f32`, and their distance in elements; loaded into
    /// `workspace` unless it can be read in place.
    ///
    /// # Safety
    /// There are such rows, and they have that piece. It is used only while `workspace` is not written.
    pub(crate) unsafe fn piece(&self, rows: usize, part: Range<usize>, workspace: &mut [f32]) -> (*const f32, usize) {
        if let Some((start, stride)) = self.in_place() {
            // SAFETY: as promised.
            return (unsafe { start.add(part.start) }, stride);
        }
        let length = part.len();
        for row in 0..rows {
            // SAFETY: as promised.
            unsafe { self.load(row, part.start, &mut workspace[row * length..(row + 1) * length]) };
        }
        (workspace.as_ptr(), length)
    }
}

/// The destination of a product: element `[i, j]` is `i` rows and `j` columns from the start, both in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductOutput {
    pub(crate) start: *mut u8,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl ProductOutput {
    /// Returns adjacent columns of `length` elements.
    pub(crate) fn dense(workspace: &mut [f32], length: usize) -> Self {
        Self { start: workspace.as_mut_ptr().cast(), row: 4, column: 4 * length }
    }

    fn turned(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    /// # Safety
    /// There is such an element, and no other thread accesses it.
    unsafe fn write(self, i: usize, j: usize, value: f32) {
        // SAFETY: as promised.
        unsafe { self.start.add(i * self.row + j * self.column).cast::<f32>().write_unaligned(value) }
    }
}

/// The number of rows on each side, and their length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductSize {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

impl ProductSize {
    /// Returns the workspace, in elements, that a product of this size needs at most; a smaller one needs less.
    pub(crate) fn workspace(self) -> usize {
        let Self { m, n, k } = self;
        let few = m.min(FEW).max(n.min(FEW)) * k;
        few.max((m + n) * k.min(PIECE) + m * n)
    }
}

/// Multiplies the rows of `a` with the rows of `b`.
///
/// # Safety
/// There are such rows of `a` and `b`, and such elements of `out`, which no other thread accesses. `workspace` is as
/// large as [`ProductSize::workspace`] says.
pub(crate) unsafe fn product(
    a: MatrixView<'_>,
    b: MatrixView<'_>,
    size: ProductSize,
    out: ProductOutput,
    workspace: &mut [f32],
) {
    let ProductSize { m, n, k } = size;
    // SAFETY: as promised.
    unsafe {
        if n <= FEW {
            dots(a, b, size, out, workspace);
        } else if m <= FEW {
            dots(b, a, ProductSize { m: n, n: m, k }, out.turned(), workspace);
        } else {
            pieces(a, b, size, out, workspace);
        }
    }
}

/// Multiplies with each row of `a` read once.
///
/// # Safety
/// The contract of [`product`] holds; `b` has at most [`FEW`] rows.
unsafe fn dots(
    a: MatrixView<'_>,
    b: MatrixView<'_>,
    ProductSize { m, n, k }: ProductSize,
    out: ProductOutput,
    workspace: &mut [f32],
) {
    // SAFETY: as promised.
    let (few, stride) = unsafe { b.piece(n, 0..k, workspace) };
    let mut rows: [&[f32]; FEW] = [&[]; FEW];
    for (j, row) in rows.iter_mut().enumerate().take(n) {
        // SAFETY: a row of `b`, in its place or in `workspace`, neither of which is written below.
        *row = unsafe { std::slice::from_raw_parts(few.add(j * stride), k) };
    }
    if n == 1
        && let Some(add) = a.narrow()
    {
        for i in 0..m {
            let mut sums = [0.0; LANES];
            // SAFETY: a row of `a`, whose elements are adjacent, and its product.
            unsafe {
                add(std::slice::from_raw_parts(a.start.add(i * a.row), 2 * k), rows[0], &mut sums);
                out.write(i, 0, total_of(&sums));
            }
        }
        return;
    }
    let mut sums = [[[0.0; LANES]; ROWS]; FEW];
    let (few, sums) = (&rows[..n], &mut sums[..n]);
    let mut loaded = [[0.0; CHUNK]; ROWS];
    for first in (0..m).step_by(ROWS) {
        let count = ROWS.min(m - first);
        sums.fill([[0.0; LANES]; ROWS]);
        // Rows that are read once, in their place, need no cutting.
        let chunk = if n == 1 && a.in_place().is_some() { k.max(1) } else { CHUNK };
        for from in (0..k).step_by(chunk) {
            let length = chunk.min(k - from);
            let mut rows: [&[f32]; ROWS] = [&[]; ROWS];
            for (i, (row, loaded)) in rows.iter_mut().zip(&mut loaded).take(count).enumerate() {
                // SAFETY: as promised.
                *row = unsafe { a.part(first + i, from, length, loaded) };
            }
            add_products(&rows[..count], few, from, sums);
        }
        for (j, sums) in sums.iter().enumerate() {
            let mut products = [0.0; ROWS];
            totals(&sums[..count], &mut products);
            for (i, product) in products[..count].iter().enumerate() {
                // SAFETY: as promised.
                unsafe { out.write(first + i, j, *product) };
            }
        }
    }
}

multiversion! {
    /// Adds the products of each of `rows` with each of `few`, from element `from` on, in lanes.
    fn add_products(rows: &[&[f32]], few: &[&[f32]], from: usize, sums: &mut [[[f32; LANES]; ROWS]]) {
        for (few, sums) in few.iter().zip(sums) {
            let few = &few[from..];
            match <&[&[f32]; ROWS]>::try_from(rows) {
                Ok(rows) => add_lanes::<ROWS>(few, *rows, sums),
                Err(_) => rows.iter().zip(sums).for_each(|(row, sum)| add_lanes(few, [row], std::array::from_mut(sum))),
            }
        }
    }
}

/// Adds the products of `one` with each of `rows`, all of one length.
#[inline(always)]
fn add_lanes<const N: usize>(one: &[f32], rows: [&[f32]; N], sums: &mut [[f32; LANES]; N]) {
    let length = rows[0].len();
    let (one, rest) = one[..length].as_chunks::<LANES>();
    let rows = rows.map(|row| row[..length].as_chunks::<LANES>());
    let mut lanes = *sums;
    for (at, x) in one.iter().enumerate() {
        for (lanes, (row, _)) in lanes.iter_mut().zip(&rows) {
            for ((sum, x), y) in lanes.iter_mut().zip(x).zip(&row[at]) {
                *sum += x * y;
            }
        }
    }
    for (lanes, (_, row)) in lanes.iter_mut().zip(&rows) {
        for ((sum, x), y) in lanes.iter_mut().zip(rest).zip(*row) {
            *sum += x * y;
        }
    }
    *sums = lanes;
}

/// Adds the products of a row of two-byte floats, which need not be converted before, with one of `f32`.
type AddNarrow = fn(&[u8], &[f32], &mut [f32; LANES]);

fn add_f16(bytes: &[u8], row: &[f32], sums: &mut [f32; LANES]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has these features.
        return unsafe { f16c::add(bytes, row, sums) };
    }
    add_widened(bytes, row, sums, |bytes| f16::from_ne_bytes(bytes).to_f32());
}

multiversion! {
    fn add_bf16(bytes: &[u8], row: &[f32], sums: &mut [f32; LANES]) {
        add_widened(bytes, row, sums, |bytes| f32::from_bits(u32::from(u16::from_ne_bytes(bytes)) << 16));
    }
}

/// Adds products in the lanes of [`add_lanes`].
#[inline(always)]
fn add_widened(bytes: &[u8], row: &[f32], sums: &mut [f32; LANES], widen: impl Fn([u8; 2]) -> f32) {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let (bytes, bytes_rest) = bytes.as_chunks::<2>().0.split_at(chunks.len() * LANES);
    let mut lanes = *sums;
    for (row, bytes) in chunks.iter().zip(bytes.as_chunks::<LANES>().0) {
        for ((sum, x), y) in lanes.iter_mut().zip(row).zip(bytes) {
            *sum += x * widen(*y);
        }
    }
    for ((sum, x), y) in lanes.iter_mut().zip(rest).zip(bytes_rest) {
        *sum += x * widen(*y);
    }
    *sums = lanes;
}

#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::{
        __m256, _mm_loadu_si128, _mm256_add_ps, _mm256_cvtph_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_storeu_ps,
    };

    use half::f16;

    use super::{LANES, add_widened};

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn add(bytes: &[u8], row: &[f32], sums: &mut [f32; LANES]) {
        let (halves, rows) = (bytes.as_chunks::<{ 2 * LANES }>().0, row.as_chunks::<LANES>().0);
        // SAFETY: eight of the lanes.
        let mut lanes = unsafe { [0, 8].map(|at| _mm256_loadu_ps(sums.as_ptr().add(at))) };
        for (halves, row) in halves.iter().zip(rows) {
            for (part, lanes) in lanes.iter_mut().enumerate() {
                // SAFETY: eight elements of each.
                let (x, y): (__m256, __m256) = unsafe {
                    let halves = _mm_loadu_si128(halves.as_ptr().add(16 * part).cast());
                    (_mm256_cvtph_ps(halves), _mm256_loadu_ps(row.as_ptr().add(8 * part)))
                };
                *lanes = _mm256_add_ps(*lanes, _mm256_mul_ps(x, y));
            }
        }
        for (part, lanes) in lanes.into_iter().enumerate() {
            // SAFETY: eight of the lanes.
            unsafe { _mm256_storeu_ps(sums.as_mut_ptr().add(8 * part), lanes) };
        }
        let done = rows.len() * LANES;
        add_widened(&bytes[2 * done..], &row[done..], sums, |bytes| f16::from_ne_bytes(bytes).to_f32());
    }
}

multiversion! {
    /// Returns the sum of the lanes, halved again and again.
    fn totals(sums: &[[f32; LANES]], totals: &mut [f32]) {
        for (sums, total) in sums.iter().zip(totals) {
            *total = total_of(sums);
        }
    }
}

#[inline(always)]
fn total_of(lanes: &[f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// Gives pieces to the library, which adds them up.
///
/// # Safety
/// The contract of [`product`] holds.
unsafe fn pieces(
    a: MatrixView<'_>,
    b: MatrixView<'_>,
    ProductSize { m, n, k }: ProductSize,
    out: ProductOutput,
    workspace: &mut [f32],
) {
    let (product, workspace) = workspace.split_at_mut(m * n);
    let (a_workspace, b_workspace) = workspace.split_at_mut(m * k.min(PIECE));
    let in_place = out.row == 4 && out.column.is_multiple_of(4) && out.start.cast::<f32>().is_aligned();
    let to = if in_place { out } else { ProductOutput::dense(product, m) };
    for from in (0..k.max(1)).step_by(PIECE) {
        let part = from..k.min(from + PIECE);
        // SAFETY: as promised.
        let ((a, a_stride), (b, b_stride)) =
            unsafe { (a.piece(m, part.clone(), a_workspace), b.piece(n, part.clone(), b_workspace)) };
        let sum = GemmOperands { a, a_row: a_stride, a_column: 1, b, b_column: b_stride };
        let size = ProductSize { m, n, k: part.len() };
        // SAFETY: as promised; `to` is aligned.
        unsafe {
            match from {
                0 => sum.write(to.start.cast(), to.column / 4, size),
                _ => sum.add_to(to.start.cast(), to.column / 4, size),
            }
        }
    }
    if !in_place {
        for (j, column) in product.chunks(m.max(1)).enumerate() {
            for (i, value) in column.iter().enumerate() {
                // SAFETY: as promised.
                unsafe { out.write(i, j, *value) };
            }
        }
    }
}

/// The operands of the gemm library: `a` has `m` rows and `k` columns, the `k` rows of `b` are adjacent. Strides count
/// elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemmOperands {
    pub(crate) a: *const f32,
    pub(crate) a_row: usize,
    pub(crate) a_column: usize,
    pub(crate) b: *const f32,
    pub(crate) b_column: usize,
}

impl GemmOperands {
    /// Writes the product into columns of `out`.
    ///
    /// # Safety
    /// All elements exist, and no other thread accesses those of `out`.
    pub(crate) unsafe fn write(self, out: *mut f32, column: usize, size: ProductSize) {
        // SAFETY: as promised.
        unsafe { self.run(out, column, size, false) }
    }

    /// Adds the product to columns of `out`.
    ///
    /// # Safety
    /// The contract of [`write`](Self::write) holds.
    pub(crate) unsafe fn add_to(self, out: *mut f32, column: usize, size: ProductSize) {
        // SAFETY: as promised.
        unsafe { self.run(out, column, size, true) }
    }

    /// # Safety
    /// The contract of [`write`](Self::write) holds.
    unsafe fn run(self, out: *mut f32, column: usize, ProductSize { m, n, k }: ProductSize, add: bool) {
        // A stride of a tensor in memory is below 2^63.
        let [a_row, a_column, b_column, column] =
            [self.a_row, self.a_column, self.b_column, column].map(usize::cast_signed);
        let none = gemm::Parallelism::None;
        // SAFETY: as promised.
        unsafe {
            gemm::gemm(
                m, n, k, out, column, 1, add, self.a, a_column, a_row, self.b, b_column, 1, 1.0, 1.0, false, false,
                false, none,
            );
        }
    }
}
