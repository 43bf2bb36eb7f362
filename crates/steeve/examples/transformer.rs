//! A language model with random weights: a prompt graph and a token graph share one reserved buffer, and one graph serves
//! many tokens.
//!
//! What differs from token to token is in the inputs: the token, its position, which is its row in the cache too, and a mask
//! that hides the rows that nobody has written yet. The graph looks at the first 128 rows (`--pad`), or 256, or 384 and so on,
//! so it changes once in 128 tokens. In between it is neither built nor scheduled, planned or prepared, and a GPU launches it
//! as a whole.
//!
//!     cargo run --release -p steeve --example transformer -- --layers 8 --width 512 --prompt 128 --tokens 64
//!     cargo run --release -p steeve --example transformer -- --weights q4_0
//!     cargo run --release -p steeve --example transformer -- --prompt 512 --context 1024 --capacity 6000000
//!     cargo run --release -p steeve --features cuda --example transformer -- --device cuda:0
//!     cargo run --release -p steeve --features cuda --example transformer -- --device cuda:0 --layers-on-gpu 4

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use steeve::prelude::*;

type Failure = Box<dyn std::error::Error>;

/// What the model looks like, and how much of it is run.
#[derive(Clone, Copy, Debug)]
struct Size {
    layers: u64,
    width: u64,
    heads: u64,
    /// Fewer heads of keys and values than of queries: each serves several.
    kv_heads: u64,
    hidden: u64,
    vocabulary: u64,
    context: u64,
    /// A graph looks at a multiple of so many keys, or at the whole context.
    pad: u64,
    prompt: u64,
    tokens: u64,
    threads: u64,
    /// The type of the matrices: f16 or q4_0.
    weights: DataType,
    /// Which GPU, if any.
    gpu: Option<usize>,
    /// How many of the last layers are there.
    layers_on_gpu: u64,
    /// The most bytes that both graphs may need beside weights and caches.
    capacity: u64,
}

const OPTIONS: &str = "Numbers: --layers, --width, --heads, --kv-heads, --hidden, --vocabulary, --context, --pad, --prompt, \
    --tokens, --threads, --layers-on-gpu, --capacity. Types: --weights f16 or q4_0. Devices: --device cpu or cuda:0.";

impl Size {
    fn from_args() -> Result<Self, Failure> {
        let mut size = Self {
            layers: 8,
            width: 512,
            heads: 8,
            kv_heads: 2,
            hidden: 1408,
            vocabulary: 8192,
            context: 512,
            pad: 128,
            prompt: 128,
            tokens: 64,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            weights: DataType::F16,
            gpu: None,
            layers_on_gpu: u64::MAX,
            capacity: u64::MAX,
        };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            if name == "--weights" {
                let dtype = args.next().ok_or("--weights needs a type")?;
                size.weights = dtype.parse().map_err(|error| format!("--weights {dtype}: {error}"))?;
                continue;
            }
            if name == "--device" {
                let device = args.next().ok_or("--device needs cpu or cuda:0")?;
                // As `steeve devices` calls them, or as other programs do.
                let number = device.strip_prefix("cuda:").or_else(|| device.strip_prefix("CUDA"));
                size.gpu = match number.map(str::parse) {
                    Some(Ok(number)) => Some(number),
                    None if device == "cpu" => None,
                    _ => return Err(format!("--device {device}: cpu, cuda:0, cuda:1 and so on").into()),
                };
                continue;
            }
            let field = match name.as_str() {
                "--layers" => &mut size.layers,
                "--width" => &mut size.width,
                "--heads" => &mut size.heads,
                "--kv-heads" => &mut size.kv_heads,
                "--hidden" => &mut size.hidden,
                "--vocabulary" => &mut size.vocabulary,
                "--context" => &mut size.context,
                "--pad" => &mut size.pad,
                "--prompt" => &mut size.prompt,
                "--tokens" => &mut size.tokens,
                "--threads" => &mut size.threads,
                "--layers-on-gpu" => &mut size.layers_on_gpu,
                "--capacity" => &mut size.capacity,
                _ => return Err(format!("{name} is unknown. {OPTIONS}").into()),
            };
            let number = args.next().ok_or_else(|| format!("{name} needs a number"))?;
            *field = number.parse().map_err(|error| format!("{name} {number}: {error}"))?;
        }
        if [size.width, size.heads, size.kv_heads, size.hidden, size.vocabulary].contains(&0) {
            return Err("a model without width, heads or words says nothing".into());
        }
        if !size.width.is_multiple_of(size.heads) || !size.heads.is_multiple_of(size.kv_heads) {
            return Err("the width must be a multiple of the heads, and those of the heads of keys and values".into());
        }
        if ![DataType::F16, DataType::Q4_0].contains(&size.weights) {
            return Err(format!("weights of {} are not made here; f16 and q4_0 are", size.weights).into());
        }
        if size.layers == 0 {
            return Err("--layers must be at least 1".into());
        }
        if size.pad == 0 {
            return Err("--pad must be at least 1, which is a graph for each token".into());
        }
        let block = size.weights.block_len();
        if !size.width.is_multiple_of(block) || !size.hidden.is_multiple_of(block) {
            return Err(format!("rows of {} must be multiples of {block}", size.weights).into());
        }
        if size.gpu.is_none() && size.layers_on_gpu != u64::MAX {
            return Err("--layers-on-gpu needs a --device cuda:0".into());
        }
        if size.capacity != u64::MAX && size.gpu.is_some() && size.layers_on_gpu < size.layers {
            return Err("--capacity is for one device: expected all layers on it".into());
        }
        if size.prompt == 0 || size.prompt.saturating_add(size.tokens) > size.context {
            return Err("prompt and tokens must fit the context, and the prompt must not be empty".into());
        }
        Ok(size)
    }

    fn head(&self) -> u64 {
        self.width / self.heads
    }

    /// How many keys a graph looks at if so many are written: some more, so that the next tokens can have the same graph.
    fn keys(&self, written: u64) -> u64 {
        written.checked_next_multiple_of(self.pad).map_or(self.context, |keys| keys.min(self.context))
    }
}

