//! Nodes that no rule has looked at are run or refused: nothing panics, and nothing is written but the result.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod filled_context;

use std::sync::Arc;

use filled_context::FilledContext;
use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Bindings, BufferType, Bytes, HostMemory, Offset, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Glu, Graph, Layout, Op, Param, Tensor, TensorId, Unary};

const TYPES: [DataType; 10] = [
    DataType::F32,
    DataType::F32,
    DataType::F32,
    DataType::F16,
    DataType::Bf16,
    DataType::I32,
    DataType::I64,
    DataType::Q8_0,
    DataType::Q5_1,
    DataType::Q4K,
];

/// Sources may read one element again and again; elements of a result may not share bytes.
fn any_layout(trial: &mut FilledContext, shapes: &[[u64; 4]], again: bool) -> Layout {
    let dtype = trial.pick(&TYPES);
    let mut ne = trial.pick(shapes);
    if trial.below(4) == 0 {
        ne[trial.below(4) as usize] = trial.pick(&[0, 1, 2, 3]);
    }
    if dtype.is_quantised() {
        ne[0] = ne[0].next_multiple_of(dtype.block_len());
        return Layout::contiguous(dtype, &ne).unwrap();
    }
    let (mut nb, mut next) = ([0; 4], dtype.block_bytes());
    for dim in trial.pick(&[[0, 1, 2, 3], [0, 1, 2, 3], [1, 0, 3, 2], [3, 2, 1, 0]]) {
        nb[dim] = if again && trial.below(6) == 0 { 0 } else { next };
        next = next * ne[dim].max(1) + dtype.block_bytes() * trial.pick(&[0, 0, 1]);
    }
    Layout::new(dtype, ne, nb).unwrap()
}

fn every_operation() -> Vec<Op> {
    let kinds = Unary::ALL.iter().copied().map(Op::Unary).chain(Glu::ALL.iter().copied().map(Op::Glu));
    Op::PLAIN.iter().copied().chain(kinds).filter(|op| !op.writes_nothing()).collect()
}

/// Whether it ran.
fn tried(trial: &mut FilledContext, op: Op) -> bool {
    let shape = [0; 4].map(|_| trial.pick(&[1, 2, 4, 6]));
    let [a, b, c, d] = shape;
    let shapes = [
        shape,
        shape,
        shape,
        [a, b, c, 1],
        [a, b, 1, 1],
        [a, 1, 1, 1],
        [1; 4],
        [1, b, c, d],
        [2 * a, b, c, d],
        [c, 1, 1, 1],
    ];
    let mut context = Context::new();
    let count = trial.pick(&[1, 1, 2, 2, 3, 4]);
    let sources: Vec<(TensorId, Layout)> = (0..count)
        .map(|_| {
            let layout = any_layout(trial, &shapes, true);
            (context.add_tensor(Tensor::new(layout), &[], &[]).unwrap(), layout)
        })
        .collect();
    let result = any_layout(trial, &shapes, false);
    let count = trial.pick(&[0, 1, 2, 8, 13]);
    let params: Vec<Param> = (0..count)
        .map(|_| match trial.below(3) {
            0 => Param::Float(trial.number() * 3.0),
            _ => Param::Int(trial.pick(&[0, 0, 1, 1, 2, 4, 8, 24, 40, -1, i64::MAX])),
        })
        .collect();
    let slots: Vec<_> = sources.iter().map(|(id, _)| Some(*id)).collect();
    let node = context.add_tensor(Tensor { op, ..Tensor::new(result) }, &slots, &params).unwrap();
    let graph = Graph::from_outputs(&context, &[node]).unwrap();

    const APART: u64 = 256;
    let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
    let room = |layout: &Layout| layout.nbytes().0 + APART;
    let total: u64 = APART + room(&result) + sources.iter().map(|(_, layout)| room(layout)).sum::<u64>();
    let buffer = SharedBuffer::allocate(&memory, Bytes(total), Usage::Compute).unwrap();
    // Small numbers as i32, for what takes them as ids.
    let bytes: Vec<u8> = (0..total).map(|at| if at % 4 == 0 { trial.below(4) as u8 } else { 0 }).collect();
    buffer.write(Offset(0), &bytes).unwrap();
    let (mut bindings, mut end) = (Bindings::new(), APART);
    for (id, layout) in &sources {
        bindings.bind(*id, &buffer, Offset(end), layout.nbytes()).unwrap();
        end += room(layout);
    }
    bindings.bind(node, &buffer, Offset(end), result.nbytes()).unwrap();
    let backend = CpuBackend::new(1);
    let Ok(mut prepared) = backend.prepare(&graph, 0..graph.nodes().len(), &bindings) else { return false };
    let ran = backend.submit(&mut *prepared).is_ok();
    let mut after = vec![0; bytes.len()];
    buffer.read(Offset(0), &mut after).unwrap();
    let own = end as usize..(end + result.nbytes().0) as usize;
    let same = (0..after.len()).filter(|at| !own.contains(at)).all(|at| after[at] == bytes[at]);
    assert!(same, "{} has written elsewhere: {result} {params:?} of {sources:?}", op.name());
    ran
}

#[test]
fn any_node_is_run_or_refused() {
    let (mut trial, mut ran) = (FilledContext::new(1), 0);
    for _ in 0..1000 {
        for op in every_operation() {
            ran += usize::from(tried(&mut trial, op));
        }
    }
    assert!(ran > 1000, "only {ran} nodes could be run");
}

#[test]
fn a_shape_that_can_not_be_counted_is_refused() {
    let mut context = Context::new();
    let layout = Layout::contiguous(DataType::F32, &[0, 1 << 40, 1 << 40]).unwrap();
    let a = context.add_tensor(Tensor::new(layout), &[], &[]).unwrap();
    let node = context.add_tensor(Tensor { op: Op::Sqr, ..Tensor::new(layout) }, &[Some(a)], &[]).unwrap();
    let graph = Graph::from_outputs(&context, &[node]).unwrap();
    let error = CpuBackend::new(1).supports(&graph, node).unwrap_err().to_string();
    assert!(error.contains("too large for this machine"), "{error}");
}
