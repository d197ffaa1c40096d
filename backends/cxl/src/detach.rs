//! Takes a card out of the system, step by step, so that it can be pulled or given to another host.
//!
//! ```text
//!   no holder ─► memory offline ─► gate ─► region: driver, program, region ─► no decoder committed
//!     ─► [erased, or mapped, overwritten and unmapped] ─► [gate ─► memory device disabled ─► gate ─► PCI function removed ─► gone]
//! ```
//!
//! Repeating an order that ended in the middle goes on where it ended.

use std::path::PathBuf;

use hostler_backend::{AddressRange, OperationStep};
use hostler_linux::{OverwriteError, ReadFailure, SysRoot, memory_blocks::PhysicalRange};

use crate::{
    device::CardId,
    erase::{self, EraseError},
    gate::{DangerousWrite, GateError, MemoryGate},
    memory,
    objects::{CxlObjects, CxlRegion, DaxDevice, Memdev},
    region::{self, RegionError},
    write::{WaitLimits, write},
};

/// Options of an order to detach a card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DetachOptions {
    /// Erase the card, by its own command.
    pub(crate) sanitize: bool,
    /// Overwrite the card's volatile memory.
    pub(crate) overwrite: bool,
    /// Remove the card's PCI function.
    pub(crate) remove: bool,
}

/// Reason why a card is not out of the system.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DetachError {
    /// Failure of a region or of its memory.
    #[error(transparent)]
    Region(Box<RegionError>),
    /// Failure of the erasure.
    #[error(transparent)]
    Erase(#[from] EraseError),
    /// Not all memory of the card is mapped, or it cannot be told.
    #[error("{dax} does not have all {bytes} bytes of the card: overwriting it would leave some")]
    NotWhole {
        /// Kernel's name.
        dax: String,
        /// Volatile memory of the card.
        bytes: u64,
    },
    /// Failure to overwrite the memory.
    #[error("failed to overwrite the memory of {device}")]
    Overwrite {
        /// Kernel's name of the dax device.
        device: String,
        /// Part that failed.
        #[source]
        source: OverwriteError,
    },
    /// Refusal of the gate.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The state could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// There is no PCI function to remove.
    #[error("{memdev} is on no PCI function")]
    NoFunction {
        /// Kernel's name.
        memdev: String,
    },
    /// The kernel accepted a write and did nothing.
    #[error("{what} after it was {step}")]
    NotDone {
        /// State that was found.
        what: String,
        /// Step that was done.
        step: &'static str,
    },
}

impl From<RegionError> for DetachError {
    fn from(error: RegionError) -> Self {
        Self::Region(Box::new(error))
    }
}

/// Takes a card out of the system. Notes in `done` what was done, also when it ends with an error.
pub(crate) fn detach(
    root: &SysRoot,
    card: &CardId,
    options: DetachOptions,
    waits: &WaitLimits,
    done: &mut Vec<OperationStep>,
) -> Result<(), DetachError> {
    let objects = CxlObjects::read(root)?;
    let memdev = found(&objects, card)?;
    let regions = regions_that_go(root, &objects, memdev, options)?;
    let mut former = Vec::new();
    for region in regions {
        let range = region.range();
        region::take_down(root, &objects, region, waits)?;
        done.push(region_deleted(&objects, region));
        former.extend(range);
    }
    region::take_down_all(root, card, waits, done)?;
    let objects = CxlObjects::read(root)?;
    let memdev = found(&objects, card)?;
    unmapped(&objects, memdev)?;
    if options.sanitize {
        sanitize(root, card, memdev, waits)?;
        done.push(OperationStep::CardErased { card: card.to_string() });
    }
    if options.overwrite {
        former.extend(overwrite(root, card, memdev, waits)?);
        done.push(OperationStep::CardOverwritten { card: card.to_string() });
    }
    if options.remove { remove(root, card, &former, done) } else { Ok(()) }
}

/// The regions that go with a card. An order that cannot be ended is not begun.
fn regions_that_go<'a>(
    root: &SysRoot,
    objects: &'a CxlObjects,
    memdev: &'a Memdev,
    options: DetachOptions,
) -> Result<Vec<&'a CxlRegion>, DetachError> {
    let mut regions = objects.regions_of(memdev);
    // Other memory devices of the function go with it.
    let siblings =
        memdev.address.filter(|_| options.remove).into_iter().flat_map(|address| objects.memdevs_at(address));
    for sibling in siblings.filter(|sibling| sibling.name != memdev.name) {
        regions.extend(objects.regions_of(sibling));
    }
    for region in &regions {
        region::may_take_down(root, objects, region)?;
    }
    Ok(regions)
}

/// Steps that a detach would take, as far as this can be told without a write.
pub(crate) fn rehearse(
    root: &SysRoot,
    card: &CardId,
    options: DetachOptions,
) -> Result<Vec<OperationStep>, DetachError> {
    let objects = CxlObjects::read(root)?;
    let memdev = found(&objects, card)?;
    let regions = regions_that_go(root, &objects, memdev, options)?;
    let mut steps: Vec<OperationStep> = regions.into_iter().map(|region| region_deleted(&objects, region)).collect();
    if options.sanitize {
        if !erase::is_supported(root, memdev)? {
            return Err(EraseError::NotSupported { memdev: memdev.name.clone() }.into());
        }
        steps.push(OperationStep::CardErased { card: card.to_string() });
    }
    if options.overwrite {
        steps.push(OperationStep::CardOverwritten { card: card.to_string() });
    }
    if options.remove {
        let address = memdev.address.ok_or_else(|| DetachError::NoFunction { memdev: memdev.name.clone() })?;
        if memdev.driver.is_some() {
            steps.push(OperationStep::MemoryDeviceDisabled { memdev: memdev.name.clone() });
        }
        steps.push(OperationStep::FunctionRemoved { address: address.to_string() });
    }
    Ok(steps)
}

