//! Products of matrices: by warps where there are few columns, by cuBLAS where it can, those of experts by tensor cores, and by
//! tiles for the rest.
//!
//! Weights of f16 and bf16 and blocks meet a second source of their own precision in cuBLAS and with experts, as in ggml: it is
//! rounded to the weights' type (to f16 for blocks), products are exact and added up in f32. With few columns it stays f32.
//! Unlike in ggml, a row that has no room in f16 is scaled, so that a prompt can't overflow where its tokens one by one do not.
//! Blocks are not: with more than a few columns their elements must have room in f16, as in ggml.

use steeve_graph::{DataType, TensorId};

use super::movement::{convert, demand_weights};
use super::{demand, divides};
use crate::blas::{MatrixOperand, Product};
use crate::command_list::{ACROSS, CommandList, NodeCall};
use crate::cuda_c::DevicePointer;
use crate::data_types::is_weight_block;
use crate::kernel_list as kernel;
use crate::operand::{Operand, signed, unsigned};
use crate::params::{ExpertParams, NarrowParams, ProductParams, Tensor, WidenParams, ZerosParams};

/// As many columns are done by warps.
const FEW: usize = 8;

/// As many columns of f16 are done by warps: the library is quicker beyond. So it is for bf16, but rounding the second source to that loses
/// eight times as much.
const FEW_HALVES: usize = 2;

/// As many rows of tokens are done one by one before experts gather theirs.
const FEW_ROWS: usize = 64;

/// `a` `[k, m]` and `b` `[k, n]` make `[m, n]`; `a` is repeated over the outer dimensions.
pub(crate) fn mul_mat(node: &NodeCall<'_>, commands: &mut CommandList, a: TensorId, b: TensorId) -> Result<(), String> {
    let ([a, b], result) = (node.operands([a, b])?, node.result);
    demand_weights(&a)?;
    let types = b.shape.dtype.is_float() && result.shape.dtype == DataType::F32;
    demand(types, "data types: expected a second source of f32, f16 or bf16 and a result of f32")?;
    let [k, m, a_planes, a_cubes] = a.shape.ne;
    let [_, n, planes, cubes] = b.shape.ne;
    if result.shape.elements() == 0 {
        return Ok(());
    }
    if k == 0 {
        return zeros(commands, result);
    }
    let repeats = [planes / a_planes, cubes / a_cubes];
    let few = if a.shape.dtype == DataType::F16 { FEW_HALVES } else { FEW };
    if commands.machine.has_blas && n > few && by_library(commands, a, b, result)? {
        return Ok(());
    }
    if n <= FEW {
        let (a, b) = (as_words(commands, a)?, as_floats(commands, b)?);
        let params = ProductParams {
            is_aligned: is_aligned(&a).into(),
            ..ProductParams::new(result, a, b, planes * cubes, repeats)
        };
        let (kernel, rows) = match (n, is_weight_block(a.shape.dtype)) {
            (1, false) => (kernel::few_columns_1, 4),
            (2, false) => (kernel::few_columns_2, 4),
            (3..=4, false) => (kernel::few_columns_4, 4),
            (_, false) => (kernel::few_columns_8, 2),
            (1, true) => (kernel::few_columns_blocks_1, 4),
            (2..=4, true) => (kernel::few_columns_blocks_4, 2),
            (_, true) => (kernel::few_columns_blocks_8, 2),
        };
        return commands.launch(kernel, [m.div_ceil(rows), 1, (planes * cubes).min(ACROSS)], 128, params);
    }
    let params = ProductParams::new(result, a, b, planes * cubes, repeats);
    commands.launch(kernel::tiles, [m.div_ceil(64), n.div_ceil(64), (planes * cubes).min(ACROSS)], 256, params)
}

