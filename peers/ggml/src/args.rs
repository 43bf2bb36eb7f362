//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Plans the same graphs with ggml's allocator and with steeve, in one process, and prints ratios.
///
/// Without names it takes a choice of recorded graphs, and transformers of 1,000 to 5,000 nodes made here.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  cargo run --release                           the choice
  cargo run --release -- llm/llama generated    all graphs with one of these in their name
  cargo run --release -- --all -r 11            every graph, 11 repeats each
  cargo run --release -- --sched                the schedulers: what one more run of the same graph costs
  cargo run --release -- --mul-mat -r 9         matrix products on the CPU, in all types
  cargo run --release -- --check                are ggml's answers what steeve says they are, for every graph?

Exit status: 0 done, 1 an answer differs, 2 bad usage or input.")]
pub(crate) struct Cli {
    /// Parts of the names of graphs.
    #[arg(value_name = "NAME", conflicts_with = "all")]
    pub(crate) names: Vec<String>,

    /// Every graph of the corpus, and the generated ones.
    #[arg(long)]
    pub(crate) all: bool,

    /// Compare ggml's sizes and places with those that steeve says ggml has, instead of times.
    #[arg(long)]
    pub(crate) check: bool,

    /// Time the schedulers instead of the allocators, on one device and on three.
    #[arg(long, conflicts_with = "check")]
    pub(crate) sched: bool,

    /// Time matrix products on the CPU instead, 4096 x 4096 with 1 row and with 512, in each type or in those named.
    #[arg(long, conflicts_with_all = ["check", "sched"])]
    pub(crate) mul_mat: bool,

    /// Where the folder `graphs` is. [default: STEEVE_CORPUS, else ../shared/corpus beside the project, else the project's]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) corpus: Option<PathBuf>,

    /// How often each side is timed, in turn with the other; the median is shown.
    #[arg(short, long, value_name = "COUNT", default_value_t = 51)]
    pub(crate) repeats: usize,
}

impl Cli {
    /// Whether a graph was asked for by name.
    pub(crate) fn names(&self, graph: &str) -> bool {
        self.names.iter().any(|name| graph.contains(name.as_str()))
    }
}
