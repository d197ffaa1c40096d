//! `hostler events`: what has changed of claims and devices, through the running daemon.

use std::{
    cell::{Cell, RefCell},
    io::{self, Write},
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use hostler_cli::watch::WatchArgs;

use super::{
    CliFailure, CliOutcome,
    client::{DaemonArgs, DaemonClient, segment},
    completions::COMPLETIONS,
    output::{ListFormat, Listed, TableWidth, write_list},
    table::TextTable,
    watch::{ListArgs, PATIENCE, PAUSE, WAIT, watched},
};
use crate::{
    admin::types::{AdminEvent, AdminEvents},
    units::utc,
};

#[derive(clap::Args, Debug)]
pub(super) struct EventsArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
}

impl Listed for AdminEvent {
    const KIND: &'static str = "Event";

    fn listed_name(&self) -> String {
        format!("{}/{}", self.subject.as_str(), self.name)
    }
}

pub(super) fn run(args: &EventsArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let events = DaemonEvents::of(args.daemon.client()?);
    let ListArgs { output, watch } = args.list;
    let mut is_first = true;
    watched(watch).run(
        || events.wait(),
        || events.fetch(),
        |events| show(events, std::mem::take(&mut is_first), output, watch, out),
    )?;
    Ok(CliOutcome::Done)
}

/// The events of the daemon, each once.
struct DaemonEvents {
    client: DaemonClient,
    /// The cursor behind those that were seen.
    cursor: RefCell<Option<String>>,
    /// True if the last answer came at once and had nothing.
    is_idle: Cell<bool>,
}

impl DaemonEvents {
    fn of(client: DaemonClient) -> Self {
        Self { client: client.patient(PATIENCE), cursor: RefCell::default(), is_idle: Cell::new(false) }
    }

    /// Returns what came after the last answer: everything at first, later what comes next.
    fn fetch(&self) -> Result<AdminEvents, CliFailure> {
        let path = match &*self.cursor.borrow() {
            None => "/v1/events".to_owned(),
            Some(cursor) => format!("/v1/events?after={}&timeout={WAIT}", segment(cursor)),
        };
        let asked = Instant::now();
        self.is_idle.set(true);
        let events: AdminEvents = self.client.get(&path)?;
        self.is_idle.set(events.items.is_empty() && asked.elapsed() < PAUSE);
        self.cursor.replace(Some(events.cursor.clone()));
        Ok(events)
    }

    /// Waits where the next question would have no answer either.
    fn wait(&self) {
        if self.is_idle.get() {
            thread::sleep(PAUSE);
        }
    }
}

fn show(
    events: AdminEvents,
    is_first: bool,
    format: ListFormat,
    watch: WatchArgs,
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(missing) = &events.missing {
        // Beside the events, for a user who watches. Standard error may be closed.
        let _ = writeln!(io::stderr(), "{}: {missing}", COMPLETIONS.program);
    }
    let items = format.for_reader(events.items);
    if items.is_empty() && !is_first {
        return Ok(());
    }
    if watch.watch && format == ListFormat::Yaml {
        writeln!(out, "---")?;
    }
    if is_first || !matches!(format, ListFormat::Table | ListFormat::Wide) {
        write_list(&items, format, out, |width| table(&items, width))?;
    } else {
        // The headings stand above the first lines already.
        let width = if format == ListFormat::Wide { TableWidth::Wide } else { TableWidth::Narrow };
        table(&items, width).lines().skip(1).try_for_each(|line| writeln!(out, "{line}"))?;
    }
    out.flush()
}

fn table(events: &[AdminEvent], width: TableWidth) -> String {
    let mut headings = vec!["TIME", "OBJECT", "CHANGE", "NAME", "MESSAGE"];
    if width == TableWidth::Wide {
        headings.insert(0, "NUMBER");
    }
    let mut table = TextTable::new(&headings);
    for event in events {
        let time = utc(UNIX_EPOCH + Duration::from_secs(event.time));
        let mut cells = vec![
            time,
            event.subject.as_str().to_owned(),
            event.change.clone(),
            event.name.clone(),
            event.message.clone(),
        ];
        if width == TableWidth::Wide {
            cells.insert(0, event.number.to_string());
        }
        table.row(cells);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::types::AdminEventSubject;

    fn events(names: &[&str]) -> AdminEvents {
        let event = |(number, name): (usize, &&str)| AdminEvent {
            number: number as u64,
            time: 1000,
            subject: AdminEventSubject::Claim,
            name: (*name).to_owned(),
            change: "prepared".to_owned(),
            message: String::new(),
        };
        AdminEvents { cursor: "c".to_owned(), missing: None, items: names.iter().enumerate().map(event).collect() }
    }

    /// The output for answers that follow each other.
    fn shown(format: ListFormat, answers: &[&[&str]]) -> Vec<String> {
        let write = |(index, names): (usize, &&[&str])| {
            let mut out = Vec::new();
            show(events(names), index == 0, format, WatchArgs { watch: true }, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        answers.iter().enumerate().map(write).collect()
    }

    #[test]
    fn headings_stand_once_above_all_lines() {
        let line = "1970-01-01 00:16:40 UTC  claim   prepared  ml/a\n";
        let heading = "TIME                     OBJECT  CHANGE    NAME  MESSAGE\n";
        let followed = "1970-01-01 00:16:40 UTC  claim   prepared  ml/b\n".to_owned();
        assert_eq!(
            shown(ListFormat::Table, &[&["ml/a"], &[], &["ml/b"]]),
            [format!("{heading}{line}"), String::new(), followed]
        );
        assert_eq!(shown(ListFormat::Table, &[&[]]), ["TIME  OBJECT  CHANGE  NAME  MESSAGE\n"]);
        assert_eq!(shown(ListFormat::Name, &[&["ml/a"], &["ml/b"]]), ["claim/ml/a\n", "claim/ml/b\n"]);
    }

    #[test]
    fn programs_get_a_document_for_each_answer_with_something_in_it() {
        let json = shown(ListFormat::Json, &[&["ml/a"], &[], &["ml/b"]]).concat();
        let documents = serde_json::Deserializer::from_str(&json).into_iter::<serde_json::Value>();
        let names: Vec<String> = documents.map(|it| it.unwrap()["items"][0]["name"].to_string()).collect();
        assert_eq!(names, ["\"ml/a\"", "\"ml/b\""]);
        assert_eq!(shown(ListFormat::Yaml, &[&["ml/a"], &["ml/b"]]).concat().matches("---\n").count(), 2);
    }
}
