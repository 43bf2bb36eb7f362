//! Block lists as text: one line per block, and a header that names the columns in any order.
//!
//! ```text
//!   id,lower,upper,size,alignment,offset
//!   conv,0,3,4096,64,0
//!   relu,3,5,1024,64,0
//! ```
//!
//! | column | meaning | without it, or where the field is empty |
//! |---|---|---|
//! | `id` | a name that no other block has | rows are numbered from 0 (an empty field is an error) |
//! | `lower`, `upper` | the steps at which the block is alive, `upper` exclusive | an error |
//! | `size` | bytes | an error |
//! | `alignment` | a power of two | 1 |
//! | `offset` | the offset of the block: a plan, or a pin | it has no place yet |
//! | `buffer` | in which buffer that is | 0 |
//! | `follows` | the id of the block whose bytes it reuses in place | it follows no block |
//! | `overlaps`, `distance` | the id of the block that it may [overlap](crate::Overlap), and how far below that one it then starts at least | it overlaps no block (one without the other is an error) |
//!
//! Spaces around fields, Windows line ends, a byte order mark, blank lines and a missing last line end are fine, and so
//! are capitals in the header. A field in double quotes may hold commas, line ends, outer spaces and (doubled) quotes.
//!
//! Text in, [`Table`] out, and back: [`read`] of [`write()`] is the same table. O(n log n), for the ids must be unique.

mod error;
mod records;
#[cfg(test)]
mod tests;

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

pub use error::{Column, CsvError, CsvFault, TableError};
use records::RecordReader;

use crate::{
    Align, Block, BlockId, BufferId, Bytes, Id, IdVec, InputLimit, Lifetime, Offset, Overlap, Place, Placement, Plan,
    Problem, ProblemError,
};

/// Reads a block list.
///
/// ```
/// use steeve_plan::{Bytes, csv};
/// let table = csv::read("id, lower, upper, size\nconv, 0, 3, 4096\nrelu, 3, 5, 1024\n")?;
/// assert_eq!(table.problem()?.blocks().len(), 2);
/// assert_eq!(table.blocks().as_slice()[1].size, Bytes(1024));
///
/// let error = csv::read("id,lower,upper,size\nconv,0,3,-4\n").unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 4 (size): negative number: \"-4\"");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Fails if the text has more than [`InputLimit::DEFAULT`] bytes.
pub fn read(text: &str) -> Result<Table, CsvError> {
    read_within(text, InputLimit::DEFAULT)
}

/// Reads a block list of at most `limit` bytes; otherwise like [`read`].
pub fn read_within(text: &str, limit: InputLimit) -> Result<Table, CsvError> {
    if let Err(error) = limit.check(text.len()) {
        return Err(CsvError { line: 1, column: None, name: None, fault: CsvFault::InputTooLarge(error) });
    }
    let mut records = RecordReader::new(text);
    let header = CsvHeader::read(&mut records)?;
    let mut rows = TableBuilder::default();
    while let Some(line) = records.advance()? {
        rows.push(&CsvRow { header: &header, line, fields: records.fields() })?;
    }
    rows.table(&header)
}

/// Writes a block list. Columns that say nothing (every alignment 1, no offset) are left out.
///
/// ```
/// use steeve_plan::{Strategy, csv, plan};
/// let table = csv::read("id,lower,upper,size\nconv,0,3,4096\nrelu,3,5,1024\n")?;
/// let plan = plan(table.problem()?, &Strategy::Fast)?;
/// let placed = csv::Table::of_plan(&plan, table.ids().clone())?;
/// let text = csv::write(&placed);
/// assert_eq!(text, "id,lower,upper,size,offset\nconv,0,3,4096,0\nrelu,3,5,1024,0\n");
/// assert_eq!(csv::read(&text)?, placed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(table: &Table) -> String {
    table.to_string()
}

/// Blocks with names, and places for some or all of them. No two blocks have the same name, and none has an empty one.
///
/// Whether the blocks make a sound problem, and the places a sound plan, is for [`Problem::new`] and
/// [`certify`](crate::certify) to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    ids: IdVec<BlockId, String>,
    /// Without pins: `places` has them.
    blocks: IdVec<BlockId, Block>,
    places: IdVec<BlockId, Option<Place>>,
    /// The blocks in the order of their names, to find one by its name.
    by_name: Vec<BlockId>,
}

