//! Offers of this host's devices to a claim that is not allocated: the scheduler's allocator, asked about one node.
//! Pure.
//!
//! A host without a cluster has no API server that holds slices and classes. The slices are those that this host would
//! publish; the classes are those of hostler's deployment, and those given beside the claim.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use hostler_allocator::structured::{
    AllocatedState, Allocator, Budget, Features, GatherError, NodeFacts, NodePools, Refusal, SliceIndex,
};
use hostler_api::{
    Access, KubernetesVersion,
    resource::{
        AllocationResult, DeviceClass, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice, SliceQuantity,
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    claims::{ClaimTable, ClaimView, store::RecordDevice},
    inventory::Inventory,
    kubernetes::{
        holds::HoldsInForce,
        slices::{Dropped, SliceSettings, desired_slices},
    },
    standalone::{UnallocatedClaim, rounded_requests},
};

/// The newest version: a host without a cluster has no older scheduler to agree with.
const VERSION: KubernetesVersion = KubernetesVersion::V1_37;

/// Steps of one search. A claim of 32 devices on a host with thousands takes some ten thousand; a claim that takes more
/// has constraints that cannot be met in any way, and would keep a thread busy for hours.
const MOST_STEPS: u64 = 2_000_000;

/// Greatest number of claims of one kind that is counted, more than any caller asks about.
const MOST_FITS: usize = 1000;

/// Classes of hostler's deployment, with the usual name of the driver.
const CLASSES: &str = include_str!("../deploy/cluster/deviceclasses.yaml");
const USUAL_DRIVER: &str = "hostler.dev";

/// Fit of a claim on this host: the answer of `POST /v1/fits`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimFit {
    /// `namespace/name` of the claim.
    pub claim: String,
    /// Number of such claims that the host could satisfy, one after the other.
    pub times: usize,
    /// True if it could be more: counting ended at its limit.
    pub at_least: bool,
    /// Devices that the first of them would be given.
    pub devices: Vec<DeviceRequestAllocationResult>,
    /// Notes on devices that are given otherwise than requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The reason why no more of them fit.
    pub refusal: Option<String>,
    /// Pools and devices of this host that are not known, and so not offered.
    pub unknown: Vec<String>,
}

/// The reason why a claim is given nothing.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The claim has an allocation already.
    #[error("field status.allocation: the claim is allocated already; put its manifest into the folder of claims")]
    Allocated,
    /// The claim asks for nothing.
    #[error("field spec.devices.requests: nothing is asked for; write at least one request")]
    Empty,
    /// Classes of the deployment do not parse: an error of the build.
    #[error("the device classes of hostler cannot be read: {0}")]
    Classes(String),
    /// A device's own selector of nodes is invalid.
    #[error("failed to look at the devices of this host")]
    Gather(#[source] GatherError),
    /// The allocator's reason.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Devices that a host can give at one moment.
#[derive(Debug)]
pub struct NodeOffer {
    node: String,
    driver: String,
    slices: Vec<ResourceSlice>,
    held: AllocatedState,
    unknown: Vec<String>,
}

impl NodeOffer {
    /// Makes an offer of the devices of `inventory` that the claims on record leave.
    pub fn new(node: &str, settings: &SliceSettings, inventory: &Inventory, table: &ClaimTable) -> Self {
        let pools = desired_slices(inventory, &HoldsInForce::default(), settings, &Dropped::new());
        let unknown =
            pools.iter().filter(|pool| pool.unknown).map(|pool| format!("pool {} is not known yet", pool.name));
        let left_out = pools.iter().flat_map(|pool| &pool.left_out).cloned();
        Self {
            node: node.to_owned(),
            driver: settings.driver.clone(),
            unknown: unknown.chain(left_out).collect(),
            slices: pools.iter().flat_map(|pool| pool.objects(node, &settings.driver)).collect(),
            held: held(&settings.driver, inventory, table),
        }
    }

    /// Takes allocations of claims that are not on record yet out of the offer.
    #[must_use]
    pub fn and_promised<'a>(mut self, allocations: impl IntoIterator<Item = &'a AllocationResult>) -> Self {
        allocations.into_iter().for_each(|allocation| self.held.add(Features::for_version(VERSION), allocation));
        self
    }

    /// Allocates devices to the claim.
    ///
    /// # Errors
    /// Returns the first reason why the claim gets none.
    pub fn allocate(&self, asked: &UnallocatedClaim) -> Result<AllocationResult, FitError> {
        let mut given = Vec::new();
        match self.repeat(asked, 1, &mut given)? {
            Some(refusal) => Err(refusal.into()),
            None => given.pop().ok_or(FitError::Empty),
        }
    }

    /// Counts how often the claim could be satisfied, and returns the reason why not more often.
    ///
    /// # Errors
    /// Fails when the question makes no sense; that nothing fits is an answer.
    pub fn fit(&self, asked: &UnallocatedClaim) -> Result<ClaimFit, FitError> {
        let mut given = Vec::new();
        let refusal = self.repeat(asked, MOST_FITS, &mut given)?;
        let devices = given.first().map(|first| first.devices.results.clone()).unwrap_or_default();
        Ok(ClaimFit {
            claim: format!("{}/{}", asked.claim.metadata.namespace, asked.claim.metadata.name),
            times: given.len(),
            at_least: refusal.is_none(),
            notes: rounded_requests(&asked.claim, &devices),
            devices,
            refusal: refusal.map(|refusal| refusal.to_string()),
            unknown: self.unknown.clone(),
        })
    }

    /// Satisfies the claim `most` times, or up to a refusal.
    fn repeat(
        &self,
        asked: &UnallocatedClaim,
        most: usize,
        given: &mut Vec<AllocationResult>,
    ) -> Result<Option<Refusal>, FitError> {
        check(&asked.claim)?;
        let allocator = Allocator::for_version(VERSION, classes(&self.driver, &asked.classes)?);
        let index = SliceIndex::new(&self.slices);
        let labels = BTreeMap::new();
        let node = NodeFacts { name: &self.node, labels: &labels };
        let pools: NodePools<'_> = allocator.gather(node, &index).map_err(FitError::Gather)?;
        let compiled = allocator.compile([&asked.claim]);
        let mut state = self.held.clone();
        while given.len() < most {
            match allocator.allocate(&pools, &state, &compiled, &mut Budget::steps(MOST_STEPS)) {
                Ok(results) => {
                    results.iter().for_each(|result| state.add(allocator.features(), result));
                    given.extend(results);
                }
                Err(refusal) => return Ok(Some(refusal)),
            }
        }
        Ok(None)
    }
}

