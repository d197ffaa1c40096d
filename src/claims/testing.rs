//! Makes records and backends for the tests of this folder.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use hostler_api::{Allocation, BackendName, ClaimRef, ClaimUid, DeviceName, Grant, QualifiedName, Quantity};
use hostler_backend::{
    Attributes, Backend, BackendError, Capacity, ContainerEdits, Device, DevicePlan, EditScope, Enumeration,
    ForeignEdits, HeldDevice, OperateWork, OperationObstacle, OperationOutcome, OperationStep, Pinning, PlanWork,
    PrepareOutcome, PrepareWork, RequestPolicy, Sharing, UnprepareWork, VerifyWork,
};
use hostler_files::InstanceLock;

use super::{
    naming::CdiNaming,
    store::{ClaimRecord, RecordDevice, RecordState},
};
use crate::{
    inventory::{
        self, Inventory, Pool,
        task::{InventoryHandle, InventoryParts},
    },
    registry::BackendRegistry,
    tasks::Tasks,
};

pub(super) const POOL: &str = "node/bench";

pub(super) fn uid(text: &str) -> ClaimUid {
    ClaimUid::new(text).unwrap()
}

pub(super) fn claim(text: &str) -> ClaimRef {
    ClaimRef { namespace: "default".to_owned(), name: format!("name-{text}"), uid: uid(text) }
}

pub(super) fn naming() -> CdiNaming {
    CdiNaming {
        driver: "hostler.dev".to_owned(),
        hook: "/usr/bin/hostler".into(),
        containers: "/state/containers".into(),
        metadata: "/plugins/hostler.dev/dra-device-metadata".into(),
    }
}

pub(super) fn backend_name() -> BackendName {
    BackendName::new("bench").unwrap()
}

pub(super) fn grant(device: &str) -> Grant {
    Grant {
        request: "req/sub".to_owned(),
        pool: POOL.to_owned(),
        device: DeviceName::new(device).unwrap(),
        share_id: None,
        access: Default::default(),
        consumed: Default::default(),
        config: Vec::new(),
    }
}

/// A grant of `units` of a shared device.
pub(super) fn part(device: &str, units: u64) -> Grant {
    let consumed = [(QualifiedName::new("units").unwrap(), Quantity::whole(units))].into();
    Grant { consumed, ..grant(device) }
}

pub(super) fn allocation(grants: &[Grant]) -> Allocation {
    Allocation { grants: grants.to_vec(), ..Allocation::default() }
}

pub(super) fn record(text: &str, state: RecordState, boot_id: &str) -> ClaimRecord {
    let device = RecordDevice {
        local: None,
        backend: backend_name(),
        grant: grant("one"),
        plan: DevicePlan {
            pinning: Pinning { cpus: BTreeSet::from([0, 1, 2, 5]), mems: BTreeSet::from([1]), policy: None },
            data: serde_json::json!({"note": "as chosen"}),
        },
        counters: Vec::new(),
        capacity: Default::default(),
        edits: ContainerEdits { env: vec!["A=b".to_owned()], ..ContainerEdits::default() },
        unmet: Vec::new(),
    };
    ClaimRecord {
        claim: claim(text),
        state,
        boot_id: boot_id.to_owned(),
        devices: vec![device],
        metadata: None,
        since: None,
        reserved_for: Vec::new(),
    }
}

/// Devices `one` and `two` are exclusive, `many` has ten units to share.
pub(super) fn inventory() -> Inventory {
    let exclusive = |name: &str| Device::new(DeviceName::new(name).unwrap());
    let mut many = exclusive("many");
    many.sharing = Sharing::Shared;
    let unit = Quantity::whole(1);
    let policy = Some(RequestPolicy { default: unit, min: unit, step: unit });
    let capacity = Capacity { value: Quantity::whole(10), policy };
    many.capacity.insert(QualifiedName::new("units").unwrap(), capacity);
    let devices = vec![exclusive("one"), exclusive("two"), many];
    let pool = Pool { name: POOL.to_owned(), devices, stale: None, ..Pool::default() };
    Inventory { pools: [(backend_name(), pool.into())].into(), ..Inventory::default() }
}

/// What really scans the backend, once it has; its state is in `folder`.
pub(super) async fn scanned(backend: Arc<BenchBackend>, folder: &Path, tasks: &Tasks) -> InventoryHandle {
    let parts = InventoryParts {
        backends: BackendRegistry::new([backend as Arc<dyn Backend>]),
        node: "node".to_owned(),
        rescan: Duration::from_secs(3600),
        answer_within: Duration::from_secs(3600),
        state: folder.to_owned(),
    };
    let inventory = inventory::task::start(parts, tasks);
    inventory.rescan().await;
    inventory
}

/// The lock of whoever works on this folder; another one may have it already, as in one process after another.
pub(super) fn lock(folder: &Path) -> Arc<InstanceLock> {
    // As often as a test starts again; the earlier ones are not given up, and know each other's file.
    let name = (0..).map(|number| folder.join(format!("lock-{number}")));
    let mut taken = name.filter_map(|path| InstanceLock::try_take(&path).unwrap());
    Arc::new(taken.next().unwrap())
}

