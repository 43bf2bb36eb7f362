//! Callers' own operations on GPUs: as right as the built-in ones, in place and apart, by elements and by rows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gpu;

use std::sync::Arc;

use gpu::devices;
use steeve_cpu::CpuDevice;
use steeve_cuda::{Capture, CudaDevice, CudaKernel};
use steeve_device::conformance::check_custom_op;
use steeve_device::{Bindings, Device};
use steeve_graph::{Context, CustomOp, DataType, Graph, Layout, PlanOptions, Reuse, TensorId};
use steeve_runtime::sched::Scheduler;
use steeve_runtime::{AllocOptions, GraphAllocator};

const F32: DataType = DataType::F32;

fn leaky() -> CustomOp {
    CustomOp::elementwise("LEAKY")
}

/// What `leaky_relu` does, and a sum with a row that starts over.
fn kernels() -> [CudaKernel; 3] {
    let leaky_source = "
        __device__ void compute(const Call &call, u64 i) {
            float x = read(call, 0, i);
            write(call, i, x < 0 ? x * (float)call.params[0].number : x);
        }";
    let add_source =
        "__device__ void compute(const Call &call, u64 i) { write(call, i, read(call, 0, i) + read(call, 1, i)); }";
    let center_source = "
        __device__ void compute(const Call &call, u64 row) {
            const Tensor &from = call.sources[0], &to = call.result;
            Place at = row_of(row, to.ne);
            const char *x = from.data + offset_of(from, at);
            char *y = to.data + offset_of(to, at);
            float sum = 0;
            for (i64 i = threadIdx.x; i < to.ne[0]; i += blockDim.x) sum += load(x + i * from.nb[0], from.dtype);
            float mean = block_sum(sum) / (float)to.ne[0];
            for (i64 i = threadIdx.x; i < to.ne[0]; i += blockDim.x) {
                store(y + i * to.nb[0], to.dtype, load(x + i * from.nb[0], from.dtype) - mean);
            }
        }";
    // SAFETY: each writes the element or the row of the result that it is called for.
    unsafe {
        [
            CudaKernel::by_elements(&leaky(), leaky_source),
            CudaKernel::by_elements(&add_row(), add_source),
            CudaKernel::by_rows(&center(), center_source),
        ]
    }
}

fn add_row() -> CustomOp {
    CustomOp::elementwise("ADD_ROW").overwriting(1)
}

fn center() -> CustomOp {
    CustomOp::elementwise("CENTER")
}

fn with_kernels(device: CudaDevice) -> CudaDevice {
    kernels().into_iter().fold(device, CudaDevice::with_kernel)
}

/// Runs a graph of one output with the inputs filled by their position.
fn run(graph: &Graph, device: &CudaDevice, reuse: Reuse) -> Vec<f32> {
    let options = AllocOptions::new().with_plan(PlanOptions::default().with_reuse(reuse));
    let backend = device.backend().unwrap();
    let mut allocator = GraphAllocator::new(&backend.buffer_type()).with_options(options);
    let allocation = allocator.alloc(graph, &Bindings::new()).unwrap();
    for (index, &leaf) in graph.leafs().iter().enumerate() {
        let count = graph.tensor(leaf).layout.elements() as usize;
        let data: Vec<f32> = (0..count).map(|i| ((i * 37 + index * 11) % 101) as f32 - 50.0).collect();
        allocation.write(leaf, &data).unwrap();
    }
    allocation.compute(&*backend).unwrap();
    allocation.read(*graph.nodes().last().unwrap()).unwrap()
}

fn build(act: impl FnOnce(&mut Context) -> TensorId) -> Graph {
    let mut context = Context::new();
    let output = act(&mut context);
    context.set_output(output).unwrap();
    Graph::from_outputs(&context, &[output]).unwrap()
}

#[test]
fn own_operations_give_what_built_in_ones_give_however_they_are_planned() {
    let graph = |is_own: bool, shape: [u64; 3]| {
        build(|context| {
            let row = context.input(F32, &shape[..1]).unwrap();
            let x = context.input(F32, &shape).unwrap();
            if !is_own {
                let x = context.leaky_relu(x, 0.25).unwrap();
                let x = context.add(x, row).unwrap();
                return context.leaky_relu(x, -0.5).unwrap();
            }
            let x = context.custom(&leaky(), &[x], &[0.25.into()]).unwrap();
            let x = context.custom(&add_row(), &[x, row], &[]).unwrap();
            context.custom(&leaky(), &[x], &[(-0.5).into()]).unwrap()
        })
    };
    for device in devices().into_iter().map(with_kernels) {
        for shape in [[1, 1, 1], [7, 3, 2], [300, 5, 1], [1031, 64, 3]] {
            let expected = run(&graph(false, shape), &device, Reuse::None);
            for reuse in [Reuse::None, Reuse::Ggml, Reuse::Extended] {
                assert_eq!(run(&graph(true, shape), &device, reuse), expected, "{shape:?}, {reuse:?}");
            }
        }
    }
}

