//! Attention in one step: scores exist in registers only.

use steeve_graph::{DataType, FlashAttention, TensorId};

use super::movement::demand_cache;
use super::{demand, divides};
use crate::command_list::{CommandList, GpuProfile, NodeCall};
use crate::cuda_c::DevicePointer;
use crate::kernel_list::{self as kernel, Kernel};
use crate::operand::{Operand, signed};
use crate::params::{AttentionParams, MaskParams, Tensor, TileMask};

/// The longest rows that fit into registers.
const LONGEST: usize = 512;

/// As many queries that share their keys make a tile.
const QUERIES: usize = 16;

/// What a tile shares: its queries, 32 keys and 32 values, in rows of 132 numbers.
const TILE_BYTES: u32 = (16 + 32 + 32) * 132 * 4;

/// The keys that a block of few queries takes at a time.
const KEYS_OF_FEW: usize = 128;

/// The keys of many queries that are worth another block.
const KEYS_OF_MANY: usize = 256;

/// Fewer keys than this are not worth another block.
const KEYS: usize = 32;

/// `q` `[d, token, head]`, `k` `[d, key, head]`, `v` `[dv, key, head]` and a mask `[key, token]` make `[dv, head, token]`.
/// Slot 4 may have sinks: one more score for each head, with no value.
pub(crate) fn flash_attn_ext(
    node: &NodeCall<'_>,
    commands: &mut CommandList,
    operands: [TensorId; 3],
    [mask, sinks]: [Option<TensorId>; 2],
    numbers: FlashAttention,
) -> Result<(), String> {
    let ([q, k, v], mask, sinks) = (node.operands(operands)?, node.optional(mask)?, node.optional(sinks)?);
    can_be_read([&q, &k, &v], mask, sinks)?;
    demand(node.result.shape.dtype == DataType::F32, "result: expected f32")?;
    if node.result.shape.elements() == 0 {
        return Ok(());
    }
    let work = AttentionWork::new([q, k, v], mask);
    let params = work.params(node.result, sinks, numbers);
    if let Some(cut) = TensorCoreCut::new(&work, commands.machine) {
        return cut.launch(&work, commands, params);
    }
    if let Some(launched) = work.launch_tiles(commands, params) {
        return launched;
    }
    if let Some(launched) = work.launch_few(commands, params) {
        return launched;
    }
    work.launch_single(commands, params)
}

/// What is to be done: operands that can be read, and their sizes.
struct AttentionWork {
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Option<Operand>,
    /// The length of a value.
    dv: usize,
    /// The longer of a key and a value.
    longest: usize,
    tokens: usize,
    heads: usize,
    outer: usize,
    keys: usize,
    /// The heads that share their keys, how many such groups there are, and the queries of one.
    group: usize,
    groups: usize,
    together: usize,
    /// The type of keys and values that kernels can know, because they are of one type and in fours; none if they can't.
    known: Option<DataType>,
}

impl AttentionWork {
    fn new([q, k, v]: [Operand; 3], mask: Option<Operand>) -> Self {
        let ([d, tokens, heads, outer], keys, dv) = (q.shape.ne, k.shape.ne[1], v.shape.ne[0]);
        // Kernels that know the type know that four elements can be read at once.
        let is_known = k.shape.dtype == v.shape.dtype && goes_in_fours(&k) && goes_in_fours(&v);
        // Heads whose keys and values differ have nothing to share.
        let group = if k.shape.ne[2] == v.shape.ne[2] { heads / k.shape.ne[2] } else { 1 };
        Self {
            q,
            k,
            v,
            mask,
            dv,
            longest: d.max(dv),
            tokens,
            heads,
            outer,
            keys,
            group,
            groups: heads / group,
            together: group * tokens,
            known: is_known.then_some(k.shape.dtype),
        }
    }

    fn params(&self, result: Operand, sinks: Option<Operand>, numbers: FlashAttention) -> AttentionParams {
        let FlashAttention { scale, max_bias, softcap } = numbers;
        AttentionParams {
            result: result.into(),
            q: self.q.into(),
            k: self.k.into(),
            v: self.v.into(),
            mask: Tensor::optional(self.mask),
            sinks: Tensor::optional(sinks),
            parts: 0,
            partial: DevicePointer::NULL,
            group: signed(self.group),
            queries: signed(self.together),
            tile_masks: DevicePointer::NULL,
            keys_in_fours: goes_in_fours(&self.k).into(),
            values_in_fours: goes_in_fours(&self.v).into(),
            scale: if softcap == 0.0 { scale } else { scale / softcap },
            softcap,
            max_bias,
        }
    }

    fn queries(&self) -> usize {
        self.tokens * self.heads * self.outer
    }

