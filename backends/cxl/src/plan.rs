//! Chooses the part of a device that a claim gets. Pure: the choice stands in the claim's record before anything is
//! changed.

use std::collections::BTreeSet;

use hostler_api::{
    Access,
    opaque::{CxlConfig, CxlUse, MemoryConfig, MemoryMode},
};
use hostler_backend::{
    AttributeValue, BackendError, CapacityHolders, CapacityShare, Device, DevicePlan, HeldDevice, MemoryPolicy,
    Pinning, PlanWork, opaque::config_of, refuse_opaque_config,
};
use hostler_linux::{pci::PciAddress, vfio::DriverBinding};
use serde::{Deserialize, Serialize};

use crate::device::{CardId, CxlDevice, DaxId};

/// Name of the capacity: bytes.
const MEMORY: &str = "memory";

/// Choice for a grant; stands in the claim's record.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub(crate) enum CxlPlan {
    /// A function.
    Accelerator {
        address: PciAddress,
        vfio: bool,
        /// Binding that the function is given back to.
        #[serde(default)]
        former: DriverBinding,
    },
    /// All volatile memory of a card.
    Memory {
        card: CardId,
        /// True if the memory becomes memory of the system, and not a device.
        system_ram: bool,
        /// True if the memory is erased in the end.
        sanitize: bool,
        bytes: u64,
    },
    /// A part of the memory of a node.
    Node { node: u32, cards: Vec<CardId>, bytes: u64 },
    /// A dax device that is there without the claim.
    Dax { memory: DaxId },
}

impl CxlPlan {
    /// Content of a plan; `None` for administrative access, which takes nothing.
    pub(crate) fn of(plan: &DevicePlan) -> Option<Self> {
        Self::deserialize(&plan.data).ok()
    }

    /// Reads a plan like [`CxlPlan::of`], for the steps that cannot do without it.
    pub(crate) fn read(plan: &DevicePlan) -> Result<Option<Self>, BackendError> {
        if plan.data.is_null() {
            return Ok(None);
        }
        Self::deserialize(&plan.data).map(Some).map_err(|error| BackendError::step("read the recorded plan", error))
    }

    fn cards(&self) -> &[CardId] {
        match self {
            Self::Memory { card, .. } => std::slice::from_ref(card),
            Self::Node { cards, .. } => cards,
            Self::Dax { memory: DaxId::Region(region) } => &region.cards,
            Self::Dax { .. } | Self::Accelerator { .. } => &[],
        }
    }

    /// True if the plan takes memory of one of these cards, or of one of these nodes.
    pub(crate) fn uses(&self, cards: &BTreeSet<CardId>, nodes: &BTreeSet<u32>) -> bool {
        let on_node = matches!(self, Self::Node { node, .. } if nodes.contains(node));
        on_node || self.cards().iter().any(|card| cards.iter().any(|other| other.is_same(card)))
    }
}

/// Chooses for a grant. Needs nothing but `work`.
///
/// # Errors
/// When the device is in use in another way, too little of it is left, or the configuration is wrong.
pub(crate) fn plan(work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
    let target = CxlDevice::of(work.device).ok_or_else(|| {
        BackendError::refused(format!("{} is described in a way that is not understood", work.device.name))
    })?;
    match &target {
        CxlDevice::Memory { .. } => config_of::<CxlConfig>(work.grant).map(drop)?,
        CxlDevice::Node { .. } => config_of::<MemoryConfig>(work.grant).map(drop)?,
        CxlDevice::Accelerator { .. } | CxlDevice::Dax { .. } => refuse_opaque_config(work.grant)?,
    }
    if work.grant.access == Access::Admin {
        return Ok(DevicePlan::default());
    }
    on_wanted_node(work)?;
    let (chosen, pinning) = match target {
        CxlDevice::Accelerator { address, vfio } => (accelerator(work.device, address, vfio), Pinning::default()),
        CxlDevice::Memory { card } => (memory(work, card)?, Pinning::default()),
        CxlDevice::Node { node, cards } => part(work, node, cards)?,
        CxlDevice::Dax { memory } => (dax(work, memory)?, Pinning::default()),
    };
    Ok(DevicePlan { pinning, data: serde_json::json!(chosen) })
}

/// Checks that the device is near the node that everything has to be on. A device that is near no node passes.
fn on_wanted_node(work: &PlanWork<'_>) -> Result<(), BackendError> {
    match (work.within, work.device.attributes.get("resource.kubernetes.io/numaNode")) {
        (Some(wanted), Some(AttributeValue::Int(own))) if i64::from(wanted) != *own => {
            Err(BackendError::refused(format!("{} is on NUMA node {own}, not on node {wanted}", work.device.name)))
        }
        _ => Ok(()),
    }
}

fn accelerator(device: &Device, address: PciAddress, vfio: bool) -> CxlPlan {
    let former =
        device.data.get("former").and_then(|former| DriverBinding::deserialize(former).ok()).unwrap_or_default();
    CxlPlan::Accelerator { address, vfio, former }
}

fn text<'a>(device: &'a Device, name: &str) -> Option<&'a str> {
    if let Some(AttributeValue::String(text)) = device.attributes.get(name) { Some(text) } else { None }
}

