//! What there is, what of it claims hold, and what NodeHardware should say was given.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hostler_allocator::{plan::ObjectKey, structured::Features};
use hostler_api::{
    classic::NodeGrant,
    resource::{DeviceRequestAllocationResult, ResourceSlice},
};

use super::{catalogue::ALLOCATOR_VERSION, holdings::Holdings, model::DeviceSource};

/// How long a grant is kept for a claim that was never seen. Another controller may have written it for a claim that is on
/// its way to us.
const ORPHANS_KEPT: Duration = Duration::from_secs(30);

/// What there is.
#[derive(Debug)]
pub(super) struct Inventory {
    driver: String,
    nodes: BTreeMap<String, BTreeMap<String, String>>,
    sources: BTreeMap<String, SourceState>,
    /// Which source has a pool of our driver.
    pools: BTreeMap<String, String>,
    holdings: Holdings,
    /// By source, then by UID of the claim.
    wanted: BTreeMap<String, BTreeMap<String, NodeGrant>>,
    /// Which sources say that a claim was given something.
    granted: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
struct SourceState {
    source: DeviceSource,
    /// Since when there are grants for claims that nobody knows.
    orphans: BTreeMap<String, Duration>,
}

impl Inventory {
    pub(super) fn new(driver: &str) -> Self {
        Self {
            driver: driver.to_owned(),
            nodes: BTreeMap::new(),
            sources: BTreeMap::new(),
            pools: BTreeMap::new(),
            holdings: Holdings::new(Features::for_version(ALLOCATOR_VERSION)),
            wanted: BTreeMap::new(),
            granted: BTreeMap::new(),
        }
    }

    /// A node is there or gone. Says whether that is news.
    pub(super) fn set_node(&mut self, name: String, labels: Option<BTreeMap<String, String>>) -> bool {
        if self.nodes.get(&name) == labels.as_ref() {
            return false;
        }
        match labels {
            Some(labels) => drop(self.nodes.insert(name, labels)),
            None => drop(self.nodes.remove(&name)),
        }
        true
    }

    /// The labels of a node, if there is one.
    pub(super) fn labels(&self, node: &str) -> Option<&BTreeMap<String, String>> {
        self.nodes.get(node)
    }

    /// All nodes, by name.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// A source is there. Says whether it offers something else than before.
    pub(super) fn set_source(&mut self, source: DeviceSource) -> bool {
        let name = source.name.clone();
        let before = self.sources.get(&name).map(|state| &state.source);
        let is_news = before.is_none_or(|before| !offers_the_same(before, &source));
        if is_news {
            self.pools.retain(|_, of| *of != name);
            let ours = source.slices.iter().filter(|slice| slice.spec.driver == self.driver);
            self.pools.extend(ours.map(|slice| (slice.spec.pool.name.clone(), name.clone())));
        }
        let before = self.sources.remove(&name);
        let (orphans, grants) = before.map(|state| (state.orphans, state.source.grants)).unwrap_or_default();
        self.index_grants(&name, &grants, &source.grants);
        self.sources.insert(name, SourceState { source, orphans });
        is_news
    }

    fn index_grants(&mut self, source: &str, old: &BTreeMap<String, NodeGrant>, new: &BTreeMap<String, NodeGrant>) {
        for uid in old.keys().filter(|uid| !new.contains_key(*uid)) {
            if let Some(sources) = self.granted.get_mut(uid) {
                sources.remove(source);
                if sources.is_empty() {
                    self.granted.remove(uid);
                }
            }
        }
        for uid in new.keys() {
            self.granted.entry(uid.clone()).or_default().insert(source.to_owned());
        }
    }

    /// A source is gone, and with it what it said was given.
    pub(super) fn remove_source(&mut self, name: &str) -> Option<DeviceSource> {
        self.pools.retain(|_, of| of != name);
        let source = self.sources.remove(name)?.source;
        self.index_grants(name, &source.grants, &BTreeMap::new());
        Some(source)
    }

    /// All sources, by name.
    pub(super) fn source_names(&self) -> impl Iterator<Item = &String> {
        self.sources.keys()
    }

    /// A source.
    pub(super) fn source(&self, name: &str) -> Option<&DeviceSource> {
        self.sources.get(name).map(|state| &state.source)
    }

    /// What a claim holds.
    pub(super) fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// A claim holds these devices. Says whether that is news.
    pub(super) fn hold(&mut self, uid: &str, devices: Vec<DeviceRequestAllocationResult>) -> bool {
        self.holdings.set(uid, devices)
    }

    /// Which sources say that a claim was given something.
    pub(super) fn granted_by(&self, uid: &str) -> impl Iterator<Item = &String> {
        self.granted.get(uid).into_iter().flatten()
    }

    /// What sources say that a claim was given.
    pub(super) fn granted(&self, uid: &str) -> Vec<DeviceRequestAllocationResult> {
        let grants = self.granted_by(uid).filter_map(|source| self.source(source)?.grants.get(uid));
        grants.flat_map(|grant| &grant.devices).cloned().collect()
    }