#[test]
fn kernels_by_rows_and_claims_to_run_in_place_conform_however_work_is_captured() {
    for capture in [Capture::Never, Capture::AtOnce, Capture::WhenRepeated] {
        for device in devices().into_iter().map(with_kernels) {
            let backend = device.with_capture(capture).backend().unwrap();
            for dtype in [DataType::F32, DataType::F16, DataType::Bf16] {
                for shape in [[1, 1], [33, 5], [1031, 13]] {
                    for (op, params) in [(leaky(), vec![0.1.into()]), (center(), vec![])] {
                        check_custom_op(&*backend, &op, |context| {
                            let x = context.input(dtype, &shape)?;
                            context.custom(&op, &[x], &params)
                        })
                        .assert();
                    }
                }
            }
        }
    }
    for device in devices().into_iter().map(with_kernels) {
        let graph = build(|context| {
            let x = context.input(F32, &[300, 2]).unwrap();
            context.custom(&center(), &[x], &[]).unwrap()
        });
        let result = run(&graph, &device, Reuse::Extended);
        for row in result.chunks(300) {
            assert!(row.iter().sum::<f32>().abs() < 0.05 && row.iter().any(|x| x.abs() > 1.0));
        }
    }
}

#[test]
fn what_is_missing_or_wrong_is_an_error_that_names_it() {
    let graph = build(|context| {
        let x = context.input(F32, &[8]).unwrap();
        let y = context.custom(&leaky(), &[x], &[0.5.into()]).unwrap();
        context.set_name(y, "hidden").unwrap();
        y
    });
    let refusal = |device: &CudaDevice| {
        let backend = device.backend().unwrap();
        let mut allocator = GraphAllocator::new(&backend.buffer_type());
        let allocation = allocator.alloc(&graph, &Bindings::new()).unwrap();
        allocation.write(graph.leafs()[0], &[1.0f32; 8]).unwrap();
        allocation.compute(&*backend).unwrap_err().to_string()
    };
    for device in devices() {
        assert!(device.supports(&graph, graph.nodes()[0]).is_err());
        let error = refusal(&device);
        assert!(error.contains("hidden") && error.contains("no kernel of LEAKY is registered"), "{error}");
        let wrong = "__device__ void compute(const Call &call, u64 i) {\n    wriet(call, i, 0);\n}";
        // SAFETY: it is never compiled.
        let device = device.with_kernel(unsafe { CudaKernel::by_elements(&leaky(), wrong) });
        assert!(device.supports(&graph, graph.nodes()[0]).is_ok());
        let error = refusal(&device);
        assert!(error.contains("hidden") && error.contains("LEAKY(2)") && error.contains("wriet"), "{error}");
        let reports = "__device__ void compute(const Call &call, u64 i) { if (i == 5) report(call.asserts, 77); }";
        // SAFETY: it writes nothing.
        let device = device.with_kernel(unsafe { CudaKernel::by_elements(&leaky(), reports) });
        let error = refusal(&device);
        assert!(error.contains("hidden") && error.contains("LEAKY reports 77"), "{error}");
    }
}

