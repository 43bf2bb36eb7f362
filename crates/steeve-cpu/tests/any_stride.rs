//! A result with the memory of a source equals the result with its own, to the bit, also for strides that no rule lets
//! through: elements with gaps, dimensions in any order. `in_place` does the same with what the builders make.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use std::sync::Arc;

use filled_context::{FilledContext, encode};
use proptest::prelude::*;
use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Bindings, BufferType, Bytes, HostMemory, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Glu, Graph, Layout, Op, Param, Tensor, TensorId, Unary};

const FLOATS: [DataType; 3] = [DataType::F32, DataType::F16, DataType::Bf16];

/// A node with its sources.
#[derive(Debug)]
struct StrideCase {
    op: Op,
    params: Vec<Param>,
    result: Layout,
    sources: Vec<StridedSource>,
}

#[derive(Debug)]
struct StridedSource {
    layout: Layout,
    bytes: Vec<u8>,
}

/// Elements in any order of dimensions, with gaps or without; no two share a byte.
fn any_layout(trial: &mut FilledContext, dtype: DataType, ne: [u64; 4]) -> Layout {
    if trial.below(3) == 0 {
        return Layout::contiguous(dtype, &ne).unwrap();
    }
    let size = dtype.block_bytes();
    let order = trial.pick(&[[0, 1, 2, 3], [0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0], [2, 0, 3, 1]]);
    let (mut nb, mut next) = ([0; 4], size * (1 + trial.below(2)));
    for dim in order {
        nb[dim] = next;
        next = next * ne[dim] + size * trial.below(3);
    }
    Layout::new(dtype, ne, nb).unwrap()
}

/// A source with random numbers, also in its gaps.
fn source(
    trial: &mut FilledContext,
    layout: Layout,
    mut number: impl FnMut(&mut FilledContext) -> f64,
) -> StridedSource {
    let (size, bytes) = (layout.dtype().block_bytes(), layout.nbytes().0);
    let numbers = (0..bytes.div_ceil(size)).flat_map(|_| encode(layout.dtype(), number(trial)));
    StridedSource { layout, bytes: numbers.take(bytes as usize).collect() }
}

fn any_shape(trial: &mut FilledContext) -> [u64; 4] {
    match trial.below(8) {
        // Large enough for several units of work.
        0 => trial.pick(&[[40_000, 1, 1, 1], [1, 40_000, 1, 1], [3, 7, 1000, 2], [700, 50, 1, 1], [64, 32, 10, 2]]),
        _ => [
            trial.pick(&[1, 2, 6, 16, 17, 64, 70]),
            trial.pick(&[1, 2, 5]),
            trial.pick(&[1, 3, 4]),
            trial.pick(&[1, 2]),
        ],
    }
}

