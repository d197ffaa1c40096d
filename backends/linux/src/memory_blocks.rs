//! Blocks of hot-pluggable memory: those that belong to a physical range, their states, and the users of a node's
//! memory.
//!
//! A caller that is about to take hardware away asks here first. So nothing is guessed: a file that cannot be read is
//! an error and never "nothing there".

#[cfg(test)]
mod tests;
mod users;

use std::{fmt, io};

use crate::{ReadFailure, SysRoot, TreeReading, memory_tiers};

pub use users::{HugePagePool, MemoryUser, NodeUsers, users};

const MEMORY: &str = "sys/devices/system/memory";
/// File with the size of a block.
pub(crate) const BLOCK_SIZE: &str = "sys/devices/system/memory/block_size_bytes";

/// Most blocks that are looked at for one range: 128 TiB of the smallest. A range that claims to be larger is a broken
/// description.
const MOST_BLOCKS: u64 = 1 << 20;

/// A range of physical addresses, bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PhysicalRange {
    /// The first address.
    pub start: u64,
    /// Length of the range.
    pub bytes: u64,
}

impl PhysicalRange {
    /// The address behind the last one.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }
}

impl fmt::Display for PhysicalRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start, self.end().saturating_sub(1))
    }
}

/// State of a block in the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BlockState {
    /// The block's memory is in use, or can be at any moment.
    Online,
    /// The block is unused.
    Offline,
    /// The block is on its way from the one to the other.
    GoingOffline,
    /// State that is not known here.
    Other(String),
}

impl BlockState {
    fn read(word: String) -> Self {
        match word.as_str() {
            "online" => Self::Online,
            "offline" => Self::Offline,
            "going-offline" => Self::GoingOffline,
            _ => Self::Other(word),
        }
    }
}

impl fmt::Display for BlockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Online => "online",
            Self::Offline => "offline",
            Self::GoingOffline => "going-offline",
            Self::Other(word) => word,
        })
    }
}

/// A block that exists.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryBlock {
    /// Number of the block: its first address, divided by the size of a block.
    pub number: u64,
    /// State of the block.
    pub state: BlockState,
}

impl MemoryBlock {
    /// Kernel's name of the block.
    pub fn name(&self) -> String {
        format!("memory{}", self.number)
    }
}

/// Why blocks are not known, or not as wanted.
#[derive(Debug, thiserror::Error)]
pub enum MemoryBlockError {
    /// A file could not be read, so that it cannot be told whether memory is online.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The kernel's size of a block is not a size.
    #[error("/{BLOCK_SIZE} is {text:?}, no size of a block")]
    Size {
        /// Content of the file.
        text: String,
    },
    /// No device is so large.
    #[error("the range {range} is larger than any device's")]
    Range {
        /// Range that was asked for.
        range: PhysicalRange,
    },
    /// The kernel refused.
    #[error("failed to write {text} to /{path}")]
    Write {
        /// The file.
        path: String,
        /// Text that was written.
        text: &'static str,
        /// The kernel's error; EBUSY where the memory is held.
        #[source]
        source: io::Error,
    },
    /// The kernel accepted a write, and did something else.
    #[error("/{path} is {state:?} after {text} was written to it")]
    NotDone {
        /// The file.
        path: String,
        /// Text that was written.
        text: &'static str,
        /// Content of the file now.
        state: String,
    },
}

impl MemoryBlockError {
    /// True if another try may help.
    pub fn is_busy(&self) -> bool {
        let transient =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock);
        matches!(self, Self::Write { source, .. } if transient(source)) || matches!(self, Self::NotDone { .. })
    }
}

/// The size of a block, bytes.
///
/// # Errors
/// When the kernel does not say. The kernel knows no hot-pluggable memory then, and cannot say what is online either.
pub fn block_bytes(root: &SysRoot) -> Result<u64, MemoryBlockError> {
    let text = root.required_attribute(BLOCK_SIZE)?;
    // Hexadecimal, although nothing in the file says so.
    let bytes = u64::from_str_radix(&text, 16).ok().filter(|bytes| bytes.is_power_of_two());
    bytes.ok_or(MemoryBlockError::Size { text })
}

