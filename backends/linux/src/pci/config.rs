//! A configuration space, read where it is looked at.

use std::{fs::File, io, os::unix::fs::FileExt};

use super::{DEVICES, PciAddress};
use crate::SysRoot;

/// The open configuration space of a function. The kernel asks the hardware for every piece that is read, so nothing is
/// read ahead; opening alone wakes nothing.
#[derive(Debug)]
pub struct ConfigFile(File);

impl ConfigFile {
    /// Opens it. How much of it can be read is decided now, by the privileges of this moment.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn open(root: &SysRoot, address: PciAddress) -> io::Result<Self> {
        root.open(format!("{DEVICES}/{address}/config").as_ref()).map(Self)
    }

    /// The four bytes at an offset; `None` where it ends before, for us.
    pub fn dword(&self, offset: u16) -> Option<u32> {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, offset.into()).ok()?;
        Some(u32::from_le_bytes(bytes))
    }
}
