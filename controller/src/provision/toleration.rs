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
    let is_it = |tolerations: &[DeviceToleration]| tolerations.iter().any(|it| it.tolerates(&taint));
    let of_request = |request: &DeviceRequest| {
        request.exactly.iter().any(|it| is_it(&it.tolerations))
            || request.first_available.iter().any(|it| is_it(&it.tolerations))
    };
    spec.devices.requests.iter().all(of_request)
}
