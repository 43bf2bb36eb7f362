//! Runs the real binary in folders of its own.
// Each test file uses a part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

/// What a run of the command said.
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn steeve(args: &[&str]) -> Said {
    steeve_with(args, b"")
}

pub(crate) fn steeve_with(args: &[&str], stdin: &[u8]) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_steeve"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

impl Said {
    #[track_caller]
    pub(crate) fn expect(&self, status: i32) -> &Self {
        assert_eq!(self.status, status, "\nout: {}\nerr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn complains(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in {:?}", self.err);
        }
        self
    }
}

/// A folder of its own for each test, gone at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("steeve-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file of the project's own corpus.
pub(crate) fn corpus(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus").join(name);
    root.canonicalize().unwrap().display().to_string()
}

/// Compares with a file of the repository; with `STEEVE_UPDATE=1` it is written instead.
#[track_caller]
pub(crate) fn golden(file: &Path, made: &str) {
    if std::env::var_os("STEEVE_UPDATE").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, made).unwrap();
        return;
    }
    let kept = fs::read_to_string(file).unwrap_or_default();
    assert!(
        kept == made,
        "{} is not up to date: STEEVE_UPDATE=1 makes it anew\n{}",
        file.display(),
        difference(&kept, made)
    );
}

/// The first line that is not the same.
fn difference(kept: &str, made: &str) -> String {
    let mut lines = kept.lines().zip(made.lines()).enumerate();
    match lines.find(|(_, (kept, made))| kept != made) {
        Some((at, (kept, made))) => format!("line {}:\n- {kept}\n+ {made}", at + 1),
        None => format!("{} lines are {} now", kept.lines().count(), made.lines().count()),
    }
}

pub(crate) fn gzip(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}

/// The words of a table's lines, without the time, which no two runs share.
pub(crate) fn words(table: &str, leave_out: &[usize]) -> Vec<String> {
    let words = |line: &str| {
        // "2.50 KiB" and "12 µs" are one cell: cells stand two spaces apart.
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let kept = cells.iter().enumerate().filter(|(index, _)| !leave_out.contains(index));
        kept.map(|(_, cell)| *cell).collect::<Vec<_>>().join(" | ")
    };
    table.lines().map(words).collect()
}
