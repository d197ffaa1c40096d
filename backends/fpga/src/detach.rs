//! Takes a card out of the system, so that it can be given to another host, and scrubs it.
//!
//! ```text
//!   no user ─► [every region programmed with its blank image] ─► PCI functions removed ─► gone
//! ```
//!
//! All functions of the card's slot go, the card's own last: an order that ended in the middle finds the card again.

use hostler_api::{Chain, fabric::ErasureMethod};
use hostler_backend::{
    BackendError, Device, DeviceOperation, Erasure, HeldDevice, OperateWork, OperationObstacle, OperationOutcome,
    OperationStep,
};
use hostler_linux::{
    ReadFailure, SysRoot, TreeReading, TreeWarning,
    pci::{self, ConfigFile, PciAddress, PciFunction, PciLeaveError},
    vfio::{self, VfioError},
};
use serde::Deserialize;

use crate::{
    FpgaBackendConfig, FpgaDevice,
    dfl::DflCard,
    image::BlankImage,
    place::{FpgaHardware, gone},
    plan::{FpgaPlan, PlanSources},
};

/// Definer of the capabilities that make a function one of CXL.
const CXL_VENDOR: u16 = 0x1e98;
/// Reason why no order erases a card that is no feature list.
pub(crate) const NOT_FROM_HERE: &str = "its logic cannot be cleared from this host";
const NO_REGION: &str = "it has no region that can be programmed: its logic cannot be cleared";
const PORT_ELSEWHERE: &str = "a port of it is not on this host: what lies behind that port stays";
const NO_BLANK: &str = "no blank image is known to clear its memory: if one does, name the interface of its regions in \
                        backends.fpga.blank_erases";