#[test]
fn operands_that_a_kernel_can_not_have_are_refused_before_anything_is_compiled() {
    let wrong = |act: &dyn Fn(&mut Context) -> TensorId, wish: &str| {
        for device in devices().into_iter().map(with_kernels) {
            let graph = build(act);
            let error = device.supports(&graph, *graph.nodes().last().unwrap()).unwrap_err().to_string();
            assert!(error.contains(wish), "{error}");
        }
    };
    let ids = |context: &mut Context| {
        let x = context.input(DataType::I32, &[4]).unwrap();
        context.custom(&leaky(), &[x], &[0.5.into()]).unwrap()
    };
    wrong(&ids, "source 0: expected f32 or f16 or bf16, got i32");
    let empty = |context: &mut Context| {
        let (x, row) = (context.input(F32, &[4]).unwrap(), context.input(F32, &[0]).unwrap());
        context.custom(&add_row(), &[x, row], &[]).unwrap()
    };
    wrong(&empty, "source 1: no elements");
    let many = |context: &mut Context| {
        let x = context.input(F32, &[4]).unwrap();
        context.custom(&leaky(), &[x; 60], &[0.5.into()]).unwrap()
    };
    wrong(&many, "too many operands: expected at most 4096 bytes");
    let nothing = |context: &mut Context| {
        let x = context.input(F32, &[0]).unwrap();
        context.custom(&CustomOp::elementwise("UNKNOWN"), &[x], &[]).unwrap()
    };
    wrong(&nothing, "no kernel of UNKNOWN is registered");
}

/// Sources beyond sixteen, and more rows than a grid has blocks across.
#[test]
fn many_sources_and_rows_are_all_reached() {
    let sum = CustomOp::elementwise("SUM_OF_TWENTY");
    let source = "__device__ void compute(const Call &call, u64 i) {
        float x = 0;
        for (int s = 0; s < 20; s++) x += read(call, s, i);
        write(call, i, x);
    }";
    // SAFETY: each writes the element or the row of the result that it is called for.
    let kernel = unsafe { CudaKernel::by_elements(&sum, source) };
    for device in devices().into_iter().map(with_kernels) {
        let device = device.with_kernel(kernel.clone());
        let graph = build(|context| {
            let x = context.input(F32, &[300]).unwrap();
            context.custom(&sum, &[x; 20], &[]).unwrap()
        });
        let result = run(&graph, &device, Reuse::Extended);
        assert!(result.iter().enumerate().all(|(i, x)| *x == 20.0 * (((i * 37) % 101) as f32 - 50.0)));
        let rows = build(|context| {
            let x = context.input(F32, &[2, 100_003]).unwrap();
            context.custom(&center(), &[x], &[]).unwrap()
        });
        assert!(run(&rows, &device, Reuse::Extended).chunks(2).all(|row| row[0] == -row[1]));
    }
}

/// A kernel that writes some rows of a cache leaves the others as they are.
#[test]
fn an_operation_writes_into_a_source() {
    let stamp = CustomOp::new("STAMP").writing_into(1);
    let source = "__device__ void compute(const Call &call, u64 row) {
        if (row % 2 || threadIdx.x >= call.result.ne[0]) return;
        Place at = row_of(row, call.result.ne);
        at.i[0] = threadIdx.x;
        store(call.result.data + offset_of(call.result, at), F32, 9);
    }";
    // SAFETY: it writes rows of the result that it is called for.
    let kernel = unsafe { CudaKernel::by_rows(&stamp, source) };
    let graph = build(|context| {
        let x = context.input(F32, &[1]).unwrap();
        let cache = context.input(F32, &[4, 3]).unwrap();
        context.custom(&stamp, &[x, cache], &[]).unwrap()
    });
    for device in devices() {
        let device = device.with_kernel(kernel.clone());
        let result = run(&graph, &device, Reuse::Extended);
        assert_eq!(result[..4], [9.0; 4]);
        assert_eq!(result[8..], [9.0; 4]);
        assert!(result[4..8].iter().all(|x| *x != 9.0));
    }
}

#[test]
fn a_scheduler_runs_an_own_operation_where_there_is_a_kernel() {
    for device in devices().into_iter().map(with_kernels) {
        let (gpu, cpu): (Arc<dyn Device>, Arc<dyn Device>) = (Arc::new(device), Arc::new(CpuDevice::with_threads(1)));
        let mut scheduler = Scheduler::new([gpu, cpu]).unwrap();
        let mut context = Context::new();
        let x = context.input(F32, &[4]).unwrap();
        let y = context.custom_shaped(&leaky(), Layout::contiguous(F32, &[4]).unwrap(), &[x], &[0.5.into()]).unwrap();
        context.set_output(y).unwrap();
        let graph = Graph::from_outputs(&context, &[y]).unwrap();
        let job = scheduler.alloc(&graph, &Bindings::new()).unwrap();
        job.write(x, &[1.0f32, -2.0, 3.0, -4.0]).unwrap();
        scheduler.compute(&job).unwrap();
        assert_eq!(job.read::<f32>(y).unwrap(), [1.0, -1.0, 3.0, -2.0]);
    }
}
