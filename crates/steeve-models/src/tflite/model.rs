//! A TFLite file in, its subgraphs, tensors and operators as plain values out. O(file).
//!
//! Invariant: every number in a [`Model`] that refers to a tensor, a subgraph, a buffer or an operator code exists.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use super::error::TfliteError;
use super::flatbuffer::{Field, Reader, Table};
use super::names::{BuiltinOp, DataType};
use super::options::Options;

/// A tensor of a model: the number of its subgraph, and its own there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorIndex {
    /// The number of the subgraph.
    pub subgraph: usize,
    /// The number of the tensor in that subgraph.
    pub tensor: usize,
}

impl TensorIndex {
    /// Creates an index.
    pub const fn new(subgraph: usize, tensor: usize) -> Self {
        Self { subgraph, tensor }
    }
}

impl fmt::Display for TensorIndex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subgraph {
            0 => write!(out, "{}", self.tensor),
            subgraph => write!(out, "{subgraph}:{}", self.tensor),
        }
    }
}

/// A TFLite file that has been read and checked: every number in it that refers to something refers to what exists.
///
/// ```
/// use steeve_models::tflite::{Model, SmallModel};
///
/// let file = SmallModel::chain(&[64, 32, 16]).to_bytes();
/// let model = Model::read(file)?;
/// let subgraph = &model.subgraphs()[0];
/// assert_eq!(subgraph.operators.len(), 2);
/// assert_eq!(model.op_name(&subgraph.operators[0]), "RELU");
/// # Ok::<(), steeve_models::tflite::TfliteError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub(crate) version: u32,
    pub(crate) description: String,
    pub(crate) operator_codes: Vec<OperatorCode>,
    pub(crate) subgraphs: Vec<Subgraph>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) metadata: Vec<Metadata>,
    pub(crate) file: Vec<u8>,
}

/// A kind of operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorCode {
    /// The builtin operator; [`BuiltinOp::CUSTOM`] for one of somebody's own.
    pub builtin: BuiltinOp,
    /// The name of a custom operator.
    pub custom: String,
    /// The version of the operator.
    pub version: i32,
}

/// Tensors, and the operators that compute them in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subgraph {
    /// The name, often empty.
    pub name: String,
    /// The tensors.
    pub tensors: Vec<Tensor>,
    /// The tensors that are written before the subgraph runs.
    pub inputs: Vec<usize>,
    /// The tensors that are read after it has run.
    pub outputs: Vec<usize>,
    /// The operators, in the order in which they run.
    pub operators: Vec<Operator>,
}

/// A tensor of a subgraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The name.
    pub name: String,
    /// The dimensions, outermost first; empty for a single element.
    pub shape: Vec<i32>,
    /// The data type.
    pub data_type: DataType,
    /// The number of its buffer.
    pub buffer: usize,
    /// Whether its contents stay from one run to the next.
    pub is_variable: bool,
    /// Whether its data are in another file.
    pub is_external: bool,
}

/// An operator of a subgraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The number of its kind.
    pub code: usize,
    /// The tensors it reads; `None` for optional ones that are left out.
    pub inputs: Vec<Option<usize>>,
    /// The tensors it computes.
    pub outputs: Vec<usize>,
    /// The tensors it only uses while it runs.
    pub intermediates: Vec<usize>,
    /// The parameters.
    pub options: Options,
}

/// Where the data of constants are in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The bytes of the file; `None` if there are no data.
    pub data: Option<Range<usize>>,
    pub(crate) offset: u64,
}

/// A buffer with a name, such as the record of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// The number of the buffer.
    pub buffer: usize,
}

/// The custom operator that runs on Arm's Ethos-U.
const ETHOS_U: &str = "ethos-u";

/// Returns whether these bytes begin as a TFLite file does.
///
/// ```
/// assert!(steeve_models::tflite::is_tflite(b"\x1c\0\0\0TFL3 and so on"));
/// assert!(!steeve_models::tflite::is_tflite(b"PK\x03\x04"));
/// ```
pub fn is_tflite(bytes: &[u8]) -> bool {
    bytes.get(4..8) == Some(b"TFL3")
}

/// The fields of the tables that are read.
pub(crate) mod field {
    use super::Field;

