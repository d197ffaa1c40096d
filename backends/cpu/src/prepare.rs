//! Choosing CPUs for a grant, and checking that they can still be used.

use std::collections::{BTreeMap, BTreeSet};

use hostler_backend::{Access, BackendError, Held, Pinning, Plan, PlanWork, Quantity, Sharing, refuse_opaque_config};
use hostler_linux::{IdSet, SysRoot, topology::Topology};
use serde::Deserialize;

use crate::{enumerate::CPUS, pick::Offer};

/// Chooses the CPUs of a grant. Needs nothing but `work`: what the device offers is in its data.
///
/// # Errors
/// When there are not so many CPUs free, or not in whole cores, or the grant brings configuration.
pub(crate) fn plan(work: &PlanWork<'_>) -> Result<Plan, BackendError> {
    refuse_opaque_config(work.grant)?;
    if work.grant.access == Access::Admin {
        return Ok(Plan::default());
    }
    let offer = Offer::deserialize(&work.device.data)
        .map_err(|error| BackendError::step("read the cores of the device", error))?;
    let wanted = wanted(work, &offer)?;
    let held: BTreeSet<u32> = work.held.iter().flat_map(|held| &held.plan.pinning.cpus).copied().collect();
    let cpus = offer.pick(wanted, &held).ok_or_else(|| BackendError::refused(refusal(work, &offer, wanted, &held)))?;
    Ok(Plan { pinning: Pinning { cpus, mems: BTreeSet::new() }, data: serde_json::Value::Null })
}

/// The number of CPUs that the grant takes.
fn wanted(work: &PlanWork<'_>, offer: &Offer) -> Result<usize, BackendError> {
    let device = &work.device.name;
    let Some(asked) = work.grant.consumed.get(CPUS).filter(|_| work.device.sharing == Sharing::Shared) else {
        return Ok(offer.cpus());
    };
    let step = offer.step();
    let cpus = asked.as_whole().and_then(|cpus| usize::try_from(cpus).ok()).filter(|cpus| *cpus > 0);
    cpus.filter(|cpus| cpus.is_multiple_of(step)).ok_or_else(|| {
        let least = Quantity::whole(step as u64);
        let fix = asked.round_up(least, least);
        let unit = if step > 1 { format!("whole cores of {step} CPUs") } else { "whole CPUs".to_owned() };
        BackendError::refused(format!("{asked} CPUs of {device} cannot be given: it gives {unit}; ask for {fix}"))
    })
}

/// Says what is wanted, what is free and who holds the rest.
fn refusal(work: &PlanWork<'_>, offer: &Offer, wanted: usize, held: &BTreeSet<u32>) -> String {
    let (device, total, free) = (&work.device.name, offer.cpus(), offer.free(held));
    let unit = if offer.whole_cores { "CPUs in whole cores" } else { "CPUs" };
    let ours: BTreeSet<u32> = offer.cores.iter().flat_map(|core| &core.0).copied().collect();
    let holders = holders(work.held, &ours);
    let held_by = if holders.is_empty() { "held by nobody".to_owned() } else { format!("held by {holders}") };
    format!("{device} has {free} of {total} {unit} free, {wanted} are wanted; {held_by}")
}

/// The claims that hold any of `cpus`, with the number of them that each holds: `default/train (4), default/web (2)`.
fn holders(held: &[Held<'_>], cpus: &BTreeSet<u32>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for held in held {
        let count = held.plan.pinning.cpus.intersection(cpus).count();
        if count > 0 {
            *counts.entry(held.claim_name).or_default() += count;
        }
    }
    let names: Vec<String> = counts.iter().map(|(name, count)| format!("{name} ({count})")).collect();
    names.join(", ")
}

/// Checks that the CPUs of a plan run. That the host's cpuset still allows them is checked where it takes effect, when
/// the container's own cpuset is written and read again: finding the limits costs more than all the rest of a prepare.
///
/// # Errors
/// When one went offline.
pub(crate) fn verify(root: &SysRoot, plan: &Plan) -> Result<(), BackendError> {
    let planned = IdSet::from(plan.pinning.cpus.clone());
    if planned.is_empty() {
        return Ok(());
    }
    let offline = planned.difference(&online(root));
    if !offline.is_empty() {
        return Err(BackendError::NotUsable { reason: format!("CPUs {offline} are offline") });
    }
    Ok(())
}

/// One small file instead of the whole topology: this runs in every prepare.
fn online(root: &SysRoot) -> IdSet {
    let list = root.attribute("sys/devices/system/cpu/online").and_then(|text| text.parse().ok());
    list.unwrap_or_else(|| Topology::read(root).online)
}