    /// Returns scratch memory for what the parts of all queries find.
    fn partial(&self, commands: &mut CommandList, parts: usize) -> DevicePointer<f32> {
        commands.scratch_values(self.queries() * parts * (self.dv + 2))
    }

    /// Puts the parts of each query together.
    fn launch_parts(&self, commands: &mut CommandList, params: AttentionParams) -> Result<(), String> {
        commands.launch(kernel::attend_parts, [self.tokens, self.heads, self.outer], 128, params)
    }

    /// Many queries that share their keys; `None` if another kernel is for them.
    fn launch_tiles(&self, commands: &mut CommandList, params: AttentionParams) -> Option<Result<(), String>> {
        let blocks = self.together.div_ceil(QUERIES);
        let is_enough = blocks * self.groups * self.outer >= commands.machine.processors / 2;
        if self.longest > 128 || self.together < QUERIES || !is_enough {
            return None;
        }
        let kernel = match self.known {
            Some(DataType::F16) => kernel::attend_tile_f16,
            Some(DataType::Bf16) => kernel::attend_tile_bf16,
            _ => kernel::attend_tile,
        };
        Some(commands.launch_sharing(kernel, [blocks, self.groups, self.outer], 128, TILE_BYTES, params))
    }

    /// A few queries that share long keys; `None` if another kernel is for them.
    fn launch_few(&self, commands: &mut CommandList, params: AttentionParams) -> Option<Result<(), String>> {
        let kernel = match self.known {
            Some(DataType::F16) => kernel::attend_few_f16,
            Some(DataType::Bf16) => kernel::attend_few_bf16,
            _ => return None,
        };
        let (pieces, processors) = (self.together.div_ceil(4), commands.machine.processors);
        let (blocks, most) = (pieces * self.groups * self.outer, self.keys.div_ceil(KEYS_OF_FEW));
        if self.longest > 128 || !is_wide(&self.k) || !is_wide(&self.v) || blocks * most < processors {
            return None;
        }
        let parts = most.min((processors * 4).div_ceil(blocks)).clamp(1, 64);
        let params = AttentionParams { parts: signed(parts), partial: self.partial(commands, parts), ..params };
        let launched = commands.launch(kernel, [pieces, self.groups, self.outer * parts], 128, params);
        Some(launched.and_then(|()| self.launch_parts(commands, params)))
    }

    /// Queries one by one.
    fn launch_single(&self, commands: &mut CommandList, mut params: AttentionParams) -> Result<(), String> {
        // All processors should have something, though the parts of a query must then be put together.
        let wanted = (commands.machine.processors * 4).div_ceil(self.queries());
        let parts = self.keys.div_ceil(KEYS).min(wanted).clamp(1, 64);
        params.parts = signed(parts);
        if parts > 1 {
            params.partial = self.partial(commands, parts);
        }
        commands.launch(self.single_kernel(), [self.tokens, self.heads, self.outer * parts], 128, params)?;
        if parts > 1 { self.launch_parts(commands, params) } else { Ok(()) }
    }

    fn single_kernel(&self) -> Kernel<AttentionParams> {
        match (self.longest, self.known) {
            (..=128, Some(DataType::F16)) => kernel::attend_4_f16,
            (..=128, Some(DataType::Bf16)) => kernel::attend_4_bf16,
            (..=128, Some(DataType::Q8_0)) => kernel::attend_4_q8_0,
            (..=128, _) => kernel::attend_4,
            (..=256, Some(DataType::F16)) => kernel::attend_8_f16,
            (..=256, Some(DataType::Bf16)) => kernel::attend_8_bf16,
            (..=256, Some(DataType::Q8_0)) => kernel::attend_8_q8_0,
            (..=256, _) => kernel::attend_8,
            (_, Some(DataType::F16)) => kernel::attend_16_f16,
            (_, Some(DataType::Bf16)) => kernel::attend_16_bf16,
            (_, Some(DataType::Q8_0)) => kernel::attend_16_q8_0,
            _ => kernel::attend_16,
        }
    }
}

/// How many queries are cut for tensor cores.
struct TensorCoreCut {
    kernel: Kernel<AttentionParams>,
    /// The queries of a block, and the keys of a tile.
    queries: usize,
    keys: usize,
    /// The bytes that threads share: three rooms for a tile.
    shared: u32,
    blocks: usize,
    tiles: usize,
    parts: usize,
}

