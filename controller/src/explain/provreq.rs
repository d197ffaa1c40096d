//! Explains the state of a ProvisioningRequest. Pure.

use std::{fmt::Write, sync::Arc, time::SystemTime};

use hostler_api::{
    ObjectKey,
    core::Pod,
    few,
    provisioning::{
        CONSUME_ANNOTATIONS, PodTemplate, ProvisioningConditionType as Type, ProvisioningRequest,
        ProvisioningRequestStatus,
    },
    reservation::ReservationConditionType,
    well_known::HELD_TAINT,
};
use hostler_cluster::{ObjectVersion, from_rfc3339, rfc3339};
use serde::Deserialize;
use serde_json::Value;

use super::late;
use crate::{
    provision::{RequestParameters, SeenReservations, pod_sets, scheduled, unusable},
    requests::{OFFICIAL_ATOMIC_SCALE_UP, PROCESSOR_INSTANCE, ProvisionClasses, ProvisionObjects, SeenRequest},
    reservation_object::ReservationObject,
};

/// A page of a list.
#[derive(Deserialize)]
struct RequestListPage {
    kind: String,
    #[serde(default)]
    items: Vec<Value>,
}

/// Objects that answers are made of.
#[derive(Debug, Default)]
pub(super) struct RequestWorld {
    objects: ProvisionObjects,
    reservations: SeenReservations,
}

/// Takes the objects of a page.
pub(super) fn take(page: &str, world: &mut RequestWorld) -> Result<(), serde_json::Error> {
    let RequestListPage { kind, items } = serde_json::from_str(page)?;
    for item in items {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey { namespace: text("namespace"), name: text("name") };
        match &*kind {
            "PodList" => world.objects.see_pod(key, &Pod::deserialize(&item)?),
            "PodTemplateList" => world.objects.see_template(key, PodTemplate::deserialize(&item)?),
            "ReservationList" => {
                let object = ReservationObject::deserialize(&item)?;
                world.reservations.insert(object.name.clone(), Arc::new(object));
            }
            _ => {
                let version = ObjectVersion { uid: text("uid"), resource_version: text("resourceVersion") };
                world.objects.see_request(SeenRequest::new(version, ProvisioningRequest::deserialize(&item)?));
            }
        }
    }
    Ok(())
}

/// Explains a request; `None` where there is none.
pub(super) fn explained(
    key: &ObjectKey,
    world: &RequestWorld,
    classes: &ProvisionClasses,
    now: SystemTime,
) -> Option<String> {
    let request = world.objects.requests.get(key)?;
    let mut text = format!(
        "ProvisioningRequest {key}: {} pods in {} sets, class {}\n",
        request.pods(),
        request.spec.pod_sets.len(),
        request.spec.provisioning_class_name
    );
    for line in lines(request, world, classes, now) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "  {line}");
    }
    Some(text)
}

fn lines(request: &SeenRequest, world: &RequestWorld, classes: &ProvisionClasses, now: SystemTime) -> Vec<String> {
    if request.is_of_another() {
        return vec!["another program has accepted it, so hostler leaves it to that program".to_owned()];
    }
    if classes.of(&request.spec).is_none() && !request.is_answered() {
        return vec![not_ours(request, classes)];
    }
    let status = &request.status;
    if status.is(Type::Failed) {
        return vec![format!("failed, for good: {}", said(status, Type::Failed)), "make another request".to_owned()];
    }
    if status.is(Type::BookingExpired) {
        return vec![format!("room was found, and nothing is booked any more: {}", said(status, Type::BookingExpired))];
    }
    if let Some(problem) = unusable(&request.spec) {
        return vec![format!("it will fail: {problem}")];
    }
    match RequestParameters::read(&request.spec) {
        Err(problem) => vec![format!("it will fail: {problem}")],
        Ok(parameters) if status.is(Type::Provisioned) => booked(request, &parameters, world, now),
        Ok(parameters) => open(request, &parameters, world, classes, now),
    }
}