/// Erases a card. A card that an earlier order has disabled is enabled for it: the kernel erases no disabled one.
fn sanitize(root: &SysRoot, card: &CardId, memdev: &Memdev, waits: &WaitLimits) -> Result<(), DetachError> {
    enable(root, memdev)?;
    let objects = CxlObjects::read(root)?;
    let memdev = found(&objects, card)?;
    Ok(erase::erase(root, &objects, memdev, waits)?)
}

/// Overwrites all volatile memory of a card: maps it as a device, and takes the region down again. Gives its addresses.
fn overwrite(
    root: &SysRoot,
    card: &CardId,
    memdev: &Memdev,
    waits: &WaitLimits,
) -> Result<Option<PhysicalRange>, DetachError> {
    enable(root, memdev)?;
    let dax = region::create(root, card, waits)?;
    let written = overwrite_device(root, card, &dax, waits);
    region::take_down_all(root, card, waits, &mut Vec::new())?;
    written.map(|()| dax.range())
}

fn overwrite_device(root: &SysRoot, card: &CardId, dax: &DaxDevice, waits: &WaitLimits) -> Result<(), DetachError> {
    memory::make_device(root, dax, waits).map_err(RegionError::from)?;
    let objects = CxlObjects::read(root)?;
    let (bytes, mapped) = (region::capacity(found(&objects, card)?), dax.range().map(|range| range.bytes));
    if mapped != Some(bytes) {
        return Err(DetachError::NotWhole { dax: dax.name.clone(), bytes });
    }
    let device = dax.name.clone();
    hostler_linux::overwrite(root, &dax.device_node(), bytes)
        .map_err(|source| DetachError::Overwrite { device, source })
}

/// Enables a card that an earlier order has disabled.
fn enable(root: &SysRoot, memdev: &Memdev) -> Result<(), DetachError> {
    if memdev.driver.is_none() {
        write(root, "sys/bus/cxl/drivers/cxl_mem/bind", &memdev.name).map_err(RegionError::from)?;
    }
    Ok(())
}

fn found<'a>(objects: &'a CxlObjects, card: &CardId) -> Result<&'a Memdev, RegionError> {
    card.find(objects).ok_or_else(|| RegionError::NoCard(card.clone()))
}

fn region_deleted(objects: &CxlObjects, region: &CxlRegion) -> OperationStep {
    let cards = objects.memdevs_of(region).into_iter().map(|memdev| CardId::of(memdev).to_string());
    OperationStep::RegionDeleted {
        region: region.name.clone(),
        cards: cards.collect(),
        memory: region.range().map(addresses),
        nodes: objects.daxes_of(region).filter_map(|dax| dax.target_node).collect(),
    }
}

pub(crate) fn addresses(range: PhysicalRange) -> AddressRange {
    AddressRange { first: range.start, last: range.end().saturating_sub(1) }
}

/// Checks that no decoder of the card translates addresses any more.
fn unmapped(objects: &CxlObjects, memdev: &Memdev) -> Result<(), GateError> {
    let Some(endpoint) = objects.endpoint_of(memdev) else { return Ok(()) };
    if endpoint.decoders_committed == Some(0) {
        return Ok(());
    }
    let committed = endpoint.decoders_committed.map_or_else(|| "?".to_owned(), |count| count.to_string());
    Err(GateError::Mapped { memdev: memdev.name.clone(), endpoint: endpoint.name.clone(), committed })
}

fn remove(
    root: &SysRoot,
    card: &CardId,
    former: &[PhysicalRange],
    done: &mut Vec<OperationStep>,
) -> Result<(), DetachError> {
    let objects = CxlObjects::read(root)?;
    let memdev = found(&objects, card)?;
    let address = memdev.address.ok_or_else(|| DetachError::NoFunction { memdev: memdev.name.clone() })?;
    if memdev.driver.is_some() {
        let gate = MemoryGate::of_memdev(root, &objects, memdev, former)?;
        gate.pass(&DangerousWrite::Disable { memdev: memdev.name.clone() })?;
        if root.exists(memdev.folder.join("driver"))? {
            let what = format!("{} is still bound to its driver", memdev.name);
            return Err(DetachError::NotDone { what, step: "disabled" });
        }
        done.push(OperationStep::MemoryDeviceDisabled { memdev: memdev.name.clone() });
    }
    let objects = CxlObjects::read(root)?;
    let memdev = found(&objects, card)?;
    MemoryGate::of_memdev(root, &objects, memdev, former)?.pass(&DangerousWrite::Remove { address })?;
    let function = PathBuf::from(format!("sys/bus/pci/devices/{address}"));
    if root.exists(&function)? || card.find(&CxlObjects::read(root)?).is_some() {
        return Err(DetachError::NotDone { what: format!("{address} is still there"), step: "removed" });
    }
    done.push(OperationStep::FunctionRemoved { address: address.to_string() });
    Ok(())
}