impl ProductParams {
    /// Returns the parameters of a product without experts, of `planes` planes of `b`.
    fn new(result: Operand, a: Operand, b: Operand, planes: usize, repeats: [usize; 2]) -> Self {
        let [plane_repeats, cube_repeats] = repeats.map(signed);
        Self {
            result: result.into(),
            weights: a.into(),
            inputs: b.into(),
            ids: Tensor::optional(None),
            planes: signed(planes),
            plane_repeats,
            cube_repeats,
            is_aligned: false.into(),
        }
    }
}

/// Returns whether kernels can read several elements of these weights at once: blocks are read in pieces of two bytes, or of
/// four where `as_words` has put them.
fn is_aligned(weights: &Operand) -> bool {
    !weights.shape.dtype.is_float() || weights.shape.has_dense_rows() && weights.is_aligned(16)
}

/// The sums of nothing.
fn zeros(commands: &mut CommandList, result: Operand) -> Result<(), String> {
    let count = result.shape.elements();
    commands.launch_each(kernel::zeros, count, ZerosParams { result: result.into(), count: unsigned(count) })
}

/// Weights whose blocks are multiples of four bytes at such addresses. Hardly any are elsewhere.
fn as_words(commands: &mut CommandList, a: Operand) -> Result<Operand, String> {
    if !is_weight_block(a.shape.dtype) || !a.shape.size().is_multiple_of(4) || a.is_aligned(4) {
        return Ok(a);
    }
    let dense = commands.scratch_tensor(a.shape.dense(a.shape.dtype));
    convert(commands, a, dense)?;
    Ok(dense)
}

/// A source as f32 whose rows start at multiples of 16 bytes.
fn as_floats(commands: &mut CommandList, b: Operand) -> Result<Operand, String> {
    if b.shape.dtype == DataType::F32 && b.shape.has_dense_rows() && b.is_aligned(16) {
        return Ok(b);
    }
    let dense = commands.scratch_tensor(b.shape.with_rows(DataType::F32, (4 * b.shape.ne[0]).next_multiple_of(16)));
    convert(commands, b, dense)?;
    Ok(dense)
}

/// Makes the product by the library; returns whether it can.
fn by_library(commands: &mut CommandList, a: Operand, b: Operand, result: Operand) -> Result<bool, String> {
    let number = |value: usize| i32::try_from(value).ok();
    let numbers = [a.shape.ne[1], b.shape.ne[1], a.shape.ne[0], b.shape.ne[2]].map(number);
    let [Some(m), Some(n), Some(k), Some(planes)] = numbers else { return Ok(false) };
    let Some(result_side) = side(&result, m) else { return Ok(false) };
    let dtype = match (a.shape.dtype, b.shape.dtype) {
        (DataType::F32, _) | (DataType::F16, DataType::Bf16) | (DataType::Bf16, DataType::F16) => DataType::F32,
        (own, _) if own.is_float() => own,
        _ => DataType::F16,
    };
    let (a, a_side) = as_type(commands, a, dtype, k)?;
    let is_narrowed = dtype == DataType::F16 && b.shape.dtype != DataType::F16;
    let (b, b_side, powers) = if is_narrowed {
        let (dense, powers) = narrow(commands, b)?;
        (dense, MatrixOperand { address: dense.address, row: k, next: 0 }, powers)
    } else {
        let (b, side) = as_type(commands, b, dtype, k)?;
        (b, side, DevicePointer::NULL)
    };
    let product = Product { dtype, m, n, k, a: a_side, b: b_side, result: result_side, count: planes };
    products(commands, product, &a, &b, &result);
    if is_narrowed {
        let params = WidenParams { result: result.into(), powers };
        commands.launch(kernel::widen, [result.shape.rows(), 1, 1], 256, params)?;
    }
    Ok(true)
}

