//! `steeve record`: a program run under the drop-in, and what each of its graphs would take.
//!
//! ```text
//!   program + drop-in --run--> files in the folder --the new ones--> plans --> table, on the error stream
//! ```
//!
//! The standard output is the program's own, so that it may be piped as ever.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::SystemTime;
use std::{fs, path};

use comfy_table::Cell;
use steeve_graph::{GraphStrategy, PlanOptions, Reuse};
use steeve_plan::InputLimit;

use crate::args::{GivenDims, RecordArgs};
use crate::byte_size::SizeStyle;
use crate::capacity::Capacities;
use crate::drop_in_library::DropInLibrary;
use crate::error::Error;
use crate::graph;
use crate::input_file::{self, InputFile, ReadOptions};
use crate::input_source::InputSource;
use crate::plan_figures::{MemoryFigures, PlanFigures};
use crate::text_table;
use crate::verbosity::Verbosity;

/// Runs the program under the drop-in and lists the graphs it has recorded. The exit status is that of the program.
pub(crate) fn run(args: &RecordArgs, verbosity: Verbosity) -> Result<ExitCode, Error> {
    let [program, arguments @ ..] = args.program.as_slice() else {
        return Err(Error::Usage("no program: expected steeve record -- PROGRAM ARGS".to_owned()));
    };
    if cfg!(not(target_os = "linux")) {
        let why = "steeve record: not supported on this system: preloading a library works on Linux only; link the static library (docs/ggml.md)";
        return Err(Error::Usage(why.to_owned()));
    }
    let drop_in = DropInLibrary::find(args.library.as_deref())?;
    let folder = RecordFolder::open(&args.out)?;
    if !folder.before.is_empty() {
        let (there, out) = (count_phrase(folder.before.len()), args.out.display());
        verbosity.note(format!("{out}: has {there} already; they stay, and only new ones are listed"));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    drop_in.preload_recording(&mut command, &folder.path);
    // Ctrl-C is meant for the program; what it has recorded until then is still shown. If no handler can be set, that is lost.
    let _ = ctrlc::set_handler(|| ());
    let status = command.status().map_err(|source| start_error(program, source));
    let recorded = folder.new_files()?;
    if recorded.is_empty() {
        folder.remove_if_new();
    }
    let status = status?;
    if let Some(signal) = ending_signal(status) {
        let hint =
            if CRASHES.contains(&signal) { "; if it runs well without steeve record, please report that" } else { "" };
        verbosity.error(format!("{}: killed by a signal: {status}{hint}", program.display()));
    }
    if recorded.is_empty() {
        verbosity.note(NOTHING);
    } else {
        // A closed error stream changes nothing about the program's own status.
        match show(&recorded, args, verbosity) {
            Err(Error::Output(_)) => {}
            shown => shown?,
        }
    }
    Ok(exit_code(status))
}

const NOTHING: &str = "\
nothing recorded. Likely reasons:
  - the program has not planned any graph with ggml's graph allocator
  - its ggml is linked statically or bound inside of one library, so that no preloaded library can take its place
  - it is set-user-id or a static executable, or it starts its work elsewhere (a server, a container)
  STEEVE_LOG=1 prints a line for each new plan; docs/ggml.md says more under \"When nothing happens\"";

pub(crate) fn start_error(program: &OsStr, source: io::Error) -> Error {
    let program = program.display().to_string();
    match source.kind() {
        io::ErrorKind::NotFound => Error::NoProgram { program },
        _ => Error::Start { program, source },
    }
}

/// The signals of crashes: illegal instruction, abort, bus error, arithmetic exception, segmentation fault.
const CRASHES: [i32; 5] = [4, 6, 7, 8, 11];

/// Returns the signal that ended a program, if one did.
fn ending_signal(status: ExitStatus) -> Option<i32> {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    return status.code().map_or(Some(1), |_| None);
}

/// Returns the exit code of a program; 128 + the signal's number if it was killed, as in shells.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(ending_signal(status).map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn count_phrase(graphs: usize) -> String {
    format!("{graphs} graph{}", if graphs == 1 { "" } else { "s" })
}

/// Where the graphs go, and what was there before.
struct RecordFolder {
    path: PathBuf,
    is_new: bool,
    before: BTreeMap<OsString, FileVersion>,
}

/// A file that is written anew has another one.
type FileVersion = (u64, Option<SystemTime>);

