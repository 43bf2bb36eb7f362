//! Two paths in, pairs of files to compare out: the two themselves, or the files of two folders by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::error::Error;
use crate::input_source::{InputSource, input_sources};

/// A file before and after; at least one of them is there.
#[derive(Debug)]
pub(super) struct FilePair {
    /// What it is called in a table.
    pub(super) name: String,
    pub(super) before: Option<InputSource>,
    pub(super) after: Option<InputSource>,
}

/// What is compared.
#[derive(Debug)]
pub(super) enum ComparedPaths {
    Files(FilePair),
    Folders(Vec<FilePair>),
}

/// Looks what there is to compare.
///
/// # Errors
/// If one is a folder and the other is not, if a folder has nothing in it, or if no name is in both.
pub(super) fn pairs(before: &Path, after: &Path) -> Result<ComparedPaths, Error> {
    match (before.is_dir(), after.is_dir()) {
        (false, false) => {
            let (before, after) = (InputSource::new(before), InputSource::new(after));
            if before == InputSource::Stdin && after == InputSource::Stdin {
                return Err(Error::Usage("-: standard input given twice: expected it for one file".to_owned()));
            }
            let name = after.short_name();
            Ok(ComparedPaths::Files(FilePair { name, before: Some(before), after: Some(after) }))
        }
        (true, true) => folders(before, after).map(ComparedPaths::Folders),
        (is_folder, _) => {
            let (folder, file) = if is_folder { (before, after) } else { (after, before) };
            // What is not there at all is no file either, and that says more.
            InputSource::new(file).open()?;
            let (folder, file) = (folder.display().to_string(), file.display().to_string());
            Err(Error::FolderAndFile { folder, file })
        }
    }
}

fn folders(before: &Path, after: &Path) -> Result<Vec<FilePair>, Error> {
    let (mut old, mut new) = (files(before)?, files(after)?);
    let mut pairs = Vec::new();
    for key in [MatchKey::Name, MatchKey::RecordedGraph] {
        let mut olds = key.of_all(&old);
        let matched: Vec<(String, String)> =
            key.of_all(&new).into_iter().filter_map(|(key, new)| Some((olds.remove(&key)?, new))).collect();
        for (before, after) in matched {
            pairs.push(FilePair { before: old.remove(&before), after: new.remove(&after), name: after });
        }
    }
    if pairs.is_empty() {
        let (before, after) = (before.display().to_string(), after.display().to_string());
        return Err(Error::NothingInBoth { before, after });
    }
    pairs.extend(old.into_iter().map(|(name, before)| FilePair { name, before: Some(before), after: None }));
    pairs.extend(new.into_iter().map(|(name, after)| FilePair { name, before: None, after: Some(after) }));
    pairs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(pairs)
}

/// Lists the files of a folder by their paths within it.
fn files(folder: &Path) -> Result<BTreeMap<String, InputSource>, Error> {
    let mut files = BTreeMap::new();
    for source in input_sources(&[folder.to_owned()]) {
        let source = source?;
        let name = match &source {
            InputSource::File(path) => path.strip_prefix(folder).unwrap_or(path).display().to_string(),
            InputSource::Stdin => source.to_string(),
        };
        files.insert(name, source);
    }
    Ok(files)
}

/// What two files must have in common to be a pair.
#[derive(Clone, Copy)]
enum MatchKey {
    /// The name.
    Name,
    /// The number of a recording: another run has another process, and what has changed often another number of nodes.
    RecordedGraph,
}

impl MatchKey {
    /// Returns the names of files by their keys.
    fn of_all(self, files: &BTreeMap<String, InputSource>) -> BTreeMap<(String, usize, u64), String> {
        let names = files.keys();
        match self {
            Self::Name => names.map(|name| ((name.clone(), 0, 0), name.clone())).collect(),
            Self::RecordedGraph => {
                let recorded: Vec<(RecordingName<'_>, &String)> =
                    names.filter_map(|name| Some((RecordingName::read(name)?, name))).collect();
                let ranks = process_ranks(recorded.iter().map(|(it, _)| it));
                let rank = |it: &RecordingName<'_>| ranks.get(&(it.folder, it.process)).copied().unwrap_or(0);
                let key = |it: &RecordingName<'_>| (it.folder.to_owned(), rank(it), it.number);
                recorded.iter().map(|(it, name)| (key(it), (*name).clone())).collect()
            }
        }
    }
}

/// Numbers the processes of each folder in their order: the first of one run is the first of the other. O(n log n).
fn process_ranks<'a>(recorded: impl Iterator<Item = &'a RecordingName<'a>>) -> BTreeMap<(&'a str, u64), usize> {
    let processes: BTreeSet<(&str, u64)> = recorded.map(|it| (it.folder, it.process)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let ranked = processes.into_iter().map(|(folder, process)| {
        let count = counts.entry(folder).or_default();
        *count += 1;
        ((folder, process), *count - 1)
    });
    ranked.collect()
}

/// The parts of a name that the recorder gives: `4711-0003-936nodes.json.gz`.
#[derive(Debug, PartialEq, Eq)]
struct RecordingName<'a> {
    folder: &'a str,
    process: u64,
    number: u64,
}

impl<'a> RecordingName<'a> {
    fn read(name: &'a str) -> Option<Self> {
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        let mut parts = file.splitn(3, '-');
        let mut number = || parts.next()?.parse().ok();
        let (process, number) = (number()?, number()?);
        let nodes = parts.next()?.split('.').next()?.strip_suffix("nodes")?;
        nodes.parse::<u64>().is_ok().then_some(Self { folder, process, number })
    }
}

#[cfg(test)]
mod tests {
    use super::{RecordingName, process_ranks};

    #[test]
    fn names_of_the_recorder_are_known() {
        let read = |name: &str| RecordingName::read(name).map(|it| (it.folder.to_owned(), it.process, it.number));
        assert_eq!(read("4711-0003-936nodes.json.gz"), Some((String::new(), 4711, 3)));
        assert_eq!(read("a/b/1-0000-2nodes.json"), Some(("a/b".to_owned(), 1, 0)));
        for name in ["qwen-0003-936nodes.json.gz", "4711-0003.json.gz", "4711-0003-nodes.json", "1-2-3.json", "x"] {
            assert_eq!(read(name), None, "{name}");
        }
    }

    #[test]
    fn processes_are_counted_within_their_folder() {
        let names = ["b/7-0000-1nodes.json", "a/9-0000-1nodes.json", "a/5-0000-1nodes.json", "a/5-0001-1nodes.json"];
        let recorded: Vec<RecordingName<'_>> = names.into_iter().filter_map(RecordingName::read).collect();
        let ranks: Vec<_> = process_ranks(recorded.iter()).into_iter().collect();
        assert_eq!(ranks, [(("a", 5), 0), (("a", 9), 1), (("b", 7), 0)]);
    }
}
