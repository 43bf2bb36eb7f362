//! Matrix products beside the library that makes them, and what the executor itself costs.
//!
//! `cargo bench -p steeve-cpu` prints medians of runs that take turns, with their ratios; never asserted.

#![allow(clippy::expect_used, reason = "a benchmark that can not run has nothing to print")]

use std::hint::black_box;
use std::sync::Arc;

use steeve_cpu::CpuBackend;
use steeve_device::{Backend, Bindings, BufferType, Bytes, HostMemory, Offset, Prepared, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, Graph, Id, TensorId};
use steeve_testkit::timing::medians_in_turn;

fn main() {
    // Parts of names, as `cargo bench -p steeve-cpu -- decoding`; all without any.
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| names.is_empty() || names.iter().any(|wanted| name.contains(wanted.as_str()));
    if wants("products") {
        for threads in [1, 2] {
            products(threads, 1024, 1024, 1024);
        }
        for n in [1, 4, 16, 64] {
            products(1, 4096, n, 4096);
        }
    }
    if wants("decoding") {
        for threads in [1, 2] {
            decoding(threads);
        }
    }
    if wants("attention") {
        attention();
    }
    if wants("copies") {
        copies();
    }
    if wants("executor") {
        executor();
    }
}

const TYPES: [DataType; 7] =
    [DataType::F32, DataType::F16, DataType::Bf16, DataType::Q8_0, DataType::Q4_0, DataType::Q4K, DataType::Q6K];

/// `[m, n]` of `[k, m]` and `[k, n]`: the library on its own, and our nodes.
fn products(threads: usize, m: usize, n: usize, k: usize) {
    let backend = CpuBackend::new(threads);
    let (a, b) = (numbers(m * k), numbers(n * k));
    let mut result = vec![0.0f32; m * n];
    let mut nodes = TYPES.map(|dtype| {
        let mut context = Context::new();
        let weights = context.external(dtype, &[k as u64, m as u64]).expect("a matrix");
        let input = context.external(DataType::F32, &[k as u64, n as u64]).expect("a matrix");
        let product = context.mul_mat(weights, input).expect("they fit");
        PreparedGraph::new(&context, product, &backend)
    });
    let times = medians_in_turn(15, 1 + nodes.len(), |which| match which {
        0 => library(&a, &b, &mut result, [m, n, k], threads),
        other => nodes[other - 1].submit(&backend),
    });
    let flops = 2.0 * (m * n * k) as f64;
    println!("mul_mat {m} x {n} x {k}, {threads} threads:");
    println!("  the library {:8.2} ms {:7.1} Gflop/s", times[0] * 1e3, flops / times[0] / 1e9);
    for (dtype, time) in TYPES.iter().zip(&times[1..]) {
        let ratio = time / times[0];
        println!(
            "  {dtype:11} {:8.2} ms {:7.1} Gflop/s  {ratio:.3} of the library's time",
            time * 1e3,
            flops / time / 1e9
        );
    }
}

/// The library, with each thread doing its share of the rows.
fn library(a: &[f32], b: &[f32], result: &mut [f32], [m, n, k]: [usize; 3], threads: usize) {
    struct RowStart(*mut f32);
    // SAFETY: each thread writes rows of its own.
    unsafe impl Sync for RowStart {}
    let (start, share) = (RowStart(result.as_mut_ptr()), m.div_ceil(threads));
    let rows = |thread: usize| {
        let (start, row) = (&start, thread * share);
        // SAFETY: rows of matrices of these sizes.
        unsafe {
            let (rows, out) = (share.min(m - row), start.0.add(row));
            let (a, b) = (a.as_ptr().add(row * k), b.as_ptr());
            let (k_stride, m_stride) = (k.cast_signed(), m.cast_signed());
            gemm::gemm(
                rows,
                n,
                k,
                out,
                m_stride,
                1,
                false,
                a,
                1,
                k_stride,
                b,
                k_stride,
                1,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|thread| drop(scope.spawn(move || rows(thread))));
        rows(0);
    });
    black_box(result);
}

