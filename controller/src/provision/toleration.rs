//! The toleration by which claims can have devices that are kept.

use hostler_api::{
    resource::{DeviceRequest, DeviceTaint, DeviceToleration, ResourceClaimSpec},
    well_known::HELD_TAINT,
};

/// Returns true if a claim's requests tolerate the taint with this value.
pub(super) fn tolerates(spec: &ResourceClaimSpec, value: &str) -> bool {
    let taint = DeviceTaint {
        key: HELD_TAINT.into(),
        value: Some(value.into()),
        effect: "NoSchedule".into(),
        ..DeviceTaint::default()
    };
    spec.devices.requests.iter().all(|request| has_toleration(request, |it| it.tolerates(&taint)))
}

/// Returns true if the author of a claim chose what it may have of the kept devices: no webhook changes it.
pub(super) fn has_chosen(spec: &ResourceClaimSpec) -> bool {
    let is_held = |it: &DeviceToleration| it.key == HELD_TAINT || (it.key.is_empty() && it.operator == "Exists");
    spec.devices.requests.iter().any(|request| has_toleration(request, is_held))
}

fn has_toleration(request: &DeviceRequest, is_it: impl Fn(&DeviceToleration) -> bool) -> bool {
    let exactly = request.exactly.iter().flat_map(|it| &it.tolerations);
    exactly.chain(request.first_available.iter().flat_map(|it| &it.tolerations)).any(is_it)
}
