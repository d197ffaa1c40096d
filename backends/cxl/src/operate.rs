//! An operator's orders: memory of a card into the system for everybody, and a card out of the system.

use std::collections::BTreeSet;

use hostler_api::Chain;
use hostler_backend::{BackendError, DeviceOperation, HeldDevice, OperateWork};
use hostler_linux::{SysRoot, memory_blocks};

use crate::{
    detach::{DetachError, DetachOptions, detach},
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
/// When the device is no card, a claim or anybody else uses its memory, or a step failed. The message says what was done.
pub(crate) fn operate(root: &SysRoot, work: &OperateWork<'_>, waits: &WaitLimits) -> Result<String, BackendError> {
    let word = work.operation.word();
    let Some(CxlDevice::Memory { card }) = CxlDevice::of(work.device) else {
        let name = &work.device.name;
        return Err(BackendError::refused(format!("{name} cannot be {word}ed: orders are for memory devices, whole")));
    };
    let objects = CxlObjects::read(root);
    refuse_held(root, &objects, &card, work)?;
    let nodes = nodes(root, &objects, &card);
    let mut done = Vec::new();
    let result = match work.operation {
        DeviceOperation::Attach => attach(root, &card, waits, &mut done).map_err(DetachError::from),
        DeviceOperation::Detach { sanitize, remove } => {
            detach(root, &card, DetachOptions { sanitize, remove }, waits, &mut done)
        }
    };
    match result {
        Ok(()) if done.is_empty() => Ok("nothing was left to do".to_owned()),
        Ok(()) => Ok(done.join("; ")),
        Err(error) => Err(told(root, work, &error, &nodes, &done)),
    }
}

fn attach(root: &SysRoot, card: &CardId, waits: &WaitLimits, done: &mut Vec<String>) -> Result<(), RegionError> {
    let before = CxlObjects::read(root);
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
    let node = dax.target_node.map_or_else(|| "a node".to_owned(), |node| format!("node {node}"));
    let range = dax.range().map(|range| range.to_string()).unwrap_or_default();
    done.push(format!("memory {range} of card {card} is online on {node}, movable"));
    Ok(())
}

/// The nodes that a card's memory is on now.
pub(crate) fn nodes(root: &SysRoot, objects: &CxlObjects, card: &CardId) -> BTreeSet<u32> {
    let regions = card.find(objects).map(|memdev| objects.regions_of(memdev)).unwrap_or_default();
    regions.iter().filter_map(|region| objects.node_of(root, region)).collect()
}

/// Refuses where a claim holds the card, or anything that is made of the same regions.
fn refuse_held(
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
    let nodes = if work.operation == DeviceOperation::Attach { BTreeSet::new() } else { nodes(root, objects, card) };
    let holds = |held: &&HeldDevice<'_>| {
        held.grant.device == work.device.name
            || CxlPlan::of(held.plan).is_some_and(|chosen| chosen.uses(&cards, &nodes))
    };
    let holders: BTreeSet<String> = work
        .held
        .iter()
        .filter(|held| held.grant.access == hostler_api::Access::Use)
        .filter(holds)
        .map(|held| format!("{} (claim {})", held.claim_name, held.grant.device))
        .collect();
    if holders.is_empty() {
        return Ok(());
    }
    let (name, word) = (&work.device.name, work.operation.word());
    let holders: Vec<String> = holders.into_iter().collect();
    Err(BackendError::refused(format!("{name} cannot be {word}ed: its memory is held by {}", holders.join(", "))))
}

/// What an operator has to know of an error: what was done, and who is in the way.
fn told(
    root: &SysRoot,
    work: &OperateWork<'_>,
    error: &DetachError,
    nodes: &BTreeSet<u32>,
    done: &[String],
) -> BackendError {
    let (name, word) = (&work.device.name, work.operation.word());
    let who = match error {
        DetachError::Region(region) => who(root, region, nodes),
        DetachError::Gate(GateError::InUse { .. }) => users(root, nodes),
        _ => String::new(),
    };
    let done =
        if done.is_empty() { "nothing is changed".to_owned() } else { format!("done before: {}", done.join("; ")) };
    BackendError::refused(format!("{name} cannot be {word}ed: {}{who}; {done}", Chain(error)))
}

/// Who uses the memory of the nodes, if that is what is in the way.
pub(crate) fn who(root: &SysRoot, error: &RegionError, nodes: &BTreeSet<u32>) -> String {
    match error {
        RegionError::Gate(GateError::InUse { .. })
        | RegionError::Memory(
            MemoryError::Held { .. } | MemoryError::NotMovable { .. } | MemoryError::Gate(GateError::InUse { .. }),
        ) => users(root, nodes),
        RegionError::RollBack { source, .. } => who(root, source, nodes),
        _ => String::new(),
    }
}

fn users(root: &SysRoot, nodes: &BTreeSet<u32>) -> String {
    let one = |node: &u32| {
        let users = memory_blocks::users(root, *node);
        let users =
            if users.is_empty() { "no process that can be seen from here".to_owned() } else { users.to_string() };
        format!("; node {node} is used by {users}")
    };
    nodes.iter().map(one).collect()
}
