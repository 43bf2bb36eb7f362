//! The command line: what may be asked, with an example for each command.

mod diff_args;
mod estimate_args;
mod planning_args;
mod view_args;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum};
use steeve_plan::{Align, Best, Budget, Bytes, Clipped, InputLimit};

pub(crate) use diff_args::DiffArgs;
pub(crate) use estimate_args::EstimateArgs;
pub(crate) use planning_args::{PlannedAs, PlanningArgs, StrategyName};
pub(crate) use view_args::ViewArgs;

use crate::byte_size::{SizeStyle, parse_align, parse_bytes};
use crate::capacity::{Capacities, Capacity, parse_capacity};
use crate::error::Error;
use crate::output_file::OutputTarget;
use crate::verbosity::Verbosity;

/// Plans where every tensor of a graph, or every block of a list, stands in memory, and proves the plan.
///
/// Graphs are recorded from ggml (.json, .json.gz) or written as text (.graph), one tensor per line.
/// Block lists are CSV files with the columns id, lower, upper, size and, if need be, alignment, offset,
/// buffer, follows. `upper` is exclusive.
#[derive(Debug, Parser)]
#[command(name = "steeve", version, after_help = EXAMPLES, verbatim_doc_comment)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,

    /// Say nothing but the answer and errors: no notes, no progress.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,

    /// Say what is being done, too.
    #[arg(short, long, global = true, help_heading = "Messages")]
    verbose: bool,
}

impl Cli {
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  steeve plan graph.json.gz                     how many bytes does each memory need, and how many does ggml take?
  steeve show graph.json.gz                     why is it this large?
  steeve view graph.json.gz -o map.html         what does it look like?
  steeve diff old.json.gz new.json.gz           has it grown? by how much, and what has?
  steeve compare folder/                        which strategy does best?
  steeve plan graph.json.gz -o plan.json        where does each tensor stand?
  steeve check graph.json.gz plan.json          does this plan hold?
  steeve plan blocks.csv --capacity 1M          do these blocks fit into one mebibyte?
  steeve estimate -- llama-server -m model.gguf how much memory will this program take of each device?
  steeve record -- python3 transcribe.py        which graphs does this program give to ggml, and what would each take?

Exit status: 0 done, 1 the answer is no (does not fit, not valid), 2 bad usage or input; of record the program's own.
Colours are for terminals; NO_COLOR=1 switches them off. docs/command-line.md lists every message and what to do about it.";

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Places the tensors or blocks of each file and shows how good the plan is.
    Plan(PlanArgs),
    /// Proves that a plan holds, or explains everything that is wrong with it.
    Check(CheckArgs),
    /// Runs every strategy on each file and shows them side by side.
    Compare(CompareArgs),
    /// Shows what is alive when a memory is fullest, largest first, and why.
    Show(ShowArgs),
    /// Compares what two plans take, says what has grown and why, and answers with the status.
    Diff(DiffArgs),
    /// Draws a plan: a map in the terminal, a page, a drawing; or writes it for programs.
    View(ViewArgs),
    /// Runs a program that uses ggml, records its graphs and shows what each would take.
    Record(RecordArgs),
    /// Runs a program that uses ggml until it has planned, and shows what it takes of each device.
    Estimate(EstimateArgs),
    /// Lists the devices of this machine that compute, with their memory.
    Devices(DevicesArgs),
    /// Prints what a shell needs to complete commands and options.
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve devices                                the GPUs, and the processor last
  steeve devices --bytes                        with every byte
  steeve devices --json                         a line for each, for programs")]
pub(crate) struct DevicesArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve completions bash > ~/.local/share/bash-completion/completions/steeve
  steeve completions zsh > \"${fpath[1]}/_steeve\"
  steeve completions fish > ~/.config/fish/completions/steeve.fish")]
pub(crate) struct CompletionsArgs {
    /// Which shell.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  steeve plan graph.json.gz                     one row per memory, with ggml's bytes beside ours
  steeve plan graph.json --strategy ggml        ggml's own plan, byte for byte
  steeve plan graph.json --reuse ggml           ggml's in-place decisions, packed better
  steeve plan graph.json --as drop-in           what the drop-in for ggml takes in each memory
  steeve plan graph.json -o plan.json           and where does each tensor stand?
  steeve plan corpus/graphs/llm                 every graph in a folder, and all together
  steeve plan graphs/ -o plans/                 for the drop-in, which reads them with STEEVE_PLANS=plans
  steeve plan blocks.csv.gz --strategy best --budget 2s --capacity 64MiB -o plan.json
  echo 'x = input f32[64,32]; y = silu x; z = add y x !output' | steeve plan - --json

The result is optimal (no plan is smaller: proved), fits, cannot fit (into --capacity: proved) or not found (within the
budget; a plan may exist). For a graph that is said of the given --reuse. A --budget or --threads mean --strategy best.
Ctrl-C ends a search for a block list and gives the best plan so far.

A graph as text has one tensor per line or between semicolons: label = operation type[shape] sources !flags. Memories, if
there are several, come first, as in memory gpu align=128, and a tensor is put into one with @gpu.")]
pub(crate) struct PlanArgs {
    /// Graphs or block lists. A folder means every .json, .graph and .csv (plain or .gz) in it,
    /// a pattern such as 'graphs/**/*.pp.json.gz' what fits it, - the standard input
    #[arg(required = true, value_name = "FILE", verbatim_doc_comment)]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Write the plan to this file: .csv or .json, with .gz if it is to be compressed;
    /// or draw it, as .html or .svg; or make it a C header, .h. In a folder (which ends in /, or is there already)
    /// each graph has a file, named as the drop-in looks for it with STEEVE_PLANS
    #[arg(short, long, value_name = "FILE", verbatim_doc_comment)]
    pub(crate) out: Option<OutputTarget>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve check graph.json.gz                    plan it, and run the plan and ggml's recorded one byte by byte
  steeve check graph.json.gz plan.json          does this plan hold for this graph?
  steeve check blocks.csv plan.json
  steeve check plan.csv --capacity 1M           the file has an offset column itself
  steeve check graph.json.gz --capacity CUDA0=8GiB --capacity CPU=1GiB
  steeve check graph.json.gz plan.json --json   for programs: whether it holds, every fault, peak and bound

A plan of a graph is judged by running the graph at its addresses: every node must read what it would have read if every
tensor had memory of its own. Tensors and blocks are matched by their id. A plan that was made with --align, --max-buffer
or --pinned is held to that if you give the same options here.

A memory above its --capacity is told with the five largest tensors where it is fullest, and the status is 1.")]
pub(crate) struct CheckArgs {
    /// The graph or the block list; if a block list stands alone, with an offset column.
    #[arg(value_name = "PROBLEM")]
    pub(crate) problem: PathBuf,