impl StrideCase {
    /// Returns sources and parameters for an operation whose result has the memory of `slot`; `None` if it has no such slot, or none of
    /// the result's shape.
    fn new(trial: &mut FilledContext, op: Op, slot: usize) -> Option<Self> {
        let mut shape = any_shape(trial);
        let mut dtype = trial.pick(&FLOATS);
        let mut params: Vec<Param> = Vec::new();
        // Types and shapes of the sources behind the first.
        let mut others: Vec<(DataType, [u64; 4])> = Vec::new();
        let mut ids = 1;
        let other = trial.pick(&FLOATS);
        match op {
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Add1 => {
                let part = shape.map(|n| if slot == 1 || trial.below(2) == 0 { n } else { 1 });
                others = vec![(other, if op == Op::Add1 { [1; 4] } else { part })];
                if trial.below(4) == 0 {
                    dtype = DataType::I32;
                    others[0].0 = dtype;
                }
            }
            Op::AddId => {
                (shape[3], ids) = (1, 5);
                others = vec![(other, [shape[0], ids, 1, 1]), (DataType::I32, [shape[1], shape[2], 1, 1])];
            }
            Op::Sqr | Op::Sqrt | Op::Log | Op::Unary(_) => {
                if matches!(op, Op::Unary(Unary::Abs | Unary::Neg | Unary::Relu) | Op::Sqr) && trial.below(4) == 0 {
                    dtype = DataType::I32;
                }
                params = [0.8, 0.3, 0.5, -1e-6].map(Param::Float).into();
            }
            Op::Glu(_) | Op::SiluBack => others = vec![(other, shape)],
            Op::RmsNormBack | Op::SoftMaxBack => {
                others = vec![(other, shape)];
                params = vec![Param::Float(0.5)];
            }
            Op::Norm | Op::RmsNorm | Op::L2Norm => params = vec![Param::Float(1e-3)],
            Op::GroupNorm => params = vec![Param::Int(1 + trial.below(5) as i64), Param::Float(1e-3)],
            Op::Scale | Op::Clamp | Op::LeakyRelu => params = vec![Param::Float(-0.25), Param::Float(0.5)],
            Op::DiagMaskInf | Op::DiagMaskZero => params = vec![Param::Int(trial.below(4) as i64)],
            Op::Fill => params = vec![Param::Float(1.5)],
            Op::SoftMax => {
                let part = |trial: &mut FilledContext, n: u64| if slot == 1 || trial.below(2) == 0 { n } else { 1 };
                let mask = [shape[0], shape[1], part(trial, shape[2]), part(trial, shape[3])];
                others = vec![(trial.pick(&[DataType::F32, DataType::F16]), mask)];
                params = vec![Param::Float(1.5), Param::Float(trial.pick(&[0.0, 8.0]))];
            }
            Op::Rope | Op::RopeBack => {
                shape[0] = 2 * shape[0].min(500);
                let mode = trial.pick(&[0, 2, 8, 24, 40]);
                let dims = if mode == 24 { shape[0] / 2 } else { 2 * (1 + trial.below(shape[0] / 2)) };
                let parts = if mode & 8 == 0 { 1 } else { 4 };
                ids = 100;
                others = vec![(DataType::I32, [parts * shape[2], 1, 1, 1])];
                let ints = [dims as i64, mode, 512].map(Param::Int);
                let numbers = [1e4, 0.5, 1.0, 1.0, 32.0, 1.0].map(Param::Float);
                params = ints.into_iter().chain(numbers).chain([2, 1, 1, 1].map(Param::Int)).collect();
            }
            _ => return None,
        }
        let of_ids = matches!(op, Op::AddId | Op::Rope | Op::RopeBack);
        let mut types = vec![(dtype, shape)];
        types.append(&mut others);
        // The result has the layout of the slot whose memory it has.
        let &(on, part) = types.get(slot)?;
        if part != shape || (on == DataType::I32) != (dtype == DataType::I32) {
            return None;
        }
        let result = any_layout(trial, on, shape);
        let mut sources = Vec::new();
        for (index, (dtype, ne)) in types.into_iter().enumerate() {
            let layout = if index == slot { result } else { any_layout(trial, dtype, ne) };
            sources.push(match dtype {
                DataType::I32 if of_ids => source(trial, layout, |trial| trial.below(ids) as f64),
                DataType::I32 => source(trial, layout, |trial| 1.0 + trial.below(1000) as f64),
                _ => source(trial, layout, |trial| trial.number().into()),
            });
        }
        Some(Self { op, params, result, sources })
    }