struct Layer {
    norm: TensorId,
    q: TensorId,
    k: TensorId,
    v: TensorId,
    out: TensorId,
    hidden_norm: TensorId,
    gate: TensorId,
    up: TensorId,
    down: TensorId,
    k_cache: TensorId,
    v_cache: TensorId,
}

struct Model {
    size: Size,
    embedding: TensorId,
    layers: Vec<Layer>,
    norm: TensorId,
}

impl Model {
    fn new(context: &mut Context, size: Size) -> Result<Self, Failure> {
        let Size { width, hidden, vocabulary, weights, .. } = size;
        let kv_width = size.head() * size.kv_heads;
        let mut weight = |shape: &[u64], dtype| context.external(dtype, shape);
        let embedding = weight(&[width, vocabulary], weights)?;
        let norm = weight(&[width], DataType::F32)?;
        let mut layers = Vec::new();
        for _ in 0..size.layers {
            layers.push(Layer {
                norm: weight(&[width], DataType::F32)?,
                q: weight(&[width, width], weights)?,
                k: weight(&[width, kv_width], weights)?,
                v: weight(&[width, kv_width], weights)?,
                out: weight(&[width, width], weights)?,
                hidden_norm: weight(&[width], DataType::F32)?,
                gate: weight(&[width, hidden], weights)?,
                up: weight(&[width, hidden], weights)?,
                down: weight(&[hidden, width], weights)?,
                k_cache: weight(&[kv_width, size.context], DataType::F16)?,
                v_cache: weight(&[kv_width, size.context], DataType::F16)?,
            });
        }
        Ok(Self { size, embedding, layers, norm })
    }

