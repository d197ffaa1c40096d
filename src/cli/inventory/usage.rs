//! The machine as pictures show it, without holders: as it is seen without the daemon.

use std::collections::BTreeMap;

use hostler_api::BackendName;

use super::scan::ScannedMachine;
use crate::{
    claims::ClaimTable,
    inventory::{Inventory, Pool},
    usage::{holders::MachineUsage, layout::MachineLayout},
};

/// Returns the view of a machine that a scan gives.
pub(super) fn of(machine: &ScannedMachine) -> MachineUsage {
    let pools = machine.pools.iter().filter_map(|pool| {
        // The names of our own backends are names.
        let backend = BackendName::new(pool.backend).ok()?;
        let shown = Pool { name: pool.name.clone(), devices: pool.devices.clone(), ..Pool::default() };
        Some((backend, shown.into()))
    });
    let inventory = Inventory { pools: pools.collect::<BTreeMap<_, _>>(), ..Inventory::default() };
    MachineUsage::of(&machine.node, MachineLayout::of(&machine.topology), &inventory, &ClaimTable::default())
}
