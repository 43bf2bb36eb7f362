//! Graphs that a program could have built: every function of the context, views, caches, several memories.

use alloc::vec::Vec;

use steeve_plan::{Bytes, Id};

use super::Choices;
use super::scramble::memory;
use crate::{
    AllocSizes, AssignedGraph, Assignment, Context, Convolution, CustomOp, DataType, FlashAttention, Glu, Graph,
    GraphError, Interpolation, Layout, Memory, MemoryId, Op, Param, Pool, Rope, SoftMax, SortOrder, TensorId, Unary,
    Window,
};

/// Builds a graph as a program would: every node is listed behind what it reads.
///
/// There are chains that can run in place, sources with several readers, views of views, caches (planned and external)
/// that are written through views and read through others, inputs, outputs, nodes and views that no node reads, tensors
/// and views without bytes, and up to three memories with sizes, alignments and limits of their own.
///
/// ```
/// use steeve_graph::fuzz::{Choices, random_graph};
/// let graph = random_graph(&mut Choices::from_seed(7));
/// assert_eq!(graph, random_graph(&mut Choices::from_seed(7)));
/// ```
pub fn random_graph(choices: &mut Choices<'_>) -> AssignedGraph {
    let mut generator = GraphGenerator { context: Context::new(), choices, values: Vec::new(), written: Vec::new() };
    // A shape that can't be built is another one's turn; what has been built stays.
    let _ = generator.leafs();
    for _ in 0..2 + generator.choices.below(80) {
        let _ = generator.step();
    }
    let graph = generator.graph();
    let graph = permit_overlaps(generator.choices, graph);
    assign(generator.choices, graph)
}

/// Lets results of some callers' operations overlap a source, as kernels do that read ahead of what they write.
fn permit_overlaps(choices: &mut Choices<'_>, graph: Graph) -> Graph {
    let mut permitted = Vec::new();
    for node in graph.nodes().iter().copied() {
        let (it, sources) = (graph.tensor(node), graph.sources(node));
        if !matches!(it.op, Op::Other(_)) || it.is_view() || choices.once_in(3) {
            continue;
        }
        let size = it.nbytes().get() as usize;
        let distance = match choices.below(5) {
            0 => 0,
            1 => choices.below(8),
            2 => size,
            3 => size + choices.below(200),
            _ => choices.below(size + 1),
        };
        let slot = choices.below(sources.len());
        // What may be overwritten is read no later than that.
        if !graph.permits_overwrite(node, slot) {
            permitted.push((node, slot, Bytes(distance as u64)));
        }
    }
    let mut parts = graph.into_parts();
    permitted.into_iter().for_each(|(node, slot, distance)| parts.permit_overlap(node, slot, distance));
    match parts.finish() {
        Ok(graph) => graph,
        Err(_) => unreachable!("permissions change nothing that is checked"),
    }
}

struct GraphGenerator<'a, 'b> {
    context: Context,
    choices: &'a mut Choices<'b>,
    /// What later steps may read.
    values: Vec<TensorId>,
    /// Writes into caches and values that perhaps no node reads, which the graph must have in this order.
    written: Vec<TensorId>,
}

type Built = Result<TensorId, GraphError>;

const ROW: u64 = 16;

impl GraphGenerator<'_, '_> {
    fn leafs(&mut self) -> Result<(), GraphError> {
        let dtype = |choices: &mut Choices<'_>| choices.pick(&[DataType::F32, DataType::F16]).unwrap_or(DataType::F32);
        for _ in 0..1 + self.choices.below(3) {
            // Now and then one without rows, as a batch without outputs has them.
            let input = self.context.input(DataType::F32, &[ROW, self.choices.below(12).div_ceil(2) as u64])?;
            self.values.push(input);
        }
        let weight = self.context.external(DataType::F32, &[ROW, ROW])?;
        let constant = self.context.new_tensor(DataType::F32, &[ROW])?;
        let kind = dtype(self.choices);
        let outside = self.context.external(kind, &[ROW, 32])?;
        let planned = self.context.new_tensor(DataType::F32, &[ROW, 8])?;
        let quantised = self.context.external(DataType::Q8_0, &[32, 4])?;
        let param = self.context.external(DataType::F32, &[ROW, 2])?;
        self.context.set_param(param)?;
        self.values.extend([weight, constant, outside, planned, quantised, param]);
        Ok(())
    }

