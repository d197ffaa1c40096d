//! Takes an accelerator out of the system, so that it can be given to another host, and clears its memory by a reset.
//!
//! ```text
//!   no user ─► driver unbound ─► [gate ─► reset] ─┬► gate ─► PCI function removed ─► gone
//!                                                 └► driver bound again
//! ```
//!
//! Repeating an order that ended in the middle goes on where it ended.

use hostler_backend::{Device, OperationStep};
use hostler_linux::{
    ReadFailure, SysRoot,
    pci::{self, ConfigFile, PciAddress, PciLeaveError},
    vfio::{self, VfioError},
};

use crate::{
    detach::DetachOptions,
    dvsec::CxlFunction,
    gate::{DangerousWrite, GateError, MemoryGate},
    objects::CxlObjects,
};

/// Reason why no order erases an accelerator.
pub(crate) const NO_RESET_ERASES: &str =
    "no reset is known to clear its memory: if one does, name the model in backends.cxl.reset_erases";
/// The dword that is read of a function that does not answer.
const NO_ANSWER: u32 = u32::MAX;

/// Reason why an accelerator is not out of the system, or not erased.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceleratorError {
    /// Neither an erasure nor a removal was asked for.
    #[error("an accelerator is in the system until its PCI function is removed: ask for that, too (--remove)")]
    Nothing,
    /// The function cannot be reset, or nothing says that a reset clears its memory.
    #[error("{0}")]
    NotErasable(&'static str),
    /// The memory of an accelerator is its driver's.
    #[error("memory of an accelerator cannot be overwritten from the host")]
    NotMapped,
    /// The function is in use, or did not leave.
    #[error(transparent)]
    Leave(#[from] PciLeaveError),
    /// Another card is in its place.
    #[error("PCI function {address} is not the card that it was when the hardware was last read")]
    Changed {
        /// Address of the function.
        address: PciAddress,
    },
    /// The driver was not unbound or bound.
    #[error(transparent)]
    Driver(#[from] VfioError),
    /// Refusal of the gate.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The state could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// The function does not answer after its reset.
    #[error("PCI function {address} does not answer after its reset")]
    NoAnswer {
        /// Address of the function.
        address: PciAddress,
    },
}

/// Takes an accelerator out of the system, erases it, or both. Notes in `done` what was done, also when it ends with an
/// error.
pub(crate) fn detach(
    root: &SysRoot,
    device: &Device,
    address: PciAddress,
    options: DetachOptions,
    done: &mut Vec<OperationStep>,
) -> Result<(), AcceleratorError> {
    may_detach(root, device, address, options)?;
    let former = vfio::unbind_driver(root, address)?;
    if let Some(driver) = &former.driver {
        done.push(OperationStep::DriverUnbound { address: address.to_string(), driver: driver.clone() });
    }
    if options.sanitize {
        gate(root, device, address)?.pass(&DangerousWrite::Reset { address })?;
        if ConfigFile::open(root, address)?.dword(0)?.is_none_or(|dword| dword == NO_ANSWER) {
            return Err(AcceleratorError::NoAnswer { address });
        }
        done.push(OperationStep::FunctionReset { address: address.to_string() });
    }
    if !options.remove {
        return Ok(vfio::bind_driver(root, address, &former)?);
    }
    gate(root, device, address)?.pass(&DangerousWrite::Remove { address })?;
    pci::expect_removed(root, address)?;
    done.push(OperationStep::FunctionRemoved { address: address.to_string() });
    Ok(())
}

/// Steps that a detach would take, as far as this can be told without a write.
pub(crate) fn rehearse(
    root: &SysRoot,
    device: &Device,
    address: PciAddress,
    options: DetachOptions,
) -> Result<Vec<OperationStep>, AcceleratorError> {
    may_detach(root, device, address, options)?;
    let driver = vfio::binding(root, address)?.driver;
    let address = address.to_string();
    let unbound = driver.map(|driver| OperationStep::DriverUnbound { address: address.clone(), driver });
    let reset = options.sanitize.then_some(OperationStep::FunctionReset { address: address.clone() });
    let removed = options.remove.then_some(OperationStep::FunctionRemoved { address });
    Ok([unbound, reset, removed].into_iter().flatten().collect())
}

fn may_detach(
    root: &SysRoot,
    device: &Device,
    address: PciAddress,
    options: DetachOptions,
) -> Result<(), AcceleratorError> {
    if !options.sanitize && !options.overwrite && !options.remove {
        return Err(AcceleratorError::Nothing);
    }
    if options.overwrite {
        return Err(AcceleratorError::NotMapped);
    }
    if let Some(reason) = device.erasure.obstacle().filter(|_| options.sanitize) {
        return Err(AcceleratorError::NotErasable(reason));
    }
    let nodes: Vec<String> = device.edits.device_nodes.iter().map(|node| node.path.clone()).collect();
    pci::expect_unused(root, address, &nodes)?;
    gate(root, device, address).map(drop)
}

/// The gate in front of the function, if it still is the card that was enumerated.
fn gate<'a>(root: &'a SysRoot, device: &Device, address: PciAddress) -> Result<MemoryGate<'a>, AcceleratorError> {
    let function = ConfigFile::open(root, address)?.decode(|read| CxlFunction::decode(read))?;
    let function = function.ok_or(AcceleratorError::Changed { address })?;
    if !device.cards.is_card(function.serial) {
        return Err(AcceleratorError::Changed { address });
    }
    let objects = CxlObjects::read(root)?;
    Ok(MemoryGate::of_function(root, &objects, address, &function)?)
}
