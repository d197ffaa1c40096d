//! Functions that are passed on whole.

use std::path::{Path, PathBuf};

use hostler_api::NameError;
use hostler_backend::Erasure;
use hostler_linux::{
    pci::{PciAddress, PciFunction},
    vfio::{self, VfioError},
};

use super::{EnumeratedDevices, FpgaScan, amd, cards};
use crate::{
    FpgaDevice,
    detach::NOT_FROM_HERE,
    health::HealthFinding,
    known,
    offer::{OfferedDevice, name},
};

/// The driver that passes functions on.
pub(super) const DRIVER: &str = "vfio-pci";

/// The devices of all functions that are passed on, and of those that could be.
pub(super) fn offer(scan: &FpgaScan<'_>, found: &mut EnumeratedDevices) -> Result<(), NameError> {
    let uses = cards::uses_of_functions(scan)?;
    for function in scan.whole() {
        let mut offer = OfferedDevice::new(
            name("vfio", function.address)?,
            "vfio",
            &FpgaDevice::Vfio { function: function.address },
        );
        offer.set_function(function);
        offer.device.erasure = Erasure::Impossible { reason: NOT_FROM_HERE };
        offer.device.consumes = uses.get(&cards::slot(function)).cloned().into_iter().collect();
        if let Some(group) = function.iommu_group {
            for node in [PathBuf::from("dev/vfio/vfio"), Path::new("dev/vfio").join(group.to_string())] {
                offer.hand_over(&node);
            }
        }
        let beside = |other: &&PciAddress| other.slot() == function.address.slot() && **other != function.address;
        if let Some(management) = scan.ami.iter().find(beside) {
            amd::describe_ami_card(scan, *management, &mut offer);
        }
        offer.findings.extend(finding(scan, function));
        found.offers.push(offer);
    }
    Ok(())
}

/// Finding against passing a function on: the configuration does not name it and the driver for it is not bound, or
/// vfio refuses it.
fn finding(scan: &FpgaScan<'_>, function: &PciFunction) -> Option<HealthFinding> {
    let bound = function.driver.as_deref();
    if !scan.passed_on.contains(&function.address) && bound != Some(DRIVER) {
        let bound = bound.map_or_else(|| "no driver is bound".to_owned(), |driver| format!("{driver} is bound"));
        return Some(HealthFinding::fact(format!("{bound}: {}", known::way_out(function))));
    }
    match vfio::check(scan.tree.root(), function.address) {
        Ok(_) => None,
        Err(VfioError::Read(failure)) => {
            scan.tree.fail(failure);
            None
        }
        Err(error) => Some(HealthFinding::fact(error.to_string())),
    }
}
