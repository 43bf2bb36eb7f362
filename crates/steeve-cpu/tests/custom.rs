//! Callers' own operations on the processor: as right as the built-in ones, in place and apart, and never undefined.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::error::Error;
use std::sync::Arc;

use proptest::prelude::*;
use steeve_cpu::{CpuBackend, CpuDevice, CpuKernel, CustomCallError};
use steeve_device::conformance::check_custom_op;
use steeve_device::{
    Backend, Bindings, BufferType, Bytes, Device, DeviceError, Locate, Offset, Prepared, SharedBuffer, Usage,
};
use steeve_graph::{
    AssignedGraph, Context, CustomOp, DataType, Graph, Layout, Param, PlanOptions, Reuse, Tensor, TensorId,
};

use steeve_runtime::{AllocError, AllocOptions, GraphAllocator};

const F32: DataType = DataType::F32;

fn relu() -> CustomOp {
    CustomOp::elementwise("MY_RELU")
}

fn relu_kernel(op: &CustomOp) -> CpuKernel {
    CpuKernel::new(op, |call| {
        let (source, result) = (call.source(0)?, call.result());
        for row in call.rows() {
            let from = source.row::<f32>(row)?;
            result.row::<f32>(row)?.iter().enumerate().for_each(|(i, to)| to.set(from.get(i).max(0.0)));
        }
        Ok(())
    })
}

/// Adds a row of source 1 to each row of source 0: the second source is read by all threads.
fn add_row() -> (CustomOp, CpuKernel) {
    let op = CustomOp::elementwise("ADD_ROW").overwriting(1);
    let kernel = CpuKernel::new(&op, |call| {
        let (a, b, result) = (call.source(0)?, call.source(1)?, call.result());
        for row in call.rows() {
            let (from, add) = (a.row::<f32>(row)?, b.row::<f32>(row % (b.shape()[1] * b.shape()[2] * b.shape()[3]))?);
            for (i, to) in result.row::<f32>(row)?.iter().enumerate() {
                to.set(from.get(i) + add.get(i));
            }
        }
        Ok(())
    });
    (op, kernel.by_rows())
}

/// Runs a graph of one output with the inputs filled by their position.
fn run(graph: &Graph, backend: &CpuBackend, reuse: Reuse) -> Vec<f32> {
    let options = AllocOptions::new().with_plan(PlanOptions::default().with_reuse(reuse));
    let mut allocator = GraphAllocator::new(&backend.buffer_type()).with_options(options);
    let allocation = allocator.alloc(graph, &Bindings::new()).unwrap();
    for (index, &leaf) in graph.leafs().iter().enumerate() {
        let count = graph.tensor(leaf).layout.elements() as usize;
        let data: Vec<f32> = (0..count).map(|i| ((i * 37 + index * 11) % 101) as f32 - 50.0).collect();
        allocation.write(leaf, &data).unwrap();
    }
    allocation.compute(backend).unwrap();
    allocation.read(*graph.nodes().last().unwrap()).unwrap()
}

