//! Mistakes in a configuration: all of them, each with its place and its fix.

use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// One mistake.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ConfigMistake {
    /// Line of the file, from 1; `None` where the key is not in the file.
    pub line: Option<usize>,
    /// Path of the key, `inventory.rescan`; empty for the file as a whole.
    pub key: String,
    /// Description of the mistake.
    pub what: String,
    /// Way to mend it; empty where `what` says it.
    pub fix: String,
}

impl ConfigMistake {
    /// A mistake whose line is not known (yet).
    pub fn new(key: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { line: None, key: key.into(), what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        if self.fix.is_empty() { Ok(()) } else { write!(f, "; {}", self.fix) }
    }
}

/// Every mistake of a configuration; shown with one line each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigErrors {
    /// The file; `None` for the defaults.
    pub path: Option<PathBuf>,
    /// The mistakes, at least one.
    pub problems: Vec<ConfigMistake>,
}

impl ConfigErrors {
    /// The file itself cannot be read.
    pub fn unreadable(path: &Path, error: &io::Error) -> Self {
        let fix = match error.kind() {
            io::ErrorKind::NotFound => "create it, or leave out --config to run with the defaults",
            io::ErrorKind::PermissionDenied => "make it readable for the user that hostler runs as",
            _ => "a configuration is a regular file of UTF-8 text",
        };
        let problem = ConfigMistake::new("", format!("failed to read the file ({error})"), fix);
        Self { path: Some(path.to_owned()), problems: vec![problem] }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.path.as_ref().map_or_else(|| "configuration".to_owned(), |path| path.display().to_string());
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            match problem.line {
                Some(line) => write!(f, "{separator}{place}:{line}: {problem}")?,
                None => write!(f, "{separator}{place}: {problem}")?,
            }
        }
        Ok(())
    }
}

impl Error for ConfigErrors {}
