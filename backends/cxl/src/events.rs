//! Reports of cards and their links by trace events: the kernel tells media errors, poison and fatal errors in no
//! other way.
//!
//! The text of a trace instance is read, where an operator has made one; reading takes nothing out of it, so that
//! others can read too. Fields are found by their names: their set and order are the kernel's business.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use hostler_linux::TreeReading;

/// The instance that is read.
const TRACE: &str = "sys/kernel/tracing/instances/hostler/trace";
/// All events that are read have names that begin so.
const PREFIX: &str = ": cxl_";

/// A card that was harmed: the kernel's name of its memory device at that time, and its serial number, because names
/// are given to others.
type HarmedCard = (String, u64);

/// State of reading the trace, and the harms that it told.
#[derive(Debug, Default)]
pub(crate) struct TraceEvents(Mutex<TraceState>);

#[derive(Debug, Default)]
struct TraceState {
    /// Time of the latest event, microseconds since boot; `None` before the first look.
    latest: Option<u64>,
    /// Number of harms since then, by card.
    harms: BTreeMap<HarmedCard, u64>,
}

impl TraceEvents {
    /// Reads the new events. Events from before the first look count against no card.
    pub(crate) fn read(&self, tree: &TreeReading<'_>) {
        // Root alone may read it.
        let Some(text) = tree.detail_bytes(TRACE, u64::MAX) else { return };
        let text = String::from_utf8_lossy(&text);
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = state.latest.is_none();
        let after = state.latest.unwrap_or(0);
        for line in text.lines() {
            let Some((time, harm)) = event(line).filter(|(time, _)| first || *time > after) else { continue };
            state.latest = state.latest.max(Some(time));
            if let Some(harmed) = harm.filter(|_| !first) {
                *state.harms.entry(harmed).or_default() += 1;
            }
        }
        state.latest = state.latest.or(Some(0));
    }

    /// Number of events that have harmed a card.
    pub(crate) fn harms(&self, memdev: &str, serial: u64) -> u64 {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.harms.get(&(memdev.to_owned(), serial)).copied().unwrap_or(0)
    }
}

/// Time of a CXL event, microseconds since boot, and the card that it has harmed. `None` for any other line.
fn event(line: &str) -> Option<(u64, Option<HarmedCard>)> {
    let at = line.find(PREFIX)?;
    let (before, rest) = (&line[..at], &line[at + 2..]);
    let (seconds, micros) = before.split_whitespace().last()?.split_once('.')?;
    let time = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)?;
    let (name, fields) = rest.split_once(':')?;
    let field = |name: &str| {
        let fields = fields.split([' ', ',']);
        fields.filter_map(|field| field.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let harmful = match name {
        // Listing poison tells of poison that is there, clearing it makes things better.
        "cxl_poison" => field("trace_type") != Some("Clear"),
        "cxl_aer_uncorrectable_error" => true,
        _ => matches!(field("log"), Some("Failure" | "Fatal")),
    };
    let harm = || {
        let serial = field("serial")?.trim_end_matches(':');
        Some((field("memdev")?.to_owned(), serial.parse().ok()?))
    };
    Some((time, if harmful { harm() } else { None }))
}

#[cfg(test)]
mod tests {
    use hostler_linux::testkit::MachineTree;
    use proptest::prelude::*;

    use super::*;

    fn line(time: &str, event: &str) -> String {
        format!("   kworker/0:1-12      [000] ..... {time}: {event}")
    }

    const MEDIA: &str = "cxl_general_media: memdev=mem1 host=0000:41:00.0 serial=4097 log=Fatal : time=5 uuid=fbcd0a77 \
                         len=128 flags='' : dpa=40 descriptor='UNCORRECTABLE EVENT'";

    #[test]
    fn harm_is_told_by_severity_and_kind() {
        let harm = Some(("mem1".to_owned(), 4097));
        for (text, expected) in [
            (MEDIA.to_owned(), harm.clone()),
            (MEDIA.replace("Fatal", "Failure"), harm.clone()),
            (MEDIA.replace("Fatal", "Warning"), None),
            (
                "cxl_poison: memdev=mem1 host=0000:41:00.0 serial=4097 trace_type=List region= dpa=0x40".to_owned(),
                harm.clone(),
            ),
            ("cxl_poison: memdev=mem1 host=0000:41:00.0 serial=4097 trace_type=Clear region=".to_owned(), None),
            ("cxl_aer_uncorrectable_error: memdev=mem1 host=0000:41:00.0 serial=4097: status: 'x'".to_owned(), harm),
            ("cxl_aer_correctable_error: memdev=mem1 host=0000:41:00.0 serial=4097: status: 'x'".to_owned(), None),
            ("cxl_poison: trace_type=List".to_owned(), None),
        ] {
            assert_eq!(event(&line("12.345678", &text)), Some((12_345_678, expected)), "{text}");
        }
        for text in ["", "# tracer: nop", "x [000] 1.000001: sched_switch: a=b", "x: cxl_poison: memdev=mem0"] {
            assert_eq!(event(text), None, "{text}");
        }
    }

    #[test]
    fn only_what_is_new_counts_and_reading_takes_nothing_away() {
        let tree = MachineTree::new();
        let events = TraceEvents::default();
        let show = |lines: &[String]| {
            tree.file(TRACE, lines.join("\n"));
            tree.look(|tree| events.read(tree));
            events.harms("mem1", 4097)
        };
        tree.look(|tree| events.read(tree));
        let old = line("1.000000", MEDIA);
        assert_eq!(show(std::slice::from_ref(&old)), 0);
        let new = line("2.000000", MEDIA);
        assert_eq!(show(&[old.clone(), new.clone()]), 1);
        assert_eq!(show(&[old, new.clone()]), 1);
        // The oldest are overwritten.
        assert_eq!(show(&[new, line("3.500000", MEDIA)]), 2);
        assert_eq!((events.harms("mem1", 1), events.harms("mem2", 4097)), (0, 0));
    }

    proptest! {
        #[test]
        fn no_line_upsets_the_parser(text in "\\PC*", time in "[0-9.]{0,30}") {
            let _ = event(&text);
            let _ = event(&line(&time, &format!("cxl_{text}")));
        }
    }
}
