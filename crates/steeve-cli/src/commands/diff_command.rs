//! `steeve diff`: what a plan takes beside another, and what explains the difference.
//!
//! ```text
//!   two files --MapLoader--> two Maps --steeve_view::changes--> MemoryChange per memory --> sentences, tables, JSON; status
//!   two folders --pairs--> the same for each pair, and a row each; a file of one folder alone is compared with nothing
//! ```

mod allowance;
mod file_pairs;
mod diff_text;

use std::io::{ErrorKind, Write};

use serde::Serialize;
use steeve_plan::Bytes;
use steeve_view::{BytesChange, KindChange, MemoryChange, PlanMap, StepUnit, TensorChange, TensorCounts, changes};

pub(crate) use allowance::{Allowance, parse_allowance};

use self::file_pairs::{ComparedPaths, FilePair, pairs};
use crate::args::{DiffArgs, LimitArgs};
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::input_file::ReadOptions;
use crate::input_source::InputSource;
use crate::json_lines::{JSON_VERSION, print_line};
use crate::map_loader::{LoadedMap, MapLoader};
use crate::peak_step::PeakStep;
use crate::planned_file::FilePlanner;
use crate::progress_display::{FileProgress, InterruptFlag};
use crate::text_table::{OmittedRest, OmittedTotal, SizeRatio};
use crate::verbosity::Verbosity;

/// Compares two plans, or two folders of them. The status is 1 if the second is larger than allowed.
pub(crate) fn run(args: &DiffArgs, verbosity: Verbosity, stdout: &mut dyn Write) -> Result<ExitStatus, Error> {
    args.planning.check(&args.search)?;
    let (interrupt, limits) = (InterruptFlag::default(), LimitArgs::default());
    let planner = FilePlanner {
        planning: &args.planning,
        search: &args.search,
        limits: &limits,
        format: None,
        interrupt: &interrupt,
        verbosity,
    };
    let dims = args.dims.single()?;
    let loader = MapLoader { planner, options: ReadOptions { limit: args.input.limit(), dims: &dims } };
    match pairs(&args.before, &args.after)? {
        ComparedPaths::Files(pair) => {
            let difference = PlanDifference::of(&pair, &loader)?;
            dims.check_names()?;
            let status = difference.status.max(difference.growth_status(args));
            ignore_closed_pipe(match args.output.json {
                true => print_line(stdout, &difference.line(args)),
                false => write!(stdout, "{}", diff_text::format_pair(&difference, args)).map_err(Error::Output),
            })?;
            difference.report_growth(args, verbosity);
            Ok(status)
        }
        ComparedPaths::Folders(pairs) => {
            let status = folders(&pairs, args, &loader, stdout)?;
            dims.check_names().map(|()| status)
        }
    }
}

/// Compares the files of two folders. An invalid file is reported, and the others are compared.
fn folders(
    pairs: &[FilePair],
    args: &DiffArgs,
    loader: &MapLoader<'_>,
    stdout: &mut dyn Write,
) -> Result<ExitStatus, Error> {
    let (verbosity, interrupt) = (loader.planner.verbosity, loader.planner.interrupt);
    let mut worst = ExitStatus::Success;
    let mut differences = Vec::new();
    let bar = FileProgress::new(pairs.len(), verbosity);
    for (index, pair) in pairs.iter().enumerate() {
        if index > 0 && interrupt.is_set() {
            let (left, count) = (pairs.len() - index, pairs.len());
            bar.suspended(|| verbosity.error(format!("stopped by Ctrl-C: {left} of {count} files not compared")));
            worst = worst.max(ExitStatus::Negative);
            break;
        }
        bar.next(&pair.name);
        match bar.suspended(|| PlanDifference::of(pair, loader)) {
            Ok(difference) => {
                worst = worst.max(difference.status).max(difference.growth_status(args));
                if args.output.json {
                    ignore_closed_pipe(bar.suspended(|| print_line(stdout, &difference.line(args))))?;
                }
                differences.push(difference);
            }
            Err(error) => worst = worst.max(bar.suspended(|| verbosity.report(&error))),
        }
    }
    drop(bar);
    if !args.output.json {
        ignore_closed_pipe(write!(stdout, "{}", diff_text::format_folders(&differences, args)).map_err(Error::Output))?;
    }
    report_files_that_grew(&differences, args, verbosity);
    Ok(worst)
}

