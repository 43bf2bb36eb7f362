//! The recorded graphs: those of the corpus beside the workspace, where it is there, and those in the project itself.

use std::io::Read;
use std::path::{Path, PathBuf};

use steeve_graph::RecordedGraph;

/// Returns the folder `STEEVE_CORPUS`, else `../shared/corpus` beside the workspace root; `None`, and a line that
/// says so, if it is not there.
fn shared() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folder = std::env::var_os("STEEVE_CORPUS").map_or_else(beside, PathBuf::from).join("graphs");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("corpus: skipped, there is no {}", folder.display());
    None
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files(&path, found);
        } else if path.to_string_lossy().ends_with(".json.gz") {
            found.push(path);
        }
    }
    found.sort();
}

fn read(path: &Path) -> RecordedGraph {
    let mut json = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut json).unwrap();
    RecordedGraph::from_json(&json).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Acts on every graph, with its folder and name (`llm/qwen3...`; `project/llm/...` for the project's own, most of
/// which are in the shared corpus too). Returns how many of them are from the shared corpus.
pub(crate) fn each_graph(mut act: impl FnMut(&str, RecordedGraph)) -> usize {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/graphs");
    let mut found = Vec::new();
    let shared = shared();
    if let Some(folder) = &shared {
        files(folder, &mut found);
    }
    let counted = found.len();
    let mut in_project = Vec::new();
    files(&own, &mut in_project);
    assert!(!in_project.is_empty(), "the project's own graphs are missing");
    found.extend(in_project);
    for (index, path) in found.iter().enumerate() {
        let whose = if index < counted { "" } else { "project/" };
        let folder = path.parent().and_then(Path::file_name).unwrap().to_string_lossy();
        let name = path.file_name().unwrap().to_string_lossy();
        act(&format!("{whose}{folder}/{}", name.trim_end_matches(".json.gz")), read(path));
    }
    counted
}
