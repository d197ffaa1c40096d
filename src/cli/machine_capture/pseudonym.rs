//! Names for serial numbers that tell devices apart and do not tell the number.
//!
//! A pseudonym is the beginning of HMAC-SHA-256 of the serial number, with the host's machine id as the key. So one
//! device has one pseudonym in all captures of a machine, and who does not know the machine id cannot try out numbers.
//! The machine id is 128 random bits that do not leave the host.

use hostler_linux::{ReadFailure, SysRoot};
use ring::{
    hmac::{self, HMAC_SHA256},
    rand::{SecureRandom, SystemRandom},
};

use crate::cli::CliFailure;

const MACHINE_ID: &str = "etc/machine-id";

/// The prefix of serial numbers. Hashed text goes behind a prefix, so that one never stands for the other.
const OF_SERIAL: &[u8] = b"hostler serial number\0";
const OF_KEY: &[u8] = b"hostler capture key\0";

/// Makes pseudonyms.
pub(super) struct SerialPseudonyms {
    key: hmac::Key,
    /// True if the key can be made again.
    is_stable: bool,
}

impl SerialPseudonyms {
    /// Makes the names of the host: of `root`, if it tells its machine id, else of the tree that we run in.
    /// Without a machine id the key is random, and goes with this value.
    pub(super) fn of_host(root: &SysRoot) -> Result<Self, CliFailure> {
        let read = |root: &SysRoot| machine_id(root).map_err(|failure| CliFailure::step("name the machine", failure));
        let id = read(root)?.map_or_else(|| read(&SysRoot::host()), |id| Ok(Some(id)))?;
        if let Some(id) = id {
            return Ok(Self { key: hmac::Key::new(HMAC_SHA256, id.as_bytes()), is_stable: true });
        }
        let mut random = [0; 32];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| CliFailure::Said("the kernel gives no random numbers".to_owned()))?;
        Ok(Self { key: hmac::Key::new(HMAC_SHA256, &random), is_stable: false })
    }

    /// The pseudonym of a serial number; neither 0 nor all ones, which mean that there is none.
    pub(super) fn of(&self, serial: &[u8]) -> u64 {
        self.number(OF_SERIAL, serial).clamp(1, u64::MAX - 1)
    }

    /// Tells whether two captures have the same key, and nothing else about it. `None` for a key that is thrown away.
    pub(super) fn key(&self) -> Option<String> {
        self.is_stable.then(|| format!("{:016x}", self.number(OF_KEY, &[])))
    }

    fn number(&self, label: &[u8], of: &[u8]) -> u64 {
        let tag = hmac::sign(&self.key, &[label, of].concat());
        tag.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// `uninitialized`, or anything but 32 digits, is no key.
fn machine_id(root: &SysRoot) -> Result<Option<String>, ReadFailure> {
    let is_key = |id: &String| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(root.text(MACHINE_ID)?.filter(is_key))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn host(id: &str) -> (tempfile::TempDir, SysRoot) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join(MACHINE_ID), id).unwrap();
        let root = SysRoot::new(dir.path());
        (dir, root)
    }

    #[test]
    fn one_host_has_one_pseudonym_for_a_serial_number_and_another_host_another() {
        let (_one, one) = host("0123456789abcdef0123456789abcdef\n");
        let (_other, other) = host("fedcba9876543210fedcba9876543210\n");
        let pseudonyms = |root| SerialPseudonyms::of_host(root).unwrap();
        assert_eq!(pseudonyms(&one).of(b"17"), pseudonyms(&one).of(b"17"));
        assert_ne!(pseudonyms(&one).of(b"17"), pseudonyms(&one).of(b"18"));
        assert_ne!(pseudonyms(&one).of(b"17"), pseudonyms(&other).of(b"17"));
        assert_eq!(pseudonyms(&one).key(), pseudonyms(&one).key());
        assert_ne!(pseudonyms(&one).key(), pseudonyms(&other).key());
        assert!(pseudonyms(&one).key().is_some());
    }

    #[test]
    fn an_id_that_is_none_is_no_key() {
        for id in ["", "uninitialized\n", "0123\n", "0123456789abcdef0123456789abcdeg\n"] {
            let (_host, root) = host(id);
            assert_eq!(machine_id(&root).unwrap(), None, "{id:?}");
        }
    }
}
