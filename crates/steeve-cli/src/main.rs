//! The `steeve` command: plans tensor graphs and block lists, checks, draws and compares plans, compares strategies, explains
//! peaks, records graphs.
//!
//! Arguments in, one of three answers out (the exit status: 0 done, 1 the answer is no, 2 bad usage or input; `record` gives
//! that of the program it runs).
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

mod answer;
mod args;
mod block_list;
mod board;
mod capacity;
mod check;
mod compare;
mod devices;
mod diff;
mod drop_in;
mod element;
mod error;
mod estimate;
mod explain;
mod fault;
mod figures;
mod graph;
mod identity;
mod input;
mod json;
mod loaded;
mod made;
mod out;
mod over_capacity;
mod peak;
mod plan;
mod progress;
mod record;
mod replace;
mod show;
mod size;
mod slide;
mod solve;
mod source;
mod existing_plan;
mod table;
mod unpacked;
mod verdicts;
mod view;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::answer::Answer;
use crate::args::{Cli, Command};
use crate::error::Error;

fn main() -> ExitCode {
    let mut stdout = io::stdout().lock();
    let cli = Cli::try_parse().unwrap_or_else(|error| args::clipped(error).exit());
    let voice = cli.voice();
    let done = match cli.command {
        Command::Plan(args) => plan::run(&args, voice, &mut stdout).map(ExitCode::from),
        Command::Check(args) => check::run(&args, voice, &mut stdout).map(ExitCode::from),
        Command::Compare(args) => compare::run(&args, voice, &mut stdout).map(ExitCode::from),
        Command::Show(args) => show::run(&args, voice, &mut stdout).map(ExitCode::from),
        Command::Diff(args) => diff::run(&args, voice, &mut stdout).map(ExitCode::from),
        Command::View(args) => view::run(&args, voice, &mut stdout).map(ExitCode::from),
        Command::Record(args) => record::run(&args, voice),
        Command::Estimate(args) => estimate::run(&args, voice, &mut stdout).map(ExitCode::from),
        Command::Devices(args) => devices::run(&args, voice, &mut stdout).map(ExitCode::from),
        Command::Completions(args) => {
            // Where the output can't be written, the generator itself would only panic.
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "steeve", &mut script);
            stdout.write_all(&script).map(|()| Answer::Yes.into()).map_err(Error::Output)
        }
    };
    // Whoever reads the output may have seen enough, as in `steeve plan ... | head`: no reason to complain.
    let enough = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    let status = match done {
        Ok(status) => status,
        Err(Error::Output(error)) if enough(&error) => Answer::Yes.into(),
        Err(error) => voice.report(&error).into(),
    };
    match stdout.flush() {
        Err(error) if !enough(&error) => voice.report(&Error::Output(error)).into(),
        _ => status,
    }
}
