//! `steeve estimate`: a program run under the drop-in until it has planned, and what it takes of each device.
//!
//! ```text
//!   program + drop-in --watch--> lines of the report --Ledger--> figures per memory --> rows per device --> table, JSON
//! ```

mod estimate_output;
mod static_ggml;
mod model_header;
mod usage_ledger;
mod report_reader;
mod watched_program;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use steeve_plan::Clipped;

use self::estimate_output::Estimate;
use self::model_header::model_header;
use self::usage_ledger::UsageLedger;
use self::watched_program::{ProgramEnd, ScratchFolder, WatchLimits, WatchedProgram, watch};
use crate::args::EstimateArgs;
use crate::capacity::Capacities;
use crate::drop_in_library::DropInLibrary;
use crate::error::{Error, ProgramOutput};
use crate::exit_status::ExitStatus;
use crate::verbosity::Verbosity;

pub(crate) fn run(args: &EstimateArgs, verbosity: Verbosity, out: &mut dyn Write) -> Result<ExitStatus, Error> {
    let [program, arguments @ ..] = args.program.as_slice() else {
        return Err(Error::Usage("no program: expected steeve estimate -- PROGRAM ARGS".to_owned()));
    };
    if cfg!(not(target_os = "linux")) {
        let why = "steeve estimate: not supported on this system: preloading a library works on Linux only";
        return Err(Error::Usage(why.to_owned()));
    }
    let capacities = Capacities::new(&args.capacity)?;
    let drop_in = DropInLibrary::find(args.library.as_deref())?;
    let scratch = ScratchFolder::make()?;
    let mut command = Command::new(program);
    command.args(arguments);
    // ggml's abort would start a debugger, and its output would hide the reason.
    command.env("GGML_NO_BACKTRACE", "1");
    drop_in.preload_reporting(&mut command, &scratch.report());
    let limits = WatchLimits { settle: args.settle, timeout: args.timeout };
    let WatchedProgram { ledger, end, objects } = watch(command, &scratch, limits)?;
    verbosity.detail(|| format!("{}: {}", program.display(), end_phrase(end)));
    if !ledger.has_plans() {
        let name = program.display().to_string();
        // A program that fails has printed why; where ggml calls its own allocator directly, nothing is reported.
        return Err(match (end, ledger.why_foreign) {
            (_, Some(why)) => Error::GgmlsOwn { program: name, why },
            (ProgramEnd::Itself(status), None) if !status.success() => {
                Error::ProgramFailed { program: name, status, printed: ProgramOutput(scratch.last_lines()) }
            }
            (ProgramEnd::Interrupted, None) => Error::EstimateStopped { program: name },
            _ => match (objects.with_ggml(find_program(program), drop_in.path()), objects.has(drop_in.path())) {
                (Some(file), Some(true) | None) => {
                    Error::GgmlInside { program: name, file: file.display().to_string() }
                }
                (_, Some(false)) => Error::NotPreloaded { program: name },
                _ if end == ProgramEnd::TimedOut => Error::NothingPlanned { program: name, timeout: args.timeout },
                _ => Error::EndedWithoutPlan { program: name },
            },
        });
    }
    note_caveats(&ledger, end, &scratch, program, verbosity);
    let models = arguments.iter().filter_map(|argument| model_header(&model_path(argument))).collect();
    let estimate = Estimate::new(&args.program, end, &ledger, models, capacities);
    if args.output.json {
        estimate.print_json(out)?;
    } else {
        estimate.print_table(args.output.sizes(), out)?;
    }
    // What the program takes is said first: it may have taken minutes to find out.
    capacities.check_names(estimate.device_names())?;
    for why in estimate.capacity_errors(args.output.sizes()) {
        verbosity.error(why);
    }
    Ok(if estimate.fits() { ExitStatus::Success } else { ExitStatus::Negative })
}

fn end_phrase(end: ProgramEnd) -> String {
    match end {
        ProgramEnd::Itself(status) => format!("ended by itself ({status})"),
        ProgramEnd::Settled => "ended after its last plan".to_owned(),
        ProgramEnd::TimedOut => "ended after --timeout".to_owned(),
        ProgramEnd::Interrupted => "ended by Ctrl-C".to_owned(),
    }
}

/// Notes whatever makes the figures others than those of a program that runs on.
fn note_caveats(ledger: &UsageLedger, end: ProgramEnd, scratch: &ScratchFolder, program: &OsStr, verbosity: Verbosity) {
    let name = program.display();
    if ledger.has_failed {
        verbosity.note(format!("{name}: out of memory for one of its plans; the figures are what it would take"));
    }
    if ledger.has_refused {
        verbosity.note(format!("{name}: one of its graphs is malformed and was refused; it is not counted"));
    }
    if let Some(why) = &ledger.why_foreign {
        let why = Clipped(why);
        verbosity.note(format!("{name}: ggml's own allocator plans some of its graphs ({why}); they are not counted"));
    }
    if !ledger.is_real && ledger.dry_runs() > 1 {
        let runs = ledger.dry_runs();
        verbosity.note(format!("{name}: made {runs} dry runs and reserved nothing; the figures are those of the last"));
    }
    if ledger.is_real && ledger.dry_runs() > 1 {
        let runs = ledger.dry_runs();
        verbosity.note(format!(
            "{name}: made {runs} dry runs before it reserved; it may have changed its parameters (llama.cpp: -fit off keeps them)"
        ));
    }
    match end {
        ProgramEnd::Itself(status) if !status.success() => verbosity.note(failure_note(program, status, scratch)),
        ProgramEnd::TimedOut => {
            verbosity.note(format!("{name}: ended after --timeout; what it would have planned later is not counted"))
        }
        ProgramEnd::Interrupted => {
            verbosity.note(format!("{name}: ended by Ctrl-C; what it would have planned later is not counted"))
        }
        ProgramEnd::Itself(_) | ProgramEnd::Settled => {}
    }
}

fn failure_note(program: &OsStr, status: process::ExitStatus, scratch: &ScratchFolder) -> String {
    let printed = ProgramOutput(scratch.last_lines());
    format!("{}: failed ({status}) after it had planned{printed}", program.display())
}

/// Returns the path in an argument, also in one such as `--model=FILE`.
fn model_path(argument: &OsStr) -> PathBuf {
    let path = Path::new(argument);
    let value = argument.to_str().and_then(|text| text.strip_prefix('-')?.split_once('='));
    value.map_or_else(|| path.to_owned(), |(_, value)| PathBuf::from(value))
}

/// Returns the file of a program, searched in `PATH` as the system does.
fn find_program(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let folders: OsString = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file())
}