/// The blocks that exist and hold an address of `range`, by number. A block at the edge may reach beyond the range.
///
/// # Errors
/// When the state of one cannot be read.
pub fn in_range(root: &SysRoot, range: PhysicalRange) -> Result<Vec<MemoryBlock>, MemoryBlockError> {
    let size = block_bytes(root)?;
    let numbers = range.start / size..range.end().div_ceil(size);
    if numbers.end.saturating_sub(numbers.start) > MOST_BLOCKS {
        return Err(MemoryBlockError::Range { range });
    }
    let mut blocks = Vec::new();
    for number in numbers {
        match root.required_attribute(format!("{MEMORY}/memory{number}/state")) {
            Ok(word) => blocks.push(MemoryBlock { number, state: BlockState::read(word) }),
            // A block that is not there holds no memory. One that is on its way out (ENODEV) may, for a moment.
            Err(failure) if failure.error().kind() == io::ErrorKind::NotFound => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(blocks)
}

/// True if the memory of an online block can be taken back: the block is in no zone but `Movable`.
///
/// # Errors
/// When its zones cannot be read.
pub fn is_movable(root: &SysRoot, number: u64) -> Result<bool, MemoryBlockError> {
    let zones = root.required_attribute(format!("{MEMORY}/memory{number}/valid_zones"))?;
    Ok(zones == "Movable")
}

/// Brings a block online as memory that can be taken back.
///
/// # Errors
/// When the kernel refuses, or accepts and does not do it.
pub fn online_movable(root: &SysRoot, number: u64) -> Result<(), MemoryBlockError> {
    set(root, number, "online_movable", &BlockState::Online)
}

/// Takes a block offline. The kernel moves its content away; that can fail with EBUSY, for a moment or for good.
///
/// # Errors
/// When the kernel refuses, or accepts and does not do it.
pub fn offline(root: &SysRoot, number: u64) -> Result<(), MemoryBlockError> {
    let _readers_wait = memory_tiers::going_offline();
    set(root, number, "offline", &BlockState::Offline)
}

fn set(root: &SysRoot, number: u64, text: &'static str, wanted: &BlockState) -> Result<(), MemoryBlockError> {
    let path = format!("{MEMORY}/memory{number}/state");
    let read = |path: &String| root.required_attribute(path).map(BlockState::read);
    // A block that is in the wanted state already answers EINVAL.
    if read(&path)? == *wanted {
        return Ok(());
    }
    root.write(&path, text).map_err(|source| MemoryBlockError::Write { path: path.clone(), text, source })?;
    let now = read(&path)?;
    if now == *wanted { Ok(()) } else { Err(MemoryBlockError::NotDone { path, text, state: now.to_string() }) }
}

/// Turns an answer about blocks into one of a look at a tree: the kernel may have none, or say what cannot be.
pub fn known<T>(tree: &TreeReading<'_>, answer: Result<T, MemoryBlockError>) -> Option<T> {
    match answer {
        Ok(known) => return Some(known),
        Err(MemoryBlockError::Read(failure)) if failure.is_absence() => {}
        Err(MemoryBlockError::Read(failure)) => tree.fail(failure),
        Err(error) => tree.warn(BLOCK_SIZE, format!("{error}; which memory is whose is not known")),
    }
    None
}

/// Lists blocks as people write them: `memory110-113, memory144`.
pub fn listed(blocks: &[MemoryBlock]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(block.number) => *last = block.number,
            _ => runs.push((block.number, block.number)),
        }
    }
    let run = |(first, last): &(u64, u64)| {
        if first == last { format!("memory{first}") } else { format!("memory{first}-{last}") }
    };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}
