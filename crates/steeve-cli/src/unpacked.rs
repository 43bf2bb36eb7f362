//! Reading with a limit: a file, a pipe or the standard input, unpacked where it is gzip.
//!
//! Whatever is read, however well it is packed and wherever it ends, takes no more memory than the limit, and what does
//! not fit into memory is an error.

use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};

use flate2::read::MultiGzDecoder;
use steeve_plan::{Bytes, InputLimit};

use crate::error::{Error, Length};
use crate::source::Source;

/// An opened input, of which nothing but the first bytes is read yet.
pub(crate) struct Unpacked {
    file: String,
    /// The first bytes, unpacked.
    head: Vec<u8>,
    rest: Box<dyn Read>,
    packing: Packing,
    /// The length of a regular file.
    length: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
}

impl Unpacked {
    /// Opens an input and looks at its first bytes.
    pub(crate) fn open(source: &Source) -> Result<Self, Error> {
        const GZIP: [u8; 2] = [0x1f, 0x8b];
        let file = source.to_string();
        let (rest, length) = match open(source) {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(Error::Folder { file }),
            Err(error) => return Err(failed(file, error, Packing::Plain)),
        };
        let mut opened = Self { file, head: Vec::new(), rest, packing: Packing::Plain, length };
        opened.read_head()?;
        if opened.head.starts_with(&GZIP) {
            let packed = Cursor::new(std::mem::take(&mut opened.head)).chain(opened.rest);
            opened.rest = Box::new(MultiGzDecoder::new(BufReader::new(packed)));
            opened.packing = Packing::Gzip;
            opened.read_head()?;
        }
        Ok(opened)
    }

    /// Returns the first bytes, which often tell what a file is: eight, or all if there are fewer.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    fn read_head(&mut self) -> Result<(), Error> {
        const HEAD: u64 = 8;
        match self.rest.by_ref().take(HEAD).read_to_end(&mut self.head) {
            Ok(_) => Ok(()),
            Err(error) => Err(failed(self.file.clone(), error, self.packing)),
        }
    }

    /// Reads everything. Fails if that is more than `limit`: a plain file before it is read, all else as soon as there is
    /// one byte too many.
    pub(crate) fn read(self, limit: InputLimit) -> Result<Vec<u8>, Error> {
        let most = limit.bytes().0;
        let too_large = |file, length| Error::TooLarge { file, limit: limit.bytes(), length };
        let length = self.length.filter(|_| self.packing == Packing::Plain);
        if let Some(length) = length.filter(|length| *length > most) {
            return Err(too_large(self.file, Length::Known(Bytes(length))));
        }
        // With room for one byte too many, which says that there are more.
        let most = usize::try_from(most.saturating_add(1)).unwrap_or(usize::MAX);
        let mut bytes = Growing { bytes: self.head, most };
        let grown = match bytes.reserve(length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0)) {
            Ok(()) => bytes.fill(self.rest),
            Err(error) => Err(error),
        };
        match grown {
            Ok(()) if bytes.bytes.len() == most && most != usize::MAX => {
                let length = if self.packing == Packing::Gzip { Length::MoreUnpacked } else { Length::More };
                Err(too_large(self.file, length))
            }
            Ok(()) => Ok(bytes.bytes),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                Err(Error::OutOfMemory { file: self.file, read: Bytes(bytes.bytes.len() as u64) })
            }
            Err(error) => Err(failed(self.file, error, self.packing)),
        }
    }
}

fn open(source: &Source) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    match source {
        Source::Stdin => Ok((Box::new(io::stdin().lock()), None)),
        Source::File(path) => {
            let file = File::open(path)?;
            let about = file.metadata()?;
            if about.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
            Ok((Box::new(file), about.is_file().then_some(about.len())))
        }
    }
}

/// What an error of the system or of the unpacker means.
fn failed(file: String, source: io::Error, packing: Packing) -> Error {
    match source.kind() {
        ErrorKind::OutOfMemory => Error::OutOfMemory { file, read: Bytes::ZERO },
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof if packing == Packing::Gzip => {
            Error::Gzip { file, source }
        }
        _ => Error::Read { file, source },
    }
}

/// Bytes that double their room as they need it, but never have more than they may.
struct Growing {
    bytes: Vec<u8>,
    most: usize,
}

impl Growing {
    /// Makes room for `length` bytes in all.
    fn reserve(&mut self, length: usize) -> io::Result<()> {
        let more = length.saturating_sub(self.bytes.len());
        self.bytes.try_reserve_exact(more).map_err(|_| ErrorKind::OutOfMemory.into())
    }

    /// Reads until the end, or until there are as many bytes as there may be.
    fn fill(&mut self, mut reader: impl Read) -> io::Result<()> {
        let mut chunk = vec![0; 1 << 16];
        loop {
            let room = chunk.len().min(self.most - self.bytes.len());
            let count = match reader.read(&mut chunk[..room]) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let length = self.bytes.len() + count;
            if length > self.bytes.capacity() {
                self.reserve(length.max(self.bytes.capacity().saturating_mul(2)).min(self.most))?;
            }
            self.bytes.extend_from_slice(&chunk[..count]);
        }
    }
}