/// Plan for a card. Refused while the card's volatile memory is in use.
fn memory(work: &PlanWork<'_>, card: CardId) -> Result<CxlPlan, BackendError> {
    let config: CxlConfig = config_of(work.grant)?;
    let name = &work.device.name;
    let bytes_of = |name| work.device.capacity.get(name).and_then(|capacity| capacity.value.as_whole()).unwrap_or(0);
    if bytes_of(MEMORY) < crate::region::UNIT_BYTES {
        return Err(BackendError::refused(format!("{name} has less than 256Mi of volatile memory")));
    }
    let used = text(work.device, "use").unwrap_or("none");
    if used != "none" && used != "persistent" {
        return Err(BackendError::refused(in_use(work, &card, used)));
    }
    if let Some(holder) = other_holder(work, std::slice::from_ref(&card)) {
        return Err(BackendError::refused(format!("memory of {name} is held by {holder}")));
    }
    let sanitize = config.sanitize.unwrap_or(false);
    if sanitize && bytes_of("persistentMemory") > 0 {
        return Err(BackendError::refused(format!(
            "{name} cannot be erased at the end of a claim (sanitize: true): that would erase its persistent memory too"
        )));
    }
    let system_ram = config.use_as.unwrap_or_default() == CxlUse::SystemRam;
    Ok(CxlPlan::Memory { card, system_ram, sanitize, bytes: bytes_of(MEMORY) })
}

/// Message about the use and the holder of a card's memory, and how to end the use.
fn in_use(work: &PlanWork<'_>, card: &CardId, used: &str) -> String {
    let name = &work.device.name;
    let node = work.device.attributes.get("targetNode");
    let place = match (used, node) {
        ("systemRam", Some(node)) => format!("memory of the system on node {node}"),
        ("systemRam", None) => "memory of the system".to_owned(),
        ("devDax", _) => "a dax device".to_owned(),
        (other, _) => format!("used ({other})"),
    };
    let holder = other_holder(work, std::slice::from_ref(card));
    let holder = holder.map_or_else(|| "no claim holds it".to_owned(), |holder| format!("held by {holder}"));
    format!("{name} is {place}, {holder}; `hostler device detach cxl/{name}` frees it")
}

/// The claim that holds memory of one of these cards, through whatever device.
fn other_holder(work: &PlanWork<'_>, cards: &[CardId]) -> Option<String> {
    let cards: BTreeSet<CardId> = cards.iter().cloned().collect();
    let none = BTreeSet::new();
    let uses = |held: &&HeldDevice<'_>| {
        held.grant.access == Access::Use
            && held.grant.device != work.device.name
            && CxlPlan::of(held.plan).is_some_and(|chosen| chosen.uses(&cards, &none))
    };
    work.held.iter().find(uses).map(|held| format!("{} ({})", held.claim_name, held.grant.device))
}

/// A part of the memory of a node, accounted as the memory backend does: binding, and no limit of what is used.
fn part(work: &PlanWork<'_>, node: u32, cards: Vec<CardId>) -> Result<(CxlPlan, Pinning), BackendError> {
    let config: MemoryConfig = config_of(work.grant)?;
    let share = CapacityShare::new(work, MEMORY);
    let bytes = share.take(&holders(work, &share, &cards))?;
    // Two things cannot be given to a task from outside: a preference, and that its memory come from here and not
    // from the ordinary node that it may use beside this one. The program is told.
    let mode = config.policy.unwrap_or(MemoryMode::Bind);
    let mems = if mode == MemoryMode::Preferred { BTreeSet::new() } else { [node].into() };
    let policy = Some(MemoryPolicy { mode, nodes: [node].into() });
    Ok((CxlPlan::Node { node, cards, bytes }, Pinning { mems, policy, ..Pinning::default() }))
}

/// Free bytes of a node for `work`; `None` where that is not known.
pub(crate) fn free(work: &PlanWork<'_>) -> Option<u64> {
    let Some(CxlDevice::Node { node, cards }) = CxlDevice::of(work.device) else { return None };
    let share = CapacityShare::new(work, MEMORY);
    let free = share.free(&holders(work, &share, &cards));
    Some(if work.within.is_none_or(|wanted| wanted == node) { free } else { 0 })
}

/// The claims that hold a part of a node, with the bytes of each: by the node itself, or by a whole card behind it.
fn holders<'a>(work: &PlanWork<'a>, share: &CapacityShare<'_>, cards: &[CardId]) -> CapacityHolders<'a> {
    let bytes = |held: &HeldDevice<'_>| match CxlPlan::of(held.plan) {
        Some(CxlPlan::Node { bytes, .. }) if held.grant.device == work.device.name => bytes,
        Some(CxlPlan::Memory { card, bytes, .. }) if cards.iter().any(|other| other.is_same(&card)) => bytes,
        None if held.grant.device == work.device.name => share.at_most(held),
        _ => 0,
    };
    let users = work.held.iter().filter(|held| held.grant.access == Access::Use);
    users.map(|held| (held.claim_name, bytes(held))).collect()
}

/// Plan for a dax device. Refused while another claim holds one of its cards.
fn dax(work: &PlanWork<'_>, memory: DaxId) -> Result<CxlPlan, BackendError> {
    let cards = if let DaxId::Region(region) = &memory { region.cards.as_slice() } else { &[] };
    match other_holder(work, cards) {
        None => Ok(CxlPlan::Dax { memory }),
        Some(holder) => Err(BackendError::refused(format!("memory of {} is held by {holder}", work.device.name))),
    }
}
