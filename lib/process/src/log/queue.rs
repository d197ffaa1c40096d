//! Lines on their way to the reader of the log: a limited number of bytes waits, further lines are dropped and
//! counted.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    thread,
    time::{Duration, Instant},
};

use hostler_api::plain_line;
use prometheus_client::metrics::counter::Counter;
use tracing::warn;

/// Bytes that may wait to be written: some thousand lines, more than a busy daemon logs while a reader pauses.
const MOST_BYTES: usize = 1 << 20;

/// The lines that wait. Writers: every thread that logs. Reader: one thread, which alone waits for the log's reader.
#[derive(Debug)]
pub(super) struct LogQueue {
    waiting: Mutex<WaitingLines>,
    /// A line has come, or all are written.
    changed: Condvar,
    dropped: Counter<u64, AtomicU64>,
}

#[derive(Debug, Default)]
struct WaitingLines {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// True while a line has left the queue and is not written yet.
    writing: bool,
    /// Number of lines that were dropped and not told yet.
    untold: u64,
}

impl LogQueue {
    /// A queue whose lines are written to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self { waiting: Mutex::default(), changed: Condvar::new(), dropped: Counter::default() });
        let writing = queue.clone();
        // Not one of the daemon's tasks: it outlives them, since they log to their ends.
        thread::Builder::new().name("log".to_owned()).spawn(move || writing.write_all(out))?;
        Ok(queue)
    }

    pub(super) fn dropped(&self) -> Counter {
        self.dropped.clone()
    }

    /// Waits until everything is written; returns false if `limit` was too short for that.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut waiting = self.waiting();
        while waiting.writing || !waiting.lines.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn push(&self, line: Vec<u8>) {
        let mut waiting = self.waiting();
        if waiting.bytes + line.len() > MOST_BYTES {
            waiting.untold += 1;
            self.dropped.inc();
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        self.changed.notify_all();
    }

    /// Locks the waiting lines, which are whole after every step.
    fn waiting(&self) -> MutexGuard<'_, WaitingLines> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes for as long as the process lives.
    fn write_all(&self, mut out: impl Write) {
        loop {
            let line = self.next();
            // A reader that goes away must not cost the daemon.
            let _ = out.write_all(&line).and_then(|()| out.flush());
            self.tell_dropped();
        }
    }

    fn next(&self) -> Vec<u8> {
        let mut waiting = self.waiting();
        waiting.writing = false;
        loop {
            if let Some(line) = waiting.lines.pop_front() {
                waiting.bytes -= line.len();
                waiting.writing = true;
                return line;
            }
            self.changed.notify_all();
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells how many lines are missing, behind the last line before the gap.
    fn tell_dropped(&self) {
        let lines = {
            let mut waiting = self.waiting();
            if !waiting.lines.is_empty() {
                return;
            }
            std::mem::take(&mut waiting.untold)
        };
        if lines > 0 {
            warn!(lines, "lines of the log were dropped: nobody read it in time");
        }
    }
}

/// Writer that lines are formatted to. Whatever stands in their fields, each is one line and nothing but text.
#[derive(Clone, Debug)]
pub(super) struct LineWriter {
    queue: Arc<LogQueue>,
    /// True if the formatter writes colours: it then lets no escape code of a field through itself.
    colours: bool,
}

impl LineWriter {
    pub(super) fn new(queue: Arc<LogQueue>, colours: bool) -> Self {
        Self { queue, colours }
    }

    pub(super) fn colours(&self) -> bool {
        self.colours
    }
}

impl Write for LineWriter {
    /// The formatter writes each event at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(one_line(&String::from_utf8_lossy(line), self.colours));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn one_line(event: &str, colours: bool) -> Vec<u8> {
    const ESCAPE: char = '\u{1b}';
    let event = event.strip_suffix('\n').unwrap_or(event);
    let mut line = if colours {
        event.split(ESCAPE).map(plain_line).collect::<Vec<_>>().join("\u{1b}")
    } else {
        plain_line(event).into_owned()
    };
    line.push('\n');
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes a line whenever the test says so.
    struct SlowReader(mpsc::Receiver<()>, mpsc::Sender<Vec<u8>>);

    impl Write for SlowReader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(line.to_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_logs_never_waits_and_what_is_dropped_is_counted() {
        let ((read_tx, read_rx), (lines_tx, lines_rx)) = (mpsc::channel(), mpsc::channel());
        let queue = LogQueue::start(SlowReader(read_rx, lines_tx)).unwrap();
        let mut writer = LineWriter::new(queue.clone(), false);
        let line = vec![b'x'; 1023];
        for _ in 0..2000 {
            writer.write_all(&line).unwrap();
        }
        assert!(!queue.flush(Duration::ZERO));
        // One may have left the queue already.
        let dropped = queue.dropped().get();
        assert!((975..=976).contains(&dropped), "{dropped}");
        (0..2000).for_each(|_| read_tx.send(()).unwrap());
        assert!(queue.flush(Duration::from_secs(30)));
        assert_eq!(lines_rx.try_iter().count() as u64, 2000 - dropped);
        writer.write_all(b"again").unwrap();
        assert!(queue.flush(Duration::from_secs(30)));
        assert_eq!(lines_rx.recv().unwrap(), b"again\n");
    }

    #[test]
    fn an_event_is_one_line_whatever_its_fields_say() {
        let line = |event, colours| String::from_utf8(one_line(event, colours)).unwrap();
        assert_eq!(line("INFO a=b\nERROR forged\n", false), "INFO a=b\\nERROR forged\n");
        assert_eq!(line("\u{1b}[2J\u{9b}2J\u{202e}\n", false), "\\u001b[2J\\u009b2J\\u202e\n");
        assert_eq!(line("\u{1b}[32mINFO\u{1b}[0m a\r\n", true), "\u{1b}[32mINFO\u{1b}[0m a\\u000d\n");
    }
}