fn not_ours(request: &SeenRequest, classes: &ProvisionClasses) -> String {
    let instance = &classes.instance;
    if let Some(named) = request.spec.parameters.get(PROCESSOR_INSTANCE).filter(|named| *named != instance) {
        return format!(
            "it names processorInstance {named}, which answers it; hostler-controller is {instance} here \
             (provisioning.instance)"
        );
    }
    if request.spec.provisioning_class_name == OFFICIAL_ATOMIC_SCALE_UP && !classes.best_effort_atomic {
        return format!(
            "nobody here answers class {OFFICIAL_ATOMIC_SCALE_UP}: use atomic-scale-up.hostler.dev, or where no Cluster \
             Autoscaler answers, switch on provisioning.answers_best_effort_atomic"
        );
    }
    format!(
        "nobody here answers class {}: use check-capacity.hostler.dev, or with the official check class the parameter \
         processorInstance: {instance}, or name the class in provisioning.check_capacity_aliases",
        request.spec.provisioning_class_name
    )
}

fn said(status: &ProvisioningRequestStatus, kind: Type) -> String {
    status.condition(kind).map(|it| format!("{} ({})", it.message, it.reason)).unwrap_or_default()
}

fn booked(request: &SeenRequest, parameters: &RequestParameters, world: &RequestWorld, now: SystemTime) -> Vec<String> {
    let (there, pods) = (scheduled(request, &world.objects), request.pods());
    let mut lines = vec![
        format!("room was found: {}", said(&request.status, Type::Provisioned)),
        format!(
            "{there} of its {pods} pods have a node; for the others room is booked until {}",
            ends(request, parameters)
        ),
    ];
    if request.status.is(Type::CapacityRevoked) {
        lines.push(format!("that is taken back: {}", said(&request.status, Type::CapacityRevoked)));
    }
    lines.extend(request.status.provisioning_class_details.get("nodes").map(|nodes| format!("on {nodes}")));
    if world.objects.consumers_of(&request.key).next().is_none() {
        let [key, _] = CONSUME_ANNOTATIONS;
        lines.push(format!("no pod says that it is of it; write the annotation {key}: {}", request.key.name));
    }
    lines.extend(kept(request, world));
    lines.extend(late(ends_at(request, parameters), now).then(|| nobody("the booking is over")));
    lines
}

fn open(
    request: &SeenRequest,
    parameters: &RequestParameters,
    world: &RequestWorld,
    classes: &ProvisionClasses,
    now: SystemTime,
) -> Vec<String> {
    let closing = kept(request, world);
    let mut lines = match request.status.condition(Type::Provisioned) {
        Some(condition) if !closing.is_empty() => vec![condition.message.clone()],
        Some(condition) => vec![format!("there is no room for it: {}", condition.message)],
        None if request.status.is(Type::Accepted) => vec!["it was seen, and waits to be looked at".to_owned()],
        None => vec![nobody("it was not seen yet")],
    };
    lines.extend(closing);
    let eta = request.status.provisioning_class_details.get("eta");
    lines.extend(eta.map(|eta| format!("it is told yes or no until {eta}")));
    lines
        .extend(pod_sets(request, &world.objects).err().map(|template| format!("it waits for PodTemplate {template}")));
    let until = request.created.map(|created| created + parameters.validity);
    lines.extend(until.map(|until| format!("it fails where there is no room until {}", rfc3339(until))));
    lines.extend(late(until, now).then(|| nobody("its time is over")));
    lines.extend(parameters.remarks.iter().cloned());
    let others = others(request, world, classes);
    if !others.is_empty() {
        lines.push(format!("room is booked for {}", few(others)));
    }
    let keep = world.reservations.values().filter(|it| it.status.held > 0 && !named(request).contains(&&*it.name));
    let keep: Vec<String> = keep.map(|it| format!("{} ({})", it.name, it.status.held)).collect();
    if !keep.is_empty() {
        lines.push(format!("devices are kept by Reservations {}", few(keep)));
    }
    lines
}

/// Returns the names of the Reservations that keep the request's devices, or will keep them.
fn named(request: &SeenRequest) -> Vec<&str> {
    let names = request.status.provisioning_class_details.get("reservation");
    names.map(|names| names.split(',').collect()).unwrap_or_default()
}

/// Tells the state of the request's Reservations.
fn kept(request: &SeenRequest, world: &RequestWorld) -> Vec<String> {
    let line = |name: &str| {
        let Some(known) = world.reservations.get(name) else {
            return format!(
                "Reservation {name} is to keep devices for it, and is not there, or may not be read by you"
            );
        };
        let status = &known.status;
        let why = status.condition(ReservationConditionType::Ready).map(|it| format!(": {}", it.message));
        let value = status.toleration_value.as_ref().map(|value| format!("; claims tolerate {HELD_TAINT}={value}"));
        format!(
            "Reservation {name} is {}, with {} of its {} devices not taken yet{}{}",
            status.phase.as_str(),
            status.held,
            status.devices.len(),
            why.unwrap_or_default(),
            value.unwrap_or_default(),
        )
    };
    named(request).into_iter().map(line).collect()
}