impl Table {
    /// Creates a table. Fails unless there are as many names and places as blocks, the names are unique and not empty,
    /// and each block follows and overlaps one of the table, if any. Drops pins of `blocks`; `places` gives the places of blocks.
    pub fn new(
        ids: impl Into<IdVec<BlockId, String>>,
        blocks: impl Into<IdVec<BlockId, Block>>,
        places: impl Into<IdVec<BlockId, Option<Place>>>,
    ) -> Result<Self, TableError> {
        let (ids, mut blocks, places) = (ids.into(), blocks.into(), places.into());
        if ids.len() != blocks.len() || places.len() != blocks.len() {
            return Err(TableError::Count { ids: ids.len(), blocks: blocks.len(), places: places.len() });
        }
        if !ids.is_empty() && BlockId::from_index(ids.len() - 1).is_none() {
            return Err(TableError::TooMany { blocks: ids.len() });
        }
        if let Some((block, _)) = ids.pairs().find(|(_, id)| id.is_empty()) {
            return Err(TableError::EmptyId { block });
        }
        let by_name = order_of_names(&ids);
        if let Some((first, second)) = first_repeat(&ids, &by_name) {
            return Err(TableError::RepeatedId { id: ids[first].clone(), first, second });
        }
        for block in blocks.ids() {
            blocks[block].pinned = None;
            if let Some(follows) = blocks[block].follows
                && follows.index() >= ids.len()
            {
                return Err(TableError::FollowsMissingBlock { id: ids[block].clone(), follows });
            }
            if let Some(Overlap { source: overlaps, .. }) = blocks[block].overlaps
                && overlaps.index() >= ids.len()
            {
                return Err(TableError::OverlapsMissingBlock { id: ids[block].clone(), overlaps });
            }
        }
        Ok(Self { ids, blocks, places, by_name })
    }

    /// Creates a table of the blocks of a problem; those that are pinned have a place.
    pub fn of_problem(problem: &Problem, ids: impl Into<IdVec<BlockId, String>>) -> Result<Self, TableError> {
        let places = problem.blocks().iter().map(|block| block.pinned);
        Self::new(ids, problem.blocks().clone(), places.collect::<IdVec<_, _>>())
    }

    /// Creates a table of the blocks of a plan, each with its place.
    pub fn of_plan(plan: &Plan, ids: impl Into<IdVec<BlockId, String>>) -> Result<Self, TableError> {
        let places = plan.places().iter().map(|place| Some(*place));
        Self::new(ids, plan.problem().blocks().clone(), places.collect::<IdVec<_, _>>())
    }

    /// Returns the names.
    pub fn ids(&self) -> &IdVec<BlockId, String> {
        &self.ids
    }

    /// Returns the names, without a copy.
    pub fn into_ids(self) -> IdVec<BlockId, String> {
        self.ids
    }

    /// Returns the blocks, none of them pinned.
    pub fn blocks(&self) -> &IdVec<BlockId, Block> {
        &self.blocks
    }

    /// Returns the place of each block, where it has one.
    pub fn places(&self) -> &IdVec<BlockId, Option<Place>> {
        &self.places
    }

    /// Finds the block with this name. O(log n).
    pub fn find(&self, id: &str) -> Option<BlockId> {
        find(&self.ids, &self.by_name, id)
    }

    /// Returns the problem to place all blocks, whatever places they have now.
    pub fn problem(&self) -> Result<Problem, ProblemError> {
        Problem::new(self.blocks.clone())
    }

