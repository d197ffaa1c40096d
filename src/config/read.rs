//! Reads TOML key by key, so that one wrong key hides no other.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue, Deserializer, Error},
};

use super::{BackendSection, BackendsConfig, ConfigMistake, DaemonConfig, fields::fields_of};

/// Lines of keys, by key path.
#[derive(Debug, Default)]
pub(super) struct KeyLines(BTreeMap<String, usize>);

impl KeyLines {
    /// The line of a key, else of the nearest key around it. `None` where the file has neither.
    pub(super) fn of(&self, key: &str) -> Option<usize> {
        let around = key.rmatch_indices('.').map(|(dot, _)| &key[..dot]);
        std::iter::once(key).chain(around).find_map(|key| self.0.get(key)).copied()
    }
}

/// Everything that could be read, and what could not.
pub(super) fn read(text: &str) -> (DaemonConfig, Vec<ConfigMistake>, KeyLines) {
    let (root, syntax_errors) = DeTable::parse_recoverable(text);
    let mut reader = ConfigReader { text, problems: Vec::new(), lines: KeyLines::default() };
    for error in syntax_errors {
        reader.report("", &error, None);
    }
    let mut root = root.into_inner();
    let paths = reader.section("paths", &mut root);
    let cluster = reader.section("cluster", &mut root);
    let topology_export = reader.section("topology_export", &mut root);
    let kubelet = reader.section("kubelet", &mut root);
    let inventory = reader.section("inventory", &mut root);
    let log = reader.section("log", &mut root);
    let metrics = reader.section("metrics", &mut root);
    let nri = reader.section("nri", &mut root);
    let audit = reader.section("audit", &mut root);
    let pod_resources = reader.section("pod_resources", &mut root);
    let backends = reader.backends(&mut root);
    let scalars: DaemonConfig = reader.keys("", root, &["backends"]);
    let config = DaemonConfig {
        paths,
        cluster,
        topology_export,
        kubelet,
        inventory,
        log,
        metrics,
        nri,
        audit,
        pod_resources,
        backends,
        ..scalars
    };
    (config, reader.problems, reader.lines)
}

struct ConfigReader<'t> {
    text: &'t str,
    problems: Vec<ConfigMistake>,
    lines: KeyLines,
}

impl<'t> ConfigReader<'t> {
    fn backends(&mut self, root: &mut DeTable<'t>) -> BackendsConfig {
        let mut table = self.table("backends", root);
        let default = BackendsConfig::default();
        let backends = BackendsConfig {
            cpu: self.switched("backends.cpu", &mut table, default.cpu.enabled),
            memory: self.switched("backends.memory", &mut table, default.memory.enabled),
            fpga: self.switched("backends.fpga", &mut table, default.fpga.enabled),
            cxl: self.switched("backends.cxl", &mut table, default.cxl.enabled),
            fake: self.switched("backends.fake", &mut table, default.fake.enabled),
        };
        self.refuse_unknown("backends", &mut table, &["cpu", "memory", "fpga", "cxl", "fake"]);
        backends
    }

    fn switched<T>(&mut self, path: &str, parent: &mut DeTable<'t>, enabled: bool) -> BackendSection<T>
    where
        T: DeserializeOwned + Default,
    {
        let mut table = self.table(path, parent);
        let written = table.remove_entry("enabled").and_then(|(key, value)| {
            let path = self.place(path, &key);
            value.get_ref().as_bool().or_else(|| {
                let problem =
                    ConfigMistake::new(&*path, "is neither true nor false", "write true or false without quotes");
                self.problems.push(ConfigMistake { line: self.lines.of(&path), ..problem });
                None
            })
        });
        let config = self.keys(path, table, &["enabled"]);
        BackendSection { enabled: written.unwrap_or(enabled), config }
    }

    fn section<T: DeserializeOwned + Default>(&mut self, path: &str, parent: &mut DeTable<'t>) -> T {
        let table = self.table(path, parent);
        self.keys(path, table, &[])
    }

    /// Takes the table at `path` out of its parent; an absent one is empty.
    fn table(&mut self, path: &str, parent: &mut DeTable<'t>) -> DeTable<'t> {
        let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
        let Some((key, value)) = parent.remove_entry(name) else { return DeTable::new() };
        let line = self.line(key.span().start);
        self.lines.0.insert(path.to_owned(), line);
        match value.into_inner() {
            DeValue::Table(table) => table,
            other => {
                let what = format!("is a section, not a {}", other.type_str());
                let problem = ConfigMistake::new(path, what, format!("write [{path}] on a line of its own"));
                self.problems.push(ConfigMistake { line: Some(line), ..problem });
                DeTable::new()
            }
        }
    }

    /// Reads each key by itself, and then all that are right together.
    fn keys<T: DeserializeOwned + Default>(&mut self, path: &str, mut table: DeTable<'t>, also_known: &[&str]) -> T {
        let known: Vec<&str> = fields_of::<T>().iter().chain(also_known).copied().collect();
        self.refuse_unknown(path, &mut table, &known);
        let mut good = DeTable::new();
        for (key, value) in table {
            let place = self.place(path, &key);
            let alone = DeTable::from_iter([(key.clone(), value.clone())]);
            match deserialize::<T>(alone) {
                Ok(_) => {
                    good.insert(key, value);
                }
                Err(error) => self.report(&place, &error, Some(value.span().start)),
            }
        }
        // Keys that are right one by one can only fail together where a type ties its fields to each other.
        deserialize(good).unwrap_or_else(|error| {
            self.report(path, &error, None);
            T::default()
        })
    }

    fn refuse_unknown(&mut self, path: &str, table: &mut DeTable<'t>, known: &[&str]) {
        let unknown: Vec<Spanned<DeString<'t>>> =
            table.keys().filter(|key| !known.contains(&&**key.get_ref())).cloned().collect();
        for key in unknown {
            table.remove(&key);
            let place = self.place(path, &key);
            let problem = ConfigMistake::new(&*place, "is no key that hostler knows", suggestion(key.get_ref(), known));
            self.problems.push(ConfigMistake { line: self.lines.of(&place), ..problem });
        }
    }

    /// The path of a key, whose line is remembered.
    fn place(&mut self, path: &str, key: &Spanned<DeString<'t>>) -> String {
        let name = key.get_ref();
        let place = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        let line = self.line(key.span().start);
        self.lines.0.insert(place.clone(), line);
        place
    }

    fn report(&mut self, key: &str, error: &Error, value_start: Option<usize>) {
        let line = error.span().map(|span| span.start).or(value_start).map(|offset| self.line(offset));
        self.problems.push(ConfigMistake { line, ..ConfigMistake::new(key, error.message(), "") });
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }
}

fn deserialize<T: DeserializeOwned>(table: DeTable<'_>) -> Result<T, Error> {
    T::deserialize(Deserializer::from(Spanned::new(0..0, table)))
}

/// What the writer of `key` may have meant.
fn suggestion(key: &str, known: &[&str]) -> String {
    // Half of a key's letters may be wrong; below that the guess would mislead.
    let near = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(key, candidate), candidate))
        .filter(|(distance, candidate)| *distance * 2 <= candidate.len())
        .min();
    match near {
        Some((_, candidate)) => format!("did you mean {candidate:?}?"),
        None if known.is_empty() => "remove it".to_owned(),
        None => format!("remove it; known here: {}", known.join(", ")),
    }
}
