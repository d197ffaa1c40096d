//! The life of a region: made of all volatile memory of one card, and taken down again.
//!
//! ```text
//!   decoder: mode, capacity ─► region: name, ways, size, target ─► commit ─► driver ─► dax device
//!   decoder: capacity 0 ◄───── region deleted ◄──── uncommit ◄──── driver ◄── memory taken back
//! ```
//!
//! Everything on the way back goes through the [`MemoryGate`]. A crash anywhere leaves a state that [`create`] and
//! [`take_down`] start over from.

use std::path::PathBuf;

use hostler_api::Chain;
use hostler_backend::OperationStep;
use hostler_linux::{
    ReadFailure, SysRoot,
    memory_blocks::{self, MemoryBlock},
};

use crate::{
    device::CardId,
    gate::{DangerousWrite, GateError, MemoryGate},
    memory::{self, MemoryError},
    objects::{CxlObjects, CxlRegion, DaxDevice, EndpointDecoder, EndpointPort, Memdev, RegionMode, RootDecoder},
    write::{WaitLimits, WriteError, write, write_number, write_until},
};

/// Capacity is mapped in pieces of this size.
pub(crate) const UNIT_BYTES: u64 = 256 << 20;

/// Granularity where the window does not say; the kernel's own default.
const GRANULARITY: u32 = 256;

/// Reason why a region is not there, or still there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegionError {
    /// The card is not there.
    #[error("there is no memory device {0} (any more)")]
    NoCard(CardId),
    /// The kernel does not work with the card.
    #[error("memory device {memdev} is disabled: the driver cxl_mem is not bound, or no host bridge leads to it")]
    Disabled {
        /// Kernel's name.
        memdev: String,
    },
    /// The card has no memory that could be mapped.
    #[error("memory device {memdev} has no volatile memory of 256 MiB or more")]
    NoCapacity {
        /// Kernel's name.
        memdev: String,
    },
    /// The card's memory is mapped in another way.
    #[error("memory of {memdev} is part of {region} already, which is not all volatile memory of this card alone")]
    Occupied {
        /// Kernel's name of the memory device.
        memdev: String,
        /// Kernel's name of the region.
        region: String,
    },
    /// There is no place for the region.
    #[error("no window of physical addresses takes {bytes} bytes of {memdev}: {reasons}")]
    NoWindow {
        /// Kernel's name of the memory device.
        memdev: String,
        /// Bytes.
        bytes: u64,
        /// Reason of each window.
        reasons: String,
    },
    /// No decoder of the card is left.
    #[error("{endpoint} has no free decoder")]
    NoDecoder {
        /// Kernel's name of the endpoint.
        endpoint: String,
    },
    /// Firmware does not allow it.
    #[error("{region} is locked by firmware until the next reset of the machine")]
    Locked {
        /// Kernel's name.
        region: String,
    },
    /// The region holds data.
    #[error("{region} is persistent memory and may hold data: destroy it by hand first")]
    Persistent {
        /// Kernel's name.
        region: String,
    },
    /// The memory cannot be taken back.
    #[error(
        "{} of {region} were given to the system by firmware: no dax device owns them, so that they cannot be taken \
             back before a reboot with other settings of the firmware",
        memory_blocks::listed(blocks)
    )]
    Firmware {
        /// Kernel's name.
        region: String,
        /// The blocks.
        blocks: Vec<MemoryBlock>,
    },
    /// The kernel made no dax device of the region.
    #[error("no dax device came with {region}: is the kernel's module dax_cxl there?")]
    NoDax {
        /// Kernel's name.
        region: String,
    },
    /// The kernel accepted a write and did nothing.
    #[error("{region} is {state}")]
    NotDone {
        /// Kernel's name.
        region: String,
        /// State of the region.
        state: &'static str,
    },
    /// A window does not take the region; another one may.
    #[error("{window} does not take it")]
    Window {
        /// Kernel's name.
        window: String,
        /// Error of the kernel.
        #[source]
        source: WriteError,
    },
    /// The decoders cannot be programmed.
    #[error("{region} cannot be committed; virtual machines whose CPU cannot flush its caches refuse that")]
    Commit {
        /// Kernel's name.
        region: String,
        /// Error of the kernel.
        #[source]
        source: WriteError,
    },
    /// A step failed, and what was made before it is still there.
    #[error("failed to take down what was made, after this error: {cause}")]
    RollBack {
        /// The first error, with its causes.
        cause: String,
        /// Error of taking it down.
        #[source]
        source: Box<RegionError>,
    },
    /// The state could not be read.
    #[error(transparent)]
    Read(#[from] ReadFailure),
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// An operation on the region's memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The gate refused.
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// The memory device of a card, with its endpoint.
pub(crate) fn find<'a>(objects: &'a CxlObjects, card: &CardId) -> Result<(&'a Memdev, &'a EndpointPort), RegionError> {
    let memdev = card.find(objects).ok_or_else(|| RegionError::NoCard(card.clone()))?;
    let disabled = || RegionError::Disabled { memdev: memdev.name.clone() };
    Ok((memdev, objects.endpoint_of(memdev).filter(|_| memdev.driver.is_some()).ok_or_else(disabled)?))
}

