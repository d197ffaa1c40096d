//! Texts.

use super::{Body, Outcome, failed, int, lists, mismatch, text};
use crate::{
    EvaluationError,
    cost::Meter,
    regex::Regex,
    value::{List, Value, count},
};

pub(super) const ALL: &[(&str, Body)] = &[
    ("contains", |arguments, _| ask(arguments, |text, part| text.contains(part))),
    ("startsWith", |arguments, _| ask(arguments, |text, part| text.starts_with(part))),
    ("endsWith", |arguments, _| ask(arguments, |text, part| text.ends_with(part))),
    ("matches", |arguments, meter| read_regex("matches", arguments, meter)),
    ("find", |arguments, meter| read_regex("find", arguments, meter)),
    ("findAll", |arguments, meter| read_regex("findAll", arguments, meter)),
    ("charAt", char_at),
    ("indexOf", index_of),
    ("lastIndexOf", last_index_of),
    ("lowerAscii", |arguments, meter| change(arguments, meter, str::to_ascii_lowercase)),
    ("upperAscii", |arguments, meter| change(arguments, meter, str::to_ascii_uppercase)),
    ("trim", |arguments, meter| change(arguments, meter, |text| text.trim_matches(is_space).to_owned())),
    ("replace", replace),
    ("split", split),
    ("substring", substring),
    ("join", join),
    ("strings.quote", |arguments, meter| change(arguments, meter, quote)),
];

fn ask<'a>(arguments: &[Value<'a>], holds: fn(&str, &str) -> bool) -> Outcome<'a> {
    match arguments {
        [Value::Text(text), Value::Text(part)] => Ok(Value::Bool(holds(text, part))),
        other => mismatch(other),
    }
}

fn change<'a>(arguments: &[Value<'a>], meter: &mut Meter, changed: impl Fn(&str) -> String) -> Outcome<'a> {
    match arguments {
        [Value::Text(before)] => text(changed(before), meter),
        other => mismatch(other),
    }
}

/// True for characters that Go trims.
fn is_space(character: char) -> bool {
    character.is_whitespace()
}

fn read_regex<'a>(name: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Text(_), Value::Text(pattern), ..] => with_regex(name, &Regex::new(pattern)?, arguments, meter),
        other => mismatch(other),
    }
}

pub(super) fn with_regex<'a>(name: &str, regex: &Regex, arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    match (name, arguments) {
        ("matches", [Value::Text(subject), _]) => Ok(Value::Bool(regex.is_match(subject))),
        ("find", [Value::Text(subject), _]) => text(regex.find(subject).unwrap_or_default().to_owned(), meter),
        ("findAll", [Value::Text(subject), _]) => texts(regex.find_all(subject), meter),
        ("findAll", [Value::Text(subject), _, Value::Int(most)]) => {
            // Less than nothing means all of them.
            texts(regex.find_all(subject).take(usize::try_from(*most).unwrap_or(usize::MAX)), meter)
        }
        (_, other) => mismatch(other),
    }
}

fn texts<'a, 't>(parts: impl Iterator<Item = &'t str>, meter: &mut Meter) -> Outcome<'a> {
    let parts: Vec<&str> = parts.collect();
    meter.make(parts.iter().map(|part| count(part.len()) + 1).sum())?;
    Ok(Value::List(List::texts(parts)))
}

fn out_of_range<T>(index: i64) -> Result<T, EvaluationError> {
    failed(format!("index {index} is out of range"))
}

/// Offset of a character in bytes; the end of the text has an index too.
fn offset(text: &str, index: i64) -> Result<usize, EvaluationError> {
    let index_in_text = usize::try_from(index).ok();
    let mut offsets = text.char_indices().map(|(offset, _)| offset).chain([text.len()]);
    index_in_text.and_then(|at| offsets.nth(at)).map_or_else(|| out_of_range(index), Ok)
}

fn char_at<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Text(whole), Value::Int(index)] => {
            let at = offset(whole, *index)?;
            text(whole[at..].chars().take(1).collect(), meter)
        }
        other => mismatch(other),
    }
}

