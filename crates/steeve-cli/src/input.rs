//! File in, problems out: a [`Job`] has one problem per memory of the file.
//!
//! What a file is, its content says, not its name: gzip and GGUF by their first bytes, JSON by its brace, and any other
//! text is a block list. (Only ONNX has no mark of its own.) New kinds of input are new arms of [`Content`].

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use steeve_plan::csv::{self, Table};
use steeve_plan::{Block, BlockId, IdVec, Problem};

use crate::args::LimitArgs;
use crate::error::Error;
use crate::{explain, json};

/// What is to be planned for one file.
#[derive(Debug)]
pub(crate) struct Job {
    /// The file as the user named it.
    pub(crate) file: String,
    /// At least one; a block list has exactly one.
    pub(crate) memories: Vec<Memory>,
}

/// One memory: what is to stand in it, and what the file calls the blocks.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) name: String,
    pub(crate) problem: Problem,
    pub(crate) ids: IdVec<BlockId, String>,
}

/// The name of the only memory of a block list.
const ONLY_MEMORY: &str = "memory";

/// Where bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdin,
    File(PathBuf),
}

impl Source {
    pub(crate) fn new(path: &Path) -> Self {
        if path.as_os_str() == "-" { Self::Stdin } else { Self::File(path.to_owned()) }
    }

    /// The name without its folders, for tables.
    pub(crate) fn short_name(&self) -> String {
        match self {
            Self::File(path) => {
                path.file_name().map_or_else(|| self.to_string(), |it| it.to_string_lossy().into_owned())
            }
            Self::Stdin => self.to_string(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("<stdin>"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// The files to work on, with folders replaced by the block lists in them.
pub(crate) fn sources(paths: &[PathBuf]) -> Vec<Result<Source, Error>> {
    let mut sources = Vec::new();
    for path in paths {
        if !path.is_dir() {
            sources.push(Ok(Source::new(path)));
            continue;
        }
        match block_lists(path) {
            Ok(files) if files.is_empty() => {
                sources.push(Err(Error::EmptyFolder { file: path.display().to_string() }));
            }
            Ok(files) => sources.extend(files.into_iter().map(|file| Ok(Source::File(file)))),
            Err(source) => sources.push(Err(Error::Read { file: path.display().to_string(), source })),
        }
    }
    sources
}

/// The block lists of a folder in the order of their names.
fn block_lists(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        if path.is_file() && name.is_some_and(|name| name.ends_with(".csv") || name.ends_with(".csv.gz")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The problems of a file under the limits of the command line.
pub(crate) fn job(source: &Source, limits: &LimitArgs) -> Result<Job, Error> {
    let table = table(source)?;
    let problem = problem(source, &table, limits)?;
    let memory = Memory { name: ONLY_MEMORY.to_owned(), problem, ids: table.into_ids() };
    Ok(Job { file: source.to_string(), memories: vec![memory] })
}

/// The blocks of a table as a problem.
pub(crate) fn problem(source: &Source, table: &Table, limits: &LimitArgs) -> Result<Problem, Error> {
    let made = if limits.pinned { table.pinned_problem() } else { table.problem() };
    let made = made.and_then(|problem| match limits.align {
        None => Ok(problem),
        Some(align) => {
            let aligned = |block: &Block| Block { align: block.align.max(align), ..*block };
            Problem::new(problem.blocks().iter().map(aligned).collect::<IdVec<_, _>>())
        }
    });
    let mut problem = made.map_err(|error| {
        let why = explain::problem_error(&error, table.ids());
        Error::Block { file: source.to_string(), why }
    })?;
    if let Some(capacity) = limits.capacity {
        problem = problem.with_capacity(capacity);
    }
    if let Some(limit) = limits.max_buffer {
        problem = problem.with_max_buffer(limit);
    }
    Ok(problem)
}

/// Reads a block list, or the blocks of a plan in JSON.
pub(crate) fn table(source: &Source) -> Result<Table, Error> {
    let file = source.to_string();
    let bytes = unpacked(source)?;
    match Content::of(source, &bytes) {
        Content::Empty => Err(Error::Empty { file }),
        Content::Model(kind) => Err(Error::Model { file, kind }),
        Content::Binary => Err(Error::NotText { file }),
        Content::Json(text) => json::read_plan_file(&file, text),
        Content::BlockList(text) => csv::read(text).map_err(|source| Error::Csv { file, source }),
    }
}

/// What the bytes of a file are.
enum Content<'a> {
    Empty,
    Model(&'static str),
    Binary,
    Json(&'a str),
    BlockList(&'a str),
}

impl<'a> Content<'a> {
    fn of(source: &Source, bytes: &'a [u8]) -> Self {
        if bytes.starts_with(b"GGUF") {
            return Self::Model("a GGUF");
        }
        let ending = |ending: &str| match source {
            Source::File(path) => path.extension().is_some_and(|it| it.eq_ignore_ascii_case(ending)),
            Source::Stdin => false,
        };
        if ending("onnx") {
            return Self::Model("an ONNX");
        }
        let Ok(text) = str::from_utf8(bytes) else { return Self::Binary };
        match text.trim_start_matches('\u{feff}').trim_start().chars().next() {
            None => Self::Empty,
            Some('\0') => Self::Binary,
            Some('{') => Self::Json(text.trim_start_matches('\u{feff}')),
            Some(_) => Self::BlockList(text),
        }
    }
}

/// All bytes of a file, unpacked where they are gzip.
fn unpacked(source: &Source) -> Result<Vec<u8>, Error> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let file = source.to_string();
    let bytes = match source {
        Source::File(path) if path.is_dir() => return Err(Error::Folder { file }),
        Source::File(path) => fs::read(path),
        Source::Stdin => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(source) => return Err(Error::Read { file, source }),
    };
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    match MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain) {
        Ok(_) => Ok(plain),
        Err(source) => Err(Error::Gzip { file, source }),
    }
}
