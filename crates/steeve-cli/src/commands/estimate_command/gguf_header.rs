//! The header of a model in the GGUF form: a file in, how many tensors it has and their bytes out. Nothing of the weights is
//! read, and of the rest only what it takes to step over it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use serde::Serialize;
use steeve_graph::DataType;

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ModelHeader {
    pub(super) file: String,
    pub(super) tensors: u64,
    /// The bytes of all tensors.
    pub(super) weights: u64,
}

/// Returns the header of a model; `None` for a file that is none, or that can't be understood.
pub(super) fn model_header(path: &Path) -> Option<ModelHeader> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut reader = HeaderReader(BufReader::new(File::open(path).ok()?));
    let (tensors, weights) = reader.header().ok().flatten()?;
    Some(ModelHeader { file: path.display().to_string(), tensors, weights })
}

/// The versions that count in 64 bits, little-endian.
const VERSIONS: [u32; 2] = [2, 3];

/// The most dimensions of a tensor.
const MOST_DIMENSIONS: u32 = 4;

/// Values that say what type others have.
const STRING: u32 = 8;
const ARRAY: u32 = 9;

struct HeaderReader<R>(R);

impl<R: Read + Seek> HeaderReader<R> {
    /// Reads the number of tensors and their bytes; `None` for an unknown header. The end of the file ends every loop.
    fn header(&mut self) -> io::Result<Option<(u64, u64)>> {
        if &self.bytes::<4>()? != b"GGUF" || !VERSIONS.contains(&self.u32()?) {
            return Ok(None);
        }
        let (tensors, pairs) = (self.u64()?, self.u64()?);
        for _ in 0..pairs {
            self.skip_string()?;
            let kind = self.u32()?;
            if self.skip_value(kind)?.is_none() {
                return Ok(None);
            }
        }
        let mut weights = 0u64;
        for _ in 0..tensors {
            match self.tensor()?.and_then(|bytes| weights.checked_add(bytes)) {
                Some(sum) => weights = sum,
                None => return Ok(None),
            }
        }
        Ok(Some((tensors, weights)))
    }

    /// Reads the bytes of the next tensor; `None` for an unknown type or an invalid shape.
    fn tensor(&mut self) -> io::Result<Option<u64>> {
        self.skip_string()?;
        let dimensions = self.u32()?;
        if dimensions > MOST_DIMENSIONS {
            return Ok(None);
        }
        let mut elements = Some(1u64);
        for _ in 0..dimensions {
            let extent = self.u64()?;
            elements = elements.and_then(|elements| elements.checked_mul(extent));
        }
        let dtype = DataType::from_ggml_id(self.u32()?);
        let _offset = self.u64()?;
        let bytes = elements.zip(dtype).and_then(|(elements, dtype)| {
            let blocks = elements.is_multiple_of(dtype.block_len()).then(|| elements / dtype.block_len())?;
            blocks.checked_mul(dtype.block_bytes())
        });
        Ok(bytes)
    }

    fn skip_value(&mut self, kind: u32) -> io::Result<Option<()>> {
        match kind {
            STRING => self.skip_string()?,
            ARRAY => {
                let (kind, count) = (self.u32()?, self.u64()?);
                match (kind, width(kind)) {
                    (STRING, _) => {
                        for _ in 0..count {
                            self.skip_string()?;
                        }
                    }
                    (_, Some(width)) => self.skip(count.saturating_mul(width))?,
                    _ => return Ok(None),
                }
            }
            kind => match width(kind) {
                Some(width) => self.skip(width)?,
                None => return Ok(None),
            },
        }
        Ok(Some(()))
    }

    fn skip_string(&mut self) -> io::Result<()> {
        let length = self.u64()?;
        self.skip(length)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        // Beyond the end the next read fails.
        self.0.seek_relative(i64::try_from(bytes).map_err(|_| io::ErrorKind::UnexpectedEof)?)
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn bytes<const COUNT: usize>(&mut self) -> io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Returns the bytes of a value of fixed width; `None` for all others.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn string(text: &str) -> Vec<u8> {
        [(text.len() as u64).to_le_bytes().as_slice(), text.as_bytes()].concat()
    }

    /// Builds a header with a number, a string and two arrays, and two tensors: f32[8] and q4_0[64,2].
    fn header() -> Vec<u8> {
        let mut bytes = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &2u64.to_le_bytes(), &4u64.to_le_bytes()].concat();
        let mut add = |parts: &[&[u8]]| parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let (strings, numbers) = ([8u32.to_le_bytes(), 2u32.to_le_bytes()], [4u32.to_le_bytes(), 3u32.to_le_bytes()]);
        add(&[&string("n"), &4u32.to_le_bytes(), &7u32.to_le_bytes()]);
        add(&[&string("s"), &8u32.to_le_bytes(), &string("text")]);
        add(&[&string("a"), &9u32.to_le_bytes(), &strings.concat(), &[0; 4], &string("x"), &string("yz")]);
        add(&[&string("b"), &9u32.to_le_bytes(), &numbers.concat(), &[0; 4], &[0; 12]]);
        add(&[&string("t.weight"), &1u32.to_le_bytes(), &8u64.to_le_bytes(), &0u32.to_le_bytes(), &[0; 8]]);
        let shape = [64u64.to_le_bytes(), 2u64.to_le_bytes()].concat();
        add(&[&string("u.weight"), &2u32.to_le_bytes(), &shape, &2u32.to_le_bytes(), &[0; 8]]);
        bytes
    }

    #[test]
    fn a_header_says_how_many_bytes_its_tensors_have() {
        let read = HeaderReader(Cursor::new(header())).header().ok().flatten();
        assert_eq!(read, Some((2, 8 * 4 + 64 * 2 / 32 * 18)));
    }

    #[test]
    fn whatever_is_cut_or_changed_is_no_header_or_another() {
        let whole = header();
        for end in 0..whole.len() {
            assert_eq!(HeaderReader(Cursor::new(&whole[..end])).header().ok().flatten(), None, "{end}");
        }
        for index in 0..whole.len() {
            let mut changed = whole.clone();
            changed[index] ^= 0xff;
            let _ = HeaderReader(Cursor::new(changed)).header();
        }
    }
}