    /// Appends one more value, or fails if the choices do not fit together.
    fn step(&mut self) -> Result<(), GraphError> {
        let value = match self.choices.below(10) {
            0 | 1 => self.elementwise(),
            2 => self.pair(),
            3 => self.view(),
            4 => self.matrix(),
            5 => self.rows(),
            6 => self.cache(),
            7 => self.attention(),
            8 => self.convolution_chain(),
            _ => self.image(),
        }?;
        self.values.push(value);
        if self.choices.once_in(5) {
            self.written.push(value);
        }
        if self.choices.once_in(10) {
            self.context.set_output(value)?;
        }
        if self.choices.once_in(3) {
            let name = alloc::format!("v{value}");
            self.context.set_name(value, &name)?;
        }
        Ok(())
    }

    /// Returns any value, mostly a recent one.
    fn any(&mut self) -> TensorId {
        let count = self.values.len();
        let back = if self.choices.once_in(3) { self.choices.below(count) } else { self.choices.below(count.min(4)) };
        self.values[count - 1 - back]
    }

    fn layout(&self, id: TensorId) -> Result<Layout, GraphError> {
        Ok(self.context.tensor(id)?.layout)
    }

    fn float(&mut self) -> f32 {
        self.choices.below(100) as f32 / 8.0
    }

    fn elementwise(&mut self) -> Built {
        let a = self.any();
        let number = self.float();
        let context = &mut self.context;
        match self.choices.below(14) {
            0 => context.sqr(a),
            1 => context.sqrt(a),
            2 => context.log(a),
            3 => context.scale(a, number),
            // The number also decides, so that graphs of a seed stay what they are but for this.
            4 if number < 4.0 => context.leaky_relu(a, number),
            4 => context.clamp(a, -number, number),
            5 => context.norm(a, 1e-5),
            6 => context.rms_norm(a, 1e-5),
            7 => context.group_norm(a, 2, 1e-5),
            8 => context.l2_norm(a, 1e-5),
            9 => context.diag_mask_inf(a, 1),
            10 => context.diag_mask_zero(a, 1),
            11 => context.cont(a),
            12 => context.apply(Op::Fill, &[Some(a)], &[number.into()]),
            _ => match self.choices.pick(Unary::ALL).unwrap_or(Unary::Neg) {
                Unary::Xielu => context.xielu(a, [0.8, 0.8, 0.5, -1e-6]),
                kind => context.unary(kind, a),
            },
        }
    }

    /// Applies operations of a caller's one after the other, with results of any size, as those of convolutions are.
    fn convolution_chain(&mut self) -> Built {
        let mut value = self.any();
        for _ in 0..1 + self.choices.below(4) {
            let layout = Layout::contiguous(DataType::F32, &[ROW, self.choices.below(16) as u64])?;
            value = self.context.custom_shaped(&CustomOp::new("K"), layout, &[value], &[])?;
        }
        Ok(value)
    }

    fn pair(&mut self) -> Built {
        let (a, b) = (self.any(), self.any());
        // Two values of one shape are rare, so a function of the first one is taken as well.
        let b = if self.choices.once_in(2) { self.context.relu(a)? } else { b };
        let kind = self.choices.pick(Glu::ALL).unwrap_or(Glu::Swiglu);
        let context = &mut self.context;
        match self.choices.below(9) {
            0 | 1 => context.add(a, b),
            2 => context.sub(a, b),
            3 => context.mul(a, b),
            4 => context.div(a, b),
            5 => context.glu_split(kind, a, b),
            6 => context.glu(kind, a),
            7 => context.apply(Op::SiluBack, &[Some(a), Some(b)], &[]),
            _ => {
                let layout = Layout::contiguous(DataType::F32, &context.tensor(a)?.layout.ne())?;
                let op = match self.choices.below(4) {
                    0 => CustomOp::new("F"),
                    1 => CustomOp::new("F").overwriting(1),
                    2 => CustomOp::new("G").overwriting(0).overwriting(1),
                    _ => return context.custom(&CustomOp::new("H").writing_into(0), &[a, b], &[]),
                };
                context.custom_shaped(&op, layout, &[a, b], &[])
            }
        }
    }

