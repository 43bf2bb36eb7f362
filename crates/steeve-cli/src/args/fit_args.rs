//! `steeve fit`: what may be asked of it.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::Args;

use super::{DimArgs, InputArgs, LimitArgs, OutputArgs, parse_parts};
use crate::output_file::OutputFile;

#[derive(Debug, Args)]
#[command(
    next_line_help = true,
    after_help = "\
Examples:
  steeve fit graph.json.gz --capacity 64MiB              what has to be done so that it fits?
  steeve fit graph.json.gz --capacity CUDA0=1GiB -o small.graph -o plan.json
  steeve fit prompt.json.gz --beside token.json.gz --capacity 32MiB
  steeve fit graph.json.gz --capacity 64MiB -o after.html; steeve view graph.json.gz -o before.html
  steeve fit graph.json.gz --capacity 0 --parts 4 --json how small does it get with at most 4 parts?

What costs nothing comes first: packing, results in place, another order of the nodes. Then chains of row-wise nodes (such
as feed-forward blocks, attention over queries and convolutions) are done in parts: where most is alive first, and in as
few parts as will do. The graph that is written computes the same. Costs are estimates: bytes that are read once more in
each part but the first (weights, keys and values), and nodes that run more.

Exit status: 0 it fits, 1 it does not (shown is the smallest that was reached), 2 bad usage or input."
)]
pub(crate) struct FitArgs {
    /// The graph; - is the standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// A graph that never runs at the same time and shares the buffers, such as that of a token beside that of a
    /// prompt; it stays as it is. May be repeated
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    pub(crate) beside: Vec<PathBuf>,

    /// The most parts in which a chain is done; 1 leaves the graph as it is [default: as many as it has rows].
    #[arg(long, value_name = "COUNT", value_parser = parse_parts)]
    pub(crate) parts: Option<NonZeroU64>,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) dims: DimArgs,

    /// Write to this file, by its ending: the graph that fits (.graph), its plan (.json, .csv), a page (.html) or a
    /// drawing (.svg) of it. May be repeated; nothing is written if it does not fit
    #[arg(short, long, value_name = "FILE", value_parser = OutputFile::of_fitted, verbatim_doc_comment)]
    pub(crate) out: Vec<OutputFile>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
