//! An operator's orders: memory of a card into the system for all programs, and a card out of the system.

use std::collections::BTreeSet;

use hostler_api::Chain;
use hostler_backend::{
    BackendError, DeviceOperation, HeldDevice, HugePages, MemoryProcess, NodeMemoryUsers, OperateWork,
    OperationFailure, OperationObstacle, OperationOutcome, OperationStep,
};
use hostler_linux::{
    ReadFailure, SysRoot,
    memory_blocks::{self, MemoryBlock},
    pci::PciAddress,
};

use crate::{
    accelerator,
    detach::{DetachError, DetachOptions, addresses, detach},
    device::{CardId, CxlDevice},
    gate::GateError,
    memory::{self, MemoryError},
    objects::CxlObjects,
    plan::CxlPlan,
    region::{self, RegionError},
    write::WaitLimits,
};

/// Carries out an order.
///
/// # Errors
/// When the device is no card, a claim or another user has its memory, or a step failed. The refusal says what was
/// done.
pub(crate) fn operate(
    root: &SysRoot,
    work: &OperateWork<'_>,
    waits: &WaitLimits,
) -> Result<OperationOutcome, BackendError> {
    let card = match CxlDevice::of(work.device) {
        Some(CxlDevice::Memory { card }) => card,
        Some(CxlDevice::Accelerator { address, .. }) => return detach_accelerator(root, address, work),
        _ => return Err(work.refused(OperationObstacle::NotWhole).into()),
    };
    let objects = CxlObjects::read(root).map_err(BackendError::unread)?;
    refuse_held(root, &objects, &card, work)?;
    let nodes = nodes(root, &objects, &card).map_err(BackendError::unread)?;
    let mut steps = Vec::new();
    let result = match work.operation {
        DeviceOperation::Attach => attach(root, &card, waits, &mut steps).map_err(DetachError::from),
        DeviceOperation::Detach { sanitize, overwrite, remove } => {
            detach(root, &card, DetachOptions { sanitize, overwrite, remove }, waits, &mut steps)
        }
    };
    match result {
        Ok(()) => Ok(OperationOutcome { steps }),
        Err(error) => Err(work.refused(OperationObstacle::Failed(failure(root, &error, &nodes, steps))).into()),
    }
}

fn detach_accelerator(
    root: &SysRoot,
    address: PciAddress,
    work: &OperateWork<'_>,
) -> Result<OperationOutcome, BackendError> {
    let options = options_for_accelerator(work)?;
    let mut steps = Vec::new();
    match accelerator::detach(root, work.device, address, options, &mut steps) {
        Ok(()) => Ok(OperationOutcome { steps }),
        Err(error) => Err(work.failed(Chain(&error).to_string(), steps).into()),
    }
}

/// Options of an order for an accelerator that no claim has.
///
/// # Errors
/// When a claim has it, or it is to be attached: it always is.
pub(crate) fn options_for_accelerator(work: &OperateWork<'_>) -> Result<DetachOptions, BackendError> {
    let DeviceOperation::Detach { sanitize, overwrite, remove } = work.operation else {
        return Err(work.refused(OperationObstacle::AlwaysThere).into());
    };
    work.refuse_held(|held| held.grant.device == work.device.name)?;
    Ok(DetachOptions { sanitize, overwrite, remove })
}

fn attach(root: &SysRoot, card: &CardId, waits: &WaitLimits, done: &mut Vec<OperationStep>) -> Result<(), RegionError> {
    let before = CxlObjects::read(root)?;
    let was_there = card.find(&before).is_some_and(|memdev| !before.regions_of(memdev).is_empty());
    let dax = region::create(root, card, waits)?;
    if was_there && memory::is_online(root, &dax).is_ok() {
        return Ok(());
    }
    memory::is_closed(root, &dax)?;
    if let Err(error) = memory::bring_online(root, &dax, waits) {
        let error = RegionError::from(error);
        return Err(if was_there { error } else { region::roll_back(root, card, waits, error) });
    }
    let (memory, node) = (dax.range().map(addresses), dax.target_node);
    done.push(OperationStep::MemoryOnline { card: card.to_string(), memory, node });
    Ok(())
}

