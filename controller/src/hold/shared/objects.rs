//! The claims that a Reservation keeps, and the pod for which the scheduler gives them their devices.

use std::collections::BTreeMap;

use hostler_api::{
    Chain, ObjectKey,
    core::PodTemplateSpec,
    limits::MAX_OBJECT_NAME,
    reservation::{RESERVATION_ANNOTATION, RESERVATION_UID_ANNOTATION, ReservedClaim, reserve_pod_name},
    resource::ResourceClaimSpec,
};
use serde_json::{Map, Value, json};

use super::context::WantedClaim;
use crate::{claim_write::NewClaim, reservation_object::ReservationObject};

/// Fields of the pod's template that decide where it can run: the scheduler has to heed them as well. Priority is not
/// among them: kept devices are free ones, and no pod is evicted for them.
const OF_TEMPLATE: [&str; 6] =
    ["nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName", "runtimeClassName"];
/// UID of an unprivileged user, for containers that must not run as root.
const NOBODY: u32 = 65_532;

/// Returns the claims of a Reservation; `template` looks up the spec of a ResourceClaimTemplate.
pub(super) fn wanted(
    reservation: &ReservationObject,
    template: impl Fn(&ObjectKey) -> Option<ResourceClaimSpec>,
) -> Result<Vec<WantedClaim>, String> {
    let pod = reservation.spec.shared_template().map_err(|error| Chain(&error).to_string())?;
    let namespace = &pod.metadata.namespace;
    let mut claims = Vec::new();
    for claim in &pod.spec.resource_claims {
        let key = ObjectKey::new(namespace, claim.resource_claim_template_name.as_deref().unwrap_or_default());
        claims.push((claim.name.clone(), template(&key).ok_or(key)));
    }
    claims.extend(reservation.spec.device_claims.iter().map(|it| (it.name.clone(), Ok(it.spec.clone()))));
    let named = claims.into_iter().map(|(name, spec)| {
        let resource_claim_name = format!("{}-{name}", reservation.name);
        WantedClaim { is: ReservedClaim { name, namespace: namespace.clone(), resource_claim_name }, spec }
    });
    let named: Vec<WantedClaim> = named.collect();
    let claims = named.iter().map(|it| ("ResourceClaim", it.is.resource_claim_name.clone()));
    let mut made = claims.chain([("Pod", pod_key(&reservation.name, namespace).name)]);
    match made.find(|(_, name)| name.len() > MAX_OBJECT_NAME) {
        Some((kind, name)) => Err(format!(
            "{kind} {name} would have more than {MAX_OBJECT_NAME} characters; give the Reservation a shorter name"
        )),
        None => Ok(named),
    }
}

pub(super) fn claim_key(claim: &ReservedClaim) -> ObjectKey {
    ObjectKey::new(&claim.namespace, &claim.resource_claim_name)
}

/// Returns the name of the pod that only asks for devices.
pub(super) fn pod_key(reservation: &str, namespace: &str) -> ObjectKey {
    ObjectKey::new(namespace, &reserve_pod_name(reservation))
}

fn annotations(reservation: &ReservationObject) -> BTreeMap<String, String> {
    let said = [(RESERVATION_ANNOTATION, &reservation.name), (RESERVATION_UID_ANNOTATION, &reservation.uid)];
    said.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "hostler-controller".to_owned())])
}

pub(super) fn new_claim(reservation: &ReservationObject, claim: &ReservedClaim, spec: &ResourceClaimSpec) -> NewClaim {
    NewClaim { key: claim_key(claim), labels: labels(), annotations: annotations(reservation), spec: spec.clone() }
}

/// Returns a pod that requests the resources of the template's pod, so that the devices are where that pod can run, and
/// does nothing. The pod may be started before it is deleted: its container is one that any namespace allows.
pub(super) fn reserve_pod(reservation: &ReservationObject, wanted: &[WantedClaim], image: &str) -> Value {
    let template = &reservation.spec.template["spec"];
    let typed: PodTemplateSpec = serde_json::from_value(reservation.spec.template.clone()).unwrap_or_default();
    let namespace = &typed.metadata.namespace;
    // The RuntimeClass adds its overhead to this pod as well.
    let mut asked = typed.spec;
    asked.overhead.clear();
    // Resources other than CPU and memory must have limits equal to their requests.
    let sets_aside = asked.requests();
    let mut spec: Map<String, Value> = OF_TEMPLATE
        .iter()
        .filter(|field| !template[**field].is_null())
        .map(|field| ((*field).to_owned(), template[*field].clone()))
        .collect();
    let claims = wanted.iter().map(|it| json!({"name": it.is.name, "resourceClaimName": it.is.resource_claim_name}));
    let own = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": NOBODY, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "resourceClaims": claims.collect::<Vec<_>>(),
        "containers": [{
            "name": "reserve", "image": image, "resources": {"requests": sets_aside, "limits": sets_aside},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    });
    spec.extend(own.as_object().cloned().unwrap_or_default());
    let key = pod_key(&reservation.name, namespace);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": key.name, "namespace": key.namespace, "labels": labels(), "annotations": annotations(reservation),
        },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leaves_no_room_for_those_of_its_pod_and_claims_is_refused() {
        let asked = |length: usize| {
            let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
            let template =
                json!({"metadata": {"namespace": "ml"}, "spec": {"containers": [], "resourceClaims": claims}});
            let object: ReservationObject = serde_json::from_value(json!({
                "metadata": {"name": "r".repeat(length)},
                "spec": {"mode": "SharedClaim", "allocateOnce": false, "owners": [], "template": template},
            }))
            .unwrap();
            wanted(&object, |_| Some(ResourceClaimSpec::default())).map(|claims| claims.len())
        };
        assert_eq!(asked(245), Ok(1));
        assert!(asked(246).unwrap_err().starts_with("Pod rrr"));
        assert!(asked(250).unwrap_err().contains("give the Reservation a shorter name"));
    }
}
