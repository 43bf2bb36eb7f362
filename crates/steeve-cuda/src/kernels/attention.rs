//! Attention in one step: scores exist in registers only.

use steeve_graph::{DataType, FlashAttention, TensorId};

use super::movement::demand_cache;
use super::{demand, divides};
use crate::command::Kernel;
use crate::command_list::{CommandList, GpuProfile, NodeCall, args};
use crate::shape::{Args, Operand, is_float};

/// The longest rows that fit into registers.
const LONGEST: u64 = 512;

/// As many queries that share their keys make a tile.
const QUERIES: u64 = 16;

/// What a tile shares: its queries, 32 keys and 32 values, in rows of 132 numbers.
const TILE_BYTES: u32 = (16 + 32 + 32) * 132 * 4;

/// The keys that a block of few queries takes at a time.
const KEYS_OF_FEW: u64 = 128;

/// The keys of many queries that are worth another block.
const KEYS_OF_MANY: u64 = 256;

/// Fewer keys than this are not worth another block.
const KEYS: u64 = 32;

/// `q` `[d, token, head]`, `k` `[d, key, head]`, `v` `[dv, key, head]` and a mask `[key, token]` make `[dv, head, token]`.
/// Slot 4 may have sinks: one more score for each head, with no value.
pub(crate) fn flash_attn_ext(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    operands: [TensorId; 3],
    [mask, sinks]: [Option<TensorId>; 2],
    FlashAttention { scale, max_bias, softcap }: FlashAttention,
) -> Result<(), String> {
    let ([q, k, v], mask, sinks) = (node.operands(operands)?, node.optional(mask)?, node.optional(sinks)?);
    can_be_read([&q, &k, &v], mask, sinks)?;
    demand(node.result.shape.dtype == DataType::F32, "the result must be f32")?;
    let ([d, tokens, heads, outer], keys, dv) = (q.shape.ne, k.shape.ne[1], v.shape.ne[0]);
    if node.result.shape.elements() == 0 {
        return Ok(());
    }
    let mut args = args(node.result, &[Some(q), Some(k), Some(v), mask, sinks]);
    args.f[..3].copy_from_slice(&[if softcap == 0.0 { scale } else { scale / softcap }, softcap, max_bias]);
    args.i[2] = i64::from(goes_in_fours(&k));
    args.i[3] = i64::from(goes_in_fours(&v));
    // LoadedKernels that know the type know that four elements can be read at once.
    let known = k.shape.dtype == v.shape.dtype && args.i[2] == 1 && args.i[3] == 1;
    // Heads whose keys and values differ have nothing to share.
    let group = if k.shape.ne[2] == v.shape.ne[2] { heads / k.shape.ne[2] } else { 1 };
    let (groups, together) = (heads / group, group * tokens);
    (args.i[4], args.i[5]) = (group.cast_signed(), together.cast_signed());
    if let Some(many) = Many::new([&q, &k, &v], mask, commands.machine, groups, together) {
        return many.launch(&q, mask, dv, commands, groups, args);
    }
    let blocks = together.div_ceil(QUERIES);
    if d.max(dv) <= 128 && together >= QUERIES && blocks * groups * outer >= u64::from(commands.machine.processors) / 2
    {
        let kernel = match k.shape.dtype {
            DataType::F16 if known => Kernel::AttendTileF16,
            DataType::Bf16 if known => Kernel::AttendTileBf16,
            _ => Kernel::AttendTile,
        };
        return commands.launch_sharing(kernel, [blocks, groups, outer], 128, args, TILE_BYTES);
    }
    let queries = tokens * heads * outer;
    // A few queries that share long keys.
    let few = match k.shape.dtype {
        DataType::F16 if known => Some(Kernel::AttendFewF16),
        DataType::Bf16 if known => Some(Kernel::AttendFewBf16),
        _ => None,
    };
    let pieces = together.div_ceil(4);
    let is_enough = pieces * groups * outer * keys.div_ceil(KEYS_OF_FEW) >= u64::from(commands.machine.processors);
    if let Some(kernel) = few.filter(|_| d.max(dv) <= 128 && is_wide(&k) && is_wide(&v) && is_enough) {
        let wanted = u64::from(commands.machine.processors * 4).div_ceil(pieces * groups * outer);
        let parts = keys.div_ceil(KEYS_OF_FEW).min(wanted).clamp(1, 64);
        args.i[0] = parts.cast_signed();
        args.i[1] = commands.scratch(4 * queries * parts * (dv + 2), 0).cast_signed();
        commands.launch(kernel, [pieces, groups, outer * parts], 128, args)?;
        return commands.launch(Kernel::AttendParts, [tokens, heads, outer], 128, args);
    }
    // All processors should have something, though the parts of a query must then be put together.
    let wanted = u64::from(commands.machine.processors * 4).div_ceil(queries);
    let parts = keys.div_ceil(KEYS).min(wanted).clamp(1, 64);
    args.i[0] = parts.cast_signed();
    if parts > 1 {
        args.i[1] = commands.scratch(4 * queries * parts * (dv + 2), 0).cast_signed();
    }
    let kernel = match (d.max(dv), k.shape.dtype) {
        (..=128, DataType::F16) if known => Kernel::Attend4F16,
        (..=128, DataType::Bf16) if known => Kernel::Attend4Bf16,
        (..=128, DataType::Q8_0) if known => Kernel::Attend4Q8,
        (..=128, _) => Kernel::Attend4,
        (..=256, DataType::F16) if known => Kernel::Attend8F16,
        (..=256, DataType::Bf16) if known => Kernel::Attend8Bf16,
        (..=256, DataType::Q8_0) if known => Kernel::Attend8Q8,
        (..=256, _) => Kernel::Attend8,
        (_, DataType::F16) if known => Kernel::Attend16F16,
        (_, DataType::Bf16) if known => Kernel::Attend16Bf16,
        (_, DataType::Q8_0) if known => Kernel::Attend16Q8,
        _ => Kernel::Attend16,
    };
    commands.launch(kernel, [tokens, heads, outer * parts], 128, args)?;
    if parts > 1 {
        commands.launch(Kernel::AttendParts, [tokens, heads, outer], 128, args)?;
    }
    Ok(())
}

