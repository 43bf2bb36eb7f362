//! `steeve diff`: what a plan takes beside another, and what explains the difference.
//!
//! ```text
//!   two files --MapLoader--> two Maps --steeve_view::changes--> MemoryChange per memory --> sentences, tables, JSON; status
//!   two folders --pairs--> the same for each pair, and a row each; a file of one folder alone is compared with nothing
//! ```

mod allow;
mod pairs;
mod text;

use std::io::{ErrorKind, Write};

use serde::Serialize;
use steeve_plan::Bytes;
use steeve_view::{BytesChange, KindChange, MemoryChange, PlanMap, StepUnit, TensorChange, TensorCounts, changes};

pub(crate) use allow::{Allowance, parse_allowance};

use self::pairs::{Compared, FilePair, pairs};
use crate::answer::{Answer, Voice};
use crate::args::{DiffArgs, LimitArgs};
use crate::error::Error;
use crate::json::{VERSION, print_line};
use crate::loaded::{LoadedMap, MapLoader};
use crate::made::Making;
use crate::peak::PeakStep;
use crate::progress::{FileBar, Interrupt};
use crate::source::Source;
use crate::table::{More, Ratio, Sum};

/// The answer is no where the second is larger than is allowed.
pub(crate) fn run(args: &DiffArgs, voice: Voice, stdout: &mut dyn Write) -> Result<Answer, Error> {
    args.how.check(&args.search)?;
    let (interrupt, limits) = (Interrupt::default(), LimitArgs::default());
    let making =
        Making { how: &args.how, search: &args.search, limits: &limits, form: None, interrupt: &interrupt, voice };
    let loader = MapLoader { making, limit: args.input.limit() };
    match pairs(&args.before, &args.after)? {
        Compared::Files(pair) => {
            let difference = Difference::of(&pair, &loader)?;
            let answer = difference.answer.max(difference.judge(args));
            seen(match args.show.json {
                true => print_line(stdout, &difference.line(args)),
                false => write!(stdout, "{}", text::of_pair(&difference, args)).map_err(Error::Output),
            })?;
            difference.say_larger(args, voice);
            Ok(answer)
        }
        Compared::Folders(pairs) => folders(&pairs, args, &loader, stdout),
    }
}

/// A mistake in one file does not keep the others from being compared.
fn folders(
    pairs: &[FilePair],
    args: &DiffArgs,
    loader: &MapLoader<'_>,
    stdout: &mut dyn Write,
) -> Result<Answer, Error> {
    let (voice, interrupt) = (loader.making.voice, loader.making.interrupt);
    let mut worst = Answer::Yes;
    let mut differences = Vec::new();
    let bar = FileBar::new(pairs.len(), voice);
    for (index, pair) in pairs.iter().enumerate() {
        if index > 0 && interrupt.is_pressed() {
            let (left, count) = (pairs.len() - index, pairs.len());
            bar.aside(|| voice.error(format!("stopped by Ctrl-C; {left} of {count} files are not compared")));
            worst = worst.max(Answer::No);
            break;
        }
        bar.next(&pair.name);
        match bar.aside(|| Difference::of(pair, loader)) {
            Ok(difference) => {
                worst = worst.max(difference.answer).max(difference.judge(args));
                if args.show.json {
                    seen(bar.aside(|| print_line(stdout, &difference.line(args))))?;
                }
                differences.push(difference);
            }
            Err(error) => worst = worst.max(bar.aside(|| voice.report(&error))),
        }
    }
    drop(bar);
    if !args.show.json {
        seen(write!(stdout, "{}", text::of_folders(&differences, args)).map_err(Error::Output))?;
    }
    say_larger_files(&differences, args, voice);
    Ok(worst)
}