/// Ignores a closed output, which changes nothing about the status.
fn ignore_closed_pipe(written: Result<(), Error>) -> Result<(), Error> {
    match written {
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Two plans, and what the second takes beside the first; or one, where a file is in one folder alone.
pub(super) struct PlanDifference {
    name: String,
    /// At least one of both is there.
    before: Option<LoadedMap>,
    after: Option<LoadedMap>,
    memories: Vec<MemoryChange>,
    /// No where one of the plans does not hold.
    status: ExitStatus,
}

impl PlanDifference {
    fn of(pair: &FilePair, loader: &MapLoader<'_>) -> Result<Self, Error> {
        let load = |source: &Option<InputSource>| source.as_ref().map(|source| loader.load(source, None)).transpose();
        let (before, after) = (load(&pair.before)?, load(&pair.after)?);
        let sides = || [&before, &after].into_iter().flatten();
        // Of a plan and a graph, the options are for the graph.
        if let Some(last) = sides().last().filter(|_| sides().all(|it| it.planned.is_none())) {
            last.check_options(&loader.planner)?;
        }
        let verbosity = loader.planner.verbosity;
        let status = sides().map(|it| it.report_faults("compared", verbosity)).max().unwrap_or(ExitStatus::Success);
        let memories = match (&before, &after) {
            (Some(before), Some(after)) => changes(&before.map, &after.map),
            (Some(before), None) => changes(&before.map, &empty(&before.map)),
            (None, Some(after)) => changes(&empty(&after.map), &after.map),
            (None, None) => Vec::new(),
        };
        Ok(Self { name: pair.name.clone(), before, after, memories, status })
    }

    /// Returns the change of all memories together.
    fn total(&self) -> BytesChange {
        self.memories.iter().fold(BytesChange::default(), |sum, memory| sum.and(memory.peak))
    }

    fn larger(&self, args: &DiffArgs) -> impl Iterator<Item = &MemoryChange> {
        let allowance = args.allowance();
        self.memories.iter().filter(move |memory| !allowance.allows(memory.peak))
    }

    fn growth_status(&self, args: &DiffArgs) -> ExitStatus {
        if self.larger(args).next().is_none() { ExitStatus::Success } else { ExitStatus::Negative }
    }

    fn outcome(&self) -> DiffOutcome {
        match (&self.before, &self.after) {
            (Some(_), None) => return DiffOutcome::OnlyBefore,
            (None, Some(_)) => return DiffOutcome::OnlyAfter,
            _ => {}
        }
        let any = |is: fn(i128) -> bool| self.memories.iter().any(|memory| is(memory.peak.difference));
        if any(|it| it > 0) {
            DiffOutcome::Grew
        } else if any(|it| it < 0) {
            DiffOutcome::Shrank
        } else if self.memories.iter().all(|memory| memory.tensors.is_empty()) {
            DiffOutcome::Equal
        } else {
            DiffOutcome::SameSize
        }
    }

    /// Says which memories are larger than is allowed.
    fn report_growth(&self, args: &DiffArgs, verbosity: Verbosity) {
        let sizes = args.output.sizes();
        let larger = |memory: &MemoryChange| {
            let allowed = match args.allowance().of(memory.peak.before) {
                Bytes::ZERO => String::new(),
                allowed => format!(" ({} are allowed)", sizes.show(allowed)),
            };
            format!("{} by {}{allowed}", diff_text::memory_name(&memory.name), sizes.show(memory.peak.growth()))
        };
        let memories: Vec<String> = self.larger(args).map(larger).collect();
        let Some(most) = self.larger(args).map(|memory| memory.peak.growth()).max() else { return };
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return };
        let (after, before, memories) = (&after.file, &before.file, memories.join(", "));
        verbosity.error(format!("{after}: is larger than {before}: {memories}; to accept it: --allow {most}"));
    }

    fn line<'a>(&'a self, args: &DiffArgs) -> DiffLine<'a> {
        DiffLine {
            version: JSON_VERSION,
            before: self.before.as_ref().map(|it| it.file.as_str()),
            after: self.after.as_ref().map(|it| it.file.as_str()),
            result: self.outcome(),
            allowed: self.growth_status(args) == ExitStatus::Success,
            total: ByteFigures::new(self.total()),
            memories: self.memories.iter().map(|memory| DiffMemory::new(self, memory, args)).collect(),
        }
    }
}