/// Reason why a card is not out of the system, or not scrubbed.
#[derive(Debug, thiserror::Error)]
enum DetachError {
    /// Neither an erasure nor a removal was asked for.
    #[error("an FPGA is in the system until its PCI functions are removed: ask for that, too (--remove)")]
    Nothing,
    /// The memory of a card is not the host's.
    #[error("memory of an FPGA cannot be overwritten from the host")]
    NotMapped,
    /// No order can scrub the card.
    #[error("{0}")]
    NotErasable(&'static str),
    /// Another card is in its place.
    #[error("PCI function {address} is not the card that it was when the hardware was last read")]
    Changed {
        /// Address of the function.
        address: PciAddress,
    },
    /// Parts of the card may be in the hands of virtual machines.
    #[error("PCI function {address} has virtual functions: write 0 to its sriov_numvfs first")]
    VirtualFunctions {
        /// Address of the function.
        address: PciAddress,
    },
    /// Memory behind the function may be memory of the system.
    #[error("PCI function {address} is one of CXL, and this backend cannot tell whether memory behind it is in use")]
    Cxl {
        /// Address of the function.
        address: PciAddress,
    },
    /// A function cannot be told.
    #[error("{}: {}", .0.path, .0.reason)]
    Function(TreeWarning),
    /// A region was not programmed.
    #[error(transparent)]
    Scrub(BackendError),
    /// A function is passed on now, or that cannot be told.
    #[error(transparent)]
    PassedOn(#[from] VfioError),
    /// A function is in use, or did not leave.
    #[error(transparent)]
    Leave(#[from] PciLeaveError),
    /// The state could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
}

/// Method by which an order erases a card with a device feature list.
pub(crate) fn erasure(card: &DflCard, config: &FpgaBackendConfig) -> Erasure {
    let regions = card.engine.as_ref().map(|engine| &*engine.regions).unwrap_or_default();
    let is_here = || regions.iter().all(|region| card.port(region.port).is_some());
    let erases = |id: &Option<String>| id.as_ref().is_some_and(|id| config.blank_erases.contains(id));
    let reason = match () {
        () if regions.is_empty() => NO_REGION,
        () if !is_here() => PORT_ELSEWHERE,
        () if !regions.iter().all(|region| erases(&region.interface_id)) => NO_BLANK,
        () => return Erasure::By(ErasureMethod::Scrub),
    };
    Erasure::Impossible { reason }
}

/// A card that leaves.
struct LeavingCard<'a> {
    hardware: &'a FpgaHardware<'a>,
    device: &'a Device,
    address: PciAddress,
    /// All functions of its slot, the card's own last.
    functions: Vec<PciAddress>,
    /// Images of all regions, where it is to be scrubbed.
    blanks: Option<(DflCard, Vec<BlankImage>)>,
    is_to_leave: bool,
}

/// Carries out an order.
///
/// # Errors
/// When the device is no whole card, claims or others use it, or a step failed. The refusal says what was done.
pub(crate) fn operate(
    hardware: &FpgaHardware<'_>,
    config: &FpgaBackendConfig,
    work: &OperateWork<'_>,
) -> Result<OperationOutcome, BackendError> {
    let mut steps = Vec::new();
    let result = begin(hardware, config, work)?.and_then(|card| card.leave(&mut steps));
    match result {
        Ok(()) => Ok(OperationOutcome { steps }),
        Err(error) => Err(work.failed(Chain(&error).to_string(), steps).into()),
    }
}

/// Steps that an order would take.
///
/// # Errors
/// When the order would be refused for what can be read.
pub(crate) fn rehearse(
    hardware: &FpgaHardware<'_>,
    config: &FpgaBackendConfig,
    work: &OperateWork<'_>,
) -> Result<OperationOutcome, BackendError> {
    let steps = begin(hardware, config, work)?.map(|card| card.steps());
    steps
        .map(|steps| OperationOutcome { steps })
        .map_err(|error| work.failed(Chain(&error).to_string(), Vec::new()).into())
}

/// Checks everything that can be read, and writes nothing.
fn begin<'a>(
    hardware: &'a FpgaHardware<'a>,
    config: &FpgaBackendConfig,
    work: &OperateWork<'a>,
) -> Result<Result<LeavingCard<'a>, DetachError>, BackendError> {
    let DeviceOperation::Detach { sanitize, overwrite, remove } = work.operation else {
        return Err(work.refused(OperationObstacle::AlwaysThere).into());
    };
    let address = match FpgaDevice::of(work.device)? {
        FpgaDevice::Card { card } => card,
        FpgaDevice::Xrt { user: function, .. } | FpgaDevice::Vfio { function } => function,
        FpgaDevice::Region { .. } | FpgaDevice::Afu { .. } | FpgaDevice::Manager { .. } | FpgaDevice::Ami { .. } => {
            return Err(work.refused(OperationObstacle::NotWhole).into());
        }
    };
    work.refuse_held(|held| is_of_slot(held, address))?;
    let may = || {
        match () {
            () if !sanitize && !overwrite && !remove => return Err(DetachError::Nothing),
            () if overwrite => return Err(DetachError::NotMapped),
            () => {}
        }
        if let Some(reason) = work.device.erasure.obstacle().filter(|_| sanitize) {
            return Err(DetachError::NotErasable(reason));
        }
        let functions = hardware.root.look(|tree| functions_of_slot(tree, address))?;
        let functions = functions.map_err(DetachError::Function)?;
        for function in &functions {
            may_leave(hardware.root, function, remove)?;
        }
        let functions = functions.into_iter().map(|function| function.address).collect();
        let card = LeavingCard { hardware, device: work.device, address, functions, blanks: None, is_to_leave: remove };
        card.expect_same()?;
        card.expect_unused()?;
        if !sanitize {
            return Ok(card);
        }
        let blanks = scrubbing(hardware, config, address).map_err(DetachError::Scrub)?;
        Ok(LeavingCard { blanks: Some(blanks), ..card })
    };
    Ok(may())
}

/// True if a claim was given anything of the card in this slot.
fn is_of_slot(held: &HeldDevice<'_>, address: PciAddress) -> bool {
    let functions = match FpgaPlan::deserialize(&held.plan.data) {
        Ok(FpgaPlan::Program { card, .. }) => [Some(card), None],
        Ok(FpgaPlan::PassOn { function, .. }) => [Some(function), None],
        Ok(FpgaPlan::Lend { device, .. }) => match device {
            FpgaDevice::Card { card } | FpgaDevice::Region { card, .. } | FpgaDevice::Afu { card, .. } => {
                [Some(card), None]
            }
            FpgaDevice::Xrt { user, management } => [Some(user), management],
            FpgaDevice::Ami { function } | FpgaDevice::Vfio { function } => [Some(function), None],
            FpgaDevice::Manager { .. } => [None, None],
        },
        Err(_) => [None, None],
    };
    functions.into_iter().flatten().any(|function| function.slot() == address.slot())
}

