//! Devices that sources offer, devices that claims hold, and grants that NodeHardware should have.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hostler_allocator::structured::Features;
use hostler_api::{
    hardware::NodeGrant,
    resource::{DeviceRequestAllocationResult, ResourceSlice},
};

use super::{
    catalogue::{ALLOCATOR_VERSION, replace},
    grants::{GrantTable, Grants},
    holdings::{HoldingChange, Holdings},
    model::{ClassicClaim, DeviceSource, NodeAccess, NodeState},
    offers::ReadOffers,
};

/// Nodes, sources, holdings and grants.
#[derive(Debug)]
pub(super) struct Inventory {
    driver: String,
    nodes: BTreeMap<String, NodeState>,
    sources: BTreeMap<String, DeviceSource>,
    /// Slices of sources that were examined lately.
    offers: RefCell<ReadOffers>,
    /// Sources that belong to no single node.
    shared: BTreeSet<String>,
    /// The source of each pool of our driver.
    pools: BTreeMap<String, String>,
    holdings: Holdings,
    wanted: GrantTable,
    written: GrantTable,
}

/// The changes that a new version of a source brings.
#[derive(Debug)]
pub(super) struct SourceNews {
    /// True if the source offers other devices than before.
    pub(super) is_news: bool,
    /// Claims whose grants in the source have changed.
    pub(super) concerned: BTreeSet<String>,
    /// Pools that the source did not have before.
    pub(super) pools: BTreeSet<String>,
}

impl Inventory {
    pub(super) fn new(driver: &str) -> Self {
        Self {
            driver: driver.to_owned(),
            nodes: BTreeMap::new(),
            sources: BTreeMap::new(),
            offers: RefCell::default(),
            shared: BTreeSet::new(),
            pools: BTreeMap::new(),
            holdings: Holdings::new(Features::for_version(ALLOCATOR_VERSION)),
            wanted: GrantTable::default(),
            written: GrantTable::default(),
        }
    }

    /// Stores or removes a node. Returns true if that changes anything.
    pub(super) fn set_node(&mut self, name: String, state: Option<NodeState>) -> bool {
        replace(&mut self.nodes, name, state)
    }

    /// Returns a node, if it exists.
    pub(super) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// Returns the nodes that can take pods, by name.
    pub(super) fn open_nodes(&self) -> impl Iterator<Item = (&String, NodeAccess)> {
        let nodes = self.nodes.iter().map(|(name, state)| (name, state.access));
        nodes.filter(|(_, access)| *access != NodeAccess::Closed)
    }

    /// Returns the names of all nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Stores a source.
    pub(super) fn set_source(&mut self, mut source: DeviceSource) -> SourceNews {
        let name = source.name.clone();
        let concerned = self.written.set_source(&name, std::mem::take(&mut source.grants));
        let before = self.sources.get(&name);
        let is_news = before.is_none_or(|before| !before.offers_the_same(&source));
        let mut pools = BTreeSet::new();
        if is_news {
            let is_of_it = |pool: &String| self.pools.get(pool) == Some(&name);
            pools.extend(source.offered.iter().map(|slice| slice.pool.clone()).filter(|pool| !is_of_it(pool)));
            self.forget_offer(&name);
            if source.node.is_none() {
                self.shared.insert(name.clone());
            }
            self.pools.extend(source.offered.iter().map(|slice| (slice.pool.clone(), name.clone())));
        }
        self.sources.insert(name, source);
        SourceNews { is_news, concerned, pools }
    }

    /// Removes a source and its grants. Returns whether anything changed, and the claims that had grants.
    pub(super) fn remove_source(&mut self, name: &str) -> (bool, BTreeSet<String>) {
        self.forget_offer(name);
        let is_news = self.sources.remove(name).is_some();
        (is_news, self.written.set_source(name, Grants::new()))
    }

    fn forget_offer(&mut self, name: &str) {
        self.shared.remove(name);
        self.offers.borrow_mut().forget(name);
        for slice in self.sources.get(name).into_iter().flat_map(|source| &source.offered) {
            if self.pools.get(&slice.pool).is_some_and(|of| of == name) {
                self.pools.remove(&slice.pool);
            }
        }
    }

    /// Returns the names of all sources.
    pub(super) fn source_names(&self) -> impl Iterator<Item = &String> {
        self.sources.keys()
    }

    /// Returns the version of a source that is known.
    pub(super) fn source_version(&self, name: &str) -> Option<&String> {
        self.sources.get(name).map(|source| &source.version)
    }

    /// Returns the source that offers a device.
    pub(super) fn source_of(&self, device: &DeviceRequestAllocationResult) -> Option<&str> {
        let is_ours = device.driver == self.driver;
        self.pools.get(&device.pool).filter(|_| is_ours).map(String::as_str)
    }

    /// Returns the devices that claims hold.
    pub(super) fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Notes that a claim holds these devices. Returns the effect on other claims.
    pub(super) fn hold(&mut self, uid: &str, devices: Vec<DeviceRequestAllocationResult>) -> HoldingChange {
        self.holdings.set(uid, devices)
    }

    /// Returns the grants that sources have.
    pub(super) fn written(&self) -> &GrantTable {
        &self.written
    }

