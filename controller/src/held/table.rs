//! The table of Reservations, for people.

use hostler_api::{plain_line, well_known::HELD_TAINT};
use hostler_cli::{
    output::TableWidth,
    table::{TextTable, or_dash},
};

use super::{HeldReservation, HoldsAnswer};

/// Writes the answer in rows.
pub(super) fn text(answer: &HoldsAnswer, width: TableWidth) -> String {
    match width {
        TableWidth::Narrow => narrow(answer),
        TableWidth::Wide => wide(answer),
    }
}

/// One row for each Reservation, and below them why those that are not kept are not.
fn narrow(answer: &HoldsAnswer) -> String {
    let mut table = TextTable::new(&["NAME", "PHASE", "HELD", "NODE", "FOR", "HAS", "UNTIL"]);
    for one in &answer.reservations {
        let HeldReservation { name, phase, held, node_name, owners, current_owners, until, devices, .. } = one;
        let cells = [
            name.clone(),
            phase.clone(),
            format!("{held}/{}", devices.len()),
            or_dash(node_name.as_deref().unwrap_or_default()),
            or_dash(&owners.join(", ")),
            or_dash(&current_owners.join(", ")),
            until.clone(),
        ];
        table.row(cells.each_ref());
    }
    let why = answer.reservations.iter().filter(|one| !one.message.is_empty());
    let lines =
        why.map(|one| plain_line(&format!("{}: {}: {}", one.name, one.reason, one.message)).into_owned() + "\n");
    table.to_string() + &lines.collect::<String>()
}

/// One row for each device.
fn wide(answer: &HoldsAnswer) -> String {
    let mut table = TextTable::new(&["NAME", "STATE", "DEVICE", "DRIVER", "CLAIM", "TAKEN BY", "TAINT"]);
    for (one, device) in answer.reservations.iter().flat_map(|one| one.devices.iter().map(move |device| (one, device)))
    {
        let taker = device.owner.as_ref().map(|owner| {
            let name = if owner.pod.is_empty() { &owner.claim } else { &owner.pod };
            format!("{}/{name}", owner.namespace)
        });
        let cells = [
            one.name.clone(),
            format!("{:?}", device.state),
            format!("{}/{}", device.pool, device.device),
            device.driver.clone(),
            or_dash(&device.claim),
            or_dash(taker.as_deref().unwrap_or_default()),
            one.toleration_value.as_ref().map_or_else(|| "-".to_owned(), |value| format!("{HELD_TAINT}={value}")),
        ];
        table.row(cells.each_ref());
    }
    table.to_string()
}
