//! What can be wrong with a block list, and where.

use alloc::string::String;
use core::fmt;

use crate::{BlockId, Clipped, InputTooLarge, UnitError};

/// A column that a block list may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Column {
    /// The block's name.
    Id,
    /// The first step at which it is alive.
    Lower,
    /// The first step at which it is no longer alive.
    Upper,
    /// Its bytes.
    Size,
    /// What its offset must be a multiple of.
    Alignment,
    /// The buffer it is in.
    Buffer,
    /// Its offset in that buffer.
    Offset,
    /// The name of the block it follows.
    Follows,
    /// The name of the block it may overlap.
    Overlaps,
    /// How far below that one it starts at least, if they share bytes.
    Distance,
}

impl Column {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 10] = [
        Self::Id,
        Self::Lower,
        Self::Upper,
        Self::Size,
        Self::Alignment,
        Self::Buffer,
        Self::Offset,
        Self::Follows,
        Self::Overlaps,
        Self::Distance,
    ];

    /// Returns the name of the column in the header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Lower => "lower",
            Self::Upper => "upper",
            Self::Size => "size",
            Self::Alignment => "alignment",
            Self::Buffer => "buffer",
            Self::Offset => "offset",
            Self::Follows => "follows",
            Self::Overlaps => "overlaps",
            Self::Distance => "distance",
        }
    }

    /// Finds the column with this name, ignoring case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a text is no block list, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", FaultLocation(self))]
pub struct CsvError {
    /// The line, from 1.
    pub line: usize,
    /// The column by its position, from 1, where one is to blame.
    pub column: Option<usize>,
    /// The column by its name, where it has one.
    pub name: Option<Column>,
    /// What is wrong there. Part of the message, so it is not a source as well.
    pub fault: CsvFault,
}

/// Shows where the fault is; an input that is too large is wrong as a whole.
struct FaultLocation<'a>(&'a CsvError);

impl fmt::Display for FaultLocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CsvError { fault: CsvFault::InputTooLarge(_), .. } => Ok(()),
            CsvError { line, column: None, .. } => write!(f, "line {line}: "),
            CsvError { line, column: Some(column), name: None, .. } => write!(f, "line {line}, column {column}: "),
            CsvError { line, column: Some(column), name: Some(name), .. } => {
                write!(f, "line {line}, column {column} ({name}): ")
            }
        }
    }
}