/// Makes an empty plan, to compare a file with that is in one folder alone.
fn empty(other: &PlanMap) -> PlanMap {
    let mut map = PlanMap::new("", Vec::new());
    map.unit = other.unit;
    map
}

/// Says how many files of a folder are larger than is allowed.
fn report_files_that_grew(differences: &[PlanDifference], args: &DiffArgs, verbosity: Verbosity) {
    let larger: Vec<Bytes> =
        differences.iter().filter_map(|it| it.larger(args).map(|memory| memory.peak.growth()).max()).collect();
    let Some(most) = larger.iter().max() else { return };
    let (after, before) = (args.after.display(), args.before.display());
    let (larger, count) = (larger.len(), differences.iter().filter(|it| it.after.is_some()).count());
    verbosity
        .error(format!("{after}: is larger than {before}: {larger} of {count} files; to accept them: --allow {most}"));
}

/// What has become of a file, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum DiffOutcome {
    /// Every tensor is where it was, and as large.
    Equal,
    /// Every memory takes as many bytes as before.
    SameSize,
    /// A memory takes more than before.
    Grew,
    /// A memory takes less than before, and none takes more.
    Shrank,
    OnlyBefore,
    OnlyAfter,
}

/// What `--json` prints for one pair.
#[derive(Serialize)]
struct DiffLine<'a> {
    version: u32,
    before: Option<&'a str>,
    after: Option<&'a str>,
    result: DiffOutcome,
    allowed: bool,
    total: ByteFigures,
    memories: Vec<DiffMemory<'a>>,
}

/// Returns the ratio of the bytes after to those before; `None` if there were none.
fn ratio(bytes: BytesChange) -> Option<SizeRatio> {
    (bytes.before > Bytes::ZERO).then(|| SizeRatio::new(bytes.after, bytes.before))
}

/// Bytes before and after, and how they compare.
#[derive(Serialize)]
struct ByteFigures {
    #[serde(flatten)]
    bytes: BytesChange,
    /// Nothing where there were none before.
    ratio: Option<f64>,
}

impl ByteFigures {
    fn new(bytes: BytesChange) -> Self {
        Self { bytes, ratio: ratio(bytes).map(|ratio| ratio.0) }
    }
}

/// One memory of a pair, for programs.
#[derive(Serialize)]
struct DiffMemory<'a> {
    name: &'a str,
    #[serde(flatten)]
    figures: ByteFigures,
    allowed: bool,
    live: BytesChange,
    fullest: PeakSteps,
    tensors: TensorCounts,
    by_role: &'a [KindChange],
    by_operation: &'a [KindChange],
    by_layer: &'a [KindChange],
    changes: &'a [TensorChange],
    /// Those that are not listed.
    more: OmittedRest,
}

#[derive(Serialize)]
struct PeakSteps {
    before: PeakStep,
    after: PeakStep,
}

impl<'a> DiffMemory<'a> {
    fn new(difference: &PlanDifference, memory: &'a MemoryChange, args: &DiffArgs) -> Self {
        let (changes, more) = split(memory, args.top);
        let step = |own: &Option<LoadedMap>, other: &Option<LoadedMap>, side: usize| {
            let map = own.as_ref().or(other.as_ref()).map(|it| &it.map);
            PeakStep::new(map.map_or(StepUnit::Step, |it| it.unit), memory.fullest[side])
        };
        let (old, new) = (&difference.before, &difference.after);
        let (before, after) = (step(old, new, 0), step(new, old, 1));
        Self {
            name: &memory.name,
            figures: ByteFigures::new(memory.peak),
            allowed: args.allowance().allows(memory.peak),
            live: memory.live,
            fullest: PeakSteps { before, after },
            tensors: memory.tensors,
            by_role: &memory.by_role,
            by_operation: &memory.by_operation,
            by_layer: &memory.by_layer,
            changes,
            more,
        }
    }
}

/// Splits off the largest `top` changes, and sums up the rest.
fn split(memory: &MemoryChange, top: usize) -> (&[TensorChange], OmittedRest) {
    let (listed, rest) = memory.changes.split_at(top.min(memory.changes.len()));
    let sum = OmittedTotal::Difference(rest.iter().map(|it| it.bytes.difference).sum());
    (listed, OmittedRest { count: rest.len(), sum })
}
