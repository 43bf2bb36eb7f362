//! The command line: what may be asked, with an example for each command.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use steeve_plan::{Align, Best, Budget, Bytes, Strategy};

use crate::budget::parse_budget;
use crate::error::Error;
use crate::out::OutFile;
use crate::size::{SizeStyle, parse_align, parse_bytes};

/// Plans where every block of memory stands, and proves the plan.
///
/// A block is a number of bytes that is needed for a while. Block lists are CSV files (plain or gzip) with the columns
/// id, lower, upper, size and, if need be, alignment, offset, buffer, follows. `upper` is exclusive.
#[derive(Debug, Parser)]
#[command(name = "steeve", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  steeve plan blocks.csv                        how many bytes do these blocks need?
  steeve plan blocks.csv --capacity 1M          do they fit into one mebibyte?
  steeve plan blocks.csv -o plan.csv            and where does each block stand?
  steeve check blocks.csv plan.csv              does this plan hold?
  steeve compare folder/                        which strategy does best?

Exit status: 0 done, 1 the answer is no (does not fit, not valid), 2 bad usage or input.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Places the blocks of each file and shows how good the plan is.
    Plan(PlanArgs),
    /// Proves that a plan holds, or explains everything that is wrong with it.
    Check(CheckArgs),
    /// Runs every strategy on each file and shows them side by side.
    Compare(CompareArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve plan blocks.csv
  steeve plan blocks.csv.gz --strategy best --budget 2s --capacity 64MiB -o plan.json
  cat blocks.csv | steeve plan - --json

The result is optimal (no plan is smaller: proved), fits, cannot fit (into --capacity: proved) or not found (within the
budget; a plan may exist). Ctrl-C ends a search and gives the best plan so far.")]
pub(crate) struct PlanArgs {
    /// Block lists; a folder means every .csv and .csv.gz in it, - the standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// How to place the blocks [default: fast; best if a budget or threads are given].
    #[arg(long, value_enum)]
    pub(crate) strategy: Option<StrategyName>,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Write the plan to this file: .csv or .json, with .gz if it is to be compressed.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<OutFile>,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve check blocks.csv plan.json
  steeve check plan.csv --capacity 1M           the file has an offset column itself

Blocks are matched by their id. A plan that was made with --align, --max-buffer or --pinned is held to that if you give
the same options here.")]
pub(crate) struct CheckArgs {
    /// The block list; if it stands alone, with an offset column.
    #[arg(value_name = "PROBLEM")]
    pub(crate) problem: PathBuf,

    /// The plan: a CSV with an offset column, or the JSON that steeve plan -o writes.
    #[arg(value_name = "PLAN")]
    pub(crate) plan: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  steeve compare blocks.csv
  steeve compare folder/ --budget 500ms --bytes

The bound is the most that any strategy could prove: no plan is smaller. Ratios are peak by bound, rounded up, so that
1.0000 is exactly the bound. The last line has sums, and the geometric mean of the ratios.")]
pub(crate) struct CompareArgs {
    /// Block lists; a folder means every .csv and .csv.gz in it, - the standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyName {
    /// Blocks in the order of their births, as ggml's allocator places them.
    BestFit,
    /// Several quick passes and the best of them.
    Fast,
    /// The same, then a search with a budget.
    Best,
}

/// What the strategy `best` may cost.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// What `best` may cost: 500ms, 2s, 5min or 20000nodes [default: 1s].
    #[arg(long, value_parser = parse_budget)]
    pub(crate) budget: Option<Budget>,

    /// How many threads `best` may use [default: 1].
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<NonZeroUsize>,
}

impl SearchArgs {
    fn is_given(&self) -> bool {
        self.budget.is_some() || self.threads.is_some()
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
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// All buffers together must not be larger: bytes, or with a suffix such as 64K, 1.5MiB, 2G.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) capacity: Option<Bytes>,

    /// No buffer may be larger, except to hold a single block that is; there may be several buffers.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_buffer: Option<Bytes>,

    /// Align every block at least to this power of two.
    #[arg(long, value_name = "SIZE", value_parser = parse_align)]
    pub(crate) align: Option<Align>,

    /// Blocks with an offset in the file must stand there.
    #[arg(long)]
    pub(crate) pinned: bool,
}

/// How results are shown.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Print one JSON object per result and line instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Show sizes as exact bytes.
    #[arg(long)]
    pub(crate) bytes: bool,
}

impl ShowArgs {
    pub(crate) fn sizes(&self) -> SizeStyle {
        if self.bytes { SizeStyle::Exact } else { SizeStyle::Human }
    }
}

impl PlanArgs {
    /// The strategy that the arguments ask for; a budget for another than `best` is a mistake.
    pub(crate) fn strategy(&self) -> Result<Strategy, Error> {
        let searching = self.search.is_given();
        let strategy = match self.strategy {
            Some(StrategyName::BestFit) => Strategy::BestFit,
            Some(StrategyName::Fast) => Strategy::Fast,
            Some(StrategyName::Best) => Strategy::Best(self.search.best()),
            None if searching => Strategy::Best(self.search.best()),
            None => Strategy::default(),
        };
        if searching && !matches!(strategy, Strategy::Best(_)) {
            let why =
                format!("--budget and --threads are for --strategy best, not {strategy}; leave out one or the other");
            return Err(Error::Usage(why));
        }
        Ok(strategy)
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
