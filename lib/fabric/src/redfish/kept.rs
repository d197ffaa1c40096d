//! Hardware between attachments, so that each need not read a rack anew. It is packed: most of it are paths that are alike,
//! and a twelfth of the memory holds it.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use hostler_api::Packed;

use super::hardware::ReadHardware;

/// The hardware that was read last.
#[derive(Debug, Default)]
pub(super) struct KeptHardware {
    /// The time of the reading, and what was read.
    packed: Option<(Instant, Packed<ReadHardware>)>,
    /// The same, as long as an attachment uses it.
    in_use: Weak<ReadHardware>,
}

impl KeptHardware {
    /// Keeps hardware that was read at this moment. What cannot be packed is read anew when it is needed.
    pub(super) fn keep(&mut self, hardware: &Arc<ReadHardware>) {
        self.packed = Packed::pack(&**hardware).map(|packed| (Instant::now(), packed));
        self.in_use = Arc::downgrade(hardware);
    }

    /// Keeps `later` in the place of hardware of which a part was read again, unless other hardware was kept since.
    pub(super) fn replace(&mut self, hardware: &Arc<ReadHardware>, later: &Arc<ReadHardware>) {
        if !std::ptr::eq(self.in_use.as_ptr(), Arc::as_ptr(hardware)) {
            return;
        }
        let since = self.packed.take().map(|(since, _)| since);
        self.packed = since.zip(Packed::pack(&**later));
        self.in_use = Arc::downgrade(later);
    }

    /// The hardware, if it was read within this time.
    pub(super) fn within(&mut self, age: Duration) -> Option<Arc<ReadHardware>> {
        let (_, packed) = self.packed.as_ref().filter(|(since, _)| since.elapsed() < age)?;
        if let Some(hardware) = self.in_use.upgrade() {
            return Some(hardware);
        }
        let hardware = Arc::new(packed.unpack()?);
        self.in_use = Arc::downgrade(&hardware);
        Some(hardware)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hostler_api::fabric::DeviceIdentity;

    use super::*;
    use crate::{
        DeviceMemory, FabricDevice, FabricEndpoint, FabricHost, InventoryParts, InventoryProblem, MemoryChunk,
        MemoryDomain, ObjectPath, ObjectStatus,
        redfish::{chunks::MemoryPlace, record::FabricPlace, settings::ServiceAddress},
    };

    const LONG: Duration = Duration::from_secs(3600);

    fn path(kind: &str, at: usize) -> ObjectPath {
        ObjectPath::new(format!("/redfish/v1/Chassis/{at}/{kind}/{at}"))
    }

    /// A rack in which each device has an endpoint and a memory domain with one chunk.
    fn rack(devices: usize) -> Arc<ReadHardware> {
        let status = ObjectStatus { health: Some("OK".into()), state: Some("Enabled".into()) };
        let device = |at| FabricDevice {
            path: path("CXLLogicalDevices", at),
            identity: Some(DeviceIdentity { serial: 0x1000 + at as u64, logical_device: 0 }),
            status: status.clone(),
            endpoints: vec![path("Endpoints", at)],
            chunks: vec![path("MemoryChunks", at)],
            memory: DeviceMemory { size_bytes: Some(1 << 34), ..DeviceMemory::default() },
            ..FabricDevice::default()
        };
        let endpoint = |at| FabricEndpoint {
            path: path("Endpoints", at),
            entities: vec![path("CXLLogicalDevices", at)],
            ..FabricEndpoint::default()
        };
        let chunk = |at| MemoryChunk { path: path("MemoryChunks", at), ..MemoryChunk::default() };
        let domain = |at| MemoryDomain {
            path: path("MemoryDomains", at),
            size_bytes: Some(1 << 40),
            chunks: vec![chunk(at)],
            ..MemoryDomain::default()
        };
        let host = FabricHost { uuid: "5f0c2f7e-0d5a-4a53-9d6c-0f6f2b8f7a11".parse().ok(), ..FabricHost::default() };
        let agent = ServiceAddress::parse("https://agent.example:5001");
        assert!(agent.is_some() && host.uuid.is_some());
        let place = |at| (path("MemoryDomains", at), MemoryPlace { agent: agent.clone(), collection: path("c", at) });
        Arc::new(ReadHardware {
            parts: InventoryParts {
                hosts: vec![host],
                devices: (0..devices).map(device).collect(),
                endpoints: (0..devices).map(endpoint).collect(),
                memory_domains: (0..devices).map(domain).collect(),
                problems: vec![InventoryProblem::new(&path("x", 0), "UUID", "is not there")],
                ..InventoryParts::default()
            },
            fabrics: vec![FabricPlace { path: ObjectPath::new("/fabric"), agent: Some(ObjectPath::new("/agent")) }],
            memory: (0..devices).map(place).collect::<BTreeMap<_, _>>(),
        })
    }

    #[test]
    fn hardware_comes_back_as_it_was_kept_and_takes_little_memory_meanwhile() {
        let mut kept = KeptHardware::default();
        assert!(kept.within(LONG).is_none());
        let hardware = rack(256);
        let before = format!("{hardware:?}");
        kept.keep(&hardware);
        drop(hardware);
        let bytes = kept.packed.as_ref().unwrap().1.size();
        assert!(bytes < 256 * 100, "{bytes} bytes");
        assert_eq!(format!("{:?}", kept.within(LONG).unwrap()), before);
        assert!(kept.within(Duration::ZERO).is_none());
    }

    #[test]
    fn attachments_of_one_time_use_one_copy() {
        let mut kept = KeptHardware::default();
        let first = rack(1);
        kept.keep(&first);
        assert!(Arc::ptr_eq(&kept.within(LONG).unwrap(), &first));
        drop(first);
        let [one, other] = [(); 2].map(|()| kept.within(LONG).unwrap());
        assert!(Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn a_part_that_was_read_again_is_kept_unless_all_was_read_since() {
        for is_read_since in [false, true] {
            let mut kept = KeptHardware::default();
            let (first, later, since) = (rack(1), rack(2), rack(3));
            kept.keep(&first);
            if is_read_since {
                kept.keep(&since);
            }
            kept.replace(&first, &later);
            drop((first, later, since));
            assert_eq!(kept.within(LONG).unwrap().parts.devices.len(), if is_read_since { 3 } else { 2 });
        }
    }
}
