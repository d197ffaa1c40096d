//! Mailboxes of made-up CXL cards.

use std::{collections::BTreeMap, io, sync::Mutex};

use nix::errno::Errno;

use crate::ioctl::cxl::{HEALTH_BYTES, Mailbox};

/// Cards that answer what they were told to, by kernel name. Others have no node.
#[derive(Debug, Default)]
pub struct FakeMailbox(Mutex<BTreeMap<String, Result<[u8; HEALTH_BYTES], Errno>>>);

impl FakeMailbox {
    /// Lets a card answer.
    pub fn answer(&self, memdev: &str, health: [u8; HEALTH_BYTES]) {
        self.0.lock().unwrap().insert(memdev.to_owned(), Ok(health));
    }

    /// Lets the kernel refuse to ask.
    pub fn refuse(&self, memdev: &str, errno: Errno) {
        self.0.lock().unwrap().insert(memdev.to_owned(), Err(errno));
    }
}

impl Mailbox for FakeMailbox {
    fn health(&self, memdev: &str) -> io::Result<[u8; HEALTH_BYTES]> {
        let answer = self.0.lock().unwrap().get(memdev).copied().unwrap_or(Err(Errno::ENOENT));
        answer.map_err(Into::into)
    }
}
