//! `--watch`: a list again and again, whenever it has changed. On a terminal in place; for pipes what is new, one line or
//! one document for each change.

use std::{collections::BTreeMap, io, io::Write, thread, time::Duration};

use hostler_process::is_output_gone;
use serde::Serialize;
use serde_json::Value;

use super::{
    CliFailure,
    client::{DaemonClient, segment},
    output::{ListFormat, Listed, TableWidth, write_list},
    screen,
};
use crate::admin::types::AdminChange;

/// How long a question for changes waits. What the daemon is not told of itself, such as a manifest that somebody writes,
/// is seen when it is over.
const WAIT: &str = "10s";
/// Far longer than that: then the daemon hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Until a daemon that is away, or has no place for another watcher, is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// The option of every list.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(super) struct WatchArgs {
    /// Show it again whenever it changes, until interrupted: in place on a terminal, else a line or document per change
    #[arg(short, long)]
    watch: bool,
}

/// Waits until a list may have changed.
pub(super) trait ListChanges {
    /// Comes back when it is time to look again, and not before something has changed or some time is over.
    fn wait(&mut self);
}

/// Changes of what the daemon knows.
#[derive(Debug)]
pub(super) struct DaemonChanges {
    client: DaemonClient,
    version: String,
}

impl DaemonChanges {
    /// Those that come from now on.
    pub(super) fn of(client: DaemonClient) -> Self {
        Self { client: client.patient(PATIENCE), version: String::new() }
    }
}

