//! Text in, statements of tokens out.

use alloc::string::String;
use alloc::vec::Vec;
use core::iter::Peekable;
use core::str::Chars;

use super::{TextError, TextFault};

/// A word, a quoted name or a symbol, and its position.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word(String),
    Quoted(String),
    Symbol(char),
}

impl Token {
    pub(super) fn error(&self, fault: impl Into<TextFault>) -> TextError {
        TextError { line: self.line, column: self.column, fault: fault.into() }
    }
}

/// Returns whether a character may be in labels, in operations and in numbers.
pub(super) fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_./%-".contains(character)
}

/// The most words and symbols of one statement: enough for a size in each of a hundred thousand memories.
pub(super) const MOST_TOKENS: usize = 1 << 18;

/// Walks over the statements of a text. Only the tokens of one are kept: they take many times the memory of the text.
pub(super) struct Statements<'a> {
    lexer: Lexer<'a>,
    tokens: Vec<Token>,
}

impl<'a> Statements<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { lexer: Lexer { rest: text.chars().peekable(), line: 1, column: 1 }, tokens: Vec::new() }
    }

    /// Returns the tokens of the next statement that has any; `None` at the end of the text.
    pub(super) fn next(&mut self) -> Result<Option<&[Token]>, TextError> {
        self.tokens.clear();
        while let Some(step) = self.lexer.step()? {
            match step {
                LexStep::Token(token) if self.tokens.len() == MOST_TOKENS => {
                    return Err(token.error(TextFault::TooLong));
                }
                LexStep::Token(token) => self.tokens.push(token),
                LexStep::End if !self.tokens.is_empty() => break,
                LexStep::End | LexStep::Nothing => {}
            }
        }
        Ok(if self.tokens.is_empty() { None } else { Some(&self.tokens) })
    }
}

enum LexStep {
    Token(Token),
    /// The end of a statement.
    End,
    Nothing,
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    line: u32,
    column: u32,
}

impl Lexer<'_> {
    fn step(&mut self) -> Result<Option<LexStep>, TextError> {
        let (line, column) = (self.line, self.column);
        let Some(character) = self.next() else { return Ok(None) };
        let token = |kind| LexStep::Token(Token { kind, line, column });
        Ok(Some(match character {
            '\n' | ';' => LexStep::End,
            '#' => {
                while self.rest.peek().is_some_and(|&next| next != '\n') {
                    self.next();
                }
                LexStep::Nothing
            }
            '"' => match self.quoted() {
                Some(name) => token(TokenKind::Quoted(name)),
                None => return Err(TextError { line, column, fault: TextFault::Quote }),
            },
            '=' | '[' | ']' | '{' | '}' | '(' | ')' | '+' | '^' | '@' | '!' | ',' | '?' => {
                token(TokenKind::Symbol(character))
            }
            _ if is_word(character) => {
                let mut word = String::from(character);
                while let Some(&next) = self.rest.peek()
                    && is_word(next)
                {
                    word.push(next);
                    self.next();
                }
                token(TokenKind::Word(word))
            }
            _ if character.is_whitespace() => LexStep::Nothing,
            _ => return Err(TextError { line, column, fault: TextFault::Character(character) }),
        }))
    }

    fn next(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        if character == '\n' {
            self.line = self.line.saturating_add(1);
            self.column = 1;
        } else {
            self.column = self.column.saturating_add(1);
        }
        Some(character)
    }

    /// Takes the name behind an opening quote.
    fn quoted(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.next()? {
                '"' => return Some(name),
                '\n' => return None,
                '\\' => name.push(self.escape()?),
                character => name.push(character),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        match self.next()? {
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => self.code_point(),
            character @ ('\\' | '"') => Some(character),
            _ => None,
        }
    }

    /// Takes a code point: `{1F6A2}`, as Rust writes it.
    fn code_point(&mut self) -> Option<char> {
        if self.next()? != '{' {
            return None;
        }
        let mut number = 0u32;
        loop {
            match self.next()? {
                '}' => return char::from_u32(number),
                digit => number = number.checked_mul(16)?.checked_add(digit.to_digit(16)?)?,
            }
        }
    }
}