/// A reader that has seen enough changes nothing about the status.
fn seen(written: Result<(), Error>) -> Result<(), Error> {
    match written {
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Two plans, and what the second takes beside the first; or one, where a file is in one folder alone.
pub(super) struct Difference {
    name: String,
    /// At least one of both is there.
    before: Option<LoadedMap>,
    after: Option<LoadedMap>,
    memories: Vec<MemoryChange>,
    /// No where one of the plans does not hold.
    answer: Answer,
}

impl Difference {
    fn of(pair: &FilePair, loader: &MapLoader<'_>) -> Result<Self, Error> {
        let load = |source: &Option<Source>| source.as_ref().map(|source| loader.load(source, None)).transpose();
        let (before, after) = (load(&pair.before)?, load(&pair.after)?);
        let sides = || [&before, &after].into_iter().flatten();
        // Of a plan and a graph, the options are for the graph.
        if let Some(last) = sides().last().filter(|_| sides().all(|it| it.made.is_none())) {
            last.check_options(&loader.making)?;
        }
        let voice = loader.making.voice;
        let answer = sides().map(|it| it.say_wrong("compared", voice)).max().unwrap_or(Answer::Yes);
        let memories = match (&before, &after) {
            (Some(before), Some(after)) => changes(&before.map, &after.map),
            (Some(before), None) => changes(&before.map, &empty(&before.map)),
            (None, Some(after)) => changes(&empty(&after.map), &after.map),
            (None, None) => Vec::new(),
        };
        Ok(Self { name: pair.name.clone(), before, after, memories, answer })
    }

    /// All memories together.
    fn total(&self) -> BytesChange {
        self.memories.iter().fold(BytesChange::default(), |sum, memory| sum.and(memory.peak))
    }

    fn larger(&self, args: &DiffArgs) -> impl Iterator<Item = &MemoryChange> {
        let allowance = args.allowance();
        self.memories.iter().filter(move |memory| !allowance.allows(memory.peak))
    }

    fn judge(&self, args: &DiffArgs) -> Answer {
        if self.larger(args).next().is_none() { Answer::Yes } else { Answer::No }
    }

    fn outcome(&self) -> Outcome {
        match (&self.before, &self.after) {
            (Some(_), None) => return Outcome::OnlyBefore,
            (None, Some(_)) => return Outcome::OnlyAfter,
            _ => {}
        }
        let any = |is: fn(i128) -> bool| self.memories.iter().any(|memory| is(memory.peak.difference));
        if any(|it| it > 0) {
            Outcome::Grew
        } else if any(|it| it < 0) {
            Outcome::Shrank
        } else if self.memories.iter().all(|memory| memory.tensors.is_empty()) {
            Outcome::Equal
        } else {
            Outcome::SameSize
        }
    }

    /// Says which memories are larger than is allowed.
    fn say_larger(&self, args: &DiffArgs, voice: Voice) {
        let sizes = args.show.sizes();
        let larger = |memory: &MemoryChange| {
            let allowed = match args.allowance().of(memory.peak.before) {
                Bytes::ZERO => String::new(),
                allowed => format!(" ({} are allowed)", sizes.show(allowed)),
            };
            format!("{} by {}{allowed}", text::memory_name(&memory.name), sizes.show(memory.peak.growth()))
        };
        let memories: Vec<String> = self.larger(args).map(larger).collect();
        let Some(most) = self.larger(args).map(|memory| memory.peak.growth()).max() else { return };
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return };
        let (after, before, memories) = (&after.file, &before.file, memories.join(", "));
        voice.error(format!(
            "{after}: is larger than {before}: {memories}; make it smaller, or accept it with --allow {most}"
        ));
    }

    fn line<'a>(&'a self, args: &DiffArgs) -> Line<'a> {
        Line {
            version: VERSION,
            before: self.before.as_ref().map(|it| it.file.as_str()),
            after: self.after.as_ref().map(|it| it.file.as_str()),
            result: self.outcome(),
            allowed: self.judge(args) == Answer::Yes,
            total: Figures::new(self.total()),
            memories: self.memories.iter().map(|memory| MemoryEntry::new(self, memory, args)).collect(),
        }
    }
}

/// A plan of nothing, to compare a file with that is in one folder alone.
fn empty(other: &PlanMap) -> PlanMap {
    let mut map = PlanMap::new("", Vec::new());
    map.unit = other.unit;
    map
}

/// Says how many files of a folder are larger than is allowed.
fn say_larger_files(differences: &[Difference], args: &DiffArgs, voice: Voice) {
    let larger: Vec<Bytes> =
        differences.iter().filter_map(|it| it.larger(args).map(|memory| memory.peak.growth()).max()).collect();
    let Some(most) = larger.iter().max() else { return };
    let (after, before) = (args.after.display(), args.before.display());
    let (larger, count) = (larger.len(), differences.iter().filter(|it| it.after.is_some()).count());
    voice.error(format!(
        "{after}: is larger than {before}: {larger} of {count} files; make them smaller, or accept them with --allow {most}"
    ));
}

/// What has become of a file, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
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
struct Line<'a> {
    version: u32,
    before: Option<&'a str>,
    after: Option<&'a str>,
    result: Outcome,
    allowed: bool,
    total: Figures,
    memories: Vec<MemoryEntry<'a>>,
}

/// How many times as many bytes there are; nothing where there were none.
fn ratio(bytes: BytesChange) -> Option<Ratio> {
    (bytes.before > Bytes::ZERO).then(|| Ratio::new(bytes.after, bytes.before))
}

/// Bytes before and after, and how they compare.
#[derive(Serialize)]
struct Figures {
    #[serde(flatten)]
    bytes: BytesChange,
    /// Nothing where there were none before.
    ratio: Option<f64>,
}

impl Figures {
    fn new(bytes: BytesChange) -> Self {
        Self { bytes, ratio: ratio(bytes).map(|ratio| ratio.0) }
    }
}

/// One memory of a pair, for programs.
#[derive(Serialize)]
struct MemoryEntry<'a> {
    name: &'a str,
    #[serde(flatten)]
    figures: Figures,
    allowed: bool,
    live: BytesChange,
    fullest: PeakSteps,
    tensors: TensorCounts,
    by_role: &'a [KindChange],
    by_operation: &'a [KindChange],
    by_layer: &'a [KindChange],
    changes: &'a [TensorChange],
    /// Those that are not listed.
    more: More,
}

#[derive(Serialize)]
struct PeakSteps {
    before: PeakStep,
    after: PeakStep,
}

impl<'a> MemoryEntry<'a> {
    fn new(difference: &Difference, memory: &'a MemoryChange, args: &DiffArgs) -> Self {
        let (changes, more) = split(memory, args.top);
        let step = |own: &Option<LoadedMap>, other: &Option<LoadedMap>, side: usize| {
            let map = own.as_ref().or(other.as_ref()).map(|it| &it.map);
            PeakStep::new(map.map_or(StepUnit::Step, |it| it.unit), memory.fullest[side])
        };
        let (old, new) = (&difference.before, &difference.after);
        let (before, after) = (step(old, new, 0), step(new, old, 1));
        Self {
            name: &memory.name,
            figures: Figures::new(memory.peak),
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

/// The largest `top` changes, and the rest.
fn split(memory: &MemoryChange, top: usize) -> (&[TensorChange], More) {
    let (listed, rest) = memory.changes.split_at(top.min(memory.changes.len()));
    let sum = Sum::Difference(rest.iter().map(|it| it.bytes.difference).sum());
    (listed, More { count: rest.len(), sum })
}
