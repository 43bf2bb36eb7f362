//! The GPU beside itself: products beside the library, kernels beside a copy, a captured step beside its launches.
//!
//! `cargo bench -p steeve-cuda` prints medians; never asserted. `cargo bench -p steeve-cuda -- step` only runs a token step
//! a few times with plain launches, for a profiler that adds up the times of its kernels; `-- prepare` only measures
//! `Backend::prepare`, for comparing two binaries.
#![allow(clippy::expect_used, reason = "a benchmark that can not run has nothing to print")]

use std::ffi::c_void;
use std::ptr::{from_ref, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;
use std::time::Instant;

use cudarc::cublas::sys as blas;
use cudarc::driver::sys as driver;
use steeve_cuda::{Capture, CudaDevice};
use steeve_device::{Backend, Bindings, BufferType, Bytes, Device, Offset, Prepared, SharedBuffer, Usage};
use steeve_graph::{Context, DataType, FlashAttention, Glu, Graph, GraphError, Rope, RopeMode, TensorId, Tensors};
use steeve_runtime::GraphAllocator;

fn main() {
    let devices = match CudaDevice::all() {
        Ok(devices) => devices,
        Err(why) => return println!("skipped: {why}"),
    };
    let is_asked = |mode: &str| std::env::args().any(|argument| argument == mode);
    let (only_step, only_prepare) = (is_asked("step"), is_asked("prepare"));
    for device in devices {
        let device = device.with_capture(if only_step { Capture::Never } else { Capture::AtOnce });
        let (major, minor) = device.architecture();
        println!("{} ({}), compute capability {major}.{minor}", device.description(), device.name());
        if only_step {
            return steps(&device, 3);
        }
        if only_prepare {
            return preparation(device.with_capture(Capture::Never));
        }
        let start = Instant::now();
        device.warm_up().expect("kernels");
        println!("kernels, from the cache or compiled: {:.2} s", start.elapsed().as_secs_f64());
        let backend = device.backend().expect("a stream");
        product(&*backend);
        elementwise(&*backend);
        few_columns(&*backend);
        experts(&*backend);
        attention(&*backend);
        allocation(&device, &*backend);
        token_step(&device, &*backend);
        switching(&device, &*backend);
    }
}

/// A graph whose tensors all have memory of their own.
struct Ready {
    prepared: Box<dyn Prepared>,
    bindings: Bindings,
}

impl Ready {
    fn new(graph: &Graph, backend: &dyn Backend) -> Self {
        let (tensors, memory) = (graph.tensors(), backend.buffer_type());
        let mut bindings = Bindings::new();
        for id in tensors.ids().filter(|id| !tensors[*id].is_view()) {
            let size = tensors[id].nbytes();
            let buffer = SharedBuffer::allocate(&memory, size, Usage::Any).expect("memory");
            // Small numbers of any type.
            buffer.clear(0x3c).expect("a fill");
            bindings.bind(id, &buffer, Offset(0), size).expect("it fits");
        }
        for id in tensors.ids().filter(|id| tensors[*id].is_view()) {
            let root = bindings.get(tensors.root(id)).expect("it stands somewhere").buffer.clone();
            bindings.bind(id, &root, Offset(tensors.offset(id).0), tensors[id].nbytes()).expect("it fits");
        }
        let prepared = backend.prepare(graph, 0..graph.nodes().len(), &bindings).expect("it can run");
        Self { prepared, bindings }
    }

    fn write(&self, id: TensorId, bytes: &[u8]) {
        let address = self.bindings.get(id).expect("it is bound");
        address.buffer.write(address.offset, bytes).expect("a write");
    }

    fn address(&self, id: TensorId) -> u64 {
        self.bindings.get(id).expect("it is bound").number()
    }
}

/// The median of the seconds that one of `count` enqueued calls takes, of some rounds.
fn seconds(backend: &dyn Backend, rounds: usize, count: u32, mut enqueue: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..rounds + 2)
        .map(|_| {
            backend.synchronise().expect("nothing went wrong");
            let start = Instant::now();
            (0..count).for_each(|_| enqueue());
            backend.synchronise().expect("nothing went wrong");
            start.elapsed().as_secs_f64() / f64::from(count)
        })
        .skip(2)
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn random_bf16(count: usize, mut seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * count);
    for _ in 0..count {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // From 1/2 to 1, of either sign.
        bytes.extend((0x3f00 | (seed >> 48 & 0x807f) as u16).to_le_bytes());
    }
    bytes
}

