//! The provider that speaks to a Redfish service.
//!
//! ```text
//!   read hardware ─► read connections at the manager of record ─► plan ─► POST ─► read again ─► outcome
//!                                                                   ▲      │ memory that is missing
//!                                                                   └──────┘ read its domain again
//! ```
//!
//! Services drop connections, answer 500 to work that they have done, and keep connections that are gone. So nothing is
//! concluded from the answer to a write: what the manager of record shows afterwards counts. Writes are sent one at a
//! time.

mod attach;
mod chunks;
mod concurrent;
mod credentials;
mod detach;
mod document;
mod error;
mod hardware;
mod isolate;
mod kept;
mod login;
mod memory;
mod record;
mod removal;
mod service;
mod settings;
mod task;
mod tls;
mod transport;
mod walk;
mod written;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hostler_api::fabric::DeviceIdentity;
use tokio::sync::Semaphore;

pub use self::{
    error::{RedfishError, RedfishSetupError},
    settings::{AuthenticationKind, RedfishSettings},
};

use self::{
    hardware::{ReadHardware, read_hardware},
    kept::KeptHardware,
    record::{FabricRecord, RecordServices},
    service::RedfishService,
    settings::ServiceAddress,
    task::OperationTable,
};
use crate::{
    AttachKey, AttachRequest, ExpectedConnection, FabricConnection, FabricError, FabricInventory, FabricOutcome,
    FabricProvider, InventoryProblem, Isolation,
};

/// A client of a Redfish service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RedfishProvider(Arc<RedfishClient>);

#[derive(Debug)]
struct RedfishClient {
    services: RecordServices,
    hardware_age: Duration,
    hardware: Mutex<KeptHardware>,
    operations: OperationTable,
    /// One write at a time: services store what they are told without locks.
    turn: Semaphore,
}

/// The state of a service at one moment.
#[derive(Debug)]
struct FabricReading {
    inventory: FabricInventory,
    records: Vec<FabricRecord>,
    hardware: Arc<ReadHardware>,
}

impl RedfishProvider {
    /// Makes a client. Nothing is asked yet.
    ///
    /// # Errors
    /// When settings or certificates cannot be used.
    pub fn new(settings: &RedfishSettings) -> Result<Self, RedfishSetupError> {
        let problems = settings.problems();
        let Some(address) = ServiceAddress::parse(&settings.address).filter(|_| problems.is_empty()) else {
            return Err(RedfishSetupError::Settings { problems });
        };
        let main = Arc::new(RedfishService::new(&address, settings)?);
        let mut agents = std::collections::BTreeMap::new();
        for agent in settings.agents.iter().filter_map(|agent| ServiceAddress::parse(agent)) {
            let service = Arc::new(RedfishService::new(&agent, settings)?);
            agents.insert(agent, service);
        }
        let (parallel, trusts_service) = (settings.parallel_reads.into(), settings.trust_service);
        let services = RecordServices { main, agents, parallel, trusts_service };
        Ok(Self(Arc::new(RedfishClient {
            services,
            hardware_age: Duration::from_secs(settings.hardware_age_seconds.into()),
            hardware: Mutex::default(),
            operations: OperationTable::default(),
            turn: Semaphore::new(1),
        })))
    }

    /// Ends the sessions at the services. Without it they end by themselves, after minutes.
    pub async fn log_out(&self) {
        self.0.services.main.log_out().await;
        for agent in self.0.services.agents.values() {
            agent.log_out().await;
        }
    }
}

impl RedfishClient {
    fn name(&self) -> &str {
        self.services.main.name()
    }

    async fn read_hardware(&self) -> Result<Arc<ReadHardware>, RedfishError> {
        let read = Arc::new(read_hardware(&self.services).await?);
        self.kept_hardware().keep(&read);
        Ok(read)
    }

    /// Hardware that was read a moment ago, or now.
    async fn recent_hardware(&self) -> Result<Arc<ReadHardware>, RedfishError> {
        let recent = self.kept_hardware().within(self.hardware_age);
        match recent {
            Some(hardware) => Ok(hardware),
            None => self.read_hardware().await,
        }
    }

    fn kept_hardware(&self) -> MutexGuard<'_, KeptHardware> {
        self.hardware.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the connections, and compares them with the hardware.
    async fn reading(&self, hardware: Arc<ReadHardware>) -> Result<FabricReading, RedfishError> {
        let mut problems: Vec<InventoryProblem> = Vec::new();
        let records = self.services.records(&hardware.fabrics, &mut problems).await?;
        let mut connections = Vec::new();
        for record in &records {
            connections.extend(record.connections(&mut problems).await?);
        }
        let inventory = conclude(&hardware, connections, problems);
        Ok(FabricReading { inventory, records, hardware })
    }
}

impl FabricReading {
    /// The same connections, compared with hardware that was read later.
    fn with_hardware(self, hardware: Arc<ReadHardware>) -> Self {
        let inventory = conclude(&hardware, self.inventory.connections, Vec::new());
        Self { inventory, hardware, ..self }
    }
}

/// The outcome for a connection that no service shows: it is not done, unless some service may not know.
fn absent<T>(records: &[FabricRecord], sure: FabricOutcome<T>) -> FabricOutcome<T> {
    let Some((record, doubt)) = records.iter().find_map(|record| Some((record, record.doubt.as_ref()?))) else {
        return sure;
    };
    let said = match sure {
        FabricOutcome::NotDone { reason } | FabricOutcome::Unknown { reason } => reason,
        FabricOutcome::Done(_) | FabricOutcome::UnderWay(_) => "no connection is shown".to_owned(),
    };
    FabricOutcome::unknown(format!("{said}; but {} {doubt}", record.fabric))
}

fn conclude(
    hardware: &ReadHardware,
    connections: Vec<FabricConnection>,
    problems: Vec<InventoryProblem>,
) -> FabricInventory {
    let mut parts = hardware.parts.clone();
    parts.connections = connections;
    parts.problems.extend(problems);
    FabricInventory::conclude(parts)
}

impl FabricProvider for RedfishProvider {
    async fn inventory(&self) -> Result<FabricInventory, FabricError> {
        let hardware = self.0.read_hardware().await?;
        Ok(self.0.reading(hardware).await?.inventory)
    }

    async fn attach(&self, request: &AttachRequest) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        self.0.attach(request).await
    }

    async fn state(&self, key: &AttachKey) -> Result<FabricOutcome<FabricConnection>, FabricError> {
        self.0.state(key).await
    }

    async fn detach(&self, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        let _turn = self.0.turn.acquire().await;
        self.0.detach(key).await
    }

    async fn isolate(
        &self,
        device: DeviceIdentity,
        expected: &[ExpectedConnection],
    ) -> Result<FabricOutcome<Isolation>, FabricError> {
        let _turn = self.0.turn.acquire().await;
        self.0.isolate(device, expected).await
    }

    async fn free(&self, device: DeviceIdentity, key: &AttachKey) -> Result<FabricOutcome<()>, FabricError> {
        let _turn = self.0.turn.acquire().await;
        self.0.free(device, key).await
    }
}
