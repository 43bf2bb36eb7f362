//! Splits text into records of fields: handles commas, quotes and line ends, but not what the fields mean. O(length).

use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Column, CsvError, CsvFault};

/// Iterates over the records. Fields are borrowed from the text except where they contain doubled quotes.
pub(super) struct RecordReader<'a> {
    rest: &'a str,
    /// The line on which `rest` begins, from 1.
    line: usize,
    fields: Vec<Cow<'a, str>>,
}

/// What follows a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldEnd {
    Field,
    Record,
}

impl<'a> RecordReader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { rest, line: 1, fields: Vec::new() }
    }

    /// Reads the next record that is not blank and says on which line it begins; `None` at the end of the text.
    pub(super) fn advance(&mut self) -> Result<Option<usize>, CsvError> {
        loop {
            if self.rest.is_empty() {
                return Ok(None);
            }
            let line = self.line;
            self.fields.clear();
            // A record with more fields than there are columns is wrong whatever else it holds, and may be all commas.
            while self.field()? == FieldEnd::Field && self.fields.len() <= Column::ALL.len() {}
            if self.fields.iter().any(|field| !field.is_empty()) || self.fields.len() > 1 {
                return Ok(Some(line));
            }
        }
    }

    /// Returns the fields of the record, without outer spaces and quotes.
    pub(super) fn fields(&self) -> &[Cow<'a, str>] {
        &self.fields
    }

    fn field(&mut self) -> Result<FieldEnd, CsvError> {
        let blank = |letter: char| letter.is_whitespace() && letter != '\n';
        self.rest = self.rest.trim_start_matches(blank);
        match self.rest.strip_prefix('"') {
            Some(inside) => self.quoted(inside),
            None => {
                let text = self.up_to_end();
                self.fields.push(Cow::Borrowed(text));
                Ok(self.end())
            }
        }
    }

    fn quoted(&mut self, inside: &'a str) -> Result<FieldEnd, CsvError> {
        let (opened, column) = (self.line, Some(self.fields.len() + 1));
        let mut pieces: Cow<'a, str> = Cow::Borrowed("");
        let mut rest = inside;
        loop {
            let Some((piece, after)) = rest.split_once('"') else {
                return Err(CsvError { line: opened, column, name: None, fault: CsvFault::UnclosedQuote });
            };
            self.line += piece.matches('\n').count();
            if pieces.is_empty() {
                pieces = Cow::Borrowed(piece)
            } else {
                pieces.to_mut().push_str(piece)
            }
            match after.strip_prefix('"') {
                Some(more) => {
                    pieces.to_mut().push('"');
                    rest = more;
                }
                None => {
                    self.rest = after;
                    break;
                }
            }
        }
        let stray = self.up_to_end();
        if !stray.is_empty() {
            let fault = CsvFault::AfterQuote { found: stray.to_string() };
            return Err(CsvError { line: self.line, column, name: None, fault });
        }
        self.fields.push(pieces);
        Ok(self.end())
    }

    /// Takes the text before the next comma or line end.
    fn up_to_end(&mut self) -> &'a str {
        let length = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        text.trim()
    }

    /// Takes the comma or line end itself.
    fn end(&mut self) -> FieldEnd {
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            return FieldEnd::Field;
        }
        if let Some(rest) = self.rest.strip_prefix('\n') {
            self.rest = rest;
            self.line += 1;
        }
        FieldEnd::Record
    }
}
