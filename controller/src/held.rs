//! Kept devices and their owners: the answer of `hostler-controller holds`. A pure function of the Reservations.

mod command;
mod kept;
mod lasting;
mod output;
mod table;

use std::collections::BTreeMap;

use hostler_api::reservation::{
    OwnerController, OwnerObject, Reservation, ReservationConditionType, ReservationOwner, ReservedDevice,
};
use hostler_cli::output::API_VERSION;
use serde::Serialize;

pub(crate) use self::{
    command::{HoldsArgs, run},
    kept::{KeptBy, KeptReservation},
    lasting::Lasting,
    output::while_read,
};

/// All devices that are kept or shall be.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HoldsAnswer {
    /// `output.hostler.dev/v1`.
    api_version: &'static str,
    /// `Holds`.
    kind: &'static str,
    /// Reservations by name.
    pub(crate) reservations: Vec<HeldReservation>,
}

/// Devices that a Reservation keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeldReservation {
    /// Name of the Reservation.
    pub(crate) name: String,
    /// `Pending`, `Waiting`, `Available`, `Succeeded` or `Failed`.
    pub(crate) phase: String,
    /// The reason of the phase, in one word.
    pub(crate) reason: String,
    /// The reason of the phase, for people.
    pub(crate) message: String,
    /// Devices that no pod has yet.
    pub(crate) held: u32,
    /// The node, if all devices are on one.
    pub(crate) node_name: Option<String>,
    /// The value of a toleration of `hostler.dev/held`.
    pub(crate) toleration_value: Option<String>,
    /// Owners of the devices, one line for each.
    pub(crate) owners: Vec<String>,
    /// Pods that have devices of the Reservation: `namespace/name`.
    pub(crate) current_owners: Vec<String>,
    /// The end, as the Reservation gives it: a time, or a duration from its creation. For a Reservation that is over,
    /// the time of its end.
    pub(crate) until: String,
    /// The devices.
    pub(crate) devices: Vec<ReservedDevice>,
}

impl HoldsAnswer {
    /// Makes the answer of all Reservations, in the order of their names.
    pub(crate) fn of(reservations: &BTreeMap<String, Reservation>) -> Self {
        let reservations = reservations.values().map(HeldReservation::of).collect();
        Self { api_version: API_VERSION, kind: "Holds", reservations }
    }
}

impl HeldReservation {
    fn of(reservation: &Reservation) -> Self {
        let Reservation { metadata, spec, status } = reservation;
        let ready = status.condition(ReservationConditionType::Ready);
        let has = status.current_owners.iter().map(|it| place(&it.namespace, &it.name));
        Self {
            name: metadata.name.clone(),
            phase: status.phase.as_str().to_owned(),
            reason: ready.map(|it| it.reason.clone()).unwrap_or_default(),
            message: ready.map(|it| it.message.clone()).unwrap_or_default(),
            held: status.held,
            node_name: status.node_name.clone(),
            toleration_value: status.toleration_value.clone(),
            owners: spec.owners.iter().map(owner_words).collect(),
            current_owners: has.collect(),
            until: match status.phase.is_over() {
                true => ready.map_or_else(|| "over".to_owned(), |it| format!("over since {}", it.last_transition_time)),
                false => until(spec.expires.as_deref(), spec.ttl.as_deref()),
            },
            devices: status.devices.clone(),
        }
    }
}

fn until(expires: Option<&str>, ttl: Option<&str>) -> String {
    match (expires, ttl) {
        (Some(expires), _) => expires.to_owned(),
        (None, Some("0" | "0s")) => "for ever".to_owned(),
        (None, ttl) => format!("{} from creation", ttl.unwrap_or("24h")),
    }
}

/// Describes owners as a person does. A pod must meet all parts of the description.
pub(crate) fn owner_words(owner: &ReservationOwner) -> String {
    let ReservationOwner { object, controller, label_selector, provisioning_request } = owner;
    let labels = label_selector.as_ref().map(|selector| {
        let labels = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let others =
            selector.match_expressions.iter().map(|it| format!("{} {:?} {:?}", it.key, it.operator, it.values));
        format!("pods with {}", labels.chain(others).collect::<Vec<_>>().join(", "))
    });
    let request =
        provisioning_request.as_ref().map(|it| format!("ProvisioningRequest {}", place(&it.namespace, &it.name)));
    let said = [object.as_ref().map(pod), controller.as_ref().map(pods_of), labels, request];
    let said: Vec<String> = said.into_iter().flatten().collect();
    if said.is_empty() { "nobody".to_owned() } else { said.join(" and ") }
}

