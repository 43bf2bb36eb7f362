//! Reading with a limit: a file, a pipe or any other source, unpacked where it is gzip.
//!
//! Whatever is read, however well it is packed and wherever it ends, takes no more memory than the limit, and what does
//! not fit into memory is an error.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use steeve_graph::{Bytes, InputLimit};

use super::{FileError, InputLength};
use crate::gguf::{GgufError, GgufHeader};

/// An opened file, of which nothing but the first bytes is read yet.
///
/// The lifetime is that of a source that is not a file of its own.
pub struct FileReader<'a> {
    name: String,
    /// The first bytes, unpacked.
    head: Vec<u8>,
    rest: Box<dyn Read + 'a>,
    compression: Compression,
    /// The length of a regular file.
    length: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Plain,
    Gzip,
}

impl fmt::Debug for FileReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader").field("name", &self.name).field("head", &self.head).finish_non_exhaustive()
    }
}

impl FileReader<'static> {
    /// Opens a file and looks at its first bytes.
    ///
    /// # Errors
    ///
    /// If it can't be opened or read, or is a folder.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| file.metadata().map(|about| (file, about)));
        match opened {
            Ok((_, about)) if about.is_dir() => Err(FileError::Folder { file: name }),
            Ok((file, about)) => FileReader::new(name, Box::new(file), about.is_file().then_some(about.len())),
            Err(error) if error.kind() == ErrorKind::IsADirectory => Err(FileError::Folder { file: name }),
            Err(error) => Err(read_error(name, error, Compression::Plain)),
        }
    }
}

impl<'a> FileReader<'a> {
    /// Takes any other source, such as the standard input, under a name, and looks at its first bytes.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn of_reader(name: impl Into<String>, source: impl Read + 'a) -> Result<Self, FileError> {
        Self::new(name.into(), Box::new(source), None)
    }

    fn new(name: String, rest: Box<dyn Read + 'a>, length: Option<u64>) -> Result<Self, FileError> {
        const GZIP: [u8; 2] = [0x1f, 0x8b];
        let mut opened = Self { name, head: Vec::new(), rest, compression: Compression::Plain, length };
        opened.read_head()?;
        if opened.head.starts_with(&GZIP) {
            let packed = Cursor::new(std::mem::take(&mut opened.head)).chain(opened.rest);
            opened.rest = Box::new(MultiGzDecoder::new(BufReader::new(packed)));
            opened.compression = Compression::Gzip;
            opened.read_head()?;
        }
        Ok(opened)
    }

    /// Returns its name, as in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether its name ends so, in any case and before any `.gz`.
    pub(super) fn is_called(&self, ending: &str) -> bool {
        let name = self.name.to_lowercase();
        name.strip_suffix(".gz").unwrap_or(&name).ends_with(ending)
    }

    /// Returns the first bytes, which often tell what a file is: eight, or all if there are fewer.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    fn read_head(&mut self) -> Result<(), FileError> {
        const HEAD: u64 = 8;
        match self.rest.by_ref().take(HEAD).read_to_end(&mut self.head) {
            Ok(_) => Ok(()),
            Err(error) => Err(read_error(self.name.clone(), error, self.compression)),
        }
    }

    /// Reads the header of a GGUF file of at most `limit` bytes, and nothing behind it.
    ///
    /// # Errors
    ///
    /// If there is none, or it is damaged, see [`GgufHeader::read`].
    pub(super) fn gguf_header(self, limit: InputLimit) -> Result<GgufHeader, GgufError> {
        GgufHeader::read(BufReader::new(Cursor::new(self.head).chain(self.rest)), limit)
    }

    /// Reads everything.
    ///
    /// # Errors
    ///
    /// If that is more than `limit`: for a plain file before it is read, else as soon as there is one byte too many. If there is
    /// not enough memory, the gzip data is damaged, or it can't be read.
    pub fn bytes(self, limit: InputLimit) -> Result<Vec<u8>, FileError> {
        let most = limit.bytes().0;
        let too_large = |file, length| FileError::TooLarge { file, limit: limit.bytes(), length };
        let length = self.length.filter(|_| self.compression == Compression::Plain);
        if let Some(length) = length.filter(|length| *length > most) {
            return Err(too_large(self.name, InputLength::Known(Bytes(length))));
        }
        let (file, compression, mut bytes) = (self.name, self.compression, self.head);
        let known = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let reserved = bytes.try_reserve_exact(known.saturating_sub(bytes.len()));
        // One byte too many says that there are more.
        let room = most.saturating_add(1).saturating_sub(bytes.len() as u64);
        let read = match reserved {
            Ok(()) => self.rest.take(room).read_to_end(&mut bytes),
            Err(_) => Err(ErrorKind::OutOfMemory.into()),
        };
        match read {
            Ok(_) if bytes.len() as u64 > most => Err(too_large(
                file,
                if compression == Compression::Gzip { InputLength::MoreUnpacked } else { InputLength::More },
            )),
            Ok(_) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                Err(FileError::OutOfMemory { file, read: Bytes(bytes.len() as u64) })
            }
            Err(error) => Err(read_error(file, error, compression)),
        }
    }
}

/// Returns the error for an error of the system or of the decompressor.
fn read_error(file: String, source: io::Error, compression: Compression) -> FileError {
    match source.kind() {
        ErrorKind::OutOfMemory => FileError::OutOfMemory { file, read: Bytes::ZERO },
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
            if compression == Compression::Gzip =>
        {
            FileError::Gzip { file, source }
        }
        _ => FileError::Read { file, source },
    }
}