/// Many queries with tensor cores: how they are cut.
struct Many {
    kernel: Kernel,
    /// The queries of a block, and the keys of a tile.
    queries: u64,
    keys: u64,
    /// The bytes that threads share: three rooms for a tile.
    shared: u32,
    blocks: u64,
    tiles: u64,
    parts: u64,
}

impl Many {
    /// `None` if another kernel is for it.
    fn new(
        [q, k, v]: [&Operand; 3],
        mask: Option<Operand>,
        machine: GpuProfile,
        groups: u64,
        together: u64,
    ) -> Option<Self> {
        let is_known = q.shape.dtype == DataType::F32 && k.shape.dtype == v.shape.dtype && machine.arch >= 80;
        let is_known = is_known && mask.is_none_or(|mask| mask.shape.dtype == DataType::F16);
        let is_dense = [k, v].iter().all(|it| it.shape.has_dense_rows() && is_wide(it));
        let (longest, count) = (q.shape.ne[0].max(v.shape.ne[0]), k.shape.ne[1]);
        let (kernel, queries, keys, row) = match (k.shape.dtype, longest) {
            (DataType::F16, ..=64) => (Kernel::AttendMany64F16, 64, 64, 128),
            (DataType::F16, ..=96) => (Kernel::AttendMany96F16, 64, 64, 256),
            (DataType::F16, ..=128) => (Kernel::AttendMany128F16, 64, 64, 256),
            (DataType::F16, ..=256) => (Kernel::AttendMany256F16, 32, 32, 512),
            (DataType::Bf16, ..=64) => (Kernel::AttendMany64Bf16, 64, 64, 128),
            (DataType::Bf16, ..=96) => (Kernel::AttendMany96Bf16, 64, 32, 256),
            (DataType::Bf16, ..=128) => (Kernel::AttendMany128Bf16, 64, 32, 256),
            (DataType::Bf16, ..=256) => (Kernel::AttendMany256Bf16, 32, 32, 512),
            _ => return None,
        };
        // Fewer queries would leave most of a block idle, and for more there is no grid.
        let is_fit = (QUERIES..1 << 20).contains(&together) && (1..1 << 31).contains(&count);
        if !is_known || !is_dense || !is_fit {
            return None;
        }
        let (blocks, tiles) = (together.div_ceil(queries), count.div_ceil(keys));
        let all = blocks * groups * q.shape.ne[3];
        // Where two warps have the halves of a query they would have to agree about its parts.
        let most = if queries == 64 { (tiles * keys / KEYS_OF_MANY).clamp(1, 64) } else { 1 };
        if queries < 64 && all < u64::from(machine.processors) / 4 {
            return None;
        }
        let parts = (2 * u64::from(machine.processors) / all.max(1)).clamp(1, most);
        let shared = 3 * keys as u32 * row;
        Some(Self { kernel, queries, keys, shared, blocks, tiles, parts })
    }

