//! Amounts that are larger than requested, since a capacity is given in steps. Pure.

use hostler_api::{
    ExactQuantity, Quantity,
    resource::{CapacityRequirements, DeviceRequest, DeviceRequestAllocationResult, ResourceClaim},
};

use super::CreateDevice;

/// Returns a sentence for each larger amount of devices that were requested by name. Results stand in the order of the
/// devices.
pub fn rounded_devices(asked: &[CreateDevice], results: &[DeviceRequestAllocationResult]) -> Vec<String> {
    let note = |(asked, given): (&CreateDevice, &DeviceRequestAllocationResult)| {
        let amounts = asked.capacity.iter().map(|(name, wanted)| (&**name, wanted.get().into()));
        rounded(amounts, given)
    };
    asked.iter().zip(results).flat_map(note).collect()
}

/// Returns a sentence for each larger amount of devices that were chosen for the requests of a claim.
pub fn rounded_requests(claim: &ResourceClaim, results: &[DeviceRequestAllocationResult]) -> Vec<String> {
    let note = |given: &DeviceRequestAllocationResult| {
        let asked = claim.spec.devices.requests.iter().find_map(|request| capacity_of(request, &given.request));
        let amounts = asked.iter().flat_map(|asked| asked.requests.iter());
        rounded(amounts.filter_map(|(name, wanted)| Some((name, wanted.get()?))), given)
    };
    results.iter().flat_map(note).collect()
}

/// Capacity that the request of this name, `request` or `request/subrequest`, asks for.
fn capacity_of<'a>(request: &'a DeviceRequest, name: &str) -> Option<&'a CapacityRequirements> {
    match name.split_once('/') {
        None => request.exactly.as_ref().filter(|_| request.name == name)?.capacity.as_ref(),
        Some((own, sub)) if own == request.name => {
            request.first_available.iter().find(|alternative| alternative.name == sub)?.capacity.as_ref()
        }
        Some(_) => None,
    }
}

fn rounded<'a>(
    asked: impl Iterator<Item = (&'a str, ExactQuantity)>,
    given: &DeviceRequestAllocationResult,
) -> Vec<String> {
    let note = |(name, wanted): (&str, ExactQuantity)| {
        let got = amount(given.consumed_capacity.get(name)?).filter(|got| *got > wanted)?;
        let (wanted, got) = (human(wanted), human(got));
        Some(format!("{}: {name} {wanted} was asked for and {got} given, since it has steps", given.device))
    };
    asked.filter_map(note).collect()
}

/// Reads an amount of an allocation: a text or a number.
fn amount(value: &serde_json::Value) -> Option<ExactQuantity> {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).parse().ok()
}

fn human(amount: ExactQuantity) -> String {
    Quantity::try_from(amount).map_or_else(|_| amount.to_string(), Quantity::human)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_alternatives_are_given_is_compared_with_what_they_ask_for() {
        let wants = |amount: &str| json!({"requests": {"cpus": amount, "memory": "1Gi"}});
        let claim: ResourceClaim = serde_json::from_value(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a"},
            "spec": {"devices": {"requests": [
                {"name": "r", "firstAvailable": [
                    {"name": "big", "deviceClassName": "c", "capacity": wants("8")},
                    {"name": "small", "deviceClassName": "c", "capacity": wants("1.5")}]},
                {"name": "s", "exactly": {"deviceClassName": "c", "capacity": wants("2")}}]}},
        }))
        .unwrap();
        let given = |request: &str, device: &str| DeviceRequestAllocationResult {
            request: request.to_owned(),
            device: device.to_owned(),
            consumed_capacity: [("cpus".to_owned(), json!(2)), ("memory".to_owned(), json!("1Gi"))].into(),
            ..DeviceRequestAllocationResult::default()
        };
        let notes = rounded_requests(&claim, &[given("r/small", "numa0"), given("s", "numa1")]);
        assert_eq!(notes, ["numa0: cpus 1500m was asked for and 2 given, since it has steps"]);
    }
}
