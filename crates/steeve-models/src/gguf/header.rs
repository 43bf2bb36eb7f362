//! The header of a GGUF file: values, and where each tensor's data are. The data are not read.
//!
//! ```text
//!   "GGUF" version | tensors, values | key type value ... | name shape type offset ... | padding | data ...
//! ```
//!
//! Reading takes time and memory in proportion to the bytes that are there, whatever the header says there should be.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};

use steeve_graph::{Align, Bytes, DataType, InputLimit, InputTooLarge, Layout, MAX_DIMS, Offset};

use super::error::GgufError;
use super::value::{ARRAY, GgufNumbers, GgufTexts, GgufValue, TEXT, ValueKind};

/// Returns whether a file begins as GGUF files do.
pub fn is_gguf(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

const MAGIC: &[u8; 4] = b"GGUF";

/// The versions that count in 64 bits.
const VERSIONS: [u32; 2] = [2, 3];

/// The alignment of data in files that do not say another.
const DEFAULT_ALIGN: u64 = 32;

/// What a GGUF file says of itself before its data.
///
/// ```
/// use steeve_graph::{DataType, InputLimit};
/// use steeve_models::gguf::{GgufHeader, SmallGguf};
/// let mut file = SmallGguf::new();
/// file.text("general.architecture", "llama");
/// file.tensor("output_norm.weight", DataType::F32, &[4], &[0; 16]);
/// let header = GgufHeader::read(file.to_bytes().as_slice(), InputLimit::DEFAULT)?;
/// assert_eq!(header.tensors()[0].layout.shape(), [4]);
/// assert_eq!(header.value("general.architecture").and_then(|it| it.as_text()), Some("llama"));
/// # Ok::<(), steeve_models::gguf::GgufError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GgufHeader {
    version: u32,
    values: Vec<(String, GgufValue)>,
    keys: BTreeMap<String, usize>,
    tensors: Vec<GgufTensor>,
    names: BTreeMap<String, usize>,
    align: Align,
    data: Offset,
}

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    /// Its name.
    pub name: String,
    /// Its type and shape; there are no gaps.
    pub layout: Layout,
    /// Where its data start in the file.
    pub position: Offset,
}

impl GgufHeader {
    /// Reads a header of at most `limit` bytes, and nothing behind it.
    ///
    /// # Errors
    ///
    /// If it can't be read, is not of a version that is known, is damaged, or ends too early. That the data are there is not
    /// looked at: [`check_data`](Self::check_data) does that.
    pub fn read(source: impl Read, limit: InputLimit) -> Result<Self, GgufError> {
        let mut reader = HeaderReader { source, at: 0, limit };
        let version = reader.start()?;
        let tensors = reader.u64("the number of tensors")?;
        let values = reader.u64("the number of values")?;
        let mut header = Self {
            version,
            values: Vec::new(),
            keys: BTreeMap::new(),
            tensors: Vec::new(),
            names: BTreeMap::new(),
            align: Align::ONE,
            data: Offset(0),
        };
        for _ in 0..values {
            let key = reader.text("a key")?;
            let value = reader.value(&key)?;
            if header.keys.insert(key.clone(), header.values.len()).is_some() {
                return Err(GgufError::Twice { field: "value", name: key });
            }
            header.values.push((key, value));
        }
        header.align = header.read_align()?;
        for _ in 0..tensors {
            let tensor = reader.tensor()?;
            if header.names.insert(tensor.name.clone(), header.tensors.len()).is_some() {
                return Err(GgufError::Twice { field: "tensor", name: tensor.name });
            }
            header.tensors.push(tensor);
        }
        header.locate(reader.at)?;
        Ok(header)
    }

    fn read_align(&self) -> Result<Align, GgufError> {
        let Some(value) = self.value("general.alignment") else {
            return Align::new(DEFAULT_ALIGN).map_err(|_| GgufError::Align { align: DEFAULT_ALIGN });
        };
        let wrong = || GgufError::Value {
            key: "general.alignment".to_owned(),
            expected: "a power of two up to 2^32",
            got: value.to_string(),
        };
        // The format has 32 bits for it.
        let align = value.as_u64().filter(|align| u32::try_from(*align).is_ok()).ok_or_else(wrong)?;
        Align::new(align).map_err(|_| GgufError::Align { align })
    }

