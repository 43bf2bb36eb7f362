//! `steeve diff`: what a plan takes beside another, and what explains the difference.
//!
//! ```text
//!   two files --MapLoader--> two Maps --change--> MemoryChange per memory --> sentences and tables, JSON; status
//!   two folders --pairs--> the same for each pair, and a row each
//! ```

mod allow;
mod change;
mod pairs;
mod text;

use std::io::{ErrorKind, Write};

use serde::Serialize;
use steeve_plan::Bytes;

pub(crate) use allow::{Allowance, parse_allowance};

use self::change::{BytesChange, KindChange, MemoryChange, TensorChange, TensorCounts, changes};
use self::pairs::{Compared, FilePair, pairs};
use crate::answer::{Answer, Voice};
use crate::args::{DiffArgs, LimitArgs};
use crate::error::Error;
use crate::json::{VERSION, print_line};
use crate::loaded::{LoadedMap, MapLoader};
use crate::made::Making;
use crate::peak::Moment;
use crate::progress::{FileBar, Interrupt};
use crate::source::Source;

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
        if pair.before.is_none() || pair.after.is_none() {
            if args.show.json {
                seen(bar.aside(|| print_line(stdout, &Line::of_one(pair))))?;
            }
            continue;
        }
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
        seen(write!(stdout, "{}", text::of_folders(&differences, pairs, args)).map_err(Error::Output))?;
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

/// Two plans, and what the second takes beside the first.
pub(super) struct Difference {
    name: String,
    before: LoadedMap,
    after: LoadedMap,
    memories: Vec<MemoryChange>,
    /// No where one of the plans does not hold.
    answer: Answer,
}

impl Difference {
    fn of(pair: &FilePair, loader: &MapLoader<'_>) -> Result<Self, Error> {
        let load = |source: &Option<Source>| match source {
            Some(source) => loader.load(source, None),
            None => Err(Error::Usage(format!("{}: there is nothing to compare it with", pair.name))),
        };
        let (before, after) = (load(&pair.before)?, load(&pair.after)?);
        // Of a plan and a graph, the options are for the graph.
        if before.made.is_none() && after.made.is_none() {
            after.check_options(&loader.making)?;
        }
        let voice = loader.making.voice;
        let answer = before.say_wrong("compared", voice).max(after.say_wrong("compared", voice));
        let memories = changes(&before.map, &after.map);
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
        let (after, before, memories) = (&self.after.file, &self.before.file, memories.join(", "));
        voice.error(format!(
            "{after}: is larger than {before}: {memories}; make it smaller, or accept it with --allow {most}"
        ));
    }

    fn line<'a>(&'a self, args: &DiffArgs) -> Line<'a> {
        Line {
            version: VERSION,
            before: Some(self.before.file.clone()),
            after: Some(self.after.file.clone()),
            result: self.outcome(),
            allowed: self.judge(args) == Answer::Yes,
            total: Some(Figures::new(self.total())),
            memories: self.memories.iter().map(|memory| MemoryEntry::new(memory, args)).collect(),
        }
    }
}

/// Says how many files of a folder are larger than is allowed.
fn say_larger_files(differences: &[Difference], args: &DiffArgs, voice: Voice) {
    let larger: Vec<Bytes> =
        differences.iter().filter_map(|it| it.larger(args).map(|memory| memory.peak.growth()).max()).collect();
    let Some(most) = larger.iter().max() else { return };
    let (after, before) = (args.after.display(), args.before.display());
    let (larger, count) = (larger.len(), differences.len());
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
    before: Option<String>,
    after: Option<String>,
    result: Outcome,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Figures>,
    memories: Vec<MemoryEntry<'a>>,
}

impl Line<'_> {
    /// Of a file that is in one folder alone.
    fn of_one(pair: &FilePair) -> Self {
        let name = |source: &Option<Source>| source.as_ref().map(ToString::to_string);
        let result = if pair.before.is_some() { Outcome::OnlyBefore } else { Outcome::OnlyAfter };
        let (before, after) = (name(&pair.before), name(&pair.after));
        Self { version: VERSION, before, after, result, allowed: true, total: None, memories: Vec::new() }
    }
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
        Self { bytes, ratio: bytes.ratio().map(|ratio| ratio.0) }
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
    fullest: Moments,
    tensors: TensorCounts,
    by_role: &'a [KindChange],
    by_operation: &'a [KindChange],
    by_layer: &'a [KindChange],
    changes: &'a [TensorChange],
    /// Those that are not listed.
    more: More,
}

#[derive(Serialize)]
struct Moments {
    before: Moment,
    after: Moment,
}

/// What did not make it into a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct More {
    count: usize,
    difference: i128,
}

impl<'a> MemoryEntry<'a> {
    fn new(memory: &'a MemoryChange, args: &DiffArgs) -> Self {
        let (changes, more) = split(memory, args.top);
        let [before, after] = memory.fullest;
        Self {
            name: &memory.name,
            figures: Figures::new(memory.peak),
            allowed: args.allowance().allows(memory.peak),
            live: memory.live,
            fullest: Moments { before, after },
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
    (listed, More { count: rest.len(), difference: rest.iter().map(|it| it.bytes.difference).sum() })
}
