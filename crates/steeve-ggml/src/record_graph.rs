//! Each graph as a file of the corpus's form: a bug report, and the way to plan it elsewhere.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use steeve_graph::recorded::{BackendNeeds, PriorAllocation, RecordedPlace, RecordedPlacement, RecordingNotes};
use steeve_graph::{Id, Memory, RecordedGraph, ggml_placement};

use crate::ggml_instance::KnownGgml;
use crate::log::log_stderr;
use crate::read_graph::{BufferIds, PlannedMemories, ReadPurpose, TensorLists, read};

/// Writes a graph into the folder, which is made if need be. A failure is logged, and has no other effect.
///
/// # Safety
/// A graph of this ggml's.
pub(crate) unsafe fn record(
    ggml: &KnownGgml,
    lists: TensorLists<'_>,
    memories: &PlannedMemories,
    ids: &BufferIds,
    folder: &Path,
) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: passed on.
    let graph = match unsafe { read(ggml, lists, memories, ids, ReadPurpose::Record) } {
        Ok(graph) => graph,
        Err(why) => return log_stderr!("graph {number}: not recorded: {why}"),
    };
    let answer = match ggml_placement(&graph.assigned) {
        Ok(answer) => answer,
        Err(error) => return log_stderr!("graph {number}: not recorded: {error}"),
    };
    let places = answer.places.iter().map(|place| {
        let it = (*place)?;
        Some(RecordedPlace {
            memory: it.memory,
            chunk: it.place.buffer.index() as u32,
            offset: it.place.offset,
            size_max: it.size,
        })
    });
    // A memory that shares another's repeats its chunks.
    let chunks = graph.assigned.memories().ids().map(|memory| answer.chunks[graph.assigned.owner(memory)].clone());
    let before = graph.tensors.iter().map(|tensor| {
        // SAFETY: a tensor of the graph.
        let tensor = unsafe { &**tensor };
        let bits = u8::from(!tensor.data.is_null()) | u8::from(!tensor.buffer.is_null()) << 1;
        PriorAllocation { bits, buffer_type: None }
    });
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let recorded = RecordedGraph {
        hosts: memories.is_host.iter().copied().map(Some).collect(),
        needs: graph.assigned.memories().iter().map(needs).collect(),
        placement: RecordedPlacement { places: places.collect(), chunks: chunks.collect() },
        ids: (0..graph.tensors.len() as u64).map(Some).collect(),
        prior: before.collect(),
        buffer_types: Vec::new(),
        notes: RecordingNotes { tag: format!("{program}, ggml {}", ggml.version()), ..RecordingNotes::default() },
        assigned: graph.assigned,
    };
    let name = |number| format!("{}-{number:04}-{}nodes.json.gz", std::process::id(), lists.nodes.len());
    let others = std::iter::repeat_with(|| COUNT.fetch_add(1, Ordering::Relaxed));
    let names = std::iter::once(number).chain(others).map(name);
    if let Err(error) = write_recording(folder, names, &recorded.to_json()) {
        log_stderr!("graph {number}: cannot write to {}: {error}", folder.display());
    }
}

/// Returns what plans keep for the backend of a memory.
fn needs(memory: &Memory) -> Option<BackendNeeds> {
    Some(BackendNeeds { extra_lifetime: memory.extra_lifetime, fusion: memory.fusion })
}

/// Writes a file with the first name that no other file has, all or nothing: a program that is killed leaves no half of
/// one under such a name. In a container each program may have the same process number, and what it has recorded earlier
/// stays.
fn write_recording(folder: &Path, names: impl Iterator<Item = String>, json: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (temporary_file, file) = temporary_file(folder)?;
    let written = pack(file, json).and_then(|()| link_under_free_name(&temporary_file, folder, names));
    // The recording has a name of its own by now, or is of no use.
    let _ = std::fs::remove_file(&temporary_file);
    written
}

/// Creates a temporary file whose name is that of no recording or plan, and unique among threads and processes.
pub(crate) fn temporary_file(folder: &Path) -> std::io::Result<(PathBuf, File)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".steeve-{}-{number}.tmp", std::process::id()));
        match File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < u32::MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives a finished file the first name that is free. A hard link, unlike a rename, never takes another file's name.
fn link_under_free_name(file: &Path, folder: &Path, names: impl Iterator<Item = String>) -> std::io::Result<()> {
    for path in names.map(|name| folder.join(name)) {
        match std::fs::hard_link(file, &path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            // Some file systems know no hard links.
            Err(_) if !path.exists() => return std::fs::rename(file, &path),
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn pack(file: File, json: &str) -> std::io::Result<()> {
    let mut writer = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    writer.write_all(json.as_bytes())?;
    writer.finish()?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn names() -> impl Iterator<Item = String> {
        (0..3).map(|number| format!("{number}.json.gz"))
    }

    /// Reads the files of a folder, unpacked.
    fn contents(folder: &Path) -> Vec<(String, String)> {
        let read = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry.unwrap();
            let mut text = String::new();
            flate2::read::GzDecoder::new(File::open(entry.path()).unwrap()).read_to_string(&mut text).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        };
        let mut contents: Vec<_> = std::fs::read_dir(folder).unwrap().map(read).collect();
        contents.sort();
        contents
    }

    #[test]
    fn no_file_is_overwritten_and_none_is_left_behind() {
        let folder = std::env::temp_dir().join(format!("steeve-record-{}", std::process::id()));
        for text in ["one", "two", "three"] {
            write_recording(&folder, names(), text).unwrap();
        }
        assert_eq!(write_recording(&folder, names(), "four").unwrap_err().kind(), ErrorKind::AlreadyExists);
        let expected = [("0.json.gz", "one"), ("1.json.gz", "two"), ("2.json.gz", "three")];
        assert_eq!(contents(&folder), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn whatever_has_the_name_of_a_recording_is_a_whole_one() {
        let folder = std::env::temp_dir().join(format!("steeve-record-whole-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // Until it is done, a recording is called otherwise: that is all that a program leaves when it is killed.
        let (path, file) = temporary_file(&folder).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with('.') && !name.contains(".json"), "{name}");
        drop(file);
        write_recording(&folder, names(), "one").unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(contents(&folder), [("0.json.gz".to_owned(), "one".to_owned())]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