    pub(crate) const VERSION: Field = Field::new(0, "Model.version");
    pub(crate) const OPERATOR_CODES: Field = Field::new(1, "Model.operator_codes");
    pub(crate) const SUBGRAPHS: Field = Field::new(2, "Model.subgraphs");
    pub(crate) const DESCRIPTION: Field = Field::new(3, "Model.description");
    pub(crate) const BUFFERS: Field = Field::new(4, "Model.buffers");
    pub(crate) const METADATA: Field = Field::new(6, "Model.metadata");
    pub(crate) const DEPRECATED_BUILTIN_CODE: Field = Field::new(0, "OperatorCode.deprecated_builtin_code");
    pub(crate) const CUSTOM_CODE: Field = Field::new(1, "OperatorCode.custom_code");
    pub(crate) const OPERATOR_VERSION: Field = Field::new(2, "OperatorCode.version");
    pub(crate) const BUILTIN_CODE: Field = Field::new(3, "OperatorCode.builtin_code");
    pub(crate) const TENSORS: Field = Field::new(0, "SubGraph.tensors");
    pub(crate) const SUBGRAPH_INPUTS: Field = Field::new(1, "SubGraph.inputs");
    pub(crate) const SUBGRAPH_OUTPUTS: Field = Field::new(2, "SubGraph.outputs");
    pub(crate) const OPERATORS: Field = Field::new(3, "SubGraph.operators");
    pub(crate) const SUBGRAPH_NAME: Field = Field::new(4, "SubGraph.name");
    pub(crate) const SHAPE: Field = Field::new(0, "Tensor.shape");
    pub(crate) const TYPE: Field = Field::new(1, "Tensor.type");
    pub(crate) const BUFFER: Field = Field::new(2, "Tensor.buffer");
    pub(crate) const TENSOR_NAME: Field = Field::new(3, "Tensor.name");
    pub(crate) const IS_VARIABLE: Field = Field::new(5, "Tensor.is_variable");
    pub(crate) const EXTERNAL_BUFFER: Field = Field::new(10, "Tensor.external_buffer");
    pub(crate) const OPCODE_INDEX: Field = Field::new(0, "Operator.opcode_index");
    pub(crate) const INPUTS: Field = Field::new(1, "Operator.inputs");
    pub(crate) const OUTPUTS: Field = Field::new(2, "Operator.outputs");
    pub(crate) const INTERMEDIATES: Field = Field::new(8, "Operator.intermediates");
    pub(crate) const CUSTOM_OPTIONS_OFFSET: Field = Field::new(9, "Operator.large_custom_options_offset");
    pub(crate) const DATA: Field = Field::new(0, "Buffer.data");
    pub(crate) const OFFSET: Field = Field::new(1, "Buffer.offset");
    pub(crate) const SIZE: Field = Field::new(2, "Buffer.size");
    pub(crate) const METADATA_NAME: Field = Field::new(0, "Metadata.name");
    pub(crate) const METADATA_BUFFER: Field = Field::new(1, "Metadata.buffer");
}

impl Model {
    /// Reads a TFLite file, and checks all that is used of it.
    ///
    /// # Errors
    ///
    /// If it is not a TFLite file, a part of it is outside the file, or a number refers to something that does not exist.
    pub fn read(file: impl Into<Vec<u8>>) -> Result<Self, TfliteError> {
        let file = file.into();
        if !is_tflite(&file) {
            return Err(TfliteError::NotTflite);
        }
        let reader = Reader::new(&file);
        let root = reader.root()?;
        let mut model = Self {
            version: reader.u32(&root, field::VERSION)?,
            description: reader.text(&root, field::DESCRIPTION)?,
            operator_codes: read_each(&reader, &root, field::OPERATOR_CODES, |table, _| read_code(&reader, table))?,
            subgraphs: read_each(&reader, &root, field::SUBGRAPHS, |table, _| read_subgraph(&reader, table))?,
            buffers: read_each(&reader, &root, field::BUFFERS, |table, _| read_buffer(&reader, table))?,
            metadata: read_each(&reader, &root, field::METADATA, |table, _| read_metadata(&reader, table))?,
            file: Vec::new(),
        };
        model.check()?;
        model.file = file;
        Ok(model)
    }