    fn view(&mut self) -> Built {
        let a = self.any();
        let layout = self.layout(a)?;
        let ([n0, n1, n2, n3], nb) = (layout.ne(), layout.nb());
        let context = &mut self.context;
        match self.choices.below(7) {
            6 => {
                // A view of no bytes is never out of range.
                let offset = self.choices.pick(&[0, 1, 64, 8192, u64::MAX]).unwrap_or(0);
                context.view_2d(a, [n0, 0], nb[1], Bytes(offset))
            }
            0 => {
                let skip = self.choices.below(n0 as usize) as u64 / layout.dtype().block_len();
                context.view_1d(a, n0 - skip * layout.dtype().block_len(), Bytes(skip * nb[0]))
            }
            1 => {
                let skip = self.choices.below(n1 as usize) as u64;
                context.view_2d(a, [n0, n1 - skip], nb[1], Bytes(skip * nb[1]))
            }
            2 => context.view_4d(a, [n0, n1, n2, n3], [nb[1], nb[2], nb[3]], Bytes::ZERO),
            3 => context.reshape(a, &[n0 * n1, n2, n3]),
            4 => {
                let axes = self.choices.pick(&[[0, 2, 1, 3], [1, 0, 2, 3], [2, 0, 1, 3], [0, 1, 3, 2]]);
                context.permute(a, axes.unwrap_or([0, 1, 2, 3]))
            }
            _ => context.transpose(a),
        }
    }

    fn matrix(&mut self) -> Built {
        let a = self.any();
        let [n0, n1, n2, _] = self.layout(a)?.ne();
        match self.choices.below(7) {
            0..4 => {
                let weight = self.context.external(DataType::F32, &[n0, ROW])?;
                self.context.mul_mat(weight, a)
            }
            4 => {
                let experts = self.context.external(DataType::F32, &[n0, ROW, 4])?;
                let ids = self.context.input(DataType::I32, &[n1, n2])?;
                self.context.mul_mat_id(experts, a, ids)
            }
            5 => {
                let b = self.any();
                self.context.mul_mat(a, b)
            }
            _ => self.context.sum(a),
        }
    }

    fn rows(&mut self) -> Built {
        let a = self.any();
        let [n0, n1, n2, n3] = self.layout(a)?.ne();
        match self.choices.below(9) {
            0 | 1 => {
                let ids = self.context.input(DataType::I32, &[1 + self.choices.below(4) as u64, n2, n3])?;
                self.context.get_rows(a, ids)
            }
            2 => {
                let b = self.any();
                let dim = self.choices.below(3) as u32;
                self.context.concat(a, b, dim)
            }
            3 => self.context.repeat(a, &[n0, n1 * 2, n2, n3]),
            4 => self.context.mean(a),
            5 => self.context.sum_rows(a),
            6 => self.context.argsort(a, SortOrder::Descending),
            7 => self.context.top_k(a, n0.min(2)),
            _ => self.context.dup(a),
        }
    }

    /// Appends a write into a cache through a view, which must stay at its position in the order of nodes, or a read
    /// of a cache.
    fn cache(&mut self) -> Built {
        let caches: Vec<TensorId> = self.values.iter().copied().filter(|&id| self.is_cache(id)).collect();
        let cache = self.choices.pick(&caches).unwrap_or(self.values[0]);
        let layout = self.layout(cache)?;
        let [row, rows, ..] = layout.ne();
        let count = 1 + self.choices.below(4) as u64;
        let skip = self.choices.below((rows.saturating_sub(count) + 1) as usize) as u64;
        let offset = Bytes(skip * layout.nb()[1]);
        match self.choices.below(4) {
            0 => {
                let part = self.context.view_2d(cache, [row, count], layout.nb()[1], offset)?;
                let value = self.value_of(row, count)?;
                let write = self.context.cpy(value, part)?;
                self.written.push(write);
                Ok(write)
            }
            1 => {
                let value = self.value_of(row, count)?;
                let ids = self.context.input(DataType::I64, &[count])?;
                let write = self.context.set_rows(cache, value, ids)?;
                self.written.push(write);
                Ok(write)
            }
            2 => {
                let part = self.context.view_2d(cache, [row, rows - skip], layout.nb()[1], offset)?;
                self.context.cont(part)
            }
            _ => self.context.view_2d(cache, [row, count], layout.nb()[1], offset),
        }
    }

    fn is_cache(&self, id: TensorId) -> bool {
        let tensor = self.context.tensors().get(id);
        tensor.is_some_and(|it| it.op == Op::None && !it.flags.is_input() && it.layout.ne()[1] >= 8)
    }

