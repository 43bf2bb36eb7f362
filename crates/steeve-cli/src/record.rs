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

use crate::answer::Voice;
use crate::args::RecordArgs;
use crate::capacity::Capacities;
use crate::drop_in::DropIn;
use crate::error::Error;
use crate::figures::{Figures, MemoryFigures};
use crate::graph;
use crate::input::{self, Input};
use crate::size::SizeStyle;
use crate::source::Source;
use crate::table;

/// The exit status is the program's.
pub(crate) fn run(args: &RecordArgs, voice: Voice) -> Result<ExitCode, Error> {
    let [program, arguments @ ..] = args.program.as_slice() else {
        return Err(Error::Usage("name the program to run, as in steeve record -- PROGRAM ARGS".to_owned()));
    };
    if cfg!(not(target_os = "linux")) {
        let why = "recording preloads a library into the program, which works on Linux only; record there, or link the static library (docs/ggml.md)";
        return Err(Error::Usage(why.to_owned()));
    }
    let drop_in = DropIn::find(args.library.as_deref())?;
    let folder = Folder::open(&args.out)?;
    if !folder.before.is_empty() {
        let (there, out) = (counted(folder.before.len()), args.out.display());
        voice.note(format!("{out} has {there} already; what is there stays, and only what is new is listed"));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    drop_in.recording(&mut command, &folder.path);
    // Ctrl-C is meant for the program; what it has done until then is still to be shown. If the system refuses, that is lost.
    let _ = ctrlc::set_handler(|| ());
    let status = command.status().map_err(|source| no_start(program, source));
    let recorded = folder.new_files()?;
    if recorded.is_empty() {
        folder.give_back();
    }
    let status = status?;
    if let Some(signal) = signal(status) {
        let hint =
            if CRASHES.contains(&signal) { "; if it does well without steeve record, please report that" } else { "" };
        voice.error(format!("{} was killed ({status}){hint}", program.display()));
    }
    if recorded.is_empty() {
        voice.note(NOTHING);
    } else {
        // Whether anybody can read the table changes nothing about the program's own status.
        match show(&recorded, args, voice) {
            Err(Error::Output(_)) => {}
            shown => shown?,
        }
    }
    Ok(exit_code(status))
}

const NOTHING: &str = "\
nothing was recorded. Likely reasons:
  - the program has not planned any graph with ggml's graph allocator
  - its ggml is linked statically or bound inside of one library, so that no preloaded library can take its place
  - it is set-user-id or a static executable, or it starts its work elsewhere (a server, a container)
  STEEVE_LOG=1 prints a line for each new plan; docs/ggml.md says more under \"When nothing happens\"";

pub(crate) fn no_start(program: &OsStr, source: io::Error) -> Error {
    let program = program.display().to_string();
    match source.kind() {
        io::ErrorKind::NotFound => Error::NoProgram { program },
        _ => Error::Start { program, source },
    }
}

/// Illegal instruction, abort, bus error, arithmetic, segmentation fault: nobody sends these on purpose.
const CRASHES: [i32; 5] = [4, 6, 7, 8, 11];

/// The signal that ended a program, if one did.
fn signal(status: ExitStatus) -> Option<i32> {
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    return status.code().map_or(Some(1), |_| None);
}

/// As shells do: 128 and the signal's number for a program that was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(signal(status).map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn counted(graphs: usize) -> String {
    format!("{graphs} graph{}", if graphs == 1 { "" } else { "s" })
}

/// Where the graphs go, and what was there before.
struct Folder {
    path: PathBuf,
    is_new: bool,
    before: BTreeMap<OsString, Version>,
}

/// A file that is written anew has another one.
type Version = (u64, Option<SystemTime>);

