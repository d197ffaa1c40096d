//! CPUs that claims keep from others: those that they use, threads that they leave idle, cores and caches that they
//! have to themselves or share with their own namespace alone.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{few, opaque::CpuIsolation};
use hostler_backend::{DevicePlan, HeldDevice, PlanWork};
use hostler_linux::IdSet;
use serde::{Deserialize, Serialize};

use crate::pick::OfferedCpus;

/// CPUs that a claim keeps beside those that it is bound to; stands in its record.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct WithheldCpus {
    /// Threads that stay idle: no claim may have them. Present, if empty, where a claim wants its cores isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle: Option<IdSet>,
    /// All CPUs behind the caches that the claim has to itself: no other claim may have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) l3: Option<IdSet>,
    /// CPUs that no claim of another namespace may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) apart: Option<ApartCpus>,
    /// True if interrupts stay away from the CPUs of the claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) irqs: bool,
}

/// CPUs that are kept from other namespaces.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct ApartCpus {
    /// Hardware that the CPUs make up: cores or caches.
    pub(crate) of: CpuIsolation,
    pub(crate) cpus: IdSet,
}

impl ApartCpus {
    /// The CPUs as of now: a thread that came online since belongs to its core or cache.
    fn now(&self, offer: &OfferedCpus) -> BTreeSet<u32> {
        let touched = offer.domains(self.of).filter(|domain| !domain.is_disjoint(&self.cpus));
        self.cpus.iter().chain(touched.flat_map(|domain| domain.iter().collect::<Vec<u32>>())).collect()
    }
}

impl WithheldCpus {
    /// The value as a plan holds it; null where nothing is kept.
    pub(crate) fn to_data(&self) -> serde_json::Value {
        if *self == Self::default() { serde_json::Value::Null } else { serde_json::json!(self) }
    }

    /// Reads the value from a plan. A plan without one keeps nothing.
    pub(crate) fn in_plan(plan: &DevicePlan) -> Self {
        if plan.data.is_null() { Self::default() } else { Self::deserialize(&plan.data).unwrap_or_default() }
    }

    /// Idle threads, and CPUs behind the caches that the claim has to itself.
    pub(crate) fn cpus(&self) -> IdSet {
        self.idle.iter().chain(&self.l3).fold(IdSet::new(), |all, kept| all.union(kept))
    }
}

/// The CPUs that each holder keeps from the grant of `work`, as far as `offer` knows them.
#[derive(Debug)]
pub(crate) struct HeldCpus<'a>(Vec<HolderCpus<'a>>);

/// CPUs that one grant keeps.
#[derive(Debug)]
struct HolderCpus<'a> {
    held: &'a HeldDevice<'a>,
    /// Kept CPUs beside those that the holder's containers are bound to; mostly none, and then nothing is copied.
    beside: BTreeSet<u32>,
}

impl HolderCpus<'_> {
    fn cpus(&self) -> impl Iterator<Item = u32> {
        self.held.plan.pinning.cpus.iter().chain(&self.beside).copied()
    }
}

impl<'a> HeldCpus<'a> {
    /// Finds what is held of the cores and caches of `offer`. CPUs that came online since a claim was planned belong
    /// to the core or cache that the claim has to itself.
    pub(crate) fn new(work: &PlanWork<'a>, offer: &OfferedCpus) -> Self {
        let share = |held: &'a HeldDevice<'a>| {
            let mut beside = BTreeSet::new();
            if !held.plan.data.is_null() {
                let kept = WithheldCpus::in_plan(held.plan);
                if let Some(idle) = &kept.idle {
                    beside.extend(idle.iter());
                    beside.extend(whole_cores(offer, held, idle));
                }
                if let Some(l3) = kept.l3.filter(|_| held.claim != work.claim) {
                    beside.extend(l3.iter());
                    let caches = offer.caches.values().filter(|cache| !cache.is_disjoint(&l3));
                    beside.extend(caches.flat_map(IdSet::iter));
                }
                if let Some(apart) = kept.apart.filter(|_| !held.is_of_namespace(work)) {
                    beside.extend(apart.now(offer));
                }
            }
            HolderCpus { held, beside }
        };
        Self(work.held.iter().map(share).collect())
    }

    /// All CPUs that are kept.
    pub(crate) fn cpus(&self) -> BTreeSet<u32> {
        self.0.iter().flat_map(HolderCpus::cpus).collect()
    }

    /// CPUs that other claims than that of `work` keep.
    pub(crate) fn of_others(&self, work: &PlanWork<'_>) -> IdSet {
        self.0.iter().filter(|share| share.held.claim != work.claim).flat_map(HolderCpus::cpus).collect()
    }

    /// CPUs that claims of other namespaces than that of `work` run on or leave idle.
    pub(crate) fn of_other_namespaces(&self, work: &PlanWork<'_>) -> IdSet {
        let footprint = |held: &HeldDevice<'_>| {
            let idle = WithheldCpus::in_plan(held.plan).idle.unwrap_or_default();
            IdSet::from(held.plan.pinning.cpus.clone()).union(&idle)
        };
        let others = self.0.iter().filter(|share| !share.held.is_of_namespace(work));
        others.fold(IdSet::new(), |all, share| all.union(&footprint(share.held)))
    }

    /// The claims that keep any of `cpus`, with how many: `default/train (4), default/web (2)`.
    pub(crate) fn holders(&self, cpus: &BTreeSet<u32>) -> String {
        let mut kept: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for share in &self.0 {
            kept.entry(share.held.claim_name).or_default().extend(share.cpus().filter(|cpu| cpus.contains(cpu)));
        }
        let named = kept.iter().filter(|(_, cpus)| !cpus.is_empty());
        let named = few(named.map(|(name, cpus)| format!("{name} ({})", cpus.len())));
        if named.is_empty() { "held by nobody".to_owned() } else { format!("held by {named}") }
    }
}

/// All CPUs of the cores of which a grant has any.
fn whole_cores<'a>(
    offer: &'a OfferedCpus,
    held: &'a HeldDevice<'_>,
    idle: &'a IdSet,
) -> impl Iterator<Item = u32> + 'a {
    let has = |cpu: &u32| held.plan.pinning.cpus.contains(cpu) || idle.contains(*cpu);
    offer.cores.iter().filter(move |core| core.0.iter().any(has)).flat_map(|core| &core.0).copied()
}