fn pod(OwnerObject { namespace, name, uid, .. }: &OwnerObject) -> String {
    format!("Pod {}", place(namespace, if name.is_empty() { uid } else { name }))
}

fn pods_of(OwnerController { kind, namespace, name, uid, .. }: &OwnerController) -> String {
    let kind = if kind.is_empty() { "controller" } else { kind };
    format!("{kind} {}", place(namespace, if name.is_empty() { uid } else { name }))
}

fn place(namespace: &str, name: &str) -> String {
    let name = if name.is_empty() { "*" } else { name };
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

#[cfg(test)]
mod tests {
    use hostler_cli::output::TableWidth;
    use serde_json::json;

    use super::*;

    fn answer(objects: &[serde_json::Value]) -> HoldsAnswer {
        let read = objects.iter().map(|it| serde_json::from_value::<Reservation>(it.clone()).unwrap());
        HoldsAnswer::of(&read.map(|it| (it.metadata.name.clone(), it)).collect())
    }

    fn example() -> serde_json::Value {
        json!({
            "metadata": {"name": "train"},
            "spec": {"ttl": "30m", "owners": [
                {"controller": {"kind": "StatefulSet", "namespace": "ml", "name": "train"}, "labelSelector": {"matchLabels": {"app": "train"}}},
                {"object": {"namespace": "ml", "name": "other"}},
            ]},
            "status": {
                "phase": "Available", "held": 1, "nodeName": "n1", "tolerationValue": "0123456789abcdef",
                "devices": [
                    {"claim": "gpu", "request": "gpu", "driver": "hostler.dev", "pool": "n1/fpga", "device": "a", "state": "Held"},
                    {"claim": "gpu", "request": "gpu", "driver": "hostler.dev", "pool": "n1/fpga", "device": "b", "state": "HandedOver",
                     "owner": {"namespace": "ml", "pod": "train-0", "claim": "train-0-gpu", "uid": "u"}},
                ],
                "currentOwners": [{"kind": "Pod", "namespace": "ml", "name": "train-0"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "Available", "message": "", "lastTransitionTime": "t"}],
            },
        })
    }

    #[test]
    fn a_row_says_what_is_kept_for_whom_and_until_when() {
        let answer = answer(&[example()]);
        let [train] = answer.reservations.as_slice() else { panic!("{answer:?}") };
        assert_eq!(train.owners, ["StatefulSet ml/train and pods with app=train", "Pod ml/other"]);
        assert_eq!((train.until.as_str(), train.held), ("30m from creation", 1));
        assert_eq!(
            table::text(&answer, TableWidth::Narrow),
            format!(
                "NAME   PHASE      HELD  NODE  {:<58}  HAS         UNTIL\n\
                 train  Available   1/2  n1    StatefulSet ml/train and pods with app=train, Pod ml/other  ml/train-0  30m \
                 from creation\n",
                "FOR"
            )
        );
        assert_eq!(
            table::text(&answer, TableWidth::Wide),
            "NAME   STATE       DEVICE     DRIVER       CLAIM  TAKEN BY    TAINT\n\
             train  Held        n1/fpga/a  hostler.dev  gpu    -           hostler.dev/held=0123456789abcdef\n\
             train  HandedOver  n1/fpga/b  hostler.dev  gpu    ml/train-0  hostler.dev/held=0123456789abcdef\n"
        );
    }

    #[test]
    fn one_that_is_over_does_not_say_until_when_it_will_last() {
        for (phase, expected) in [
            ("Succeeded", "over since 2026-11-23T10:00:00Z"),
            ("Failed", "over since 2026-11-23T10:00:00Z"),
            ("Waiting", "30m from creation"),
        ] {
            let mut object = example();
            object["status"]["phase"] = phase.into();
            object["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-23T10:00:00Z".into();
            assert_eq!(answer(&[object]).reservations[0].until, expected, "{phase}");
        }
    }

    #[test]
    fn one_of_which_the_controller_has_said_nothing_has_a_row_as_well() {
        let answer =
            answer(&[json!({"metadata": {"name": "a"}, "spec": {"expires": "2027-01-01T00:00:00Z", "owners": [{}]}})]);
        assert_eq!(
            table::text(&answer, TableWidth::Narrow),
            "NAME  PHASE    HELD  NODE  FOR     HAS  UNTIL\na     Pending   0/0  -     nobody  -    2027-01-01T00:00:00Z\n"
        );
        assert_eq!(until(None, Some("0")), "for ever");
    }
}
