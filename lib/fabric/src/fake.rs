//! A fabric in memory, for tests of callers: it does what a manager does, and fails on demand.

mod faults;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hostler_api::fabric::{DeviceIdentity, SystemUuid};
use tokio::time::sleep;

pub use self::faults::FabricFault;

use self::faults::FaultTable;
use crate::{
    AttachKey, AttachPlan, AttachRefusal, AttachRequest, AttachStep, DeviceKind, ExpectedConnection, FabricConnection,
    FabricDevice, FabricEndpoint, FabricError, FabricHost, FabricInventory, FabricOperation, FabricOutcome,
    FabricProvider, InventoryParts, Isolation, MemoryChunk, MemoryDomain, ObjectPath, ObjectStatus, PlannedChunk,
    SwitchDomain,
    plan::{devices_text, known_device},
    plan_attach, plan_free,
};

const NAME: &str = "the fabric in memory";
const FABRIC: &str = "/fabric";
/// A device of a rack. Real ones have hundreds of GiB; tests need a size, not much of it.
const DEVICE_BYTES: u64 = 16 << 30;
/// Hosts map memory in steps of this size.
const STEP_BYTES: u64 = 256 << 20;
/// Serial numbers of a rack begin here: easy to see in a log.
const FIRST_SERIAL: u64 = 0xfab0_0000_0000_0000;

/// A fabric in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct FakeFabric(Arc<Mutex<FakeState>>);

#[derive(Debug, Default)]
struct FakeState {
    parts: InventoryParts,
    under_way: BTreeMap<AttachKey, PlannedWork>,
    faults: FaultTable,
}

/// An attachment that has not ended.
#[derive(Debug)]
struct PlannedWork {
    plan: AttachPlan,
    /// The reads of its state until it ends; `None`: it never ends by itself.
    reads: Option<u32>,
}

impl FakeFabric {
    /// A fabric with these objects.
    pub fn new(parts: InventoryParts) -> Self {
        Self(Arc::new(Mutex::new(FakeState { parts, ..FakeState::default() })))
    }

    /// A rack: one switch, hosts, and devices of 16 GiB with one chunk each. Nothing is attached.
    pub fn rack(hosts: u32, devices: u32) -> Self {
        Self::of(hosts, devices, |parts, at, path| {
            parts.memory_domains.push(memory_of(at, path));
            Some(DEVICE_BYTES)
        })
    }

    /// A rack whose devices have no memory: it is made of one memory domain, in steps of 256 MiB. Each device is a card
    /// with its own serial number, so that a host can have several.
    pub fn shared(hosts: u32, devices: u32, memory_bytes: u64) -> Self {
        let fabric = Self::of(hosts, devices, |_, _, _| None);
        fabric.change(|parts| {
            parts.memory_domains.push(MemoryDomain {
                path: ObjectPath::new("/memory/0"),
                allows_chunk_creation: true,
                size_bytes: Some(memory_bytes),
                least_bytes: STEP_BYTES,
                step_bytes: STEP_BYTES,
                devices: parts.devices.iter().map(|device| device.path.clone()).collect(),
                ..MemoryDomain::default()
            });
        });
        fabric
    }

    /// A rack whose devices get their memory from `memory`, which returns the size of each.
    fn of(hosts: u32, devices: u32, memory: impl Fn(&mut InventoryParts, u32, &ObjectPath) -> Option<u64>) -> Self {
        let mut parts = InventoryParts::default();
        let status = ObjectStatus { health: Some("OK".into()), state: Some("Enabled".into()) };
        let (domain, enclosure) = (ObjectPath::new(FABRIC), ObjectPath::new("/enclosures/0"));
        parts.domains.push(SwitchDomain { path: domain.clone(), status: status.clone(), ..SwitchDomain::default() });
        for at in 0..hosts {
            let path = ObjectPath::new(format!("/hosts/{at}"));
            let initiator = endpoint(&domain, &format!("initiators/{at}"), &path);
            parts.endpoints.push(FabricEndpoint { is_initiator: true, ..initiator });
            let uuid = Self::host(at);
            parts.hosts.push(FabricHost { path, uuid, status: status.clone(), ..FabricHost::default() });
        }
        for at in 0..devices {
            let path = ObjectPath::new(format!("/devices/{at}"));
            parts.endpoints.push(endpoint(&domain, &format!("targets/{at}"), &path));
            let size_bytes = memory(&mut parts, at, &path);
            parts.devices.push(FabricDevice {
                path,
                identity: Some(Self::device(at)),
                kind: DeviceKind::Memory,
                size_bytes,
                status: status.clone(),
                enclosure: Some(enclosure.clone()),
                ..FabricDevice::default()
            });
        }
        Self::new(parts)
    }

    /// The UUID of a host of a rack.
    pub fn host(at: u32) -> Option<SystemUuid> {
        format!("fab00000-0000-4000-8000-{at:012x}").parse().ok()
    }