    /// Turns offsets behind the header, which ends at `end`, into positions in the file.
    fn locate(&mut self, end: u64) -> Result<(), GgufError> {
        let align = self.align.get();
        let data = end.checked_next_multiple_of(align).ok_or(GgufError::Align { align })?;
        self.data = Offset(data);
        for tensor in &mut self.tensors {
            let (offset, size) = (tensor.position.0, tensor.layout.nbytes().0);
            if !offset.is_multiple_of(align) {
                return Err(GgufError::Misaligned { tensor: tensor.name.clone(), offset, align });
            }
            let position = data.checked_add(offset).filter(|position| position.checked_add(size).is_some());
            let outside =
                || GgufError::OutOfBounds { tensor: tensor.name.clone(), position: offset, size, file: u64::MAX };
            tensor.position = Offset(position.ok_or_else(outside)?);
        }
        Ok(())
    }

    /// Checks that a file of this length has the data of all tensors.
    ///
    /// # Errors
    ///
    /// If it has not: with the first tensor whose data are missing.
    pub fn check_data(&self, file: Bytes) -> Result<(), GgufError> {
        for GgufTensor { name, layout, position } in &self.tensors {
            let size = layout.nbytes().0;
            if position.0.checked_add(size).is_none_or(|end| end > file.0) {
                let (tensor, position, file) = (name.clone(), position.0, file.0);
                return Err(GgufError::OutOfBounds { tensor, position, size, file });
            }
        }
        Ok(())
    }

    /// Returns the version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the value of a key.
    pub fn value(&self, key: &str) -> Option<&GgufValue> {
        self.keys.get(key).map(|index| &self.values[*index].1)
    }

    /// Returns all values, in the order of the file.
    pub fn values(&self) -> impl ExactSizeIterator<Item = (&str, &GgufValue)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Returns all tensors, in the order of the file.
    pub fn tensors(&self) -> &[GgufTensor] {
        &self.tensors
    }

    /// Returns the tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&GgufTensor> {
        self.index(name).map(|index| &self.tensors[index])
    }

    /// Returns the place of the tensor with this name among all.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Returns the alignment of the data.
    pub fn align(&self) -> Align {
        self.align
    }

    /// Returns where the data start in the file.
    pub fn data_start(&self) -> Offset {
        self.data
    }

    /// Returns the bytes of all tensors, saturating.
    pub fn weights(&self) -> Bytes {
        Bytes(self.tensors.iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.layout.nbytes().0)))
    }
}

/// Reads little-endian numbers and texts, and counts the bytes.
struct HeaderReader<R> {
    source: R,
    at: u64,
    limit: InputLimit,
}

/// The most bytes that are made room for before they have been read.
const PIECE: usize = 1 << 16;

impl<R: Read> HeaderReader<R> {
    /// Reads what every GGUF file begins with. Returns the version.
    fn start(&mut self) -> Result<u32, GgufError> {
        let mut found = Vec::new();
        self.source.by_ref().take(MAGIC.len() as u64).read_to_end(&mut found).map_err(GgufError::Read)?;
        if found != MAGIC {
            return Err(GgufError::NotGguf { found });
        }
        self.at = found.len() as u64;
        let version = self.u32("the version")?;
        if VERSIONS.contains(&version) {
            Ok(version)
        } else if VERSIONS.contains(&version.swap_bytes()) {
            Err(GgufError::BigEndian { version: version.swap_bytes() })
        } else {
            Err(GgufError::Version { version })
        }
    }

