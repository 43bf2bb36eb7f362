//! Observers that ask back, values that only some may see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Bindings, DeviceError};
use steeve_graph::{Context, DataType, FlashAttention, Graph};
use steeve_runtime::{AllocError, GraphAllocator};

#[test]
fn an_observer_may_ask_its_backend_and_change_who_is_told() {
    let mut context = Context::new();
    let x = context.input(DataType::F32, &[4]).unwrap();
    let a = context.sqr(x).unwrap();
    let flat = context.reshape(a, &[2, 2]).unwrap();
    let y = context.neg(flat).unwrap();
    context.keep(x).unwrap();
    context.set_output(y).unwrap();
    let graph = Graph::from_outputs(&context, &[y]).unwrap();
    let backend = Arc::new(CpuBackend::new(2));
    backend.measure();
    let (seen, asked) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&backend));
    let counted = Arc::clone(&seen);
    backend.observe(move |it| {
        counted.fetch_add(1, Ordering::Relaxed);
        assert!(asked.timings().is_some());
        // It may not run what it is told about.
        let mut prepared = asked.prepare(it.graph, 0..0, &Bindings::new()).unwrap();
        assert!(matches!(asked.submit(&mut *prepared), Err(DeviceError::Failed { .. })));
        asked.stop_observing();
        ControlFlow::Continue(())
    });
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(x, &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let mut ready = allocation.prepare(&*backend).unwrap();
    ready.run().unwrap();
    assert_eq!((seen.load(Ordering::Relaxed), backend.timings().unwrap().0.len()), (2, 2));
    ready.run().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 2);
    // Nodes are counted as the graph has them, views among them.
    backend.cancel().cancel();
    let error = ready.run().unwrap_err();
    assert_eq!(error, AllocError::Device(DeviceError::Cancelled { node: 0, nodes: 3 }));
    assert!(matches!(allocation.read::<f32>(y), Err(AllocError::Lost { .. })));
}

#[test]
fn what_the_mask_hides_reaches_nobody_however_many_ask() {
    let (d, heads) = (32, 1);
    for tokens in [4u64, 300] {
        let mut context = Context::new();
        let q = context.input(DataType::F32, &[d, tokens, heads]).unwrap();
        let k = context.input(DataType::F32, &[d, tokens, heads]).unwrap();
        let v = context.input(DataType::F32, &[d, tokens, heads]).unwrap();
        let mask = context.input(DataType::F16, &[tokens, tokens]).unwrap();
        let numbers = FlashAttention { scale: 0.1, ..FlashAttention::default() };
        let y = context.flash_attn_ext(q, k, v, Some(mask), numbers).unwrap();
        context.set_output(y).unwrap();
        let graph = Graph::from_outputs(&context, &[y]).unwrap();
        let backend = CpuBackend::new(1);
        let mut allocator = GraphAllocator::new(&backend.buffer_type());
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        let count = (d * tokens) as usize;
        let numbers: Vec<f32> = (0..count).map(|i| (i % 17) as f32 / 17.0 - 0.4).collect();
        allocation.write(q, &numbers).unwrap();
        allocation.write(k, &numbers).unwrap();
        // The last position alone is infinite, and only the last query may see it.
        let mut values = numbers.clone();
        values[count - d as usize..].fill(f32::INFINITY);
        allocation.write(v, &values).unwrap();
        let hidden = |row: u64, column: u64| if column <= row { half::f16::ZERO } else { half::f16::NEG_INFINITY };
        let bits: Vec<half::f16> =
            (0..tokens).flat_map(|row| (0..tokens).map(move |column| hidden(row, column))).collect();
        allocation.write(mask, &bits).unwrap();
        allocation.compute(&backend).unwrap();
        let made = allocation.read::<f32>(y).unwrap();
        let (before, last) = made.split_at(count - d as usize);
        assert!(before.iter().all(|x| x.is_finite()), "{tokens} tokens");
        assert!(last.iter().all(|x| *x == f32::INFINITY), "{tokens} tokens");
    }
}
