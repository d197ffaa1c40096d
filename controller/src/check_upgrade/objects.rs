//! hostler's objects: fields and values that this version does not know, and those that it reads differently.

use std::collections::BTreeMap;

use hostler_api::{
    Chain, few,
    hardware::{NODE_HARDWARE_KIND, NodeHardware},
    provisioning::{PROVISIONING_REQUEST_KIND, ProvisioningRequest},
    reservation::{RESERVATION_KIND, Reservation, ReservationOwner},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::deserialize;

use super::{FindingUrgency, UpgradeFinding, definitions::schema_of, schema::unknown_parts};
use crate::deployed::{DEFINITIONS, DeployedObjects, ExpectedManifest, ProgramVersion, list, name_of};

/// The longest booking of a ProvisioningRequest by default.
const LONGEST_BOOKING_SECONDS: u64 = 3600;

/// Objects with one thing in common.
type ToldObjects = BTreeMap<(FindingUrgency, String, String), Vec<String>>;

/// Checks all objects. Objects of one kind with the same fault are one finding.
pub(super) fn findings(deployed: &DeployedObjects) -> Vec<UpgradeFinding> {
    let mut told = ToldObjects::new();
    for definition in DEFINITIONS.iter().flat_map(ExpectedManifest::objects) {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
        for object in deployed.of(kind) {
            check(kind, &definition, object, &mut told);
        }
    }
    if is_from_before(deployed, 0, 2) {
        changes(deployed, &mut told);
    }
    told.into_iter().map(|((urgency, kind, words), names)| finding(urgency, &kind, words, &names)).collect()
}

fn finding(urgency: FindingUrgency, kind: &str, words: String, names: &[String]) -> UpgradeFinding {
    let title = format!("{kind} {}", few(names));
    if urgency == FindingUrgency::Note {
        return UpgradeFinding::note(title, words);
    }
    let first = names.first().map_or("", String::as_str);
    let (namespace, name) = first.split_once('/').unwrap_or(("", first));
    let of = if namespace.is_empty() { String::new() } else { format!("-n {namespace} ") };
    UpgradeFinding::first(title, words).mended_by(format!("kubectl {of}edit {} {name}", kind.to_lowercase()))
}

/// Compares an object with the schema of its version, and reads it.
fn check(kind: &str, definition: &Value, object: &Value, told: &mut ToldObjects) {
    let mut tell = |urgency, words| told.entry((urgency, kind.to_owned(), words)).or_default().push(place(object));
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let version = api_version.rsplit_once('/').map_or(api_version, |(_, version)| version);
    let Some(schema) = schema_of(definition, version) else {
        return tell(FindingUrgency::First, format!("this version does not serve {api_version}"));
    };
    let (status, spec): (Vec<String>, Vec<String>) =
        unknown_parts(object, schema).into_iter().partition(|part| part.starts_with("status."));
    if !spec.is_empty() {
        tell(FindingUrgency::First, format!("this version does not know {}", few(&spec)));
    }
    // The programs write statuses anew.
    if !status.is_empty() {
        tell(
            FindingUrgency::Note,
            format!("this version does not know {}, and writes the status without", few(&status)),
        );
    }
    let read = match kind {
        RESERVATION_KIND => read::<Reservation>(object),
        NODE_HARDWARE_KIND => read::<NodeHardware>(object),
        _ => Ok(()),
    };
    if let Err(words) = read {
        tell(FindingUrgency::First, format!("this version cannot read it: {words}"));
    }
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<(), String> {
    deserialize::<_, T>(object).map(drop).map_err(|error| Chain(&error).to_string())
}

/// Returns `namespace/name`, or the name alone.
fn place(object: &Value) -> String {
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", name_of(object)),
        None => name_of(object).to_owned(),
    }
}

/// True if the controller that runs is older than a minor version.
fn is_from_before(deployed: &DeployedObjects, major: u32, minor: u32) -> bool {
    let containers =
        deployed.workload("Deployment").into_iter().flat_map(|it| list(&it["spec"]["template"]["spec"]["containers"]));
    let mut versions = containers.filter_map(|it| ProgramVersion::of_image(it["image"].as_str()?));
    versions.any(|version| version.is_before(major, minor))
}

/// Fields that 0.2 reads otherwise than 0.1.
fn changes(deployed: &DeployedObjects, told: &mut ToldObjects) {
    let mut tell = |kind: &str, object: &Value, words: String| {
        told.entry((FindingUrgency::Note, kind.to_owned(), words)).or_default().push(place(object));
    };
    for object in deployed.of(RESERVATION_KIND) {
        let Ok(reservation) = deserialize::<_, Reservation>(object) else { continue };
        let own = reservation.spec.template["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        if reservation.spec.owners.iter().any(names_no_namespace) {
            tell(RESERVATION_KIND, object, format!("owners without a namespace are pods of {own} alone since 0.2"));
        }
    }
    for object in deployed.of(PROVISIONING_REQUEST_KIND) {
        let Ok(request) = deserialize::<_, ProvisioningRequest>(object) else { continue };
        let asked = request.spec.parameters.get("bookingSeconds").and_then(|text| text.parse::<u64>().ok());
        if asked.is_some_and(|seconds| seconds > LONGEST_BOOKING_SECONDS) {
            let words = "bookingSeconds is an hour at most since 0.2 (provisioning.longest_booking_seconds)";
            tell(PROVISIONING_REQUEST_KIND, object, words.to_owned());
        }
    }
}

fn names_no_namespace(owner: &ReservationOwner) -> bool {
    let ReservationOwner { object, controller, provisioning_request, .. } = owner;
    let namespaces = [
        object.as_ref().map(|it| if it.uid.is_empty() { &it.namespace } else { &it.uid }),
        controller.as_ref().map(|it| &it.namespace),
        provisioning_request.as_ref().map(|it| &it.namespace),
    ];
    namespaces.into_iter().flatten().all(String::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reservation(name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": RESERVATION_KIND, "metadata": { "name": name }, "spec": spec,
        })
    }

    fn found(objects: Vec<Value>) -> Vec<UpgradeFinding> {
        findings(&DeployedObjects { objects, ..DeployedObjects::default() })
    }

    fn owned(owner: &Value) -> Value {
        json!({ "template": { "metadata": { "namespace": "ml" } }, "owners": [owner] })
    }

    #[test]
    fn fields_of_a_later_version_are_told_once_for_all_objects_that_have_them() {
        let mut known = reservation("a", &owned(&json!({ "object": { "namespace": "ml", "name": "p" } })));
        known["status"] = json!({ "phase": "Available", "later": 1 });
        let later = |name| reservation(name, &json!({ "colour": "red", "owners": [] }));
        let found = found(vec![known, later("b"), later("c")]);
        let words: Vec<String> = found.iter().map(|it| format!("{}: {}", it.object, it.message)).collect();
        let expected = [
            "Reservation b, c: this version does not know spec.colour",
            "Reservation a: this version does not know status.later, and writes the status without",
        ];
        assert_eq!(words, expected);
        assert_eq!(found[0].command.as_deref(), Some("kubectl edit reservation b"));
    }

    #[test]
    fn what_cannot_be_read_and_versions_that_are_not_served_come_first() {
        let mut other = reservation("b", &json!({}));
        other["apiVersion"] = json!("hostler.dev/v1beta1");
        let found = found(vec![reservation("a", &json!({ "replicas": "many" })), other]);
        let words: Vec<&str> = found.iter().map(|it| &*it.message).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words[0].starts_with("this version cannot read it: "), "{words:?}");
        assert_eq!(words[1], "this version does not serve hostler.dev/v1beta1");
    }

    #[test]
    fn what_is_read_otherwise_is_told_where_an_earlier_controller_runs() {
        let controller = |tag: &str| {
            let containers = json!([{ "image": format!("hostler-controller:{tag}") }]);
            json!({ "kind": "Deployment", "metadata": { "name": "hostler-controller" },
                "spec": { "template": { "spec": { "containers": containers } } } })
        };
        let labels = json!({ "labelSelector": { "matchLabels": { "app": "a" } } });
        let request = json!({ "kind": PROVISIONING_REQUEST_KIND, "metadata": { "namespace": "ml", "name": "r" },
            "spec": { "parameters": { "bookingSeconds": "7200" } } });
        let objects = |tag| vec![controller(tag), reservation("a", &owned(&labels)), request.clone()];
        let words: Vec<String> = found(objects("0.1.0")).into_iter().map(|it| it.object + ": " + &it.message).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words[0].starts_with("ProvisioningRequest ml/r: bookingSeconds is an hour at most"), "{words:?}");
        assert!(words[1].starts_with("Reservation a: owners without a namespace are pods of ml alone"), "{words:?}");
        assert_eq!(found(objects("0.2.0")), []);
    }
}