    /// Returns the problem to place the blocks without a place around those that have one.
    ///
    /// ```
    /// use steeve_plan::{Offset, Place, Strategy, csv, plan};
    /// let table = csv::read("lower,upper,size,offset\n0,2,64,128\n1,3,64,\n")?;
    /// let plan = plan(table.pinned_problem()?, &Strategy::Fast)?;
    /// assert_eq!(plan.places().as_slice()[0], Place::first(Offset(128)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pinned_problem(&self) -> Result<Problem, ProblemError> {
        let pinned = |(block, place): (&Block, &Option<Place>)| Block { pinned: *place, ..*block };
        Problem::new(self.blocks.iter().zip(&self.places).map(pinned).collect::<IdVec<_, _>>())
    }

    /// Returns the places as a placement to certify. Fails if a block has none.
    ///
    /// ```
    /// use steeve_plan::{certify, csv};
    /// let table = csv::read("lower,upper,size,offset\n0,2,64,0\n1,3,64,32\n")?;
    /// let wrong = certify(table.problem()?, table.placement()?).unwrap_err();
    /// assert_eq!(wrong.to_string(), "blocks 0 and 1 share byte 32 of buffer 0 at step 1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn placement(&self) -> Result<Placement, TableError> {
        let place = |(block, place): (BlockId, &Option<Place>)| {
            place.ok_or_else(|| TableError::NoOffset { id: self.ids[block].clone(), block })
        };
        let places: Result<IdVec<BlockId, Place>, TableError> = self.places.pairs().map(place).collect();
        places.map(Placement::new)
    }

    /// Returns the columns with any value other than the default, in the order in which they are written.
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::from([Column::Id, Column::Lower, Column::Upper, Column::Size]);
        if self.blocks.iter().any(|block| block.align != Align::ONE) {
            columns.push(Column::Alignment);
        }
        if self.places.iter().flatten().any(|place| place.buffer != BufferId::FIRST) {
            columns.push(Column::Buffer);
        }
        if self.places.iter().any(Option::is_some) {
            columns.push(Column::Offset);
        }
        if self.blocks.iter().any(|block| block.follows.is_some()) {
            columns.push(Column::Follows);
        }
        if self.blocks.iter().any(|block| block.overlaps.is_some()) {
            columns.extend([Column::Overlaps, Column::Distance]);
        }
        columns
    }

    fn write_field(&self, column: Column, id: BlockId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (block, place) = (&self.blocks[id], self.places[id]);
        match column {
            Column::Id => write_text(&self.ids[id], f),
            Column::Lower => write!(f, "{}", block.life.start()),
            Column::Upper => write!(f, "{}", block.life.end()),
            Column::Size => write!(f, "{}", block.size),
            Column::Alignment => write!(f, "{}", block.align),
            Column::Buffer => place.map_or(Ok(()), |place| write!(f, "{}", place.buffer)),
            Column::Offset => place.map_or(Ok(()), |place| write!(f, "{}", place.offset)),
            Column::Follows => block.follows.map_or(Ok(()), |before| write_text(&self.ids[before], f)),
            Column::Overlaps => block.overlaps.map_or(Ok(()), |it| write_text(&self.ids[it.source], f)),
            Column::Distance => block.overlaps.map_or(Ok(()), |it| write!(f, "{}", it.distance)),
        }
    }
}

/// As CSV.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.columns();
        for (index, column) in columns.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { "," }, column.name())?;
        }
        f.write_char('\n')?;
        for id in self.blocks.ids() {
            for (index, column) in columns.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { "," })?;
                self.write_field(*column, id, f)?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

/// Writes a text, in quotes where the reader would misread it.
fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plain = text.trim() == text && !text.contains([',', '"', '\n', '\r']);
    if plain { f.write_str(text) } else { write!(f, "\"{}\"", text.replace('"', "\"\"")) }
}

/// The columns of the file and their positions.
struct CsvHeader {
    /// The columns of the file in their order.
    columns: Vec<Column>,
    /// The inverse: the position of each known column.
    positions: [Option<usize>; Column::ALL.len()],
}

impl CsvHeader {
    fn read(records: &mut RecordReader<'_>) -> Result<Self, CsvError> {
        let Some(line) = records.advance()? else {
            return Err(CsvError { line: 1, column: None, name: None, fault: CsvFault::NoHeader });
        };
        let mut header = Self { columns: Vec::new(), positions: [None; Column::ALL.len()] };
        for (position, found) in records.fields().iter().enumerate() {
            let at = |name, fault| CsvError { line, column: Some(position + 1), name, fault };
            let Some(column) = Column::from_name(found) else {
                return Err(at(None, CsvFault::UnknownColumn { found: found.clone().into_owned() }));
            };
            if let Some(first) = header.positions[column as usize].replace(position) {
                return Err(at(Some(column), CsvFault::RepeatedColumn { first: first + 1 }));
            }
            header.columns.push(column);
        }
        for missing in [Column::Lower, Column::Upper, Column::Size] {
            if header.positions[missing as usize].is_none() {
                let fault = CsvFault::MissingColumn { missing };
                return Err(CsvError { line, column: None, name: None, fault });
            }
        }
        Ok(header)
    }
}

