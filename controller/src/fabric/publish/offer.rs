//! The slices that should exist: a function of what managers, nodes, FabricAttachments and claims say, and of the slices
//! that are there. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hostler_api::{
    Quantity,
    core::NodeSelector,
    fabric::{DeviceIdentity, of_fabric_pool},
    few,
    limits::MAX_ADVANCED_DEVICES,
    resource::{DeviceTaint, SliceContent, SliceDevice},
    well_known::HELD_TAINT,
};
use hostler_fabric::{FabricDevice, MemoryRoom, ObjectPath};
use hostler_reconcile::slices::{DesiredPool, DesiredSlice, PublishedSlice, slice_name};

use super::{
    device::{DeviceInUse, DevicePlace, OfferState, entry},
    domains::{DomainPool, DomainPools, ManagerScene, ShownTwice},
};
use crate::observed::{FabricObjects, PooledHold};

/// Everything that decides what is offered, at one moment.
#[derive(Debug)]
pub(super) struct OfferScene<'a> {
    pub(super) driver: &'a str,
    /// Managers that were read since this process leads; of an offer of one pool, its manager alone.
    pub(super) managers: Vec<ManagerScene<'a>>,
    /// Devices of all managers that several pools show.
    pub(super) twice: &'a ShownTwice,
    /// Managers of the configuration of which nothing is known: their slices stay.
    pub(super) unread: BTreeSet<&'a str>,
    pub(super) objects: &'a FabricObjects,
    /// Names of the pools on the server.
    pub(super) published: BTreeSet<&'a str>,
    /// Time since 1970.
    pub(super) now: Duration,
}

/// A pool on the server.
#[derive(Debug, Default)]
struct PublishedPool<'a> {
    devices: BTreeMap<&'a str, PublishedEntry<'a>>,
}

/// A device on the server.
#[derive(Clone, Copy, Debug)]
struct PublishedEntry<'a> {
    device: &'a SliceDevice,
    /// The nodes that can use it.
    selector: Option<&'a NodeSelector>,
}

/// A device as it is to be offered, without its taints.
struct OfferedEntry {
    device: SliceDevice,
    selector: Option<NodeSelector>,
}

/// A pool as its manager shows it and as it is on the server.
#[derive(Clone, Copy)]
struct PoolSides<'a> {
    name: &'a str,
    /// The switch domain; `None`: no manager shows it.
    domain: Option<&'a DomainPool<'a>>,
    /// Devices at the domain.
    devices: &'a BTreeMap<DeviceIdentity, FabricDevice>,
    before: &'a PublishedPool<'a>,
}

/// Sentences and counts about the pools as they should be.
#[derive(Debug, Default)]
pub(super) struct FabricOffer {
    pub(super) contradictions: Vec<String>,
    /// Devices that are not offered, and why, by pool.
    left_out: BTreeMap<String, Vec<String>>,
    /// Domains, and devices at no switch, that are not offered, and why.
    left_out_beside: Vec<String>,
    /// Number of devices by pool and state.
    pub(super) devices: BTreeMap<(String, &'static str), usize>,
}

impl FabricOffer {
    /// Domains and devices that are not offered, and why.
    pub(super) fn left_out(&self) -> Vec<String> {
        self.left_out.values().flatten().chain(&self.left_out_beside).cloned().collect()
    }

    /// Takes what an offer of one pool says of that pool.
    pub(super) fn renew(&mut self, pool: &str, of_pool: Self) {
        self.left_out.remove(pool);
        self.left_out.extend(of_pool.left_out);
        self.devices.retain(|(name, _), _| name != pool);
        self.devices.extend(of_pool.devices);
    }
}

/// The label of devices that are not offered.
const LEFT_OUT: &str = "left_out";

/// Gathers a pool on the server from its slices.
fn published<'a>(slices: impl Iterator<Item = &'a PublishedSlice>) -> PublishedPool<'a> {
    let mut pool = PublishedPool::default();
    let mut slices: Vec<&PublishedSlice> = slices.collect();
    // Where a generation is not complete, the newer word about a device counts.
    slices.sort_by_key(|slice| slice.pool.generation);
    for slice in slices {
        let selector = slice.content.node_selector.as_deref();
        let entry = |device| PublishedEntry { device, selector };
        pool.devices.extend(slice.content.devices.iter().map(|device| (&*device.name, entry(device))));
    }
    pool
}

