//! Words of the expression language: names, numbers, texts and signs.

use std::{iter::Peekable, str::CharIndices};

use super::CompileError;

/// One word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(Box<str>),
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    /// A sign, or one of the grammar's own words.
    Sign(&'static str),
    End,
}

/// Signs, longer ones first.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%",
];
const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// All words of a text; [`Token::End`] is last.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, CompileError> {
    let mut rest = text;
    let mut found = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            ' ' | '\t' | '\r' | '\n' | '\u{c}' => 1,
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ => {
                let (token, length) = token(rest, first)?;
                found.push(token);
                length
            }
        };
        rest = &rest[length..];
    }
    found.push(Token::End);
    Ok(found)
}

fn token(rest: &str, first: char) -> Result<(Token, usize), CompileError> {
    if let Some(quoted) = Quoted::at(rest) {
        return quoted.read(rest);
    }
    match first {
        'a'..='z' | 'A'..='Z' | '_' => Ok(name(rest)),
        '0'..='9' => number(rest),
        '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => number(rest),
        _ => SIGNS
            .iter()
            .find(|sign| rest.starts_with(**sign))
            .map(|sign| (Token::Sign(sign), sign.len()))
            .ok_or_else(|| CompileError::Syntax(format!("unexpected character {first:?}"))),
    }
}

fn name(rest: &str) -> (Token, usize) {
    let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let name = &rest[..length];
    let word = WORDS.iter().find(|word| **word == name);
    (word.map_or_else(|| Token::Name(name.into()), |word| Token::Sign(word)), length)
}

fn number(rest: &str) -> Result<(Token, usize), CompileError> {
    let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
    if let Some(hexadecimal) = rest.strip_prefix("0x") {
        let count = hexadecimal.bytes().take_while(u8::is_ascii_hexdigit).count();
        if count > 0 {
            return integer(rest, &hexadecimal[..count], 16, 2 + count);
        }
    }
    let mut end = digits(0);
    let mut is_float = false;
    if rest[end..].starts_with('.') && digits(end + 1) > 0 {
        (end, is_float) = (end + 1 + digits(end + 1), true);
    }
    if rest[end..].starts_with(['e', 'E']) {
        let signed = usize::from(rest[end + 1..].starts_with(['+', '-']));
        let exponent = digits(end + 1 + signed);
        if exponent > 0 {
            (end, is_float) = (end + 1 + signed + exponent, true);
        }
    }
    if !is_float {
        return integer(rest, &rest[..end], 10, end);
    }
    match rest[..end].parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((Token::Double(number), end)),
        _ => Err(CompileError::Syntax(format!("number {} is too big", &rest[..end]))),
    }
}

fn integer(rest: &str, digits: &str, base: u32, end: usize) -> Result<(Token, usize), CompileError> {
    let number =
        u64::from_str_radix(digits, base).map_err(|_| CompileError::Syntax(format!("number {digits} is too big")))?;
    match rest[end..].starts_with(['u', 'U']) {
        true => Ok((Token::Uint(number), end + 1)),
        false => Ok((Token::Int(number), end)),
    }
}

/// Quotation of a text.
struct Quoted {
    is_bytes: bool,
    is_raw: bool,
    quote: &'static str,
    /// Letters in front of the quote.
    prefix: usize,
}

impl Quoted {
    fn at(rest: &str) -> Option<Self> {
        let is_bytes = rest.starts_with(['b', 'B']);
        let is_raw = rest[usize::from(is_bytes)..].starts_with(['r', 'R']);
        let prefix = usize::from(is_bytes) + usize::from(is_raw);
        let quotes = ["\"\"\"", "'''", "\"", "'"];
        let quote = quotes.into_iter().find(|quote| rest[prefix..].starts_with(quote))?;
        Some(Self { is_bytes, is_raw, quote, prefix })
    }

    fn read(&self, rest: &str) -> Result<(Token, usize), CompileError> {
        let from = self.prefix + self.quote.len();
        let end = self.end(&rest[from..]).ok_or_else(|| CompileError::Syntax("a text is not closed".to_owned()))?;
        let inside = rest[from..from + end].replace("\r\n", "\n").replace('\r', "\n");
        let token = match (self.is_bytes, self.is_raw) {
            (true, true) => Token::Bytes(inside.into_bytes().into()),
            (false, true) => Token::Text(inside.into()),
            (true, false) => Token::Bytes(unescaped(&inside, true)?.into()),
            (false, false) => Token::Text(
                String::from_utf8(unescaped(&inside, false)?)
                    .map_err(|_| CompileError::Syntax("a text is not Unicode".to_owned()))?
                    .into(),
            ),
        };
        Ok((token, from + end + self.quote.len()))
    }

    /// Offset of the closing quote.
    fn end(&self, inside: &str) -> Option<usize> {
        let mut characters = inside.char_indices();
        while let Some((at, character)) = characters.next() {
            if inside[at..].starts_with(self.quote) {
                return Some(at);
            }
            match character {
                '\\' if !self.is_raw => {
                    characters.next();
                }
                '\n' | '\r' if self.quote.len() == 1 => return None,
                _ => {}
            }
        }
        None
    }
}

fn unescaped(inside: &str, is_bytes: bool) -> Result<Vec<u8>, CompileError> {
    let mut out = Vec::with_capacity(inside.len());
    let mut characters = inside.char_indices().peekable();
    let push = |out: &mut Vec<u8>, character: char| {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    };
    while let Some((_, character)) = characters.next() {
        if character != '\\' {
            push(&mut out, character);
            continue;
        }
        let escape = escape(inside, &mut characters, is_bytes);
        match escape.ok_or_else(|| CompileError::Syntax("unknown escape in a text".to_owned()))? {
            Escape::Character(character) => push(&mut out, character),
            Escape::Byte(byte) => out.push(byte),
        }
    }
    Ok(out)
}

enum Escape {
    Character(char),
    Byte(u8),
}

fn escape(inside: &str, characters: &mut Peekable<CharIndices<'_>>, is_bytes: bool) -> Option<Escape> {
    let (at, letter) = characters.next()?;
    let mut coded = |length: usize, from: usize, base: u32| {
        let digits = inside.get(from..from + length)?;
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        while characters.next_if(|(next, _)| *next < from + length).is_some() {}
        if is_plain { u32::from_str_radix(digits, base).ok() } else { None }
    };
    let number = match letter {
        'x' | 'X' => coded(2, at + 1, 16)?,
        'u' if !is_bytes => coded(4, at + 1, 16)?,
        'U' if !is_bytes => coded(8, at + 1, 16)?,
        '0'..='3' => coded(3, at, 8)?,
        _ => return simple_escape(letter).map(Escape::Character),
    };
    let is_byte = is_bytes && number < 256;
    if is_byte { u8::try_from(number).ok().map(Escape::Byte) } else { char::from_u32(number).map(Escape::Character) }
}

fn simple_escape(letter: char) -> Option<char> {
    Some(match letter {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '"' | '\'' | '\\' | '?' | '`' => letter,
        _ => return None,
    })
}
