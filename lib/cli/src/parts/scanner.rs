//! Reads an expression character by character, and knows the column.

/// A mistake in an expression.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("column {column}: {what}")]
pub(super) struct ExpressionError {
    /// The column, from 1, in characters of the expression.
    column: usize,
    /// The mistake.
    what: String,
}

/// A place in an expression.
#[derive(Debug)]
pub(super) struct ExpressionScanner {
    chars: Vec<char>,
    at: usize,
}

impl ExpressionScanner {
    pub(super) fn new(expression: &str) -> Self {
        Self { chars: expression.chars().collect(), at: 0 }
    }

    /// The next character.
    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    /// The next character, which is read.
    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += 1;
        Some(next)
    }

    /// True if the expression went on with this text, which is read.
    pub(super) fn eats(&mut self, text: &str) -> bool {
        let is_next = self.begins_with(text);
        if is_next {
            self.at += text.chars().count();
        }
        is_next
    }

    /// True if the expression went on with this word, which is read. A longer word is another one.
    pub(super) fn eats_word(&mut self, word: &str) -> bool {
        let behind = self.chars.get(self.at + word.chars().count());
        behind.is_none_or(|behind| behind.is_whitespace() || *behind == '}') && self.eats(word)
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    /// Reads this sign, with blanks before it.
    pub(super) fn expect(&mut self, sign: &str) -> Result<(), ExpressionError> {
        self.skip_blanks();
        if self.eats(sign) { Ok(()) } else { Err(self.unexpected(sign)) }
    }

    /// The characters up to the first for which `ends` is true.
    pub(super) fn until(&mut self, ends: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(next) = self.peek().filter(|next| !ends(*next)) {
            text.push(next);
            self.at += 1;
        }
        text
    }

    /// Reads a text in single or double quotes; `None` where none begins.
    pub(super) fn quoted(&mut self) -> Result<Option<String>, ExpressionError> {
        let begin = self.at;
        let Some(quote) = self.peek().filter(|next| matches!(next, '\'' | '"')) else { return Ok(None) };
        self.at += 1;
        let mut text = String::new();
        loop {
            let at = self.at;
            match self.next() {
                None => return Err(Self::mistake(begin, format!("no {quote} ends this text"))),
                Some(next) if next == quote => return Ok(Some(text)),
                Some('\\') => text.push(match self.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('r') => '\r',
                    Some(same @ ('\\' | '\'' | '"')) => same,
                    _ => return Err(Self::mistake(at, "behind \\ stands one of n t r \\ ' \"")),
                }),
                Some(next) => text.push(next),
            }
        }
    }

    /// The error that something else stands here.
    pub(super) fn unexpected(&self, expected: &str) -> ExpressionError {
        match self.peek() {
            Some(found) => self.error(format!("expected {expected}, found {found}")),
            None => self.error(format!("expected {expected}, found the end")),
        }
    }

    /// A mistake at the next character.
    pub(super) fn error(&self, what: impl Into<String>) -> ExpressionError {
        Self::mistake(self.at, what)
    }

    /// A mistake at a place that [`Self::place`] returned.
    pub(super) fn mistake(at: usize, what: impl Into<String>) -> ExpressionError {
        ExpressionError { column: at + 1, what: what.into() }
    }

    pub(super) fn place(&self) -> usize {
        self.at
    }

    fn begins_with(&self, text: &str) -> bool {
        let mut rest = self.chars[self.at..].iter();
        text.chars().all(|wanted| rest.next() == Some(&wanted))
    }
}
