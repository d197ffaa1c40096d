//! Reading the fields of an object: all mistakes at once, each with its path.

use serde_json::{Map, Value};

use crate::ConfigProblem;

/// Fields that say what an object is; read before its kind is known.
const HEADER: [&str; 2] = ["apiVersion", "kind"];

/// The values of a field that takes one of several words.
pub trait Word: Copy + PartialEq + 'static {
    /// Every word with its meaning.
    const WORDS: &'static [(&'static str, Self)];

    /// The word as it is written.
    fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, meaning)| *meaning == self).map_or("", |(word, _)| word)
    }
}

/// A field of a kind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldSchema {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub values: Values,
}

/// What a field takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Values {
    /// True or false.
    Truth,
    /// One of these words.
    Words(Vec<&'static str>),
    /// Any text.
    Text,
}

/// The fields of one object. What is asked for is what is known: the rest is refused in the end.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: &'a str,
    known: Vec<FieldSchema>,
    /// Whether any field will do.
    any: bool,
    problems: Vec<ConfigProblem>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(object: &'a Map<String, Value>, path: &'a str) -> Self {
        Self { object, path, known: Vec::new(), any: false, problems: Vec::new() }
    }

    /// A field that is true or false.
    pub(super) fn truth(&mut self, name: &'static str) -> Option<bool> {
        self.known.push(FieldSchema { name, values: Values::Truth });
        let value = self.object.get(name)?;
        if value.as_bool().is_none() {
            self.problem(name, format!("{value} is neither true nor false"));
        }
        value.as_bool()
    }

    /// A field that takes any text but an empty one.
    pub(super) fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(FieldSchema { name, values: Values::Text });
        let value = self.object.get(name)?;
        let text = value.as_str().filter(|text| !text.is_empty());
        if text.is_none() {
            self.problem(name, format!("{value} is not a text; leave the field out or write one in quotes"));
        }
        text.map(str::to_owned)
    }

    /// A field that takes one of the words of `T`.
    pub(super) fn word<T: Word>(&mut self, name: &'static str) -> Option<T> {
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let value = self.object.get(name);
        let known = T::WORDS.iter().find(|(word, _)| value.and_then(Value::as_str) == Some(word));
        if let (Some(value), None) = (value, known) {
            self.problem(name, format!("{value} is not one of {}", words.join(", ")));
        }
        self.known.push(FieldSchema { name, values: Values::Words(words) });
        known.map(|(_, meaning)| *meaning)
    }

    /// All fields, whatever they are.
    pub(super) fn all(&mut self) -> Map<String, Value> {
        self.any = true;
        let own = self.object.iter().filter(|(name, _)| !HEADER.contains(&name.as_str()));
        own.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// What was asked for; `None` where it was everything.
    pub(super) fn schema(self) -> Option<Vec<FieldSchema>> {
        (!self.any).then_some(self.known)
    }

    /// Every mistake, fields that nobody asked for included.
    pub(super) fn problems(mut self) -> Vec<ConfigProblem> {
        let known: Vec<&str> = self.known.iter().map(|field| field.name).collect();
        let is_known = |name: &str| self.any || HEADER.contains(&name) || known.contains(&name);
        let unknown: Vec<&String> = self.object.keys().filter(|name| !is_known(name)).collect();
        for name in unknown {
            let fix = nearest(name, &known)
                .map_or_else(|| format!("known are {}", known.join(", ")), |near| format!("did you mean {near}?"));
            self.problem(name, format!("there is no such field; {fix}"));
        }
        self.problems
    }

    fn problem(&mut self, name: &str, reason: String) {
        self.problems.push(ConfigProblem::new(format!("{}.{name}", self.path), reason));
    }
}

/// The candidate that `word` was most likely meant to be.
pub(super) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    // A third of the letters may be wrong: more, and the suggestion is a guess.
    let distance = |candidate: &str| strsim::damerau_levenshtein(&word.to_lowercase(), &candidate.to_lowercase());
    let best = candidates.iter().map(|candidate| (distance(candidate), *candidate)).min()?;
    (best.0 <= best.1.len().div_ceil(3)).then_some(best.1)
}