    /// Returns the version of the schema.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns what the writer of the file says of it.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the kinds of operators.
    pub fn operator_codes(&self) -> &[OperatorCode] {
        &self.operator_codes
    }

    /// Returns the subgraphs. The first one is what is run; the others are called by operators.
    pub fn subgraphs(&self) -> &[Subgraph] {
        &self.subgraphs
    }

    /// Returns the buffers with the data of constants.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Returns the named buffers.
    pub fn metadata(&self) -> &[Metadata] {
        &self.metadata
    }

    /// Checks all numbers that refer to something.
    fn check(&self) -> Result<(), TfliteError> {
        if self.subgraphs.is_empty() {
            return Err(TfliteError::Missing { field: field::SUBGRAPHS.name, of: "the model".into() });
        }
        for (number, subgraph) in self.subgraphs.iter().enumerate() {
            self.check_subgraph(subgraph, number)?;
        }
        for entry in &self.metadata {
            let of = || format!("metadata {:?}", entry.name);
            check_index(field::METADATA_BUFFER, of, entry.buffer, self.buffers.len())?;
        }
        Ok(())
    }

    fn check_subgraph(&self, subgraph: &Subgraph, number: usize) -> Result<(), TfliteError> {
        let count = subgraph.tensors.len();
        let of = || format!("subgraph {number}");
        for index in &subgraph.inputs {
            check_index(field::SUBGRAPH_INPUTS, of, *index, count)?;
        }
        for index in &subgraph.outputs {
            check_index(field::SUBGRAPH_OUTPUTS, of, *index, count)?;
        }
        for (index, tensor) in subgraph.tensors.iter().enumerate() {
            let of = || format!("tensor {}", TensorIndex::new(number, index));
            check_index(field::BUFFER, of, tensor.buffer, self.buffers.len())?;
        }
        for (index, operator) in subgraph.operators.iter().enumerate() {
            let of = || format!("operator {index} of subgraph {number}");
            check_index(field::OPCODE_INDEX, of, operator.code, self.operator_codes.len())?;
            for input in operator.inputs.iter().flatten() {
                check_index(field::INPUTS, of, *input, count)?;
            }
            for output in &operator.outputs {
                check_index(field::OUTPUTS, of, *output, count)?;
            }
            for intermediate in &operator.intermediates {
                check_index(field::INTERMEDIATES, of, *intermediate, count)?;
            }
            let builtin = self.builtin(operator);
            if matches!(builtin, BuiltinOp::IF | BuiltinOp::WHILE | BuiltinOp::CALL_ONCE)
                && !operator.options.calls_any()
            {
                return Err(TfliteError::Missing { field: "Operator.builtin_options", of: of() });
            }
            for called in self.called(operator) {
                let called = usize::try_from(called).unwrap_or(usize::MAX);
                check_index(Field::new(0, "subgraph to call"), of, called, self.subgraphs.len())?;
            }
        }
        Ok(())
    }

    /// Returns the builtin operator of an operator.
    pub fn builtin(&self, operator: &Operator) -> BuiltinOp {
        self.operator_codes.get(operator.code).map_or(BuiltinOp(-1), |code| code.builtin)
    }

    /// Returns the name of an operator in TFLite's spelling, such as `CONV_2D`; that of a custom operator is its own.
    pub fn op_name(&self, operator: &Operator) -> &str {
        match self.operator_codes.get(operator.code) {
            Some(code) if code.builtin == BuiltinOp::CUSTOM && !code.custom.is_empty() => &code.custom,
            Some(code) => code.builtin.name(),
            None => "UNKNOWN",
        }
    }

    /// Returns the subgraphs that an operator calls, in the order in which TensorFlow Lite Micro visits them.
    pub(crate) fn called(&self, operator: &Operator) -> impl Iterator<Item = i32> + use<> {
        let is_call = matches!(self.builtin(operator), BuiltinOp::IF | BuiltinOp::WHILE | BuiltinOp::CALL_ONCE);
        let (first, second) = if is_call { operator.options.calls() } else { (None, None) };
        first.into_iter().chain(second)
    }

