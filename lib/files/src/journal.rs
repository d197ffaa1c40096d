//! A journal: what must be on the disk now goes to the end of one file, with one flush, and later into the files
//! where it belongs. It is read again only when the machine stopped in between.
//!
//! ```text
//!   checksum generation.number.length content⏎
//!   8f1c22d0 7.41.14 {"boot":"…"}⏎            the head: what all that follows has in common; 41 entries came before it
//!   1b00a9e4 7.42.16 {"written":[…]}⏎         an entry
//!   ⏎⏎⏎⏎⏎⏎⏎⏎                                  room
//! ```
//!
//! The file has its room from the beginning: writing into it changes nothing but its content, so that a flush neither
//! waits for what others have written nor needs space on the disk. Behind the last line the room is blank, and disks
//! write whole sectors: a line with a blank sector in it was cut off before it was promised. Any other line that
//! cannot be read was damaged later, and the numbers of the others say which entries it held.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

pub use self::content::{JournalContent, JournalLine};
use crate::{
    Durability, FileError, PendingFile, TemporaryName, TrustError, read_trusted, sync_folder,
    trusted::open_trusted_to_write,
};

mod content;

/// Largest size that a journal may have grown to: far more than it has room for, when files could not be written for
/// long.
const MOST_BYTES: u64 = 256 << 20;

/// Bytes of the room that are made blank with one write.
const PIECE: usize = 64 << 10;

/// A journal, open for appending. One writer at a time.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    room: u64,
    generation: u64,
    head: Vec<u8>,
    /// The number of the last entry.
    last: u64,
    /// Offset of the next line. At 0 the head comes next, also after the head could not be written.
    end: u64,
    /// Behind the end, up to here, the file may not be blank.
    stale_to: u64,
}

impl Journal {
    /// Opens the journal at `path`, made with `room` bytes if it is absent, and reads its content. Before anything is
    /// appended, [`Journal::begin`] gives it a head.
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
        let content = JournalContent::read(&bytes, room);
        let (path, generation, last) = (path.to_owned(), content.generation, content.last);
        // A file that was shortened from outside gets its room again.
        let stale_to = if found.len() == room { content.used } else { found.len().max(room) };
        Ok((Self { path, file, room, generation, head: Vec::new(), last, end: 0, stale_to }, content))
    }

    /// Content of the journal at `path`, for readers that append nothing: empty where it is absent. A writer may be
    /// at work.
    ///
    /// # Errors
    /// When it cannot be read, or others can have changed it.
    pub fn look(path: &Path, room: u64) -> Result<JournalContent, TrustError> {
        match read_trusted(path, MOST_BYTES) {
            Err(error) if error.is_absent() => Ok(JournalContent::default()),
            bytes => Ok(JournalContent::read(&bytes?, room)),
        }
    }

    /// The number that the next entry gets. Numbers grow for ever, whatever becomes of the generations.
    pub fn next_number(&self) -> u64 {
        self.last.saturating_add(1)
    }

    /// Gives the next entry a number above this one, which a file has already.
    pub fn number_above(&mut self, seen: u64) {
        self.last = self.last.max(seen);
    }

    /// Begins a generation: the earlier content of the journal counts no more. Call it only when all of that is on
    /// the disk elsewhere.
    ///
    /// # Errors
    /// When the disk fails. The next entry tries again.
    pub fn begin(&mut self, head: &[u8]) -> Result<(), FileError> {
        self.head = head.to_vec();
        self.stale_to = self.stale_to.max(self.end);
        self.end = 0;
        self.write_head()
    }

    /// The head is on the disk before anything of the generation before it goes, and the room is blank before the first
    /// entry comes: whenever the machine goes down, what is there is one of both.
    fn write_head(&mut self) -> Result<(), FileError> {
        self.generation += 1;
        let head = line(self.generation, self.last, &self.head);
        self.write(&head, 0)?;
        self.sync()?;
        let end = head.len() as u64;
        if self.stale_to > self.room {
            self.file.set_len(self.room).map_err(FileError::at("shorten", &self.path))?;
            self.stale_to = self.room;
        }
        if self.stale_to > end {
            self.blank(end)?;
        }
        self.end = end;
        self.stale_to = end;
        Ok(())
    }

    fn blank(&self, from: u64) -> Result<(), FileError> {
        let blanks = [b'\n'; PIECE];
        let mut at = from;
        while at < self.stale_to {
            let piece = usize::try_from(self.stale_to - at).map_or(PIECE, |left| left.min(PIECE));
            self.write(&blanks[..piece], at)?;
            at += piece as u64;
        }
        self.sync()
    }

    /// Puts an entry on the disk, and returns its number. It holds no line break.
    ///
    /// # Errors
    /// When the disk fails. The entry may be there after a crash, unless another has been appended since.
    pub fn append(&mut self, content: &[u8]) -> Result<u64, FileError> {
        if self.end == 0 {
            self.write_head()?;
        }
        let number = self.next_number();
        let mut bytes = line(self.generation, number, content);
        let end = self.end + bytes.len() as u64;
        // Over what is left of an entry that could not be written.
        bytes.extend((end..self.stale_to).map(|_| b'\n'));
        self.stale_to = self.stale_to.max(end);
        self.write(&bytes, self.end)?;
        self.sync()?;
        (self.end, self.stale_to, self.last) = (end, end, number);
        Ok(number)
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), FileError> {
        self.file.write_all_at(bytes, at).map_err(FileError::at("write", &self.path))
    }

    fn sync(&self) -> Result<(), FileError> {
        self.file.sync_data().map_err(FileError::at("sync", &self.path))
    }

    /// Taken part of the room, in percent; more than 100 when the journal has grown.
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

fn line(generation: u64, number: u64, content: &[u8]) -> Vec<u8> {
    let mut counted = format!("{generation}.{number}.{} ", content.len()).into_bytes();
    counted.extend_from_slice(content);
    let mut line = format!("{:08x} ", crc32fast::hash(&counted)).into_bytes();
    line.append(&mut counted);
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests;
