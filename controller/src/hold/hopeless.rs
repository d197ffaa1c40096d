//! Reservations that no plan can satisfy, even in an empty cluster. They are refused by name before others are planned
//! for: devices that they can never use stay free for the others.

use std::collections::BTreeMap;

use hostler_allocator::plan::{NotJudged, not_kept};
use hostler_api::{
    core::PodSpec,
    reservation::MAX_RESERVED_DEVICES,
    resource::{DeviceRequest, ResourceClaimSpec},
};

/// The reason why pods with these claims, by the claim's name, can never have devices kept for them.
pub(super) fn hopeless(
    spec: &PodSpec,
    claims: &BTreeMap<String, ResourceClaimSpec>,
    replicas: usize,
) -> Option<String> {
    admin_access(claims).or_else(|| too_many(claims, replicas)).or_else(|| refused_field(spec))
}

fn admin_access(claims: &BTreeMap<String, ResourceClaimSpec>) -> Option<String> {
    let of_claim = |(claim, spec): (&String, &ResourceClaimSpec)| {
        let is_admin = |request: &&DeviceRequest| request.exactly.iter().any(|it| it.admin_access == Some(true));
        let request = &spec.devices.requests.iter().find(is_admin)?.name;
        Some(format!(
            "request {request} of claim {claim} has adminAccess, which takes no device from anybody: leave it out"
        ))
    };
    claims.iter().find_map(of_claim)
}

fn too_many(claims: &BTreeMap<String, ResourceClaimSpec>, replicas: usize) -> Option<String> {
    let requests = claims.values().flat_map(|spec| &spec.devices.requests);
    let of_pod = requests.map(fewest).fold(0, usize::saturating_add);
    let devices = of_pod.saturating_mul(replicas);
    (devices > MAX_RESERVED_DEVICES).then(|| too_many_devices(devices))
}

/// The refusal of more devices than the status of a Reservation has room for.
pub(super) fn too_many_devices(devices: usize) -> String {
    format!("that would be {devices} devices, and a Reservation keeps {MAX_RESERVED_DEVICES} at most: write several")
}

/// The fewest whole devices that a request takes. Parts can be of one device, and a request for all devices of a node
/// may mean one.
fn fewest(request: &DeviceRequest) -> usize {
    let whole = |count: Option<i64>, is_part: bool| match is_part {
        true => 0,
        false => usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX),
    };
    let exactly = request.exactly.iter().map(|it| whole(it.count, it.capacity.is_some()));
    let subrequests = request.first_available.iter().map(|it| whole(it.count, it.capacity.is_some()));
    exactly.chain(subrequests).min().unwrap_or_default()
}

/// Names the first field that decides where pods run, and by which devices would be kept where the pods may not be.
fn refused_field(spec: &PodSpec) -> Option<String> {
    let NotJudged { field, what, .. } = not_kept(spec).into_iter().next()?;
    Some(format!(
        "spec.template.spec.{field} cannot be kept ({what}), and the pods might not run where their devices are kept: leave it \
         out, make it a preference, or write one Reservation for each place with a nodeSelector"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(spec: Value) -> Option<String> {
        hopeless(&serde_json::from_value(spec).unwrap(), &BTreeMap::new(), 1)
    }

    fn refusal_of(request: &Value, replicas: usize) -> Option<String> {
        let claim = serde_json::from_value(json!({"devices": {"requests": [request]}})).unwrap();
        hopeless(&PodSpec::default(), &BTreeMap::from([("gpus".to_owned(), claim)]), replicas)
    }

    #[test]
    fn what_limits_where_pods_run_and_is_not_judged_is_refused_with_its_field() {
        let terms =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]});
        let likes = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]});
        let empty = json!({"name": "tmp", "emptyDir": {}});
        let spread = |when: &str| json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when});
        for (spec, field) in [
            (json!({"affinity": {"podAntiAffinity": terms}}), "affinity.podAntiAffinity.required"),
            (json!({"affinity": {"podAffinity": terms}}), "affinity.podAffinity.required"),
            (
                json!({"topologySpreadConstraints": [spread("ScheduleAnyway"), spread("DoNotSchedule")]}),
                "topologySpreadConstraints[1]",
            ),
            (
                json!({"volumes": [empty, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
                "volumes[1]",
            ),
            (json!({"volumes": [{"name": "own", "ephemeral": {"volumeClaimTemplate": {}}}]}), "volumes[0]"),
            (json!({"schedulerName": "other"}), "schedulerName"),
        ] {
            let refusal = refusal(spec).unwrap();
            assert!(refusal.contains(&format!("spec.template.spec.{field}")), "{refusal}");
        }
        assert_eq!(refusal(json!({"affinity": {"podAntiAffinity": likes}})), None);
        assert_eq!(refusal(json!({"topologySpreadConstraints": [spread("ScheduleAnyway")]})), None);
        assert_eq!(refusal(json!({"volumes": [empty], "schedulerName": "default-scheduler"})), None);
    }

    #[test]
    fn more_devices_than_a_reservation_keeps_are_refused_whatever_is_free() {
        let exactly = |count: i64| json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}});
        assert!(refusal_of(&exactly(32), 33).unwrap().contains("1056 devices"));
        assert_eq!(refusal_of(&exactly(32), 32), None);
        let one_of = json!({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu", "count": 8}, {"name": "b", "deviceClassName": "gpu"}]});
        assert_eq!(refusal_of(&one_of, 1024), None);
        let admin = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": true}});
        assert!(refusal_of(&admin, 1).unwrap().contains("request r of claim gpus has adminAccess"));
    }
}