    /// Returns whether the kernel of an operator reads what is in a slot, and not only its shape or nothing at all.
    pub(crate) fn is_read(&self, operator: &Operator, slot: usize) -> bool {
        // A RESHAPE has the shape of its result from the file.
        self.builtin(operator) != BuiltinOp::RESHAPE || slot == 0
    }

    /// Returns whether an operator was compiled for an accelerator.
    pub(crate) fn is_accelerated(&self, operator: &Operator) -> bool {
        self.op_name(operator) == ETHOS_U
    }

    /// Returns the name of operators that were compiled for an accelerator with all addresses in the head, if there are any: those
    /// that Arm's compiler Vela makes.
    pub fn accelerator(&self) -> Option<&str> {
        let mut operators = self.subgraphs.iter().flat_map(|subgraph| &subgraph.operators);
        operators.find(|op| self.is_accelerated(op)).map(|_| ETHOS_U)
    }

    /// Refuses a model whose operators were compiled for an accelerator: the addresses are in them, so a plan would be of no use.
    ///
    /// # Errors
    ///
    /// If there are such operators.
    pub fn check_not_compiled(&self) -> Result<(), TfliteError> {
        match self.accelerator() {
            Some(operator) => Err(TfliteError::Compiled { operator: operator.into() }),
            None => Ok(()),
        }
    }

    /// Returns the tensors that stand for all memory that an accelerator uses: other tensors are located in them, where the
    /// compiler has put them.
    pub(crate) fn accelerator_arenas(&self) -> BTreeSet<TensorIndex> {
        let mut arenas = BTreeSet::new();
        for (number, subgraph) in self.subgraphs.iter().enumerate() {
            for op in subgraph.operators.iter().filter(|op| self.is_accelerated(op)) {
                // Commands and weights come first, then slow and fast memory, then what is read.
                let slots = op.inputs.iter().skip(2).take(2).flatten();
                arenas.extend(slots.map(|tensor| TensorIndex::new(number, *tensor)));
            }
        }
        arenas
    }

    /// Returns a tensor.
    pub fn tensor(&self, index: TensorIndex) -> Option<&Tensor> {
        self.subgraphs.get(index.subgraph)?.tensors.get(index.tensor)
    }

    /// Returns the indices of all tensors, in the order in which a record of a plan has them.
    pub fn tensors(&self) -> impl Iterator<Item = TensorIndex> + '_ {
        let each = |(number, subgraph): (usize, &Subgraph)| {
            let count = subgraph.tensors.len();
            (0..count).map(move |tensor| TensorIndex::new(number, tensor))
        };
        self.subgraphs.iter().enumerate().flat_map(each)
    }

    /// Returns how many tensors all subgraphs have together.
    pub fn tensor_count(&self) -> usize {
        self.subgraphs.iter().map(|subgraph| subgraph.tensors.len()).sum()
    }

    /// Returns the data of a tensor that the file has: a constant, such as weights.
    pub fn data(&self, tensor: &Tensor) -> Option<&[u8]> {
        self.file.get(self.buffers.get(tensor.buffer)?.data.clone()?)
    }

    /// Returns whether the contents of a tensor are in this file or in another one.
    pub fn is_constant(&self, tensor: &Tensor) -> bool {
        tensor.is_external || self.buffers.get(tensor.buffer).is_some_and(|buffer| buffer.data.is_some())
    }
}

fn check_index(field: Field, of: impl Fn() -> String, index: usize, count: usize) -> Result<(), TfliteError> {
    if index < count {
        return Ok(());
    }
    // Negative numbers were read as the largest ones.
    let index = i64::try_from(index).unwrap_or(-1);
    Err(TfliteError::Index { field: field.name, of: of(), index, count })
}

fn read_each<T>(
    reader: &Reader<'_>,
    table: &Table,
    field: Field,
    mut read: impl FnMut(&Table, usize) -> Result<T, TfliteError>,
) -> Result<Vec<T>, TfliteError> {
    let tables = reader.tables(table, field)?;
    tables.iter().enumerate().map(|(index, table)| read(table, index)).collect()
}

/// Reads numbers of tensors; negative ones become one that does not exist.
fn read_indices(reader: &Reader<'_>, table: &Table, field: Field) -> Result<Vec<usize>, TfliteError> {
    let numbers = reader.ints(table, field)?.unwrap_or_default();
    Ok(numbers.into_iter().map(|number| usize::try_from(number).unwrap_or(usize::MAX)).collect())
}