/// The volatile capacity that can be mapped, bytes.
pub(crate) fn capacity(memdev: &Memdev) -> u64 {
    memdev.bytes(RegionMode::Ram) / UNIT_BYTES * UNIT_BYTES
}

/// True if a region is made of all volatile memory of this card alone.
pub(crate) fn is_whole(objects: &CxlObjects, memdev: &Memdev, region: &CxlRegion) -> bool {
    let members = objects.members_of(region);
    region.mode == Some(RegionMode::Ram)
        && region.size == Some(capacity(memdev))
        && members.len() == 1
        && members.iter().all(|(member, _)| member.name == memdev.name)
}

/// Makes a region of all volatile memory of a card, or finds the one that was made before; returns its dax device.
/// Remains of an unfinished creation are taken down first; so is a region that fails now.
pub(crate) fn create(root: &SysRoot, card: &CardId, waits: &WaitLimits) -> Result<DaxDevice, RegionError> {
    clear(root, card, waits)?;
    let objects = CxlObjects::read(root)?;
    let (memdev, endpoint) = find(&objects, card)?;
    let region = match objects.regions_of(memdev).first() {
        Some(region) => region.name.clone(),
        None => make(root, &objects, memdev, endpoint, waits)?,
    };
    let ready = start(root, &region, waits);
    ready.map_err(|cause| roll_back(root, card, waits, cause))
}

/// Takes down regions of the card that are only half made. A whole region stays; any other committed region was not
/// made here, and is an error.
fn clear(root: &SysRoot, card: &CardId, waits: &WaitLimits) -> Result<(), RegionError> {
    let objects = CxlObjects::read(root)?;
    drop_orphans(root, &objects, waits)?;
    let (memdev, endpoint) = find(&objects, card)?;
    let volatile = |region: &&&CxlRegion| region.mode != Some(RegionMode::Pmem);
    let regions = objects.regions_of(memdev);
    for region in regions.iter().filter(volatile) {
        if region.committed && !is_whole(&objects, memdev, region) {
            return Err(RegionError::Occupied { memdev: memdev.name.clone(), region: region.name.clone() });
        }
        if !region.committed {
            take_down(root, &objects, region, waits)?;
        }
    }
    if !regions.iter().any(|region| volatile(&region)) {
        release(root, endpoint)?;
    }
    Ok(())
}

/// Takes down regions that nothing was put into: remains of a creation that ended in the middle. Only one region is
/// made at a time here.
fn drop_orphans(root: &SysRoot, objects: &CxlObjects, waits: &WaitLimits) -> Result<(), RegionError> {
    let orphan = |region: &&CxlRegion| {
        region.mode == Some(RegionMode::Ram)
            && !region.committed
            && region.driver.is_none()
            && region.targets.is_empty()
    };
    objects.regions.iter().filter(orphan).try_for_each(|region| take_down(root, objects, region, waits))
}

/// Gives back the capacity that decoders hold without a region. The kernel wants it in the opposite order of taking.
fn release(root: &SysRoot, endpoint: &EndpointPort) -> Result<(), RegionError> {
    let idle = |decoder: &&EndpointDecoder| {
        decoder.region.is_none() && decoder.dpa_size > 0 && decoder.mode == Some(RegionMode::Ram) && !decoder.locked
    };
    for decoder in endpoint.decoders.iter().rev().filter(idle) {
        write_number(root, decoder.folder.join("dpa_size"), 0)?;
    }
    Ok(())
}

