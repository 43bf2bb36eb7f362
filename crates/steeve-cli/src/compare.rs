//! `steeve compare`: every strategy on each file, side by side.

use std::io::Write;
use std::time::Duration;

use comfy_table::{Cell, Color};
use steeve_plan::{Bytes, Strategy};

use crate::answer::{Answer, Tone, report, say};
use crate::args::CompareArgs;
use crate::error::Error;
use crate::input::{Job, Source, job, sources};
use crate::json::ResultLine;
use crate::plan::{labels, print_line};
use crate::progress::{Interrupt, Watcher};
use crate::size::SizeStyle;
use crate::solve::{Solved, solve};
use crate::table::{self, Ratio};

/// The answer is no where nothing fits.
pub(crate) fn run(args: &CompareArgs, stdout: &mut dyn Write) -> Result<Answer, Error> {
    let strategies = [Strategy::BestFit, Strategy::Fast, Strategy::Best(args.search.best())];
    let interrupt = Interrupt::listen(&strategies[2]);
    let mut rows = Vec::new();
    let mut worst = Answer::Yes;
    let sources = sources(&args.files);
    let count = sources.len();
    for (index, source) in sources.into_iter().enumerate() {
        if index > 0 && interrupt.is_pressed() {
            say(Tone::Error, format!("stopped by Ctrl-C; {} of {count} files are not compared", count - index));
            worst = worst.max(Answer::No);
            break;
        }
        let compared = source.and_then(|source| compare_file(&source, args, &strategies, &interrupt));
        let compared = match compared {
            Ok(compared) => compared,
            Err(error) => {
                worst = worst.max(report(&error));
                continue;
            }
        };
        if args.show.json {
            for (strategy, solved) in strategies.iter().zip(&compared.solved) {
                print_line(stdout, &ResultLine::new(&compared.job, strategy, solved))?;
            }
        }
        worst = worst.max(compared.answer(&strategies));
        rows.extend(compared.rows());
    }
    if !args.show.json && !rows.is_empty() {
        let shown = show(&rows, &strategies, args.show.sizes());
        writeln!(stdout, "{}", shown.trim_fmt()).map_err(Error::Output)?;
    }
    Ok(worst)
}

/// One file with the plans of every strategy.
struct Compared {
    name: String,
    job: Job,
    /// By strategy, then by memory.
    solved: Vec<Vec<Solved>>,
}

fn compare_file(
    source: &Source,
    args: &CompareArgs,
    strategies: &[Strategy],
    interrupt: &Interrupt,
) -> Result<Compared, Error> {
    let (name, job) = (source.short_name(), job(source, &args.limits)?);
    let mut solved = Vec::with_capacity(strategies.len());
    for strategy in strategies {
        let plan = |memory| {
            let mut watcher = Watcher::new(&name, strategy, interrupt);
            solve(&job.file, memory, strategy, &mut |progress| watcher.look(progress))
        };
        solved.push(job.memories.iter().map(plan).collect::<Result<Vec<_>, Error>>()?);
    }
    Ok(Compared { name, job, solved })
}

impl Compared {
    /// Says why not even the last strategy, which has searched the longest, makes a memory fit.
    fn answer(&self, strategies: &[Strategy]) -> Answer {
        let mut answer = Answer::Yes;
        for (index, memory) in self.job.memories.iter().enumerate() {
            let mut tried = self.solved.iter().zip(strategies).map(|(solved, strategy)| (&solved[index], strategy));
            if tried.clone().any(|(solved, _)| solved.verdict.fits()) {
                continue;
            }
            answer = Answer::No;
            if let Some(why) = tried.next_back().and_then(|(solved, strategy)| solved.refusal(memory, strategy)) {
                say(Tone::Error, format!("{}: {why}", self.job.file));
            }
        }
        answer
    }

    /// A row per memory.
    fn rows(&self) -> impl Iterator<Item = Row> {
        let several = self.job.memories.len() > 1;
        self.job.memories.iter().enumerate().map(move |(index, memory)| {
            let suffix = if several { format!(" {}", memory.name) } else { String::new() };
            let solved = self.solved.iter().map(|solved| &solved[index]);
            let tries = solved.clone().map(|it| Try {
                peak: it.plan.peak(),
                time: it.time,
                fit: if it.verdict.fits() { Fit::Within } else { Fit::Over },
            });
            Row {
                short: format!("{}{suffix}", self.name),
                long: format!("{}{suffix}", self.job.file),
                blocks: memory.problem.blocks().len(),
                bound: solved.map(|it| it.at_least).max().unwrap_or_default(),
                tries: tries.collect(),
            }
        })
    }
}

