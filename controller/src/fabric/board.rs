//! The latest readings of all fabric managers.

use std::{collections::BTreeMap, sync::Arc};

use hostler_fabric::{FabricInventory, Provider};

/// The latest readings of all managers, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct FabricReadings {
    pub(crate) managers: BTreeMap<String, ManagerReading>,
}

/// The latest reading of a manager.
#[derive(Clone, Debug)]
pub(crate) struct ManagerReading {
    pub(crate) provider: Arc<Provider>,
    /// The inventory that was read last; absent until one was.
    pub(crate) inventory: Option<Arc<FabricInventory>>,
    /// The reason why the last reading failed.
    pub(crate) error: Option<String>,
}