/// Makes a committed region in the first window that takes it; returns its name.
fn make(
    root: &SysRoot,
    objects: &CxlObjects,
    memdev: &Memdev,
    endpoint: &EndpointPort,
    waits: &WaitLimits,
) -> Result<String, RegionError> {
    let (name, bytes) = (&memdev.name, capacity(memdev));
    if bytes == 0 {
        return Err(RegionError::NoCapacity { memdev: name.clone() });
    }
    let decoder = endpoint.decoders.iter().find(|decoder| decoder.is_free());
    let decoder = decoder.ok_or_else(|| RegionError::NoDecoder { endpoint: endpoint.name.clone() })?;
    let card = CardId::of(memdev);
    let mut reasons = Vec::new();
    for window in objects.windows_for(memdev, RegionMode::Ram) {
        match make_in(root, window, decoder, bytes) {
            Ok(region) => return Ok(region),
            Err(error @ RegionError::Window { .. }) => reasons.push(Chain(&error).to_string()),
            Err(error) => return Err(roll_back(root, &card, waits, error)),
        }
        // The next window needs the decoder as it was.
        clear(root, &card, waits)?;
    }
    if reasons.is_empty() {
        reasons.push("there is none for volatile memory behind its host bridge".to_owned());
    }
    Err(RegionError::NoWindow { memdev: name.clone(), bytes, reasons: reasons.join("; ") })
}

/// The order of the writes is the kernel's: none of them can come earlier.
fn make_in(root: &SysRoot, window: &RootDecoder, decoder: &EndpointDecoder, bytes: u64) -> Result<String, RegionError> {
    write_until(root, decoder.folder.join("mode"), "ram", |now| now == "ram")?;
    write_number(root, decoder.folder.join("dpa_size"), bytes)?;
    let create = window.folder.join("create_ram_region");
    // The kernel says which name is next, and takes no other.
    let name = root.attribute(&create)?.unwrap_or_default();
    write(root, &create, &name)?;
    let folder = window.folder.join(&name);
    if !name.starts_with("region") || !root.exists(&folder)? {
        return Err(RegionError::NotDone { region: name, state: "absent after it was created" });
    }
    let granularity = window.interleave_granularity.filter(|bytes| *bytes > 0).unwrap_or(GRANULARITY);
    write_number(root, folder.join("interleave_granularity"), granularity.into())?;
    write_number(root, folder.join("interleave_ways"), 1)?;
    let in_window = |error| of_window(window, error);
    write_number(root, folder.join("size"), bytes).map_err(in_window)?;
    write_until(root, folder.join("target0"), &decoder.name, |now| now == decoder.name).map_err(in_window)?;
    let committed = write_until(root, folder.join("commit"), "1", |now| now == "1");
    committed.map_err(|source| match source {
        WriteError::Read(failure) => failure.into(),
        source => RegionError::Commit { region: name.clone(), source },
    })?;
    Ok(name)
}

/// A refusal speaks of the window here: it is too small, behind another host bridge, or its only way is taken.
fn of_window(window: &RootDecoder, source: WriteError) -> RegionError {
    match source {
        WriteError::Refused { .. } => RegionError::Window { window: window.name.clone(), source },
        WriteError::NotDone { .. } | WriteError::Read(_) => source.into(),
    }
}

/// Gives a committed region its driver and waits for the dax device that follows.
fn start(root: &SysRoot, name: &str, waits: &WaitLimits) -> Result<DaxDevice, RegionError> {
    let objects = CxlObjects::read(root)?;
    let region = objects.region(name);
    if region.is_some_and(|region| region.driver.is_none()) {
        write(root, "sys/bus/cxl/drivers/cxl_region/bind", name)?;
    }
    let dax = || {
        let bound =
            |objects: CxlObjects| objects.daxes_of(objects.region(name)?).find(|dax| dax.driver.is_some()).cloned();
        CxlObjects::read(root).map(bound).transpose()
    };
    if let Some(dax) = waits.wait(waits.looks, dax).transpose()? {
        return Ok(dax);
    }
    // A dax device that gets no driver by itself is bound by the caller.
    let objects = CxlObjects::read(root)?;
    let any = objects.region(name).and_then(|region| objects.daxes_of(region).next());
    any.cloned().ok_or_else(|| RegionError::NoDax { region: name.to_owned() })
}