fn functions_of_slot(tree: &TreeReading<'_>, address: PciAddress) -> Result<Vec<PciFunction>, TreeWarning> {
    let (mut identities, _) = pci::identities(tree);
    identities.retain(|identity| identity.address.slot() == address.slot());
    identities.sort_by_key(|identity| (identity.address == address, std::cmp::Reverse(identity.address)));
    identities.iter().map(|identity| pci::function(tree, identity.address)).collect()
}

/// Checks that nothing of the function is anywhere else.
fn may_leave(root: &SysRoot, function: &PciFunction, is_to_leave: bool) -> Result<(), DetachError> {
    let address = function.address;
    if !function.virtual_functions.is_empty() || function.sriov.is_some_and(|sriov| sriov.enabled > 0) {
        return Err(DetachError::VirtualFunctions { address });
    }
    let capabilities = ConfigFile::open(root, address)?.decode(|read| pci::capabilities_by(read))?;
    let is_cxl = capabilities.iter().any(|entry| entry.dvsec.is_some_and(|dvsec| dvsec.vendor == CXL_VENDOR));
    if is_cxl && is_to_leave { Err(DetachError::Cxl { address }) } else { Ok(()) }
}

/// The card as it is now, and the images of all its regions.
fn scrubbing(
    hardware: &FpgaHardware<'_>,
    config: &FpgaBackendConfig,
    address: PciAddress,
) -> Result<(DflCard, Vec<BlankImage>), BackendError> {
    let card = hardware.card(address)?.ok_or_else(|| BackendError::NotUsable { reason: gone(address) })?;
    if let Some(reason) = erasure(&card, config).obstacle() {
        return Err(BackendError::NotUsable { reason: reason.to_owned() });
    }
    let sources = PlanSources { root: hardware.root, store: hardware.store, config };
    let blanks = sources.blanks(address)?;
    let is_whole = |engine: &crate::dfl::ManagementEngine| engine.regions.len() == blanks.len();
    if !card.engine.as_ref().is_some_and(is_whole) {
        return Err(BackendError::NotUsable { reason: NO_BLANK.to_owned() });
    }
    Ok((card, blanks))
}

impl LeavingCard<'_> {
    fn leave(&self, done: &mut Vec<OperationStep>) -> Result<(), DetachError> {
        if let Some((card, blanks)) = &self.blanks {
            self.hardware.clear_card(card, blanks).map_err(DetachError::Scrub)?;
            done.push(self.scrubbed(blanks));
        }
        if !self.is_to_leave {
            return Ok(());
        }
        // Programming takes seconds.
        self.expect_same()?;
        self.expect_unused()?;
        for address in &self.functions {
            // One write takes the driver along: a daemon that dies here leaves no card without its driver, which could
            // not be scrubbed any more.
            pci::remove(self.hardware.root, *address)?;
            done.push(OperationStep::FunctionRemoved { address: address.to_string() });
        }
        Ok(())
    }

    /// Steps that [`LeavingCard::leave`] would take.
    fn steps(&self) -> Vec<OperationStep> {
        let scrubbed = self.blanks.iter().map(|(_, blanks)| self.scrubbed(blanks));
        let leaving = self.functions.iter().filter(|_| self.is_to_leave);
        let removed = leaving.map(|address| OperationStep::FunctionRemoved { address: address.to_string() });
        scrubbed.chain(removed).collect()
    }

    fn scrubbed(&self, blanks: &[BlankImage]) -> OperationStep {
        OperationStep::LogicScrubbed { card: self.address.to_string(), regions: blanks.len() }
    }

    /// Checks that the card is the one that was enumerated.
    fn expect_same(&self) -> Result<(), DetachError> {
        let serial = self.hardware.root.look(|tree| pci::card_serial(tree, self.address))?;
        if self.device.cards.is_card(serial.known()) {
            Ok(())
        } else {
            Err(DetachError::Changed { address: self.address })
        }
    }

    fn expect_unused(&self) -> Result<(), DetachError> {
        let nodes: Vec<String> = self.device.edits.device_nodes.iter().map(|node| node.path.clone()).collect();
        for function in &self.functions {
            pci::expect_unused(self.hardware.root, *function, &nodes)?;
            if vfio::is_bound(self.hardware.root, *function)? {
                vfio::expect_unused(self.hardware.root, *function)?;
            }
        }
        Ok(())
    }
}
