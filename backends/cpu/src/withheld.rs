//! What claims keep from others: CPUs that they use, threads that they leave idle, caches that they have to themselves.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::few;
use hostler_backend::{DevicePlan, HeldDevice, PlanWork};
use hostler_linux::IdSet;
use serde::{Deserialize, Serialize};

use crate::pick::OfferedCpus;

/// What a claim keeps beside the CPUs that it is bound to; stands in its record.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct WithheldCpus {
    /// Threads that stay idle, nobody's to have. Present, if empty, where a claim wants its cores isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle: Option<IdSet>,
    /// All CPUs behind the caches that the claim has to itself: no other claim's to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) l3: Option<IdSet>,
}

impl WithheldCpus {
    /// As it stands in a plan; null where nothing is kept.
    pub(crate) fn to_data(&self) -> serde_json::Value {
        if *self == Self::default() { serde_json::Value::Null } else { serde_json::json!(self) }
    }

    /// Out of a plan. One without it keeps nothing.
    pub(crate) fn in_plan(plan: &DevicePlan) -> Self {
        Self::deserialize(&plan.data).unwrap_or_default()
    }

    /// All of them.
    pub(crate) fn cpus(&self) -> IdSet {
        self.idle.iter().chain(&self.l3).fold(IdSet::new(), |all, kept| all.union(kept))
    }
}

/// The CPUs that each holder keeps from the grant of `work`, as far as `offer` knows them.
#[derive(Debug)]
pub(crate) struct HeldCpus<'a>(Vec<HolderCpus<'a>>);

/// What one grant keeps.
#[derive(Debug)]
struct HolderCpus<'a> {
    held: &'a HeldDevice<'a>,
    /// Beside the CPUs that its containers are bound to; mostly none, and then nothing is copied.
    beside: BTreeSet<u32>,
}

impl HolderCpus<'_> {
    fn cpus(&self) -> impl Iterator<Item = u32> {
        self.held.plan.pinning.cpus.iter().chain(&self.beside).copied()
    }
}

impl<'a> HeldCpus<'a> {
    /// What is held of the cores and caches of `offer`. CPUs that came online since a claim was planned belong to the
    /// core or cache that the claim has to itself.
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
            }
            HolderCpus { held, beside }
        };
        Self(work.held.iter().map(share).collect())
    }

    /// All of them.
    pub(crate) fn cpus(&self) -> BTreeSet<u32> {
        self.0.iter().flat_map(HolderCpus::cpus).collect()
    }

    /// Those that other claims than that of `work` keep.
    pub(crate) fn of_others(&self, work: &PlanWork<'_>) -> IdSet {
        self.0.iter().filter(|share| share.held.claim != work.claim).flat_map(HolderCpus::cpus).collect()
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
