//! Shape of a log line: for a terminal, a file, the journal, or a program.
//!
//! The journal takes a priority in front of a line (`<3>`, sd-daemon(3)), so that `journalctl -p err` finds errors;
//! no other reader gets one. A line for programs is one object in which every key stands once: a field that has the
//! name of one of the line's own keys gets `field.` in front.

use std::{
    collections::BTreeMap,
    env, fmt,
    io::{self, IsTerminal},
};

use nix::sys::stat::fstat;
use serde_json::{Map, Value, json};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatFields, FormattedFields,
        format::{FormatEvent, JsonFields, Writer},
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

/// Reader of standard error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LogReader {
    /// A person, at once.
    Terminal,
    /// The journal, which stamps every line itself and takes priorities.
    Journal,
    /// A file, a pipe, a container runtime.
    Other,
}

impl LogReader {
    /// The present reader.
    pub(super) fn of_stderr() -> Self {
        let file = fstat(io::stderr()).ok().map(|file| (file.st_dev, file.st_ino));
        match env::var("JOURNAL_STREAM") {
            // The variable is inherited; what a child redirects is not the journal any more.
            Ok(stream) if file.is_some_and(|(device, inode)| stream == format!("{device}:{inode}")) => Self::Journal,
            _ if io::stderr().is_terminal() => Self::Terminal,
            _ => Self::Other,
        }
    }

    fn write_priority(self, level: Level, writer: &mut Writer<'_>) -> fmt::Result {
        if self == Self::Journal { write!(writer, "<{}>", priority(level)) } else { Ok(()) }
    }
}

/// The priority of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Lines for people.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextLines {
    /// Reader of the lines.
    pub(super) reader: LogReader,
}

impl<S, N> FormatEvent<S, N> for TextLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        self.reader.write_priority(*event.metadata().level(), &mut writer)?;
        let colours = writer.has_ansi_escapes();
        let lines = tracing_subscriber::fmt::format().with_ansi(colours);
        match self.reader {
            LogReader::Journal => lines.without_time().format_event(context, writer, event),
            LogReader::Terminal | LogReader::Other => lines.format_event(context, writer, event),
        }
    }
}

/// Lines for programs: one object each.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonLines {
    /// Reader of the lines.
    pub(super) reader: LogReader,
}

/// Keys of a line that are not fields of its event.
const OWN_KEYS: [&str; 4] = ["level", "spans", "target", "timestamp"];

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let mut line: Map<String, Value> = Map::new();
        line.insert("timestamp".to_owned(), timestamp.into());
        line.insert("level".to_owned(), event.metadata().level().as_str().into());
        line.insert("target".to_owned(), event.metadata().target().into());
        line.extend(fields.0.into_iter().map(|(name, value)| (own_key(name, &OWN_KEYS), value)));
        let spans = spans(context);
        if !spans.is_empty() {
            line.insert("spans".to_owned(), spans.into());
        }
        self.reader.write_priority(*event.metadata().level(), &mut writer)?;
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// A field under another key, if its own is taken.
fn own_key(name: String, taken: &[&str]) -> String {
    if taken.contains(&&*name) { format!("field.{name}") } else { name }
}

/// The spans around an event, the outermost first: each with its name as `span`, and its fields.
fn spans<S>(context: &FmtContext<'_, S, JsonFields>) -> Vec<Value>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let scope = context.event_scope().into_iter().flat_map(|scope| scope.from_root());
    let object = |span: tracing_subscriber::registry::SpanRef<'_, S>| {
        let extensions = span.extensions();
        let fields = extensions.get::<FormattedFields<JsonFields>>().map(|fields| fields.fields.as_str());
        let fields: BTreeMap<String, Value> =
            fields.and_then(|fields| serde_json::from_str(fields).ok()).unwrap_or_default();
        let mut object = json!({ "span": span.name() });
        if let Value::Object(object) = &mut object {
            object.extend(fields.into_iter().map(|(name, value)| (own_key(name, &["span"]), value)));
        }
        object
    };
    scope.map(object).collect()
}

/// The fields of an event by name; of one that is given twice, the last.
#[derive(Debug, Default)]
struct EventFields(BTreeMap<String, Value>);

impl EventFields {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for EventFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::{fmt::MakeWriter, layer::SubscriberExt};

    use super::*;

    /// Everything that is logged.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    fn json_line(reader: LogReader, log: impl FnOnce()) -> String {
        let written = Written::default();
        let lines = tracing_subscriber::fmt::layer().with_writer(written.clone());
        let lines = lines.fmt_fields(JsonFields::new()).event_format(JsonLines { reader });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn text_line(reader: LogReader, log: impl FnOnce()) -> String {
        let written = Written::default();
        let lines = tracing_subscriber::fmt::layer().with_writer(written.clone()).with_ansi(false);
        let lines = lines.event_format(TextLines { reader });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn no_key_stands_twice_in_a_line_for_programs() {
        let line = json_line(LogReader::Other, || {
            let _span = tracing::info_span!("task", name = "inventory", span = 1).entered();
            tracing::info!(level = 7, target = "a", timestamp = "b", spans = true, backend = "cpu", "said");
        });
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["spans"], json!([{"span": "task", "name": "inventory", "field.span": 1}]));
        let fields = ["field.level", "field.target", "field.timestamp", "field.spans", "backend", "message", "level"];
        let expected = json!([7, "a", "b", true, "cpu", "said", "INFO"]);
        assert_eq!(Value::from_iter(fields.map(|name| read[name].clone())), expected);
        // Reading forgives a key that stands twice; counting does not.
        for key in ["timestamp", "level", "target", "spans", "message", "name", "span"] {
            assert_eq!(line.matches(&format!("\"{key}\":")).count(), 1, "{key}: {line}");
        }
    }

    #[test]
    fn the_journal_gets_priorities_and_nobody_else() {
        let log = || {
            tracing::error!("e");
            tracing::warn!("w");
            tracing::info!("i");
            tracing::debug!("d");
        };
        let begins = |text: String| text.lines().map(|line| line[..3].to_owned()).collect::<Vec<_>>();
        for lines in [text_line(LogReader::Journal, log), json_line(LogReader::Journal, log)] {
            assert_eq!(begins(lines), ["<3>", "<4>", "<6>", "<7>"]);
        }
        for lines in [text_line(LogReader::Other, log), json_line(LogReader::Other, log)] {
            assert!(!lines.contains('<'), "{lines}");
        }
        assert!(text_line(LogReader::Journal, log).starts_with("<3>ERROR "), "the journal stamps lines itself");
    }
}
