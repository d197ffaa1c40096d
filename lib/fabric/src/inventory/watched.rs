//! The inventory as a watch keeps it, for days: what attachments alone need is left out, and devices are packed, which
//! are nearly all of it.

use std::collections::BTreeMap;

use hostler_api::{
    Packed,
    fabric::{DeviceIdentity, SystemUuid},
};

use super::{FabricConnection, FabricDevice, FabricHost, FabricInventory, InventoryProblem, SwitchDomain};
use crate::ObjectPath;

/// Number of devices that are packed together: to look at one costs as much as to look at all of these.
const RUN: usize = 16;

/// The inventory of a fabric manager without what attachments alone need, and read anew: endpoints, chunks and memory
/// domains, of which devices tell what others need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedInventory {
    /// Switch domains with their devices, by path.
    pub domains: Vec<WatchedDomain>,
    /// Hosts, by path.
    pub hosts: Vec<FabricHost>,
    /// Connections, by path.
    pub connections: Vec<FabricConnection>,
    /// Contradictions and defects, one sentence each.
    pub problems: Vec<InventoryProblem>,
    /// Paths of devices without an identity, or at no switch domain, in order.
    pub astray: Vec<ObjectPath>,
}

/// A switch domain with its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedDomain {
    /// The domain itself.
    pub domain: SwitchDomain,
    /// By path of the devices.
    runs: Vec<DeviceRun>,
}

/// Devices that are packed together.
#[derive(Clone, Debug)]
struct DeviceRun {
    identities: Box<[DeviceIdentity]>,
    /// The same devices, without their paths and what else is left out.
    devices: Packed<Vec<FabricDevice>>,
}

impl PartialEq for DeviceRun {
    fn eq(&self, other: &Self) -> bool {
        self.devices.is_written_as(&other.devices)
    }
}

impl FabricInventory {
    /// The inventory as a watch keeps it.
    #[must_use]
    pub fn watched(self) -> WatchedInventory {
        let Self { domains, hosts, devices, connections, mut problems, .. } = self;
        let mut by_domain: BTreeMap<ObjectPath, Vec<(DeviceIdentity, FabricDevice)>> =
            domains.iter().map(|domain| (domain.path.clone(), Vec::new())).collect();
        let mut astray = Vec::new();
        for device in devices {
            let of_domain = device.domain.as_ref().and_then(|domain| by_domain.get_mut(domain));
            match (of_domain, device.identity) {
                (Some(of_domain), Some(identity)) => of_domain.push((identity, device)),
                _ => astray.push(device.path),
            }
        }
        let mut watched = |domain: SwitchDomain| {
            let devices = by_domain.remove(&domain.path).unwrap_or_default();
            let runs = devices.chunks(RUN).map(DeviceRun::of).collect::<Option<Vec<_>>>().unwrap_or_else(|| {
                let reason = "its devices cannot be written as JSON, so that none is offered";
                problems.push(InventoryProblem::new(&domain.path, "devices", reason));
                Vec::new()
            });
            WatchedDomain { domain, runs }
        };
        let domains = domains.into_iter().map(&mut watched).collect();
        WatchedInventory { domains, hosts, connections, problems, astray }
    }

    /// The host with a UUID. `None`: no host has it.
    pub fn host(&self, uuid: &SystemUuid) -> Option<&FabricHost> {
        host(&self.hosts, uuid)
    }

    /// The connections that hold a device.
    pub fn connections_of(&self, identity: DeviceIdentity) -> impl Iterator<Item = &FabricConnection> {
        connections_of(&self.connections, identity)
    }
}

impl WatchedInventory {
    /// The host with a UUID. `None`: no host has it.
    pub fn host(&self, uuid: &SystemUuid) -> Option<&FabricHost> {
        host(&self.hosts, uuid)
    }

    /// The connections that hold a device.
    pub fn connections_of(&self, identity: DeviceIdentity) -> impl Iterator<Item = &FabricConnection> {
        connections_of(&self.connections, identity)
    }

    /// Identities of all devices that are at a switch domain.
    pub fn identities(&self) -> impl Iterator<Item = DeviceIdentity> {
        self.domains.iter().flat_map(WatchedDomain::identities)
    }

