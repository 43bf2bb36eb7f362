//! The `steeve` command: plans tensor graphs and block lists, checks plans, compares strategies, explains peaks.
//!
//! Arguments in, one of three answers out (the exit status: 0 done, 1 the answer is no, 2 bad usage or input).
//!
//! ```text
//!   Source --input::read--> block list --solve--> Solved  \
//!                           graph --graph::solve--> SolvedGraph --> Figures --> table, JSON
//!                                                               \-> Document --> -o plan
//! ```
//!
//! A block list has one memory, a graph one or more. `plan`, `check`, `compare` and `show` say what came out.
#![forbid(unsafe_code)]

mod answer;
mod args;
mod block_list;
mod block_plan;
mod board;
mod check;
mod compare;
mod error;
mod explain;
mod figures;
mod graph;
mod input;
mod json;
mod out;
mod plan;
mod progress;
mod show;
mod size;
mod solve;
mod source;
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
        Command::Show(args) => show::run(&args, &mut stdout),
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
