//! The command line: what may be asked, with an example for each command.

mod diff_args;
mod dim_args;
mod estimate_args;
mod fit_args;
mod planning_args;
mod view_args;

use std::ffi::OsString;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use steeve_plan::{Align, Best, Budget, Bytes, Clipped, InputLimit};

pub(crate) use diff_args::DiffArgs;
pub(crate) use dim_args::{DimArgs, GivenDims};
pub(crate) use estimate_args::EstimateArgs;
pub(crate) use fit_args::FitArgs;
pub(crate) use planning_args::{KernelArgs, KernelSetName, LanguageArgs, PlannedAs, PlanningArgs, StrategyName};
pub(crate) use view_args::ViewArgs;

use crate::byte_size::{SizeStyle, parse_align, parse_bytes};
use crate::capacity::{Capacities, Capacity, parse_capacity};
use crate::error::Error;
use crate::output_file::OutputTarget;
use crate::verbosity::Verbosity;

/// Plans the memory of tensor graphs and block lists: assigns each tensor or block a buffer and an offset, and proves the plan.
///
/// A graph is recorded from ggml (.json, .json.gz), a model (.tflite, .onnx, .gguf), or written as text (.graph), one tensor
/// per line. A block list is a CSV file with the columns id, lower, upper, size and optionally alignment, offset, buffer,
/// follows, overlaps, distance; a block is live at the steps from lower up to, but not including, upper.
#[derive(Debug, Parser)]
#[command(name = "steeve", version, after_help = EXAMPLES, verbatim_doc_comment)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,

    /// Print results and errors only: no notes, no progress.
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,

    /// Print what is being done as well.
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
  steeve diff old.json.gz new.json.gz           has it grown, by how much, and which tensors?
  steeve compare folder/                        which strategy does best?
  steeve plan graph.json.gz -o plan.json        at which offset is each tensor?
  steeve check graph.json.gz plan.json          does this plan hold?
  steeve plan model.tflite -o planned.tflite    how much smaller can this model's arena be?
  steeve plan model.onnx --dim batch=1          what do this model's activations need?
  steeve fit graph.json.gz --capacity 64MiB     what has to be done so that it fits?
  steeve plan blocks.csv --capacity 1M          do these blocks fit into 1 MiB?
  steeve estimate -- llama-server -m model.gguf how much memory of each device will this program take?
  steeve record -- python3 transcribe.py        which graphs does this program run with ggml, and how large is each?

Exit status: 0 done, 1 the answer is no (does not fit, not valid, larger), 2 bad usage or input; of record the program's.
Colours are used on terminals only; NO_COLOR=1 switches them off.";

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Plans the memory of each graph or block list, and compares the result with ggml's and with the lower bound.
    Plan(PlanArgs),
    /// Checks whether a plan is valid for a graph or block list, and lists every fault.
    Check(CheckArgs),
    /// Compares all planning strategies on each graph or block list, side by side.
    Compare(CompareArgs),
    /// Shows which tensors are alive at the memory peak, largest first, and what keeps them alive.
    Show(ShowArgs),
    /// Compares the memory of two plans, lists what has grown, and exits with 1 if a memory is larger.
    Diff(DiffArgs),
    /// Makes a graph need no more memory than there is, and says what that costs.
    Fit(FitArgs),
    /// Draws a plan as a map in the terminal, an HTML page or an SVG, or writes it as a C header, JSON or CSV.
    View(ViewArgs),
    /// Runs a program that uses ggml, and records each graph that it allocates as a file.
    Record(RecordArgs),
    /// Estimates how much memory of each device a program that uses ggml takes, by running it until it has planned.
    Estimate(EstimateArgs),
    /// Lists the GPUs and the processor of this machine, with their free and total memory.
    Devices(DevicesArgs),
    /// Prints the completion script of a shell.
    Completions(CompletionsArgs),
    /// Prints the manual page of the command, or of one of its commands.
    Man(ManArgs),
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
    /// The shell to complete in.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve man | man -l -                         read it
  steeve man plan > steeve-plan.1               the page of `steeve plan`
  steeve man > ~/.local/share/man/man1/steeve.1 install it")]