impl Folder {
    fn open(out: &Path) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::RecordFolder { folder: out.display().to_string(), source };
        let is_new = !out.exists();
        fs::create_dir_all(out).map_err(failed)?;
        // The program may go to another folder, so it gets the whole path.
        let path = path::absolute(out).map_err(failed)?;
        let before = graphs(&path).map_err(failed)?;
        Ok(Self { path, is_new, before })
    }

    fn new_files(&self) -> Result<Vec<PathBuf>, Error> {
        let failed = |source: io::Error| Error::RecordFolder { folder: self.path.display().to_string(), source };
        let now = graphs(&self.path).map_err(failed)?;
        let new = now.iter().filter(|(name, version)| self.before.get(*name) != Some(version));
        Ok(new.map(|(name, _)| self.path.join(name)).collect())
    }

    /// A folder that was made for nothing goes. If that fails, an empty folder does no harm.
    fn give_back(&self) {
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn graphs(folder: &Path) -> io::Result<BTreeMap<OsString, Version>> {
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
struct Row {
    name: String,
    nodes: usize,
    plain: Figures,
    more: Figures,
}

/// A graph that can't be read is named, and the others are shown.
fn show(files: &[PathBuf], args: &RecordArgs, voice: Voice) -> Result<(), Error> {
    let mut rows = Vec::new();
    for file in files {
        match plan(file, args.input.limit()) {
            Ok(row) => rows.push(row),
            Err(error) => {
                voice.report(&error);
            }
        }
    }
    voice.note(format!("{} recorded in {}", counted(files.len()), args.out.display()));
    if rows.is_empty() {
        return Ok(());
    }
    let sizes = if args.bytes { SizeStyle::Exact } else { SizeStyle::Human };
    let mut shown = board(&rows, sizes);
    let mut stderr = io::stderr().lock();
    if !stderr.is_terminal() {
        shown.force_no_tty();
    }
    writeln!(stderr, "{}", shown.trim_fmt()).map_err(Error::Output)
}

fn plan(file: &Path, limit: InputLimit) -> Result<Row, Error> {
    let source = Source::File(file.to_owned());
    let Input::Graph(graph) = input::read(&source, limit)? else {
        return Err(Error::Usage(format!("{source}: is no recorded graph; use another folder")));
    };
    let graph = graph.for_drop_in()?;
    let figures =
        |reuse| graph::solve(&graph, &PlanOptions::new(GraphStrategy::Fast).with_reuse(reuse), Capacities::default());
    Ok(Row {
        name: source.short_name(),
        nodes: graph.assigned.graph().nodes().len(),
        plain: figures(Reuse::Ggml)?.figures,
        more: figures(Reuse::Extended)?.figures,
    })
}

/// A row per memory and, where there are several, one for all of them.
fn board(rows: &[Row], sizes: SizeStyle) -> comfy_table::Table {
    let several = rows.iter().any(|row| row.plain.memories.len() > 1);
    let mut header = vec!["file", "nodes"];
    header.extend(several.then_some("memory"));
    header.extend(["ggml", "steeve", "of ggml", "bound", "more", "of ggml"]);
    let mut shown = table::table(header.into_iter().map(str::to_owned));
    for row in rows {
        let totals = (row.plain.total(), row.more.total());
        let memories = row.plain.memories.iter().zip(&row.more.memories);
        for (plain, more) in memories.chain(totals.0.iter().zip(&totals.1)) {
            let mut cells = vec![table::text(&row.name), Cell::new(row.nodes)];
            cells.extend(several.then(|| table::text(&plain.name)));
            cells.extend(bytes(plain, more, sizes));
            shown.add_row(cells);
        }
    }
    shown
}

fn bytes(plain: &MemoryFigures, more: &MemoryFigures, sizes: SizeStyle) -> [Cell; 6] {
    [
        Cell::new(plain.ggml.map_or_else(|| "-".to_owned(), |bytes| sizes.show(bytes))),
        Cell::new(sizes.show(plain.peak)),
        table::of_ggml(plain.peak, plain.ggml),
        Cell::new(sizes.show(plain.at_least)),
        Cell::new(sizes.show(more.peak)),
        table::of_ggml(more.peak, more.ggml),
    ]
}
