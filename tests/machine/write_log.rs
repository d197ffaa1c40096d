//! What a disk was told, in its order: the log of QEMU's driver `blklogwrites`, whose format is that of the kernel's target
//! `log-writes`. From it the disk is made as it was at any moment of its life, and as it may have been found had the power
//! failed then: with what was flushed, and any part of what came after.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const SECTOR: usize = 512;
const BLOCK: usize = 4096;

const FLUSH: u64 = 1;
const DISCARD: u64 = 4;

/// Sectors that were written together.
pub struct Write {
    pub sector: u64,
    pub bytes: Vec<u8>,
}

/// What happens to a disk.
pub enum Event {
    Write(Write),
    /// All writes before it are on the disk.
    Flush,
}

/// Reads a log to its end, which may be cut off.
pub fn read(path: &Path) -> Vec<Event> {
    let bytes = fs::read(path).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!((number(0), number(8)), (MAGIC, 1), "{} is no log of writes", path.display());
    let (entries, sector_size) = (number(16), u32::from_le_bytes(bytes[24..28].try_into().unwrap()));
    assert_eq!(sector_size as usize, SECTOR);
    let (mut at, mut events) = (SECTOR, Vec::new());
    for _ in 0..entries {
        let [sector, sectors, flags, _] = [0, 8, 16, 24].map(|field| number(at + field));
        at += SECTOR;
        let length = usize::try_from(sectors).unwrap() * SECTOR;
        match flags {
            _ if flags & DISCARD != 0 => events.push(Event::Write(Write { sector, bytes: vec![0; length] })),
            _ if length > 0 => {
                events.push(Event::Write(Write { sector, bytes: bytes[at..at + length].to_vec() }));
                at += length;
            }
            _ => {}
        }
        if flags & FLUSH != 0 {
            events.push(Event::Flush);
        }
    }
    events
}

/// The content of a disk, without the blocks that are zero.
#[derive(Clone, Default)]
pub struct Image {
    size: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Image {
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let mut image = Self { size: bytes.len() as u64, blocks: BTreeMap::new() };
        for (block, content) in bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0))
        {
            image.blocks.insert(block as u64, content.into());
        }
        image
    }

    pub fn apply(&mut self, write: &Write) {
        for (index, sector) in write.bytes.chunks(SECTOR).enumerate() {
            let at = (usize::try_from(write.sector).unwrap() + index) * SECTOR;
            let block = self.blocks.entry((at / BLOCK) as u64).or_insert_with(|| vec![0; BLOCK].into());
            block[at % BLOCK..][..SECTOR].copy_from_slice(sector);
        }
    }

    /// Gives a file this content. Who has it open sees the new one.
    pub fn write(&self, file: &File) {
        file.set_len(0).unwrap();
        file.set_len(self.size).unwrap();
        for (block, content) in &self.blocks {
            file.write_all_at(content, block * BLOCK as u64).unwrap();
        }
    }
}