fn build(act: impl FnOnce(&mut Context) -> TensorId) -> Graph {
    let mut context = Context::new();
    let output = act(&mut context);
    context.set_output(output).unwrap();
    Graph::from_outputs(&context, &[output]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Returns a chain of built-in operations, the reference for the chain of custom ones.
    #[test]
    fn own_operations_give_what_built_in_ones_give_however_they_are_planned(
        ne in (1u64..70, 1u64..300, 1u64..3), steps in prop::collection::vec(0usize..3, 1..6), threads in 1usize..4,
    ) {
        let (add, add_kernel) = add_row();
        let own = relu();
        let shape = [ne.0, ne.1, ne.2];
        let graph = |is_own: bool| build(|context| {
            let row = context.input(F32, &[ne.0]).unwrap();
            let mut x = context.input(F32, &shape).unwrap();
            for &step in &steps {
                let before = x;
                x = match (step, is_own) {
                    (0, true) => context.custom(&own, &[x], &[]).unwrap(),
                    (0, false) => context.relu(x).unwrap(),
                    (1, true) => context.custom(&add, &[x, row], &[]).unwrap(),
                    (1, false) => context.add(x, row).unwrap(),
                    (_, true) => { let y = context.sqr(x).unwrap(); context.custom(&add, &[before, y], &[]).unwrap() }
                    (_, false) => { let y = context.sqr(x).unwrap(); context.add(before, y).unwrap() }
                };
            }
            x
        });
        let backend = CpuBackend::new(threads).with_kernel(relu_kernel(&own).by_rows()).with_kernel(add_kernel);
        let expected = run(&graph(false), &backend, Reuse::None);
        for reuse in [Reuse::None, Reuse::Ggml, Reuse::Extended] {
            prop_assert_eq!(&run(&graph(true), &backend, reuse), &expected);
        }
    }
}

#[test]
fn an_unregistered_name_is_refused_by_the_backend_and_not_by_the_planner() {
    let graph = build(|context| {
        let x = context.input(F32, &[4]).unwrap();
        let y = context.custom(&relu(), &[x], &[]).unwrap();
        context.set_name(y, "hidden").unwrap();
        y
    });
    let backend = CpuBackend::new(1);
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(graph.leafs()[0], &[1.0f32; 4]).unwrap();
    let error = allocation.compute(&backend).unwrap_err().to_string();
    assert!(error.contains("hidden") && error.contains("no kernel of MY_RELU is registered"), "{error}");
    // A device gives its kernels to all of its backends.
    let device = CpuDevice::with_threads(1).with_kernel(relu_kernel(&relu()));
    assert!(device.supports(&graph, graph.nodes()[0]).is_ok());
    allocation.compute(&*device.backend().unwrap()).unwrap();
    assert_eq!(allocation.read::<f32>(graph.nodes()[0]).unwrap(), [1.0; 4]);
}

/// A file may permit what the operation does not: the kernel then reads a copy.
#[test]
fn a_graph_that_permits_more_than_the_declaration_is_right_all_the_same() {
    let reverse = CustomOp::new("REVERSE").with_rule(|sources, _| sources[0].ok_or_else(String::new));
    let kernel = CpuKernel::new(&reverse, |call| {
        let (source, result) = (call.source(0)?, call.result());
        let from = source.row::<f32>(0)?;
        let slice = from.as_slice().ok_or("not to be overwritten")?;
        result.row::<f32>(0)?.iter().zip(slice.iter().rev()).for_each(|(to, from)| to.set(*from));
        Ok(())
    });
    let text = "x = input f32[5]; y = ?REVERSE f32[5] x overwrites=0 !output";
    let graph = text.parse::<AssignedGraph>().unwrap().into_graph();
    let backend = CpuBackend::new(1).with_kernel(kernel);
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    let required = allocator.required(&graph).unwrap();
    assert_eq!(required.iter().map(|bytes| bytes.0).sum::<u64>(), 32, "it runs in place");
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(graph.leafs()[0], &[1.0f32, 2.0, 3.0, 4.0, 5.0]).unwrap();
    allocation.compute(&backend).unwrap();
    assert_eq!(allocation.read::<f32>(graph.nodes()[0]).unwrap(), [5.0, 4.0, 3.0, 2.0, 1.0]);
}

#[test]
fn an_operation_writes_into_a_cache_and_leaves_the_rest_of_it() {
    let append = CustomOp::new("APPEND").writing_into(1);
    let kernel = CpuKernel::new(&append, |call| {
        let at = usize::try_from(call.param(0)?.int().ok_or("not a whole number")?)?;
        let from = call.source(0)?.row::<f32>(0)?;
        assert!(call.source(1)?.row::<f32>(0)?.as_slice().is_none());
        call.result().row::<f32>(at)?.iter().zip(from.iter()).for_each(|(to, from)| to.set(to.get() + from));
        Ok(())
    });
    let graph = build(|context| {
        let (x, cache) = (context.input(F32, &[2]).unwrap(), context.input(F32, &[2, 3]).unwrap());
        let written = context.custom(&append, &[x, cache], &[1.into()]).unwrap();
        context.sqr(written).unwrap()
    });
    let backend = CpuBackend::new(2).with_kernel(kernel.by_rows());
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
    allocation.write(graph.leafs()[0], &[1.0f32, 2.0]).unwrap();
    allocation.write(graph.leafs()[1], &[3.0f32; 6]).unwrap();
    allocation.compute(&backend).unwrap();
    assert_eq!(allocation.read::<f32>(graph.nodes()[1]).unwrap(), [9.0, 9.0, 16.0, 25.0, 9.0, 9.0]);
}

#[test]
fn what_a_kernel_can_not_have_is_an_error_that_says_so() {
    type KernelFn = fn(&steeve_cpu::CustomCall<'_>) -> Result<(), CustomCallError>;
    let row = |row, reach| CustomCallError::Row { row, reach };
    let acts: [(KernelFn, CustomCallError); 7] = [
        (|call| call.source(1).map(drop), CustomCallError::NoSource { slot: 1 }),
        (|call| call.source(usize::MAX).map(drop), CustomCallError::NoSource { slot: usize::MAX }),
        (|call| call.param(0).map(drop), CustomCallError::NoParam { index: 0, params: 0 }),
        (
            |call| call.source(0)?.row::<i32>(0).map(drop),
            CustomCallError::DataType { expected: F32, found: DataType::I32 },
        ),
        (|call| call.result().row::<f32>(3).map(drop), row(3, 0..3)),
        (|call| call.source(0)?.row::<f32>(usize::MAX).map(drop), row(usize::MAX, 0..3)),
        (|call| call.result().row_bytes(3).map(drop), row(3, 0..3)),
    ];
    let graph = build(|context| {
        let x = context.input(F32, &[4, 3]).unwrap();
        context.custom(&relu(), &[x], &[]).unwrap()
    });
    for (act, expected) in acts {
        let kernel = CpuKernel::new(&relu(), move |call| Ok(act(call)?));
        let backend = CpuBackend::new(1).with_kernel(kernel);
        let mut allocator = GraphAllocator::new(&backend.buffer_type());
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        allocation.write(graph.leafs()[0], &[1.0f32; 12]).unwrap();
        let error = allocation.compute(&backend).unwrap_err();
        assert!(
            error.to_string().starts_with("CPU: kernel failed: ") && error.to_string().ends_with("MY_RELU"),
            "{error}"
        );
        let AllocError::Device(DeviceError::Kernel { source, .. }) = &error else { panic!("{error:?}") };
        assert_eq!(source.get().downcast_ref(), Some(&expected));
        assert_eq!(error.source().map(ToString::to_string), Some(expected.to_string()));
    }
}

#[test]
fn rows_of_strided_views_are_refused_where_they_have_gaps_and_lent_where_they_have_none() {
    let copy = CustomOp::new("COPY");
    let kernel = CpuKernel::new(&copy, |call| {
        let source = call.source(0)?;
        for row in call.rows() {
            let from = source.row::<f32>(row)?;
            call.result().row::<f32>(row)?.iter().zip(from.iter()).for_each(|(to, from)| to.set(from));
        }
        Ok(())
    });
    let backend = CpuBackend::new(1).with_kernel(kernel);
    let layout = Layout::contiguous(F32, &[2, 3]).unwrap();
    let spread = build(|context| {
        let x = context.input(F32, &[4, 3]).unwrap();
        let view = context.view_2d(x, [2, 3], 16, Bytes(8)).unwrap();
        context.custom_shaped(&copy, layout, &[view], &[]).unwrap()
    });
    let value = |i: usize| (i * 37 % 101) as f32 - 50.0;
    assert_eq!(run(&spread, &backend, Reuse::Extended), [2, 3, 6, 7, 10, 11].map(value));
    let turned = build(|context| {
        let x = context.input(F32, &[3, 2]).unwrap();
        let view = context.transpose(x).unwrap();
        context.custom_shaped(&copy, layout, &[view], &[]).unwrap()
    });
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    let allocation = allocator.alloc(&turned, &Bindings::new()).unwrap();
    allocation.write(turned.leafs()[0], &[1.0f32; 6]).unwrap();
    let error = allocation.compute(&backend).unwrap_err();
    let cause = error.source().map(ToString::to_string);
    assert_eq!(cause.as_deref(), Some("strided row: expected adjacent, aligned elements in row 0"));
}

#[test]
fn a_panic_of_a_kernel_is_an_error_and_the_backend_goes_on() {
    let (bad, good) = (CustomOp::elementwise("BAD"), relu());
    let backend = CpuBackend::new(3)
        .with_kernel(CpuKernel::new(&bad, |call| panic!("no more than {}", call.rows().len())).by_rows())
        .with_kernel(relu_kernel(&good));
    for (op, is_ok) in [(&bad, false), (&good, true), (&bad, false), (&good, true)] {
        let graph = build(|context| {
            let x = context.input(F32, &[16, 8]).unwrap();
            context.custom(op, &[x], &[]).unwrap()
        });
        let mut allocator = GraphAllocator::new(&backend.buffer_type());
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        allocation.write(graph.leafs()[0], &[1.0f32; 128]).unwrap();
        let done = allocation.compute(&backend);
        assert_eq!(done.is_ok(), is_ok);
        if let Err(error) = done {
            let AllocError::Device(DeviceError::Kernel { op, .. }) = &error else { panic!("{error:?}") };
            assert_eq!(op, "BAD");
            let cause = error.source().map(ToString::to_string);
            assert_eq!(cause.as_deref(), Some("kernel panicked: no more than 8"));
        }
    }
}

#[test]
fn the_suite_accepts_honest_claims_and_finds_false_ones() {
    let honest = relu();
    let backend = CpuBackend::new(2).with_kernel(relu_kernel(&honest).by_rows());
    for shape in [&[1u64] as &[u64], &[33, 5], &[3, 2, 4, 2]] {
        check_custom_op(&backend, &honest, |context| {
            let x = context.input(F32, shape)?;
            context.custom(&honest, &[x], &[])
        })
        .assert();
    }
    // Reads each element after its mirror image has been written.
    let liar = CustomOp::elementwise("MIRROR");
    let kernel = CpuKernel::new(&liar, |call| {
        for row in call.rows() {
            let (from, to) = (call.source(0)?.row::<f32>(row)?, call.result().row::<f32>(row)?);
            (0..to.len()).for_each(|i| to[i].set(from.get(from.len() - 1 - i)));
        }
        Ok(())
    });
    let backend = CpuBackend::new(1).with_kernel(kernel);
    let report = check_custom_op(&backend, &liar, |context| {
        let x = context.input(F32, &[33, 5])?;
        context.custom(&liar, &[x], &[])
    });
    let failed: Vec<_> = report.failures.iter().map(|failure| &*failure.law).collect();
    assert_eq!(failed, ["MIRROR over source 0"], "{report:#}");
    // One that has no kernel is skipped with a reason, not passed.
    let report = check_custom_op(&CpuBackend::new(1), &liar, |context| {
        let x = context.input(F32, &[8])?;
        context.custom(&liar, &[x], &[])
    });
    assert!(report.failures.is_empty() && report.skipped.len() >= 2, "{report:#}");
}

/// Returns a buffer of the backend with zeros, and what places tensors in it, each at its offset.
fn place(backend: &CpuBackend, graph: &Graph, offsets: &[(TensorId, u64)], size: u64) -> (SharedBuffer, Bindings) {
    let buffer = SharedBuffer::allocate(&backend.buffer_type(), Bytes(size), Usage::Compute).unwrap();
    buffer.clear(0).unwrap();
    let mut bindings = Bindings::new();
    for &(id, offset) in offsets {
        bindings.bind(id, &buffer, Offset(offset), graph.tensor(id).nbytes()).unwrap();
    }
    (buffer, bindings)
}

/// One thread would read, as rows of the target, what another writes as rows of the result.
#[test]
fn a_result_that_is_bound_a_row_behind_its_target_is_refused() {
    let op = CustomOp::new("INTO").writing_into(1);
    let kernel = CpuKernel::new(&op, |call| {
        for row in call.rows() {
            let (from, to) = (call.source(1)?.row::<f32>(row)?, call.result().row::<f32>(row)?);
            to.iter().zip(from.iter()).for_each(|(to, from)| to.set(from + 1.0));
        }
        Ok(())
    });
    let backend = CpuBackend::new(2).with_kernel(kernel.by_rows());
    let graph = build(|context| {
        let (x, target) = (context.input(F32, &[1]).unwrap(), context.input(F32, &[40_000, 4]).unwrap());
        context.custom(&op, &[x, target], &[]).unwrap()
    });
    let (x, target, node) = (graph.leafs()[0], graph.leafs()[1], graph.nodes()[0]);
    for (shift, is_ok) in [(0, true), (4, false), (160_000, false), (640_000, true)] {
        let offsets = [(x, 0), (target, 64), (node, 64 + shift)];
        let (_, bindings) = place(&backend, &graph, &offsets, 64 + 2 * 640_000);
        match backend.prepare(&graph, 0..1, &bindings) {
            Ok(mut prepared) => {
                assert!(is_ok, "{shift}");
                backend.submit(&mut *prepared).unwrap();
            }
            Err(error) => {
                assert!(!is_ok && matches!(error, DeviceError::NotInTarget { .. }), "{shift}: {error}");
            }
        }
    }
}

#[test]
fn an_unregistered_name_is_refused_for_an_empty_result_too() {
    let graph = build(|context| {
        let x = context.input(F32, &[0]).unwrap();
        context.custom(&relu(), &[x], &[]).unwrap()
    });
    let node = graph.nodes()[0];
    let error = CpuBackend::new(1).supports(&graph, node).unwrap_err().to_string();
    assert!(error.ends_with("no kernel of MY_RELU is registered"), "{error}");
    let (backend, x) = (CpuBackend::new(1), graph.leafs()[0]);
    let (_, bindings) = place(&backend, &graph, &[(x, 0), (node, 0)], 16);
    assert!(backend.prepare(&graph, 0..1, &bindings).is_err());
    let backend = backend.with_kernel(relu_kernel(&relu()));
    backend.supports(&graph, node).unwrap();
    let mut prepared = backend.prepare(&graph, 0..1, &bindings).unwrap();
    backend.submit(&mut *prepared).unwrap();
}

/// A `Cell<i8>` has the size of a byte, and a stride of two is not one byte.
#[test]
fn rows_of_strided_bytes_are_refused() {
    let copy = CustomOp::new("COPY");
    let kernel = CpuKernel::new(&copy, |call| {
        for row in call.rows() {
            let (from, to) = (call.source(0)?.row::<i8>(row)?, call.result().row::<i8>(row)?);
            to.iter().zip(from.iter()).for_each(|(to, from)| to.set(from));
        }
        Ok(())
    });
    let backend = CpuBackend::new(2).with_kernel(kernel.by_rows());
    let dense = |ne: [u64; 4]| Layout::contiguous(DataType::I8, &ne).unwrap();
    let turned = |ne: [u64; 4]| Layout::new(DataType::I8, ne, [ne[1], 1, ne[0] * ne[1], ne[0] * ne[1]]).unwrap();
    for ne in [[3, 2, 1, 1], [300, 400, 1, 1]] {
        for (source, result) in [(dense(ne), dense(ne)), (turned(ne), dense(ne)), (dense(ne), turned(ne))] {
            let graph = build(|context| {
                let x = context.add_tensor(Tensor::new(source), &[], &[]).unwrap();
                context.custom_shaped(&copy, result, &[x], &[]).unwrap()
            });
            let (x, y) = (graph.leafs()[0], graph.nodes()[0]);
            let (_, bindings) = place(&backend, &graph, &[(x, 0), (y, 131_072)], 262_144);
            let mut prepared = backend.prepare(&graph, 0..1, &bindings).unwrap();
            match backend.submit(&mut *prepared) {
                Ok(()) => assert_eq!((source, result), (dense(ne), dense(ne))),
                Err(error) => {
                    let cause = error.source().map(ToString::to_string);
                    assert_eq!(cause.as_deref(), Some("strided row: expected adjacent, aligned elements in row 0"));
                }
            }
        }
    }
}

/// Runs on the processor, and writes a byte at a distance from the start of the first node's result after each run.
#[derive(Debug)]
struct Scribbler {
    cpu: CpuBackend,
    distance: u64,
}

#[derive(Debug)]
struct ScribblerPrepared {
    cpu: Box<dyn Prepared>,
    at: Option<(SharedBuffer, Offset)>,
}

impl Prepared for ScribblerPrepared {
    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl Backend for Scribbler {
    fn name(&self) -> &str {
        "scribbler"
    }

    fn buffer_type(&self) -> Arc<dyn BufferType> {
        self.cpu.buffer_type()
    }

    fn supports(&self, graph: &Graph, node: TensorId) -> Result<(), DeviceError> {
        self.cpu.supports(graph, node)
    }

    fn prepare(
        &self,
        graph: &Graph,
        nodes: std::ops::Range<usize>,
        tensors: &dyn Locate,
    ) -> Result<Box<dyn Prepared>, DeviceError> {
        let cpu = self.cpu.prepare(graph, nodes, tensors)?;
        let address = graph.nodes().last().and_then(|&node| tensors.locate(node));
        let at = address.map(|it| (it.buffer.clone(), Offset(it.offset.0.wrapping_add(self.distance))));
        Ok(Box::new(ScribblerPrepared { cpu, at }))
    }

    fn submit(&self, prepared: &mut dyn Prepared) -> Result<(), DeviceError> {
        let prepared = prepared.as_any_mut().downcast_mut::<ScribblerPrepared>().unwrap();
        self.cpu.submit(&mut *prepared.cpu)?;
        prepared.at.iter().try_for_each(|(buffer, offset)| buffer.write(*offset, &[7]))
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        self.cpu.synchronise()
    }
}

#[test]
fn the_suite_checks_that_an_operation_writes_into_its_target_and_leaves_the_rest() {
    let op = CustomOp::new("APPEND").writing_into(1);
    let kernel = CpuKernel::new(&op, |call| {
        let from = call.source(0)?.row::<f32>(0)?;
        if call.rows().contains(&1) {
            call.result().row::<f32>(1)?.iter().zip(from.iter()).for_each(|(to, from)| to.set(from));
        }
        Ok(())
    });
    let kernel = kernel.by_rows();
    let whole = |context: &mut Context| {
        let (x, target) = (context.input(F32, &[8])?, context.input(F32, &[8, 4])?);
        context.custom(&op, &[x, target], &[])
    };
    // Rows 2 and 3 of the target, the first half of each.
    let part = |context: &mut Context| {
        let (x, target) = (context.input(F32, &[4])?, context.input(F32, &[8, 5])?);
        let part = context.view_2d(target, [4, 2], 32, Bytes(64))?;
        context.custom(&op, &[x, part], &[])
    };
    let backend = || CpuBackend::new(2).with_kernel(kernel.clone());
    let law = "APPEND writes only into source 1";
    for report in [check_custom_op(&backend(), &op, whole), check_custom_op(&backend(), &op, part)] {
        report.assert();
        assert!(report.has_checked(law), "{report:#}");
    }
    // Before the view, in the gap between its rows, and behind it.
    for distance in [(-64i64).cast_unsigned(), 16, 48] {
        let report = check_custom_op(&Scribbler { cpu: backend(), distance }, &op, part);
        assert!(
            report.failures.iter().all(|it| it.law == law) && !report.failures.is_empty(),
            "{distance}: {report:#}"
        );
    }
    let report = check_custom_op(&Scribbler { cpu: backend(), distance: 0 }, &op, part);
    report.assert();
}

#[test]
fn an_operation_may_write_into_a_tensor_that_it_also_reads() {
    let op = CustomOp::new("INTO").writing_into(1);
    // Reads all of source 0 before and after each write, so it needs a copy.
    let kernel = CpuKernel::new(&op, |call| {
        let source = call.source(0)?;
        for row in call.rows() {
            for (i, to) in call.result().row::<f32>(row)?.iter().enumerate() {
                to.set(source.row::<f32>(2 - row)?.get(i) * 10.0 + to.get());
            }
        }
        Ok(())
    });
    for kernel in [kernel.clone(), kernel.by_rows()] {
        let backend = CpuBackend::new(2).with_kernel(kernel);
        let graph = build(|context| {
            let x = context.input(F32, &[1, 3]).unwrap();
            context.custom(&op, &[x, x], &[]).unwrap()
        });
        let mut allocator = GraphAllocator::new(&backend.buffer_type());
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        allocation.write(graph.leafs()[0], &[1.0f32, 2.0, 3.0]).unwrap();
        allocation.compute(&backend).unwrap();
        assert_eq!(allocation.read::<f32>(graph.nodes()[0]).unwrap(), [31.0, 22.0, 13.0]);
    }
}

#[test]
fn declared_parameters_are_read_by_name() {
    let affine = CustomOp::elementwise("AFFINE").with_params(&["slope", "shift"]);
    let kernel = CpuKernel::new(&affine, |call| {
        let (slope, shift) = (call.param_named("slope")?.float(), call.param_named("shift")?.float());
        assert_eq!(call.param(1)?, call.param_named("shift")?);
        let error = call.param_named("scale").unwrap_err();
        assert_eq!(error.to_string(), "no such parameter: expected one of slope, shift, got \"scale\"");
        for row in call.rows() {
            let (from, to) = (call.source(0)?.row::<f32>(row)?, call.result().row::<f32>(row)?);
            to.iter().zip(from.iter()).for_each(|(to, from)| to.set(from * slope + shift));
        }
        Ok(())
    });
    let backend = CpuBackend::new(1).with_kernel(kernel);
    let graph = |op: &CustomOp, params: &[Param]| {
        build(|context| {
            let x = context.input(F32, &[3]).unwrap();
            context.custom(op, &[x], params).unwrap()
        })
    };
    let right = graph(&affine, &[2.0.into(), 1.into()]);
    let value = |i: usize| ((i * 37) % 101) as f32 - 50.0;
    assert_eq!(run(&right, &backend, Reuse::Extended), [0, 1, 2].map(|i| value(i) * 2.0 + 1.0));
    // A graph that was built by another declaration is refused before anything runs.
    let short = graph(&CustomOp::elementwise("AFFINE"), &[2.0.into()]);
    let error = backend.supports(&short, short.nodes()[0]).unwrap_err().to_string();
    assert!(error.ends_with("wrong number of parameters: expected 2 (slope, shift), got 1"), "{error}");
}

#[test]
fn an_operation_may_have_any_number_of_sources() {
    let sum = CustomOp::new("SUM_OF_ALL").with_rule(|sources, _| sources[0].ok_or_else(String::new)).overwriting(0);
    let kernel = CpuKernel::new(&sum, |call| {
        for row in call.rows() {
            for (i, to) in call.result().row::<f32>(row)?.iter().enumerate() {
                let mut total = 0.0;
                for slot in 0..call.slots() {
                    total += call.source(slot)?.row::<f32>(row)?.get(i);
                }
                to.set(total);
            }
        }
        Ok(())
    });
    let backend = CpuBackend::new(2).with_kernel(kernel.by_rows());
    for count in [1, 6, 15, 16, 17, 40, 64, 65, 200] {
        let graph = build(|context| {
            let sources: Vec<_> = (0..count).map(|_| context.input(F32, &[3]).unwrap()).collect();
            context.custom(&sum, &sources, &[]).unwrap()
        });
        let node = graph.nodes()[0];
        let expected: f32 = (1..=count).map(|value| value as f32).sum();
        // In a place of its own, over the first source, over a middle one, and over the last one.
        for over in [None, Some(0), Some(count / 2), Some(count - 1)] {
            let mut offsets: Vec<_> = (0..).step_by(16).zip(graph.leafs()).map(|(at, &leaf)| (leaf, at)).collect();
            offsets.push((node, 16 * over.unwrap_or(count) as u64));
            let (buffer, bindings) = place(&backend, &graph, &offsets, 16 * (count as u64 + 1));
            for (index, &leaf) in graph.leafs().iter().enumerate() {
                let value = (index as f32 + 1.0).to_le_bytes();
                buffer.write(bindings.locate(leaf).unwrap().offset, &[value; 3].concat()).unwrap();
            }
            let mut prepared = backend.prepare(&graph, 0..1, &bindings).unwrap();
            backend.submit(&mut *prepared).unwrap();
            let mut result = [0; 12];
            buffer.read(bindings.locate(node).unwrap().offset, &mut result).unwrap();
            assert_eq!(result.as_slice(), [expected.to_le_bytes(); 3].concat(), "{count} sources, over {over:?}");
        }
    }
}

#[test]
fn the_suite_gives_numbers_to_kernels_of_every_float_type() {
    let op = CustomOp::elementwise("HALVE");
    let kernel = CpuKernel::new(&op, |call| {
        for row in call.rows() {
            let (from, to) = (call.source(0)?.row::<f64>(row)?, call.result().row::<f64>(row)?);
            for (to, from) in to.iter().zip(from.iter()) {
                if !from.is_normal() || from.abs() > 1e6 {
                    return Err(format!("no number to check with: {from:e}").into());
                }
                to.set(from / 2.0);
            }
        }
        Ok(())
    });
    let backend = CpuBackend::new(2).with_kernel(kernel.by_rows());
    let report = check_custom_op(&backend, &op, |context| {
        let x = context.input(DataType::F64, &[33, 5])?;
        context.custom(&op, &[x], &[])
    });
    report.assert();
    assert!(report.has_checked("HALVE over source 0"), "{report:#}");
}

#[test]
fn the_suite_reports_why_a_kernel_failed() {
    let op = CustomOp::elementwise("BROKEN");
    let kernel = CpuKernel::new(&op, |call| Ok(call.param_named("slope").map(drop)?));
    let report = check_custom_op(&CpuBackend::new(1).with_kernel(kernel), &op, |context| {
        let x = context.input(F32, &[8])?;
        context.custom(&op, &[x], &[])
    });
    let text = report.to_string();
    assert!(text.contains("BROKEN: no such parameter: expected an index"), "{text}");
}