impl ListChanges for DaemonChanges {
    fn wait(&mut self) {
        let path = format!("/v1/changes?after={}&timeout={WAIT}", segment(&self.version));
        match self.client.get::<AdminChange>(&path) {
            Ok(change) => self.version = change.version,
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Changes of files, which nobody tells of.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileChanges;

impl ListChanges for FileChanges {
    fn wait(&mut self) {
        thread::sleep(PAUSE);
    }
}

/// How a list is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListOptions {
    /// The shape.
    pub(super) format: ListFormat,
    /// Once, or again and again.
    pub(super) watch: WatchArgs,
}

/// Shows what `fetch` gives, and again after each change where that is wanted. `table` makes lines for people.
pub(super) fn show_list<T: Listed>(
    options: ListOptions,
    changes: &mut dyn ListChanges,
    out: &mut dyn Write,
    mut fetch: impl FnMut() -> Result<Vec<T>, CliFailure>,
    table: impl Fn(&[T], TableWidth) -> String,
) -> Result<(), CliFailure> {
    let ListOptions { format, watch } = options;
    if !watch.watch {
        let items = fetch()?;
        return write_list(&items, format, out, |width| table(&items, width));
    }
    let mut shown = ShownList { format, in_place: screen::is_terminal(), items: None };
    let mut away = false;
    loop {
        match fetch() {
            Ok(items) => {
                away = false;
                shown.show(items, out, &table)?;
            }
            // Before anything was shown it is as without `--watch`.
            Err(CliFailure::Client(error)) if shown.items.is_some() && error.is_passing() => {
                if !std::mem::replace(&mut away, true) {
                    // Beside the list, for whoever watches. It may be closed.
                    let _ = writeln!(io::stderr(), "hostler: {error}; waiting for it");
                }
            }
            Err(error) => return Err(error),
        }
        changes.wait();
        if is_output_gone() {
            return Ok(());
        }
    }
}

/// What whoever watches has seen last.
#[derive(Debug)]
struct ShownList {
    format: ListFormat,
    /// Whether a newer list takes the place of the one before.
    in_place: bool,
    /// By name; `None` before the first.
    items: Option<BTreeMap<String, Value>>,
}

impl ShownList {
    /// Shows what is new, if anything is.
    fn show<T: Listed>(
        &mut self,
        items: Vec<T>,
        out: &mut dyn Write,
        table: impl Fn(&[T], TableWidth) -> String,
    ) -> Result<(), CliFailure> {
        let values: BTreeMap<String, Value> = items.iter().map(|item| (key(item), value(item))).collect();
        let Some(before) = self.items.replace(values.clone()) else {
            return self.write(&items, out, table);
        };
        if before == values {
            return Ok(());
        }
        if self.in_place || matches!(self.format, ListFormat::Json | ListFormat::Yaml) {
            return self.write(&items, out, table);
        }
        let is_new = |item: &T| before.get(&key(item)) != values.get(&key(item));
        let new: Vec<T> = items.into_iter().filter(is_new).collect();
        let gone = before.keys().filter(|key| !values.contains_key(*key));
        self.write_changes(&new, gone, out, table)
    }

    /// The whole list.
    fn write<T: Listed>(
        &self,
        items: &[T],
        out: &mut dyn Write,
        table: impl Fn(&[T], TableWidth) -> String,
    ) -> Result<(), CliFailure> {
        if self.in_place {
            out.flush()?;
            screen::clear()?;
        } else if self.format == ListFormat::Yaml {
            writeln!(out, "---")?;
        }
        write_list(items, self.format, out, |width| table(items, width))?;
        Ok(out.flush()?)
    }

    /// A line for everything that is new or gone.
    fn write_changes<'a, T: Listed>(
        &self,
        new: &[T],
        gone: impl Iterator<Item = &'a String>,
        out: &mut dyn Write,
        table: impl Fn(&[T], TableWidth) -> String,
    ) -> Result<(), CliFailure> {
        if !new.is_empty() {
            let mut text = Vec::new();
            write_list(new, self.format, &mut text, |width| table(new, width))?;
            let text = String::from_utf8_lossy(&text);
            // The headings stand above the first lines already.
            let skipped = if self.format == ListFormat::Name { 0 } else { 1 };
            text.lines().skip(skipped).try_for_each(|line| writeln!(out, "{line}"))?;
        }
        for key in gone {
            writeln!(out, "{key}  gone")?;
        }
        Ok(out.flush()?)
    }
}

/// What an item is known by.
fn key<T: Listed>(item: &T) -> String {
    item.listed_name()
}

fn value(item: &impl Serialize) -> Value {
    serde_json::to_value(item).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Horse(&'static str, u32);

    impl Listed for Horse {
        const KIND: &'static str = "Horse";

        fn listed_name(&self) -> String {
            self.0.to_owned()
        }
    }

    /// What is shown of lists that follow each other.
    fn shown(format: ListFormat, lists: Vec<Vec<Horse>>) -> Vec<String> {
        let mut list = ShownList { format, in_place: false, items: None };
        let table = |items: &[Horse], _: TableWidth| {
            let lines: String = items.iter().map(|Horse(name, legs)| format!("{name} {legs}\n")).collect();
            format!("NAME LEGS\n{lines}")
        };
        let show = |items| {
            let mut out = Vec::new();
            list.show(items, &mut out, table).unwrap();
            String::from_utf8(out).unwrap()
        };
        lists.into_iter().map(show).collect()
    }

    fn lists() -> Vec<Vec<Horse>> {
        vec![
            vec![Horse("a", 4), Horse("b", 4)],
            vec![Horse("a", 4), Horse("b", 4)],
            vec![Horse("a", 4), Horse("b", 3), Horse("c", 4)],
            vec![Horse("b", 3), Horse("c", 4)],
        ]
    }

    #[test]
    fn a_pipe_gets_a_line_for_each_thing_that_is_new_or_gone() {
        assert_eq!(shown(ListFormat::Table, lists()), ["NAME LEGS\na 4\nb 4\n", "", "b 3\nc 4\n", "a  gone\n"]);
        assert_eq!(shown(ListFormat::Name, lists()), ["a\nb\n", "", "b\nc\n", "a  gone\n"]);
    }

    #[test]
    fn programs_get_whole_documents_one_after_the_other() {
        let json = shown(ListFormat::Json, lists()).concat();
        let documents = serde_json::Deserializer::from_str(&json).into_iter::<Value>();
        let lengths: Vec<usize> = documents.map(|it| it.unwrap()["items"].as_array().unwrap().len()).collect();
        assert_eq!(lengths, [2, 3, 2]);
        let yaml = shown(ListFormat::Yaml, lists()).concat();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        assert_eq!(documents.len(), 3, "{yaml}");
    }
}