    /// Bytes of the result, with what the slot has in its gaps.
    fn run(&self, threads: usize, slot: usize, place: ResultPlace, using: SlotUse) -> Vec<u8> {
        let mut context = Context::new();
        let leaf = |context: &mut Context, layout: Layout| context.add_tensor(Tensor::new(layout), &[], &[]).unwrap();
        let mut ids: Vec<TensorId> = self.sources.iter().map(|source| leaf(&mut context, source.layout)).collect();
        if using == SlotUse::Twice {
            ids[1] = ids[0];
        }
        let slots: Vec<_> = ids.iter().copied().map(Some).collect();
        let tensor = Tensor { op: self.op, ..Tensor::new(self.result) };
        let node = context.add_tensor(tensor, &slots, &self.params).unwrap();
        let graph = Graph::from_outputs(&context, &[node]).unwrap();

        let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
        let room = |layout: &Layout| layout.nbytes().0.next_multiple_of(64);
        let total: u64 = self.sources.iter().map(|source| room(&source.layout)).sum();
        let buffer = SharedBuffer::allocate(&memory, Bytes(total + room(&self.result)), Usage::Compute).unwrap();
        let (mut bindings, mut starts, mut end) = (Bindings::new(), Vec::new(), 0);
        for (id, source) in ids.iter().zip(&self.sources) {
            starts.push(end);
            if bindings.get(*id).is_none() {
                bindings.bind(*id, &buffer, Offset(end), source.layout.nbytes()).unwrap();
            }
            buffer.write(Offset(end), &source.bytes).unwrap();
            end += room(&source.layout);
        }
        let start = if place == ResultPlace::OnSource { starts[slot] } else { end };
        bindings.bind(node, &buffer, Offset(start), self.result.nbytes()).unwrap();
        buffer.write(Offset(start), &self.sources[slot].bytes).unwrap();
        let backend = CpuBackend::new(threads);
        let mut prepared = backend.prepare(&graph, 0..graph.nodes().len(), &bindings).unwrap();
        backend.submit(&mut *prepared).unwrap();
        let read = |start: u64, layout: &Layout| {
            let mut bytes = vec![0; layout.nbytes().0 as usize];
            buffer.read(Offset(start), &mut bytes).unwrap();
            bytes
        };
        for (index, (start, source)) in starts.iter().zip(&self.sources).enumerate() {
            if place == ResultPlace::Separate || index != slot {
                assert!(read(*start, &source.layout) == source.bytes, "source {index} has changed: {self:?}");
            }
        }
        read(start, &self.result)
    }

    fn check(&self, slot: usize) {
        let layouts: Vec<Layout> = self.sources.iter().map(|source| source.layout).collect();
        let what = format!("{} on slot {slot}: {} of {layouts:?}", self.op.name(), self.result);
        let apart = self.run(1, slot, ResultPlace::Separate, SlotUse::Once);
        for threads in 1..=3 {
            assert!(
                self.run(threads, slot, ResultPlace::Separate, SlotUse::Once) == apart,
                "{threads} threads: {what}"
            );
            assert!(
                self.run(threads, slot, ResultPlace::OnSource, SlotUse::Once) == apart,
                "in place, {threads} threads: {what}"
            );
        }
        if slot == 0 && layouts.get(1) == Some(&self.result) {
            let apart = self.run(1, 0, ResultPlace::Separate, SlotUse::Twice);
            assert!(self.run(2, 0, ResultPlace::OnSource, SlotUse::Twice) == apart, "on both slots: {what}");
        }
    }
}

/// Whether the result has the memory of a source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultPlace {
    Separate,
    OnSource,
}

/// Whether the first source is in both slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotUse {
    Once,
    Twice,
}

fn every_operation() -> Vec<Op> {
    let kinds = Unary::ALL.iter().copied().map(Op::Unary).chain(Glu::ALL.iter().copied().map(Op::Glu));
    Op::PLAIN.iter().copied().chain(kinds).collect()
}

#[test]
fn every_operation_that_overwrites_a_slot_is_tried() {
    let mut trial = FilledContext::new(1);
    for op in every_operation() {
        for slot in (0..16).filter(|&slot| op.overwrites_slot(slot)) {
            let found = (0..100).any(|_| StrideCase::new(&mut trial, op, slot).is_some());
            assert!(found, "{} is not tried on slot {slot}", op.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Slots that an operation does not overwrite are among them: the executor copies what would change.
    #[test]
    fn standing_on_a_source_changes_nothing(seed in any::<u64>()) {
        let mut trial = FilledContext::new(seed);
        for op in every_operation() {
            for slot in 0..3 {
                if let Some(case) = StrideCase::new(&mut trial, op, slot) {
                    case.check(slot);
                }
            }
        }
    }
}
