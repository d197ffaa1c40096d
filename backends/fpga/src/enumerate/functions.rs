//! Functions that are passed on whole.

use std::path::{Path, PathBuf};

use hostler_api::NameError;
use hostler_linux::{pci::PciFunction, vfio};

use super::{Found, Look, cards};
use crate::{
    Target,
    health::Finding,
    known,
    offer::{Offer, name},
};

/// The driver that passes functions on.
pub(super) const DRIVER: &str = "vfio-pci";

/// The devices of all functions that are passed on, and of those that could be.
pub(super) fn offer(look: &Look<'_>, found: &mut Found) -> Result<(), NameError> {
    let uses = cards::uses_of_functions(look)?;
    for function in look.whole() {
        let mut offer =
            Offer::new(name("vfio", function.address)?, "vfio", &Target::Vfio { function: function.address });
        offer.set_function(function);
        offer.device.consumes = uses.get(&cards::slot(function)).cloned().into_iter().collect();
        if let Some(group) = function.iommu_group {
            for node in [PathBuf::from("dev/vfio/vfio"), Path::new("dev/vfio").join(group.to_string())] {
                offer.hand_over(&node);
            }
        }
        offer.findings.extend(finding(look, function));
        found.offers.push(offer);
    }
    Ok(())
}

/// Nobody passes on a function that the configuration does not name and that is not bound to the driver for it.
fn finding(look: &Look<'_>, function: &PciFunction) -> Option<Finding> {
    let bound = function.driver.as_deref();
    if !look.passed_on.contains(&function.address) && bound != Some(DRIVER) {
        let bound = bound.map_or_else(|| "no driver is bound".to_owned(), |driver| format!("{driver} is bound"));
        return Some(Finding::fact(format!("{bound}: {}", known::way_out(function))));
    }
    vfio::check(look.root, function.address).err().map(|error| Finding::fact(error.to_string()))
}