    fn value(&mut self, key: &str) -> Result<GgufValue, GgufError> {
        let field = || format!("value {key:?}");
        let unknown = |kind| GgufError::ValueType { key: key.to_owned(), kind };
        match self.u32(&field())? {
            TEXT => Ok(GgufValue::Text(self.text(&field())?)),
            ARRAY => match self.u32(&field())? {
                TEXT => self.texts(&field()).map(GgufValue::Texts),
                kind => {
                    let number = ValueKind::from_number(kind).ok_or_else(|| unknown(kind))?;
                    let count = self.u64(&field())?;
                    let length = count.checked_mul(number.width() as u64);
                    let length = length.ok_or_else(|| self.too_many(&field(), count))?;
                    Ok(GgufValue::Numbers(GgufNumbers::new(number, self.bytes(length, &field())?)))
                }
            },
            kind => {
                let number = ValueKind::from_number(kind).ok_or_else(|| unknown(kind))?;
                let bytes = self.bytes(number.width() as u64, &field())?;
                Ok(GgufValue::of_bytes(number, &bytes))
            }
        }
    }

    fn texts(&mut self, field: &str) -> Result<GgufTexts, GgufError> {
        let mut texts = GgufTexts::default();
        // Each of them takes eight bytes at least, so the end of the file or the limit ends this.
        for _ in 0..self.u64(field)? {
            let length = self.u64(field)?;
            texts.push(&self.bytes(length, field)?);
        }
        Ok(texts)
    }

    /// Reads a tensor. Its position is still the offset behind the header.
    fn tensor(&mut self) -> Result<GgufTensor, GgufError> {
        let name = self.text("the name of a tensor")?;
        let field = format!("tensor {name:?}");
        let dimensions = self.u32(&field)?;
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            if shape.len() == MAX_DIMS {
                return Err(GgufError::Dimensions { tensor: name, dimensions });
            }
            shape.push(self.u64(&field)?);
        }
        let dtype = self.u32(&field)?;
        let position = Offset(self.u64(&field)?);
        let Some(dtype) = DataType::from_ggml_id(dtype) else {
            return Err(GgufError::DataType { tensor: name, dtype });
        };
        match Layout::contiguous(dtype, &shape) {
            Ok(layout) => Ok(GgufTensor { name, layout, position }),
            Err(source) => Err(GgufError::Layout { tensor: name, source }),
        }
    }

    fn text(&mut self, field: &str) -> Result<String, GgufError> {
        let length = self.u64(field)?;
        let bytes = self.bytes(length, field)?;
        String::from_utf8(bytes).map_err(|_| GgufError::NotText { field: field.to_owned() })
    }

    fn u32(&mut self, field: &str) -> Result<u32, GgufError> {
        self.exact(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &str) -> Result<u64, GgufError> {
        self.exact(field).map(u64::from_le_bytes)
    }

    fn exact<const COUNT: usize>(&mut self, field: &str) -> Result<[u8; COUNT], GgufError> {
        let mut bytes = [0; COUNT];
        self.fill(&mut bytes, field)?;
        Ok(bytes)
    }

    /// Reads bytes piece by piece, so that a length without bytes behind it takes no memory.
    fn bytes(&mut self, length: u64, field: &str) -> Result<Vec<u8>, GgufError> {
        let length = usize::try_from(length).map_err(|_| self.too_many(field, length))?;
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let start = bytes.len();
            bytes.resize(length.min(start.saturating_add(PIECE.max(start))), 0);
            self.fill(&mut bytes[start..], field)?;
        }
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], field: &str) -> Result<(), GgufError> {
        let (end, most) = (self.at.saturating_add(bytes.len() as u64), self.limit.bytes());
        if end > most.0 {
            return Err(GgufError::TooLarge(InputTooLarge { bytes: Bytes(end), limit: most }));
        }
        let mut filled = 0;
        while filled < bytes.len() {
            match self.source.read(&mut bytes[filled..]) {
                Ok(0) => {
                    return Err(GgufError::Truncated { at: self.at + filled as u64, field: field.to_owned() });
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(GgufError::Read(error)),
            }
        }
        self.at = end;
        Ok(())
    }

    fn too_many(&self, field: &str, count: u64) -> GgufError {
        GgufError::Count { field: field.to_owned(), count, most: self.limit.bytes().0 }
    }
}
