//! The recorded graphs: `STEEVE_CORPUS`, else `../shared/corpus` beside the project, else the project's own.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use steeve_graph::{RecordError, RecordedGraph};

/// A recorded graph that has not been read yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphFile {
    /// Folder and file without what it ends with: `llm/qwen3-30b-a3b.c4096.fa1.out1.pp`.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// Why a recorded graph could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// No such file, or no gzip.
    #[error("{}: {error}", .path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// It is no recorded graph.
    #[error("{}: {error}", .path.display())]
    Record {
        /// Which one.
        path: PathBuf,
        /// What is wrong.
        error: Box<RecordError>,
    },
}

/// The corpus that is there: the first folder of the three with graphs in it.
pub fn folder() -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = std::env::var_os("STEEVE_CORPUS").map_or_else(|| project.join("../shared/corpus"), PathBuf::from);
    if corpus.join("graphs").is_dir() { corpus } else { project.join("corpus") }
}

/// All graphs in the folder `graphs` of a corpus, sorted by name.
pub fn files(corpus: &Path) -> Result<Vec<GraphFile>, CorpusError> {
    let mut found = Vec::new();
    let root = corpus.join("graphs");
    collect(&root, &root, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<GraphFile>) -> Result<(), CorpusError> {
    let failed = |error| CorpusError::File { path: folder.into(), error };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            collect(root, &path, found)?;
        } else if let Ok(inner) = path.strip_prefix(root)
            && let Some(name) = inner.to_string_lossy().strip_suffix(".json.gz")
        {
            found.push(GraphFile { name: name.into(), path });
        }
    }
    Ok(())
}

impl GraphFile {
    /// Reads it.
    pub fn read(&self) -> Result<RecordedGraph, CorpusError> {
        let path = || self.path.clone();
        let mut json = Vec::new();
        fs::File::open(&self.path)
            .and_then(|file| flate2::read::GzDecoder::new(file).read_to_end(&mut json))
            .map_err(|error| CorpusError::File { path: path(), error })?;
        RecordedGraph::from_json_bytes(&json).map_err(|error| CorpusError::Record { path: path(), error: error.into() })
    }
}