/// Names the other requests in the way, with a booking, and the number of pods of each that are still to come.
fn others(request: &SeenRequest, world: &RequestWorld, classes: &ProvisionClasses) -> Vec<String> {
    let is_booked = |other: &SeenRequest| {
        let status = &other.status;
        status.is(Type::Provisioned) && !status.is(Type::Failed) && !status.is(Type::BookingExpired)
    };
    let others = world.objects.requests.values().filter(|other| other.key != request.key && is_booked(other));
    let ours = others.filter(|other| classes.of(&other.spec).is_some());
    ours.filter_map(|other| {
        let parameters = RequestParameters::read(&other.spec).ok()?;
        Some(format!("{} ({} pods, until {})", other.key, other.pods(), ends(other, &parameters)))
    })
    .collect()
}

fn ends_at(request: &SeenRequest, parameters: &RequestParameters) -> Option<SystemTime> {
    let condition = request.status.condition(Type::Provisioned)?;
    Some(from_rfc3339(&condition.last_transition_time)? + parameters.booking)
}

fn ends(request: &SeenRequest, parameters: &RequestParameters) -> String {
    ends_at(request, parameters).map_or_else(|| "an unknown time".to_owned(), rfc3339)
}

fn nobody(what: &str) -> String {
    format!("{what}: is there a controller with capabilities.provisioning switched on, and does one lead?")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn page(kind: &str, items: &[Value]) -> String {
        serde_json::json!({"kind": kind, "items": items}).to_string()
    }

    /// A request of a minute ago, for two pods.
    fn request(name: &str, class: &str, parameters: &Value, conditions: &Value) -> Value {
        serde_json::json!({
            "metadata": {
                "name": name, "namespace": "team", "uid": name, "resourceVersion": "1",
                "creationTimestamp": "2027-01-15T07:59:00Z",
            },
            "spec": {
                "provisioningClassName": class, "parameters": parameters,
                "podSets": [{"podTemplateRef": {"name": "t"}, "count": 2}],
            },
            "status": {"conditions": conditions, "provisioningClassDetails": {"nodes": "n1=2"}},
        })
    }

    fn condition(kind: &str, status: &str, message: &str) -> Value {
        serde_json::json!({
            "type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": "2027-01-15T07:59:30Z",
        })
    }

    fn answer(objects: &[Value], has_template: bool) -> String {
        let mut world = RequestWorld::default();
        let (reservations, requests): (Vec<Value>, Vec<Value>) =
            objects.iter().cloned().partition(|it| it["kind"] == "Reservation");
        take(&page("ProvisioningRequestList", &requests), &mut world).unwrap();
        take(&page("ReservationList", &reservations), &mut world).unwrap();
        let template = serde_json::json!({"metadata": {"name": "t", "namespace": "team"}, "template": {}});
        if has_template {
            take(&page("PodTemplateList", &[template]), &mut world).unwrap();
        }
        let classes = ProvisionClasses { instance: "hostler".to_owned(), ..ProvisionClasses::default() };
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        explained(&ObjectKey::new("team", "r"), &world, &classes, now).unwrap()
    }

    const CLASS: &str = "check-capacity.hostler.dev";

    #[test]
    fn who_waits_is_told_why_until_when_and_who_is_in_the_way() {
        let none = serde_json::json!({});
        let waits =
            serde_json::json!([condition("Accepted", "True", ""), condition("Provisioned", "False", "t 0 of 2")]);
        let booked = serde_json::json!([condition("Provisioned", "True", "")]);
        let text = answer(&[request("r", CLASS, &none, &waits), request("other", CLASS, &none, &booked)], true);
        assert_eq!(
            text,
            "ProvisioningRequest team/r: 2 pods in 1 sets, class check-capacity.hostler.dev\n  \
             there is no room for it: t 0 of 2\n  \
             it fails where there is no room until 2027-01-22T07:59:00Z\n  \
             room is booked for team/other (2 pods, until 2027-01-15T08:09:30Z)\n"
        );
    }

    #[test]
    fn a_template_that_is_not_there_is_named_and_so_is_a_controller_that_is_silent() {
        let parameters = serde_json::json!({"ValidUntilSeconds": "30"});
        let text = answer(&[request("r", CLASS, &parameters, &serde_json::json!([]))], false);
        assert!(text.contains("it was not seen yet: is there a controller with capabilities.provisioning"), "{text}");
        assert!(text.contains("it waits for PodTemplate team/t"), "{text}");
    }

    #[test]
    fn who_is_booked_is_told_where_and_that_no_pod_uses_it() {
        let booked = serde_json::json!([condition("Provisioned", "True", "all fit")]);
        let text = answer(&[request("r", CLASS, &serde_json::json!({}), &booked)], true);
        assert!(
            text.contains("0 of its 2 pods have a node; for the others room is booked until 2027-01-15T08:09:30Z"),
            "{text}"
        );
        assert!(text.contains("on n1=2") && text.contains("consume-provisioning-request: r"), "{text}");
    }

    #[test]
    fn a_class_that_nobody_answers_and_a_mistake_are_told_with_the_fix() {
        let none = serde_json::json!({});
        let text = answer(&[request("r", "check-capacity.autoscaling.x-k8s.io", &none, &serde_json::json!([]))], true);
        assert!(text.contains("processorInstance: hostler"), "{text}");
        let other = serde_json::json!({"processorInstance": "other"});
        let text = answer(&[request("r", CLASS, &other, &serde_json::json!([]))], true);
        assert!(text.contains("it names processorInstance other") && text.contains("is hostler here"), "{text}");
        let accepted = serde_json::json!([condition("Accepted", "True", "")]);
        let mut official = request("r", OFFICIAL_ATOMIC_SCALE_UP, &none, &accepted);
        let text = answer(&[official.clone()], true);
        assert!(text.contains("another program has accepted it"), "{text}");
        // The switch that has it answered is the controller's, and not known here.
        official["status"]["provisioningClassDetails"] = serde_json::json!({"controllerTerm": "t"});
        let text = answer(&[official], true);
        assert!(text.contains("it was seen, and waits to be looked at"), "{text}");
        let parameters = serde_json::json!({"ValidUntilSeconds": "soon"});
        let text = answer(&[request("r", CLASS, &parameters, &serde_json::json!([]))], true);
        assert!(text.contains("it will fail: spec.parameters.ValidUntilSeconds is \"soon\""), "{text}");
        let failed = serde_json::json!([condition("Failed", "True", "no room")]);
        let text = answer(&[request("r", CLASS, &none, &failed)], true);
        assert!(text.contains("failed, for good: no room (R)\n  make another request"), "{text}");
    }

    #[test]
    fn who_has_devices_kept_is_told_by_which_reservations_and_who_waits_is_told_of_others() {
        let reservation = |name: &str, phase: &str, held: u32| {
            serde_json::json!({
                "kind": "Reservation", "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
                "spec": {"owners": []},
                "status": {
                    "phase": phase, "held": held, "tolerationValue": "00ff",
                    "devices": [{"driver": "d", "pool": "p", "device": "a", "state": "Held"}],
                    "conditions": [{"type": "Ready", "status": "True", "reason": phase, "message": "all 1 devices are kept",
                                    "lastTransitionTime": "2027-01-15T07:59:30Z"}],
                },
            })
        };
        let found = serde_json::json!([condition("Provisioned", "True", "kept")]);
        let mut mine = request("r", CLASS, &serde_json::json!({}), &found);
        mine["status"]["provisioningClassDetails"]["reservation"] = serde_json::json!("one,two");
        let text = answer(&[mine.clone(), reservation("one", "Available", 1)], true);
        let line = "Reservation one is Available, with 1 of its 1 devices not taken yet: all 1 devices are kept; claims tolerate \
                    hostler.dev/held=00ff\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("Reservation two is to keep devices for it, and is not there"), "{text}");
        mine["status"]["conditions"] =
            serde_json::json!([condition("Provisioned", "False", "its devices are being closed")]);
        mine["status"]["provisioningClassDetails"]["eta"] = serde_json::json!("2027-01-15T08:01:30Z");
        let text =
            answer(&[mine.clone(), reservation("one", "Pending", 0), reservation("theirs", "Available", 2)], true);
        assert!(text.contains("  its devices are being closed\n  Reservation one is Pending"), "{text}");
        assert!(text.contains("it is told yes or no until 2027-01-15T08:01:30Z"), "{text}");
        assert!(text.contains("devices are kept by Reservations theirs (2)"), "{text}");
    }
}
