//! Each graph as a file of the corpus's form: a bug report, and the way to plan it elsewhere.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use steeve_graph::recorded::{Answer, Answered, Before, Notes};
use steeve_graph::{Id, Recorded, ggml_answer};

use crate::ggml::Known;
use crate::log::say;
use crate::read::{Ids, Lists, Memories, Purpose, read};

/// Writes a graph into the folder, which is made if need be. What goes wrong is said, and does not matter otherwise.
///
/// # Safety
/// A graph of this ggml's.
pub(crate) unsafe fn record(ggml: &Known, lists: Lists<'_>, memories: &Memories, ids: &Ids, folder: &Path) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: passed on.
    let graph = match unsafe { read(ggml, lists, memories, ids, Purpose::Record) } {
        Ok(graph) => graph,
        Err(why) => return say!("graph {number} is not recorded: {why:?}"),
    };
    let answer = match ggml_answer(&graph.assigned) {
        Ok(answer) => answer,
        Err(error) => return say!("graph {number} is not recorded: {error}"),
    };
    let places = answer.places.iter().map(|place| {
        let it = (*place)?;
        Some(Answered {
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
        Before { bits, buffer_type: None }
    });
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let recorded = Recorded {
        answer: Answer { places: places.collect(), chunks: chunks.collect() },
        ids: (0..graph.tensors.len() as u64).map(Some).collect(),
        before: before.collect(),
        buffer_types: Vec::new(),
        notes: Notes { tag: format!("{program}, ggml {}", ggml.version()), ..Notes::default() },
        assigned: graph.assigned,
    };
    let name = |number| format!("{}-{number:04}-{}nodes.json.gz", std::process::id(), lists.nodes.len());
    let others = std::iter::repeat_with(|| COUNT.fetch_add(1, Ordering::Relaxed));
    let file = create(folder, std::iter::once(number).chain(others).map(name));
    if let Err(error) = file.and_then(|file| write(file, &recorded.to_json())) {
        say!("graph {number} can't be written to {}: {error}", folder.display());
    }
}

/// A new file with the first name that nobody has. In a container each program may have the same process number, and what it
/// has recorded earlier stays.
fn create(folder: &Path, names: impl Iterator<Item = String>) -> std::io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let mut files = names.map(|name| File::create_new(folder.join(name)));
    let is_taken = |file: &std::io::Result<File>| file.as_ref().is_err_and(|it| it.kind() == ErrorKind::AlreadyExists);
    files.find(|file| !is_taken(file)).unwrap_or_else(|| Err(ErrorKind::AlreadyExists.into()))
}

fn write(file: File, json: &str) -> std::io::Result<()> {
    let mut writer = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    writer.write_all(json.as_bytes())?;
    writer.finish()?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_overwritten() {
        let folder = std::env::temp_dir().join(format!("steeve-record-{}", std::process::id()));
        let names = || (0..3).map(|number| format!("{number}.json.gz"));
        for text in ["one", "two"] {
            create(&folder, names()).unwrap().write_all(text.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!((read("0.json.gz"), read("1.json.gz")), ("one".into(), "two".into()));
        assert!(create(&folder, names()).is_ok());
        assert_eq!(create(&folder, names()).unwrap_err().kind(), ErrorKind::AlreadyExists);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
