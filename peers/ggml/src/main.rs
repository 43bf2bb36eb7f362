//! Prints how long ggml and steeve take for the same graphs and how many bytes, or whether their answers are equal.

mod args;
mod check;
mod table;
mod sched_table;
mod mul_mat_table;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use peer_ggml::corpus::{self, GraphFile};
use peer_ggml::transformer;
use steeve_graph::AssignedGraph;

use args::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match (cli.check, cli.sched, cli.mul_mat) {
        (true, ..) => check::run(&cli),
        (_, true, _) => sched_table::run(&cli).map(|()| ExitCode::SUCCESS),
        (.., true) => mul_mat_table::run(&cli).map(|()| ExitCode::SUCCESS),
        _ => table::run(&cli).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

/// A graph that was asked for.
enum Source {
    File(GraphFile),
    Generated(usize),
}

impl Source {
    fn name(&self) -> String {
        match self {
            Self::File(file) => file.name.clone(),
            Self::Generated(nodes) => format!("generated/transformer-{nodes}"),
        }
    }

    fn graph(&self) -> Result<AssignedGraph, Box<dyn Error>> {
        Ok(match self {
            Self::File(file) => file.read()?.assigned,
            Self::Generated(nodes) => transformer::with_nodes(*nodes)?,
        })
    }
}

/// All graphs whose name passes, recorded ones first.
fn sources(cli: &Cli, passes: impl Fn(&str) -> bool) -> Result<Vec<Source>, Box<dyn Error>> {
    let folder = cli.corpus.clone().unwrap_or_else(corpus::folder);
    let files = corpus::files(&folder)?.into_iter().map(Source::File);
    let all = files.chain((1..=5).map(|thousands| Source::Generated(thousands * 1000)));
    let chosen: Vec<_> = all.filter(|source| passes(&source.name())).collect();
    if chosen.is_empty() {
        return Err(format!("there is no such graph in {}", folder.display()).into());
    }
    Ok(chosen)
}
