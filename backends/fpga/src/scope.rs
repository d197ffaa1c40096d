//! Edits that claims on FPGAs can have been given, against which their records are checked. The kernel numbers the
//! nodes anew with every boot; the plan tells the kind of a node.

use hostler_backend::{ContainerEdits, DevicePlan, EditScope, ForeignEdits};
use hostler_linux::vfio;
use serde::Deserialize;

use crate::{FpgaDevice, plan::FpgaPlan};

const PORT: &str = "/dev/dfl-port.#";
const ENGINE: &str = "/dev/dfl-fme.#";
const RENDER: &str = "/dev/dri/renderD#";
const AMI: &str = "/dev/ami#";

/// Checks the edits of a claim's device.
///
/// # Errors
/// When they hold an edit that the device never gives.
pub(crate) fn check(plan: &DevicePlan, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
    EditScope::nodes(nodes(plan)).check(edits)
}

fn nodes(plan: &DevicePlan) -> Vec<&'static str> {
    if plan.data.is_null() {
        // Administrative access leaves no plan: it gives the nodes of whichever device.
        return [PORT, ENGINE, RENDER, AMI].into_iter().chain(vfio::NODE_PATTERNS).collect();
    }
    match FpgaPlan::deserialize(&plan.data) {
        Ok(FpgaPlan::Program { .. }) => vec![PORT],
        Ok(FpgaPlan::PassOn { .. }) => vfio::NODE_PATTERNS.into(),
        Ok(FpgaPlan::Lend { device, .. }) => lent(&device),
        Err(_) => Vec::new(),
    }
}

fn lent(device: &FpgaDevice) -> Vec<&'static str> {
    match device {
        FpgaDevice::Card { .. } => vec![ENGINE, PORT],
        FpgaDevice::Region { .. } | FpgaDevice::Afu { .. } => vec![PORT],
        FpgaDevice::Xrt { .. } => vec![RENDER],
        FpgaDevice::Ami { .. } => vec![AMI],
        FpgaDevice::Vfio { .. } => vfio::NODE_PATTERNS.into(),
        FpgaDevice::Manager { .. } => Vec::new(),
    }
}