/// One line, with what error messages need.
struct CsvRow<'a, 'text> {
    header: &'a CsvHeader,
    line: usize,
    fields: &'a [Cow<'text, str>],
}

impl CsvRow<'_, '_> {
    fn error(&self, column: Column, fault: CsvFault) -> CsvError {
        let position = self.header.positions[column as usize];
        CsvError { line: self.line, column: position.map(|it| it + 1), name: Some(column), fault }
    }

    /// Checks that the line has as many fields as the header has columns.
    fn check_length(&self) -> Result<(), CsvError> {
        let columns = &self.header.columns;
        if let Some(missing) = columns.get(self.fields.len()) {
            return Err(self.error(*missing, CsvFault::MissingField { fields: self.fields.len() }));
        }
        if let Some(surplus) = self.fields.get(columns.len()) {
            let fault = CsvFault::SurplusField { found: surplus.clone().into_owned(), columns: columns.len() };
            return Err(CsvError { line: self.line, column: Some(columns.len() + 1), name: None, fault });
        }
        Ok(())
    }

    /// Returns the field in `column`, or `None` where the file has no such column.
    fn field(&self, column: Column) -> Option<&str> {
        let position = self.header.positions[column as usize]?;
        self.fields.get(position).map(Cow::as_ref)
    }

    /// Returns the number in a column that must have one.
    fn number(&self, column: Column) -> Result<u64, CsvError> {
        number(self.field(column).unwrap_or("")).map_err(|fault| self.error(column, fault))
    }

    /// Returns the number in a column that may be missing or empty.
    fn optional_number(&self, column: Column) -> Result<Option<u64>, CsvError> {
        match self.field(column) {
            None | Some("") => Ok(None),
            Some(_) => self.number(column).map(Some),
        }
    }

    fn block(&self) -> Result<Block, CsvError> {
        let life = Lifetime::new(self.number(Column::Lower)?, self.number(Column::Upper)?)
            .map_err(|error| self.error(Column::Upper, CsvFault::Unit(error)))?;
        let align = Align::new(self.optional_number(Column::Alignment)?.unwrap_or(1))
            .map_err(|error| self.error(Column::Alignment, CsvFault::Unit(error)))?;
        Ok(Block::new(Bytes(self.number(Column::Size)?), life).aligned(align))
    }

    /// Returns the name of the block to overlap, with the distance. One without the other is an error.
    fn overlap(&self) -> Result<Option<(&str, Bytes)>, CsvError> {
        let source = self.field(Column::Overlaps).filter(|name| !name.is_empty());
        match (source, self.optional_number(Column::Distance)?) {
            (None, None) => Ok(None),
            (Some(source), Some(distance)) => Ok(Some((source, Bytes(distance)))),
            (Some(source), None) => {
                Err(self.error(Column::Overlaps, CsvFault::OverlapWithoutDistance { found: source.to_string() }))
            }
            (None, Some(distance)) => Err(self.error(Column::Distance, CsvFault::DistanceWithoutOverlap { distance })),
        }
    }

    fn place(&self) -> Result<Option<Place>, CsvError> {
        let buffer = self.optional_number(Column::Buffer)?;
        match (self.optional_number(Column::Offset)?, buffer) {
            (None, None) => Ok(None),
            (None, Some(buffer)) => Err(self.error(Column::Buffer, CsvFault::BufferWithoutOffset { buffer })),
            (Some(offset), buffer) => {
                let index = buffer.unwrap_or(0);
                let id = usize::try_from(index).ok().and_then(BufferId::from_index);
                let buffer =
                    id.ok_or_else(|| self.error(Column::Buffer, CsvFault::BufferIndexTooLarge { buffer: index }))?;
                Ok(Some(Place { buffer, offset: Offset(offset) }))
            }
        }
    }
}

