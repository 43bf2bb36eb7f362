//! A language model with random weights: a prompt graph and a token graph share one reserved buffer, and the key and value
//! cache is written through views.
//!
//!     cargo run --release -p steeve --example transformer -- --layers 8 --width 512 --prompt 128 --tokens 64

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
    prompt: u64,
    tokens: u64,
    threads: u64,
}

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
            prompt: 128,
            tokens: 64,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
        };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let field = match name.as_str() {
                "--layers" => &mut size.layers,
                "--width" => &mut size.width,
                "--heads" => &mut size.heads,
                "--kv-heads" => &mut size.kv_heads,
                "--hidden" => &mut size.hidden,
                "--vocabulary" => &mut size.vocabulary,
                "--context" => &mut size.context,
                "--prompt" => &mut size.prompt,
                "--tokens" => &mut size.tokens,
                "--threads" => &mut size.threads,
                _ => return Err(format!("{name} is unknown; see the first lines of the example").into()),
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
        if size.prompt == 0 || size.prompt.saturating_add(size.tokens) > size.context {
            return Err("prompt and tokens must fit the context, and the prompt must not be empty".into());
        }
        Ok(size)
    }

    fn head(&self) -> u64 {
        self.width / self.heads
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
        let Size { width, hidden, vocabulary, .. } = size;
        let kv_width = size.head() * size.kv_heads;
        let mut weight = |shape: &[u64], dtype| context.external(dtype, shape);
        let embedding = weight(&[width, vocabulary], DataType::F16)?;
        let norm = weight(&[width], DataType::F32)?;
        let mut layers = Vec::new();
        for _ in 0..size.layers {
            layers.push(Layer {
                norm: weight(&[width], DataType::F32)?,
                q: weight(&[width, width], DataType::F16)?,
                k: weight(&[width, kv_width], DataType::F16)?,
                v: weight(&[width, kv_width], DataType::F16)?,
                out: weight(&[width, width], DataType::F16)?,
                hidden_norm: weight(&[width], DataType::F32)?,
                gate: weight(&[width, hidden], DataType::F16)?,
                up: weight(&[width, hidden], DataType::F16)?,
                down: weight(&[hidden, width], DataType::F16)?,
                k_cache: weight(&[kv_width, size.context], DataType::F16)?,
                v_cache: weight(&[kv_width, size.context], DataType::F16)?,
            });
        }
        Ok(Self { size, embedding, layers, norm })
    }

    /// The graph of `count` tokens behind `past` others.
    fn graph(&self, context: &mut Context, past: u64, count: u64) -> Result<Step, Failure> {
        let Size { heads, kv_heads, .. } = self.size;
        let head = self.size.head();
        let tokens = context.input(DataType::I32, &[count])?;
        let positions = context.input(DataType::I32, &[count])?;
        let mask = context.input(DataType::F16, &[past + count, count])?;
        let rope = Rope { dims: u32::try_from(head)?, ..Rope::default() };
        let attention = FlashAttention { scale: 1.0 / (head as f32).sqrt(), ..FlashAttention::default() };
        // Nobody has an edge to the writes into the cache: they must stand in the graph before whoever reads it.
        let mut graph = Graph::from_outputs(context, &[])?;

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
            for (values, cache) in [(k, layer.k_cache), (v, layer.v_cache)] {
                let row = 2 * head * kv_heads;
                let place = context.view_2d(cache, [head * kv_heads, count], row, Bytes(past * row))?;
                let values = context.reshape(values, &[head * kv_heads, count])?;
                let write = context.cpy(values, place)?;
                graph.expand(context, &[write])?;
            }
            let heads_of = |context: &mut Context, cache| {
                let strides = [2 * head * kv_heads, 2 * head];
                context.view_3d(cache, [head, past + count, kv_heads], strides, Bytes(0))
            };
            let (keys, values) = (heads_of(context, layer.k_cache)?, heads_of(context, layer.v_cache)?);
            let q = context.permute(q, [0, 2, 1, 3])?;
            let mixed = context.flash_attn_ext(q, keys, values, Some(mask), attention)?;
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
        graph.expand(context, &[scores])?;
        Ok(Step { tokens, positions, mask, scores, graph })
    }

    fn normed(&self, context: &mut Context, x: TensorId, weight: TensorId) -> Result<TensorId, Failure> {
        let normed = context.rms_norm(x, 1e-5)?;
        Ok(context.mul(normed, weight)?)
    }
}