fn read_code(reader: &Reader<'_>, table: &Table) -> Result<OperatorCode, TfliteError> {
    // Old files have the number in a byte, new ones in four, and a placeholder in the byte where that is too small.
    let old = i32::from(reader.i8(table, field::DEPRECATED_BUILTIN_CODE)?);
    let new = reader.i32(table, field::BUILTIN_CODE, 0)?;
    Ok(OperatorCode {
        builtin: BuiltinOp(old.max(new)),
        custom: reader.text(table, field::CUSTOM_CODE)?,
        version: reader.i32(table, field::OPERATOR_VERSION, 1)?,
    })
}

fn read_subgraph(reader: &Reader<'_>, table: &Table) -> Result<Subgraph, TfliteError> {
    Ok(Subgraph {
        name: reader.text(table, field::SUBGRAPH_NAME)?,
        tensors: read_each(reader, table, field::TENSORS, |table, _| read_tensor(reader, table))?,
        inputs: read_indices(reader, table, field::SUBGRAPH_INPUTS)?,
        outputs: read_indices(reader, table, field::SUBGRAPH_OUTPUTS)?,
        operators: read_each(reader, table, field::OPERATORS, |table, _| read_operator(reader, table))?,
    })
}

fn read_tensor(reader: &Reader<'_>, table: &Table) -> Result<Tensor, TfliteError> {
    Ok(Tensor {
        name: reader.text(table, field::TENSOR_NAME)?,
        shape: reader.ints(table, field::SHAPE)?.unwrap_or_default(),
        data_type: DataType(reader.i8(table, field::TYPE)?),
        buffer: usize::try_from(reader.u32(table, field::BUFFER)?).unwrap_or(usize::MAX),
        is_variable: reader.bool(table, field::IS_VARIABLE)?,
        is_external: reader.u32(table, field::EXTERNAL_BUFFER)? != 0,
    })
}

fn read_operator(reader: &Reader<'_>, table: &Table) -> Result<Operator, TfliteError> {
    let inputs = reader.ints(table, field::INPUTS)?.unwrap_or_default();
    Ok(Operator {
        code: usize::try_from(reader.u32(table, field::OPCODE_INDEX)?).unwrap_or(usize::MAX),
        inputs: inputs.into_iter().map(|number| usize::try_from(number).ok()).collect(),
        outputs: read_indices(reader, table, field::OUTPUTS)?,
        intermediates: read_indices(reader, table, field::INTERMEDIATES)?,
        options: Options::read(reader, table)?,
    })
}

fn read_buffer(reader: &Reader<'_>, table: &Table) -> Result<Buffer, TfliteError> {
    let offset = reader.u64(table, field::OFFSET)?;
    let inside = reader.data(table, field::DATA)?;
    // Large files have the data behind everything else. 0 and 1 say that they have not.
    let behind = (offset > 1).then(|| data_behind(reader, offset, reader.u64(table, field::SIZE)?)).transpose()?;
    let data = inside.filter(|range| !range.is_empty()).or(behind);
    Ok(Buffer { data, offset })
}

fn data_behind(reader: &Reader<'_>, offset: u64, size: u64) -> Result<Range<usize>, TfliteError> {
    let file = reader.bytes().len();
    let end = offset.checked_add(size).and_then(|end| usize::try_from(end).ok()).filter(|end| *end <= file);
    match (usize::try_from(offset), end) {
        (Ok(start), Some(end)) => {
            // They are compared byte by byte when a record is written.
            reader.spend(size, field::OFFSET.name)?;
            Ok(start..end)
        }
        _ => Err(TfliteError::OutOfBounds { field: field::OFFSET.name, position: offset, size, file }),
    }
}

fn read_metadata(reader: &Reader<'_>, table: &Table) -> Result<Metadata, TfliteError> {
    Ok(Metadata {
        name: reader.text(table, field::METADATA_NAME)?,
        buffer: usize::try_from(reader.u32(table, field::METADATA_BUFFER)?).unwrap_or(usize::MAX),
    })
}
