//! Reading with a limit: a file, a pipe or the standard input, unpacked where it is gzip.
//!
//! Whatever is read, however well it is packed and wherever it ends, takes no more memory than the limit, and what does
//! not fit into memory is an error.

use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};

use flate2::read::MultiGzDecoder;
use steeve_plan::{Bytes, InputLimit};

use crate::error::{Error, InputLength};
use crate::input_source::InputSource;

/// An opened input, of which nothing but the first bytes is read yet.
pub(crate) struct InputReader {
    file: String,
    /// The first bytes, unpacked.
    head: Vec<u8>,
    rest: Box<dyn Read>,
    compression: InputCompression,
    /// The length of a regular file.
    length: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InputCompression {
    Plain,
    Gzip,
}

impl InputReader {
    /// Opens an input and looks at its first bytes.
    pub(crate) fn open(source: &InputSource) -> Result<Self, Error> {
        const GZIP: [u8; 2] = [0x1f, 0x8b];
        let file = source.to_string();
        let (rest, length) = match open(source) {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(Error::Folder { file }),
            Err(error) => return Err(read_error(file, error, InputCompression::Plain)),
        };
        let mut opened = Self { file, head: Vec::new(), rest, compression: InputCompression::Plain, length };
        opened.read_head()?;
        if opened.head.starts_with(&GZIP) {
            let packed = Cursor::new(std::mem::take(&mut opened.head)).chain(opened.rest);
            opened.rest = Box::new(MultiGzDecoder::new(BufReader::new(packed)));
            opened.compression = InputCompression::Gzip;
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
            Err(error) => Err(read_error(self.file.clone(), error, self.compression)),
        }
    }

    /// Reads everything. Fails if that is more than `limit`: a plain file before it is read, all else as soon as there is
    /// one byte too many.
    pub(crate) fn read(self, limit: InputLimit) -> Result<Vec<u8>, Error> {
        let most = limit.bytes().0;
        let too_large = |file, length| Error::TooLarge { file, limit: limit.bytes(), length };
        let length = self.length.filter(|_| self.compression == InputCompression::Plain);
        if let Some(length) = length.filter(|length| *length > most) {
            return Err(too_large(self.file, InputLength::Known(Bytes(length))));
        }
        let (file, compression, mut bytes) = (self.file, self.compression, self.head);
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
                if compression == InputCompression::Gzip { InputLength::MoreUnpacked } else { InputLength::More },
            )),
            Ok(_) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                Err(Error::OutOfMemory { file, read: Bytes(bytes.len() as u64) })
            }
            Err(error) => Err(read_error(file, error, compression)),
        }
    }
}

fn open(source: &InputSource) -> io::Result<(Box<dyn Read>, Option<u64>)> {
    match source {
        InputSource::Stdin => Ok((Box::new(io::stdin().lock()), None)),
        InputSource::File(path) => {
            let file = File::open(path)?;
            let about = file.metadata()?;
            if about.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
            Ok((Box::new(file), about.is_file().then_some(about.len())))
        }
    }
}

/// Returns the error for an error of the system or of the decompressor.
fn read_error(file: String, source: io::Error, compression: InputCompression) -> Error {
    match source.kind() {
        ErrorKind::OutOfMemory => Error::OutOfMemory { file, read: Bytes::ZERO },
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof
            if compression == InputCompression::Gzip =>
        {
            Error::Gzip { file, source }
        }
        _ => Error::Read { file, source },
    }
}