/// One token: bytes of weights per second, beside a copy of as many bytes by the standard library in each thread.
fn decoding(threads: usize) {
    let backend = CpuBackend::new(threads);
    let (k, m) = (4096u64, 4096u64);
    println!("one token, {k} x {m}, several matrices in turn, {threads} threads:");
    for dtype in TYPES {
        let mut context = Context::new();
        let input = context.external(DataType::F32, &[k, 1]).expect("a row");
        let weights: Vec<_> = (0..8).map(|_| context.external(dtype, &[k, m]).expect("a matrix")).collect();
        let products: Vec<_> = weights.iter().map(|w| context.mul_mat(*w, input).expect("they fit")).collect();
        let graph = Graph::from_outputs(&context, &products).expect("a graph");
        let mut prepared = PreparedGraph::of(&context, &graph, &backend);
        let bytes: u64 = weights.iter().map(|w| context.tensor(*w).expect("it is there").nbytes().0).sum();
        let from = vec![1u8; bytes as usize];
        let mut to = vec![0u8; bytes as usize];
        let share = from.len().div_ceil(threads);
        let times = medians_in_turn(9, 2, |which| match which {
            0 => prepared.submit(&backend),
            _ => std::thread::scope(|scope| {
                for (from, to) in from.chunks(share).zip(to.chunks_mut(share)) {
                    scope.spawn(|| black_box(to).copy_from_slice(black_box(from)));
                }
            }),
        });
        // A copy reads each byte and writes it.
        let (ours, copied) = (bytes as f64 / times[0] / 1e9, 2.0 * bytes as f64 / times[1] / 1e9);
        println!(
            "  {dtype:5} {:8.3} ms per matrix {ours:6.1} GB/s   a copy moves {copied:.1} GB/s   ratio {:.2} (goal: 0.5)",
            times[0] * 1e3 / 8.0,
            ours / copied
        );
    }
}

fn attention() {
    println!("flash_attn_ext, 32 heads of 128 over 8 of keys:");
    for (threads, tokens, keys) in [(1, 1u64, 4096u64), (2, 1, 4096), (1, 256, 1024), (2, 256, 1024)] {
        for dtype in [DataType::F32, DataType::F16, DataType::Q8_0] {
            let backend = CpuBackend::new(threads);
            let mut context = Context::new();
            let q = context.external(DataType::F32, &[128, tokens, 32]).expect("queries");
            let k = context.external(dtype, &[128, keys, 8]).expect("keys");
            let v = context.external(dtype, &[128, keys, 8]).expect("values");
            let numbers = steeve_graph::FlashAttention { scale: 0.1, ..Default::default() };
            let result = context.flash_attn_ext(q, k, v, None, numbers).expect("they fit");
            let mut prepared = PreparedGraph::new(&context, result, &backend);
            let time = medians_in_turn(5, 1, |_| prepared.submit(&backend))[0];
            let flops = 4.0 * 128.0 * 32.0 * (tokens * keys) as f64;
            println!(
                "  {threads} threads, {tokens:3} tokens, {keys} keys of {dtype:5} {:8.2} ms {:6.1} Gflop/s",
                time * 1e3,
                flops / time / 1e9
            );
        }
    }
}