    /// The identity of a device of a rack.
    pub fn device(at: u32) -> DeviceIdentity {
        DeviceIdentity { serial: FIRST_SERIAL + u64::from(at), logical_device: 1 }
    }

    /// Makes later calls fail in one way, besides the ways that were set before.
    pub fn inject(&self, fault: FabricFault) {
        self.lock().faults.inject(fault);
    }

    /// Ends all faults. Work under way stays so.
    pub fn heal(&self) {
        self.lock().faults = FaultTable::default();
    }

    /// Ends the work under way for a key, as the hardware would. False: there is none.
    pub fn finish(&self, key: &AttachKey) -> bool {
        let mut state = self.lock();
        let work = state.under_way.remove(key);
        work.map(|work| state.connect(work.plan)).is_some()
    }

    /// Changes the objects, as a person at the rack would.
    pub fn change(&self, change: impl FnOnce(&mut InventoryParts)) {
        change(&mut self.lock().parts);
    }

    /// The connections as they are, whatever faults there are.
    pub fn connections(&self) -> Vec<FabricConnection> {
        self.lock().conclude().connections
    }

    fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call: it takes its time, and may find nothing that answers.
    async fn begin(&self) -> Result<(), FabricError> {
        let slow: Duration = self.lock().faults.slow;
        if !slow.is_zero() {
            sleep(slow).await;
        }
        if self.lock().faults.is_unavailable() {
            let reason = "it was told to be so".to_owned();
            return Err(FabricError::Unavailable { service: NAME.to_owned(), reason });
        }
        Ok(())
    }
}

fn endpoint(domain: &ObjectPath, name: &str, entity: &ObjectPath) -> FabricEndpoint {
    FabricEndpoint {
        path: domain.below(name),
        domain: domain.clone(),
        entities: vec![entity.clone()],
        ..FabricEndpoint::default()
    }
}

fn memory_of(at: u32, device: &ObjectPath) -> MemoryDomain {
    let path = ObjectPath::new(format!("/memory/{at}"));
    let chunk = MemoryChunk {
        path: path.below("chunks/1"),
        size_bytes: Some(DEVICE_BYTES),
        devices: vec![device.clone()],
        made_for: None,
    };
    MemoryDomain { path, size_bytes: Some(DEVICE_BYTES), chunks: vec![chunk], ..MemoryDomain::default() }
}

impl FakeState {
    fn conclude(&self) -> FabricInventory {
        FabricInventory::conclude(self.parts.clone())
    }

    fn connect(&mut self, plan: AttachPlan) -> FabricConnection {
        let path = plan.domain.below("connections").below(plan.key.as_str());
        self.parts.connections.push(FabricConnection {
            path: path.clone(),
            id: plan.key.to_string(),
            key: Some(plan.key),
            chunks: plan.chunks,
            initiators: plan.initiators,
            targets: plan.targets,
            ..FabricConnection::default()
        });
        let made = self.conclude().connections.into_iter().find(|connection| connection.path == path);
        made.unwrap_or_default()
    }