    fn launch(
        self,
        q: &Operand,
        mask: Option<Operand>,
        dv: u64,
        commands: &mut CommandList,
        groups: u64,
        mut args: Args,
    ) -> Result<(), String> {
        let ([_, tokens, heads, outer], parts) = (q.shape.ne, self.parts);
        args.i[0] = parts.cast_signed();
        if parts > 1 {
            args.i[1] = commands.scratch(4 * tokens * heads * outer * parts * (dv + 2), 0).cast_signed();
        }
        if let Some(mask) = mask {
            let planes = |dim: usize, count: u64| if mask.shape.ne[dim] == 1 { 1 } else { count };
            let grid = [self.tiles * self.blocks, planes(2, groups), planes(3, outer)];
            args.i[6..8].copy_from_slice(&[self.keys.cast_signed(), self.queries.cast_signed()]);
            args.i[8] = commands.scratch(16 * grid.iter().product::<u64>(), 0).cast_signed();
            args.i[9] = self.tiles.cast_signed();
            commands.launch(Kernel::AttendLook, grid, 128, args)?;
        }
        commands.launch_sharing(self.kernel, [groups, self.blocks, outer * parts], 128, args, self.shared)?;
        if parts > 1 {
            commands.launch(Kernel::AttendParts, [tokens, heads, outer], 128, args)?;
        }
        Ok(())
    }
}

/// Whether rows can be read in pieces of 16 bytes, of numbers of two.
fn is_wide(it: &Operand) -> bool {
    divides(8, it.shape.ne[0]) && it.is_aligned(16)
}

/// Whether four elements can be read at once.
fn goes_in_fours(it: &Operand) -> bool {
    let shape = it.shape;
    divides(4, shape.ne[0]) && (!is_float(shape.dtype) || shape.has_dense_rows() && it.is_aligned(4 * shape.size()))
}

/// Whether there are kernels for these types and lengths.
fn can_be_read([q, k, v]: [&Operand; 3], mask: Option<Operand>, sinks: Option<Operand>) -> Result<(), String> {
    demand_cache(k)?;
    demand_cache(v)?;
    demand(is_float(q.shape.dtype), "the queries must be f32, f16 or bf16")?;
    let (d, dv) = (q.shape.ne[0], v.shape.ne[0]);
    demand(d > 0, "queries of no elements have no scores")?;
    demand(d <= LONGEST && dv <= LONGEST, "rows have at most 512 elements")?;
    demand(mask.is_none_or(|mask| is_float(mask.shape.dtype)), "the mask must be f32, f16 or bf16")?;
    demand(sinks.is_none_or(|sinks| sinks.shape.dtype == DataType::F32), "the sinks must be f32")
}
