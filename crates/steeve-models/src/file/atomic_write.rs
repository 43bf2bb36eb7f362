//! Writing a file as a whole: a reader sees all of the old content or all of the new, and a failure leaves the old.
//!
//! ```text
//!   bytes --> .steeve-PID-N.tmp in the same folder --sync--> renamed over the file
//! ```
//!
//! A link stays a link, and what it leads to is replaced, as other programs that write through it would do; another hard
//! link keeps the old content. A file keeps its permissions and, where the system allows that, its owner; one that may not
//! be written is not replaced. What is no regular file (a pipe, a terminal, `/dev/null`) can't be renamed over, and is
//! written to directly.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Makes `bytes` the content of the file at `path`: readers see all of the old content or all of the new, and a failure leaves
/// the old.
///
/// # Errors
///
/// If `path` is a folder, or neither a file nor a new one can be written there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(about) if about.is_file() => {
            // Renaming asks for the permissions of the folder alone.
            OpenOptions::new().write(true).open(path)?;
            replace(&fs::canonicalize(path)?, bytes, Some(&about))
        }
        Ok(_) => OpenOptions::new().write(true).open(path)?.write_all(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => replace(&behind_links(path)?, bytes, None),
        Err(error) => Err(error),
    }
}

/// Follows links to the path that they lead to, though no file exists there yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    // As many as Linux follows. What leads in a circle is refused by the system before.
    const MOST: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST {
        match fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(ErrorKind::NotFound.into())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Renames a new file over `target`, which is behind all links.
fn replace(target: &Path, bytes: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let folder = folder_of(target);
    let (temporary, mut file) = TemporaryFile::new(folder, old)?;
    if let Some(old) = old {
        keep_access(&file, old)?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    temporary.rename(target)?;
    // The name is on the disk when the folder is. Not every system can do that, and the content is there in any case.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Gives the new file the owner and the permissions of the old one, before there is anything to be read in it.
fn keep_access(file: &File, old: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            // Only root may give files away; for all others the file is theirs now.
            let _ = fchown(file, Some(old.uid()), Some(old.gid()));
        }
    }
    file.set_permissions(old.permissions())
}

/// A file that is gone unless it is renamed.
struct TemporaryFile {
    /// Nothing once it is renamed.
    path: Option<PathBuf>,
}

impl TemporaryFile {
    /// Creates a file in the folder. Its name is hidden, so that it is not planned with the folder. What is to replace an old file can
    /// be opened by its owner alone: what others may do is known when it has the permissions of the old one.
    fn new(folder: &Path, old: Option<&Metadata>) -> io::Result<(Self, File)> {
        const TRIES: u32 = 1000;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if old.is_some() {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        #[cfg(not(unix))]
        let _ = old;
        for number in 0..TRIES {
            let path = folder.join(format!(".steeve-{}-{number}.tmp", std::process::id()));
            match options.open(&path) {
                Ok(file) => return Ok((Self { path: Some(path) }, file)),
                // In a container another program may have the same process number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    fn rename(mut self, target: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            fs::rename(path, target)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // If even that fails, the file stays; its name says that it is temporary.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(about: &Metadata) -> u32 {
        about.permissions().mode() & 0o7777
    }

    /// Makes an empty folder that is gone when it is dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("steeve-atomic-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_replaces_a_file_is_never_open_to_more_than_that_was() {
        let folder = Folder::new("never-open");
        let path = folder.0.join("plan.json");
        for old_mode in [0o600, 0o640, 0o644, 0o664, 0o666, 0o755] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(old_mode)).unwrap();
            let old = fs::metadata(&path).unwrap();
            // Before it has the owner and the permissions of the old one, others must not be able to open it.
            let (temporary, file) = TemporaryFile::new(&folder.0, Some(&old)).unwrap();
            assert_eq!(mode(&file.metadata().unwrap()) & 0o077, 0, "{old_mode:o}");
            drop(temporary);
            write_atomically(&path, b"new").unwrap();
            assert_eq!((mode(&fs::metadata(&path).unwrap()), fs::read(&path).unwrap()), (old_mode, b"new".to_vec()));
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_has_the_permissions_of_any_new_file() {
        let folder = Folder::new("new-file");
        let (path, other) = (folder.0.join("plan.json"), folder.0.join("other"));
        write_atomically(&path, b"new").unwrap();
        fs::write(&other, "new").unwrap();
        assert_eq!(mode(&fs::metadata(&path).unwrap()), mode(&fs::metadata(&other).unwrap()));
    }
}
