//! Functions that are known to be none of CXL: a configuration space that has no capability will not grow one.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use hostler_linux::pci::{PciAddress, PciIdentity};

/// Remembers functions, so that looking for health does not ask hundreds of them every time. A function that is replaced
/// by another model is another function.
#[derive(Debug, Default)]
pub(crate) struct PlainFunctions(Mutex<BTreeMap<PciAddress, PciIdentity>>);

impl PlainFunctions {
    pub(crate) fn contains(&self, identity: &PciIdentity) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&identity.address) == Some(identity)
    }

    pub(crate) fn insert(&self, identity: PciIdentity) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(identity.address, identity);
    }
}
