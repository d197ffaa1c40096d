//! Accounting memory to a grant, and checking that it is still there.

use std::collections::BTreeSet;

use hostler_api::{
    Access,
    opaque::{MemoryConfig, MemoryMode},
};
use hostler_backend::{
    BackendError, CapacityHolders, CapacityShare, DevicePlan, HeldDevice, MemoryPolicy, Pinning, PlanWork,
    opaque::config_of,
};
use hostler_linux::{ReadFailure, SysRoot};
use serde::{Deserialize, Serialize};

use crate::enumerate::{MEMORY, NodeMemory};

/// Memory that a grant was given; stands in the claim's record.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct GrantedMemory {
    #[serde(flatten)]
    memory: NodeMemory,
    bytes: u64,
}

/// Accounts the memory of a grant. Needs nothing but `work`.
///
/// # Errors
/// When there is not so much left, or the amount is no multiple of a page, or the node is not the wanted one, or the
/// configuration is wrong.
pub(crate) fn plan(work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
    let config: MemoryConfig = config_of(work.grant)?;
    if work.grant.access == Access::Admin {
        return Ok(DevicePlan::default());
    }
    let memory = NodeMemory::deserialize(&work.device.data)
        .map_err(|error| BackendError::step("read the node of the device", error))?;
    if let Some(node) = work.within.filter(|node| *node != memory.node) {
        let (device, own) = (&work.device.name, memory.node);
        return Err(BackendError::refused(format!("{device} is on NUMA node {own}, not on node {node}")));
    }
    let share = CapacityShare::new(work, MEMORY);
    let bytes = share.take(&holders(work, &share))?;
    Ok(DevicePlan {
        pinning: pinning(memory.node, config.policy),
        data: serde_json::json!(GrantedMemory { memory, bytes }),
    })
}

/// Binds what the node's cpuset can enforce; the program is told the rest. A mempolicy belongs to a task and cannot be
/// given to it from outside.
fn pinning(node: u32, mode: Option<MemoryMode>) -> Pinning {
    let mems = if mode == Some(MemoryMode::Preferred) { BTreeSet::new() } else { [node].into() };
    let policy = mode.map(|mode| MemoryPolicy { mode, nodes: [node].into() });
    Pinning { mems, policy, ..Pinning::default() }
}

/// The bytes that are free, if the device is on the wanted node at all.
pub(crate) fn free(work: &PlanWork<'_>) -> Option<u64> {
    let memory = NodeMemory::deserialize(&work.device.data).ok()?;
    let share = CapacityShare::new(work, MEMORY);
    let free = share.free(&holders(work, &share));
    Some(if work.within.is_none_or(|node| node == memory.node) { free } else { 0 })
}

/// Claims that hold a part of this device: as recorded; without a readable record as much as each may have been given.
fn holders<'a>(work: &PlanWork<'a>, share: &CapacityShare<'_>) -> CapacityHolders<'a> {
    let own = |held: &&HeldDevice<'_>| held.grant.device == work.device.name && held.grant.access != Access::Admin;
    let bytes = |held: &HeldDevice<'_>| {
        GrantedMemory::deserialize(&held.plan.data).map_or_else(|_| share.at_most(held), |granted| granted.bytes)
    };
    work.held.iter().filter(own).map(|held| (held.claim_name, bytes(held))).collect()
}

/// Checks that the node of a plan is online with memory, and that its pool still has the pages. That the host's cpuset
/// still allows the node is checked where it takes effect, when the container's own cpuset is written and read again.
///
/// # Errors
/// When the node or its pages are missing; the message says what was seen.
pub(crate) fn verify(root: &SysRoot, plan: &DevicePlan) -> Result<(), BackendError> {
    // Administrative access.
    if plan.data.is_null() {
        return Ok(());
    }
    let granted =
        GrantedMemory::deserialize(&plan.data).map_err(|error| BackendError::step("read the recorded plan", error))?;
    let NodeMemory { node, huge_page_bytes } = granted.memory;
    // A kernel without NUMA shows no node; its memory, node 0, cannot go, but its huge pages can.
    let numa = node != 0 || root.exists("sys/devices/system/node").map_err(BackendError::unread)?;
    let folder = format!("sys/devices/system/node/node{node}");
    if numa && !node_has_memory(root, &folder).map_err(BackendError::unread)? {
        return unusable(format!("NUMA node {node} is offline or has no memory"));
    }
    let Some(size) = huge_page_bytes else { return Ok(()) };
    let pools = if numa { format!("{folder}/hugepages") } else { "sys/kernel/mm/hugepages".to_owned() };
    let pool = format!("{pools}/hugepages-{}kB/nr_hugepages", size / 1024);
    let pages = root.text(&pool).map_err(BackendError::unread)?;
    let pages: u64 = pages.and_then(|text| text.parse().ok()).unwrap_or(0);
    let wanted = granted.bytes / size.max(1);
    if pages < wanted {
        return unusable(format!("/{pool} is {pages}, {wanted} pages are claimed"));
    }
    Ok(())
}

fn unusable(reason: String) -> Result<(), BackendError> {
    Err(BackendError::NotUsable { reason })
}

/// True if a node is online with memory. The node's folder is there only while it is online.
fn node_has_memory(root: &SysRoot, folder: &str) -> Result<bool, ReadFailure> {
    let text = root.text(format!("{folder}/meminfo"))?.unwrap_or_default();
    let total = text.lines().find_map(|line| line.split_once("MemTotal:")).map(|(_, value)| value);
    let kilobytes = total.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.is_some_and(|kilobytes| kilobytes > 0))
}
