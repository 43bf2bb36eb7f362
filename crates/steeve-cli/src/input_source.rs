//! Where bytes come from: files, folders and the standard input.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use steeve_models::{FileIdentity, FileReader};

use crate::error::Error;

/// Where bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InputSource {
    Stdin,
    File(PathBuf),
}

impl InputSource {
    pub(crate) fn new(path: &Path) -> Self {
        if path.as_os_str() == "-" { Self::Stdin } else { Self::File(path.to_owned()) }
    }

    /// Returns the name without its folders, for tables.
    pub(crate) fn short_name(&self) -> String {
        match self {
            Self::File(path) => {
                path.file_name().map_or_else(|| self.to_string(), |it| it.to_string_lossy().into_owned())
            }
            Self::Stdin => self.to_string(),
        }
    }

    /// Returns whether the name has this ending, in any case and before any `.gz`.
    pub(crate) fn ends_with(&self, ending: &str) -> bool {
        let Self::File(path) = self else { return false };
        let name = path.to_string_lossy().to_lowercase();
        name.strip_suffix(".gz").unwrap_or(&name).ends_with(ending)
    }

    /// Opens it to be read, unpacked where it is gzip.
    pub(crate) fn open(&self) -> Result<FileReader<'static>, Error> {
        Ok(match self {
            Self::Stdin => FileReader::of_reader(self.to_string(), io::stdin().lock())?,
            Self::File(path) => FileReader::open(path)?,
        })
    }

    /// Returns which regular file it is, if it is one.
    pub(crate) fn identity(&self) -> Option<FileIdentity> {
        match self {
            Self::Stdin => FileIdentity::of_stdin(),
            Self::File(path) => FileIdentity::of_path(path),
        }
    }
}

impl fmt::Display for InputSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("<stdin>"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Returns the files to work on: folders are replaced by the files in them that can be planned, patterns by their matches.
pub(crate) fn input_sources(paths: &[PathBuf]) -> Vec<Result<InputSource, Error>> {
    let mut sources = Vec::new();
    for path in paths.iter().flat_map(|path| expand_pattern(path)) {
        let path = match path {
            Ok(path) => path,
            Err(error) => {
                sources.push(Err(error));
                continue;
            }
        };
        let path = path.as_path();
        if !path.is_dir() {
            sources.push(Ok(InputSource::new(path)));
            continue;
        }
        let mut files = Vec::new();
        match collect(path, &mut files) {
            Ok(()) if files.is_empty() => {
                sources.push(Err(Error::EmptyFolder { file: path.display().to_string() }));
            }
            Ok(()) => {
                files.sort();
                sources.extend(files.into_iter().map(|file| Ok(InputSource::File(file))));
            }
            Err(source) => sources.push(Err(Error::Read { file: path.display().to_string(), source })),
        }
    }
    sources
}

/// Expands a pattern, for shells that leave it alone, and for `**`, which few of them know. A path that exists is no pattern,
/// whatever letters it has.
fn expand_pattern(path: &Path) -> Vec<Result<PathBuf, Error>> {
    let plain = || vec![Ok(path.to_owned())];
    let Some(text) = path.to_str().filter(|text| text.contains(['*', '?', '['])) else { return plain() };
    if path.exists() {
        return plain();
    }
    let pattern = match glob::glob(text) {
        Ok(pattern) => pattern,
        Err(error) => return vec![Err(Error::Pattern { pattern: text.to_owned(), why: error.msg.to_owned() })],
    };
    let found: Vec<Result<PathBuf, Error>> = pattern
        .map(|it| it.map_err(|error| Error::Read { file: error.path().display().to_string(), source: error.into() }))
        .collect();
    if found.is_empty() { vec![Err(Error::NothingFits { pattern: text.to_owned() })] } else { found }
}

/// What is taken from a folder. Other text files in it are notes more often than graphs.
const TAKEN: [&str; 6] = [".csv", ".json", ".graph", ".onnx", ".tflite", ".gguf"];

/// Collects all files of a folder and its subfolders whose names say that they can be planned.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        // Links to folders are not followed: a link may lead back to a folder around it.
        if entry.file_type()?.is_dir() && !hidden {
            collect(&path, files)?;
        } else if path.is_file() && !hidden {
            let source = InputSource::File(path);
            if TAKEN.iter().any(|ending| source.ends_with(ending))
                && let InputSource::File(path) = source
            {
                files.push(path);
            }
        }
    }
    Ok(())
}
