//! CPUs as rows of letters: threads of a core beside each other, cores that share a cache as a group.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{PageLine, PageSpan};
use crate::{
    cli::picture::legend::{Legend, Mark, Tone},
    usage::{holders::CpuState, layout::LayoutCore},
};

/// In front of a row: the number of its first CPU.
const NUMBER: usize = 5;

/// Values that are looked up for each CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuMarks<'a> {
    pub(super) legend: &'a Legend,
    pub(super) states: &'a BTreeMap<u32, CpuState>,
    /// Percent; empty where it is not known.
    pub(super) loads: &'a BTreeMap<u32, u8>,
    /// The holders whose CPUs stand out, where others do not.
    pub(super) holders: Option<&'a BTreeSet<usize>>,
}

/// A place in a row: a CPU, or nothing.
type Place = Option<u32>;

/// Rows of at most `width` columns, each with the load below it where that is known.
pub(super) fn rows(groups: &[Vec<&LayoutCore>], marks: CpuMarks<'_>, indent: usize, width: usize) -> Vec<PageLine> {
    let room = width.saturating_sub(indent + NUMBER).max(1);
    let rows = filled(&tokens(groups), room);
    rows.iter().flat_map(|row| lines(row, marks, indent)).collect()
}

/// The CPUs of a core, and how many blanks stand in front of it unless it is the first of a row.
type Token = (usize, Vec<u32>);

fn tokens(groups: &[Vec<&LayoutCore>]) -> Vec<Token> {
    let threads = groups.iter().flatten().map(|core| core.cpus.len()).max().unwrap_or(1);
    let between = usize::from(threads > 1);
    let mut tokens = Vec::new();
    for group in groups {
        for (index, core) in group.iter().enumerate() {
            let blanks = if index == 0 { between + 1 } else { between };
            tokens.push((blanks, core.cpus.iter().collect()));
        }
    }
    tokens
}

/// Puts as many cores in a row as there is room for; one that is wider than the room is broken.
fn filled(tokens: &[Token], room: usize) -> Vec<Vec<Place>> {
    let mut rows: Vec<Vec<Place>> = Vec::new();
    for (blanks, cpus) in tokens {
        match rows.last_mut() {
            Some(row) if row.len() + blanks + cpus.len() <= room => {
                row.extend(vec![None; *blanks]);
                row.extend(cpus.iter().copied().map(Some));
            }
            _ => rows.extend(cpus.chunks(room).map(|part| part.iter().copied().map(Some).collect())),
        }
    }
    rows
}

fn lines(row: &[Place], marks: CpuMarks<'_>, indent: usize) -> Vec<PageLine> {
    let first = row.iter().flatten().next().map(ToString::to_string).unwrap_or_default();
    let mut line = PageLine::of(vec![PageSpan::dim(format!("{:indent$}{first:>4} ", ""))]);
    line.spans.extend(row.iter().map(|place| place.map_or_else(|| PageSpan::plain(" "), |cpu| mark(cpu, marks))));
    if !row.iter().flatten().any(|cpu| marks.loads.contains_key(cpu)) {
        return vec![line];
    }
    let digits: String = row.iter().map(|place| place.map_or(' ', |cpu| load(cpu, marks.loads))).collect();
    vec![line, PageLine::of(vec![PageSpan::dim(format!("{:indent$}load {digits}", ""))])]
}

fn mark(cpu: u32, marks: CpuMarks<'_>) -> PageSpan {
    let nothing = Mark { sign: '?', tone: Tone::Plain };
    let state = marks.states.get(&cpu);
    let Mark { sign, tone } = state.map_or(nothing, |state| marks.legend.cpu(*state));
    let is_among = |holders: &BTreeSet<usize>| match state {
        Some(CpuState::Held(holder) | CpuState::Kept(holder)) => holders.contains(holder),
        _ => false,
    };
    if marks.holders.is_some_and(|holders| !is_among(holders)) {
        return PageSpan::dim(sign);
    }
    PageSpan { text: sign.to_string(), tone, is_bold: matches!(tone, Tone::Holder(_)), is_dim: false }
}

/// Tenths, the last of them up to 100 %.
fn load(cpu: u32, loads: &BTreeMap<u32, u8>) -> char {
    let tenth = loads.get(&cpu).map(|percent| u32::from(*percent / 10).min(9));
    tenth.and_then(|tenth| char::from_digit(tenth, 10)).unwrap_or(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(cpus: &str) -> LayoutCore {
        LayoutCore { cpus: cpus.parse().unwrap(), kind: None }
    }

    #[test]
    fn rows_hold_whole_cores_and_no_cpu_is_lost_however_narrow_they_are() {
        let cores: Vec<LayoutCore> = (0..8).map(|index| core(&format!("{}-{}", index * 2, index * 2 + 1))).collect();
        let groups: Vec<Vec<&LayoutCore>> = cores.chunks(4).map(|group| group.iter().collect()).collect();
        for room in 1..40 {
            let rows = filled(&tokens(&groups), room);
            assert!(rows.iter().all(|row| row.len() <= room), "{room}: {rows:?}");
            let cpus: Vec<u32> = rows.into_iter().flatten().flatten().collect();
            assert_eq!(cpus, (0..16).collect::<Vec<_>>(), "{room}");
        }
    }
}
