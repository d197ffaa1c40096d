//! Looks at every file of the store, and hashes every content.

use serde::Serialize;

use super::{Bitstream, BitstreamStore, StoreError, access, chain};
use crate::bitstream::BitstreamDigest;

/// Result of the check of one bitstream or file of the store.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct StoreFinding {
    /// The bitstream's name, or that of a file that belongs to none.
    pub name: String,
    /// Digest of the bitstream, where there is one.
    pub digest: Option<BitstreamDigest>,
    /// Problem of the bitstream; `None` if it is in order.
    pub problem: Option<String>,
}

impl BitstreamStore {
    /// Checks the bitstreams that are called by one of `references`; everything in the folder if there are none.
    ///
    /// # Errors
    /// When the folder cannot be read or trusted, or a reference names nothing.
    pub fn verify(&self, references: &[String]) -> Result<Vec<StoreFinding>, StoreError> {
        if references.is_empty() {
            return self.verify_all();
        }
        references.iter().map(|reference| Ok(self.check(&self.find(reference)?))).collect()
    }

    fn verify_all(&self) -> Result<Vec<StoreFinding>, StoreError> {
        let mut findings = Vec::new();
        let names = access::names(&self.folder)?;
        for name in &names {
            match name.rsplit_once('.').and_then(|(stem, suffix)| Some((BitstreamDigest::parse(stem)?, suffix))) {
                Some((digest, "json")) => findings.push(match self.record(&digest) {
                    Ok(bitstream) => self.check(&bitstream),
                    Err(error) => finding(name, Some(digest), Some(chain(&error))),
                }),
                Some((digest, "bin")) if names.contains(&format!("{digest}.json")) => {}
                Some((digest, "bin")) => {
                    let problem = "nothing is known of this file: add it again, or remove it";
                    findings.push(finding(name, Some(digest), Some(problem.to_owned())));
                }
                _ => findings.push(finding(name, None, Some("is no file of the store; remove it".to_owned()))),
            }
        }
        findings.sort_by(|a, b| a.name.cmp(&b.name));
        mark_doubles(&mut findings);
        Ok(findings)
    }

    fn check(&self, bitstream: &Bitstream) -> StoreFinding {
        let problem = self.problem(bitstream).err().map(|error| chain(&error));
        finding(&bitstream.name, Some(bitstream.digest.clone()), problem)
    }

    /// Hashes the content and compares it with what is known of it.
    fn problem(&self, bitstream: &Bitstream) -> Result<(), StoreError> {
        let (bytes, header) = self.content(&bitstream.digest)?;
        let said = |own: Option<_>, recorded: &_| own.is_none_or(|own| own == *recorded);
        let agrees = bytes.len() as u64 == bitstream.size_bytes
            && header.format == bitstream.format
            && said(header.interface_id, &bitstream.interface_id)
            && said(header.afu_id, &bitstream.afu_id);
        if agrees {
            return Ok(());
        }
        let reason = "contradicts what the file says of itself; remove both, and add the bitstream again".to_owned();
        Err(StoreError::Contradiction { path: self.record_path(&bitstream.digest), reason })
    }
}

fn finding(name: &str, digest: Option<BitstreamDigest>, problem: Option<String>) -> StoreFinding {
    StoreFinding { name: name.to_owned(), digest, problem }
}

/// Marks bitstreams that share a name, which finds neither of them.
fn mark_doubles(findings: &mut [StoreFinding]) {
    let names: Vec<String> =
        findings.windows(2).filter(|pair| pair[0].name == pair[1].name).map(|pair| pair[0].name.clone()).collect();
    for finding in findings.iter_mut().filter(|finding| names.contains(&finding.name)) {
        finding.problem.get_or_insert_with(|| "another bitstream has the same name; remove one of them".to_owned());
    }
}
