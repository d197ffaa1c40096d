//! Text with paths in braces, as `kubectl -o jsonpath` has it: `{range .items[*]}{.name}{"\n"}{end}`.

use std::io::{self, Write};

use serde_json::Value;

use super::{
    path::DocumentPath,
    scanner::{ExpressionError, ExpressionScanner},
};

/// A text with parts of a document in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PathTemplate(Vec<TemplatePart>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum TemplatePart {
    Text(String),
    /// The values at a path, with a blank between them.
    Values(DocumentPath),
    /// These parts for each value at the path, which is where paths in them begin.
    Each(DocumentPath, Vec<TemplatePart>),
}

impl PathTemplate {
    /// Reads a template. An expression without any brace is a path.
    pub(super) fn parse(expression: &str) -> Result<Self, ExpressionError> {
        let mut scanner = ExpressionScanner::new(expression);
        if expression.contains(['{', '}']) {
            return Ok(Self(parts(&mut scanner, None)?));
        }
        let path = DocumentPath::read(&mut scanner)?;
        if scanner.peek().is_some() {
            return Err(scanner.unexpected("the end of the path"));
        }
        Ok(Self(vec![TemplatePart::Values(path)]))
    }

    pub(super) fn write(&self, document: &Value, out: &mut dyn Write) -> io::Result<()> {
        write_parts(&self.0, document, document, out)
    }
}

/// Reads parts up to the end; those of a range, which begins at the place `range`, up to its own.
fn parts(scanner: &mut ExpressionScanner, range: Option<usize>) -> Result<Vec<TemplatePart>, ExpressionError> {
    let mut parts = Vec::new();
    loop {
        let text = scanner.until(|next| matches!(next, '{' | '}'));
        if !text.is_empty() {
            parts.push(TemplatePart::Text(text));
        }
        let at = scanner.place();
        if scanner.peek().is_none() {
            return match range {
                Some(begin) => Err(ExpressionScanner::mistake(begin, "no {end} closes this {range}")),
                None => Ok(parts),
            };
        }
        if !scanner.eats("{") {
            return Err(scanner.error("no { opens this }"));
        }
        scanner.skip_blanks();
        if scanner.eats_word("end") {
            scanner.expect("}")?;
            return match range {
                Some(_) => Ok(parts),
                None => Err(ExpressionScanner::mistake(at, "no {range} opens this {end}")),
            };
        }
        parts.push(in_braces(scanner, at)?);
    }
}

/// Reads what stands in braces, and the brace that closes them; of a range all up to its end.
fn in_braces(scanner: &mut ExpressionScanner, at: usize) -> Result<TemplatePart, ExpressionError> {
    if scanner.eats_word("range") {
        scanner.skip_blanks();
        let path = DocumentPath::read(scanner)?;
        scanner.expect("}")?;
        return Ok(TemplatePart::Each(path, parts(scanner, Some(at))?));
    }
    let part = match scanner.quoted()? {
        Some(text) => TemplatePart::Text(text),
        None => TemplatePart::Values(DocumentPath::read(scanner)?),
    };
    scanner.expect("}")?;
    Ok(part)
}

fn write_parts(parts: &[TemplatePart], root: &Value, current: &Value, out: &mut dyn Write) -> io::Result<()> {
    for part in parts {
        match part {
            TemplatePart::Text(text) => out.write_all(text.as_bytes())?,
            TemplatePart::Values(path) => {
                let values: Vec<String> = path.select(root, current).into_iter().map(text_of).collect();
                out.write_all(values.join(" ").as_bytes())?;
            }
            TemplatePart::Each(path, parts) => {
                let values = path.select(root, current);
                values.into_iter().try_for_each(|value| write_parts(parts, root, value, out))?;
            }
        }
    }
    Ok(())
}

/// A text as it is, and everything else as JSON.
pub(super) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