    fn attach(&mut self, request: &AttachRequest) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        if self.under_way.contains_key(&request.key) {
            return Ok(FabricOutcome::UnderWay(running()));
        }
        let inventory = self.faults.shown(self.parts.clone());
        let mut plan = match plan_attach(&inventory, request)? {
            AttachStep::Already(connection) => return Ok(FabricOutcome::Done(connection)),
            AttachStep::Connect(plan) => plan,
        };
        self.check_idle(plan.device)?;
        if let Some(make) = plan.make.take() {
            plan.chunks = vec![self.make(&plan, &make)?];
            if self.faults.loses_memory_answer() {
                return Ok(lost());
            }
        }
        if let Some(reads) = self.faults.pending {
            self.under_way.insert(plan.key.clone(), PlannedWork { plan, reads });
            return Ok(FabricOutcome::UnderWay(running()));
        }
        let asked = plan.clone();
        let is_busy = |device| self.under_way.values().any(|work| work.plan.device == device);
        let truth = self.faults.redirected(&inventory, plan, is_busy);
        let made = self.connect(truth);
        if !made.devices.contains(&asked.device) {
            return Err(FabricError::Mismatch {
                service: NAME.to_owned(),
                key: asked.key,
                found: format!("{} to {}", devices_text(&made), made.host_text()),
                asked: format!("device {} to {}", asked.device, asked.host),
            });
        }
        Ok(if self.faults.loses_answer() { lost() } else { FabricOutcome::Done(made) })
    }

    /// Refuses a device on which work is under way.
    fn check_idle(&self, device: DeviceIdentity) -> Result<(), AttachRefusal> {
        let mut works = self.under_way.iter().filter(|(_, work)| work.plan.device == device);
        let Some((key, work)) = works.next() else { return Ok(()) };
        let (connection, host) = (format!("{key} (under way)"), work.plan.host.to_string());
        Err(AttachRefusal::DeviceHeld { device, connection, host })
    }

    /// Makes a chunk for a device, and returns its path.
    fn make(&mut self, plan: &AttachPlan, make: &PlannedChunk) -> Result<ObjectPath, FabricError> {
        let size = self.faults.made_bytes(make.size_bytes);
        let path = make.domain.below("chunks").below(plan.key.as_str());
        if let Some(domain) = self.parts.memory_domains.iter_mut().find(|domain| domain.path == make.domain) {
            let devices = vec![make.device.clone()];
            domain.chunks.push(MemoryChunk {
                path: path.clone(),
                size_bytes: Some(size),
                devices,
                made_for: Some(plan.key.clone()),
            });
        }
        if size >= make.size_bytes {
            return Ok(path);
        }
        Err(FabricError::Mismatch {
            service: NAME.to_owned(),
            key: plan.key.clone(),
            found: format!("{size} bytes of memory (chunk {path})"),
            asked: format!("{} bytes for device {}", make.size_bytes, plan.device),
        })
    }

    fn free(&mut self, device: DeviceIdentity, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        let freed = plan_free(&self.conclude(), device, key)?;
        self.check_idle(device)?;
        for domain in &mut self.parts.memory_domains {
            domain.chunks.retain(|chunk| !freed.contains(&chunk.path));
        }
        let is_lost = !freed.is_empty() && self.faults.loses_answer();
        Ok(if is_lost { lost() } else { FabricOutcome::Done(()) })
    }

    fn state(&mut self, key: &AttachKey) -> FabricOutcome<FabricConnection> {
        let is_over = match self.under_way.get_mut(key) {
            Some(PlannedWork { reads: Some(0), .. }) => true,
            Some(PlannedWork { reads, .. }) => {
                *reads = reads.map(|reads| reads - 1);
                return FabricOutcome::UnderWay(running());
            }
            None => false,
        };
        if is_over && let Some(work) = self.under_way.remove(key) {
            self.connect(work.plan);
        }
        match self.conclude().connection(key) {
            Some(connection) => FabricOutcome::Done(connection.clone()),
            None => FabricOutcome::not_done(format!("{NAME} has no connection with key {key}")),
        }
    }

    fn detach(&mut self, key: &AttachKey) -> FabricOutcome<()> {
        if self.under_way.contains_key(key) {
            return FabricOutcome::UnderWay(running());
        }
        self.parts.connections.retain(|connection| connection.key.as_ref() != Some(key));
        if self.faults.loses_answer() { lost() } else { FabricOutcome::Done(()) }
    }
}

fn running() -> FabricOperation {
    FabricOperation { monitor: None, state: Some("Running".to_owned()), percent: None }
}

fn lost<T>() -> FabricOutcome<T> {
    FabricOutcome::unknown(format!("{NAME} ended the connection before it answered"))
}

impl FabricProvider for FakeFabric {
    async fn inventory(&self) -> Result<FabricInventory, FabricError> {
        self.begin().await?;
        let mut state = self.lock();
        let parts = state.parts.clone();
        Ok(state.faults.shown(parts))
    }

    async fn attach(&self, request: &AttachRequest) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        self.begin().await?;
        self.lock().attach(request)
    }

    async fn state(&self, key: &AttachKey) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        self.begin().await?;
        Ok(self.lock().state(key))
    }

    async fn detach(&self, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        self.begin().await?;
        Ok(self.lock().detach(key))
    }

    async fn isolate(
        &self,
        device: DeviceIdentity,
        expected: &[ExpectedConnection],
    ) -> Result<FabricOutcome<Isolation>, FabricError> {
        self.begin().await?;
        let mut state = self.lock();
        let inventory = state.conclude();
        known_device(&inventory, device)?;
        let is_expected = |it: &&FabricConnection| expected.iter().any(|expected| expected.is(it));
        let removed: Vec<&FabricConnection> = inventory.connections_of(device).filter(is_expected).collect();
        state.parts.connections.retain(|connection| !removed.iter().any(|it| it.path == connection.path));
        let is_meant = |key: &AttachKey| expected.contains(&ExpectedConnection::Key(key.clone()));
        if state.under_way.iter().any(|(key, work)| work.plan.device == device && is_meant(key)) {
            return Ok(FabricOutcome::UnderWay(running()));
        }
        let connections = removed.iter().map(|connection| connection.id.clone()).collect();
        Ok(if state.faults.loses_answer() { lost() } else { FabricOutcome::Done(Isolation::Removed { connections }) })
    }

    async fn free(&self, device: DeviceIdentity, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        self.begin().await?;
        self.lock().free(device, key)
    }
}

#[cfg(test)]
mod tests;
