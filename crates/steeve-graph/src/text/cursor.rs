//! The tokens of one statement, taken one after the other.

use alloc::string::String;
use alloc::vec::Vec;

use steeve_plan::Bytes;

use super::lexer::{Token, TokenKind};
use super::{TextError, TextFault};
use crate::{DataType, Layout, LayoutError, MAX_DIMS, Param};

/// One word that points to a tensor or a memory.
#[derive(Clone)]
pub(super) struct Reference {
    pub(super) label: String,
    pub(super) token: Token,
}

/// A layout as it is written: without a type it is that of the root of a view, else f32.
pub(super) struct WrittenLayout {
    token: Token,
    dtype: Option<DataType>,
    shape: Vec<u64>,
    strides: Option<[u64; MAX_DIMS]>,
}

impl WrittenLayout {
    pub(super) fn layout(&self, usual: DataType) -> Result<Layout, TextError> {
        let dtype = self.dtype.unwrap_or(usual);
        let layout = match self.strides {
            Some(nb) => self.padded().and_then(|ne| Layout::new(dtype, ne, nb)),
            None => Layout::contiguous(dtype, &self.shape),
        };
        layout.map_err(|error| self.token.error(error))
    }

    fn padded(&self) -> Result<[u64; MAX_DIMS], LayoutError> {
        let mut ne = [1; MAX_DIMS];
        let used = ne.get_mut(..self.shape.len());
        used.ok_or(LayoutError::TooManyDimensions { dimensions: self.shape.len() })?.copy_from_slice(&self.shape);
        Ok(ne)
    }
}

/// The tokens of one statement. There is at least one.
pub(super) struct Cursor<'a> {
    pub(super) tokens: &'a [Token],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn next(&mut self) -> Option<&'a Token> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        Some(token)
    }

    fn peek(&self) -> Option<&'a TokenKind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    /// Takes the symbol if it is the next token.
    pub(super) fn symbol(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(&TokenKind::Symbol(symbol));
        self.at += usize::from(found);
        found
    }

    pub(super) fn demand(&mut self, symbol: char) -> Result<(), TextError> {
        let name = match symbol {
            '=' => "=",
            '+' => "+",
            ']' => "]",
            '}' => "}",
            ')' => ")",
            _ => "?",
        };
        if self.symbol(symbol) { Ok(()) } else { Err(self.expected(name)) }
    }

    /// Returns the error that something else was expected at the next token, or behind the last one.
    pub(super) fn expected(&self, what: &'static str) -> TextError {
        let fault = TextFault::Expected(what);
        match (self.tokens.get(self.at), self.tokens.last()) {
            (Some(token), _) => token.error(fault),
            (None, Some(last)) => {
                let width = match &last.kind {
                    TokenKind::Word(word) | TokenKind::Quoted(word) => word.chars().count(),
                    TokenKind::Symbol(_) => 1,
                };
                let column = last.column.saturating_add(u32::try_from(width).unwrap_or(u32::MAX));
                TextError { line: last.line, column, fault }
            }
            (None, None) => TextError { line: 1, column: 1, fault },
        }
    }

    pub(super) fn end(&self) -> Result<(), TextError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.expected("the end of the line")) }
    }

    pub(super) fn reference(&mut self, what: &'static str) -> Result<Reference, TextError> {
        match self.tokens.get(self.at) {
            Some(token @ Token { kind: TokenKind::Word(word), .. }) => {
                self.at += 1;
                Ok(Reference { label: word.clone(), token: token.clone() })
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Takes a name of ggml's, in quotes or not.
    pub(super) fn name(&mut self) -> Result<String, TextError> {
        match self.peek() {
            Some(TokenKind::Word(name) | TokenKind::Quoted(name)) => {
                self.at += 1;
                Ok(name.clone())
            }
            _ => Err(self.expected("a name")),
        }
    }

    pub(super) fn number(&mut self) -> Result<(u64, Token), TextError> {
        let Reference { label, token } = self.reference("a number")?;
        match label.parse() {
            Ok(number) => Ok((number, token)),
            Err(_) => Err(token.error(TextFault::Number(label))),
        }
    }

    pub(super) fn numbers(&mut self) -> Result<Vec<u64>, TextError> {
        let mut numbers = alloc::vec![self.number()?.0];
        while self.symbol(',') {
            numbers.push(self.number()?.0);
        }
        Ok(numbers)
    }

    /// Takes slots with distances: `0+128,1+64`.
    pub(super) fn distances(&mut self) -> Result<Vec<(u64, u64)>, TextError> {
        let mut distances = Vec::new();
        loop {
            let slot = self.number()?.0;
            self.demand('+')?;
            distances.push((slot, self.number()?.0));
            if !self.symbol(',') {
                return Ok(distances);
            }
        }
    }

    /// Takes parameters. What has a point, an exponent or is no finite number is a real number.
    pub(super) fn params(&mut self) -> Result<Vec<Param>, TextError> {
        let mut params = Vec::new();
        if !self.symbol('(') {
            return Ok(params);
        }
        loop {
            let Reference { label, token } = self.reference("a number")?;
            let param = match label.parse::<i64>() {
                Ok(value) => Some(Param::Int(value)),
                Err(_) if label.bytes().all(|byte| byte.is_ascii_digit()) => None,
                Err(_) => label.parse::<f32>().ok().map(Param::Float),
            };
            params.push(param.ok_or_else(|| token.error(TextFault::Number(label)))?);
            if !self.symbol(',') {
                self.demand(')')?;
                return Ok(params);
            }
        }
    }

    /// Takes a layout: `f32[4,4]`, `[4,4]` or `16`, with strides in braces; nothing if something else comes next.
    pub(super) fn layout(&mut self) -> Result<Option<WrittenLayout>, TextError> {
        let Some(token) = self.tokens.get(self.at) else { return Ok(None) };
        let bracket = self.tokens.get(self.at + 1).is_some_and(|next| next.kind == TokenKind::Symbol('['));
        let (dtype, shape) = match &token.kind {
            TokenKind::Symbol('[') => (None, self.shape()?),
            TokenKind::Word(word) if bracket => {
                let dtype = word.parse().map_err(|_| token.error(TextFault::Expected("a type of data")))?;
                self.at += 1;
                (Some(dtype), self.shape()?)
            }
            TokenKind::Word(word) if word.bytes().all(|byte| byte.is_ascii_digit()) => {
                (None, alloc::vec![self.number()?.0])
            }
            _ => return Ok(None),
        };
        let strides = if self.symbol('{') { Some(self.strides()?) } else { None };
        Ok(Some(WrittenLayout { token: token.clone(), dtype, shape, strides }))
    }

    fn strides(&mut self) -> Result<[u64; MAX_DIMS], TextError> {
        let wrong = self.expected("four strides");
        let strides = self.numbers()?;
        self.demand('}')?;
        strides.try_into().map_err(|_| wrong)
    }

    fn shape(&mut self) -> Result<Vec<u64>, TextError> {
        self.symbol('[');
        let shape = self.numbers()?;
        self.demand(']')?;
        Ok(shape)
    }

    pub(super) fn view(&mut self) -> Result<Option<(Bytes, Option<Reference>)>, TextError> {
        if !self.symbol('+') {
            return Ok(None);
        }
        let offset = Bytes(self.number()?.0);
        let root = if self.symbol('^') { Some(self.reference("a tensor")?) } else { None };
        Ok(Some((offset, root)))
    }
}