    /// The graph of `count` tokens that look at the first `keys` rows of the cache. Where they stand in it is not part of the
    /// graph.
    fn graph(&self, context: &mut Context, count: u64, keys: u64) -> Result<Step, Failure> {
        let Size { heads, kv_heads, .. } = self.size;
        let head = self.size.head();
        let tokens = context.input(DataType::I32, &[count])?;
        let positions = context.input(DataType::I32, &[count])?;
        let mask = context.input(DataType::F16, &[keys, count])?;
        let rope = Rope { dims: u32::try_from(head)?, ..Rope::default() };
        let attention = FlashAttention { scale: 1.0 / (head as f32).sqrt(), ..FlashAttention::default() };

        let mut x = context.get_rows(self.embedding, tokens)?;
        for layer in &self.layers {
            let normed = self.normed(context, x, layer.norm)?;
            let q = context.mul_mat(layer.q, normed)?;
            let q = context.reshape(q, &[head, heads, count])?;
            let q = context.rope(q, positions, None, rope)?;
            let k = context.mul_mat(layer.k, normed)?;
            let k = context.reshape(k, &[head, kv_heads, count])?;
            let k = context.rope(k, positions, None, rope)?;
            let v = context.mul_mat(layer.v, normed)?;
            // The cache is read through the result of the write, so that whoever reads it has an edge to the write and comes
            // after it. A row of the cache is a position here; where it is not, the ids of the rows are one more input.
            let through_cache = |context: &mut Context, rows, cache| {
                let rows = context.reshape(rows, &[head * kv_heads, count])?;
                let written = context.set_rows(cache, rows, positions)?;
                context.view_3d(written, [head, keys, kv_heads], [2 * head * kv_heads, 2 * head], Bytes(0))
            };
            let k = through_cache(context, k, layer.k_cache)?;
            let v = through_cache(context, v, layer.v_cache)?;
            let q = context.permute(q, [0, 2, 1, 3])?;
            let mixed = context.flash_attn_ext(q, k, v, Some(mask), attention)?;
            let mixed = context.reshape(mixed, &[head * heads, count])?;
            let mixed = context.mul_mat(layer.out, mixed)?;
            x = context.add(mixed, x)?;

            let normed = self.normed(context, x, layer.hidden_norm)?;
            let gate = context.mul_mat(layer.gate, normed)?;
            let up = context.mul_mat(layer.up, normed)?;
            let hidden = context.glu_split(Glu::Swiglu, gate, up)?;
            let down = context.mul_mat(layer.down, hidden)?;
            x = context.add(down, x)?;
        }
        // Only the last token's scores are wanted.
        let last = context.view_1d(x, self.size.width, Bytes(4 * self.size.width * (count - 1)))?;
        let last = self.normed(context, last, self.norm)?;
        let scores = context.mul_mat(self.embedding, last)?;
        context.set_output(scores)?;
        let mut graph = Graph::from_outputs(context, &[scores])?;
        if self.size.capacity != u64::MAX && count > 1 {
            graph = self.fitted(graph, &FitOptions::default())?;
        }
        Ok(Step { count, keys, tokens, positions, mask, scores, graph })
    }

    /// Returns a graph that computes the same within the capacity. Its leafs and its scores have the ids of the context.
    fn fitted(&self, graph: Graph, options: &FitOptions) -> Result<Graph, Failure> {
        // No device demands more.
        let memory = Memory::new("memory", Align::new(256)?);
        let capacity = [(MemoryId::FIRST, Bytes(self.size.capacity))];
        let fitted = fit(&AssignedGraph::single(graph, memory), &[], &capacity, options)?;
        Ok(fitted.graph.into_graph())
    }

    fn normed(&self, context: &mut Context, x: TensorId, weight: TensorId) -> Result<TensorId, Failure> {
        let normed = context.rms_norm(x, 1e-5)?;
        Ok(context.mul(normed, weight)?)
    }
}

/// A graph, and what it reads and writes.
struct Step {
    count: u64,
    keys: u64,
    tokens: TensorId,
    positions: TensorId,
    mask: TensorId,
    scores: TensorId,
    graph: Graph,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let size = Size::from_args()?;
    let cpu: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(usize::try_from(size.threads)?));
    let found = size.gpu.map(find_gpu).transpose()?;
    let gpu = found.clone().map(|device| device as Arc<dyn Device>);
    let mut context = Context::new();
    let model = Model::new(&mut context, size)?;
    let weights = place(&context, &model, &cpu, gpu.as_ref())?;
    fill(&context, &weights)?;

    let mut scheduler = Scheduler::new(gpu.iter().cloned().chain([cpu]))?;
    let accounted = reserve(&mut scheduler, &mut context, &model, &weights)?;
    let Talk { said, spent, built } = talk(&mut scheduler, &mut context, &model, &weights)?;

    println!("graphs built        {built:>12} for {} runs", spent.len());
    println!("tokens              {:?}...", &said[..said.len().min(12)]);
    println!("prompt              {:>12.1} tokens per second", size.prompt as f64 / spent[0]);
    if size.tokens > 0 {
        println!("after it            {:>12.1} tokens per second", size.tokens as f64 / spent[1..].iter().sum::<f64>());
    }
    #[cfg(feature = "cuda")]
    if let Some(launches) = found.map(|device| device.launches()) {
        println!("on the GPU          {:>12} runs in one launch, {} kernel by kernel", launches.whole, launches.apart);
        if let Some(why) = launches.refused {
            println!("not captured        {why}");
        }
    }
    if let Some(peak) = peak_resident().filter(|_| gpu.is_none()) {
        println!(
            "peak resident       {peak:>12} bytes, {:+.1}% of weights and plan and 20 MB",
            100.0 * (peak as f64 / (accounted as f64 + 20e6) - 1.0)
        );
    }
    Ok(())
}