/// Takes down the regions of a card's volatile memory, after an error.
pub(crate) fn roll_back(root: &SysRoot, card: &CardId, waits: &WaitLimits, cause: RegionError) -> RegionError {
    match take_down_all(root, card, waits, &mut Vec::new()) {
        Ok(()) => cause,
        Err(source) => RegionError::RollBack { cause: Chain(&cause).to_string(), source: Box::new(source) },
    }
}

/// Takes down every region that is made of volatile memory of this card alone, and frees its decoders. Notes the
/// steps in `done`.
pub(crate) fn take_down_all(
    root: &SysRoot,
    card: &CardId,
    waits: &WaitLimits,
    done: &mut Vec<OperationStep>,
) -> Result<(), RegionError> {
    let objects = CxlObjects::read(root)?;
    drop_orphans(root, &objects, waits)?;
    let Some(memdev) = card.find(&objects) else { return Ok(()) };
    for region in objects.regions_of(memdev) {
        let alone = objects.memdevs_of(region).iter().all(|member| member.name == memdev.name);
        if region.mode == Some(RegionMode::Ram) && alone {
            take_down(root, &objects, region, waits)?;
            done.push(OperationStep::RegionTakenDown { region: region.name.clone() });
        }
    }
    let objects = CxlObjects::read(root)?;
    let endpoint = card.find(&objects).and_then(|memdev| objects.endpoint_of(memdev));
    endpoint.map_or(Ok(()), |endpoint| release(root, endpoint))
}

/// Checks that a region could be taken down, as far as this can be told without trying.
pub(crate) fn may_take_down(root: &SysRoot, objects: &CxlObjects, region: &CxlRegion) -> Result<(), RegionError> {
    let name = || region.name.clone();
    if region.mode == Some(RegionMode::Pmem) {
        return Err(RegionError::Persistent { region: name() });
    }
    if region.locked || objects.members_of(region).iter().any(|(_, decoder)| decoder.locked) {
        return Err(RegionError::Locked { region: name() });
    }
    for dax in objects.daxes_of(region) {
        memory::is_closed(root, dax)?;
    }
    if objects.daxes_of(region).next().is_some() {
        return Ok(());
    }
    let range = MemoryGate::of_region(root, region)?.ranges().first().copied();
    let blocks = range.map_or(Ok(Vec::new()), |range| memory_blocks::in_range(root, range));
    let blocks = blocks.map_err(MemoryError::from)?;
    if blocks.is_empty() {
        return Ok(());
    }
    Err(RegionError::Firmware { region: name(), blocks })
}

/// Takes a region down, as far as it is there: memory, driver, program, region, capacity of its decoders.
pub(crate) fn take_down(
    root: &SysRoot,
    objects: &CxlObjects,
    region: &CxlRegion,
    waits: &WaitLimits,
) -> Result<(), RegionError> {
    may_take_down(root, objects, region)?;
    for dax in objects.daxes_of(region) {
        memory::take_back(root, dax, waits)?;
    }
    let gate = MemoryGate::of_region(root, region)?;
    let state = |state| RegionError::NotDone { region: region.name.clone(), state };
    if region.driver.is_some() {
        gate.pass(&DangerousWrite::Unbind { region: region.name.clone() })?;
        if root.exists(region.folder.join("driver"))? {
            return Err(state("still bound to its driver"));
        }
    }
    if region.committed {
        gate.pass(&DangerousWrite::Uncommit { folder: region.folder.clone() })?;
        if root.attribute(region.folder.join("commit"))?.as_deref() != Some("0") {
            return Err(state("still committed"));
        }
    }
    let window = region.folder.parent().map(PathBuf::from).unwrap_or_default();
    gate.pass(&DangerousWrite::Delete { window, region: region.name.clone() })?;
    if root.exists(&region.folder)? {
        return Err(state("still there"));
    }
    for (_, decoder) in objects.members_of(region).iter().rev() {
        write_number(root, decoder.folder.join("dpa_size"), 0)?;
    }
    Ok(())
}
