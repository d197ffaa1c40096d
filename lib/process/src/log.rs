//! The log of a program that stays: its lines, and their way to standard error.
//!
//! ```text
//!   any thread ── line, made plain ──► queue, bounded ── one thread ──► standard error
//!                                        └── full: dropped and counted
//! ```
//!
//! No thread waits for the reader of the log. The level can be changed while the program runs.

mod config;
mod format;
mod queue;

use std::{io, panic, sync::Arc, time::Duration};

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::{
    Layer, Registry,
    filter::{ParseError, Targets},
    fmt::{self, format::JsonFields},
    layer::SubscriberExt,
    reload,
    util::{SubscriberInitExt, TryInitError},
};

use self::{
    format::{JsonLines, LogReader, TextLines},
    queue::{LineWriter, LogQueue},
};

pub use self::config::{LogConfig, LogFormat};

/// Time that the end of the process waits for the last lines to be read.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Reason why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is invalid.
    #[error("failed to read log.level")]
    Level(#[source] ParseError),
    /// The level could not be set.
    #[error("failed to set the level of the log")]
    Set(#[source] reload::Error),
    /// There is a log already.
    #[error("failed to set up the log")]
    Start(#[source] TryInitError),
    /// The thread that writes it could not be started.
    #[error("failed to start the thread that writes the log")]
    Thread(#[source] io::Error),
}

/// State of the log at the end of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogEnd {
    /// Everything that was logged has been read.
    Read,
    /// The log is not read: to write more to the same place would wait for ever.
    Stalled,
}

/// The log of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProcessLog {
    queue: Arc<LogQueue>,
    level: reload::Handle<Targets, Registry>,
}

impl ProcessLog {
    /// Logs to standard error from now on.
    ///
    /// # Errors
    /// When the level is none, when there is a log already, or when its thread does not start.
    pub fn start(config: &LogConfig) -> Result<Self, LogError> {
        let queue = LogQueue::start(io::stderr()).map_err(LogError::Thread)?;
        let (filter, level) = reload::Layer::new(targets(&config.level)?);
        let reader = LogReader::of_stderr();
        let colours = config.format == LogFormat::Text && reader == LogReader::Terminal;
        let lines = lines(config.format, reader, LineWriter::new(queue.clone(), colours));
        tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(LogError::Start)?;
        let log = Self { queue, level };
        log.flush_before_panics();
        Ok(log)
    }

    /// Logs at another level from now on.
    ///
    /// # Errors
    /// When it is none.
    pub fn set_level(&self, level: &str) -> Result<(), LogError> {
        self.level.reload(targets(level)?).map_err(LogError::Set)
    }

    /// Number of lines that were dropped, since the log was not read in time.
    pub fn dropped(&self) -> Counter {
        self.queue.dropped()
    }

    /// Waits until everything is written, or it is clear that the log is not read.
    pub fn end(&self) -> LogEnd {
        if self.queue.flush(LAST_LINES) { LogEnd::Read } else { LogEnd::Stalled }
    }

    /// Flushes the log before a panic, which ends the process at once: the lines that led to it must be in the log.
    fn flush_before_panics(&self) {
        let (queue, tell) = (self.queue.clone(), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            queue.flush(LAST_LINES);
            tell(panic);
        }));
    }
}

fn lines<S>(format: LogFormat, reader: LogReader, writer: LineWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let lines = fmt::layer().with_ansi(writer.colours()).with_writer(move || writer.clone());
    // A line that cannot be written is counted by the queue.
    let lines = lines.log_internal_errors(false);
    match format {
        LogFormat::Json => lines.fmt_fields(JsonFields::new()).event_format(JsonLines { reader }).boxed(),
        LogFormat::Text => lines.event_format(TextLines { reader }).boxed(),
    }
}

/// `info, hostler=debug`: the parser would take the space for a part of the name.
fn targets(level: &str) -> Result<Targets, LogError> {
    let level: String = level.split_whitespace().collect();
    level.parse().map_err(LogError::Level)
}
