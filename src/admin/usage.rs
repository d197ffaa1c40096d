//! The machine with its holders over the admin socket: `GET /v1/usage`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{Json, extract::State, http::StatusCode};
use hostler_linux::{ReadFailure, SysRoot, topology::Topology};

use super::{AdminFailure, AdminService};
use crate::{
    inventory::Inventory,
    tasks::Tasks,
    usage::{holders::MachineUsage, layout::MachineLayout},
};

/// Greatest age of a reading of the machine that no event has made old: what backends do not look at may change too.
const OLDEST: Duration = Duration::from_secs(60);

/// Layout of the machine, read on request and kept until the inventory changes: reading the folders of all CPUs is
/// most of what a picture of a large machine would take. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MachineReader {
    root: SysRoot,
    is_here: bool,
    tasks: Tasks,
    known: Arc<Mutex<Option<KnownLayout>>>,
}

#[derive(Clone, Debug)]
struct KnownLayout {
    layout: MachineLayout,
    read: Instant,
    /// The inventory at the reading.
    inventory: Arc<Inventory>,
}

impl KnownLayout {
    fn is_of(&self, inventory: &Inventory) -> bool {
        self.read.elapsed() < OLDEST && self.inventory.is_same(inventory)
    }
}

impl MachineReader {
    /// Reads the machine under `root`; `is_here` says whether the daemon runs on it.
    pub fn new(root: SysRoot, is_here: bool, tasks: &Tasks) -> Self {
        Self { root, is_here, tasks: tasks.clone(), known: Arc::default() }
    }

    async fn layout(&self, inventory: Arc<Inventory>) -> Result<MachineLayout, AdminFailure> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.is_of(&inventory)) {
            return Ok(known.layout);
        }
        let reader = self.clone();
        let read = self.tasks.looking(move || reader.read(inventory)).await;
        let read = read.map_err(|error| AdminFailure::new(StatusCode::INTERNAL_SERVER_ERROR, &error))?;
        read.map_err(|failure| AdminFailure::new(StatusCode::INTERNAL_SERVER_ERROR, &failure))
    }

    fn read(&self, inventory: Arc<Inventory>) -> Result<MachineLayout, ReadFailure> {
        let topology = Topology::read_processors(&self.root)?;
        let layout = MachineLayout { is_here: self.is_here, ..MachineLayout::of(&topology) };
        let known = KnownLayout { layout: layout.clone(), read: Instant::now(), inventory };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(layout)
    }
}

/// Returns hardware, holders and health.
pub(super) async fn usage(State(admin): State<AdminService>) -> Result<Json<MachineUsage>, AdminFailure> {
    let inventory = admin.0.inventory.reader().latest();
    let layout = admin.0.machine.layout(inventory.clone()).await?;
    let claims = admin.0.claims.table().borrow().clone();
    Ok(Json(MachineUsage::of(&admin.0.node, layout, &inventory, &claims)))
}
