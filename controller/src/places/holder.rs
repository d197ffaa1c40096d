//! The place holder: a pod that sets aside what a place has, and does nothing.

use std::collections::{BTreeMap, BTreeSet};

use hostler_api::{
    core::{Affinity, NodeSelector, PodSpec, PodTemplateSpec, ResourceList},
    limits::MAX_OBJECT_NAME,
    reservation::{
        PLACES_NAMESPACE, PLACES_PRIORITY_CLASS, RESERVATION_ANNOTATION, RESERVATION_UID, RESERVATION_UID_ANNOTATION,
        ReservedPlace,
    },
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::context::LEFT_OUT;
use crate::reservation_object::ReservationObject;

/// Fields of the template that decide where its pod can run. The priority is not among them: it is that of places.
const OF_TEMPLATE: [&str; 5] =
    ["nodeSelector", "tolerations", "topologySpreadConstraints", "schedulerName", "runtimeClassName"];
/// UID of an unprivileged user, for containers that must not run as root.
const NOBODY: u32 = 65_532;

/// Returns the name of a place's holder; a Reservation that is made anew under the same name has other ones.
pub(super) fn holder_name(reservation: &ReservationObject, replica: u32, number: u32) -> String {
    let uid: String = reservation.uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{}-place-{uid}-{replica}-{number}", reservation.name)
}

/// Returns the names of the place holders of all places: the present one of each, and the one before it.
pub(super) fn known_holders(reservation: &ReservationObject) -> BTreeSet<String> {
    let numbers = |place: &ReservedPlace| [place.number.checked_sub(1), Some(place.number)].into_iter().flatten();
    let places = reservation.status.places.iter();
    places.flat_map(|place| numbers(place).map(|number| holder_name(reservation, place.replica, number))).collect()
}

/// Returns the name of the place holder that stood in the place before the present one, if there was one.
pub(crate) fn former_holder(reservation: &ReservationObject, place: &ReservedPlace) -> Option<String> {
    Some(holder_name(reservation, place.replica, place.number.checked_sub(1)?))
}

/// Returns the reason why no place holder can have the Reservation's name in its own, if so.
pub(super) fn name_problem(reservation: &ReservationObject) -> Option<String> {
    let longest = holder_name(reservation, reservation.spec.replicas(), u32::MAX);
    (longest.len() > MAX_OBJECT_NAME).then(|| {
        format!("pod {longest} would have more than {MAX_OBJECT_NAME} characters; give the Reservation a shorter name")
    })
}

/// Returns the place holder of these amounts. It goes to the place's node, if that is known, and else to any but the
/// ones that are left out.
pub(super) fn holder(
    reservation: &ReservationObject,
    place: &ReservedPlace,
    left_out: &BTreeSet<String>,
    image: &str,
) -> Value {
    let template = &reservation.spec.template["spec"];
    let mut typed = PodTemplateSpec::deserialize(&reservation.spec.template).unwrap_or_default().spec;
    let (ports, amounts) = (ports(&typed, place), place.left());
    if !place.node_name.is_empty() {
        typed.go_only(&NodeSelector::of_node(&place.node_name));
    }
    left_out.iter().for_each(|node| typed.leave_out(node));
    let affinity = typed.affinity.map(|affinity| about_others(affinity, place, reservation.spec.home()));
    let left_out: Vec<&str> = left_out.iter().map(String::as_str).collect();
    let mut spec: Map<String, Value> = OF_TEMPLATE
        .iter()
        .filter(|field| !template[**field].is_null())
        .map(|field| ((*field).to_owned(), template[*field].clone()))
        .collect();
    // A place that is not full any more stands beside owners, whose amounts contain the overhead already.
    if !place.owners.is_empty() {
        spec.remove("runtimeClassName");
    }
    // The API server wants limits of all but CPU, memory and storage. Without limits of these no CPU is given to the
    // place holder alone.
    let is_extended = |name: &str| name.contains('/') || name.starts_with("hugepages-");
    let limits: ResourceList =
        amounts.iter().filter(|(name, _)| is_extended(name)).map(|(name, amount)| (name.clone(), *amount)).collect();
    let own = json!({
        "affinity": affinity,
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
        "enableServiceLinks": false, "priorityClassName": PLACES_PRIORITY_CLASS,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": NOBODY, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            // The amounts are set aside whether the image is on the node or not: nothing is pulled for it.
            "name": "place", "image": image, "imagePullPolicy": "Never",
            "resources": {"requests": amounts, "limits": limits}, "ports": ports,
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    });
    spec.extend(own.as_object().cloned().unwrap_or_default());
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": holder_name(reservation, place.replica, place.number), "namespace": PLACES_NAMESPACE,
            "labels": labels(reservation, place),
            "annotations": {
                RESERVATION_ANNOTATION: reservation.name, RESERVATION_UID_ANNOTATION: reservation.uid,
                LEFT_OUT: left_out.join(","),
                // A node with a place is not taken away as an empty one, and no descheduler moves the place.
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
            },
        },
        "spec": spec,
    })
}

/// Returns the affinity with terms about pods of the template's namespace and about other places. A place that is not
/// full any more stays where its owners are.
fn about_others(mut affinity: Affinity, place: &ReservedPlace, home: &str) -> Affinity {
    if !place.owners.is_empty() {
        return Affinity { pod_affinity: None, pod_anti_affinity: None, ..affinity };
    }
    let kinds = [&mut affinity.pod_affinity, &mut affinity.pod_anti_affinity];
    for term in kinds.into_iter().flatten().flat_map(|kind| &mut kind.required) {
        if term.namespaces.is_empty() && term.namespace_selector.is_none() {
            term.namespaces.push(home.to_owned());
        }
        if term.namespaces.iter().any(|namespace| namespace == home) {
            term.namespaces.push(PLACES_NAMESPACE.to_owned());
        }
    }
    affinity
}

/// Returns the labels of a place holder. While it stands for a whole pod, terms about pods select it as that pod.
fn labels(reservation: &ReservationObject, place: &ReservedPlace) -> BTreeMap<String, String> {
    let own = [("app.kubernetes.io/name", "hostler-place"), ("app.kubernetes.io/managed-by", "hostler-controller")];
    let mut labels: BTreeMap<String, String> =
        own.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
    if place.owners.is_empty() {
        let of_template = reservation.spec.template["metadata"]["labels"].as_object().into_iter().flatten();
        let written = of_template.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        labels.extend(written);
    }
    labels.insert(RESERVATION_UID.to_owned(), reservation.uid.clone());
    labels
}

/// Returns the ports of the node that the place keeps: all of them until an owner comes.
fn ports(template: &PodSpec, place: &ReservedPlace) -> Vec<Value> {
    let ports = template.host_ports().into_iter().filter(|_| place.owners.is_empty());
    // The number inside the container must differ from port to port, and means nothing.
    ports
        .map(|it| {
            json!({"containerPort": it.host_port, "hostPort": it.host_port, "hostIP": it.host_ip, "protocol": it.protocol})
        })
        .collect()
}