    /// Returns the devices that sources have granted to a claim.
    pub(super) fn granted(&self, uid: &str) -> Vec<DeviceRequestAllocationResult> {
        self.written.given(uid).flat_map(|(_, grant)| &grant.devices).cloned().collect()
    }

    /// Sets the grants that sources should have for a claim. Returns the sources for which that is a change.
    pub(super) fn want(&mut self, claim: &ClassicClaim, devices: &[DeviceRequestAllocationResult]) -> BTreeSet<String> {
        let mut grants: BTreeMap<String, NodeGrant> = BTreeMap::new();
        for device in devices.iter().filter(|device| device.driver == self.driver) {
            let Some(source) = self.pools.get(&device.pool).or_else(|| self.giver(&claim.uid, device)) else {
                continue;
            };
            grants.entry(source.clone()).or_insert_with(|| empty_grant(claim)).devices.push(journal_entry(device));
        }
        // The grant is written and the claim is allocated: the version of the claim does not matter any more.
        for (source, grant) in grants.iter_mut().filter(|_| claim.allocation.is_some()) {
            let written = self.written.get(source, &claim.uid).filter(|written| written.devices == grant.devices);
            grant.claim_version = written.map_or_else(|| grant.claim_version.clone(), |it| it.claim_version.clone());
        }
        self.wanted.set_claim(&claim.uid, grants)
    }

    /// Returns the source with a grant of a device to a claim, whether or not it still offers the device.
    fn giver(&self, uid: &str, device: &DeviceRequestAllocationResult) -> Option<&String> {
        let entry = journal_entry(device);
        self.written.given(uid).find(|(_, grant)| grant.devices.contains(&entry)).map(|(source, _)| source)
    }

    /// Removes all wanted grants of a claim. Returns the sources for which that is a change.
    pub(super) fn want_nothing(&mut self, uid: &str) -> BTreeSet<String> {
        self.wanted.set_claim(uid, BTreeMap::new())
    }

    /// Returns true if every source has the grants that the claim should have.
    pub(super) fn is_granted(&self, uid: &str, devices: &[DeviceRequestAllocationResult]) -> bool {
        let is_written = |(source, grant): (&String, &NodeGrant)| self.written.get(source, uid) == Some(grant);
        devices.iter().all(|device| self.pools.contains_key(&device.pool)) && self.wanted.given(uid).all(is_written)
    }

    /// Returns true if a source has a grant of this device to the claim, with the same capacity.
    pub(super) fn is_given(&self, source: &str, uid: &str, device: &DeviceRequestAllocationResult) -> bool {
        self.written.get(source, uid).is_some_and(|grant| grant.devices.contains(&journal_entry(device)))
    }

    /// Returns true if a new version of a source has grants that this controller neither wrote nor wants.
    pub(super) fn is_given_by_others(&self, source: &DeviceSource) -> bool {
        let is_foreign = |(uid, grant): (&String, &NodeGrant)| {
            let known = [&self.written, &self.wanted].map(|table| table.get(&source.name, uid));
            known.into_iter().flatten().all(|known| known.devices != grant.devices)
        };
        source.grants.iter().any(is_foreign)
    }

    /// Returns the wanted grants that a source does not have yet.
    pub(super) fn missing_grants(&self, source: &str) -> Grants {
        let wanted = self.wanted.of(source).iter();
        let missing = wanted.filter(|(uid, grant)| self.written.get(source, uid) != Some(*grant));
        missing.map(|(uid, grant)| (uid.clone(), grant.clone())).collect()
    }

    /// Returns the grants of a source that are not wanted any more.
    pub(super) fn spare_grants(&self, source: &str) -> Grants {
        let written = self.written.of(source).iter();
        let spare = written.filter(|(uid, _)| self.wanted.get(source, uid).is_none());
        spare.map(|(uid, grant)| (uid.clone(), grant.clone())).collect()
    }

    /// Returns the slices that a node can use, if its NodeHardware is ready.
    pub(super) fn offers(&self, node: &str) -> Result<Vec<Arc<[ResourceSlice]>>, String> {
        let own = self.sources.get(node).filter(|source| source.node.as_deref() == Some(node));
        let own = own.ok_or_else(|| format!("nothing is known of the hardware of node {node}"))?;
        if !own.is_ready {
            return Err(format!("the NodeHardware of node {node} is not ready"));
        }
        let shared = self.shared.iter().filter_map(|name| self.sources.get(name)).filter(|source| source.is_ready);
        let mut offers = self.offers.borrow_mut();
        Ok(shared.chain([own]).map(|source| offers.of(source)).collect())
    }
}

fn empty_grant(claim: &ClassicClaim) -> NodeGrant {
    let (namespace, name) = (claim.key.namespace.clone(), claim.key.name.clone());
    NodeGrant { namespace, name, claim_version: claim.version.clone(), devices: Vec::new() }
}

/// Returns the fields of a device that a grant has: its identity and its capacity.
fn journal_entry(device: &DeviceRequestAllocationResult) -> DeviceRequestAllocationResult {
    DeviceRequestAllocationResult {
        tolerations: Vec::new(),
        binding_conditions: Vec::new(),
        binding_failure_conditions: Vec::new(),
        skip_node_operations: serde_json::Value::Null,
        ..device.clone()
    }
}