/// The nodes that a card's memory is on now.
///
/// # Errors
/// When that cannot be told.
pub(crate) fn nodes(root: &SysRoot, objects: &CxlObjects, card: &CardId) -> Result<BTreeSet<u32>, ReadFailure> {
    let regions = card.find(objects).map(|memdev| objects.regions_of(memdev)).unwrap_or_default();
    root.look(|tree| regions.iter().filter_map(|region| objects.node_of(tree, region)).collect())
}

/// Refuses an order while a claim holds the card, or a device that is made of the same regions.
pub(crate) fn refuse_held(
    root: &SysRoot,
    objects: &CxlObjects,
    card: &CardId,
    work: &OperateWork<'_>,
) -> Result<(), BackendError> {
    let regions = card.find(objects).map(|memdev| objects.regions_of(memdev)).unwrap_or_default();
    // Losing one member of an interleaving loses all of it.
    let mut cards: BTreeSet<CardId> =
        regions.iter().flat_map(|region| objects.memdevs_of(region)).map(CardId::of).collect();
    cards.insert(card.find(objects).map_or_else(|| card.clone(), CardId::of));
    let nodes = match work.operation {
        DeviceOperation::Attach => BTreeSet::new(),
        DeviceOperation::Detach { .. } => nodes(root, objects, card).map_err(BackendError::unread)?,
    };
    let holds = |held: &HeldDevice<'_>| {
        held.grant.device == work.device.name
            || CxlPlan::of(held.plan).is_some_and(|chosen| chosen.uses(&cards, &nodes))
    };
    Ok(work.refuse_held(holds)?)
}

/// Failure of an order, for the operator: the steps that were done, and the users in the way.
pub(crate) fn failure(
    root: &SysRoot,
    error: &DetachError,
    nodes: &BTreeSet<u32>,
    steps: Vec<OperationStep>,
) -> OperationFailure {
    let blocks = match error {
        DetachError::Region(error) => blocks_in_use(error),
        DetachError::Gate(GateError::InUse { blocks, .. }) => Some(&**blocks),
        _ => None,
    };
    OperationFailure {
        cause: Chain(error).to_string(),
        blocks: blocks.unwrap_or_default().iter().map(|block| block.number).collect(),
        users: blocks.map(|_| users(root, nodes)).unwrap_or_default(),
        steps,
    }
}

/// Users of the memory of the nodes, if memory in use is in the way.
pub(crate) fn who(root: &SysRoot, error: &RegionError, nodes: &BTreeSet<u32>) -> Vec<NodeMemoryUsers> {
    blocks_in_use(error).map(|_| users(root, nodes)).unwrap_or_default()
}

/// The memory blocks that are in the way, if the error is about memory in use.
fn blocks_in_use(error: &RegionError) -> Option<&[MemoryBlock]> {
    match error {
        RegionError::Gate(GateError::InUse { blocks, .. })
        | RegionError::Memory(
            MemoryError::Held { blocks, .. }
            | MemoryError::NotMovable { blocks, .. }
            | MemoryError::Gate(GateError::InUse { blocks, .. }),
        ) => Some(blocks),
        RegionError::RollBack { source, .. } => blocks_in_use(source),
        _ => None,
    }
}

fn users(root: &SysRoot, nodes: &BTreeSet<u32>) -> Vec<NodeMemoryUsers> {
    nodes.iter().map(|node| users_of(root, *node)).collect()
}

fn users_of(root: &SysRoot, node: u32) -> NodeMemoryUsers {
    let memory_blocks::NodeUsers { processes, huge_pages, incomplete } = memory_blocks::users(root, node);
    let process =
        |user: memory_blocks::MemoryUser| MemoryProcess { pid: user.pid, command: user.command, bytes: user.bytes };
    let pool =
        |pool: memory_blocks::HugePagePool| HugePages { page_kb: pool.page_kb, pages: pool.pages, free: pool.free };
    NodeMemoryUsers {
        node,
        processes: processes.into_iter().map(process).collect(),
        huge_pages: huge_pages.into_iter().map(pool).collect(),
        incomplete,
    }
}
