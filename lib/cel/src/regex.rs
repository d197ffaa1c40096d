//! Regular expressions as Go reads them, on Rust's engine: the two agree in their matches, and differ in some of the
//! syntax.

use std::{iter::Peekable, str::Chars};

use super::{CompileError, EvaluationError};

/// Most repetitions that Go reads.
const MOST_REPEATED: u32 = 1000;

const DIGIT: &str = "0-9";
const SPACE: &str = r"\t\n\f\r ";
const WORD: &str = "0-9A-Za-z_";

/// A regular expression.
#[derive(Debug)]
pub(super) struct Regex(regex::Regex);

/// Error: a text is no regular expression.
#[derive(Debug)]
pub(super) enum RegexError {
    Invalid(String),
    /// Go reads the expression, but it is not translated here.
    Unsupported(String),
}

impl From<RegexError> for CompileError {
    fn from(error: RegexError) -> Self {
        match error {
            RegexError::Invalid(what) => Self::Constant(format!("invalid regular expression: {what}")),
            RegexError::Unsupported(what) => Self::Unsupported(format!("regular expressions with {what}")),
        }
    }
}

impl From<RegexError> for EvaluationError {
    fn from(error: RegexError) -> Self {
        match error {
            RegexError::Invalid(what) => Self::Failed(format!("invalid regular expression: {what}")),
            RegexError::Unsupported(what) => Self::Unsupported(format!("regular expressions with {what}")),
        }
    }
}

impl Regex {
    pub(super) fn new(pattern: &str) -> Result<Self, RegexError> {
        let rest = pattern.chars().peekable();
        let mut translation = Translation { rest, out: String::new(), was_repeated: false, last: 0, groups: vec![0] };
        translation.everything()?;
        regex::Regex::new(&translation.out).map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => RegexError::Unsupported("very many states".to_owned()),
            _ => RegexError::Invalid(pattern.to_owned()),
        })
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    pub(super) fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.0.find(text).map(|found| found.as_str())
    }

    pub(super) fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.0.find_iter(text).map(|found| found.as_str())
    }
}

struct Translation<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
    /// True if the last part is a repetition, which cannot be repeated again.
    was_repeated: bool,
    /// Number of times that counted repetitions repeat the innermost piece of the last part.
    last: u32,
    /// The same for the whole, and for every group that is open.
    groups: Vec<u32>,
}

type Done = Result<(), RegexError>;