/// As few products as the outer dimensions allow. `product` is that of the first planes.
fn products(commands: &mut CommandList, product: Product, a: &Operand, b: &Operand, result: &Operand) {
    let [_, _, a_planes, a_cubes] = a.shape.ne;
    let [_, n, planes, cubes] = b.shape.ne;
    // One matrix for all, and the columns of all planes one behind another: they are columns of one plane.
    let follows = |it: &Operand| {
        let [_, row, plane, cube] = it.shape.nb;
        (planes == 1 || plane == row * n) && (cubes == 1 || cube == row * n * planes)
    };
    if a_planes * a_cubes == 1
        && follows(b)
        && follows(result)
        && let Ok(all) = i32::try_from(n * planes * cubes)
    {
        return commands.product(Product { n: all, count: 1, ..product });
    }
    // Neighbours in the outer dimensions of `b` share one of `a`, or each has its own.
    let is_shared = a_planes != planes;
    let groups = if is_shared { a_planes } else { 1 };
    let next = |it: &Operand| signed(it.shape.nb[2] / it.shape.size());
    let at = |it: &Operand, i2: usize, i3: usize| it.at(it.shape.offset([0, 0, i2, i3]));
    for (i3, group) in (0..cubes).flat_map(|i3| (0..groups).map(move |group| (i3, group))) {
        let (a3, first) = (i3 / (cubes / a_cubes), group * (planes / groups));
        commands.product(Product {
            // Not more than there are planes.
            count: product.count / groups as i32,
            a: MatrixOperand { address: at(a, group, a3), next: if is_shared { 0 } else { next(a) }, ..product.a },
            b: MatrixOperand { address: at(b, first, i3), next: next(b), ..product.b },
            result: MatrixOperand { address: at(result, first, i3), next: next(result), ..product.result },
            ..product
        });
    }
}

/// A source rounded to f16, and where the powers of two are that its rows were divided by.
fn narrow(commands: &mut CommandList, b: Operand) -> Result<(Operand, DevicePointer<f32>), String> {
    let (dense, rows) = (commands.scratch_tensor(b.shape.dense(DataType::F16)), b.shape.rows());
    let powers = commands.scratch_values(rows);
    let in_fours = divides(4, b.shape.ne[0]) && b.shape.has_dense_rows() && b.is_aligned(4 * b.shape.size());
    let params = NarrowParams { result: dense.into(), source: b.into(), powers, in_fours: in_fours.into() };
    commands.launch(kernel::narrow, [rows, 1, 1], 256, params)?;
    Ok((dense, powers))
}

/// A matrix as the library wants it: rows without gaps that do not overlap, whole elements from row to row.
fn side(it: &Operand, length: i32) -> Option<MatrixOperand> {
    let (shape, size) = (it.shape, it.shape.size());
    let whole = shape.nb.iter().all(|step| step.is_multiple_of(size));
    let row = if shape.ne[1] == 1 { i64::from(length) } else { signed(shape.nb[1] / size) };
    let fits = shape.has_dense_rows() && whole && row >= i64::from(length);
    Some(MatrixOperand { address: it.address, row: i32::try_from(row).ok()?, next: 0 }).filter(|_| fits)
}

/// A source of a type, in rows without gaps.
fn as_type(
    commands: &mut CommandList,
    it: Operand,
    dtype: DataType,
    k: i32,
) -> Result<(Operand, MatrixOperand), String> {
    if it.shape.dtype == dtype
        && let Some(side) = side(&it, k)
    {
        return Ok((it, side));
    }
    let dense = commands.scratch_tensor(it.shape.dense(dtype));
    convert(commands, it, dense)?;
    Ok((dense, MatrixOperand { address: dense.address, row: k, next: 0 }))
}