    /// The plan: the JSON that steeve plan -o writes, or a CSV with an offset column.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Print one JSON object per plan and line instead of sentences.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve compare corpus/                        a row per folder, and all together
  steeve compare graph.json.gz
  steeve compare folder/ --budget 500ms --bytes

Graphs: ggml's own plan, its in-place decisions packed better (fast, reuse ggml), ours (fast) and ours with a search
(best); ratios are by ggml's bytes. Block lists: ratios are by the bound, the most that any strategy could prove. Ratios
are rounded up, so that 1.0000 is exact. The last line has sums, and the geometric mean of the ratios over all memories
(of graphs: all in which ggml needs any bytes).

More than 40 files are summed up by folder, unless --rows file says otherwise: the bytes of the first strategy and of the
last, what that saves, the mean of the ratios and the smallest of them (at best), and how many memories are at their bound.")]
pub(crate) struct CompareArgs {
    /// Graphs or block lists. A folder means every .json, .graph and .csv (plain or .gz) in it,
    /// a pattern such as 'graphs/**/*.pp.json.gz' what fits it, - the standard input
    #[arg(required = true, value_name = "FILE", verbatim_doc_comment)]
    pub(crate) files: Vec<PathBuf>,

    /// What a row is [default: file; folder if there are more than 40 files].
    #[arg(long, value_enum)]
    pub(crate) rows: Option<RowName>,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowName {
    /// Each file.
    File,
    /// All files of a folder together.
    Folder,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve show graph.json.gz
  steeve show graph.json.gz --strategy ggml     the same for ggml's own plan
  steeve show plan.json                         the same for a plan that was saved
  steeve show blocks.csv --top 5 --json

For each memory: the first node (of a block list: the first step) at which the most bytes are alive; these bytes by role,
by operation and by layer; and the largest tensors, each with what needs it last: the node that reads it last, the caller
(kept as output), or nothing (read by no node). Node -1 is before the run. A tensor that another takes over in place ends
where that one begins. Roles and layers are guessed from names and operations.")]
pub(crate) struct ShowArgs {
    /// A graph, a block list or a saved plan; - is the standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// How many to show of each memory.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = parse_count)]
    pub(crate) top: usize,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "steeve record [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "\
Examples:
  steeve record -- python3 transcribe.py
  steeve record -o graphs -- llama-cli -m model.gguf -p Hello -n 16 --no-conversation
  steeve show graphs/4711-0000-936nodes.json.gz     why is one of them this large?

The program runs with steeve's drop-in library preloaded, which plans its memory and writes a file for each new plan. Its
input and output are its own; the table comes on the error stream when it has ended. steeve is what the drop-in takes as it
is, more what it takes with STEEVE_REUSE=more, bound the fewest bytes that any plan without that needs. The other settings
of the drop-in, such as STEEVE_LOG=1, are handed on; docs/ggml.md has them all.

The library is built by cargo build --release -p steeve-ggml. It is looked for next to this program and in ../lib from
there, unless --library or STEEVE_LIBRARY says where it is.

Exit status: the program's own, 128 + the signal's number if it was killed, 2 if it could not be run."
)]
pub(crate) struct RecordArgs {
    /// The folder for the graphs. What is in it already is left alone.
    #[arg(short, long, value_name = "DIR", default_value = "steeve-recorded")]
    pub(crate) out: PathBuf,

