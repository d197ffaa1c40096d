//! Choosing CPUs for a grant, and checking that they can still be used.

use std::collections::BTreeSet;

use hostler_api::{
    Access, ClaimUid, Grant, Quantity,
    opaque::{CpuConfig, CpuIsolation, CpuSpread},
};
use hostler_backend::{
    BackendError, Device, DevicePlan, Pinning, PlanWork, PrepareWork, RequestPolicy, Sharing, UnprepareWork,
    opaque::config_of,
};
use hostler_linux::{IdSet, ReadFailure, SysRoot, topology::Topology};
use serde::Deserialize;

use crate::{
    CpuBackendConfig,
    enumerate::CPUS,
    irqs::IrqSteering,
    pick::OfferedCpus,
    requirements::CpuRequirements,
    withheld::{ApartCpus, HeldCpus, WithheldCpus},
};

/// Chooses the CPUs of a grant. Needs nothing but `work`: what the device offers is in its data.
///
/// # Errors
/// When there are not so many CPUs free that fulfil the requirements of the grant, or not in whole cores, or the
/// configuration is wrong.
pub(crate) fn plan(work: &PlanWork<'_>, backend: &CpuBackendConfig) -> Result<DevicePlan, BackendError> {
    let config: CpuConfig = config_of(work.grant)?;
    if work.grant.access == Access::Admin {
        return Ok(DevicePlan::default());
    }
    if let Some(wish) = cache_wish(&config).filter(|_| !backend.allow_l3_exclusive) {
        let reason = format!("{wish} is forbidden on this node: backends.cpu.allow_l3_exclusive is false");
        return Err(BackendError::refused(reason));
    }
    let required = CpuRequirements::new(&config, work.within);
    let whole = offer(work.device)?;
    let taken = HeldCpus::new(work, &whole);
    let whole_cpus = whole.cpus();
    let offer = required.narrow(work.device, whole)?;
    let wanted = wanted(work, &offer, whole_cpus)?;
    let held = unavailable(work, &required, &offer, &taken);
    let picked = offer.pick_spread(required.spread, wanted, &held);
    let picked =
        picked.ok_or_else(|| BackendError::refused(refusal(work, &required, &offer, wanted, &taken, &held)))?;
    Ok(planned(&required, &offer, picked))
}

/// The wish that keeps caches from others, if there is one.
fn cache_wish(config: &CpuConfig) -> Option<&'static str> {
    match (config.l3_exclusive, config.isolation) {
        (Some(true), _) => Some("l3Exclusive"),
        (_, Some(CpuIsolation::L3)) => Some("isolation: l3"),
        _ => None,
    }
}

/// The number of CPUs that the grant could have now.
pub(crate) fn free(work: &PlanWork<'_>) -> Option<u64> {
    let required = CpuRequirements::new(&config_of(work.grant).ok()?, work.within);
    let whole = offer(work.device).ok()?;
    let taken = HeldCpus::new(work, &whole);
    let offer = required.narrow(work.device, whole).ok()?;
    Some(offer.free(&unavailable(work, &required, &offer, &taken)) as u64)
}

/// The NUMA nodes of the CPUs that a device offers.
pub(crate) fn nodes(device: &Device) -> BTreeSet<u32> {
    offer(device).map(|offer| offer.cores.iter().map(|core| core.1[1]).collect()).unwrap_or_default()
}

/// The CPUs that a device offers.
pub(crate) fn offered(device: &Device) -> IdSet {
    offer(device).map(|offer| offer.cores.into_iter().flat_map(|core| core.0).collect()).unwrap_or_default()
}

fn offer(device: &Device) -> Result<OfferedCpus, BackendError> {
    OfferedCpus::deserialize(&device.data).map_err(|error| BackendError::step("read the cores of the device", error))
}

/// The CPUs that the grant cannot have: those that any claim keeps, and, where the grant wants caches to itself, all
/// behind a cache of which another claim has a CPU; likewise where it shares no cache, or no core, with other
/// namespaces.
fn unavailable(
    work: &PlanWork<'_>,
    required: &CpuRequirements,
    offer: &OfferedCpus,
    taken: &HeldCpus<'_>,
) -> BTreeSet<u32> {
    let mut held = taken.cpus();
    if required.l3_exclusive {
        let others = taken.of_others(work);
        let shared = offer.caches.values().filter(|cache| !cache.is_disjoint(&others));
        held.extend(shared.flat_map(IdSet::iter));
    }
    if required.isolation != CpuIsolation::None {
        let others = taken.of_other_namespaces(work);
        let shared = offer.domains(required.isolation).filter(|domain| !domain.is_disjoint(&others));
        shared.for_each(|domain| held.extend(domain.iter()));
    }
    held
}

