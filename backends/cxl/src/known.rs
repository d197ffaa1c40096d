//! Earlier answers of configuration spaces.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use hostler_linux::pci::{PciAddress, PciIdentity};

use crate::dvsec::CxlFunction;

/// Remembers functions that were looked at. A function that is none of CXL will not become one, so hundreds of them
/// need not be asked again at each look at health; and one that sleeps now is still what it was when it was awake. A
/// function that is replaced by another model is another function.
#[derive(Debug, Default)]
pub(crate) struct KnownFunctions(Mutex<BTreeMap<PciAddress, (PciIdentity, Option<CxlFunction>)>>);

impl KnownFunctions {
    /// Earlier answer of a function: `Some(None)` none of CXL, `None` never looked at.
    pub(crate) fn get(&self, identity: &PciIdentity) -> Option<Option<CxlFunction>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&identity.address).filter(|(before, _)| before == identity).map(|(_, function)| *function)
    }

    pub(crate) fn insert(&self, identity: PciIdentity, function: Option<CxlFunction>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(identity.address, (identity, function));
    }
}
