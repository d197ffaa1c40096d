//! The content of a journal: entries that can be read, entries that are missing, and an end that was cut off or
//! damaged.

use std::ops::RangeInclusive;

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

const BLANK: u8 = b'\n';

/// An entry that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JournalLine {
    /// Number of the entry.
    pub number: u64,
    /// Bytes that were appended.
    pub content: Vec<u8>,
}

/// The content of a journal when it was opened.
#[derive(Debug, Default)]
pub struct JournalContent {
    /// The head of the last generation, if it can be read.
    pub head: Option<Vec<u8>>,
    /// The entries of that generation, in the order in which they were appended.
    pub entries: Vec<JournalLine>,
    /// The numbers of entries of that generation that were promised and cannot be read; without an end where nothing
    /// say how many followed.
    pub missing: Vec<RangeInclusive<u64>>,
    /// Lines that are left of the missing entries.
    pub remains: Vec<Vec<u8>>,
    /// True if the last line was cut off: that entry was never promised.
    pub is_cut_off: bool,
    /// True if the version that wrote the journal numbered its entries.
    pub is_numbered: bool,
    pub(super) generation: u64,
    pub(super) last: u64,
    /// Offset behind the last byte that is not blank.
    pub(super) used: u64,
}

impl JournalContent {
    /// The content of a journal that was made with `room` bytes.
    ///
    /// The highest generation is the last one, whatever else can be read. Lines of earlier ones stand behind its end
    /// where the machine went down before they were made blank; nothing was appended then.
    pub(super) fn read(bytes: &[u8], room: u64) -> Self {
        let is_short = (bytes.len() as u64) < room;
        // Most of a journal is room.
        let bytes = &bytes[..bytes.iter().rposition(|byte| *byte != BLANK).map_or(0, |last| last + 1)];
        let pieces = pieces(bytes);
        let generation = pieces.iter().filter_map(|piece| Some(piece.line.as_ref()?.generation)).max();
        let used = pieces.last().map_or(0, Piece::end) as u64;
        let Some(generation) = generation else {
            let is_blank = pieces.is_empty() && !is_short;
            let missing = if is_blank { Vec::new() } else { vec![1..=u64::MAX] };
            return Self { missing, used, ..Self::default() };
        };
        let is_own = |piece: &Piece<'_>| piece.line.as_ref().is_some_and(|line| line.generation == generation);
        let end = pieces.iter().rposition(is_own).map_or(0, |last| last + 1);
        let (own, behind) = pieces.split_at(end);
        let mut content = Self { generation, used, is_numbered: true, ..Self::default() };
        content.read_own(own, generation);
        content.read_end(own, behind, is_short, |from| is_cut_off(from, behind, bytes, room));
        content
    }

