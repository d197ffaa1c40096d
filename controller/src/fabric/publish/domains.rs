//! The switch domains of all managers, by the pools that they are: their names, the nodes at them, and their devices.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    core::{NodeSelector, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm},
    fabric::{DeviceIdentity, fabric_pool},
    few,
};
use hostler_fabric::{FabricDevice, FabricInventory, SwitchDomain};

use super::device::is_attribute;
use crate::fabric::nodes::{HOSTNAME, Hostnames, hosts_in};

const MAX_POOL_NAME: usize = 253;

/// The inventory of a manager, and the nodes that its hosts are.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManagerScene<'a> {
    pub(super) name: &'a str,
    pub(super) inventory: &'a FabricInventory,
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
    /// Devices at the domain, by identity.
    pub(super) devices: BTreeMap<DeviceIdentity, &'a FabricDevice>,
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
            let mut named: BTreeMap<String, Vec<&SwitchDomain>> = BTreeMap::new();
            for domain in &manager.inventory.domains {
                named.entry(domain.path.name().to_ascii_lowercase()).or_default().push(domain);
            }
            for (name, domains) in named {
                if let Err(why) = found.add(manager, &name, &domains) {
                    found.left_out.push(format!("{}: {why}", manager.name));
                }
            }
        }
        found
    }

    fn add(&mut self, manager: ManagerScene<'a>, name: &str, domains: &[&'a SwitchDomain]) -> Result<(), String> {
        let [domain] = domains else {
            let paths = few(domains.iter().map(|domain| &domain.path));
            return Err(format!(
                "the domains {paths} would both be the pool {name}; rename one of them at the manager"
            ));
        };
        check_name(manager.name, name).map_err(|why| format!("{} {why}", domain.path))?;
        let mut hostnames = BTreeSet::new();
        for host in hosts_in(manager.inventory, &domain.path) {
            match manager.hostnames.get(host) {
                Some(Ok(hostname)) => drop(hostnames.insert(hostname.clone())),
                Some(Err(why)) => self.contradictions.push(format!("{}: {why}", manager.name)),
                // The host is no node of this cluster.
                None => {}
            }
        }
        let devices = manager.inventory.devices.iter().filter(|device| device.domain.as_ref() == Some(&domain.path));
        let devices = devices.filter_map(|device| Some((device.identity?, device))).collect();
        if hostnames.is_empty() {
            self.left_out.push(format!(
                "{}: {} reaches no node of this cluster; see that the UUIDs of its hosts are those of the nodes",
                manager.name, domain.path
            ));
        }
        let pool = DomainPool { manager, domain: name.to_owned(), hostnames, devices };
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
        let of_pool = |(name, pool): (_, &DomainPool<'_>)| pool.devices.keys().map(move |it| (*it, name)).collect();
        let mut shown: Vec<(DeviceIdentity, &String)> = pools.iter().flat_map::<Vec<_>, _>(of_pool).collect();
        shown.sort();
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

impl DomainPool<'_> {
    /// True if memory can be made for the device of this name.
    pub(super) fn has_room(&self, name: &str) -> bool {
        let device = DeviceIdentity::of_device_name(name).and_then(|identity| self.devices.get(&identity));
        device.is_some_and(|device| device.room.is_some())
    }

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