pub(crate) struct ManArgs {
    /// The command that the page is about; without it, all of steeve.
    pub(crate) command: Option<String>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  steeve plan graph.json.gz                     one row per memory, with ggml's bytes beside ours
  steeve plan graph.json --strategy ggml        ggml's own plan, byte for byte
  steeve plan graph.json --reuse ggml           ggml's in-place decisions, packed better
  steeve plan graph.json --as drop-in           what the drop-in for ggml takes in each memory
  steeve plan graph.json -o plan.json           at which offset is each tensor?
  steeve plan corpus/graphs/llm                 every graph in a folder, and all together
  steeve plan graphs/ -o plans/                 for the drop-in, which reads them with STEEVE_PLANS=plans
  steeve plan model.tflite -o planned.tflite    the model with its plan, for TensorFlow Lite Micro
  steeve plan model.tflite --overlap tflm-reference
  steeve plan model.onnx --dim batch=1 --dim sequence=128
  steeve plan model.onnx --dim batch=1,8,64     a row and a bar for each size
  steeve plan model.gguf --context 8192 --layers-on-gpu 20    what a language model takes of each device
  steeve plan blocks.csv.gz --strategy best --budget 2s --capacity 64MiB -o plan.json
  echo 'x = input f32[64,32]; y = silu x; z = add y x !output' | steeve plan - --json

The result is optimal (proved: no plan is smaller), fits, cannot fit (proved: none fits into --capacity) or not found
(within the budget; one may exist). For a graph this holds for the given --reuse. --budget and --threads imply --strategy
best. Ctrl-C ends a search and keeps the best plan so far.

What an ONNX model needs is what an executor needs that runs its nodes in the file's order at planned addresses, not what
ONNX Runtime takes. Weights are not planned, and come on top.

A graph as text has one tensor per line or between semicolons: label = operation type[shape] sources !flags. Memories, if
there are several, come first, as in memory gpu align=128, and a tensor is put into one with @gpu.")]
pub(crate) struct PlanArgs {
    /// Graphs, models or block lists. A folder means every .json, .graph, .onnx, .tflite, .gguf and .csv (or .gz) in it,
    /// a pattern such as 'graphs/**/*.pp.json.gz' for what matches it, and - for the standard input
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

    #[command(flatten)]
    pub(crate) dims: DimArgs,

    /// Write the plan to this file, by its ending: .json or .csv (also .gz), a page (.html), a drawing (.svg),
    /// a C header (.h), or a TFLite model with its plan (.tflite). To a folder (ending in /, or existing) the plan
    /// of each graph is written under the name by which the drop-in looks it up with STEEVE_PLANS
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
  steeve check model.tflite                     is the plan in this model right?
  steeve check plan.csv --capacity 1M           the file has an offset column itself
  steeve check graph.json.gz --capacity CUDA0=8GiB --capacity CPU=1GiB
  steeve check graph.json.gz plan.json --json   for programs: whether it holds, every fault, peak and bound

A plan of a graph is checked by running the graph at its addresses: every node must read what it would have read if every
tensor had memory of its own. Tensors and blocks are matched by their id. A plan that was made with --align, --max-buffer
or --pinned is held to that if you give the same options here.

For a memory above its --capacity the five largest tensors at its peak are listed, and the exit status is 1.")]
pub(crate) struct CheckArgs {
    /// The graph or the block list; a block list without PLAN needs an offset column.
    #[arg(value_name = "PROBLEM")]
    pub(crate) problem: PathBuf,

    /// The plan to check: the JSON that steeve plan -o writes, or a CSV with an offset column.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) dims: DimArgs,

    /// Print one JSON object per plan, a line each, instead of sentences.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve compare corpus/                        a row per folder, and all together
  steeve compare graph.json.gz
  steeve compare folder/ --budget 500ms --bytes

Graphs: ggml's own plan, its in-place decisions packed better (fast, reuse ggml), ours (fast), ours in another order of
the nodes (order best) and with a search (best); ratios are by ggml's bytes. TFLite models: TensorFlow Lite Micro's own
plan (tflm), ours (fast), in place and with overlaps as its reference kernels allow, and with a search (best). ONNX models:
without anything in place, ours (fast), in another order of the nodes (order best), and with a search (best). Block lists:
ratios are by the bound, the most that any strategy could prove. Ratios are rounded up, so that 1.0000 is exact. The last
line has sums, and the geometric mean of the ratios over all memories (of graphs: all in which ggml needs any bytes).

More than 40 files are summed up by folder, unless --rows file says otherwise: the bytes of the first strategy and of the
last, what that saves, the mean of the ratios and the smallest of them (at best), and how many memories are at their bound.")]
pub(crate) struct CompareArgs {
    /// Graphs, models or block lists. A folder means every .json, .graph, .onnx, .tflite, .gguf and .csv (or .gz) in it,
    /// a pattern such as 'graphs/**/*.pp.json.gz' for what matches it, and - for the standard input
    #[arg(required = true, value_name = "FILE", verbatim_doc_comment)]
    pub(crate) files: Vec<PathBuf>,

    /// What a row of the table is [default: file; folder if there are more than 40 files].
    #[arg(long, value_enum)]
    pub(crate) rows: Option<RowName>,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) dims: DimArgs,

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
  steeve show graph.json.gz --strategy ggml     the peak of ggml's own plan
  steeve show plan.json                         the peak of a saved plan
  steeve show blocks.csv --top 5 --json

For each memory: the first node (of a block list: the first step) at which the most bytes are alive; these bytes by role,
by operation and by layer; and the largest tensors, each with what needs it last: the node that reads it last, the caller
(kept as output), or nothing (read by no node). Node -1 is before the run. A tensor that another takes over in place ends
where that one begins. Roles and layers are guessed from names and operations.")]
pub(crate) struct ShowArgs {
    /// A graph, a block list or a saved plan; - is the standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// How many tensors to show of each memory.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = parse_count)]
    pub(crate) top: usize,

