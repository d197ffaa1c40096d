//! Mistakes in a script: where, what, and how to mend it.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It cannot be read.
    #[error("failed to read script {path}")]
    Read {
        /// The script.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It makes no sense.
    #[error("script {path}, line {line}{}{field}: {reason}", if field.is_empty() { "" } else { ", " })]
    Mistake {
        /// The script.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// The field, such as `device[0].name`; empty where the text is not even TOML.
        field: String,
        /// What is wrong, and the fix.
        reason: String,
    },
}

/// A way from the top of the script to a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Place(Vec<Segment>);

#[derive(Clone, Debug)]
enum Segment {
    Key(String),
    Index(usize),
}

/// A mistake whose line is not known yet.
#[derive(Debug)]
pub(super) struct Mistake {
    place: Place,
    reason: String,
}

impl Place {
    pub(super) fn key(&self, key: impl Into<String>) -> Self {
        self.then(Segment::Key(key.into()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.then(Segment::Index(index))
    }

    /// Appends `path`, such as `env[0]` or `mounts[1].hostPath`.
    pub(super) fn path(&self, path: &str) -> Self {
        path.split(['.', '[']).fold(self.clone(), |place, part| {
            match part.strip_suffix(']').and_then(|number| number.parse().ok()) {
                Some(index) => place.index(index),
                None => place.key(part),
            }
        })
    }

    fn then(&self, segment: Segment) -> Self {
        Self(self.0.iter().cloned().chain([segment]).collect())
    }

    pub(super) fn mistake(&self, reason: impl Into<String>) -> Mistake {
        Mistake { place: self.clone(), reason: reason.into() }
    }

    /// The bytes of the innermost value on the way that stands in `text`.
    fn span(&self, text: &str) -> Range<usize> {
        let Ok(root) = DeTable::parse(text) else { return 0..0 };
        let mut span = 0..0;
        let mut value = DeValue::Table(root.into_inner());
        for segment in &self.0 {
            let next = match (value, segment) {
                (DeValue::Table(mut table), Segment::Key(key)) => table.remove(&**key),
                (DeValue::Array(array), Segment::Index(index)) => array.into_iter().nth(*index),
                _ => None,
            };
            let Some(next) = next else { break };
            span = next.span();
            value = next.into_inner();
        }
        span
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if at == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl Mistake {
    pub(super) fn located(self, path: &Path, text: &str) -> ScriptError {
        let line = line(text, self.place.span(text).start);
        ScriptError::Mistake { path: path.to_owned(), line, field: self.place.to_string(), reason: self.reason }
    }
}

/// The number of the line that byte `offset` is in, from 1.
pub(super) fn line(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}
