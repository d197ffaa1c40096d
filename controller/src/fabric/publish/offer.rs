//! The slices that should exist: a function of what managers, nodes, FabricAttachments and claims say, and of the slices
//! that are there. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hostler_api::{
    core::NodeSelector,
    fabric::{DeviceIdentity, of_fabric_pool},
    few,
    limits::MAX_ADVANCED_DEVICES,
    resource::{SliceContent, SliceDevice},
};
use hostler_reconcile::slices::{DesiredPool, DesiredSlice, PublishedSlice, slice_name};

use super::{
    device::{DeviceInUse, DevicePlace, OfferState, entry},
    domains::{DomainPool, DomainPools, ManagerScene},
};
use crate::observed::FabricObjects;

/// Everything that decides what is offered, at one moment.
#[derive(Debug)]
pub(super) struct OfferScene<'a> {
    pub(super) driver: &'a str,
    /// Managers that were read since this process leads.
    pub(super) managers: Vec<ManagerScene<'a>>,
    /// Managers of the configuration of which nothing is known: their slices stay.
    pub(super) unread: BTreeSet<&'a str>,
    pub(super) objects: &'a FabricObjects,
    /// Pools on the server.
    pub(super) published: BTreeMap<&'a str, PublishedPool<'a>>,
    /// Time since 1970.
    pub(super) now: Duration,
}

/// A pool on the server.
#[derive(Debug, Default)]
pub(super) struct PublishedPool<'a> {
    selector: Option<&'a NodeSelector>,
    devices: BTreeMap<&'a str, &'a SliceDevice>,
}

/// The pools as they should be.
#[derive(Debug, Default)]
pub(super) struct FabricOffer {
    /// Pools that are to exist, or exist.
    pub(super) pools: BTreeMap<String, DesiredPool>,
    pub(super) contradictions: Vec<String>,
    /// Domains and devices that are not offered, and why.
    pub(super) left_out: Vec<String>,
    /// Number of devices by pool and state.
    pub(super) devices: BTreeMap<(String, &'static str), usize>,
}

/// The label of devices that are not offered.
const LEFT_OUT: &str = "left_out";

/// Gathers the pools on the server from their slices.
pub(super) fn published<'a>(slices: impl Iterator<Item = &'a PublishedSlice>) -> BTreeMap<&'a str, PublishedPool<'a>> {
    let mut pools: BTreeMap<&str, PublishedPool<'_>> = BTreeMap::new();
    let mut slices: Vec<&PublishedSlice> = slices.collect();
    // Where a generation is not complete, the newer word about a device counts.
    slices.sort_by_key(|slice| slice.pool.generation);
    for slice in slices {
        let pool = pools.entry(&slice.pool.name).or_default();
        pool.selector = slice.content.node_selector.as_deref();
        pool.devices.extend(slice.content.devices.iter().map(|device| (&*device.name, device)));
    }
    pools
}

/// Decides what is offered.
pub(super) fn offer(scene: &OfferScene<'_>) -> FabricOffer {
    let domains = DomainPools::of(scene.managers.iter().copied());
    let twice = domains.shown_twice();
    let mut offer = FabricOffer::default();
    let names: BTreeSet<&str> =
        domains.pools.keys().map(String::as_str).chain(scene.published.keys().copied()).collect();
    for name in names {
        let is_unread = of_fabric_pool(name).is_some_and(|(manager, _)| scene.unread.contains(manager));
        let pool = match domains.pools.get(name) {
            None if is_unread => DesiredPool { unknown: true, ..empty(name) },
            domain => scene.pool(name, domain, &twice, &mut offer),
        };
        offer.left_out.extend(pool.left_out.iter().cloned());
        offer.pools.insert(name.to_owned(), pool);
    }
    offer.contradictions = domains.contradictions;
    offer.left_out.extend(domains.left_out);
    for scene in &scene.managers {
        offer.left_out.extend(astray(scene));
    }
    offer
}

fn empty(name: &str) -> DesiredPool {
    DesiredPool { name: name.to_owned(), slices: Vec::new(), left_out: Vec::new(), unknown: false }
}

/// Says that devices of a manager are at no switch, or have no identity.
fn astray(manager: &ManagerScene<'_>) -> Option<String> {
    let is_astray = |device: &&hostler_fabric::FabricDevice| device.domain.is_none() || device.identity.is_none();
    let astray = manager.inventory.devices.iter().filter(is_astray).map(|device| &device.path);
    let astray = few(astray);
    (!astray.is_empty()).then(|| {
        format!(
            "{}: devices without a serial number, or at no switch: {astray}; see what the manager tells of them",
            manager.name
        )
    })
}

