//! The values of Kubernetes' standard device attributes for PCI, failing where Kubernetes' own helper fails: a driver
//! that published a root where others publish none would break `matchAttribute` across drivers.

use std::path::PathBuf;

use super::PciFunction;

/// Why a function has no `resource.kubernetes.io/pcieRoot`.
#[derive(Debug, thiserror::Error, Eq, PartialEq)]
pub enum PcieRootError {
    /// Kubernetes knows domains of four hex digits only.
    #[error("{0} has a domain of more than four digits")]
    Domain(super::PciAddress),
    /// The tree has no link from the bus to the function.
    #[error("there is no link to the folder of {0}")]
    NoLink(super::PciAddress),
    /// The host bridge is a platform device, or the tree is odd.
    #[error("{path} does not begin with /sys/devices/pci and end with the function")]
    NotUnderPci {
        /// The function's folder.
        path: PathBuf,
    },
}

impl PciFunction {
    /// The value of `resource.kubernetes.io/pciBusID`; `None` where the domain has more than four digits.
    pub fn pci_bus_id(&self) -> Option<String> {
        (self.address.domain <= 0xffff).then(|| self.address.to_string())
    }

    /// The value of `resource.kubernetes.io/pcieRoot`: the first folder below `/sys/devices` (`pci0000:40`).
    ///
    /// # Errors
    /// Where Kubernetes finds none: domains of five digits and more, host bridges that are platform devices, no link.
    pub fn pcie_root(&self) -> Result<String, PcieRootError> {
        let name = self.pci_bus_id().ok_or(PcieRootError::Domain(self.address))?;
        let path = self.path.as_ref().ok_or(PcieRootError::NoLink(self.address))?;
        let below = path.strip_prefix("/sys/devices").ok().filter(|_| path.ends_with(name));
        let first = below.and_then(|below| below.iter().next()?.to_str());
        let root = first.filter(|first| first.starts_with("pci"));
        root.map(str::to_owned).ok_or_else(|| PcieRootError::NotUnderPci { path: path.clone() })
    }
}
