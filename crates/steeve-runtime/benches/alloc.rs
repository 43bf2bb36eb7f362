//! Times of reserving and of allocating: per node, beside ggml's plan of the same graph in the same run.
//!
//! `cargo bench -p steeve-runtime --bench alloc` makes graphs of language models, and reads some of the corpus at `STEEVE_CORPUS`, else
//! `../shared/corpus` beside the workspace, else the project's own `corpus/`.

#![allow(clippy::expect_used, reason = "a benchmark that can not run has nothing to print")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steeve_device::{Bindings, BufferType, Device, MemorySpec, NullDevice, Offset, SharedBuffer, Usage};
use steeve_graph::{Align, AssignedGraph, Graph, GraphStrategy, Memory, PlanOptions, RecordedGraph, plan_graph};
use steeve_runtime::{GraphAllocator, allocate_context};
use steeve_testkit::timing::median_time;
use steeve_testkit::transformer::{Transformer, rebuilt};

/// What a server computes: a prompt and a token of a small and of a large model, and other networks.
const MODELS: [&str; 8] = [
    "llm/deepseek-v3.c4096.fa1.out1.pp",
    "llm/deepseek-v3.c4096.fa1.tg",
    "llm/llama-3.1-8b.c4096.fa1.out1.pp",
    "llm/llama-3.1-8b.c4096.fa1.tg",
    "llm/qwen2.5-0.5b.c4096.fa1.out1.pp",
    "llm/qwen3-30b-a3b.c4096.fa1.out1.pp",
    "other/sd15-unet.lat64.fa1.0002",
    "other/whisper-small.fa1.encode",
];

fn main() {
    println!(
        "{:40} {:>6} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "ns per node", "nodes", "ggml plan", "reserve", "fits", "alloc", "ratio"
    );
    let padded = spec().with_padding(Align::new(256).expect("a power of two"));
    for (nodes, kind, spec) in [(1000, "", spec()), (5000, "", spec()), (5000, ", padded", padded)] {
        let memory = null(spec);
        let mut model = Transformer::with_nodes(nodes).expect("a model");
        let weights = allocate_context(&mut model.context, &memory).expect("weights");
        line(&format!("transformer of {nodes}{kind}"), &memory, || model.graph(8).expect("a graph").0, &weights);
    }
    for (name, graph) in recorded() {
        let bindings = bound(&graph);
        line(&name, &null(spec()), || rebuilt(&graph).expect("a graph"), &bindings);
    }
}

/// One line for a graph that `build` makes afresh each time.
fn line(name: &str, memory: &Arc<dyn BufferType>, mut build: impl FnMut() -> Graph, bindings: &Bindings) {
    let graph = build();
    let nodes = graph.nodes().len();
    let assigned = AssignedGraph::single(graph.clone(), Memory::new("null", memory.align()));
    let ggml =
        median_time(9, || (), |()| plan_graph(&assigned, &PlanOptions::new(GraphStrategy::Ggml)).expect("a plan"));
    let reserve = median_time(
        9,
        || GraphAllocator::new(memory),
        |allocator| {
            allocator.reserve(&graph).expect("memory");
        },
    );
    let plan = plan_graph(&assigned, &PlanOptions::default()).expect("a plan");
    let fits = median_time(101, &mut build, |graph| assert!(plan.accepts(graph, |id, _| graph.tensor(id).nbytes())));
    let mut allocator = GraphAllocator::new(memory);
    allocator.reserve(&graph).expect("memory");
    let alloc = median_time(101, &mut build, |graph| allocator.alloc(&*graph, bindings).expect("it is reserved"));
    let [ggml, reserve, fits, alloc] = [ggml, reserve, fits, alloc].map(|seconds| seconds * 1e9 / nodes as f64);
    println!("{name:40} {nodes:6} {ggml:9.1} {reserve:9.1} {fits:9.2} {alloc:9.2} {:7.4}", alloc / ggml);
}

fn spec() -> MemorySpec {
    MemorySpec::new("null").with_align(Align::new(32).expect("a power of two"))
}

fn null(spec: MemorySpec) -> Arc<dyn BufferType> {
    Arc::clone(&NullDevice::new(spec).buffer_types()[0])
}

/// Memory for every external tensor.
fn bound(graph: &Graph) -> Bindings {
    let memory = null(spec());
    let mut bindings = Bindings::new();
    for (id, tensor) in graph.tensors().pairs().filter(|(_, tensor)| tensor.external) {
        let buffer = SharedBuffer::allocate(&memory, tensor.nbytes(), Usage::Weights).expect("null memory");
        bindings.bind(id, &buffer, Offset(0), tensor.nbytes()).expect("as large as the buffer");
    }
    bindings
}

fn recorded() -> Vec<(String, Graph)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = std::env::var_os("STEEVE_CORPUS").map_or_else(|| root.join("../shared/corpus"), PathBuf::from);
    let folder = if corpus.is_dir() { corpus } else { root.join("corpus") };
    let mut graphs = Vec::new();
    for name in MODELS {
        let Ok(file) = std::fs::File::open(folder.join("graphs").join(format!("{name}.json.gz"))) else { continue };
        let mut json = Vec::new();
        flate2::read::GzDecoder::new(file).read_to_end(&mut json).expect("gzip");
        let recorded = RecordedGraph::from_json_bytes(&json).expect("a recorded graph");
        graphs.push((name.to_string(), recorded.assigned.into_graph()));
    }
    graphs
}
