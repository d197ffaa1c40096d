//! Requests of a claim: device classes and amounts of capacities, as far as Reservations depend on them.

use hostler_api::{
    resource::{DeviceRequest, DeviceToleration, ResourceClaimSpec},
    well_known::HELD_TAINT,
};

/// The class that a request, or one of its alternatives, asks for.
pub(super) fn class_of_spec(spec: &ResourceClaimSpec, request: &str) -> String {
    asked_for(spec, request).class
}

/// Device that a request, or one of its alternatives, asks for.
#[derive(Default)]
pub(super) struct AskedDevice {
    class: String,
    /// True if a part of a device is asked for.
    pub(super) is_part: bool,
}

pub(super) fn asked_for(spec: &ResourceClaimSpec, request: &str) -> AskedDevice {
    let (name, alternative) = request.split_once('/').unwrap_or((request, ""));
    let found = spec.devices.requests.iter().find(|request| request.name == name);
    let alternatives = found.map(|request| &request.first_available).into_iter().flatten();
    let exactly = found.and_then(|request| request.exactly.as_ref());
    let exactly = exactly.map(|it| AskedDevice { class: it.device_class_name.clone(), is_part: it.capacity.is_some() });
    let of_alternative = alternatives
        .into_iter()
        .find(|it| it.name == alternative)
        .map(|it| AskedDevice { class: it.device_class_name.clone(), is_part: it.capacity.is_some() });
    exactly.or(of_alternative).unwrap_or_default()
}

/// True if any request asks for amounts of capacities.
pub(super) fn has_parts(spec: &ResourceClaimSpec) -> bool {
    let of_request = |request: &DeviceRequest| {
        let exactly = request.exactly.iter().any(|it| it.capacity.is_some());
        exactly || request.first_available.iter().any(|it| it.capacity.is_some())
    };
    spec.devices.requests.iter().any(of_request)
}

/// The same requests with a toleration of the value: they get devices that are closed with it.
pub(super) fn tolerating(mut spec: ResourceClaimSpec, value: &str) -> ResourceClaimSpec {
    let toleration =
        DeviceToleration { key: HELD_TAINT.to_owned(), value: value.to_owned(), ..DeviceToleration::default() };
    for request in &mut spec.devices.requests {
        request.exactly.iter_mut().for_each(|it| it.tolerations.push(toleration.clone()));
        request.first_available.iter_mut().for_each(|it| it.tolerations.push(toleration.clone()));
    }
    spec
}