/// Parses a whole number from 0 to 2^64 - 1; otherwise returns the most likely fault.
fn number(text: &str) -> Result<u64, CsvFault> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let found = || text.to_string();
    if digits(text) {
        return text.parse().map_err(|_| CsvFault::TooLarge { found: found() });
    }
    Err(match text.strip_prefix('-') {
        _ if text.is_empty() => CsvFault::NumberMissing,
        Some(rest) if rest.parse::<f64>().is_ok() => CsvFault::Negative { found: found() },
        None if text.parse::<f64>().is_ok() => CsvFault::NotWhole { found: found() },
        _ => CsvFault::NotANumber { found: found() },
    })
}

/// The rows read so far.
#[derive(Default)]
struct TableBuilder {
    ids: Vec<String>,
    blocks: Vec<Block>,
    places: Vec<Option<Place>>,
    lines: Vec<usize>,
    /// A block may follow one that is listed later, so names are looked up at the end.
    follows: Vec<(usize, String)>,
    overlaps: Vec<(usize, String, Bytes)>,
}

impl TableBuilder {
    fn push(&mut self, row: &CsvRow<'_, '_>) -> Result<(), CsvError> {
        row.check_length()?;
        let index = self.blocks.len();
        self.ids.push(match row.field(Column::Id) {
            Some("") => return Err(row.error(Column::Id, CsvFault::EmptyId)),
            Some(id) => id.to_string(),
            None => format!("{index}"),
        });
        if let Some(before) = row.field(Column::Follows)
            && !before.is_empty()
        {
            self.follows.push((index, before.to_string()));
        }
        if let Some((source, distance)) = row.overlap()? {
            self.overlaps.push((index, source.to_string(), distance));
        }
        self.places.push(row.place()?);
        self.blocks.push(row.block()?);
        self.lines.push(row.line);
        Ok(())
    }

    fn table(mut self, header: &CsvHeader) -> Result<Table, CsvError> {
        let at = |line, column: Column, fault| {
            let position = header.positions[column as usize];
            CsvError { line, column: position.map(|it| it + 1), name: Some(column), fault }
        };
        if let Some(last) = self.blocks.len().checked_sub(1)
            && BlockId::from_index(last).is_none()
        {
            return Err(at(self.lines[last], Column::Id, CsvFault::TooMany));
        }
        let ids = IdVec::from(self.ids);
        let by_name = order_of_names(&ids);
        if let Some((first, second)) = first_repeat(&ids, &by_name) {
            let fault = CsvFault::RepeatedId { id: ids[first].clone(), first: self.lines[first.index()] };
            return Err(at(self.lines[second.index()], Column::Id, fault));
        }
        for (index, found) in self.follows {
            match find(&ids, &by_name, &found) {
                Some(before) => self.blocks[index].follows = Some(before),
                None => return Err(at(self.lines[index], Column::Follows, CsvFault::FollowsMissingBlock { found })),
            }
        }
        for (index, found, distance) in self.overlaps {
            match find(&ids, &by_name, &found) {
                Some(source) => self.blocks[index].overlaps = Some(Overlap { source, distance }),
                None => return Err(at(self.lines[index], Column::Overlaps, CsvFault::OverlapsMissingBlock { found })),
            }
        }
        Ok(Table { ids, blocks: self.blocks.into(), places: self.places.into(), by_name })
    }
}

fn order_of_names(ids: &IdVec<BlockId, String>) -> Vec<BlockId> {
    let mut order: Vec<BlockId> = ids.ids().collect();
    order.sort_unstable_by(|a, b| (&ids[*a], a).cmp(&(&ids[*b], b)));
    order
}

/// Finds the two first occurrences of the repeated name whose second occurrence comes first.
fn first_repeat(ids: &IdVec<BlockId, String>, by_name: &[BlockId]) -> Option<(BlockId, BlockId)> {
    let pairs = by_name.windows(2).filter_map(|pair| match pair {
        [first, second] if ids[*first] == ids[*second] => Some((*first, *second)),
        _ => None,
    });
    pairs.min_by_key(|pair| pair.1)
}

fn find(ids: &IdVec<BlockId, String>, by_name: &[BlockId], name: &str) -> Option<BlockId> {
    let at = by_name.binary_search_by(|id| ids[*id].as_str().cmp(name)).ok()?;
    by_name.get(at).copied()
}