    #[command(flatten)]
    pub(crate) planning: PlanningArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    #[command(flatten)]
    pub(crate) dims: DimArgs,

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
  steeve show graphs/4711-0000-936nodes.json.gz     why is one of them so large?

The program runs with steeve's drop-in library preloaded, which plans its memory and writes a file for each new plan. Its
input and output are its own; a table of the graphs is printed to the error stream when it has ended. Column steeve is what
the drop-in takes by default, more what it takes with STEEVE_REUSE=more, and bound the fewest bytes that any plan without
that needs. Other settings of the drop-in, such as STEEVE_LOG=1, are passed on; docs/ggml.md lists them.

The library is built by cargo build --release -p steeve-ggml in a checkout of steeve. It is searched next to this
program and in ../lib from there, unless --library or STEEVE_LIBRARY names it.

Exit status: the program's own, 128 + the signal's number if it was killed, 2 if it could not be run."
)]
pub(crate) struct RecordArgs {
    /// The folder to write graphs to; files already in it are kept.
    #[arg(short, long, value_name = "DIR", default_value = "steeve-recorded")]
    pub(crate) out: PathBuf,

    /// The drop-in library, libsteeve_ggml.so.
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,

    /// Show sizes as exact bytes.
    #[arg(long)]
    pub(crate) bytes: bool,

    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// The program to run, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// What the strategy `best` may cost.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SearchArgs {
    /// Budget of the search of `best` for each memory: 500ms, 2s, 5min or 20000nodes [default: 1s].
    #[arg(long)]
    pub(crate) budget: Option<Budget>,

    /// Threads of the search of `best` [default: 1].
    #[arg(long, value_name = "COUNT", value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// Returns the manual page of a command, or of all of steeve.
pub(crate) fn manual_page(name: Option<&str>) -> Result<Vec<u8>, clap::Error> {
    let mut cli = Cli::command();
    cli.build();
    let command = match name {
        None => cli,
        Some(name) => cli.find_subcommand(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
            let message = format!("no such command: expected one of {}, got {:?}", names.join(", "), Clipped(name));
            Cli::command().error(ErrorKind::InvalidValue, message)
        })?,
    };
    // Examples keep their lines, which the library would fill and justify.
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let command = command.after_help(Resettable::Reset);
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .source(concat!("steeve ", env!("CARGO_PKG_VERSION")))
        .manual("steeve")
        .render(&mut page)?;
    page.extend(b".SH EXAMPLES\n.nf\n");
    for line in examples.trim_start_matches("Examples:\n").lines() {
        page.extend(format!("\\&{}\n", line.replace('\\', "\\e").replace('-', "\\-")).bytes());
    }
    page.extend(b".fi\n");
    Ok(page)
}

/// Returns an error about the command line that echoes no value of any length whole.
pub(crate) fn clip_values(mut error: clap::Error) -> clap::Error {
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
    text.parse().map_err(|_| format!("not a count: expected decimal digits, got {:?}", Clipped(text)))
}

/// Reads a number of parts.
fn parse_parts(text: &str) -> Result<NonZeroU64, String> {
    text.parse()
        .map_err(|_| format!("not a number of parts: expected 1 or more in decimal digits, got {:?}", Clipped(text)))
}

/// Reads a number of threads.
fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| format!("not a number of threads: expected 1 or more in decimal digits, got {:?}", Clipped(text)))
}

/// Returns the names of the options that are given.
fn given<const COUNT: usize>(options: [(&'static str, bool); COUNT]) -> Vec<&'static str> {
    options.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
}

impl SearchArgs {
    pub(crate) fn is_given(&self) -> bool {
        !self.given().is_empty()
    }

    /// Returns the names of those of these options that are given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        given([("--budget", self.budget.is_some()), ("--threads", self.threads.is_some())])
    }

    /// Returns the strategy `best` with this budget and number of threads.
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
    /// Capacity of each memory, all its buffers together: bytes, or with a unit such as 64K, 1.5MiB, 2G.
    /// MEMORY= gives that of one memory, as in CUDA0=8GiB; may be repeated
    #[arg(long, value_name = "[MEMORY=]SIZE", value_parser = parse_capacity, verbatim_doc_comment)]
    capacity: Vec<Capacity>,

    /// Maximum size of a buffer; a memory then has several. A single larger block gets a buffer of its own size.
    /// In a graph this replaces the limit of each memory
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, verbatim_doc_comment)]
    pub(crate) max_buffer: Option<Bytes>,

    /// Minimum alignment of every block or tensor, a power of two.
    #[arg(long, value_name = "SIZE", value_parser = parse_align)]
    pub(crate) align: Option<Align>,

    /// Keep blocks that have an offset in the file at that offset (block lists only).
    #[arg(long)]
    pub(crate) pinned: bool,
}

impl LimitArgs {
    /// Returns the capacity of each memory. Fails if one is given twice.
    pub(crate) fn capacities(&self) -> Result<Capacities<'_>, Error> {
        Capacities::new(&self.capacity)
    }

    /// Returns the names of those of these options that are given.
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
    /// Maximum size of each input file, unpacked, such as 64K or 1.5GiB [default: 256MiB].
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
    /// Print one JSON object per result, a line each, instead of a table.
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
