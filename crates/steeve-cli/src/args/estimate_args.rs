//! `steeve estimate`: what may be asked of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use steeve_plan::{Budget, Clipped};

use super::OutputArgs;
use crate::capacity::{Capacity, parse_capacity};

#[derive(Debug, Args)]
#[command(
    override_usage = "steeve estimate [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "\
Examples:
  steeve estimate -- llama-server -m model.gguf -c 8192
  steeve estimate --capacity CUDA0=8GiB -- llama-server -m model.gguf -c 32768 -ngl 99
  steeve estimate --json -- python3 transcribe.py
  steeve estimate --settle 30s -- llama-server -m model.gguf -fit off    wait longer before it is ended

The program runs with steeve's drop-in library preloaded. It is ended when nothing has been planned or allocated for
--settle since its last plan, with all that it has started: asked first, killed after 5 seconds. A program that begins
with a dry run, as llama-server does unless -fit off is given, is so ended before it has loaded its weights; after several
dry runs it is watched until it reserves the parameters it has chosen. What it prints is not shown.

A row is a device; the host is called CPU, pinned memory included. compute is what the buffers of its graphs take, with
ggml's allocator and with steeve's; weights and caches are what the program allocates or asks the size of through ggml, or
maps from a file. What is not known is a dash, and counts nothing in the totals. Below the table is where each figure
comes from. Not counted is what is allocated outside of ggml's buffers: a driver's own memory, a backend's scratch, the
program itself.

A context that is freed before the next is made is not counted twice: the figures are those of the moment at which most of
a device was in use. Dry runs do not count once something was really reserved; if nothing was, the last of them counts.

Exit status: 0 done, 1 it does not fit into a --capacity (with steeve), 2 nothing was planned, or it could not be run."
)]
pub(crate) struct EstimateArgs {
    /// Capacity of each device, or of one, as in CUDA0=8GiB; may be repeated.
    #[arg(long, value_name = "[DEVICE=]SIZE", value_parser = parse_capacity)]
    pub(crate) capacity: Vec<Capacity>,

    /// End the program this long after its last plan.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    pub(crate) settle: Duration,

    /// End the program after this time in any case.
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = parse_time)]
    pub(crate) timeout: Duration,

    /// The drop-in library, libsteeve_ggml.so.
    #[arg(long, value_name = "FILE")]
    pub(crate) library: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// The program to run, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

/// Reads a time.
fn parse_time(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(Budget::Time(time)) => Ok(time),
        _ => {
            Err(format!("not a time: expected a number and a unit, such as 500ms, 2s or 5min, got {:?}", Clipped(text)))
        }
    }
}
