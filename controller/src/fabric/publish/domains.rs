//! The switch domains of all managers, by the pools that they are: their names, the nodes at them, and their devices.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    core::{NodeSelector, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm},
    fabric::{DeviceIdentity, fabric_pool},
    few,
};
use hostler_fabric::{WatchedDomain, WatchedInventory};

use super::device::is_attribute;
use crate::{
    fabric::nodes::{HOSTNAME, Hostnames, hosts_in},
    observed::OfferedOtherwise,
};

const MAX_POOL_NAME: usize = 253;

/// The inventory of a manager, and the nodes that its hosts are.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManagerScene<'a> {
    pub(super) name: &'a str,
    pub(super) inventory: &'a WatchedInventory,
    pub(super) hostnames: &'a Hostnames,
}

/// A switch domain that can be a pool.
#[derive(Debug)]
pub(super) struct DomainPool<'a> {
    pub(super) manager: ManagerScene<'a>,
    /// Name of the domain in the pool.
    pub(super) domain: String,
    /// Hostnames of the nodes at the domain, in order.
    pub(super) hostnames: BTreeSet<String>,
    /// The domain with its devices.
    pub(super) watched: &'a WatchedDomain,
}

/// The domains of all managers by pool, and sentences about what cannot be one.
#[derive(Debug, Default)]
pub(super) struct DomainPools<'a> {
    pub(super) pools: BTreeMap<String, DomainPool<'a>>,
    pub(super) contradictions: Vec<String>,
    /// Domains that are not offered, and why.
    pub(super) left_out: Vec<String>,
}

impl<'a> DomainPools<'a> {
    /// The domains of these managers.
    pub(super) fn of(managers: impl IntoIterator<Item = ManagerScene<'a>>) -> Self {
        let mut found = Self::default();
        for manager in managers {
            let problems = manager.inventory.problems.iter();
            found.contradictions.extend(problems.map(|problem| format!("{}: {problem}", manager.name)));
            let mut named: BTreeMap<String, Vec<&WatchedDomain>> = BTreeMap::new();
            for domain in &manager.inventory.domains {
                named.entry(domain.domain.path.name().to_ascii_lowercase()).or_default().push(domain);
            }
            for (name, domains) in named {
                if let Err(why) = found.add(manager, &name, &domains) {
                    found.left_out.push(format!("{}: {why}", manager.name));
                }
            }
        }
        found
    }

    fn add(&mut self, manager: ManagerScene<'a>, name: &str, domains: &[&'a WatchedDomain]) -> Result<(), String> {
        let [watched] = domains else {
            let paths = few(domains.iter().map(|domain| &domain.domain.path));
            return Err(format!(
                "the domains {paths} would both be the pool {name}; rename one of them at the manager"
            ));
        };
        let path = &watched.domain.path;
        check_name(manager.name, name).map_err(|why| format!("{path} {why}"))?;
        let mut hostnames = BTreeSet::new();
        for host in hosts_in(manager.inventory, path) {
            match manager.hostnames.get(host) {
                Some(Ok(hostname)) => drop(hostnames.insert(hostname.clone())),
                Some(Err(why)) => self.contradictions.push(format!("{}: {why}", manager.name)),
                // The host is no node of this cluster.
                None => {}
            }
        }
        if hostnames.is_empty() {
            self.left_out.push(format!(
                "{}: {path} reaches no node of this cluster; see that the UUIDs of its hosts are those of the nodes",
                manager.name
            ));
        }
        let pool = DomainPool { manager, domain: name.to_owned(), hostnames, watched };
        self.pools.insert(fabric_pool(manager.name, name), pool);
        Ok(())
    }
}

/// Devices that several pools show, with these pools.
#[derive(Debug, Default)]
pub(super) struct ShownTwice(BTreeMap<DeviceIdentity, Vec<String>>);

impl ShownTwice {
    /// Such devices of these managers: all that there are.
    pub(super) fn of<'a>(managers: impl IntoIterator<Item = ManagerScene<'a>>) -> Self {
        let DomainPools { pools, .. } = DomainPools::of(managers);
        let mut shown: Vec<(DeviceIdentity, &String)> =
            pools.iter().flat_map(|(name, pool)| pool.watched.identities().map(move |it| (it, name))).collect();
        shown.sort();
        shown.dedup();
        let several = shown.chunk_by(|one, other| one.0 == other.0).filter(|pools| pools.len() > 1);
        Self(several.map(|pools| (pools[0].0, pools.iter().map(|(_, name)| (*name).clone()).collect())).collect())
    }

    /// Another pool that shows a device.
    pub(super) fn elsewhere(&self, device: DeviceIdentity, pool: &str) -> Option<&str> {
        self.0.get(&device)?.iter().map(String::as_str).find(|other| *other != pool)
    }
}

/// Checks that a domain can be a pool, and an attribute of its devices.
fn check_name(manager: &str, domain: &str) -> Result<(), String> {
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_label = |label: &str| {
        is_edge(label.chars().next())
            && is_edge(label.chars().last())
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if !domain.split('.').all(is_label) || fabric_pool(manager, domain).len() > MAX_POOL_NAME {
        return Err(
            "has a name that no pool can have; call it by letters, digits, '-' and '.' at the manager".to_owned()
        );
    }
    if !is_attribute(&format!("{manager}/{domain}")) {
        return Err("and its manager have names of more than 64 characters together; give the manager a shorter name"
            .to_owned());
    }
    Ok(())
}

/// Names of the pools that are to be offered anew where the cluster says something else of them, or of devices that these
/// managers show in them.
pub(super) fn outdated_pools<'a>(
    changes: OfferedOtherwise<'_>,
    managers: impl IntoIterator<Item = (&'a str, &'a WatchedInventory)>,
) -> BTreeSet<String> {
    let OfferedOtherwise { mut pools, devices } = changes;
    let devices: BTreeSet<_> = devices.into_iter().filter_map(DeviceIdentity::of_device_name).collect();
    if !devices.is_empty() {
        let domains = managers.into_iter().flat_map(|(name, it)| it.domains.iter().map(move |domain| (name, domain)));
        let showing = domains.filter(|(_, domain)| domain.identities().any(|device| devices.contains(&device)));
        pools.extend(showing.map(|(name, it)| fabric_pool(name, &it.domain.path.name().to_ascii_lowercase())));
    }
    pools
}

impl DomainPool<'_> {
    /// The selector of the nodes at the domain; `None` where there is none.
    pub(super) fn selector(&self) -> Option<NodeSelector> {
        let requirement = NodeSelectorRequirement {
            key: HOSTNAME.to_owned(),
            operator: NodeSelectorOperator::In,
            values: self.hostnames.iter().cloned().collect(),
        };
        let term = NodeSelectorTerm { match_expressions: vec![requirement], ..NodeSelectorTerm::default() };
        (!self.hostnames.is_empty()).then(|| NodeSelector { node_selector_terms: vec![term] })
    }
}