    /// The drop-in, libsteeve_ggml.so.
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,

    /// Show sizes as exact bytes.
    #[arg(long)]
    pub(crate) bytes: bool,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// What the strategy `best` may cost.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SearchArgs {
    /// What `best` may cost for each memory: 500ms, 2s, 5min or 20000nodes [default: 1s].
    #[arg(long)]
    pub(crate) budget: Option<Budget>,

    /// How many threads `best` may use [default: 1].
    #[arg(long, value_name = "COUNT", value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// Returns an error about the command line that echoes no value of any length whole.
pub(crate) fn clipped(mut error: clap::Error) -> clap::Error {
    let long = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(value) if value.len() > Clipped::WHOLE => {
            Some((kind, ContextValue::String(Clipped(value).to_string())))
        }
        // Suggestions that repeat what was given.
        ContextValue::StyledStrs(lines) if lines.iter().any(|line| line.to_string().len() > Clipped::WHOLE) => {
            Some((kind, ContextValue::None))
        }
        _ => None,
    };
    let clipped: Vec<(ContextKind, ContextValue)> = error.context().filter_map(long).collect();
    for (kind, value) in clipped {
        error.insert(kind, value);
    }
    error
}

/// Reads how many of something.
fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("a count is a whole number in plain digits, and {:?} is none", Clipped(text)))
}

/// Reads a number of threads.
fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| format!("a number of threads is 1 or more in plain digits, and {:?} is none", Clipped(text)))
}

/// The options that are given, of some that may be.
fn given<const COUNT: usize>(options: [(&'static str, bool); COUNT]) -> Vec<&'static str> {
    options.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}

impl SearchArgs {
    pub(crate) fn is_given(&self) -> bool {
        !self.given().is_empty()
    }

    /// Which of these options are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        given([("--budget", self.budget.is_some()), ("--threads", self.threads.is_some())])
    }

    /// The strategy `best` with this budget.
    pub(crate) fn best(&self) -> Best {
        let mut best = Best::default();
        if let Some(budget) = self.budget {
            best.budget = budget;
        }
        if let Some(threads) = self.threads {
            best.threads = threads.get();
        }
        best
    }
}

/// What a plan must keep to.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitArgs {
    /// All buffers of a memory together must not be larger: bytes, or with a suffix such as 64K, 1.5MiB, 2G.
    /// In a graph this is asked of each memory for itself, or of one, as in CUDA0=8GiB; may be repeated
    #[arg(long, value_name = "[MEMORY=]SIZE", value_parser = parse_capacity, verbatim_doc_comment)]
    capacity: Vec<Capacity>,

    /// No buffer may be larger, except to hold a single block that is; there may be several buffers.
    /// In a graph this takes the place of each memory's own limit
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, verbatim_doc_comment)]
    pub(crate) max_buffer: Option<Bytes>,

    /// Align every block or tensor at least to this power of two.
    #[arg(long, value_name = "SIZE", value_parser = parse_align)]
    pub(crate) align: Option<Align>,

    /// Blocks with an offset in the file must stand there (block lists only).
    #[arg(long)]
    pub(crate) pinned: bool,
}

impl LimitArgs {
    /// What each memory may take.
    pub(crate) fn capacities(&self) -> Result<Capacities<'_>, Error> {
        Capacities::new(&self.capacity)
    }

    /// Which of these options are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        given([
            ("--capacity", !self.capacity.is_empty()),
            ("--max-buffer", self.max_buffer.is_some()),
            ("--align", self.align.is_some()),
            ("--pinned", self.pinned),
        ])
    }
}

/// How much is read.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct InputArgs {
    /// Read at most this much of each file, unpacked, such as 64K or 1.5GiB [default: 256MiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_input: Option<Bytes>,
}

impl InputArgs {
    pub(crate) fn limit(self) -> InputLimit {
        self.max_input.map_or(InputLimit::DEFAULT, InputLimit::new)
    }
}

/// How results are shown.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object per result and line instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Show sizes as exact bytes.
    #[arg(long)]
    pub(crate) bytes: bool,
}

impl OutputArgs {
    pub(crate) fn sizes(&self) -> SizeStyle {
        if self.bytes { SizeStyle::Exact } else { SizeStyle::Human }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