    /// Claims, by UID, that shall have something of a source, or that it says something else of.
    pub(super) fn concerned_by(&self, before: Option<&DeviceSource>, now: Option<&DeviceSource>) -> BTreeSet<String> {
        let none = BTreeMap::new();
        let [before, now] = [before, now].map(|source| source.map_or(&none, |source| &source.grants));
        let differs = |uid: &&String| before.get(*uid) != now.get(*uid);
        before.keys().chain(now.keys()).filter(differs).cloned().collect()
    }

    /// What a source shall say was given.
    pub(super) fn wanted_of(&self, source: &str) -> impl Iterator<Item = (&String, &NodeGrant)> {
        self.wanted.get(source).into_iter().flatten()
    }

    /// Sources shall say that a claim was given these devices, or nothing. Names the sources that are concerned.
    pub(super) fn want(
        &mut self,
        uid: &str,
        claim: &ObjectKey,
        devices: &[DeviceRequestAllocationResult],
    ) -> BTreeSet<String> {
        let mut sources = BTreeSet::new();
        for (source, wanted) in &mut self.wanted {
            if wanted.remove(uid).is_some() {
                sources.insert(source.clone());
            }
        }
        for device in devices.iter().filter(|device| device.driver == self.driver) {
            let Some(source) = self.pools.get(&device.pool) else { continue };
            sources.insert(source.clone());
            let grant = self.wanted.entry(source.clone()).or_default().entry(uid.to_owned()).or_insert_with(|| {
                let ObjectKey { namespace, name } = claim.clone();
                NodeGrant { namespace, name, devices: Vec::new() }
            });
            grant.devices.push(journal_entry(device));
        }
        self.wanted.retain(|_, wanted| !wanted.is_empty());
        sources
    }

    /// Whether every source says that the claim was given what it shall have.
    pub(super) fn is_granted(&self, uid: &str, devices: &[DeviceRequestAllocationResult]) -> bool {
        let has_source = |device: &DeviceRequestAllocationResult| self.pools.contains_key(&device.pool);
        devices.iter().all(has_source)
            && self
                .wanted
                .iter()
                .filter_map(|(source, wanted)| Some((source, wanted.get(uid)?)))
                .all(|(source, wanted)| self.source(source).and_then(|source| source.grants.get(uid)) == Some(wanted))
    }

    /// What is to be changed of what a source says was given, and when to look again. `may_release` says of a claim by its
    /// UID whether its grant can go; `None` if the claim is not known.
    pub(super) fn grants_to_write(
        &mut self,
        name: &str,
        now: Duration,
        may_release: impl Fn(&str) -> Option<bool>,
    ) -> (BTreeMap<String, Option<NodeGrant>>, Option<Duration>) {
        let (mut changes, mut later) = (BTreeMap::new(), None);
        let Some(state) = self.sources.get_mut(name) else { return (changes, later) };
        let none = BTreeMap::new();
        let wanted = self.wanted.get(name).unwrap_or(&none);
        for (uid, grant) in wanted.iter().filter(|(uid, grant)| state.source.grants.get(*uid) != Some(*grant)) {
            changes.insert(uid.clone(), Some(grant.clone()));
        }
        state.orphans.retain(|uid, _| state.source.grants.contains_key(uid));
        for uid in state.source.grants.keys().filter(|uid| !wanted.contains_key(*uid)) {
            let is_free = may_release(uid).unwrap_or_else(|| {
                let since = *state.orphans.entry(uid.clone()).or_insert(now);
                let left = (since + ORPHANS_KEPT).saturating_sub(now);
                later =
                    if left.is_zero() { later } else { Some(later.map_or(left, |known: Duration| known.min(left))) };
                left.is_zero()
            });
            if is_free {
                changes.insert(uid.clone(), None);
            }
        }
        (changes, later)
    }

    /// The slices that a node can use, if it can be relied on.
    pub(super) fn slices<'a>(&'a self, node: &'a str) -> Result<Vec<&'a ResourceSlice>, String> {
        let own = self.source(node).filter(|source| source.node.as_deref() == Some(node));
        let own = own.ok_or_else(|| format!("nothing is known of the hardware of node {node}"))?;
        if !own.is_ready {
            return Err(format!("the NodeHardware of node {node} is not ready"));
        }
        let shared = self.sources.values().map(|state| &state.source);
        let shared = shared.filter(|source| source.node.is_none() && source.is_ready);
        Ok(shared.chain([own]).flat_map(|source| &source.slices).collect())
    }
}

fn offers_the_same(one: &DeviceSource, other: &DeviceSource) -> bool {
    let content = |source: &DeviceSource| {
        let slices = source.slices.iter().map(|slice| serde_json::to_string(&slice.spec).ok());
        (source.node.clone(), source.is_ready, slices.collect::<Vec<_>>())
    };
    content(one) == content(other)
}

/// What the journal says of a device: which, and how much of it.
pub(super) fn journal_entry(device: &DeviceRequestAllocationResult) -> DeviceRequestAllocationResult {
    DeviceRequestAllocationResult {
        tolerations: Vec::new(),
        binding_conditions: Vec::new(),
        binding_failure_conditions: Vec::new(),
        skip_node_operations: serde_json::Value::Null,
        ..device.clone()
    }
}