/// `experts` `[k, m, expert]`, `b` `[k, used or 1, token]`, `ids` `[used, token]` make `[m, used, token]`.
pub(crate) fn mul_mat_id(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    experts: TensorId,
    b: TensorId,
    ids: TensorId,
) -> Result<(), String> {
    let ([experts, b, ids], result) = (node.operands([experts, b, ids])?, node.result);
    demand_weights(&experts)?;
    let types = b.shape.dtype.is_float() && ids.shape.dtype == DataType::I32 && result.shape.dtype == DataType::F32;
    demand(types, "data types: expected a second source of f32, f16 or bf16, ids of i32 and a result of f32")?;
    let ([k, m, count, _], [used, tokens, ..]) = (experts.shape.ne, ids.shape.ne);
    if result.shape.elements() == 0 {
        return Ok(());
    }
    if k == 0 {
        return zeros(commands, result);
    }
    let rows = used * tokens;
    if rows <= FEW_ROWS || count == 0 {
        let (experts, b) = (as_words(commands, experts)?, as_floats(commands, b)?);
        let (params, is_aligned) = (ProductParams::new(result, experts, b, 1, [1; 2]), is_aligned(&experts).into());
        let params = ProductParams { ids: ids.into(), is_aligned, ..params };
        let is_block = is_weight_block(experts.shape.dtype);
        let kernel = if is_block { kernel::few_columns_blocks_id } else { kernel::few_columns_id };
        return commands.launch(kernel, [m.div_ceil(4), rows.min(ACROSS), 1], 128, params);
    }
    if by_tensor_cores(commands, experts, b, ids, result)? {
        return Ok(());
    }
    let grid = [m.div_ceil(64), rows.div_ceil(64), count.min(ACROSS)];
    let params = ProductParams { ids: ids.into(), ..ProductParams::new(result, experts, b, 1, [1; 2]) };
    commands.launch(kernel::tiles_id, grid, 256, params)
}

/// A block of `experts_f16` does as many columns (`EXPERT_COLUMNS` in `experts.cu`).
const EXPERT_COLUMNS: usize = 64;

/// A block of `experts_f16` does as many rows of weights (`EXPERT_ROWS` in `experts.cu`).
const EXPERT_ROWS: usize = 128;

/// Makes products of many rows of experts by tensor cores; returns false, with no command added, where it can't.
fn by_tensor_cores(
    commands: &mut CommandList,
    experts: Operand,
    b: Operand,
    ids: Operand,
    result: Operand,
) -> Result<bool, String> {
    let ([_, m, count, _], [used, tokens, ..]) = (experts.shape.ne, ids.shape.ne);
    let dtype = if experts.shape.dtype == DataType::Bf16 { DataType::Bf16 } else { DataType::F16 };
    // Floats are read in pieces of 16 bytes. Columns and experts have numbers of C.
    let is_wide = |it: &Operand| {
        it.shape.dtype == dtype && it.shape.has_dense_rows() && divides(8, it.shape.ne[0]) && it.is_aligned(16)
    };
    let is_small = [used * tokens, count].into_iter().all(|it| i32::try_from(it).is_ok());
    if commands.machine.arch < 80 || experts.shape.dtype.is_float() && !is_wide(&experts) || !is_small {
        return Ok(false);
    }
    let (inputs, powers) = if is_wide(&b) {
        (b, DevicePointer::NULL)
    } else if dtype == DataType::F16 && b.shape.dtype != DataType::F16 {
        narrow(commands, b)?
    } else {
        let dense = commands.scratch_tensor(b.shape.dense(dtype));
        convert(commands, b, dense)?;
        (dense, DevicePointer::NULL)
    };
    let most_jobs = used * tokens / EXPERT_COLUMNS + count.min(used * tokens);
    let params = ExpertParams {
        result: result.into(),
        weights: experts.into(),
        inputs: inputs.into(),
        ids: ids.into(),
        powers,
        lists: commands.scratch_values(4 + 4 * most_jobs + used * tokens + count),
        most_jobs: signed(most_jobs),
    };
    commands.launch(kernel::experts_sort, [1, 1, 1], 1024, params)?;
    let kernel = if dtype == DataType::F16 { kernel::experts_f16 } else { kernel::experts_bf16 };
    commands.launch(kernel, [m.div_ceil(EXPERT_ROWS), most_jobs.min(ACROSS), 1], 256, params)?;
    Ok(true)
}
