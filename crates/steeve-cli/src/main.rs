//! The `steeve` command: plans block lists, checks plans, compares strategies.
//!
//! Arguments in, one of three answers out (the exit status: 0 done, 1 the answer is no, 2 bad usage or input). One file
//! is one [`input::Job`] with one problem per memory; [`solve`] makes a proven plan of each; `plan`, `check` and
//! `compare` say what came out, as a table, as JSON or as sentences.
#![forbid(unsafe_code)]

mod answer;
mod args;
mod budget;
mod check;
mod compare;
mod error;
mod explain;
mod input;
mod json;
mod out;
mod plan;
mod progress;
mod size;
mod solve;
mod table;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::answer::Answer;
use crate::args::{Cli, Command};
use crate::error::Error;

fn main() -> ExitCode {
    let mut stdout = io::stdout().lock();
    let done = match Cli::parse().command {
        Command::Plan(args) => plan::run(&args, &mut stdout),
        Command::Check(args) => check::run(&args, &mut stdout),
        Command::Compare(args) => compare::run(&args, &mut stdout),
    };
    // Whoever reads the output may have seen enough, as in `steeve plan ... | head`: no reason to complain.
    let enough = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    let answer = match done {
        Ok(answer) => answer,
        Err(Error::Output(error)) if enough(&error) => Answer::Yes,
        Err(error) => answer::report(&error),
    };
    match stdout.flush() {
        Err(error) if !enough(&error) => answer::report(&Error::Output(error)).into(),
        _ => answer.into(),
    }
}