fn check(claim: &ResourceClaim) -> Result<(), FitError> {
    if claim.status.allocation.is_some() {
        return Err(FitError::Allocated);
    }
    if claim.spec.devices.requests.is_empty() { Err(FitError::Empty) } else { Ok(()) }
}

/// Returns the devices that claims on record hold, damaged records too. A renamed pool is found by its backend.
fn held(driver: &str, inventory: &Inventory, table: &ClaimTable) -> AllocatedState {
    let mut state = AllocatedState::new();
    for device in table.claims.values().flat_map(ClaimView::devices) {
        let pool = inventory.pools.get(&device.backend).map_or(&*device.grant.pool, |pool| &pool.name);
        hold(&mut state, driver, pool, device);
    }
    state
}

fn hold(state: &mut AllocatedState, driver: &str, pool: &str, held: &RecordDevice) {
    let (grant, device) = (&held.grant, held.local_name().as_str());
    match &grant.share_id {
        _ if grant.access == Access::Admin => {}
        None => state.hold(driver, pool, device),
        Some(share) => {
            let consumed: Vec<(String, SliceQuantity)> =
                grant.consumed.iter().map(|(name, quantity)| (name.to_string(), (*quantity).into())).collect();
            state.share(driver, pool, device, &share.0);
            state.consume(driver, pool, device, consumed.iter().map(|(name, quantity)| (&**name, quantity)));
        }
    }
}

/// Returns the classes that a claim names and this daemon does not know: it reads none from the API server.
///
/// # Errors
/// Fails when hostler's own classes cannot be read.
pub fn foreign_classes<'a>(driver: &str, claim: &'a ResourceClaim) -> Result<BTreeSet<&'a str>, FitError> {
    let known = classes(driver, &[])?;
    let named = claim.spec.devices.requests.iter().flat_map(|request| {
        let one_of = request.first_available.iter().map(|wanted| &wanted.device_class_name);
        request.exactly.iter().map(|wanted| &wanted.device_class_name).chain(one_of)
    });
    let is_foreign = |name: &&str| !known.iter().any(|class| class.metadata.name == *name);
    Ok(named.map(String::as_str).filter(is_foreign).collect())
}

/// Returns the classes that a claim can name.
fn classes(driver: &str, own: &[DeviceClass]) -> Result<Vec<DeviceClass>, FitError> {
    static USUAL: LazyLock<Result<Vec<DeviceClass>, String>> =
        LazyLock::new(|| serde_saphyr::from_multiple(CLASSES).map_err(|error| error.to_string()));
    let usual = match driver {
        USUAL_DRIVER => USUAL.clone(),
        other => serde_saphyr::from_multiple(&CLASSES.replace(USUAL_DRIVER, other)).map_err(|error| error.to_string()),
    };
    let mut classes = usual.map_err(FitError::Classes)?;
    // The last one of a name counts.
    classes.extend_from_slice(own);
    Ok(classes)
}

#[cfg(test)]
mod tests;
