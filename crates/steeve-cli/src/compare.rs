//! `steeve compare`: every strategy on each file, side by side. Block lists and graphs have a table each.

use std::io::Write;

use comfy_table::Cell;
use steeve_plan::csv::Table;
use steeve_plan::{Bytes, Strategy};

use crate::answer::{Answer, Voice};
use crate::args::{CompareArgs, RowName};
use crate::block_list::BlockList;
use crate::board::{Board, Fit, Line, Try, geometric_mean, try_cells};
use crate::error::Error;
use crate::figures::{Figures, sum};
use crate::graph;
use crate::input::{self, Input};
use crate::json::{ResultLine, print_line};
use crate::progress::{FileBar, Interrupt, Watcher};
use crate::size::SizeStyle;
use crate::slide;
use crate::solve::{Solved, solve};
use crate::source::{Source, sources};
use crate::table::{self, Ratio, labels};

/// The answer is no where nothing fits.
pub(crate) fn run(args: &CompareArgs, voice: Voice, stdout: &mut dyn Write) -> Result<Answer, Error> {
    let capacities = args.limits.capacities()?;
    let interrupt = Interrupt::default();
    let (mut lists, mut graphs) = (Vec::new(), Vec::new());
    let mut worst = Answer::Yes;
    let sources = sources(&args.files);
    let count = sources.len();
    let bar = FileBar::new(count, voice);
    for (index, source) in sources.into_iter().enumerate() {
        if index > 0 && interrupt.is_pressed() {
            let left = count - index;
            bar.aside(|| voice.error(format!("stopped by Ctrl-C; {left} of {count} files are not compared")));
            worst = worst.max(Answer::No);
            break;
        }
        let name = source.as_ref().map_or_else(|_| String::new(), Source::short_name);
        bar.next(&name);
        let compared =
            source.and_then(|source| compare_file(&source, args, &Watch { interrupt: &interrupt, bar: &bar, voice }));
        let compared = match compared {
            Ok(compared) => compared,
            Err(error) => {
                worst = worst.max(bar.aside(|| voice.report(&error)));
                continue;
            }
        };
        worst = worst.max(compared.answer);
        if args.show.json {
            for figures in &compared.figures {
                print_line(stdout, &ResultLine::new(&compared.file, figures))?;
            }
        }
        match compared.kind {
            Kind::Blocks => lists.push(compared),
            Kind::Graph => graphs.push(compared),
        }
    }
    drop(bar);
    if !args.show.json {
        let by_folder = match args.rows {
            Some(rows) => rows == RowName::Folder,
            None => count > MANY,
        };
        let tables = if by_folder { slide::tables } else { tables };
        show(stdout, &tables(&lists, &graphs, args.show.sizes()))?;
        if args.rows.is_none() && by_folder {
            voice.note(format!("{count} files are summed up by folder; --rows file shows each"));
        }
    }
    if !lists.is_empty() || !graphs.is_empty() {
        let figures = || lists.iter().chain(&graphs).filter_map(|it| it.figures.first());
        capacities.check_names(figures().flat_map(Figures::memory_names))?;
    }
    Ok(worst)
}

/// More files than this are summed up by folder.
const MANY: usize = 40;

/// Who looks on while a file is compared.
struct Watch<'a> {
    interrupt: &'a Interrupt,
    bar: &'a FileBar,
    voice: Voice,
}

/// One file and what every strategy made of it.
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) kind: Kind,
    pub(crate) answer: Answer,
    pub(crate) figures: Vec<Figures>,
}

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Blocks,
    Graph,
}

fn compare_file(source: &Source, args: &CompareArgs, watch: &Watch<'_>) -> Result<Compared, Error> {
    let (name, file) = (source.short_name(), source.to_string());
    match input::read(source, args.input.limit())? {
        // A search draws a bar of its own.
        Input::Blocks(table) => watch.bar.aside(|| compare_blocks(name, file, table, args, watch)),
        Input::Graph(graph) => {
            let (figures, refused) = graph::compare(&graph.limited(&args.limits)?, args)?;
            let answer = if refused.is_empty() { Answer::Yes } else { Answer::No };
            watch.bar.aside(|| refused.iter().for_each(|why| watch.voice.error(format!("{file}: {why}"))));
            Ok(Compared { name, file, kind: Kind::Graph, answer, figures })
        }
        Input::Plan(_) => Err(Error::PlanOfGraph { file }),
    }
}

