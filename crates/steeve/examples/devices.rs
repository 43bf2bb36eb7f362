//! How many bytes does each device need if some layers are on the GPU? Asked for every number of layers, before anything is
//! allocated and on a machine without a GPU:
//!
//! ```sh
//! cargo run --release -p steeve --example devices            # a table for each number of layers
//! cargo run --release -p steeve --example devices -- 3       # who does what with 3 layers on the GPU, and why
//! cargo run --release -p steeve --example devices -- 3 dot   # the same as a drawing, for `dot -Tsvg`
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use steeve::prelude::*;

const LAYERS: usize = 8;
const WIDTH: u64 = 1024;
const HIDDEN: u64 = 2816;
const VOCABULARY: u64 = 32_000;
const TOKENS: u64 = 512;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let told = match &arguments[..] {
        [] => table(),
        [layers] => layers.parse().map_err(|_| wrong(layers)).and_then(|layers| details(layers, false)),
        [layers, dot] if dot == "dot" => {
            layers.parse().map_err(|_| wrong(layers)).and_then(|layers| details(layers, true))
        }
        [_, other, ..] => Err(format!("{other:?} is not \"dot\"").into()),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn std::error::Error>;

fn wrong(layers: &str) -> Failure {
    format!("{layers:?} is no number of layers: 0 to {LAYERS}").into()
}

fn table() -> Result<(), Failure> {
    println!("layers on the GPU   weights there   compute GPU   compute CPU   splits   copied per run");
    for layers in 0..=LAYERS {
        let model = Model::new(layers)?;
        let schedule = model.scheduler.schedule(&model.graph, &model.homes)?;
        let required = model.scheduler.required(&model.graph, &model.homes)?;
        let mib = |bytes: Bytes| format!("{:.1} MiB", bytes.0 as f64 / f64::from(1 << 20));
        println!(
            "{layers:17}   {:>13}   {:>11}   {:>11}   {:6}   {:>14}",
            mib(model.on_gpu),
            mib(required[0]),
            mib(required[1]),
            schedule.splits().len(),
            mib(schedule.copied()),
        );
    }
    Ok(())
}

fn details(layers: usize, as_drawing: bool) -> Result<(), Failure> {
    if layers > LAYERS {
        return Err(wrong(&layers.to_string()));
    }
    let model = Model::new(layers)?;
    let schedule = model.scheduler.schedule(&model.graph, &model.homes)?;
    if as_drawing {
        print!("{}", schedule.to_graphviz());
    } else {
        println!("{schedule}\n\n{}", schedule.reasons());
    }
    Ok(())
}

/// A model whose last layers have their weights on the GPU.
struct Model {
    graph: Graph,
    homes: TensorLocations,
    scheduler: Scheduler,
    on_gpu: Bytes,
}

impl Model {
    fn new(on_gpu: usize) -> Result<Self, Failure> {
        let device = |name: &str| -> Arc<dyn Device> { Arc::new(NullDevice::new(name).as_if_it_computed()) };
        let (gpu, cpu) = (device("GPU"), device("CPU"));
        let mut it =
            Builder { context: Context::new(), homes: TensorLocations::new(), on_gpu: Bytes(0), gpu: Arc::clone(&gpu) };
        let embedding = it.weight(&cpu, "embedding", DataType::F16, &[WIDTH, VOCABULARY])?;
        let ids = it.context.input(DataType::I32, &[TOKENS])?;
        it.context.set_name(ids, "ids")?;
        let mut x = it.context.get_rows(embedding, ids)?;
        for layer in 0..LAYERS {
            let device = if layer + on_gpu >= LAYERS { &gpu } else { &cpu };
            x = it.layer(device, layer, x)?;
        }
        let device = if on_gpu > 0 { &gpu } else { &cpu };
        let head = it.weight(device, "head", DataType::F16, &[WIDTH, VOCABULARY])?;
        // Only the last word is asked about.
        let last = it.context.view_1d(x, WIDTH, Bytes(4 * WIDTH * (TOKENS - 1)))?;
        let normed = it.context.rms_norm(last, 1e-5)?;
        let scores = it.context.mul_mat(head, normed)?;
        it.context.set_name(scores, "scores")?;
        it.context.set_output(scores)?;
        let graph = Graph::from_outputs(&it.context, &[scores])?;
        let scheduler = Scheduler::for_planning([gpu, cpu])?;
        Ok(Self { graph, homes: it.homes, scheduler, on_gpu: it.on_gpu })
    }
}

struct Builder {
    context: Context,
    homes: TensorLocations,
    on_gpu: Bytes,
    gpu: Arc<dyn Device>,
}

impl Builder {
    fn weight(
        &mut self,
        device: &Arc<dyn Device>,
        name: &str,
        dtype: DataType,
        shape: &[u64],
    ) -> Result<TensorId, GraphError> {
        let weight = self.context.external(dtype, shape)?;
        self.context.set_name(weight, name)?;
        self.homes.put(weight, &device.buffer_types()[0], Usage::Weights);
        if Arc::ptr_eq(device, &self.gpu) {
            self.on_gpu.0 += self.context.tensor(weight)?.nbytes().0;
        }
        Ok(weight)
    }

    /// Mixes along the row, and then each row by itself: enough of a layer to have its memory.
    fn layer(&mut self, device: &Arc<dyn Device>, layer: usize, x: TensorId) -> Result<TensorId, GraphError> {
        let mut weight =
            |name: &str, shape: &[u64]| self.weight(device, &format!("{layer}.{name}"), DataType::F16, shape);
        let (q, k, v) = (weight("q", &[WIDTH, WIDTH])?, weight("k", &[WIDTH, WIDTH])?, weight("v", &[WIDTH, WIDTH])?);
        let (up, down) = (weight("up", &[WIDTH, 2 * HIDDEN])?, weight("down", &[HIDDEN, WIDTH])?);
        let context = &mut self.context;
        let normed = context.rms_norm(x, 1e-5)?;
        let (q, k, v) = (context.mul_mat(q, normed)?, context.mul_mat(k, normed)?, context.mul_mat(v, normed)?);
        let scores = context.mul_mat(k, q)?;
        let shares = context.soft_max(scores, None, SoftMax { scale: 0.03, max_bias: 0.0 })?;
        let turned = context.transpose(v)?;
        let turned = context.cont(turned)?;
        let mixed = context.mul_mat(turned, shares)?;
        let x = context.add(mixed, x)?;
        let normed = context.rms_norm(x, 1e-5)?;
        let both = context.mul_mat(up, normed)?;
        let gated = context.glu(Glu::Swiglu, both)?;
        let moved = context.mul_mat(down, gated)?;
        let x = context.add(moved, x)?;
        context.set_name(x, &format!("{layer}.out"))?;
        Ok(x)
    }
}
