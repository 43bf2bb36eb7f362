//! Which file something is, however it is spelled: through links, `./` and `a/../`.

use std::fs::{self, Metadata};
use std::path::Path;

/// A regular file of the file system: device and inode, or where there are none, the path without links.
///
/// ```no_run
/// # use std::path::Path;
/// use steeve_models::FileIdentity;
///
/// // A link to a model is that model.
/// assert_eq!(FileIdentity::of_path(Path::new("link.tflite")), FileIdentity::of_path(Path::new("model.tflite")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIdentity(IdentityKey);

#[cfg(unix)]
type IdentityKey = (u64, u64);
#[cfg(not(unix))]
type IdentityKey = std::path::PathBuf;

impl FileIdentity {
    /// Returns the regular file that a path leads to; nothing where there is none. What is written to a device or a pipe
    /// takes nothing away, so these are told apart by nothing.
    pub fn of_path(path: &Path) -> Option<Self> {
        Self::of(&fs::metadata(path).ok()?, path)
    }

    /// Returns the regular file that the standard input is read from, if it is one.
    pub fn of_stdin() -> Option<Self> {
        #[cfg(unix)]
        {
            use std::os::fd::AsFd;
            let stdin = std::io::stdin().as_fd().try_clone_to_owned().ok()?;
            Self::of(&fs::File::from(stdin).metadata().ok()?, Path::new("-"))
        }
        #[cfg(not(unix))]
        None
    }

    #[cfg(unix)]
    fn of(about: &Metadata, _: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        about.is_file().then(|| Self((about.dev(), about.ino())))
    }

    #[cfg(not(unix))]
    fn of(about: &Metadata, path: &Path) -> Option<Self> {
        about.is_file().then(|| fs::canonicalize(path).ok().map(Self)).flatten()
    }
}