/// Decides what is offered in all pools, or in one: each is reconciled every half a minute, and with many of them, making
/// the whole offer for each would take a processor. `known` returns the slices of a pool on the server, by name. `take`
/// is given each pool that is to exist, or exists, with them: pool by pool, since all devices of all pools would take more
/// memory than everything that is known of them.
pub(super) fn offer<'k>(
    scene: &OfferScene<'_>,
    only: Option<&str>,
    known: impl Fn(&str) -> BTreeMap<&'k str, PublishedSlice>,
    mut take: impl FnMut(DesiredPool, &BTreeMap<&'k str, PublishedSlice>),
) -> FabricOffer {
    let is_meant = |name: &&str| only.is_none_or(|only| only == *name);
    let domains = DomainPools::of(scene.managers.iter().copied());
    let mut offer = FabricOffer::default();
    let names: BTreeSet<&str> =
        domains.pools.keys().map(String::as_str).chain(scene.published.iter().copied()).filter(is_meant).collect();
    for name in names {
        let is_unread = of_fabric_pool(name).is_some_and(|(manager, _)| scene.unread.contains(manager));
        let slices = known(name);
        let before = published(slices.values());
        let domain = domains.pools.get(name);
        let devices = domain.map_or_else(|| (!is_unread).then(BTreeMap::new), |domain| domain.watched.devices());
        let pool = match &devices {
            None => DesiredPool { unknown: true, ..empty(name) },
            Some(devices) => scene.pool(PoolSides { name, domain, devices, before: &before }, &mut offer),
        };
        if !pool.left_out.is_empty() {
            offer.left_out.insert(name.to_owned(), pool.left_out.clone());
        }
        take(pool, &slices);
    }
    offer.contradictions = domains.contradictions;
    offer.left_out_beside = domains.left_out;
    for scene in &scene.managers {
        offer.left_out_beside.extend(astray(scene));
    }
    offer
}

fn empty(name: &str) -> DesiredPool {
    DesiredPool { name: name.to_owned(), slices: Vec::new(), left_out: Vec::new(), unknown: false }
}

/// Says that devices of a manager are at no switch, or have no identity.
fn astray(manager: &ManagerScene<'_>) -> Option<String> {
    let astray = few(&manager.inventory.astray);
    (!astray.is_empty()).then(|| {
        format!(
            "{}: devices without a serial number, or at no switch: {astray}; see what the manager tells of them",
            manager.name
        )
    })
}