/// Reserves memory for both graphs at their largest, a whole prompt and a token behind a full context, and says what is planned.
/// The answer is all bytes that are accounted for.
fn reserve(
    scheduler: &mut Scheduler,
    context: &mut Context,
    model: &Model,
    weights: &Bindings,
) -> Result<u64, Failure> {
    let (size, mark) = (model.size, context.mark());
    let prompt = model.graph(context, size.prompt, size.keys(size.prompt))?.graph;
    context.rewind(mark)?;
    let token = model.graph(context, 1, size.context)?.graph;
    context.rewind(mark)?;
    if size.capacity != u64::MAX {
        // It stays as it is, beside that of the prompt.
        model.fitted(token.clone(), &FitOptions::default().with_most_parts(1))?;
    }
    scheduler.reserve_all([(&prompt, weights), (&token, weights)])?;
    let mut accounted: u64 = weights.iter().map(|(_, address)| address.size.get()).sum();
    println!("weights and caches  {accounted:>12} bytes");
    println!("prompt, token graph {:>12} and {} nodes", prompt.nodes().len(), token.nodes().len());
    for (id, worker) in scheduler.workers() {
        let bytes = scheduler.buffer_size(id)?.get();
        accounted += bytes;
        println!("  planned on {:<6} {bytes:>12} bytes for both", worker.name());
    }
    let apart = PlanOptions::default().with_reuse(Reuse::None);
    println!("  without in-place  {:>12} bytes", plan_graph(&prompt.clone().into(), &apart)?.peak().get());
    if scheduler.workers().len() > 1 {
        println!("{}", scheduler.schedule(&token, weights)?);
    }
    Ok(accounted)
}

/// What was said, how many seconds each run took, and how many graphs were built for them.
struct Talk {
    said: Vec<i32>,
    spent: Vec<f64>,
    built: u64,
}

/// Runs the prompt, and then a token after the other.
fn talk(scheduler: &mut Scheduler, context: &mut Context, model: &Model, weights: &Bindings) -> Result<Talk, Failure> {
    let (size, mark) = (model.size, context.mark());
    let mut next: Vec<i32> = (0..size.prompt).map(|index| (index * 31 % size.vocabulary) as i32).collect();
    let (mut past, mut ready) = (0, None::<(Step, Job)>);
    let mut talk = Talk { said: Vec::new(), spent: Vec::new(), built: 0 };
    for _ in 0..=size.tokens {
        let start = Instant::now();
        let count = next.len() as u64;
        let keys = size.keys(past + count);
        // The graph depends on nothing but these two. While they stay, so does the job, and whatever was prepared for it.
        let (step, job) = match ready.take().filter(|(step, _)| (step.count, step.keys) == (count, keys)) {
            Some(same) => ready.insert(same),
            None => {
                talk.built += 1;
                context.rewind(mark)?;
                let step = model.graph(context, count, keys)?;
                let job = scheduler.alloc(&step.graph, weights)?;
                ready.insert((step, job))
            }
        };
        job.write(step.tokens, &next)?;
        job.write(step.positions, &(past..past + count).map(|position| position as i32).collect::<Vec<_>>())?;
        job.write(step.mask, &mask(past, count, keys))?;
        scheduler.compute(job)?;
        let scores = job.read::<f32>(step.scores)?;
        past += count;
        next = vec![best(&scores)];
        talk.said.push(next[0]);
        talk.spent.push(start.elapsed().as_secs_f64());
    }
    Ok(talk)
}

/// Returns the GPU of this number.
#[cfg(feature = "cuda")]
fn find_gpu(number: usize) -> Result<Arc<CudaDevice>, Failure> {
    let devices = CudaDevice::all().map_err(|error| error.to_string())?;
    let count = devices.len();
    let device = devices.into_iter().nth(number);
    let device = device.ok_or_else(|| format!("cuda:{number}: no such GPU: this machine has {count}"))?;
    Ok(Arc::new(device))
}

