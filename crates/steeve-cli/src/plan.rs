//! `steeve plan`: each file placed, proven and shown.

use std::io::Write;

use comfy_table::Cell;
use steeve_plan::{Strategy, Verdict};

use crate::answer::{Answer, Tone, report, say};
use crate::args::PlanArgs;
use crate::error::Error;
use crate::input::{Job, Source, job, sources};
use crate::json::ResultLine;
use crate::progress::{Interrupt, Watcher};
use crate::size::SizeStyle;
use crate::solve::{Solved, solve};
use crate::table;

/// A mistake in one file does not keep the others from being planned.
pub(crate) fn run(args: &PlanArgs, stdout: &mut dyn Write) -> Result<Answer, Error> {
    let strategy = args.strategy()?;
    let sources = sources(&args.files);
    if args.out.is_some() && sources.len() != 1 {
        let why = format!("--out takes the plan of one file, and there are {}; plan them one by one", sources.len());
        return Err(Error::Usage(why));
    }
    let interrupt = Interrupt::listen(&strategy);
    let mut rows = Vec::new();
    let mut worst = Answer::Yes;
    let count = sources.len();
    for (index, source) in sources.into_iter().enumerate() {
        if index > 0 && interrupt.is_pressed() {
            say(Tone::Error, format!("stopped by Ctrl-C; {} of {count} files are not planned", count - index));
            worst = worst.max(Answer::No);
            break;
        }
        let planned = source.and_then(|source| plan_file(&source, args, &strategy, &interrupt));
        let row = match planned {
            Ok(row) => row,
            Err(error) => {
                worst = worst.max(report(&error));
                continue;
            }
        };
        worst = worst.max(row.answer(&strategy));
        if args.show.json {
            let line = ResultLine::new(&row.job, &strategy, &row.solved);
            print_line(stdout, &line)?;
        }
        if let Some(out) = &args.out {
            if row.fits() {
                out.write(&row.job, &strategy, &row.solved)?;
            } else {
                say(Tone::Note, format!("{}: not written, for there is no plan that fits", out.name()));
            }
        }
        rows.push(row);
    }
    if !args.show.json && !rows.is_empty() {
        let shown = show(&rows, &strategy, args.show.sizes());
        writeln!(stdout, "{}", shown.trim_fmt()).map_err(Error::Output)?;
    }
    Ok(worst)
}

/// One file with its plans.
struct Planned {
    /// The name without its folders.
    name: String,
    job: Job,
    /// One per memory of the job.
    solved: Vec<Solved>,
}

impl Planned {
    fn fits(&self) -> bool {
        self.solved.iter().all(|it| it.verdict.fits())
    }

    /// Says why a memory does not fit.
    fn answer(&self, strategy: &Strategy) -> Answer {
        for (memory, solved) in self.job.memories.iter().zip(&self.solved) {
            if let Some(why) = solved.refusal(memory, strategy) {
                say(Tone::Error, format!("{}: {why}", self.job.file));
            }
        }
        if self.fits() { Answer::Yes } else { Answer::No }
    }
}

fn plan_file(source: &Source, args: &PlanArgs, strategy: &Strategy, interrupt: &Interrupt) -> Result<Planned, Error> {
    let (name, job) = (source.short_name(), job(source, &args.limits)?);
    let mut solved = Vec::with_capacity(job.memories.len());
    for memory in &job.memories {
        let mut watcher = Watcher::new(&name, strategy, interrupt);
        solved.push(solve(&job.file, memory, strategy, &mut |progress| watcher.look(progress))?);
    }
    if interrupt.is_pressed() && solved.iter().any(|it| it.verdict != Verdict::Optimal) {
        say(Tone::Note, format!("{}: stopped by Ctrl-C; this is the best plan so far", job.file));
    }
    Ok(Planned { name, job, solved })
}

/// One line of JSON.
pub(crate) fn print_line(stdout: &mut dyn Write, line: &ResultLine<'_>) -> Result<(), Error> {
    serde_json::to_writer(&mut *stdout, line).map_err(|error| Error::Output(error.into()))?;
    writeln!(stdout).and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// What a file is called in a table: without its folders, unless that would be another one's name.
pub(crate) fn labels<'a>(names: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let unique = names.clone().all(|(short, _)| seen.insert(short));
    names.map(|(short, long)| if unique { short.to_owned() } else { long.to_owned() }).collect()
}

/// A row per memory. What is the same everywhere and says nothing (one memory, one buffer) has no column.
fn show(rows: &[Planned], strategy: &Strategy, sizes: SizeStyle) -> comfy_table::Table {
    let several_memories = rows.iter().any(|row| row.job.memories.len() > 1);
    let several_buffers = rows.iter().flat_map(|row| &row.solved).any(|it| it.plan.buffers().len() > 1);
    let mut header = vec!["file"];
    header.extend(several_memories.then_some("memory"));
    header.extend(["blocks", "peak", "bound", "ratio", "result"]);
    header.extend(several_buffers.then_some("buffers"));
    header.extend(["time", "strategy"]);
    let mut shown = table::table(header.into_iter().map(str::to_owned));
    let labels = labels(rows.iter().map(|row| (row.name.as_str(), row.job.file.as_str())));
    for (row, label) in rows.iter().zip(labels) {
        for (memory, it) in row.job.memories.iter().zip(&row.solved) {
            let mut cells = vec![Cell::new(&label)];
            cells.extend(several_memories.then(|| Cell::new(&memory.name)));
            cells.push(Cell::new(memory.problem.blocks().len()));
            cells.push(Cell::new(sizes.show(it.plan.peak())));
            cells.push(Cell::new(sizes.show(it.at_least)));
            cells.push(Cell::new(table::Ratio::new(it.plan.peak(), it.at_least)));
            cells.push(table::verdict(it.verdict));
            cells.extend(several_buffers.then(|| Cell::new(it.plan.buffers().len())));
            cells.push(Cell::new(table::time(it.time)));
            cells.push(Cell::new(strategy));
            shown.add_row(cells);
        }
    }
    shown
}