impl OfferScene<'_> {
    /// Makes a pool of a domain; without one, of what claims have of the pool on the server.
    fn pool(&self, sides: PoolSides<'_>, offer: &mut FabricOffer) -> DesiredPool {
        let PoolSides { name, domain, devices, before } = sides;
        let holds = PooledHolds::of(self.objects, name, before);
        let mut pool = empty(name);
        let mut count = |state: &'static str| *offer.devices.entry((name.to_owned(), state)).or_default() += 1;
        let mut entries: BTreeMap<String, OfferedEntry> = BTreeMap::new();
        // Taints of devices that connections of others hold.
        let mut in_use: BTreeMap<String, DeviceTaint> = BTreeMap::new();
        let selector = domain.and_then(DomainPool::selector);
        // A claim that has a device was given it as it is there: it stays so until the claim lets go.
        for (device, entry) in before.devices.iter().filter(|(device, _)| self.is_claimed(name, device)) {
            let known = entry.selector.cloned();
            let selector = if entry.is_of_one_node() { known } else { selector.clone().or(known) };
            entries.insert((*device).to_owned(), OfferedEntry { device: entry.device.clone(), selector });
            let place = domain.map(|domain| self.place(domain, device, None));
            let by_others =
                place.zip(DeviceIdentity::of_device_name(device)).and_then(|(it, id)| DeviceInUse::of(id, &it));
            in_use.extend(by_others.map(|it| ((*device).to_owned(), it.taint)));
        }
        if let Some(domain) = domain.filter(|_| selector.is_some()) {
            let promised = self.promised(devices);
            for (identity, device) in devices {
                let device_name = identity.device_name();
                if entries.contains_key(&device_name) {
                    continue;
                }
                let place = self.place(domain, &device_name, self.twice.elsewhere(*identity, name));
                let is_kept = holds.of_device(&device_name).is_some();
                let promised = self.promised_beside(*identity, device, &promised);
                let place = DevicePlace { is_kept, promised, ..place };
                match entry(*identity, device, &place) {
                    Ok(entry) => {
                        if let Some(DeviceInUse { taint, reason }) = DeviceInUse::of(*identity, &place) {
                            pool.left_out.push(format!("{name}/{device_name}: {reason}"));
                            in_use.insert(device_name.clone(), taint);
                        }
                        // A Reservation keeps the device for one node: pods of its owners are to run there.
                        let kept = holds.of_device(&device_name).map(|hold| NodeSelector::of_node(&hold.node));
                        let selector = kept.or_else(|| selector.clone());
                        entries.insert(device_name, OfferedEntry { device: entry, selector });
                    }
                    Err(why) => {
                        count(LEFT_OUT);
                        pool.left_out.push(format!("{name}/{device_name}: {why}"));
                    }
                }
            }
        }
        for (device, entry) in &mut entries {
            let state = self.state(device);
            let taint = in_use.remove(device);
            count(if taint.is_some() && !self.is_claimed(name, device) { LEFT_OUT } else { state.as_str() });
            let own = || state.taints(holds.of_device(device).map(|hold| &*hold.value));
            entry.device.taints = taint.map_or_else(own, |taint| vec![taint]);
        }
        let has_room = |name: &str| {
            let device = DeviceIdentity::of_device_name(name).and_then(|identity| devices.get(&identity));
            device.is_some_and(|device| device.room.is_some())
        };
        // A claim that asks for no amount would get everything that a memory domain has: schedulers look at it last.
        let mut entries: Vec<(String, OfferedEntry)> = entries.into_iter().collect();
        entries.sort_by_key(|(name, _)| has_room(name));
        pool.slices = slices(self.driver, name, selector.as_ref(), entries.into_iter().map(|(_, entry)| entry));
        pool
    }

    fn place<'b>(&'b self, domain: &'b DomainPool<'b>, device: &str, elsewhere: Option<&'b str>) -> DevicePlace<'b> {
        DevicePlace {
            manager: domain.manager.name,
            domain: &domain.domain,
            inventory: domain.manager.inventory,
            attachment: self.objects.attachments.get(device).map(|object| &**object),
            elsewhere,
            is_kept: false,
            promised: 0,
            now: self.now,
        }
    }

    /// The memory in bytes that is going to be made for devices that claims or Reservations have, by memory domain.
    fn promised<'b>(&self, devices: &'b BTreeMap<DeviceIdentity, FabricDevice>) -> BTreeMap<&'b ObjectPath, u64> {
        let mut promised: BTreeMap<&ObjectPath, u64> = BTreeMap::new();
        for (identity, device) in devices {
            let Some(room) = &device.room else { continue };
            let bytes = self.promised_to(*identity, room);
            let sum = promised.entry(&room.domain).or_default();
            *sum = sum.saturating_add(bytes);
        }
        promised
    }

    /// The memory in bytes that is going to be made for one device.
    fn promised_to(&self, identity: DeviceIdentity, room: &MemoryRoom) -> u64 {
        let name = identity.device_name();
        let claims = self.objects.claims.get(&name).into_iter().flatten();
        let attachments = self.objects.attachments.get(&name).map(|object| &object.attachment);
        let under_way = attachments.filter(|it| it.status.phase.is_under_way() && !it.spec.release);
        let asked = under_way.map(|it| it.spec.memory).into_iter().chain(claims.map(|claim| claim.memory));
        asked.filter_map(|asked| room.chunk_bytes(asked.and_then(Quantity::as_whole))).max().unwrap_or_default()
    }

    /// The memory in bytes that is going to be made for other devices of the same memory domain. A Reservation has a device
    /// that is on its way offered to its owners, with what is made for it.
    fn promised_beside(
        &self,
        identity: DeviceIdentity,
        device: &FabricDevice,
        promised: &BTreeMap<&ObjectPath, u64>,
    ) -> u64 {
        let Some(room) = &device.room else { return 0 };
        let all = promised.get(&room.domain).copied().unwrap_or_default();
        all.saturating_sub(self.promised_to(identity, room))
    }

    fn state(&self, device: &str) -> OfferState {
        OfferState::of(self.objects.attachments.get(device).map(|object| &**object))
    }

    fn is_claimed(&self, pool: &str, device: &str) -> bool {
        self.objects.claims.get(device).into_iter().flatten().any(|claim| claim.pool == pool)
    }
}