/// What is wrong with a line of a block list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvFault {
    /// Nothing but blank lines.
    #[error("no header: expected the names of the columns, such as id,lower,upper,size")]
    NoHeader,
    /// A column with an unknown name.
    #[error("unknown column: expected one of {}, got {:?}", KnownColumns, Clipped(found))]
    UnknownColumn {
        /// The name in the header.
        found: String,
    },
    /// A column that the header names twice.
    #[error("repeated column: already in column {first}")]
    RepeatedColumn {
        /// The position of its first occurrence, from 1.
        first: usize,
    },
    /// A column that must be there.
    #[error("missing column {missing}: lower, upper and size are required")]
    MissingColumn {
        /// The column.
        missing: Column,
    },
    /// A line that is shorter than the header.
    #[error("missing field: the line has only {fields}")]
    MissingField {
        /// How many fields the line has.
        fields: usize,
    },
    /// A line that is longer than the header.
    #[error("too many fields: expected {columns}, got another: {:?}", Clipped(found))]
    SurplusField {
        /// The first field without a column.
        found: String,
        /// How many columns there are.
        columns: usize,
    },
    /// An empty field where a number must be.
    #[error("missing number")]
    NumberMissing,
    /// A field that is no number at all.
    #[error("not a number: {:?}", Clipped(found))]
    NotANumber {
        /// The text of the field.
        found: String,
    },
    /// A number with a fraction or an exponent.
    #[error("not a whole number in plain digits: {:?}", Clipped(found))]
    NotWhole {
        /// The text of the field.
        found: String,
    },
    /// A number below zero.
    #[error("negative number: {:?}", Clipped(found))]
    Negative {
        /// The text of the field.
        found: String,
    },
    /// A number above 2^64 - 1.
    #[error("number too large: at most {}, got {:?}", u64::MAX, Clipped(found))]
    TooLarge {
        /// The text of the field.
        found: String,
    },
    /// A lifetime that is empty, or an alignment that is no power of two.
    #[error(transparent)]
    Unit(UnitError),
    /// A block without a name.
    #[error("empty id")]
    EmptyId,
    /// Two blocks of the same name.
    #[error("repeated id {:?}: already on line {first}", Clipped(id))]
    RepeatedId {
        /// The name.
        id: String,
        /// The line of its first occurrence.
        first: usize,
    },
    /// A block that follows one that is not in the file.
    #[error("unknown block to follow: {:?}", Clipped(found))]
    FollowsMissingBlock {
        /// The name it gives.
        found: String,
    },
    /// A block that overlaps one that is not in the file.
    #[error("unknown block to overlap: {:?}", Clipped(found))]
    OverlapsMissingBlock {
        /// The name it gives.
        found: String,
    },
    /// A block that overlaps another at a distance that is not given.
    #[error("overlap without a distance: {:?}", Clipped(found))]
    OverlapWithoutDistance {
        /// The name of the block to overlap.
        found: String,
    },
    /// A distance from a block that is not given.
    #[error("distance without a block to overlap: {distance}")]
    DistanceWithoutOverlap {
        /// The distance.
        distance: u64,
    },
    /// Half a place.
    #[error("buffer without an offset: {buffer}")]
    BufferWithoutOffset {
        /// The buffer.
        buffer: u64,
    },
    /// A buffer beyond all that can be numbered.
    #[error("buffer index too large: at most 4294967294, got {buffer}")]
    BufferIndexTooLarge {
        /// The buffer.
        buffer: u64,
    },
    /// More blocks than can be numbered.
    #[error("too many blocks: at most 4294967295")]
    TooMany,
    /// A text that is longer than is read.
    #[error(transparent)]
    InputTooLarge(InputTooLarge),
    /// A quote that is never closed.
    #[error("unclosed quote: it opens here")]
    UnclosedQuote,
    /// Something between a closing quote and the next comma.
    #[error("text after a closing quote: {:?}; write a quote inside quotes twice", Clipped(found))]
    AfterQuote {
        /// The text of the field.
        found: String,
    },
}

/// Why names, blocks and places are no [`Table`](super::Table), or a table no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Not one name and one place (or the lack of one) per block.
    #[error("table: lengths differ: {blocks} blocks, {ids} ids, {places} places")]
    Count {
        /// How many names there are.
        ids: usize,
        /// How many blocks.
        blocks: usize,
        /// How many places.
        places: usize,
    },
    /// More blocks than can be numbered.
    #[error("table: too many blocks: at most 4294967295, got {blocks}")]
    TooMany {
        /// How many there are.
        blocks: usize,
    },
    /// A block without a name.
    #[error("block {block}: empty id")]
    EmptyId {
        /// The block.
        block: BlockId,
    },
    /// Two blocks of the same name.
    #[error("blocks {first} and {second}: same id {:?}", Clipped(id))]
    RepeatedId {
        /// The name.
        id: String,
        /// The first of the two.
        first: BlockId,
        /// The second.
        second: BlockId,
    },
    /// A block that follows one that is not there.
    #[error("block {}: follows block {follows}, which does not exist", Clipped(id))]
    FollowsMissingBlock {
        /// The name of the follower.
        id: String,
        /// The block it names.
        follows: BlockId,
    },
    /// A block that overlaps one that is not there.
    #[error("block {}: overlaps block {overlaps}, which does not exist", Clipped(id))]
    OverlapsMissingBlock {
        /// The name of the block.
        id: String,
        /// The block it names.
        overlaps: BlockId,
    },
    /// A block without an offset.
    #[error("block {}: no offset", Clipped(id))]
    NoOffset {
        /// Its name.
        id: String,
        /// The block.
        block: BlockId,
    },
}

struct KnownColumns;

impl fmt::Display for KnownColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, column) in Column::ALL.iter().enumerate() {
            write!(f, "{}{column}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