/// Copies of 16 MiB of `f32`, beside one by the standard library.
fn copies() {
    let backend = CpuBackend::new(1);
    let (from, mut to) = (numbers(1 << 22), numbers(1 << 22));
    let plain = medians_in_turn(9, 1, |_| {
        to.copy_from_slice(&from);
        black_box(&mut to);
    })[0];
    println!("copies of 4 Mi f32 (the standard library: {:.2} ms):", plain * 1e3);
    let copy = |name: &str, build: &dyn Fn(&mut Context) -> TensorId| {
        let mut context = Context::new();
        let result = build(&mut context);
        let mut prepared = PreparedGraph::new(&context, result, &backend);
        let time = medians_in_turn(9, 1, |_| prepared.submit(&backend))[0];
        println!("  {name:24} {:8.2} ms", time * 1e3);
    };
    let leaf = |context: &mut Context| context.external(DataType::F32, &[2048, 2048]).expect("a matrix");
    copy("cont", &|context| {
        let leaf = leaf(context);
        context.cont(leaf).expect("a copy")
    });
    copy("cont of a transpose", &|context| {
        let leaf = leaf(context);
        let turned = context.transpose(leaf).expect("a view");
        context.cont(turned).expect("a copy")
    });
    copy("cont of heads and tokens", &|context| {
        let leaf = context.external(DataType::F32, &[64, 32, 2048]).expect("a cube");
        let turned = context.permute(leaf, [0, 2, 1, 3]).expect("a view");
        context.cont(turned).expect("a copy")
    });
    for dtype in [DataType::F16, DataType::Q8_0, DataType::Q4_0] {
        copy(&format!("cpy to {dtype}"), &|context| {
            let (leaf, target) = (leaf(context), context.external(dtype, &[2048, 2048]).expect("a matrix"));
            context.cpy(leaf, target).expect("a copy")
        });
    }
}

/// What a node costs besides its kernel.
fn executor() {
    const NODES: usize = 5000;
    let backend = CpuBackend::new(1);
    let mut context = Context::new();
    let input = context.external(DataType::F32, &[4]).expect("a row");
    let mut last = input;
    for _ in 0..NODES {
        last = context.add(last, input).expect("they fit");
    }
    let graph = Graph::from_outputs(&context, &[last]).expect("a graph");
    let mut prepared = PreparedGraph::of(&context, &graph, &backend);
    let bindings = prepared.bindings.clone();
    let times = medians_in_turn(31, 2, |which| match which {
        0 => prepared.submit(&backend),
        _ => drop(black_box(backend.prepare(&graph, 0..NODES, &bindings).expect("they are supported"))),
    });
    let per_node = |time: f64| time * 1e9 / NODES as f64;
    println!("{NODES} sums of four numbers, one thread:");
    println!("  submit  {:6.0} ns per node (goal: at most 300)", per_node(times[0]));
    println!("  prepare {:6.0} ns per node", per_node(times[1]));
}

/// Nodes that are prepared, with every root in one buffer.
struct PreparedGraph {
    prepared: Box<dyn Prepared>,
    bindings: Bindings,
}

impl PreparedGraph {
    fn new(context: &Context, output: TensorId, backend: &CpuBackend) -> Self {
        Self::of(context, &Graph::from_outputs(context, &[output]).expect("a graph"), backend)
    }

    fn of(context: &Context, graph: &Graph, backend: &CpuBackend) -> Self {
        let tensors = context.tensors();
        let (mut end, mut starts) = (0, Vec::with_capacity(tensors.len()));
        for id in tensors.ids() {
            starts.push(end);
            if !tensors[id].is_view() {
                end += tensors[id].nbytes().0.next_multiple_of(64);
            }
        }
        let memory: Arc<dyn BufferType> = Arc::new(HostMemory::new());
        let buffer = SharedBuffer::allocate(&memory, Bytes(end), Usage::Compute).expect("memory");
        // Half of 1.0 in every type but blocks, whose scale is then tiny; no number is subnormal.
        buffer.clear(0x3c).expect("it is not in use");
        let mut bindings = Bindings::new();
        for id in tensors.ids() {
            let start = starts[tensors.root(id).index()] + tensors.offset(id).0;
            bindings.bind(id, &buffer, Offset(start), tensors[id].nbytes()).expect("it lies within");
        }
        let prepared = backend.prepare(graph, 0..graph.nodes().len(), &bindings).expect("they are supported");
        Self { prepared, bindings }
    }

    fn submit(&mut self, backend: &CpuBackend) {
        backend.submit(&mut *self.prepared).expect("it runs");
    }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect()
}