/// Devices of a pool that Reservations close.
struct PooledHolds<'a>(BTreeMap<&'a str, &'a PooledHold>);

impl<'a> PooledHolds<'a> {
    fn of(objects: &'a FabricObjects, pool: &str, before: &PublishedPool<'_>) -> Self {
        let mut holds: BTreeMap<&str, &PooledHold> = BTreeMap::new();
        for hold in objects.holds.iter().filter(|hold| hold.pool == pool) {
            // Of two Reservations the one that closed the device keeps it, until its node is told to open it.
            let is_published = |it: &PooledHold| before.devices.get(&*it.device).is_some_and(|entry| entry.has(it));
            holds
                .entry(&hold.device)
                .and_modify(|known| {
                    if !is_published(known) && is_published(hold) {
                        *known = hold;
                    }
                })
                .or_insert(hold);
        }
        Self(holds)
    }

    fn of_device(&self, device: &str) -> Option<&'a PooledHold> {
        self.0.get(device).copied()
    }
}

impl PublishedEntry<'_> {
    /// True if the device is published for the one node that it is kept for. Nodes of a domain are named by a label.
    fn is_of_one_node(&self) -> bool {
        let mut terms = self.selector.into_iter().flat_map(|selector| &selector.node_selector_terms);
        terms.any(|term| !term.match_fields.is_empty())
    }

    /// True if the device is closed with this value.
    fn has(&self, hold: &PooledHold) -> bool {
        let mut taints = self.device.taints.iter();
        taints.any(|taint| &*taint.key == HELD_TAINT && taint.value.as_deref() == Some(&*hold.value))
    }
}

/// Spreads devices over slices: first those that all nodes of the domain can use, then those of single nodes. Each device
/// may have a taint one day, and must not move all others then.
fn slices(
    driver: &str,
    pool: &str,
    of_domain: Option<&NodeSelector>,
    entries: impl Iterator<Item = OfferedEntry>,
) -> Vec<DesiredSlice> {
    let mut groups: Vec<(Option<NodeSelector>, Vec<SliceDevice>)> = Vec::new();
    for OfferedEntry { device, selector } in entries {
        match groups.iter_mut().find(|(known, _)| *known == selector) {
            Some((_, devices)) => devices.push(device),
            None => groups.push((selector, vec![device])),
        }
    }
    groups.sort_by_key(|(selector, _)| selector.as_ref() != of_domain);
    let parts = groups.iter().flat_map(|(selector, devices)| {
        devices.chunks(MAX_ADVANCED_DEVICES).map(move |devices| (selector.clone(), devices))
    });
    let slice = |(index, (selector, devices)): (usize, (Option<NodeSelector>, &[SliceDevice]))| {
        let content = SliceContent {
            node_selector: selector.map(Box::new),
            devices: devices.to_vec(),
            ..SliceContent::default()
        };
        DesiredSlice { name: slice_name(index, driver, pool), content: Arc::new(content) }
    };
    parts.enumerate().map(slice).collect()
}