/// The figures of one memory.
struct Row {
    short: String,
    long: String,
    blocks: usize,
    /// The most that any strategy could prove.
    bound: Bytes,
    tries: Vec<Try>,
}

/// What one strategy did.
struct Try {
    peak: Bytes,
    time: Duration,
    fit: Fit,
}

/// Whether it stays within the capacity.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Within,
    Over,
}

/// Strategies side by side; on a terminal that is too narrow for that, one below the other.
fn show(rows: &[Row], strategies: &[Strategy], sizes: SizeStyle) -> comfy_table::Table {
    let mut lines = lines(rows, sizes);
    if rows.len() > 1 {
        lines.push(summary(rows, strategies.len(), sizes));
    }
    let wide = side_by_side(&lines, strategies);
    if table::is_too_wide(&wide) { one_below_the_other(&lines, strategies) } else { wide }
}

/// The cells of one file: file, blocks and bound, then peak, ratio and time of each strategy.
struct Line {
    head: [Cell; 3],
    tries: Vec<[Cell; 3]>,
}

fn lines(rows: &[Row], sizes: SizeStyle) -> Vec<Line> {
    let labels = labels(rows.iter().map(|row| (row.short.as_str(), row.long.as_str())));
    let line = |(row, label): (&Row, String)| {
        let cells = |it: &Try| {
            let ratio = Cell::new(Ratio::new(it.peak, row.bound));
            let best = row.tries.iter().all(|other| it.peak <= other.peak);
            let peak = match it.fit {
                Fit::Over => Cell::new(format!("{} (over)", sizes.show(it.peak))).fg(Color::Red),
                Fit::Within => Cell::new(sizes.show(it.peak)),
            };
            [peak, if best { ratio.fg(Color::Green) } else { ratio }, Cell::new(table::time(it.time))]
        };
        let head = [Cell::new(label), Cell::new(row.blocks), Cell::new(sizes.show(row.bound))];
        Line { head, tries: row.tries.iter().map(cells).collect() }
    };
    rows.iter().zip(labels).map(line).collect()
}

fn side_by_side(lines: &[Line], strategies: &[Strategy]) -> comfy_table::Table {
    let columns = strategies.iter().flat_map(|it| [it.to_string(), "ratio".to_owned(), "time".to_owned()]);
    let mut shown = table::table(["file", "blocks", "bound"].map(str::to_owned).into_iter().chain(columns));
    for line in lines {
        shown.add_row(line.head.iter().chain(line.tries.iter().flatten()).cloned());
    }
    shown
}

fn one_below_the_other(lines: &[Line], strategies: &[Strategy]) -> comfy_table::Table {
    let header = ["file", "blocks", "bound", "strategy", "peak", "ratio", "time"];
    let mut shown = table::table(header.map(str::to_owned));
    for line in lines {
        let heads = std::iter::once(line.head.clone()).chain(std::iter::repeat(["", "", ""].map(Cell::new)));
        for ((head, it), strategy) in heads.zip(&line.tries).zip(strategies) {
            shown.add_row(head.into_iter().chain([Cell::new(strategy)]).chain(it.iter().cloned()));
        }
    }
    shown
}

/// Sums, and the geometric mean of the ratios, which treats a file of a kilobyte like one of a gigabyte.
fn summary(rows: &[Row], strategies: usize, sizes: SizeStyle) -> Line {
    let sum = |bytes: &dyn Fn(&Row) -> Bytes| {
        let total = rows.iter().fold(0u64, |sum, row| sum.saturating_add(bytes(row).0));
        Cell::new(sizes.show(Bytes(total)))
    };
    let blocks: usize = rows.iter().map(|row| row.blocks).sum();
    let tries = (0..strategies).map(|index| {
        let logs: f64 = rows.iter().map(|row| Ratio::new(row.tries[index].peak, row.bound).0.ln()).sum();
        let time: Duration = rows.iter().map(|row| row.tries[index].time).sum();
        let mean = Ratio((logs / rows.len() as f64).exp());
        [sum(&|row| row.tries[index].peak), Cell::new(mean), Cell::new(table::time(time))]
    });
    let head = [Cell::new(format!("all {}", rows.len())), Cell::new(blocks), sum(&|row| row.bound)];
    Line { head, tries: tries.collect() }
}
