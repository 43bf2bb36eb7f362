//! The `steeve` command: plans tensor graphs and block lists, checks, draws and compares plans, compares strategies, explains
//! peaks, records graphs.
//!
//! Arguments in, output and an exit status out: 0 done, 1 the answer is no, 2 bad usage or input; `record` exits with that of
//! the program it runs.
//!
//! ```text
//!   Source --input::read--> block list --solve--> Solved  \
//!                           graph --graph::solve--> SolvedGraph --> Figures --> table, JSON
//!                                                               \-> Made --> -o plan, picture, header
//! ```
//!
//! A block list has one memory, a graph one or more. `plan`, `check`, `compare` and `show` say what came out, `view` draws
//! it, `diff` compares two of them; `record` makes graphs to begin with; `estimate` runs a program to see what it takes.
#![forbid(unsafe_code)]

mod args;
mod commands;

mod exit_status;
mod verbosity;
mod error;

mod input_source;
mod input_file;
mod block_list;
mod graph;

mod planned_file;
mod solve_blocks;
mod existing_plan;
mod map_loader;
mod progress_display;
mod capacity;
mod over_capacity;
mod plan_figures;
mod peak_step;
mod element_alignment;

mod check_fault;
mod check_output;
mod fault_text;

mod byte_size;
mod text_table;
mod comparison_table;
mod dim_chart;
mod folder_summary;
mod json_lines;
mod output_file;
mod drop_in_library;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, CliCommand};
use crate::commands::{
    check_command, compare_command, devices_command, diff_command, estimate_command, fit_command, plan_command,
    record_command, show_command, view_command,
};
use crate::error::Error;
use crate::exit_status::ExitStatus;

fn main() -> ExitCode {
    let mut stdout = io::stdout().lock();
    let cli = Cli::try_parse().unwrap_or_else(|error| args::clip_values(error).exit());
    let verbosity = cli.verbosity();
    let done = match cli.command {
        CliCommand::Plan(args) => plan_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::Check(args) => check_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::Compare(args) => compare_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::Show(args) => show_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::Diff(args) => diff_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::Fit(args) => fit_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::View(args) => view_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::Record(args) => record_command::run(&args, verbosity),
        CliCommand::Estimate(args) => estimate_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::Devices(args) => devices_command::run(&args, verbosity, &mut stdout).map(ExitCode::from),
        CliCommand::Completions(args) => {
            // Where the output can't be written, the generator itself would only panic.
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "steeve", &mut script);
            stdout.write_all(&script).map(|()| ExitStatus::Success.into()).map_err(Error::Output)
        }
        CliCommand::Man(args) => match args::manual_page(args.command.as_deref()) {
            Ok(page) => stdout.write_all(&page).map(|()| ExitStatus::Success.into()).map_err(Error::Output),
            Err(error) => error.exit(),
        },
    };
    // A reader may close the output early, as in `steeve plan ... | head`: that is no error.
    let enough = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    let status = match done {
        Ok(status) => status,
        Err(Error::Output(error)) if enough(&error) => ExitStatus::Success.into(),
        Err(error) => verbosity.report(&error).into(),
    };
    match stdout.flush() {
        Err(error) if !enough(&error) => verbosity.report(&Error::Output(error)).into(),
        _ => status,
    }
}