impl Translation<'_> {
    fn everything(&mut self) -> Done {
        while let Some(character) = self.rest.next() {
            match character {
                '*' | '+' | '?' => {
                    self.out.push(character);
                    self.repeated()?;
                    continue;
                }
                '{' => {
                    if self.counted()? {
                        self.repeated()?;
                        continue;
                    }
                    self.literal('{');
                }
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '(' => self.group()?,
                '.' | '^' | '$' | '|' => self.out.push(character),
                ')' => {
                    self.out.push(')');
                    let inside = if self.groups.len() > 1 { self.groups.pop() } else { None };
                    self.ends(inside.unwrap_or(0));
                    continue;
                }
                other => self.literal(other),
            }
            self.ends(0);
        }
        Ok(())
    }

    /// Ends a part that has such repetitions in it.
    fn ends(&mut self, repeated: u32) {
        self.was_repeated = false;
        self.note(repeated);
    }

    fn note(&mut self, repeated: u32) {
        self.last = repeated;
        if let Some(group) = self.groups.last_mut() {
            *group = repeated.max(*group);
        }
    }

    fn literal(&mut self, character: char) {
        self.out.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
    }

    fn repeated(&mut self) -> Done {
        if self.was_repeated {
            return Err(RegexError::Invalid("a repetition of a repetition".to_owned()));
        }
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
        self.was_repeated = true;
        Ok(())
    }

    /// `{2}`, `{2,}` or `{2,5}`; anything else is a brace.
    fn counted(&mut self) -> Result<bool, RegexError> {
        let text: String = self.rest.clone().take_while(|character| *character != '}').collect();
        let (least, most) = text.split_once(',').unwrap_or((&text, &text));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_closed = self.rest.clone().nth(text.chars().count()) == Some('}');
        if !is_closed || !is_number(least) || !(most.is_empty() || is_number(most)) {
            return Ok(false);
        }
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number <= MOST_REPEATED);
        let bounds = (number(least), if most.is_empty() { Some(MOST_REPEATED) } else { number(most) });
        match bounds {
            (Some(least), Some(most)) if least <= most => {
                let times = if text.ends_with(',') { least } else { most };
                let repeated = times.saturating_mul(self.last.max(1));
                if repeated > MOST_REPEATED {
                    return Err(RegexError::Invalid(format!("repetitions of {{{text}}}")));
                }
                self.note(repeated);
                self.out.push_str(&format!("{{{text}}}"));
                self.rest.nth(text.chars().count());
                Ok(true)
            }
            _ => Err(RegexError::Invalid(format!("repetition {{{text}}}"))),
        }
    }

    fn escape(&mut self, is_in_class: bool) -> Done {
        let class = |negated: bool, inside: &str| match (is_in_class, negated) {
            (true, false) => inside.to_owned(),
            (_, true) => format!("[^{inside}]"),
            (false, false) => format!("[{inside}]"),
        };
        let letter = self.rest.next().ok_or_else(|| RegexError::Invalid("a lone backslash".to_owned()))?;
        let text = match letter {
            'd' | 'D' => class(letter == 'D', DIGIT),
            's' | 'S' => class(letter == 'S', SPACE),
            'w' | 'W' => class(letter == 'W', WORD),
            'b' | 'B' if !is_in_class => format!("(?-u:\\{letter})"),
            '0'..='7' => self.octal(letter)?,
            'A' | 'z' if !is_in_class => format!("\\{letter}"),
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => format!("\\{letter}"),
            'p' | 'P' | 'x' => format!("\\{letter}{}", self.braced_or(if letter == 'x' { 2 } else { 1 })?),
            'Q' => self.quoted(),
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => {
                self.literal(other);
                return Ok(());
            }
            other => return Err(RegexError::Invalid(format!("escape \\{other}"))),
        };
        self.out.push_str(&text);
        Ok(())
    }

    /// A character by up to three digits; one alone that is not zero would mean a group, and Go has none.
    fn octal(&mut self, first: char) -> Result<String, RegexError> {
        let mut digits = String::from(first);
        while let Some(digit) = self.rest.next_if(|next| ('0'..='7').contains(next) && digits.len() < 3) {
            digits.push(digit);
        }
        match u32::from_str_radix(&digits, 8) {
            Ok(code) if digits.len() > 1 || code == 0 => Ok(format!("\\x{{{code:x}}}")),
            _ => Err(RegexError::Invalid(format!("escape \\{digits}"))),
        }
    }

    /// Text in braces, or so many characters.
    fn braced_or(&mut self, count: usize) -> Result<String, RegexError> {
        let is_braced = self.rest.peek() == Some(&'{');
        let mut text = String::new();
        for character in self.rest.by_ref() {
            text.push(character);
            if if is_braced { character == '}' } else { text.chars().count() == count } {
                return Ok(text);
            }
        }
        Err(RegexError::Invalid("an escape that is not finished".to_owned()))
    }

    /// Reads the text up to `\E`, which stands for itself.
    fn quoted(&mut self) -> String {
        let mut text = String::new();
        while let Some(character) = self.rest.next() {
            if character == '\\' && self.rest.next_if_eq(&'E').is_some() {
                break;
            }
            text.push(character);
        }
        regex::escape(&text)
    }

    fn group(&mut self) -> Done {
        self.out.push('(');
        self.groups.push(0);
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        while let Some(character) = self.rest.next() {
            self.out.push(character);
            match character {
                // Flags for what follows, in the group that is open already.
                ')' => {
                    self.groups.pop();
                    return Ok(());
                }
                ':' | '>' => return Ok(()),
                '<' | 'P' => return self.group_name(),
                'i' | 'm' | 's' | 'U' | '-' => {}
                other => return Err(RegexError::Invalid(format!("group (?{other}"))),
            }
        }
        Ok(())
    }

    fn group_name(&mut self) -> Done {
        for character in self.rest.by_ref() {
            self.out.push(character);
            if character == '>' {
                break;
            }
        }
        Ok(())
    }

    fn class(&mut self) -> Done {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut is_first = true;
        while let Some(character) = self.rest.next() {
            match character {
                ']' if !is_first => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' if self.rest.peek() == Some(&':') => self.named_class(),
                '\\' => self.escape(true)?,
                '-' if !is_first && self.rest.peek().is_some_and(|next| *next != ']') && self.begins_range() => {
                    self.out.push('-');
                }
                other => self.literal(other),
            }
            is_first = false;
        }
        Err(RegexError::Invalid("a class that is not closed".to_owned()))
    }

    /// True if a dash stands behind a single character.
    fn begins_range(&self) -> bool {
        !self.out.ends_with(['[', '^', ']'])
    }

    /// `[:alpha:]` and the like; a bracket otherwise.
    fn named_class(&mut self) {
        let name: String = self.rest.clone().take_while(|character| *character != ']').collect();
        match name.len() > 2 && name.ends_with(':') {
            true => {
                self.out.push_str(&format!("[{name}]"));
                self.rest.nth(name.chars().count());
            }
            false => self.literal('['),
        }
    }
}