impl OfferScene<'_> {
    /// Makes a pool of a domain; without one, of what claims have of the pool on the server.
    fn pool(
        &self,
        name: &str,
        domain: Option<&DomainPool<'_>>,
        twice: &BTreeMap<DeviceIdentity, Vec<&str>>,
        offer: &mut FabricOffer,
    ) -> DesiredPool {
        let none = PublishedPool::default();
        let before = self.published.get(name).unwrap_or(&none);
        let mut pool = empty(name);
        let mut count = |state: &'static str| *offer.devices.entry((name.to_owned(), state)).or_default() += 1;
        let mut devices: BTreeMap<String, SliceDevice> = BTreeMap::new();
        // A claim that has a device was given it as it is there: it stays so until the claim lets go.
        for (device, entry) in before.devices.iter().filter(|(device, _)| self.is_claimed(name, device)) {
            let state = self.state(device);
            count(state.as_str());
            let place = domain.map(|domain| self.place(domain, device, None));
            let in_use =
                place.zip(DeviceIdentity::of_device_name(device)).and_then(|(it, id)| DeviceInUse::of(id, &it));
            let taints = in_use.map_or_else(|| state.taints(), |in_use| vec![in_use.taint]);
            devices.insert((*device).to_owned(), SliceDevice { taints, ..(*entry).clone() });
        }
        let selector = domain.and_then(DomainPool::selector);
        if let Some(domain) = domain.filter(|_| selector.is_some()) {
            for (identity, device) in &domain.devices {
                let device_name = identity.device_name();
                if devices.contains_key(&device_name) {
                    continue;
                }
                let others: Vec<&str> =
                    twice.get(identity).into_iter().flatten().copied().filter(|it| *it != name).collect();
                let others = others.first().copied();
                let place = self.place(domain, &device_name, others);
                match (entry(*identity, device, &place), DeviceInUse::of(*identity, &place)) {
                    (Ok(entry), Some(DeviceInUse { taint, reason })) => {
                        count(LEFT_OUT);
                        pool.left_out.push(format!("{name}/{device_name}: {reason}"));
                        devices.insert(device_name, SliceDevice { taints: vec![taint], ..entry });
                    }
                    (Ok(entry), None) => {
                        let state = self.state(&device_name);
                        count(state.as_str());
                        devices.insert(device_name, SliceDevice { taints: state.taints(), ..entry });
                    }
                    (Err(why), _) => {
                        count(LEFT_OUT);
                        pool.left_out.push(format!("{name}/{device_name}: {why}"));
                    }
                }
            }
        }
        let devices: Vec<SliceDevice> = devices.into_values().collect();
        pool.slices = slices(self.driver, name, selector.as_ref().or(before.selector), &devices);
        pool
    }

    fn place<'b>(&'b self, domain: &'b DomainPool<'b>, device: &str, elsewhere: Option<&'b str>) -> DevicePlace<'b> {
        DevicePlace {
            manager: domain.manager.name,
            domain: &domain.domain,
            inventory: domain.manager.inventory,
            attachment: self.objects.attachments.get(device).map(|object| &**object),
            elsewhere,
            now: self.now,
        }
    }

    fn state(&self, device: &str) -> OfferState {
        OfferState::of(self.objects.attachments.get(device).map(|object| &**object))
    }

    fn is_claimed(&self, pool: &str, device: &str) -> bool {
        self.objects.claims.get(device).into_iter().flatten().any(|claim| claim.pool == pool)
    }
}

/// Spreads devices over slices. Each of them may have a taint one day, and must not move all others then.
fn slices(driver: &str, pool: &str, selector: Option<&NodeSelector>, devices: &[SliceDevice]) -> Vec<DesiredSlice> {
    let slice = |(index, devices): (usize, &[SliceDevice])| {
        let content = SliceContent {
            node_selector: selector.cloned().map(Box::new),
            devices: devices.to_vec(),
            ..SliceContent::default()
        };
        DesiredSlice { name: slice_name(index, driver, pool), content: Arc::new(content) }
    };
    devices.chunks(MAX_ADVANCED_DEVICES).enumerate().map(slice).collect()
}
