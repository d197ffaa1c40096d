//! Lines above the machine and below it: counts, load, trouble, the filter, signs and keys.

use std::collections::BTreeMap;

use hostler_api::plain_line;

use super::{
    filter::FilteredUsage,
    line::{PageLine, PageSpan},
    view::PageView,
};
use crate::{
    cli::picture::{legend::Tone, words},
    usage::holders::{CpuState, MachineUsage},
};

/// Text of the key `?`.
pub(super) const HELP: [&str; 21] = [
    "c            claims, each with a letter",
    "n            namespaces, each with a letter",
    "u            NUMA nodes",
    "Tab          the next of these three",
    "/            only what has a text in its name or state: claims with their",
    "             devices, devices with their claims; Enter keeps the filter",
    "s            sort the table by its next column",
    "r S          the other way round",
    "↑ ↓ j k      a line up or down",
    "PgUp PgDn    ten lines; the space bar as well",
    "Home End     the first or the last line",
    "? h          this, and back",
    "Esc          back: from this, then from the filter, then out",
    "q Ctrl-C     end",
    "",
    "a-z A-Z      holders; the table below the machine names them",
    ". :          free; kept idle for a holder, on whose core it is",
    "|            blocked: nobody has it, and it cannot be had for what others have",
    "= -          stays with the system; does not run, or is not there",
    "~ !          drained; unhealthy, or not known",
    "load 0-9     the load of each CPU, in tenths; ▁ to █ that of all, of late",
];

/// The hint in the last line of the screen.
pub(super) const KEYS: &str = "c n u table  / filter  s r sort  ↑↓ move  ? help  q end";

/// The lines that stay on top.
pub(super) fn head(
    view: &PageView<'_>,
    states: &BTreeMap<u32, CpuState>,
    filtered: Option<&FilteredUsage>,
) -> Vec<PageLine> {
    let mut lines: Vec<PageLine> =
        words::summary(view.usage).into_iter().map(|line| PageLine::of(vec![PageSpan::plain(line)])).collect();
    if let Some(first) = lines.first_mut() {
        first.spans.iter_mut().for_each(|span| span.is_bold = true);
    }
    let known: Vec<u32> = states.keys().filter_map(|cpu| view.loads.get(cpu)).map(|load| u32::from(*load)).collect();
    let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
    if let (Some(mean), Some(line)) = (known.iter().sum::<u32>().checked_div(count), lines.last_mut()) {
        line.spans.push(PageSpan::plain(format!(" · load {mean} % {}", view.load_line)));
    }
    lines.extend(filter(view, filtered));
    let trouble = |text: &str| PageLine::of(vec![PageSpan::toned(format!("! {}", plain_line(text)), Tone::Unhealthy)]);
    lines.extend(view.away.iter().map(|why| trouble(why)));
    lines.extend(view.usage.doubts.iter().map(|doubt| trouble(doubt)));
    lines
}

/// The filter, how much it lets through, and how to leave it.
fn filter(view: &PageView<'_>, filtered: Option<&FilteredUsage>) -> Option<PageLine> {
    let text = view.filter?.text();
    let cursor = if view.is_typing { "_" } else { "" };
    let counts = filtered.map(|filtered| {
        let (holders, devices) = (filtered.holders.len(), filtered.devices.len());
        format!("  {holders}/{} claims, {devices}/{} devices", view.usage.holders.len(), view.usage.devices.len())
    });
    let ways = if view.is_typing { "Enter keeps it, Esc clears it" } else { "Esc clears it" };
    Some(PageLine::of(vec![
        PageSpan::bold(format!("/{text}{cursor}")),
        PageSpan::plain(counts.unwrap_or_default()),
        PageSpan::dim(format!("  {ways}")),
    ]))
}

/// Returns the meaning of each sign, in one line.
pub(super) fn signs(usage: &MachineUsage) -> PageLine {
    let mut spans = vec![PageSpan::plain("a-z holders")];
    for (sign, tone, text) in words::signs(usage) {
        spans.push(PageSpan::plain("  "));
        spans.push(PageSpan::toned(sign.to_string(), tone));
        spans.push(PageSpan::plain(format!(" {}", text.trim_end_matches(" for a holder"))));
    }
    PageLine::of(spans)
}
