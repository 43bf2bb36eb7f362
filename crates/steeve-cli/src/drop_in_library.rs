//! Where the drop-in library is, and how a program is started with it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use crate::error::Error;

/// What cargo calls it.
pub(crate) const NAME: &str = "libsteeve_ggml.so";

/// The library, by its full path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DropInLibrary(PathBuf);

impl DropInLibrary {
    /// Finds the library: the one that is named, by option or `STEEVE_LIBRARY`, or else the one installed with this program.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self, Error> {
        let variable = || env::var_os("STEEVE_LIBRARY").filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = named.map(Path::to_owned).or_else(variable) {
            let library = path.canonicalize().and_then(|library| is_elf(&library).map(|is_elf| (library, is_elf)));
            return match library {
                Ok((library, true)) => Self::preloadable(library),
                Ok((_, false)) => Err(Error::NotALibrary { file: path.display().to_string() }),
                Err(source) => Err(Error::NoLibrary { looked: format!("{} ({source})", path.display()) }),
            };
        }
        // A link to this program is followed, for the library is beside the program itself.
        let program = env::current_exe().and_then(|program| program.canonicalize()).unwrap_or_default();
        let folder = program.parent().unwrap_or(Path::new("."));
        let places = [folder.join(NAME), folder.join("../lib").join(NAME)];
        match places.iter().find_map(|place| place.canonicalize().ok()) {
            Some(library) => Self::preloadable(library),
            None => Err(Error::NoLibrary { looked: places.map(|place| place.display().to_string()).join(" and ") }),
        }
    }

    fn preloadable(library: PathBuf) -> Result<Self, Error> {
        let is_separator = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
        if library.as_os_str().as_encoded_bytes().iter().any(is_separator) {
            return Err(Error::LibraryPath { file: library.display().to_string() });
        }
        Ok(Self(library))
    }

    /// Has the command start with the library in front of whatever else is preloaded, and write graphs into the folder.
    pub(crate) fn preload_recording(&self, command: &mut Command, folder: &Path) {
        self.set_preload(command);
        command.env("STEEVE_RECORD", folder);
    }

    /// Has the command start with the library in front of whatever else is preloaded, and report to the file what it takes.
    pub(crate) fn preload_reporting(&self, command: &mut Command, file: &Path) {
        self.set_preload(command);
        command.env("STEEVE_REPORT", file);
    }

    /// Returns the path of the library.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn set_preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", preload(&self.0, env::var_os("LD_PRELOAD").as_deref()));
        // A program that is to be recorded runs with the drop-in, whatever the environment says.
        command.env_remove("STEEVE_OFF");
    }
}

fn preload(library: &Path, others: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

fn is_elf(library: &Path) -> io::Result<bool> {
    let mut start = [0; 4];
    let read = io::Read::read(&mut fs::File::open(library)?, &mut start)?;
    Ok(start[..read] == *b"\x7fELF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_before_what_is_preloaded_already() {
        let with = |others: Option<&str>| preload(Path::new("/lib/us.so"), others.map(OsStr::new));
        assert_eq!(with(None), "/lib/us.so");
        assert_eq!(with(Some("")), "/lib/us.so");
        assert_eq!(with(Some("a.so b.so")), "/lib/us.so:a.so b.so");
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_refused() {
        for path in ["/a b/us.so", "/a:b/us.so"] {
            assert!(matches!(DropInLibrary::preloadable(path.into()), Err(Error::LibraryPath { .. })), "{path}");
        }
        assert!(DropInLibrary::preloadable("/a-b/us.so".into()).is_ok());
    }
}