#[cfg(not(feature = "cuda"))]
fn find_gpu(number: usize) -> Result<Arc<NullDevice>, Failure> {
    Err(format!("cuda:{number}: built without the feature cuda: cargo run --features cuda").into())
}

/// Memory for weights and caches: those of the last layers on the GPU; the words too, if all layers are there.
fn place(
    context: &Context,
    model: &Model,
    cpu: &Arc<dyn Device>,
    gpu: Option<&Arc<dyn Device>>,
) -> Result<Bindings, Failure> {
    let on_gpu = if gpu.is_some() { model.size.layers_on_gpu.min(model.size.layers) } else { 0 };
    let first = model.size.layers - on_gpu;
    let mut here = (vec![], vec![]);
    let mut there = (vec![], vec![]);
    let words = if gpu.is_some() && first == 0 { &mut there.0 } else { &mut here.0 };
    words.extend([model.embedding, model.norm]);
    for (index, layer) in (0..).zip(&model.layers) {
        let (weights, caches) = if index < first { &mut here } else { &mut there };
        weights.extend([layer.norm, layer.q, layer.k, layer.v, layer.out]);
        weights.extend([layer.hidden_norm, layer.gate, layer.up, layer.down]);
        caches.extend([layer.k_cache, layer.v_cache]);
    }
    let mut bindings = Bindings::new();
    for (device, (weights, caches)) in [(Some(cpu), here), (gpu, there)] {
        let Some(memory) = device.and_then(|device| device.default_buffer_type()) else { continue };
        for (tensors, usage) in [(weights, Usage::Weights), (caches, Usage::Any)] {
            bind(context, &tensors, memory, usage, &mut bindings)?;
        }
    }
    Ok(bindings)
}

/// One buffer with these tensors in it.
fn bind(
    context: &Context,
    tensors: &[TensorId],
    memory: &Arc<dyn BufferType>,
    usage: Usage,
    bindings: &mut Bindings,
) -> Result<(), Failure> {
    let mut size = 0;
    for tensor in tensors {
        size += memory.alloc_size(context.tensors(), *tensor).get().next_multiple_of(memory.align().get());
    }
    let buffer = SharedBuffer::allocate(memory, Bytes(size), usage)?;
    let mut allocator = TensorAllocator::new(&buffer);
    for tensor in tensors {
        let address = allocator.alloc(context, *tensor)?;
        bindings.bind(*tensor, &buffer, address.offset, address.size)?;
    }
    Ok(())
}

/// Which of the keys each token sees: all up to its own. The numbers are added to the scores, and what is hidden is not looked
/// at, whatever stands there.
fn mask(past: u64, count: u64, keys: u64) -> Vec<f16> {
    let row = |token: u64| {
        (0..keys).map(move |position| if position <= past + token { f16::ZERO } else { f16::NEG_INFINITY })
    };
    (0..count).flat_map(row).collect()
}

fn best(scores: &[f32]) -> i32 {
    let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(index, _)| index as i32)
}

/// Small random numbers in everything, written tensor by tensor so that no second copy of the weights exists.
fn fill(context: &Context, weights: &Bindings) -> Result<(), Failure> {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    for (tensor, address) in weights.iter() {
        let layout = context.tensor(tensor)?.layout;
        let scale = 2.0 / (layout.ne()[0] as f32).sqrt();
        let mut bytes = Vec::with_capacity(usize::try_from(layout.nbytes().get())?);
        for _ in 0..layout.elements() / layout.dtype().block_len() {
            match layout.dtype() {
                DataType::F32 => bytes.extend_from_slice(&(1.0 + 0.1 * random()).to_ne_bytes()),
                // A scale, and 32 numbers from -8 to 7 in 16 bytes.
                DataType::Q4_0 => {
                    bytes.extend_from_slice(&f16::from_f32(scale / 16.0).to_ne_bytes());
                    bytes.extend((0..16).map(|_| ((random() + 0.5) * 256.0) as u8));
                }
                _ => bytes.extend_from_slice(&f16::from_f32(scale * random()).to_ne_bytes()),
            }
        }
        address.buffer.write(address.offset, &bytes)?;
    }
    Ok(())
}

fn peak_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}
