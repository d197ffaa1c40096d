//! A configuration space, read where it is looked at.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf};

use super::{DEVICES, PciAddress};
use crate::{ReadFailure, SysRoot};

/// The open configuration space of a function. The kernel asks the hardware for every piece that is read, so nothing is
/// read ahead; opening alone wakes nothing.
#[derive(Debug)]
pub struct ConfigFile {
    file: File,
    path: PathBuf,
}

impl ConfigFile {
    /// Opens the space. The privileges of this moment decide how much of it can be read.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn open(root: &SysRoot, address: PciAddress) -> Result<Self, ReadFailure> {
        let path = PathBuf::from(format!("{DEVICES}/{address}/config"));
        Ok(Self { file: root.open(&path)?, path })
    }

    /// The four bytes at an offset; `None` where the space ends before, for us.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn dword(&self, offset: u16) -> Result<Option<u32>, ReadFailure> {
        let mut bytes = [0; 4];
        match self.file.read_exact_at(&mut bytes, offset.into()) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(ReadFailure::new(&self.path, error)),
            Ok(()) => Ok(Some(u32::from_le_bytes(bytes))),
        }
    }

    /// Decodes the space with a function that asks for the dwords at offsets.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn decode<T>(&self, decode: impl FnOnce(&mut dyn FnMut(u16) -> Option<u32>) -> T) -> Result<T, ReadFailure> {
        let mut fault = None;
        let decoded = decode(&mut |offset| {
            self.dword(offset).unwrap_or_else(|failure| {
                fault.get_or_insert(failure);
                None
            })
        });
        fault.map_or(Ok(decoded), Err)
    }
}