    /// Returns some value of this shape.
    fn value_of(&mut self, row: u64, rows: u64) -> Built {
        let fits = |id: &TensorId| {
            let layout = self.context.tensors()[*id].layout;
            layout.ne() == [row, rows, 1, 1] && layout.dtype() == DataType::F32 && layout.has_contiguous_rows()
        };
        match self.values.iter().rev().copied().find(fits) {
            Some(value) => Ok(value),
            None => self.context.input(DataType::F32, &[row, rows]),
        }
    }

    fn attention(&mut self) -> Built {
        let a = self.any();
        let [n0, n1, n2, _] = self.layout(a)?.ne();
        match self.choices.below(5) {
            0 => self.context.soft_max(a, None, SoftMax::default()),
            1 => {
                let mask = self.context.input(DataType::F32, &[n0, n1])?;
                self.context.soft_max(a, Some(mask), SoftMax { scale: 0.5, max_bias: 0.0 })
            }
            2 => {
                let positions = self.context.input(DataType::I32, &[n2])?;
                self.context.rope(a, positions, None, Rope { dims: 4, ..Rope::default() })
            }
            3 => {
                let back = [Some(a), Some(a)];
                self.context.apply(Op::RmsNormBack, &back, &[Param::Float(1e-5)])
            }
            _ => {
                let key = self.context.external(DataType::F16, &[n0, 8, n2])?;
                let value = self.context.external(DataType::F16, &[ROW, 8, n2])?;
                let mask = self.context.input(DataType::F16, &[8, n1])?;
                self.context.flash_attn_ext(a, key, value, Some(mask), FlashAttention::default())
            }
        }
    }

    fn image(&mut self) -> Built {
        let a = self.any();
        let [.., channels, _] = self.layout(a)?.ne();
        let window = Window { size: [2, 1], stride: [2, 1], padding: [0.0; 2] };
        match self.choices.below(6) {
            0 => self.context.pool_1d(a, Pool::Max, 2, 2, 0),
            1 => self.context.pool_2d(a, Pool::Mean, window),
            2 => self.context.upscale(a, 2, Interpolation::Nearest),
            3 => self.context.pad(a, [1, 0, 1, 0]),
            4 => {
                let kernel = self.context.external(DataType::F16, &[3, 1, channels, 4])?;
                self.context.conv_2d(kernel, a, Convolution { padding: [1, 0], ..Convolution::default() })
            }
            _ => {
                let length = self.layout(a)?.ne()[1];
                let kernel = self.context.external(DataType::F16, &[3, length, 4])?;
                self.context.conv_1d(kernel, a, Convolution { padding: [1, 0], ..Convolution::default() })
            }
        }
    }

    /// Writes and kept values in their order, then what some of the values need.
    fn graph(&mut self) -> Graph {
        let written = core::mem::take(&mut self.written);
        let mut graph = match Graph::from_outputs(&self.context, &written) {
            Ok(graph) => graph,
            Err(_) => unreachable!("every value was built in this context"),
        };
        for _ in 0..1 + self.choices.below(8) {
            let value = self.any();
            // A value of this context, so it can be appended.
            let _ = graph.expand(&self.context, &[value]);
        }
        graph
    }
}

/// Assigns a graph to memories that change from one run of nodes to the next, as a scheduler's splits do.
fn assign(choices: &mut Choices<'_>, graph: Graph) -> AssignedGraph {
    let memories: Vec<Memory> = (0..1 + choices.below(3)).map(|index| memory(choices, index)).collect();
    let count = memories.len();
    let mut sizes = AllocSizes::new(count);
    let padded = choices.once_in(3);
    for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| padded && tensor.is_planned()) {
        if choices.once_in(3) {
            let row: Vec<_> = (0..count).map(|_| Bytes(tensor.nbytes().get() + 16 * choices.below(4) as u64)).collect();
            // There are as many sizes as memories, and none is below what the tensor spans.
            let _ = sizes.set(id, tensor, &row);
        }
    }
    let mut now = MemoryId::FIRST;
    let mut next = |_: &TensorId| {
        if choices.once_in(4) {
            now = MemoryId::from_index(choices.below(count)).unwrap_or(MemoryId::FIRST);
        }
        now
    };
    let leafs = graph.leafs().iter().map(&mut next).collect();
    let nodes = graph.nodes().iter().map(&mut next).collect();
    match AssignedGraph::new(graph, memories, Assignment { leafs, nodes }, sizes) {
        Ok(assigned) => assigned,
        Err(_) => unreachable!("memories, sizes and assignment were made for this graph"),
    }
}
