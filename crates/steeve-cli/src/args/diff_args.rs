//! `steeve diff`: what may be asked of it.

use std::path::PathBuf;

use clap::Args;

use super::{DimArgs, InputArgs, OutputArgs, PlanningArgs, SearchArgs, parse_count};
use crate::commands::diff_command::{Allowance, parse_allowance};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve diff main.json.gz branch.json.gz       has it grown, and what has? Status 1 if it has
  steeve diff main/ branch/ --allow 1%          two folders of recordings; up to 1 % more in each memory is no growth
  steeve diff plan.json graph.json.gz           a plan that was saved, and what steeve plan makes of the graph now
  steeve diff a.json.gz b.json.gz --as drop-in  as the drop-in for ggml plans them
  steeve diff main/ branch/ --json              a line for each pair, for programs

Graphs and block lists are planned as steeve plan would; a plan that was saved, and a block list in which every block has
an offset, are compared as they are. Memories are compared by name, and where each side uses but one, these two.

What explains a difference is what is alive where each side is fullest, summed by role, operation and layer. Tensors are
matched by name, the second of a name with the second; where a name only counts nodes (node_12), by operation. came and
went: in one side alone; entered and left: in both, but alive at the fullest step of one alone.

Files of folders are matched by name, recordings (4711-0003-936nodes.json.gz) by the number in the middle. One that is in
AFTER alone has grown from nothing: --allow must be at least its bytes.

Exit status: 0 not larger, 1 a memory of the second is larger than --allow allows, 2 bad usage or input.")]
pub(crate) struct DiffArgs {
    /// The old side: a graph, a block list, a saved plan, or a folder of them; - is the standard input.
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// The new side, as BEFORE.
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    /// Allowed growth of each memory: a percentage, as in 1%, or a size, as in 64K [default: 0].
    #[arg(long, value_name = "N%|SIZE", value_parser = parse_allowance)]
    allow: Option<Allowance>,

    /// How many tensors to list of each memory that has changed; for folders, how many files to explain.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = parse_count)]
    pub(crate) top: usize,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) dims: DimArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl DiffArgs {
    pub(crate) fn allowance(&self) -> Allowance {
        self.allow.unwrap_or(Allowance::NONE)
    }
}