fn compare_blocks(
    name: String,
    file: String,
    table: Table,
    args: &CompareArgs,
    watch: &Watch<'_>,
) -> Result<Compared, Error> {
    let list = BlockList::new(file.clone(), table, &args.limits)?;
    let strategies = [Strategy::BestFit, Strategy::Fast, Strategy::Best(args.search.best())];
    watch.interrupt.listen(&strategies[2]);
    let plan = |strategy: &Strategy| {
        let mut watcher = Watcher::new(&name, strategy, watch.interrupt, watch.voice);
        solve(&list, strategy, &mut |progress| watcher.look(progress))
    };
    let solved = strategies.iter().map(plan).collect::<Result<Vec<Solved>, Error>>()?;
    let figures: Vec<Figures> = solved.iter().zip(&strategies).map(|(it, strategy)| it.figures(strategy)).collect();
    let fits = figures.iter().any(Figures::fits);
    // The last strategy has searched the longest: its reason is the best.
    let why = solved.last().and_then(|it| it.refusal(&list, &strategies[2]));
    if let (false, Some(why)) = (fits, why) {
        watch.voice.error(format!("{file}: {why}"));
    }
    let answer = if fits { Answer::Yes } else { Answer::No };
    Ok(Compared { name, file, kind: Kind::Blocks, answer, figures })
}

/// A row per file; block lists first.
fn tables(lists: &[Compared], graphs: &[Compared], sizes: SizeStyle) -> Vec<comfy_table::Table> {
    let lists = (!lists.is_empty()).then(|| block_board(lists, sizes));
    let graphs = (!graphs.is_empty()).then(|| graph::board(graphs, sizes));
    lists.iter().chain(&graphs).map(Board::show).collect()
}

fn show(stdout: &mut dyn Write, tables: &[comfy_table::Table]) -> Result<(), Error> {
    for (index, table) in tables.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        writeln!(stdout, "{gap}{}", table.trim_fmt()).map_err(Error::Output)?;
    }
    Ok(())
}

/// The figures of one block list.
struct Row {
    blocks: usize,
    /// The most that any strategy could prove.
    bound: Bytes,
    tries: Vec<Try>,
}

impl Row {
    fn new(compared: &Compared) -> Self {
        let memories =
            || compared.figures.iter().flat_map(|figures| figures.memories.iter().map(move |it| (figures, it)));
        let tries = memories().map(|(figures, it)| Try {
            peak: it.peak,
            time: Some(figures.time),
            fit: if it.verdict.fits() { Fit::Within } else { Fit::Over },
        });
        Self {
            blocks: memories().map(|(_, it)| it.blocks).next().unwrap_or(0),
            bound: memories().map(|(_, it)| it.at_least).max().unwrap_or_default(),
            tries: tries.collect(),
        }
    }
}

fn block_board(compared: &[Compared], sizes: SizeStyle) -> Board {
    let rows: Vec<Row> = compared.iter().map(Row::new).collect();
    let labels = labels(compared.iter().map(|it| (it.name.as_str(), it.file.as_str())));
    let mut board = Board::new(vec!["file", "blocks", "bound"], vec!["best-fit", "fast", "best"]);
    for (row, label) in rows.iter().zip(labels) {
        let head = vec![table::text(&label), Cell::new(row.blocks), Cell::new(sizes.show(row.bound))];
        board.push(Line { head, tries: try_cells(&row.tries, Some(row.bound), sizes) });
    }
    if rows.len() > 1 {
        board.push(summary(&rows, sizes));
    }
    board
}

/// Sums, and the geometric mean of the ratios.
fn summary(rows: &[Row], sizes: SizeStyle) -> Line {
    let tries = (0..rows[0].tries.len()).map(|index| {
        let all = || rows.iter().map(|row| (row, row.tries[index]));
        let mean = geometric_mean(all().map(|(row, it)| Ratio::new(it.peak, row.bound).0));
        let bytes = sizes.show(sum(all().map(|(_, it)| it.peak)));
        let time = table::time(all().filter_map(|(_, it)| it.time).sum());
        [Cell::new(bytes), mean.map_or(Cell::new("-"), Cell::new), Cell::new(time)]
    });
    let blocks: usize = rows.iter().map(|row| row.blocks).sum();
    let bound = sizes.show(sum(rows.iter().map(|row| row.bound)));
    let head = vec![Cell::new(format!("all {}", rows.len())), Cell::new(blocks), Cell::new(bound)];
    Line { head, tries: tries.collect() }
}