    fn read_own(&mut self, own: &[Piece<'_>], generation: u64) {
        for piece in own {
            let Some(line) = piece.line.as_ref().filter(|line| line.generation == generation) else {
                self.remains.push(piece.bytes.to_vec());
                continue;
            };
            let before = self.last;
            self.is_numbered &= line.number.is_some();
            // A head that is damaged leaves its place to no entry.
            if piece.at == 0 {
                self.last = line.number.unwrap_or_default();
                self.head = Some(line.content.to_vec());
                continue;
            }
            let number = line.number.unwrap_or(before.saturating_add(1));
            if number > before.saturating_add(1) {
                self.missing.push(before + 1..=number - 1);
            }
            self.last = number;
            self.entries.push(JournalLine { number, content: line.content.to_vec() });
        }
        // Numbers do not tell where there are none.
        if !self.is_numbered && !self.remains.is_empty() {
            self.missing = vec![1..=u64::MAX];
        }
    }

    fn read_end(
        &mut self,
        own: &[Piece<'_>],
        behind: &[Piece<'_>],
        is_short: bool,
        is_cut_off: impl FnOnce(usize) -> bool,
    ) {
        let from = own.last().map_or(0, Piece::end);
        let is_of_before = !self.is_numbered || behind.iter().any(|piece| piece.line.is_some());
        if is_short || (!is_of_before && !behind.is_empty() && !is_cut_off(from)) {
            self.missing.push(self.last.saturating_add(1)..=u64::MAX);
            self.remains.extend(behind.iter().filter(|_| !is_of_before).map(|piece| piece.bytes.to_vec()));
        } else {
            self.is_cut_off = !is_of_before && !behind.is_empty();
        }
    }

    /// True if an entry is missing that came after the one with this number.
    pub fn is_missing_after(&self, number: u64) -> bool {
        self.missing.last().is_some_and(|missing| *missing.end() > number)
    }
}

/// True if a line of which some sectors never got to the disk stands behind the last one, from `from` on.
fn is_cut_off(from: usize, behind: &[Piece<'_>], bytes: &[u8], room: u64) -> bool {
    // Beyond the room the file has grown, and what was not written there is zero.
    let is_blank = |at: &usize| bytes[*at] == BLANK || (bytes[*at] == 0 && *at as u64 >= room);
    let Some(written) = (from..bytes.len()).rev().find(|at| !is_blank(at)) else { return true };
    let mut sector = from;
    while sector <= written {
        let next = (sector / SECTOR + 1) * SECTOR;
        if (sector..next.min(written + 1)).all(|at| is_blank(&at)) {
            return true;
        }
        sector = next;
    }
    let ends_with_a_sector = (written + 1).is_multiple_of(SECTOR);
    let is_longer = |line: &[u8]| match announced_length(line) {
        Some(length) => from + length > written + 1,
        // The sector ends before the two blanks that stand in front of the content: the length itself is cut off.
        None => line.iter().filter(|byte| **byte == b' ').count() < 2,
    };
    ends_with_a_sector && behind.first().is_some_and(|first| is_longer(first.bytes))
}

/// The bytes between two line breaks.
struct Piece<'a> {
    at: usize,
    bytes: &'a [u8],
    line: Option<Line<'a>>,
}

impl Piece<'_> {
    /// The offset at which the next piece begins.
    fn end(&self) -> usize {
        self.at + self.bytes.len() + 1
    }
}

/// A line that is whole.
struct Line<'a> {
    generation: u64,
    /// Absent in the lines of earlier versions.
    number: Option<u64>,
    content: &'a [u8],
}

fn pieces(bytes: &[u8]) -> Vec<Piece<'_>> {
    let mut at = 0;
    let mut pieces = Vec::new();
    for piece in bytes.split(|byte| *byte == BLANK) {
        if !piece.is_empty() {
            pieces.push(Piece { at, bytes: piece, line: read_line(piece) });
        }
        at += piece.len() + 1;
    }
    pieces
}

fn read_line(line: &[u8]) -> Option<Line<'_>> {
    let (checksum, counted) = line.split_at_checked(9)?;
    let checksum = u32::from_str_radix(std::str::from_utf8(checksum).ok()?.strip_suffix(' ')?, 16).ok()?;
    if checksum != crc32fast::hash(counted) {
        return None;
    }
    let (numbers, content) = split_numbers(counted)?;
    let mut numbers = numbers.split('.').map(|number| number.parse().ok());
    let generation = numbers.next()??;
    Some(Line { generation, number: numbers.next().flatten(), content })
}

fn split_numbers(counted: &[u8]) -> Option<(&str, &[u8])> {
    let space = counted.iter().position(|byte| *byte == b' ')?;
    Some((std::str::from_utf8(&counted[..space]).ok()?, &counted[space + 1..]))
}

/// Length that a line announces; the line's end may not be there.
fn announced_length(line: &[u8]) -> Option<usize> {
    let (_, counted) = line.split_at_checked(9)?;
    let (numbers, content) = split_numbers(counted)?;
    let length: usize = numbers.split('.').nth(2)?.parse().ok()?;
    (line.len() - content.len()).checked_add(length)
}