impl RecordFolder {
    fn open(out: &Path) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::RecordFolder { folder: out.display().to_string(), source };
        let is_new = !out.exists();
        fs::create_dir_all(out).map_err(failed)?;
        // The program may go to another folder, so it gets the whole path.
        let path = path::absolute(out).map_err(failed)?;
        let before = recorded_graphs(&path).map_err(failed)?;
        Ok(Self { path, is_new, before })
    }

    fn new_files(&self) -> Result<Vec<PathBuf>, Error> {
        let failed = |source: io::Error| Error::RecordFolder { folder: self.path.display().to_string(), source };
        let now = recorded_graphs(&self.path).map_err(failed)?;
        let new = now.iter().filter(|(name, version)| self.before.get(*name) != Some(version));
        Ok(new.map(|(name, _)| self.path.join(name)).collect())
    }

    /// Removes the folder again if it was created here. If that fails, an empty folder is left.
    fn remove_if_new(&self) {
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn recorded_graphs(folder: &Path) -> io::Result<BTreeMap<OsString, FileVersion>> {
    let mut graphs = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_graph = entry.file_name().as_encoded_bytes().ends_with(b".json.gz");
        if is_graph && let Ok(about) = entry.metadata() {
            graphs.insert(entry.file_name(), (about.len(), about.modified().ok()));
        }
    }
    Ok(graphs)
}

/// One graph with the drop-in's two kinds of plan.
struct RecordedGraph {
    name: String,
    nodes: usize,
    plain: PlanFigures,
    more: PlanFigures,
}

/// Plans the recorded graphs and prints a table. An unreadable graph is reported, and the others are shown.
fn show(files: &[PathBuf], args: &RecordArgs, verbosity: Verbosity) -> Result<(), Error> {
    let mut rows = Vec::new();
    for file in files {
        match plan(file, args.input.limit()) {
            Ok(row) => rows.push(row),
            Err(error) => {
                verbosity.report(&error);
            }
        }
    }
    verbosity.note(format!("{} recorded in {}", count_phrase(files.len()), args.out.display()));
    if rows.is_empty() {
        return Ok(());
    }
    let sizes = if args.bytes { SizeStyle::Exact } else { SizeStyle::Human };
    let mut shown = recorded_table(&rows, sizes);
    let mut stderr = io::stderr().lock();
    if !stderr.is_terminal() {
        shown.force_no_tty();
    }
    writeln!(stderr, "{}", shown.trim_fmt()).map_err(Error::Output)
}

fn plan(file: &Path, limit: InputLimit) -> Result<RecordedGraph, Error> {
    let source = InputSource::File(file.to_owned());
    let InputFile::Graph(graph) = input_file::read(&source, ReadOptions { limit, dims: &GivenDims::none() })? else {
        return Err(Error::Usage(format!("{source}: not a recorded graph")));
    };
    let graph = graph.for_drop_in()?;
    let figures = |reuse| {
        graph::solve_graph(&graph, &PlanOptions::new(GraphStrategy::Fast).with_reuse(reuse), Capacities::default())
    };
    Ok(RecordedGraph {
        name: source.short_name(),
        nodes: graph.assigned.graph().nodes().len(),
        plain: figures(Reuse::Ggml)?.figures,
        more: figures(Reuse::Extended)?.figures,
    })
}

/// Returns a table with a row per memory and, for several memories, one for all of them.
fn recorded_table(rows: &[RecordedGraph], sizes: SizeStyle) -> comfy_table::Table {
    let several = rows.iter().any(|row| row.plain.memories.len() > 1);
    let mut header = vec!["file", "nodes"];
    header.extend(several.then_some("memory"));
    header.extend(["ggml", "steeve", "of ggml", "bound", "more", "of ggml"]);
    let mut shown = text_table::new_table(header.into_iter().map(str::to_owned));
    for row in rows {
        let totals = (row.plain.total(), row.more.total());
        let memories = row.plain.memories.iter().zip(&row.more.memories);
        for (plain, more) in memories.chain(totals.0.iter().zip(&totals.1)) {
            let mut cells = vec![text_table::name_cell(&row.name), Cell::new(row.nodes)];
            cells.extend(several.then(|| text_table::name_cell(&plain.name)));
            cells.extend(bytes(plain, more, sizes));
            shown.add_row(cells);
        }
    }
    shown
}

fn bytes(plain: &MemoryFigures, more: &MemoryFigures, sizes: SizeStyle) -> [Cell; 6] {
    [
        Cell::new(plain.engine.map_or_else(|| "-".to_owned(), |bytes| sizes.show(bytes))),
        Cell::new(sizes.show(plain.peak)),
        text_table::engine_ratio_cell(plain.peak, plain.engine),
        Cell::new(sizes.show(plain.at_least)),
        Cell::new(sizes.show(more.peak)),
        text_table::engine_ratio_cell(more.peak, more.engine),
    ]
}
