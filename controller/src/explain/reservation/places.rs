//! Lines about the places of a Reservation. Pure.

use hostler_api::{
    core::ResourceList,
    few,
    reservation::{ReservedPlace, ReservedPlaceState as State},
};

/// Returns a line for each place that is not simply held, and one for those that are.
pub(super) fn place_lines(places: &[ReservedPlace]) -> Vec<String> {
    let held: Vec<String> = places.iter().filter(|place| is_held(place)).map(where_and_what).collect();
    let held = (!held.is_empty()).then(|| format!("places that are held: {}", few(held)));
    held.into_iter().chain(places.iter().filter(|place| !is_held(place)).map(line)).collect()
}

fn is_held(place: &ReservedPlace) -> bool {
    place.state == State::Held && place.owners.is_empty()
}

fn line(place: &ReservedPlace) -> String {
    let what = where_and_what(place);
    let owners = few(place.owners.iter().map(|owner| format!("{}/{}", owner.namespace, owner.name)));
    let why = if place.message.is_empty() { String::new() } else { format!(": {}", place.message) };
    match place.state {
        State::Asking => format!("place {what}: the scheduler is asked for it{why}"),
        State::Refused => format!("place {what}: its node has no room, and devices on others are looked for{why}"),
        State::Held => format!("place {what}: held beside its owners {owners}"),
        State::HandingOver => format!("place {what}: being handed over to {owners}{why}"),
        State::HandedOver => format!("place {what}: {owners} has it"),
    }
}

/// Returns `0 on node n1 (cpu 4, memory 8Gi)`.
fn where_and_what(place: &ReservedPlace) -> String {
    let node = if place.node_name.is_empty() { String::new() } else { format!(" on node {}", place.node_name) };
    format!("{}{node} ({})", place.replica, amounts(&place.requests))
}

fn amounts(requests: &ResourceList) -> String {
    let all: Vec<String> = requests.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    if all.is_empty() { "ports".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_told_with_node_amounts_owners_and_the_scheduler_s_words() {
        let place = |replica: u32, more: serde_json::Value| {
            let mut place = json!({"replica": replica, "requests": {"cpu": "4", "memory": "8Gi"}});
            place.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<ReservedPlace>(place).unwrap()
        };
        let owner = json!([{"namespace": "ml", "name": "p", "bound": true}]);
        let places = [
            place(0, json!({"state": "Held", "nodeName": "n1"})),
            place(1, json!({"state": "HandedOver", "nodeName": "n2", "owners": owner})),
            place(2, json!({"state": "Asking", "message": "0/3 nodes are available"})),
        ];
        assert_eq!(
            place_lines(&places),
            [
                "places that are held: 0 on node n1 (cpu 4, memory 8Gi)",
                "place 1 on node n2 (cpu 4, memory 8Gi): ml/p has it",
                "place 2 (cpu 4, memory 8Gi): the scheduler is asked for it: 0/3 nodes are available",
            ]
        );
    }
}