/// A backend whose hardware is a set of (claim, device) in memory, and whose steps fail when told to.
#[derive(Debug, Default)]
pub(super) struct BenchBackend {
    pub(super) hardware: Mutex<BTreeSet<(String, String)>>,
    pub(super) failing: Mutex<BTreeSet<&'static str>>,
    /// Steps in the order in which they ran.
    pub(super) steps: Mutex<Vec<String>>,
    /// What the hardware shows of device `one`, beside what it always does.
    pub(super) attributes: Mutex<Attributes>,
    /// What preparing finds out about binding.
    pub(super) found: Mutex<Option<Pinning>>,
    /// A step that waits until the test lets it go on.
    pub(super) gate: Mutex<Option<(&'static str, std::sync::mpsc::Receiver<()>)>>,
}

impl BenchBackend {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(super) fn fail(&self, step: &'static str, fails: bool) {
        let mut failing = self.failing.lock().unwrap();
        if fails {
            failing.insert(step)
        } else {
            failing.remove(step)
        };
    }

    pub(super) fn ready(&self) -> Vec<(String, String)> {
        self.hardware.lock().unwrap().iter().cloned().collect()
    }

    pub(super) fn steps(&self) -> Vec<String> {
        std::mem::take(&mut *self.steps.lock().unwrap())
    }

    fn step(&self, step: &'static str, subject: &impl std::fmt::Display) -> Result<(), BackendError> {
        let gate = {
            let mut gate = self.gate.lock().unwrap();
            gate.take_if(|(gated, _)| *gated == step)
        };
        if let Some((_, gate)) = gate {
            let _ = gate.recv();
        }
        self.steps.lock().unwrap().push(format!("{step} {subject}"));
        if self.failing.lock().unwrap().contains(step) {
            return Err(BackendError::refused(format!("{step} is told to fail")));
        }
        Ok(())
    }
}

impl Backend for BenchBackend {
    fn name(&self) -> BackendName {
        backend_name()
    }

    fn subsystems(&self) -> &[&'static str] {
        &[]
    }

    fn enumerate(&self) -> Result<Enumeration, BackendError> {
        let gate = self.gate.lock().unwrap().take_if(|(gated, _)| *gated == "enumerate");
        if let Some((_, gate)) = gate {
            let _ = gate.recv();
        }
        let mut inventory = inventory();
        let mut devices = inventory.pools.remove("bench").map(|pool| pool.devices.clone()).unwrap_or_default();
        devices[0].attributes = self.attributes.lock().unwrap().clone();
        Ok(Enumeration { devices, counter_sets: Vec::new(), warnings: Vec::new() })
    }

    fn plan(&self, work: &PlanWork<'_>) -> Result<DevicePlan, BackendError> {
        self.step("plan", work.claim)?;
        Ok(DevicePlan { pinning: Pinning::default(), data: serde_json::json!(work.held.len()) })
    }

    fn prepare(&self, work: &PrepareWork<'_>) -> Result<PrepareOutcome, BackendError> {
        // The effect comes first: a step may fail after it has changed the hardware.
        self.hardware.lock().unwrap().insert((work.claim.to_string(), work.grant.device.to_string()));
        self.step("prepare", work.claim)?;
        let env = vec![format!("BENCH={}", work.grant.device)];
        Ok(PrepareOutcome {
            edits: ContainerEdits { env, ..ContainerEdits::default() },
            pinning: self.found.lock().unwrap().clone(),
            unmet: Vec::new(),
        })
    }

    fn check_edits(&self, _: &VerifyWork<'_>, edits: &ContainerEdits) -> Result<(), ForeignEdits> {
        EditScope::default().with_env().check(edits)
    }

    fn unprepare(&self, work: &UnprepareWork<'_>) -> Result<(), BackendError> {
        self.step("unprepare", work.claim)?;
        self.hardware.lock().unwrap().remove(&(work.claim.to_string(), work.grant.device.to_string()));
        Ok(())
    }

    fn takes_orders(&self) -> bool {
        !self.failing.lock().unwrap().contains("orders")
    }

    /// Its only step names the device, and as cards those who hold anything.
    fn operate(&self, work: &OperateWork<'_>) -> Result<OperationOutcome, BackendError> {
        if !self.takes_orders() {
            return Err(work.refused(OperationObstacle::AlwaysThere).into());
        }
        self.step("operate", &work.device.name)?;
        let name = QualifiedName::new("operated").unwrap();
        self.attributes.lock().unwrap().insert(name, work.operation.word().into());
        let held = |held: &HeldDevice<'_>| {
            format!("{} holds {}", held.claim_name.trim_start_matches("default/"), held.grant.device)
        };
        let (region, cards) = (work.device.name.to_string(), work.held.iter().map(held).collect());
        Ok(OperationOutcome {
            steps: vec![OperationStep::RegionDeleted { region, cards, memory: None, nodes: Vec::new() }],
        })
    }

    fn verify(&self, work: &VerifyWork<'_>) -> Result<(), BackendError> {
        self.step("verify", work.claim)?;
        let key = (work.claim.to_string(), work.grant.device.to_string());
        if self.hardware.lock().unwrap().contains(&key) {
            return Ok(());
        }
        Err(BackendError::NotUsable { reason: "it was never prepared".to_owned() })
    }
}