/// bf16, 8192 x 8192 x 8192: our node, and the library called directly.
fn product(backend: &dyn Backend) {
    const N: u64 = 8192;
    let mut context = Context::new();
    let a = context.external(DataType::Bf16, &[N, N]).expect("a matrix");
    let b = context.external(DataType::Bf16, &[N, N]).expect("a matrix");
    let result = context.mul_mat(a, b).expect("they fit");
    let graph = Graph::from_outputs(&context, &[result]).expect("a graph");
    let mut ready = Ready::new(&graph, backend);
    ready.write(a, &random_bf16((N * N) as usize, 1));
    ready.write(b, &random_bf16((N * N) as usize, 2));
    let library = Library::new();
    let addresses = [ready.address(a), ready.address(b), ready.address(result)];
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        ours.push(seconds(backend, 3, 10, || backend.submit(&mut *ready.prepared).expect("it runs")));
        theirs.push(library.seconds(addresses, N as i32, 10));
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let rate = |time: f64| 2.0 * (N * N * N) as f64 / time / 1e12;
    println!("mul_mat of bf16, {N} x {N} x {N}:");
    println!("  cuBLAS directly  {:8.3} ms  {:6.1} Tflop/s", theirs * 1e3, rate(theirs));
    println!("  our node         {:8.3} ms  {:6.1} Tflop/s  {:.3} of its time", ours * 1e3, rate(ours), ours / theirs);
}

/// cuBLAS on a stream of its own.
struct Library {
    handle: blas::cublasHandle_t,
    stream: driver::CUstream,
}

