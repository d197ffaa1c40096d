//! A journal: what must be on the disk now goes to the end of one file, with one flush, and later into the files where it
//! belongs. It is read again only when the machine stopped in between.
//!
//! ```text
//!   checksum generation content⏎
//!   8f1c22d0 7 {"boot":"…"}⏎                 the head: what all that follows has in common
//!   1b00a9e4 7 {"written":[…]}⏎               an entry
//!   77d0c3a1 6 {"written":[…]}⏎               of an earlier generation: counts no more
//!   ⏎⏎⏎⏎⏎⏎⏎⏎                                  room
//! ```
//!
//! The file has its room from the beginning: writing into it changes nothing but its content, so that a flush neither
//! waits for what others have written nor needs space on the disk. A line that did not get to the disk whole is the last
//! one, and nobody was told of it.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{
    Durability, FileError, PendingFile, TemporaryName, TrustError, read_trusted, sync_folder,
    trusted::open_trusted_to_write,
};

/// What a journal may have grown to: far more than it has room for, when files could not be written for long.
const MOST_BYTES: u64 = 256 << 20;

/// A journal, open for appending. One writer at a time.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    room: u64,
    generation: u64,
    head: Vec<u8>,
    /// Where the next line goes. At the beginning that is the head, also after it could not be written.
    end: u64,
}

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct JournalContent {
    /// The head of the last generation, if it can be read.
    pub head: Option<Vec<u8>>,
    /// The entries of that generation, in the order in which they were appended.
    pub entries: Vec<Vec<u8>>,
    /// Lines of that generation that cannot be read. The end of the journal is none of them: what a crash cut off
    /// was never promised.
    pub damaged: usize,
}

impl Journal {
    /// Opens the journal at `path`, made with `room` bytes if it is absent, and reads what it holds. Before
    /// anything is appended, [`Journal::begin`] gives it a head.
    ///
    /// # Errors
    /// When it cannot be made, read or written, or others can have changed it.
    pub fn open(path: &Path, room: u64) -> Result<(Self, JournalContent), TrustError> {
        let opened = match open_trusted_to_write(path) {
            Err(error) if error.is_absent() => {
                make(path, room)?;
                open_trusted_to_write(path)
            }
            opened => opened,
        };
        let (file, found) = opened?;
        if found.len() > MOST_BYTES {
            return Err(TrustError::too_large(path, found.len(), MOST_BYTES));
        }
        let mut bytes = vec![0; usize::try_from(found.len()).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0).map_err(FileError::at("read", path))?;
        let (generation, content) = parse(&bytes);
        Ok((Self { path: path.to_owned(), file, room, generation, head: Vec::new(), end: 0 }, content))
    }

    /// What the journal at `path` holds, for those who only look: nothing where it is absent. Somebody may be writing it.
    ///
    /// # Errors
    /// When it cannot be read, or others can have changed it.
    pub fn look(path: &Path) -> Result<JournalContent, TrustError> {
        match read_trusted(path, MOST_BYTES) {
            Err(error) if error.is_absent() => Ok(JournalContent::default()),
            bytes => Ok(parse(&bytes?).1),
        }
    }

    /// Begins a generation: what stands in the journal counts no more. To be called when all of it is on the disk
    /// elsewhere.
    ///
    /// # Errors
    /// When the disk fails. The next entry tries again.
    pub fn begin(&mut self, head: &[u8]) -> Result<(), FileError> {
        if self.end > self.room {
            self.file.set_len(self.room).map_err(FileError::at("shorten", &self.path))?;
        }
        self.generation += 1;
        self.head = head.to_vec();
        self.end = 0;
        self.write_lines(&line(self.generation, head))
    }

    /// Puts an entry on the disk. It holds no line break.
    ///
    /// # Errors
    /// When the disk fails. The entry may be there after a crash, unless another has been appended since.
    pub fn append(&mut self, content: &[u8]) -> Result<(), FileError> {
        let mut lines = if self.end == 0 { line(self.generation, &self.head) } else { Vec::new() };
        lines.extend(line(self.generation, content));
        self.write_lines(&lines)
    }

    fn write_lines(&mut self, lines: &[u8]) -> Result<(), FileError> {
        self.file.write_all_at(lines, self.end).map_err(FileError::at("write", &self.path))?;
        self.file.sync_data().map_err(FileError::at("sync", &self.path))?;
        self.end += lines.len() as u64;
        Ok(())
    }

    /// How much of its room is taken, in percent; more than 100 when it has grown.
    pub fn filling(&self) -> u64 {
        self.end * 100 / self.room.max(1)
    }
}

fn make(path: &Path, room: u64) -> Result<(), FileError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let make = || {
        let mut pending = PendingFile::create(folder, TemporaryName::Fixed(".journal.tmp"), 0o600)?;
        // In pieces: what the allocator once had to give in one piece, the process keeps.
        io::copy(&mut io::repeat(b'\n').take(room), &mut pending)?;
        pending.finish(Durability::Synced)
    };
    make().map_err(FileError::at("write", path))?.publish(path)?;
    sync_folder(folder)
}

fn line(generation: u64, content: &[u8]) -> Vec<u8> {
    let mut counted = format!("{generation} ").into_bytes();
    counted.extend_from_slice(content);
    let mut line = format!("{:08x} ", crc32fast::hash(&counted)).into_bytes();
    line.append(&mut counted);
    line.push(b'\n');
    line
}

/// The generation and the content of a line that is whole.
fn read_line(line: &[u8]) -> Option<(u64, &[u8])> {
    let (checksum, counted) = line.split_at_checked(9)?;
    let checksum = u32::from_str_radix(std::str::from_utf8(checksum).ok()?.strip_suffix(' ')?, 16).ok()?;
    if checksum != crc32fast::hash(counted) {
        return None;
    }
    let space = counted.iter().position(|byte| *byte == b' ')?;
    let generation = std::str::from_utf8(&counted[..space]).ok()?.parse().ok()?;
    Some((generation, &counted[space + 1..]))
}

/// The highest generation is the last one, whatever else can be read: lines of earlier ones stand behind its end.
fn parse(bytes: &[u8]) -> (u64, JournalContent) {
    let lines: Vec<Option<(u64, &[u8])>> =
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(read_line).collect();
    let Some(generation) = lines.iter().flatten().map(|(generation, _)| *generation).max() else {
        return (0, JournalContent::default());
    };
    let of_last =
        |line: Option<(u64, &[u8])>| line.filter(|(of, _)| *of == generation).map(|(_, content)| content.to_vec());
    let mut own: Vec<Option<Vec<u8>>> = lines.into_iter().map(of_last).collect();
    own.truncate(own.iter().rposition(Option::is_some).map_or(0, |end| end + 1));
    let damaged = own.iter().filter(|line| line.is_none()).count();
    let head = if own.is_empty() { None } else { own.remove(0) };
    (generation, JournalContent { head, entries: own.into_iter().flatten().collect(), damaged })
}

#[cfg(test)]
mod tests;