fn substring<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    match arguments {
        [Value::Text(whole), Value::Int(from)] => text(whole[offset(whole, *from)?..].to_owned(), meter),
        [Value::Text(_), Value::Int(from), Value::Int(to)] if from > to => {
            failed(format!("substring from {from} to {to}"))
        }
        [Value::Text(whole), Value::Int(from), Value::Int(to)] => {
            text(whole[offset(whole, *from)?..offset(whole, *to)?].to_owned(), meter)
        }
        other => mismatch(other),
    }
}

/// The index of a character that begins at an offset.
fn index<'a>(text: &str, offset: Option<usize>) -> Value<'a> {
    offset.map_or(Value::Int(-1), |offset| int(count(text[..offset].chars().count())))
}

fn index_of<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let (whole, part, from) = match arguments {
        [Value::List(list), wanted] => return Ok(lists::index_of(list, wanted, meter)),
        [Value::Text(whole), Value::Text(part)] => (whole, part, 0),
        [Value::Text(whole), Value::Text(part), Value::Int(from)] => (whole, part, *from),
        other => return mismatch(other),
    };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return out_of_range(from);
    }
    let Ok(start) = offset(whole, from) else { return Ok(Value::Int(-1)) };
    Ok(index(whole, whole[start..].find(&**part).map(|at| start + at)))
}

fn last_index_of<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let length = |text: &str| i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    match arguments {
        [Value::List(list), wanted] => Ok(lists::last_index_of(list, wanted, meter)),
        [Value::Text(whole), Value::Text(part)] if part.is_empty() => Ok(Value::Int(length(whole))),
        [Value::Text(whole), Value::Text(part)] => Ok(index(whole, whole.rfind(&**part))),
        [Value::Text(_), Value::Text(part), Value::Int(from)] if part.is_empty() => Ok(Value::Int(*from)),
        [Value::Text(_), Value::Text(_), Value::Int(from)] if *from < 0 => out_of_range(*from),
        [Value::Text(whole), Value::Text(_), Value::Int(from)] if *from >= length(whole) => Ok(Value::Int(-1)),
        [Value::Text(whole), Value::Text(part), Value::Int(from)] => {
            let end = (offset(whole, *from)? + part.len()).min(whole.len());
            let end = (end..=whole.len()).find(|end| whole.is_char_boundary(*end)).unwrap_or(whole.len());
            let last = whole[..end].rmatch_indices(&**part).map(|(at, _)| index(whole, Some(at)));
            let mut last = last.filter(|found| matches!(found, Value::Int(at) if at <= from));
            Ok(last.next().unwrap_or(Value::Int(-1)))
        }
        other => mismatch(other),
    }
}

fn replace<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let (whole, old, new, most) = match arguments {
        [Value::Text(whole), Value::Text(old), Value::Text(new)] => (whole, old, new, -1),
        [Value::Text(whole), Value::Text(old), Value::Text(new), Value::Int(most)] => (whole, old, new, *most),
        other => return mismatch(other),
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let found = whole.matches(&**old).take(most).count();
    meter.make(count(found).saturating_mul(count(new.len())))?;
    text(whole.replacen(&**old, new, found), meter)
}

fn split<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let (whole, separator, most) = match arguments {
        [Value::Text(whole), Value::Text(separator)] => (whole, separator, -1),
        [Value::Text(whole), Value::Text(separator), Value::Int(most)] => (whole, separator, *most),
        other => return mismatch(other),
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match separator.is_empty() {
        false => texts(whole.splitn(most, &**separator), meter),
        true => texts(characters(whole, most).into_iter(), meter),
    }
}

/// Splits a text into its characters, the last part being the rest.
fn characters(text: &str, most: usize) -> Vec<&str> {
    let ends = text.char_indices().map(|(at, character)| (at, at + character.len_utf8()));
    let mut parts: Vec<&str> = Vec::new();
    for (from, to) in ends.take(most) {
        let is_last = parts.len() + 1 == most;
        parts.push(if is_last { &text[from..] } else { &text[from..to] });
    }
    parts
}

fn join<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Outcome<'a> {
    let (list, separator) = match arguments {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::Text(separator)] => (list, &**separator),
        other => return mismatch(other),
    };
    let mut joined = String::new();
    for (at, element) in list.iter().enumerate() {
        let Value::Text(element) = element else { return failed("only texts can be joined") };
        let before = if at == 0 { "" } else { separator };
        meter.make(count(before.len() + element.len()) + 1)?;
        joined.push_str(before);
        joined.push_str(&element);
    }
    Ok(Value::text(&joined))
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