impl Library {
    fn new() -> Self {
        let (mut context, mut handle, mut stream) = (null_mut(), null_mut(), null_mut());
        // SAFETY: the first GPU is in use, so the driver is there. Its context stays current in this thread.
        unsafe {
            assert_eq!(driver::cuDevicePrimaryCtxRetain(&mut context, 0), driver::CUresult::CUDA_SUCCESS);
            assert_eq!(driver::cuCtxSetCurrent(context), driver::CUresult::CUDA_SUCCESS);
            assert_eq!(driver::cuStreamCreate(&mut stream, 1), driver::CUresult::CUDA_SUCCESS);
            assert_eq!(blas::cublasCreate_v2(&mut handle), blas::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
            assert_eq!(blas::cublasSetStream_v2(handle, stream.cast()), blas::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        }
        Self { handle, stream }
    }

    fn seconds(&self, [a, b, result]: [u64; 3], n: i32, count: u32) -> f64 {
        let (one, zero) = (1.0f32, 0.0f32);
        let source = |address: u64| with_exposed_provenance::<c_void>(address as usize);
        let narrow = blas::cudaDataType_t::CUDA_R_16BF;
        let enqueue = || {
            // SAFETY: matrices of these sizes are at the addresses.
            let done = unsafe {
                blas::cublasGemmEx(
                    self.handle,
                    blas::cublasOperation_t::CUBLAS_OP_T,
                    blas::cublasOperation_t::CUBLAS_OP_N,
                    n,
                    n,
                    n,
                    from_ref(&one).cast(),
                    source(a),
                    narrow,
                    n,
                    source(b),
                    narrow,
                    n,
                    from_ref(&zero).cast(),
                    with_exposed_provenance_mut(result as usize),
                    blas::cudaDataType_t::CUDA_R_32F,
                    n,
                    blas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                    blas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                )
            };
            assert_eq!(done, blas::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        };
        // SAFETY: a stream that exists.
        let wait = || assert_eq!(unsafe { driver::cuStreamSynchronize(self.stream) }, driver::CUresult::CUDA_SUCCESS);
        (0..3).for_each(|_| enqueue());
        wait();
        let start = Instant::now();
        (0..count).for_each(|_| enqueue());
        wait();
        start.elapsed().as_secs_f64() / f64::from(count)
    }
}

/// Functions of 1 GiB, beside a copy of as much.
fn elementwise(backend: &dyn Backend) {
    const ROW: u64 = 4096;
    const ROWS: u64 = (1 << 28) / ROW;
    const GIB: f64 = (1u64 << 30) as f64;
    let memory = backend.buffer_type();
    let make = || SharedBuffer::allocate(&memory, Bytes(1 << 30), Usage::Any).expect("memory");
    let (from, to) = (make(), make());
    from.clear(1).expect("a fill");
    let copy = seconds(backend, 5, 10, || {
        backend.copy((&to, Offset(0)), (&from, Offset(0)), Bytes(1 << 30)).expect("a copy");
    });
    drop((from, to));
    let whole = 2.0 * GIB / copy;
    println!("1 GiB of f32 (a copy: {:.3} ms, {:.0} GB/s read and written):", copy * 1e3, whole / 1e9);
    let measure = |name: &str, moved: f64, build: &dyn Fn(&mut Context, TensorId) -> Result<TensorId, GraphError>| {
        let mut context = Context::new();
        let x = context.external(DataType::F32, &[ROW, ROWS]).expect("rows");
        let result = build(&mut context, x).expect("they fit");
        let graph = Graph::from_outputs(&context, &[result]).expect("a graph");
        let mut ready = Ready::new(&graph, backend);
        let time = seconds(backend, 5, 10, || backend.submit(&mut *ready.prepared).expect("it runs"));
        let rate = moved * GIB / time;
        println!(
            "  {name:28} {:8.3} ms  {:6.0} GB/s  {:3.0}% of the copy",
            time * 1e3,
            rate / 1e9,
            100.0 * rate / whole
        );
    };
    measure("scale", 2.0, &|c, x| c.scale(x, 1.5));
    measure("silu", 2.0, &|c, x| c.silu(x));
    measure("gelu", 2.0, &|c, x| c.gelu(x));
    measure("add", 3.0, &|c, x| {
        let y = c.external(DataType::F32, &[ROW, ROWS])?;
        c.add(x, y)
    });
    measure("mul by a row", 2.0, &|c, x| {
        let y = c.external(DataType::F32, &[ROW])?;
        c.mul(x, y)
    });
    measure("swiglu of two", 3.0, &|c, x| {
        let y = c.external(DataType::F32, &[ROW, ROWS])?;
        c.glu_split(Glu::Swiglu, x, y)
    });
    measure("rms_norm", 2.0, &|c, x| c.rms_norm(x, 1e-5));
    measure("norm", 2.0, &|c, x| c.norm(x, 1e-5));
    measure("soft_max", 2.0, &|c, x| c.soft_max(x, None, steeve_graph::SoftMax::default()));
    measure("sum", 1.0, &|c, x| c.sum(x));
    measure("sum_rows", 1.0, &|c, x| c.sum_rows(x));
    measure("argsort", 2.0, &|c, x| c.argsort(x, steeve_graph::SortOrder::Ascending));
    measure("top_k of 40", 1.0, &|c, x| c.top_k(x, 40));
    measure("cont of a transpose", 2.0, &|c, x| {
        let turned = c.transpose(x)?;
        c.cont(turned)
    });
}

/// Few tokens: the time of a matrix, and for one token the bytes of weights per second.
fn few_columns(backend: &dyn Backend) {
    use DataType::{Bf16, F16, F32, Mxfp4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    const K: u64 = 8192;
    const COLUMNS: [u64; 8] = [1, 2, 3, 4, 6, 8, 9, 16];
    println!("us per matrix of {K} x {K}, eight of them in turn, by columns:");
    println!("        {}     GB/s for one", COLUMNS.map(|columns| format!("{columns:7}")).concat());
    for dtype in [F32, F16, Bf16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Mxfp4, Q2K, Q3K, Q4K, Q5K, Q6K] {
        let mut bytes = 0;
        let times = COLUMNS.map(|columns| {
            let mut context = Context::new();
            let x = context.external(F32, &[K, columns]).expect("rows");
            let weights: Vec<_> = (0..8).map(|_| context.external(dtype, &[K, K]).expect("a matrix")).collect();
            let products: Vec<_> = weights.iter().map(|w| context.mul_mat(*w, x).expect("they fit")).collect();
            let graph = Graph::from_outputs(&context, &products).expect("a graph");
            let mut ready = Ready::new(&graph, backend);
            bytes = context.tensor(weights[0]).expect("it is there").nbytes().0;
            seconds(backend, 5, 20, || backend.submit(&mut *ready.prepared).expect("it runs")) / 8.0
        });
        let texts = times.map(|time| format!("{:7.1}", time * 1e6)).concat();
        println!("  {dtype:6}{texts}  {:7.0}", bytes as f64 / times[0] / 1e9);
    }
}

/// Products of 128 experts of which each of 512 tokens uses eight. Experts of f32 are multiplied without tensor cores.
fn experts(backend: &dyn Backend) {
    use DataType::{Bf16, F16, F32, Q4_0, Q4K, Q6K, Q8_0};
    const K: u64 = 2048;
    const M: u64 = 1024;
    const EXPERTS: u64 = 128;
    const USED: u64 = 8;
    const TOKENS: u64 = 512;
    println!("mul_mat_id, {EXPERTS} experts of {K} x {M}, {USED} of them for each of {TOKENS} tokens:");
    for dtype in [F32, F16, Bf16, Q8_0, Q4_0, Q4K, Q6K] {
        let mut context = Context::new();
        let experts = context.external(dtype, &[K, M, EXPERTS]).expect("experts");
        let x = context.external(F32, &[K, 1, TOKENS]).expect("rows");
        let ids = context.external(DataType::I32, &[USED, TOKENS]).expect("ids");
        let result = context.mul_mat_id(experts, x, ids).expect("they fit");
        let graph = Graph::from_outputs(&context, &[result]).expect("a graph");
        let mut ready = Ready::new(&graph, backend);
        // Different ones for each token.
        let id = |at: u64| ((at / USED * 29 + at % USED * 17) % EXPERTS) as i32;
        ready.write(ids, &(0..USED * TOKENS).flat_map(|at| id(at).to_le_bytes()).collect::<Vec<u8>>());
        let time = seconds(backend, 5, 20, || backend.submit(&mut *ready.prepared).expect("it runs"));
        let rate = 2.0 * (K * M * USED * TOKENS) as f64 / time / 1e12;
        println!("  {dtype:6}{:8.3} ms  {rate:6.1} Tflop/s", time * 1e3);
    }
}

/// Tokens at the end of all keys; with a mask each of them sees the keys up to its own.
fn attention(backend: &dyn Backend) {
    println!("flash_attn_ext, 32 heads over 8 of keys:");
    let (f16, bf16) = (DataType::F16, DataType::Bf16);
    for (d, dtype, tokens, keys, causal) in [
        (128, f16, 1, 4096, false),
        (128, f16, 1, 32768, false),
        (128, f16, 8, 4096, false),
        (128, f16, 32, 4096, false),
        (128, f16, 512, 512, false),
        (128, f16, 512, 4096, false),
        (128, f16, 512, 4096, true),
        (128, f16, 2048, 2048, true),
        (128, bf16, 512, 4096, false),
        (64, f16, 512, 4096, false),
        (96, f16, 512, 4096, false),
        (256, f16, 512, 4096, false),
    ] {
        let mut context = Context::new();
        let q = context.external(DataType::F32, &[d, tokens, 32]).expect("queries");
        let k = context.external(dtype, &[d, keys, 8]).expect("keys");
        let v = context.external(dtype, &[d, keys, 8]).expect("values");
        let mask = causal.then(|| context.external(f16, &[keys, tokens]).expect("a mask"));
        let numbers = FlashAttention { scale: 0.1, ..FlashAttention::default() };
        let result = context.flash_attn_ext(q, k, v, mask, numbers).expect("they fit");
        let graph = Graph::from_outputs(&context, &[result]).expect("a graph");
        let mut ready = Ready::new(&graph, backend);
        let hides = |token: u64, key: u64| key + tokens > keys + token;
        if let Some(mask) = mask {
            let all = (0..tokens).flat_map(|token| (0..keys).map(move |key| (token, key)));
            let bits = all.flat_map(|(token, key)| (0xfc00 * u16::from(hides(token, key))).to_le_bytes());
            ready.write(mask, &bits.collect::<Vec<u8>>());
        }
        let time = seconds(backend, 5, 10, || backend.submit(&mut *ready.prepared).expect("it runs"));
        // Only what is seen counts.
        let seen = if causal { tokens * (keys - tokens) + tokens * (tokens + 1) / 2 } else { tokens * keys };
        let rate = 4.0 * (d * 32 * seen) as f64 / time / 1e12;
        let kind = if causal { ", causal" } else { "" };
        println!(
            "  {dtype:4} of {d:3}, {tokens:4} tokens, {keys:5} keys {:9.1} us  {rate:7.2} Tflop/s{kind}",
            time * 1e6
        );
    }
}

/// A planned compute buffer of 2 GiB: made, and all tensors bound.
fn allocation(device: &CudaDevice, backend: &dyn Backend) {
    let mut context = Context::new();
    let mut last = context.input(DataType::F32, &[1 << 28]).expect("a row");
    let first = last;
    for _ in 0..500 {
        // Two at a time, because the first lives on.
        last = context.add(last, first).expect("they fit");
    }
    context.set_output(last).expect("it is there");
    let graph = Graph::from_outputs(&context, &[last]).expect("a graph");
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    allocator.reserve(&graph).expect("memory");
    let size: u64 = allocator.plan_of(&graph).expect("it is planned").peak().get();
    let mut times = Vec::new();
    for _ in 0..9 {
        allocator.release().expect("nobody uses it");
        let free = device.memory().free;
        let start = Instant::now();
        let allocation = allocator.alloc(&graph, &Bindings::new()).expect("memory");
        let bound = graph.nodes().iter().filter(|node| allocation.address(**node).is_ok()).count();
        times.push(start.elapsed().as_secs_f64());
        assert!(bound == graph.nodes().len() && device.memory().free < free, "nothing was allocated");
    }
    times.sort_by(f64::total_cmp);
    println!(
        "a planned compute buffer of {} MiB, and {} tensors bound: {:.3} ms",
        size >> 20,
        graph.nodes().len(),
        times[4] * 1e3
    );
}

const WIDTH: u64 = 2048;
const HEADS: u64 = 16;
const KV_HEADS: u64 = 4;
const HEAD: u64 = WIDTH / HEADS;
const HIDDEN: u64 = 5632;
const LAYERS: u64 = 52;
const WORDS: u64 = 32000;
const CONTEXT: u64 = 1024;

/// A model of about two thousand million weights of bf16.
struct Model {
    context: Context,
    mark: steeve_graph::ContextMark,
    weights: Vec<TensorId>,
}

impl Model {
    fn new() -> Result<Self, GraphError> {
        let mut context = Context::new();
        let kv = KV_HEADS * HEAD;
        let mut weights = vec![context.external(DataType::Bf16, &[WIDTH, WORDS])?];
        for _ in 0..LAYERS {
            for (dtype, shape) in [
                (DataType::F32, [WIDTH, 1]),
                (DataType::Bf16, [WIDTH, WIDTH]),
                (DataType::Bf16, [WIDTH, kv]),
                (DataType::Bf16, [WIDTH, kv]),
                (DataType::Bf16, [WIDTH, WIDTH]),
                (DataType::F32, [WIDTH, 1]),
                (DataType::Bf16, [WIDTH, HIDDEN]),
                (DataType::Bf16, [WIDTH, HIDDEN]),
                (DataType::Bf16, [HIDDEN, WIDTH]),
                (DataType::F16, [kv, CONTEXT]),
                (DataType::F16, [kv, CONTEXT]),
            ] {
                weights.push(context.external(dtype, &shape)?);
            }
        }
        let mark = context.mark();
        Ok(Self { context, mark, weights })
    }

    fn bind(&self, memory: &Arc<dyn BufferType>) -> Bindings {
        let mut bindings = Bindings::new();
        self.weights.iter().for_each(|id| place(&mut bindings, self.context.tensors(), *id, memory, 0x3c));
        bindings
    }

    /// The graph of so many tokens behind others.
    fn graph(&mut self, count: u64, past: u64) -> Result<Graph, GraphError> {
        self.context.rewind(self.mark)?;
        let c = &mut self.context;
        let (kv, keys) = (KV_HEADS * HEAD, past + count);
        // Memory of their own, so that a step can run again and again.
        let (tokens, positions) = (c.external(DataType::I32, &[count])?, c.external(DataType::I32, &[count])?);
        let mask = c.external(DataType::F16, &[keys, count])?;
        let mut graph = Graph::from_outputs(c, &[])?;
        let mut x = c.get_rows(self.weights[0], tokens)?;
        for layer in self.weights[1..].chunks(11) {
            let rope = Rope { dims: HEAD as u32, mode: RopeMode::Neox, ..Rope::default() };
            let normed = c.rms_norm(x, 1e-5)?;
            let normed = c.mul(normed, layer[0])?;
            let q = c.mul_mat(layer[1], normed)?;
            let q = c.reshape(q, &[HEAD, HEADS, count])?;
            let q = c.rope(q, positions, None, rope)?;
            let k = c.mul_mat(layer[2], normed)?;
            let k = c.reshape(k, &[HEAD, KV_HEADS, count])?;
            let k = c.rope(k, positions, None, rope)?;
            let k = c.reshape(k, &[kv, count])?;
            let v = c.mul_mat(layer[3], normed)?;
            let k_place = c.view_2d(layer[9], [kv, count], 2 * kv, Bytes(2 * kv * past))?;
            let v_place = c.view_2d(layer[10], [kv, count], 2 * kv, Bytes(2 * kv * past))?;
            let writes = [c.cpy(k, k_place)?, c.cpy(v, v_place)?];
            graph.expand(c, &writes)?;
            let q = c.permute(q, [0, 2, 1, 3])?;
            let k = c.view_3d(layer[9], [HEAD, keys, KV_HEADS], [2 * kv, 2 * HEAD], Bytes(0))?;
            let v = c.view_3d(layer[10], [HEAD, keys, KV_HEADS], [2 * kv, 2 * HEAD], Bytes(0))?;
            let numbers = FlashAttention { scale: 0.1, ..FlashAttention::default() };
            let mixed = c.flash_attn_ext(q, k, v, Some(mask), numbers)?;
            let mixed = c.reshape(mixed, &[WIDTH, count])?;
            let mixed = c.mul_mat(layer[4], mixed)?;
            x = c.add(mixed, x)?;
            let normed = c.rms_norm(x, 1e-5)?;
            let normed = c.mul(normed, layer[5])?;
            let (gate, up) = (c.mul_mat(layer[6], normed)?, c.mul_mat(layer[7], normed)?);
            let hidden = c.glu_split(Glu::Swiglu, gate, up)?;
            let down = c.mul_mat(layer[8], hidden)?;
            x = c.add(down, x)?;
        }
        let normed = c.rms_norm(x, 1e-5)?;
        let scores = c.mul_mat(self.weights[0], normed)?;
        c.set_output(scores)?;
        graph.expand(c, &[scores])?;
        Ok(graph)
    }
}

fn place(bindings: &mut Bindings, tensors: &Tensors, id: TensorId, memory: &Arc<dyn BufferType>, byte: u8) {
    let size = tensors[id].nbytes();
    let buffer = SharedBuffer::allocate(memory, size, Usage::Weights).expect("memory");
    buffer.clear(byte).expect("a fill");
    bindings.bind(id, &buffer, Offset(0), size).expect("it fits");
}

/// The same bindings with inputs of zeros.
fn with_inputs(graph: &Graph, bindings: &Bindings, memory: &Arc<dyn BufferType>) -> Bindings {
    let mut all = bindings.clone();
    for leaf in graph.leafs().iter().filter(|leaf| bindings.get(**leaf).is_none()) {
        place(&mut all, graph.tensors(), *leaf, memory, 0);
    }
    all
}

fn computing(graph: &Graph) -> usize {
    graph.nodes().iter().filter(|node| !graph.tensor(**node).op.writes_nothing()).count()
}

/// A token step some times, with plain launches.
fn steps(device: &CudaDevice, count: usize) {
    let backend = device.backend().expect("a stream");
    let mut model = Model::new().expect("a model");
    let bindings = model.bind(&backend.buffer_type());
    let graph = model.graph(1, 511).expect("a graph");
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    let bindings = with_inputs(&graph, &bindings, &backend.buffer_type());
    let allocation = allocator.alloc(&graph, &bindings).expect("memory");
    let mut prepared = backend.prepare(&graph, 0..graph.nodes().len(), &allocation).expect("it can run");
    for _ in 0..count {
        let start = Instant::now();
        backend.submit(&mut *prepared).expect("it runs");
        backend.synchronise().expect("it ran");
        println!("{} nodes: {:.3} ms", computing(&graph), start.elapsed().as_secs_f64() * 1e3);
    }
}

/// Prepares the graphs of a token and of a prompt again and again, without capturing them.
fn preparation(device: CudaDevice) {
    let backend = device.backend().expect("a stream");
    let mut model = Model::new().expect("a model");
    let bindings = model.bind(&backend.buffer_type());
    for tokens in [1, 512] {
        let graph = model.graph(tokens, 511).expect("a graph");
        let mut allocator = GraphAllocator::new(&backend.buffer_type());
        let bindings = with_inputs(&graph, &bindings, &backend.buffer_type());
        let allocation = allocator.alloc(&graph, &bindings).expect("memory");
        let mut times = Vec::new();
        for _ in 0..301 {
            let start = Instant::now();
            let prepared = backend.prepare(&graph, 0..graph.nodes().len(), &allocation).expect("it can run");
            times.push(start.elapsed().as_secs_f64());
            drop(prepared);
        }
        times.sort_by(f64::total_cmp);
        let nodes = computing(&graph);
        let (median, least) = (times[times.len() / 2] * 1e9, times[0] * 1e9);
        println!(
            "prepare, {nodes} nodes of {tokens} tokens: median {:.1} us, {:.0} ns per node, at least {:.0}",
            median / 1e3,
            median / nodes as f64,
            least / nodes as f64
        );
    }
}

/// A step of one token behind 511: captured, and launched one by one.
fn token_step(device: &CudaDevice, backend: &dyn Backend) {
    let plain = CudaDevice::all().expect("it was there").into_iter().find(|it| it.name() == device.name());
    let plain = plain.expect("it was there").with_capture(Capture::Never).backend().expect("a stream");
    let mut model = Model::new().expect("a model");
    let bytes: u64 = model.weights.iter().map(|id| model.context.tensors()[*id].nbytes().0).sum();
    let mut times = Vec::new();
    let mut nodes = 0;
    for backend in [backend, &*plain] {
        let bindings = model.bind(&backend.buffer_type());
        let graph = model.graph(1, 511).expect("a graph");
        nodes = computing(&graph);
        let mut allocator = GraphAllocator::new(&backend.buffer_type());
        let bindings = with_inputs(&graph, &bindings, &backend.buffer_type());
        let allocation = allocator.alloc(&graph, &bindings).expect("memory");
        let start = Instant::now();
        let mut prepared = backend.prepare(&graph, 0..graph.nodes().len(), &allocation).expect("it can run");
        let ready = start.elapsed().as_secs_f64();
        let time = seconds(backend, 7, 10, || backend.submit(&mut *prepared).expect("it runs"));
        let start = Instant::now();
        backend.submit(&mut *prepared).expect("it runs");
        let host = start.elapsed().as_secs_f64();
        backend.synchronise().expect("it ran");
        times.push((time, ready, host));
    }
    println!("a token step of {nodes} nodes, {} MiB of weights and caches:", bytes >> 20);
    for (name, (time, ready, host)) in ["captured", "launched one by one"].iter().zip(times) {
        println!(
            "  {name:20} {:7.3} ms  {:5.0} GB/s  (prepared in {:.1} ms; the host is busy for {:.3} ms)",
            time * 1e3,
            bytes as f64 / time / 1e9,
            ready * 1e3,
            host * 1e3
        );
    }
}

/// Prompt and token in turn, in one reserved buffer.
fn switching(device: &CudaDevice, backend: &dyn Backend) {
    let mut model = Model::new().expect("a model");
    let bindings = model.bind(&backend.buffer_type());
    let prompt = model.graph(512, 0).expect("a graph");
    let token = model.graph(1, 512).expect("a graph");
    let mut allocator = GraphAllocator::new(&backend.buffer_type());
    let [for_prompt, for_token] = [&prompt, &token].map(|graph| with_inputs(graph, &bindings, &backend.buffer_type()));
    let run = |allocator: &mut GraphAllocator, graph: &Graph, bindings: &Bindings| {
        let start = Instant::now();
        let allocation = allocator.alloc(graph, bindings).expect("memory");
        let allocated = start.elapsed().as_secs_f64();
        let start = Instant::now();
        allocation.compute(backend).expect("it runs");
        (allocated, start.elapsed().as_secs_f64())
    };
    allocator.reserve_all([&prompt, &token]).expect("memory");
    run(&mut allocator, &prompt, &for_prompt);
    run(&mut allocator, &token, &for_token);
    let (before, mut times) = (device.memory().free, Vec::new());
    for _ in 0..5 {
        times.push((run(&mut allocator, &prompt, &for_prompt), run(&mut allocator, &token, &for_token)));
    }
    let taken = before.0.abs_diff(device.memory().free.0);
    times.sort_by(|a, b| a.0.1.total_cmp(&b.0.1));
    let ((prompt_alloc, prompt_time), (token_alloc, token_time)) = times[2];
    println!("a prompt of 512 and a token in turn, prepared each time: {taken} bytes taken or given back meanwhile");
    println!("  prompt {:8.3} ms (alloc {:.3} ms)", prompt_time * 1e3, prompt_alloc * 1e3);
    println!("  token  {:8.3} ms (alloc {:.3} ms)", token_time * 1e3, token_alloc * 1e3);
}