impl TensorCoreCut {
    /// Returns the cut; `None` if another kernel is for it.
    fn new(work: &AttentionWork, machine: GpuProfile) -> Option<Self> {
        let AttentionWork { q, k, v, mask, keys: count, .. } = work;
        let is_known = q.shape.dtype == DataType::F32 && k.shape.dtype == v.shape.dtype && machine.arch >= 80;
        let is_known = is_known && mask.is_none_or(|mask| mask.shape.dtype == DataType::F16);
        let is_dense = [k, v].iter().all(|it| it.shape.has_dense_rows() && is_wide(it));
        let (kernel, queries, keys, row) = match (k.shape.dtype, work.longest) {
            (DataType::F16, ..=64) => (kernel::attend_many_64_f16, 64, 64, 128),
            (DataType::F16, ..=96) => (kernel::attend_many_96_f16, 64, 64, 256),
            (DataType::F16, ..=128) => (kernel::attend_many_128_f16, 64, 64, 256),
            (DataType::F16, ..=256) => (kernel::attend_many_256_f16, 32, 32, 512),
            (DataType::Bf16, ..=64) => (kernel::attend_many_64_bf16, 64, 64, 128),
            (DataType::Bf16, ..=96) => (kernel::attend_many_96_bf16, 64, 32, 256),
            (DataType::Bf16, ..=128) => (kernel::attend_many_128_bf16, 64, 32, 256),
            (DataType::Bf16, ..=256) => (kernel::attend_many_256_bf16, 32, 32, 512),
            _ => return None,
        };
        // Fewer queries would leave most of a block idle, and for more there is no grid.
        let is_fit = (QUERIES..1 << 20).contains(&work.together) && (1..1 << 31).contains(count);
        if !is_known || !is_dense || !is_fit {
            return None;
        }
        let (blocks, tiles) = (work.together.div_ceil(queries), count.div_ceil(keys));
        let all = blocks * work.groups * work.outer;
        // Where two warps have the halves of a query they would have to agree about its parts.
        let most = if queries == 64 { (tiles * keys / KEYS_OF_MANY).clamp(1, 64) } else { 1 };
        if queries < 64 && all < machine.processors / 4 {
            return None;
        }
        let parts = (2 * machine.processors / all.max(1)).clamp(1, most);
        let shared = 3 * keys as u32 * row;
        Some(Self { kernel, queries, keys, shared, blocks, tiles, parts })
    }

    fn launch(self, work: &AttentionWork, commands: &mut CommandList, params: AttentionParams) -> Result<(), String> {
        let mut params = AttentionParams { parts: signed(self.parts), ..params };
        if self.parts > 1 {
            params.partial = work.partial(commands, self.parts);
        }
        if let Some(mask) = work.mask {
            params.tile_masks = self.look(work, commands, mask)?;
        }
        let grid = [work.groups, self.blocks, work.outer * self.parts];
        commands.launch_sharing(self.kernel, grid, 128, self.shared, params)?;
        if self.parts > 1 { work.launch_parts(commands, params) } else { Ok(()) }
    }

    /// Looks at the mask, and returns where the kernel writes what each block of queries sees of each tile.
    fn look(
        &self,
        work: &AttentionWork,
        commands: &mut CommandList,
        mask: Operand,
    ) -> Result<DevicePointer<TileMask>, String> {
        let planes = |dim: usize, count: usize| if mask.shape.ne[dim] == 1 { 1 } else { count };
        let grid = [self.tiles * self.blocks, planes(2, work.groups), planes(3, work.outer)];
        let tile_masks = commands.scratch_values(grid.iter().product());
        let params = MaskParams {
            mask: mask.into(),
            keys: signed(work.keys),
            group: signed(work.group),
            queries: signed(work.together),
            tile_keys: signed(self.keys),
            block_queries: signed(self.queries),
            tiles: signed(self.tiles),
            tile_masks,
        };
        commands.launch(kernel::attend_look, grid, 128, params)?;
        Ok(tile_masks)
    }
}

/// Returns whether rows can be read in pieces of 16 bytes, of numbers of two.
fn is_wide(it: &Operand) -> bool {
    divides(8, it.shape.ne[0]) && it.is_aligned(16)
}

/// Returns whether four elements can be read at once.
fn goes_in_fours(it: &Operand) -> bool {
    let shape = it.shape;
    divides(4, shape.ne[0]) && (!shape.dtype.is_float() || shape.has_dense_rows() && it.is_aligned(4 * shape.size()))
}

/// Returns an error unless there are kernels for these types and lengths.
fn can_be_read([q, k, v]: [&Operand; 3], mask: Option<Operand>, sinks: Option<Operand>) -> Result<(), String> {
    demand_cache(k)?;
    demand_cache(v)?;
    demand(q.shape.dtype.is_float(), "queries: expected f32, f16 or bf16")?;
    let (d, dv) = (q.shape.ne[0], v.shape.ne[0]);
    demand(d > 0, "queries: expected at least one element each")?;
    demand(d <= LONGEST && dv <= LONGEST, "rows too long: expected at most 512 elements")?;
    demand(mask.is_none_or(|mask| mask.shape.dtype.is_float()), "mask: expected f32, f16 or bf16")?;
    demand(sinks.is_none_or(|sinks| sinks.shape.dtype == DataType::F32), "sinks: expected f32")
}
