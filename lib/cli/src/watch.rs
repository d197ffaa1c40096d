//! `--watch`: an answer again and again, whenever it has changed. On a terminal in place. A pipe gets of a list what is
//! new, one line or one document for each change, and everything else whole.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write},
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    output::{DocumentFormat, ListFormat, Listed, TableWidth, write_document, write_list},
    reader::is_output_gone,
    screen,
};

/// The option of every command that can be watched.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct WatchArgs {
    /// Show it again whenever it changes, until interrupted: in place on a terminal, else a line or document per change
    #[arg(short, long)]
    pub watch: bool,
}

/// A question that is asked once, or again and again.
#[derive(Clone, Copy, Debug)]
pub struct Watch<E> {
    /// Name of the program, for its words on standard error.
    pub program: &'static str,
    /// The user's choice.
    pub args: WatchArgs,
    /// Tells if a server that comes back, or is done with something else, would answer.
    pub is_passing: fn(&E) -> bool,
}

impl<E: fmt::Display + From<io::Error>> Watch<E> {
    /// Shows the answers of `fetch`, until standard output has lost its reader. `wait` returns when there may be another one.
    ///
    /// # Errors
    /// As those of `fetch`. The first answer must come; later on a failure that passes is told once, and waited for.
    pub fn run<T>(
        self,
        mut wait: impl FnMut(),
        mut fetch: impl FnMut() -> Result<T, E>,
        mut show: impl FnMut(T) -> io::Result<()>,
    ) -> Result<(), E> {
        show(fetch()?)?;
        if !self.args.watch {
            return Ok(());
        }
        let mut is_away = false;
        loop {
            wait();
            if is_output_gone() {
                return Ok(());
            }
            match fetch() {
                Ok(answer) => {
                    is_away = false;
                    show(answer)?;
                }
                Err(error) if (self.is_passing)(&error) => {
                    if !std::mem::replace(&mut is_away, true) {
                        // Beside the answers, for a user who watches. Standard error may be closed.
                        let _ = writeln!(io::stderr(), "{}: {error}; waiting for it", self.program);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The place of whole answers that follow each other.
#[derive(Debug)]
struct AnswerPlace {
    is_watched: bool,
    /// True if a newer answer takes the place of the one before.
    in_place: bool,
    has_begun: bool,
}

impl AnswerPlace {
    fn new(args: WatchArgs) -> Self {
        Self { is_watched: args.watch, in_place: args.watch && screen::is_terminal(), has_begun: false }
    }

    /// Parts the next answer from the one before.
    fn begin(&mut self, format: Option<DocumentFormat>, out: &mut dyn Write) -> io::Result<()> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        if !self.is_watched {
            return Ok(());
        }
        if self.in_place {
            out.flush()?;
            return screen::clear();
        }
        match format {
            Some(DocumentFormat::Yaml) => writeln!(out, "---"),
            Some(DocumentFormat::Table | DocumentFormat::Wide | DocumentFormat::Parts(_)) if has_begun => writeln!(out),
            _ => Ok(()),
        }
    }
}

/// A document that was shown, and is shown again when it is another one.
#[derive(Debug)]
pub struct ShownDocument<T> {
    format: DocumentFormat,
    place: AnswerPlace,
    last: Option<T>,
}

impl<T: Serialize + PartialEq> ShownDocument<T> {
    /// Nothing was shown yet.
    pub fn new(format: DocumentFormat, args: WatchArgs) -> Self {
        Self { format, place: AnswerPlace::new(args), last: None }
    }

    /// Shows a document if it is another one than before; `table` makes lines for people.
    pub fn show(
        &mut self,
        document: T,
        out: &mut dyn Write,
        table: impl FnOnce(&T, TableWidth) -> String,
    ) -> io::Result<()> {
        if self.last.as_ref() == Some(&document) {
            return Ok(());
        }
        self.place.begin(Some(self.format), out)?;
        write_document(&document, self.format, out, |width| table(&document, width))?;
        self.last = Some(document);
        out.flush()
    }
}

/// A list that was shown, and of which changes are shown.
#[derive(Debug)]
pub struct ShownList {
    format: ListFormat,
    place: AnswerPlace,
    /// By name; `None` before the first list.
    items: Option<BTreeMap<String, Value>>,
}

impl ShownList {
    /// Nothing was shown yet.
    pub fn new(format: ListFormat, args: WatchArgs) -> Self {
        Self { format, place: AnswerPlace::new(args), items: None }
    }

    /// Shows what is new, if anything is; `table` makes lines for people.
    pub fn show<T: Listed>(
        &mut self,
        items: Vec<T>,
        out: &mut dyn Write,
        table: impl Fn(&[T], TableWidth) -> String,
    ) -> io::Result<()> {
        let values: BTreeMap<String, Value> = items.iter().map(|item| (item.listed_name(), value(item))).collect();
        let before = self.items.replace(values.clone());
        if before.as_ref() == Some(&values) {
            return Ok(());
        }
        let is_whole = self.place.in_place || self.format.is_for_programs();
        match before.filter(|_| !is_whole) {
            None => {
                self.place.begin(self.format.document(), out)?;
                write_list(&items, self.format, out, |width| table(&items, width))?;
            }
            Some(before) => {
                let is_new = |item: &T| before.get(&item.listed_name()) != values.get(&item.listed_name());
                let new: Vec<T> = items.into_iter().filter(is_new).collect();
                self.write_new(&new, out, table)?;
                let mut gone = before.keys().filter(|name| !values.contains_key(*name));
                gone.try_for_each(|name| writeln!(out, "{name}  gone"))?;
            }
        }
        out.flush()
    }

    /// Writes a line for each item that is new.
    fn write_new<T: Listed>(
        &self,
        new: &[T],
        out: &mut dyn Write,
        table: impl Fn(&[T], TableWidth) -> String,
    ) -> io::Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        write_list(new, self.format, &mut text, |width| table(new, width))?;
        // The headings stand above the first lines already.
        let skipped = if self.format == ListFormat::Name { 0 } else { 1 };
        String::from_utf8_lossy(&text).lines().skip(skipped).try_for_each(|line| writeln!(out, "{line}"))
    }
}

fn value(item: &impl Serialize) -> Value {
    serde_json::to_value(item).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCHED: WatchArgs = WatchArgs { watch: true };

    #[derive(PartialEq, Serialize)]
    struct Horse(&'static str, u32);

    impl Listed for Horse {
        const KIND: &'static str = "Horse";

        fn listed_name(&self) -> String {
            self.0.to_owned()
        }
    }

    /// The output for lists that follow each other.
    fn shown(format: ListFormat, lists: Vec<Vec<Horse>>) -> Vec<String> {
        let mut list = ShownList::new(format, WATCHED);
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

    #[test]
    fn a_document_is_shown_whole_whenever_it_is_another_one() {
        let shown = |format, args| {
            let (mut document, mut out) = (ShownDocument::new(format, args), Vec::new());
            for legs in [4, 4, 3] {
                document.show(Horse("a", legs), &mut out, |horse, _| format!("{}\n", horse.1)).unwrap();
            }
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(DocumentFormat::Table, WATCHED), "4\n\n3\n");
        assert_eq!(shown(DocumentFormat::Yaml, WATCHED), "---\n- a\n- 4\n---\n- a\n- 3\n");
        assert_eq!(shown(DocumentFormat::Yaml, WatchArgs::default()), "- a\n- 4\n- a\n- 3\n");
    }

    #[test]
    fn a_failure_that_passes_is_waited_for_once_there_was_an_answer() {
        let asked = |answers: [Result<u32, io::ErrorKind>; 4]| {
            let (mut answers, mut seen) = (answers.into_iter(), Vec::new());
            let is_passing = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
            let watch = Watch { program: "p", args: WATCHED, is_passing };
            let ended = watch.run(
                || {},
                || answers.next().unwrap().map_err(io::Error::from),
                |answer| {
                    seen.push(answer);
                    Ok(())
                },
            );
            (ended.unwrap_err().kind(), seen)
        };
        let (away, over) = (io::ErrorKind::TimedOut, io::ErrorKind::NotFound);
        assert_eq!(asked([Ok(1), Err(away), Ok(2), Err(over)]), (over, vec![1, 2]));
        assert_eq!(asked([Err(away), Ok(1), Ok(2), Err(over)]), (away, Vec::new()));
    }
}