/// Plan with the CPUs that a container is bound to, and those that it keeps from others.
fn planned(required: &CpuRequirements, offer: &OfferedCpus, picked: BTreeSet<u32>) -> DevicePlan {
    let mut kept = WithheldCpus { irqs: required.avoids_irqs, ..WithheldCpus::default() };
    if required.isolation != CpuIsolation::None {
        let touched = offer.domains(required.isolation).filter(|domain| domain.iter().any(|cpu| picked.contains(&cpu)));
        let cpus = touched.fold(IdSet::new(), |all, domain| all.union(&domain));
        kept.apart = Some(ApartCpus { of: required.isolation, cpus });
    }
    if required.l3_exclusive {
        let touched = offer.caches.values().filter(|cache| cache.iter().any(|cpu| picked.contains(&cpu)));
        kept.l3 = Some(touched.flat_map(IdSet::iter).collect());
    }
    let mut cpus = picked;
    if required.isolated {
        let later = offer.cores.iter().flat_map(|core| core.0.iter().skip(1));
        let idle: BTreeSet<u32> = later.filter(|cpu| cpus.contains(cpu)).copied().collect();
        cpus.retain(|cpu| !idle.contains(cpu));
        kept.idle = Some(idle.into());
    }
    DevicePlan { pinning: Pinning { cpus, ..Pinning::default() }, data: kept.to_data() }
}

/// The number of CPUs that the grant takes, of `whole` that the device has.
fn wanted(work: &PlanWork<'_>, offer: &OfferedCpus, whole: usize) -> Result<usize, BackendError> {
    let device = &work.device.name;
    let Some(asked) = work.grant.consumed.get(CPUS).filter(|_| work.device.sharing == Sharing::Shared) else {
        return Ok(whole);
    };
    let step = offer.step();
    let cpus = asked.as_whole().and_then(|cpus| usize::try_from(cpus).ok()).filter(|cpus| *cpus > 0);
    cpus.filter(|cpus| cpus.is_multiple_of(step)).ok_or_else(|| {
        let least = Quantity::whole(step as u64);
        let fix = RequestPolicy { default: least, min: least, step: least }.round_up(*asked);
        let unit = if step > 1 { format!("whole cores of {step} CPUs") } else { "whole CPUs".to_owned() };
        BackendError::refused(format!("{asked} CPUs of {device} cannot be given: it gives {unit}; ask for {fix}"))
    })
}

/// Tells what is wanted, what is free and who holds the rest.
fn refusal(
    work: &PlanWork<'_>,
    required: &CpuRequirements,
    offer: &OfferedCpus,
    wanted: usize,
    taken: &HeldCpus<'_>,
    held: &BTreeSet<u32>,
) -> String {
    let (device, total, free) = (&work.device.name, offer.cpus(), offer.free(held));
    let mut ours: BTreeSet<u32> = offer.cores.iter().flat_map(|core| &core.0).copied().collect();
    if required.l3_exclusive || required.isolation == CpuIsolation::L3 {
        ours.extend(offer.caches.values().flat_map(IdSet::iter));
    }
    let (noun, holders) = (required.noun(offer), taken.holders(&ours));
    let lie = match required.spread {
        CpuSpread::L3 if free >= wanted => ", but behind one L3 cache, and spread: l3 asks for several",
        CpuSpread::Numa if free >= wanted => ", but on one NUMA node, and spread: numa asks for several",
        _ => "",
    };
    format!("{device} has {free} of {total} {noun} free, {wanted} are wanted{lie}; {holders}")
}

/// Keeps interrupts off the CPUs of a grant that wants none, its idle ones too. Returns sentences on those that
/// stay, with the reasons.
///
/// # Errors
/// When it cannot be told where interrupts go.
pub(crate) fn keep_irqs_off(work: &PrepareWork<'_>, irqs: &IrqSteering) -> Result<Vec<String>, BackendError> {
    let kept = WithheldCpus::in_plan(work.plan);
    if !kept.irqs {
        return Ok(Vec::new());
    }
    let cpus = IdSet::from(work.plan.pinning.cpus.clone()).union(&kept.idle.unwrap_or_default());
    irqs.keep_off(&irq_holder(work.claim, work.grant), &cpus)
}

/// Lets interrupts on again.
///
/// # Errors
/// When an interrupt that could be moved away cannot be put back.
pub(crate) fn let_irqs_on(work: &UnprepareWork<'_>, irqs: &IrqSteering) -> Result<(), BackendError> {
    if WithheldCpus::in_plan(work.plan).irqs { irqs.let_on(&irq_holder(work.claim, work.grant)) } else { Ok(()) }
}

/// Key that tells the grants of all claims apart.
fn irq_holder(claim: &ClaimUid, grant: &Grant) -> String {
    let share = grant.share_id.as_ref().map_or("", |share| &share.0);
    format!("{claim} {} {} {share}", grant.request, grant.device)
}

/// Checks that the CPUs of a plan run. That the host's cpuset still allows them is checked where it takes effect, when
/// the container's own cpuset is written and read again: finding the limits costs more than all the rest of a prepare.
///
/// # Errors
/// When a CPU went offline, or that cannot be told.
pub(crate) fn verify(root: &SysRoot, plan: &DevicePlan) -> Result<(), BackendError> {
    let planned = IdSet::from(plan.pinning.cpus.clone());
    if planned.is_empty() {
        return Ok(());
    }
    let offline = planned.difference(&online(root).map_err(BackendError::unread)?);
    if !offline.is_empty() {
        return Err(BackendError::NotUsable { reason: format!("CPUs {offline} are offline") });
    }
    Ok(())
}

/// Reads one small file instead of the whole topology: this runs in every prepare.
fn online(root: &SysRoot) -> Result<IdSet, ReadFailure> {
    let list = root.attribute("sys/devices/system/cpu/online")?.and_then(|text| text.parse().ok());
    list.map_or_else(|| Ok(Topology::read_nodes(root)?.online), Ok)
}