struct Step {
    tokens: TensorId,
    positions: TensorId,
    mask: TensorId,
    scores: TensorId,
    graph: Graph,
}

fn main() -> Result<(), Failure> {
    let size = Size::from_args()?;
    let cpu = CpuBackend::new(usize::try_from(size.threads)?);
    let mut context = Context::new();
    let model = Model::new(&mut context, size)?;
    let weights = allocate_context_on(&mut context, &cpu)?;
    let weight_bytes = context_size(&context, &cpu.buffer_type())?;
    fill(&context, &weights)?;
    let mark = context.mark();

    // Both graphs at their largest: a whole prompt, and a token behind a full context.
    let mut allocator = GraphAllocator::new(&cpu.buffer_type());
    let prompt = model.graph(&mut context, 0, size.prompt)?.graph;
    context.rewind(mark)?;
    let token = model.graph(&mut context, size.context - 1, 1)?.graph;
    allocator.reserve_all([&prompt, &token])?;
    let apart = PlanOptions::default().with_reuse(Reuse::None);
    let planned = allocator.buffer_size(0)?;
    println!("weights and caches  {:>12} bytes", weight_bytes.get());
    println!(
        "prompt, token graph {:>12} bytes in one buffer ({} nodes, {} nodes)",
        planned.get(),
        prompt.nodes().len(),
        token.nodes().len()
    );
    println!("  without in-place  {:>12} bytes", plan_graph(&prompt.clone().into(), &apart)?.peak().get());
    drop((prompt, token));

    let mut next: Vec<i32> = (0..size.prompt).map(|index| (index * 31 % size.vocabulary) as i32).collect();
    let (mut past, mut spent) = (0, Vec::new());
    let mut said = Vec::new();
    for _ in 0..=size.tokens {
        let start = Instant::now();
        context.rewind(mark)?;
        let count = next.len() as u64;
        let step = model.graph(&mut context, past, count)?;
        let run = allocator.alloc(&step.graph, &weights)?;
        run.write(step.tokens, &next)?;
        run.write(step.positions, &(past..past + count).map(|position| position as i32).collect::<Vec<_>>())?;
        run.write(step.mask, &mask(past, count))?;
        run.compute(&cpu)?;
        let scores = run.read::<f32>(step.scores)?;
        past += count;
        next = vec![best(&scores)];
        said.push(next[0]);
        spent.push(start.elapsed().as_secs_f64());
    }
    println!("tokens              {:?}...", &said[..said.len().min(12)]);
    println!("prompt              {:>12.1} tokens per second", size.prompt as f64 / spent[0]);
    println!("after it            {:>12.1} tokens per second", size.tokens as f64 / spent[1..].iter().sum::<f64>());
    println!("allocated           {:>12} bytes, as reserved", allocator.buffer_size(0)?.get());
    if let Some(peak) = peak_resident() {
        let accounted = weight_bytes.get() + planned.get();
        println!(
            "peak resident       {peak:>12} bytes, {:+.1}% of weights and plan and 20 MB",
            100.0 * (peak as f64 / (accounted as f64 + 20e6) - 1.0)
        );
    }
    Ok(())
}

/// Which positions each token sees: all up to its own. The numbers are added to the scores.
fn mask(past: u64, count: u64) -> Vec<f16> {
    let row = |token: u64| {
        (0..past + count).map(move |position| if position <= past + token { f16::ZERO } else { f16::NEG_INFINITY })
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
        for _ in 0..layout.elements() {
            match layout.dtype() {
                DataType::F32 => bytes.extend_from_slice(&(1.0 + 0.1 * random()).to_ne_bytes()),
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
