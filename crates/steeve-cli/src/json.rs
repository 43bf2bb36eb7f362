//! Results as JSON, one line each (`--json`), and what a JSON file is before anyone has read it.
//!
//! The same with every place is a plan file (`-o plan.json`): see [`block_plan`](crate::block_plan) and
//! [`graph`](crate::graph).

use std::io::Write;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use steeve_plan::{Align, Bytes};

use crate::error::Error;
use crate::figures::{Figures, MemoryFigures};

/// The version of all our forms. A reader refuses any other.
pub(crate) const VERSION: u32 = 1;

/// The schema of recorded graphs.
pub(crate) const RECORDED: &str = "galloc-dump-1";

/// What `--json` prints for one file.
#[derive(Debug, Serialize)]
pub(crate) struct ResultLine<'a> {
    version: u32,
    file: &'a str,
    strategy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reuse: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<&'static str>,
    status: &'static str,
    plan_us: u64,
    buffers: Vec<MemoryEntry<'a>>,
}

impl<'a> ResultLine<'a> {
    pub(crate) fn new(file: &'a str, figures: &'a Figures) -> Self {
        Self {
            version: VERSION,
            file,
            strategy: figures.strategy,
            reuse: figures.reuse,
            unread: figures.unread,
            status: figures.status(),
            plan_us: u64::try_from(figures.time.as_micros()).unwrap_or(u64::MAX),
            buffers: entries(figures),
        }
    }
}

/// One memory of a result.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryEntry<'a> {
    name: &'a str,
    blocks: usize,
    peak: Bytes,
    lower_bound: Bytes,
    optimal: bool,
    chunks: &'a [Bytes],
    /// Of a graph's plan: what each offset is a multiple of. Blocks have an alignment each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alignment: Option<Align>,
    /// Of a graph's plan, false where live ranges are not extended as the memory asks, because ggml's layout is used there.
    #[serde(skip_serializing_if = "is_true")]
    pub(crate) keeps_hold: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ggml: Option<Bytes>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_true(value: &bool) -> bool {
    *value
}

/// The memories of a result, in their order.
pub(crate) fn entries(figures: &Figures) -> Vec<MemoryEntry<'_>> {
    fn entry(memory: &MemoryFigures) -> MemoryEntry<'_> {
        MemoryEntry {
            name: &memory.name,
            blocks: memory.blocks,
            peak: memory.peak,
            lower_bound: memory.at_least,
            optimal: memory.is_optimal(),
            chunks: &memory.chunks,
            alignment: None,
            keeps_hold: true,
            ggml: memory.ggml,
        }
    }
    figures.memories.iter().map(entry).collect()
}

/// One line of JSON.
pub(crate) fn print_line(stdout: &mut dyn Write, line: &impl Serialize) -> Result<(), Error> {
    serde_json::to_writer(&mut *stdout, line).map_err(|error| Error::Output(error.into()))?;
    writeln!(stdout).and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// What a JSON file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A graph that was recorded from ggml.
    Recorded,
    /// The plan of a block list.
    Blocks,
    /// The plan of a graph.
    Tensors,
}

/// Only the fields that tell one kind from the other.
#[derive(Deserialize)]
struct Unknown<'a> {
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
    #[serde(borrow)]
    version: Option<&'a RawValue>,
    blocks: Option<IgnoredAny>,
    tensors: Option<IgnoredAny>,
}

/// Looks at the fields of a JSON file without reading their content.
pub(crate) fn kind(file: &str, text: &str) -> Result<Kind, Error> {
    let file = file.to_owned();
    let unknown: Unknown<'_> = match serde_json::from_str(text) {
        Ok(unknown) => unknown,
        Err(source) => return Err(Error::Json { file, source }),
    };
    match unknown.schema {
        Some(schema) if is::<String, _>(schema, RECORDED) => return Ok(Kind::Recorded),
        Some(found) => return Err(Error::Schema { file, found: found.get().to_owned() }),
        None => {}
    }
    match unknown.version {
        None => return Err(Error::NoPlan { file, missing: "version" }),
        Some(found) if !is::<u32, _>(found, VERSION) => {
            return Err(Error::Version { file, found: found.get().to_owned() });
        }
        Some(_) => {}
    }
    match (unknown.blocks, unknown.tensors) {
        (Some(_), _) => Ok(Kind::Blocks),
        (None, Some(_)) => Ok(Kind::Tensors),
        (None, None) => Err(Error::NoPlan { file, missing: "blocks" }),
    }
}

/// Whether a value of a file is this one. It is parsed only if it is of the same kind: it may be of any size.
fn is<T: for<'de> Deserialize<'de> + PartialEq<U>, U>(found: &RawValue, known: U) -> bool {
    serde_json::from_str::<T>(found.get()).is_ok_and(|found| found == known)
}
