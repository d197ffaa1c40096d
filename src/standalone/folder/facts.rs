//! Facts about the files of a folder of manifests, by file and by fact. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    sync::Arc,
};

use super::stamp::FileStamp;

/// A fact about a file.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Fact {
    /// The file is the manifest of the claim with this name.
    Name { namespace: String, name: String },
    /// The file is the manifest of the claim with this UID.
    Uid(String),
    /// The file cannot be read as a manifest.
    Unreadable,
    /// The file is no manifest, or one with an allocation that cannot be read.
    Mistaken,
    /// The file is a link, or had several names when it was read: its content can change without an event of its folder.
    Unwatched,
}

impl Fact {
    pub(super) fn name(namespace: &str, name: &str) -> Self {
        Self::Name { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// Everything that is known about a file.
#[derive(Debug)]
pub(super) struct KnownFile {
    /// State of the file when its facts were read; `None` where they have to be read anew each time.
    pub(super) stamp: Option<FileStamp>,
    pub(super) facts: Vec<Fact>,
}

#[derive(Debug)]
struct StampedFacts {
    stamp: Option<FileStamp>,
    facts: Vec<Arc<Fact>>,
}

/// Facts about all files of the folder.
#[derive(Debug, Default)]
pub(super) struct FactTable {
    files: BTreeMap<Arc<OsStr>, StampedFacts>,
    by_fact: BTreeSet<(Arc<Fact>, Arc<OsStr>)>,
}

impl FactTable {
    /// Puts the facts about a file in the place of earlier ones.
    pub(super) fn put(&mut self, file: &OsStr, KnownFile { stamp, facts }: KnownFile) {
        self.remove(file);
        let file: Arc<OsStr> = file.into();
        let facts: Vec<Arc<Fact>> = facts.into_iter().map(Arc::new).collect();
        self.by_fact.extend(facts.iter().map(|fact| (fact.clone(), file.clone())));
        self.files.insert(file, StampedFacts { stamp, facts });
    }

    /// Forgets a file.
    pub(super) fn remove(&mut self, file: &OsStr) {
        let Some((file, known)) = self.files.remove_entry(file) else { return };
        for fact in known.facts {
            self.by_fact.remove(&(fact, file.clone()));
        }
    }

    /// Forgets all files but these.
    pub(super) fn keep(&mut self, files: &BTreeSet<OsString>) {
        let gone: Vec<Arc<OsStr>> = self.files.keys().filter(|file| !files.contains(&***file)).cloned().collect();
        gone.iter().for_each(|file| self.remove(file));
    }

    /// Returns the files that a fact is about, by name.
    pub(super) fn with(&self, fact: Fact) -> impl Iterator<Item = &OsStr> {
        let fact = Arc::new(fact);
        // The empty name comes before all others.
        let begin = (fact.clone(), Arc::from(OsStr::new("")));
        self.by_fact.range(begin..).take_while(move |(found, _)| *found == fact).map(|(_, file)| &**file)
    }

    /// Returns the state of a file when its facts were read.
    pub(super) fn stamp(&self, file: &OsStr) -> Option<FileStamp> {
        self.files.get(file)?.stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(facts: &[Fact]) -> KnownFile {
        KnownFile { stamp: None, facts: facts.to_vec() }
    }

    fn with(table: &FactTable, fact: &Fact) -> Vec<String> {
        table.with(fact.clone()).map(|file| file.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn files_are_found_by_their_facts_as_long_as_these_hold() {
        let (train, other) = (Fact::name("ml", "train"), Fact::name("ml", "other"));
        let mut table = FactTable::default();
        table.put(OsStr::new("b"), known(&[train.clone(), Fact::Uid("1".to_owned())]));
        table.put(OsStr::new("a"), known(&[train.clone(), Fact::Unwatched]));
        table.put(OsStr::new("c"), known(&[Fact::Unreadable, Fact::Mistaken]));
        assert_eq!(with(&table, &train), ["a", "b"]);
        assert_eq!(with(&table, &Fact::Uid("1".to_owned())), ["b"]);
        assert_eq!(with(&table, &Fact::Unwatched), ["a"]);

        table.put(OsStr::new("a"), known(std::slice::from_ref(&other)));
        assert_eq!((with(&table, &train), with(&table, &other)), (vec!["b".to_owned()], vec!["a".to_owned()]));
        assert_eq!(with(&table, &Fact::Unwatched), [""; 0]);

        table.keep(&["a".into()].into());
        assert_eq!((with(&table, &train), with(&table, &Fact::Unreadable)), (Vec::new(), Vec::new()));
        table.remove(OsStr::new("a"));
        assert!(table.files.is_empty() && table.by_fact.is_empty());
    }
}
