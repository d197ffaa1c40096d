//! A device of this backend, in terms that outlive reboots: kernel indexes are looked up anew for every act.

use hostler_backend::{BackendError, Device};
use hostler_linux::pci::PciAddress;
use serde::{Deserialize, Serialize};

/// Target of a device, kept in [`Device::data`] and in plans. [`crate::dfl::find`] and its like tell its place of
/// today.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum FpgaDevice {
    /// A whole DFL card: its management engine and all ports that this host has.
    Card {
        /// The function with the management engine.
        card: PciAddress,
    },
    /// A region of a DFL card that can be programmed, together with its port.
    Region {
        /// The function with the management engine.
        card: PciAddress,
        /// The port behind the region, by the card's number for it.
        port: u32,
        /// Interface that a bitstream must fit to, 32 hex digits; absent where the kernel does not tell it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface_id: Option<String>,
    },
    /// A port of a DFL card with what is programmed into it.
    Afu {
        /// The function with the management engine; the port's own where there is none.
        card: PciAddress,
        /// The card's number for the port.
        port: u32,
    },
    /// A manager of the kernel's FPGA framework that is no part of a card.
    Manager {
        /// The folder of the device that it manages, below `/sys`.
        device: String,
    },
    /// An AMD card with the XRT drivers.
    Xrt {
        /// The function that programs use.
        user: PciAddress,
        /// The function that looks after the card, where this host has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        management: Option<PciAddress>,
    },
    /// An AMD card by its function with the AMI driver, as releases up to 0.1.0 handed it over: in their records only.
    Ami {
        /// The card's function.
        function: PciAddress,
    },
    /// A function that is passed on whole.
    Vfio {
        /// The function.
        function: PciAddress,
    },
}

impl FpgaDevice {
    /// Returns the target of `device`.
    ///
    /// # Errors
    /// When the device is none of this backend's.
    pub fn of(device: &Device) -> Result<Self, BackendError> {
        Self::deserialize(&device.data)
            .map_err(|error| BackendError::step(format!("read what {} stands for", device.name), error))
    }
}
