//! Claims: their specs, their allocations, and the pods that may use them.

use hostler_api::{
    core::NodeSelector,
    resource::{AllocationResult, DeviceRequestAllocationResult, ResourceClaim, ResourceClaimSpec},
};

use super::{
    compact::Renumbering,
    slices::{from_json, intern_json},
};
use crate::plan::sequences::Texts;

/// A claim as the planner's readers see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimFacts {
    /// Spec of the claim.
    pub spec: ResourceClaimSpec,
    /// Driver, pool and name of the devices that the claim was given; `None`: nothing yet.
    pub devices: Option<Vec<[String; 3]>>,
}

/// A claim, in numbers of texts.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) struct PackedClaim {
    pub(super) spec: u32,
    /// True if the claim is being deleted: it goes as soon as it is out of use.
    pub(in crate::plan) is_going: bool,
    /// Names of the pods that may use it.
    pub(in crate::plan) pods: Box<[u32]>,
    /// Number of others that may use it.
    others: usize,
    /// Allocation of the claim, if there is one.
    pub(in crate::plan) allocation: Option<PackedAllocation>,
}

/// Allocation of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) struct PackedAllocation {
    selector: u32,
    pub(in crate::plan) results: Box<[PackedResult]>,
}

/// A device that a claim was given.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) struct PackedResult {
    pub(in crate::plan) driver: u32,
    pub(in crate::plan) pool: u32,
    pub(in crate::plan) device: u32,
    /// Parts of its capacities, where others may hold the rest.
    pub(in crate::plan) consumed: Option<u32>,
}

impl PackedClaim {
    pub(in crate::plan) fn pack(claim: &ResourceClaim, texts: &mut Texts) -> Self {
        let reserved = &claim.status.reserved_for;
        let pods: Box<[u32]> = reserved.iter().filter(|it| it.is_pod()).map(|it| texts.intern(&it.name)).collect();
        Self {
            spec: intern_json(texts, &claim.spec),
            is_going: claim.metadata.deletion_timestamp.is_some(),
            others: reserved.len() - pods.len(),
            pods,
            allocation: claim.status.allocation.as_ref().map(|given| PackedAllocation::pack(given, texts)),
        }
    }

    /// Unpacks the spec of the claim.
    pub(in crate::plan) fn spec(&self, texts: &Texts) -> ResourceClaimSpec {
        from_json(texts, self.spec).unwrap_or_default()
    }

    /// Returns the claim as the planner's readers see it.
    pub(super) fn facts(&self, texts: &Texts) -> ClaimFacts {
        let text = |number: u32| texts.get(number).to_owned();
        let device = |it: &PackedResult| [text(it.driver), text(it.pool), text(it.device)];
        let devices = self.allocation.as_ref().map(|given| given.results.iter().map(device).collect());
        ClaimFacts { spec: self.spec(texts), devices }
    }

    /// Number of pods and others that may use the claim.
    pub(in crate::plan) fn reserved(&self) -> usize {
        self.pods.len() + self.others
    }

    /// Returns the claim with other numbers of texts.
    pub(super) fn renumbered(&self, to: &mut impl Renumbering) -> Self {
        let Self { spec, is_going, pods, others, allocation } = self;
        Self {
            spec: to.text(*spec),
            is_going: *is_going,
            pods: pods.iter().map(|pod| to.text(*pod)).collect(),
            others: *others,
            allocation: allocation.as_ref().map(|given| given.renumbered(to)),
        }
    }

    /// Returns the claim without its allocation and its users.
    pub(in crate::plan) fn freed(&self) -> Self {
        Self { allocation: None, pods: Box::default(), others: 0, ..self.clone() }
    }

    /// Returns true if pods may use the claim, and only pods for which `is_such` holds.
    pub(in crate::plan) fn is_only_of(&self, is_such: impl Fn(u32) -> bool) -> bool {
        self.others == 0 && !self.pods.is_empty() && self.pods.iter().all(|pod| is_such(*pod))
    }
}

impl PackedAllocation {
    fn pack(given: &AllocationResult, texts: &mut Texts) -> Self {
        // A claim with administrative access to a device takes it from no other claim.
        let holding = given.devices.results.iter().filter(|result| result.admin_access != Some(true));
        Self {
            selector: intern_json(texts, &given.node_selector),
            results: holding.map(|result| PackedResult::pack(result, texts)).collect(),
        }
    }

    fn renumbered(&self, to: &mut impl Renumbering) -> Self {
        Self {
            selector: to.text(self.selector),
            results: self.results.iter().map(|result| result.renumbered(to)).collect(),
        }
    }

    /// Nodes on which the devices can be used; `None`: all.
    pub(in crate::plan) fn selector(&self, texts: &Texts) -> Option<NodeSelector> {
        from_json(texts, self.selector).flatten()
    }
}

impl PackedResult {
    fn pack(result: &DeviceRequestAllocationResult, texts: &mut Texts) -> Self {
        Self {
            driver: texts.intern(&result.driver),
            pool: texts.intern(&result.pool),
            device: texts.intern(&result.device),
            consumed: result.share_id.as_ref().map(|_| intern_json(texts, &result.consumed_capacity)),
        }
    }

    fn renumbered(&self, to: &mut impl Renumbering) -> Self {
        Self {
            driver: to.text(self.driver),
            pool: to.text(self.pool),
            device: to.text(self.device),
            consumed: self.consumed.map(|consumed| to.text(consumed)),
        }
    }
}