    /// The device with an identity, without its path. Where several say that they have it, each of them is unusable.
    pub fn device(&self, identity: DeviceIdentity) -> Option<FabricDevice> {
        let mut runs = self.domains.iter().flat_map(|domain| &domain.runs);
        let devices = runs.find(|run| run.identities.contains(&identity))?.devices.unpack()?;
        devices.into_iter().find(|device| device.identity == Some(identity))
    }
}

impl WatchedDomain {
    /// Identities of the devices.
    pub fn identities(&self) -> impl Iterator<Item = DeviceIdentity> {
        self.runs.iter().flat_map(|run| run.identities.iter().copied())
    }

    /// The devices by identity, without their paths. `None`: they cannot be read, so that nothing is known of them.
    pub fn devices(&self) -> Option<BTreeMap<DeviceIdentity, FabricDevice>> {
        let mut all = BTreeMap::new();
        for run in &self.runs {
            all.extend(run.identities.iter().copied().zip(run.devices.unpack()?));
        }
        Some(all)
    }
}

impl DeviceRun {
    fn of(devices: &[(DeviceIdentity, FabricDevice)]) -> Option<Self> {
        let identities = devices.iter().map(|(identity, _)| *identity).collect();
        let kept: Vec<FabricDevice> = devices.iter().map(|(_, device)| kept(device)).collect();
        Some(Self { identities, devices: Packed::pack(&kept)? })
    }
}

/// A device without its path and the paths of objects that attachments alone need.
fn kept(device: &FabricDevice) -> FabricDevice {
    FabricDevice {
        path: ObjectPath::default(),
        endpoints: Vec::new(),
        chunks: Vec::new(),
        memory_domains: Vec::new(),
        ..device.clone()
    }
}

fn host<'a>(hosts: &'a [FabricHost], uuid: &SystemUuid) -> Option<&'a FabricHost> {
    hosts.iter().find(|host| host.uuid.as_ref() == Some(uuid))
}

fn connections_of(
    connections: &[FabricConnection],
    identity: DeviceIdentity,
) -> impl Iterator<Item = &FabricConnection> {
    connections.iter().filter(move |connection| connection.devices.contains(&identity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InventoryParts, ObjectStatus, fake::FakeFabric};

    fn rack(devices: u32, change: impl FnOnce(&mut InventoryParts)) -> FabricInventory {
        let mut parts = None;
        FakeFabric::rack(1, devices).change(|it| parts = Some(it.clone()));
        let mut parts = parts.unwrap();
        change(&mut parts);
        FabricInventory::conclude(parts)
    }

    #[test]
    fn each_device_comes_back_without_what_attachments_alone_need_and_takes_little_memory() {
        let inventory = rack(200, |_| ());
        let watched = inventory.clone().watched();
        let [domain] = &watched.domains[..] else { panic!("one domain") };
        let devices = domain.devices().unwrap();
        assert_eq!((devices.len(), domain.runs.len(), watched.identities().count()), (200, 13, 200));
        for device in &inventory.devices {
            let identity = device.identity.unwrap();
            let found = watched.device(identity).unwrap();
            assert_eq!((&found, devices.get(&identity)), (&kept(device), Some(&found)));
            assert!(found.memory.has_chunks && found.chunks.is_empty() && found.endpoints.is_empty());
        }
        assert_eq!(watched.device(FakeFabric::device(200)), None);
        let bytes: usize = domain.runs.iter().map(|run| run.devices.size()).sum();
        assert!(bytes < 200 * 60, "{bytes} bytes");
    }

    #[test]
    fn one_device_that_is_another_one_makes_another_inventory() {
        let watched = rack(70, |_| ()).watched();
        assert_eq!(watched, rack(70, |_| ()).watched());
        let broken = |parts: &mut InventoryParts| {
            parts.devices[69].status = ObjectStatus { state: Some("Absent".into()), ..ObjectStatus::default() };
        };
        assert_ne!(watched, rack(70, broken).watched());
        assert_ne!(watched, rack(69, |_| ()).watched());
    }

    #[test]
    fn devices_without_an_identity_or_at_no_switch_are_told_by_their_paths() {
        let watched = rack(3, |parts| {
            parts.devices[0].identity = None;
            parts.endpoints.retain(|it| it.is_initiator || !it.path.as_str().ends_with("/1"));
        })
        .watched();
        assert_eq!((watched.astray.len(), watched.identities().count()), (2, 1), "{watched:?}");
        assert!(watched.device(FakeFabric::device(1)).is_none());
    }
}
