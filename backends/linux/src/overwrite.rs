//! Overwrites memory that a device maps, through the kernel: a page that cannot be had is an error, and not a signal that
//! ends this process.

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::fd::AsRawFd,
    path::Path,
    ptr::NonNull,
};

use nix::{
    fcntl::OFlag,
    libc,
    sys::memfd::{MFdFlags, memfd_create},
};

use crate::SysRoot;

/// Memory that is mapped at once: a multiple of the pages of every dax device.
const WINDOW: u64 = 1 << 30;
/// Distance of the lines that are read back: the smallest page of a dax device's mapping.
const STEP: usize = 2 << 20;
/// Bytes that are read back of each step, at its end.
const LINE: usize = 64;

/// Reason why memory is not overwritten.
#[derive(Debug, thiserror::Error)]
pub enum OverwriteError {
    /// The device was not opened.
    #[error("failed to open it")]
    Open(#[source] io::Error),
    /// No source of zeros was made.
    #[error("failed to make a file of zeros")]
    Zeros(#[source] io::Error),
    /// A part was not mapped.
    #[error("failed to map {bytes} bytes from {offset}")]
    Map {
        /// Start of the part.
        offset: u64,
        /// Size of the part.
        bytes: u64,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A part was not written, or not read back.
    #[error("failed to {what} at {offset}")]
    Copy {
        /// Action that failed.
        what: &'static str,
        /// Place in the memory.
        offset: u64,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The memory does not keep what is written to it.
    #[error("the memory at {offset} is not zero after zeros were written there")]
    NotZero {
        /// Place in the memory.
        offset: u64,
    },
}

/// Overwrites the first `bytes` of a device that can be mapped (`dev/dax0.0`) with zeros, and reads a line of every 2 MiB
/// back.
///
/// # Errors
/// When a part cannot be mapped, written or read, or does not read as zeros.
pub fn overwrite(root: &SysRoot, node: &Path, bytes: u64) -> Result<(), OverwriteError> {
    let device = root.device(node, OFlag::O_RDWR).map_err(OverwriteError::Open)?;
    let zeros = scratch(bytes.min(WINDOW)).map_err(OverwriteError::Zeros)?;
    let seen = scratch(0).map_err(OverwriteError::Zeros)?;
    let mut offset = 0;
    while offset < bytes {
        let size = (bytes - offset).min(WINDOW);
        let part = MappedPart::new(&device, offset, size).map_err(|source| OverwriteError::Map {
            offset,
            bytes: size,
            source,
        })?;
        part.fill_from(&zeros)?;
        part.expect_zeros(&seen)?;
        offset += size;
    }
    Ok(())
}

/// A file in memory, which reads as zeros.
fn scratch(bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create("zeros", MFdFlags::MFD_CLOEXEC)?);
    file.set_len(bytes)?;
    Ok(file)
}

/// A part of a device in this process's addresses. Nothing here reads or writes through the pointer but the kernel.
struct MappedPart {
    start: NonNull<libc::c_void>,
    bytes: usize,
    offset: u64,
}

impl MappedPart {
    fn new(device: &File, offset: u64, bytes: u64) -> io::Result<Self> {
        let size = usize::try_from(bytes).map_err(io::Error::other)?;
        let place = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the kernel chooses addresses that nothing else has, and no reference to them is ever made.
        #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, device.as_raw_fd(), place) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("the kernel maps it at address 0"))?;
        Ok(Self { start, bytes: size, offset })
    }

    /// The kernel's error about a place in the part.
    fn failed(&self, what: &'static str, at: usize) -> OverwriteError {
        OverwriteError::Copy { what, offset: self.offset + at as u64, source: io::Error::last_os_error() }
    }

    fn fill_from(&self, zeros: &File) -> Result<(), OverwriteError> {
        let mut done = 0;
        while done < self.bytes {
            // SAFETY: the kernel writes into the mapping, whose end is not passed. A page that is gone is an error.
            #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
            let copied = unsafe {
                let target = self.start.as_ptr().byte_add(done);
                libc::pread(zeros.as_raw_fd(), target, self.bytes - done, done as libc::off_t)
            };
            match usize::try_from(copied) {
                Ok(copied) if copied > 0 => done += copied,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted && copied < 0 => {}
                _ => return Err(self.failed("overwrite memory", done)),
            }
        }
        Ok(())
    }

    fn expect_zeros(&self, seen: &File) -> Result<(), OverwriteError> {
        let ends = (1..=self.bytes.div_ceil(STEP)).map(|step| (step * STEP).min(self.bytes));
        for at in ends.map(|end| end.saturating_sub(LINE)) {
            let line = self.read(seen, at)?;
            if line.iter().any(|byte| *byte != 0) {
                return Err(OverwriteError::NotZero { offset: self.offset + at as u64 });
            }
        }
        Ok(())
    }

    /// A line of the part, by way of a file.
    fn read(&self, mut seen: &File, at: usize) -> Result<[u8; LINE], OverwriteError> {
        let bytes = LINE.min(self.bytes - at);
        // SAFETY: the kernel reads from the mapping, whose end is not passed. A page that is gone is an error.
        #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
        let copied = unsafe { libc::pwrite(seen.as_raw_fd(), self.start.as_ptr().byte_add(at), bytes, 0) };
        let mut line = [0; LINE];
        if usize::try_from(copied) != Ok(bytes) {
            return Err(self.failed("read memory back", at));
        }
        let read = seen.rewind().and_then(|()| seen.read_exact(&mut line[..bytes]));
        read.map_err(|source| OverwriteError::Copy {
            what: "read memory back",
            offset: self.offset + at as u64,
            source,
        })?;
        Ok(line)
    }
}

impl Drop for MappedPart {
    fn drop(&mut self) {
        // SAFETY: this is what was mapped, and nothing refers to it.
        #[allow(unsafe_code, reason = "the C library has no safe interface for this")]
        let unmapped = unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
        debug_assert_eq!(unmapped, 0, "{}", io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::MachineTree;

    const SIZE: usize = 5 << 20;

    fn tree() -> MachineTree {
        let tree = MachineTree::new();
        tree.bytes("dev/dax0.0", vec![0xa5; SIZE]);
        tree
    }

    #[test]
    fn every_byte_is_overwritten_and_not_one_more() {
        let tree = tree();
        overwrite(&tree.root(), Path::new("dev/dax0.0"), (SIZE - 4096) as u64).unwrap();
        let now = std::fs::read(tree.path("dev/dax0.0")).unwrap();
        assert!(now[..SIZE - 4096].iter().all(|byte| *byte == 0));
        assert!(now[SIZE - 4096..].iter().all(|byte| *byte == 0xa5));
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_and_the_process_lives() {
        let error = overwrite(&tree().root(), Path::new("dev/dax0.0"), 2 * SIZE as u64).unwrap_err();
        assert_eq!(error.to_string(), format!("failed to overwrite memory at {SIZE}"));
        let error = overwrite(&tree().root(), Path::new("dev/dax1.0"), 4096).unwrap_err();
        assert!(matches!(error, OverwriteError::Open(_)), "{error:?}");
    }

    #[test]
    fn what_is_left_is_found() {
        let tree = tree();
        let device = tree.root().device("dev/dax0.0", OFlag::O_RDWR).unwrap();
        let part = MappedPart::new(&device, 0, SIZE as u64).unwrap();
        let error = part.expect_zeros(&scratch(0).unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the memory at {} is not zero after zeros were written there", STEP - LINE)
        );
    }
}
