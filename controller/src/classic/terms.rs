//! Requests of a claim, as a claim of today. Pure.

use std::collections::BTreeSet;

use hostler_api::{
    ClaimUid,
    classic::{HANDLE_KIND, ParameterRequest, ParametersMistake, REQUEST_CONFIG_KIND, RequestConfig, check_config},
    core::NodeSelector,
    resource::{
        CapacityRequirements, DeviceClaim, DeviceClaimConfiguration, DeviceRequest, ExactDeviceRequest, ResourceClaim,
        ResourceClaimMetadata, ResourceClaimSpec, ResourceClaimStatus,
    },
    well_known::HOSTLER_API_VERSION,
};

use serde_json::Value;

use super::model::ClassicClaim;

/// The terms of a claim: its requests, and conditions that a claim of today has no fields for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimTerms {
    /// The claim of today.
    pub(crate) claim: ResourceClaim,
    /// Requests that accept fewer devices than they name, and none.
    pub(crate) optional: BTreeSet<String>,
    /// True if several pods can use the claim at the same time.
    pub(crate) is_shareable: bool,
    /// Selectors that a node must match, each of them.
    pub(crate) suitable_nodes: Vec<NodeSelector>,
}

impl ClaimTerms {
    /// Returns the terms of a claim for these devices.
    pub(crate) fn new(claim: &ClassicClaim, devices: DeviceClaim) -> Self {
        let claim = claim_for(Some(claim), devices);
        Self { claim, optional: BTreeSet::new(), is_shareable: true, suitable_nodes: Vec::new() }
    }

    /// Returns the number of devices that an optional request prefers.
    pub(crate) fn most(&self, request: &str) -> i64 {
        let requests = &self.claim.spec.devices.requests;
        let exactly = requests.iter().find(|it| it.name == request).and_then(|it| it.exactly.as_ref());
        exactly.and_then(|it| it.count).unwrap_or(1)
    }

    /// Returns the claim with other counts for some requests.
    pub(crate) fn with_counts(&self, count_of: impl Fn(&str) -> Option<i64>) -> ResourceClaim {
        let mut claim = self.claim.clone();
        let devices = &mut claim.spec.devices;
        let mut gone = BTreeSet::new();
        for request in &mut devices.requests {
            match (count_of(&request.name), &mut request.exactly) {
                (Some(0), _) => drop(gone.insert(request.name.clone())),
                (Some(count), Some(exactly)) => exactly.count = Some(count),
                _ => {}
            }
        }
        devices.requests.retain(|request| !gone.contains(&request.name));
        devices.constraints.retain_mut(|constraint| keep(&mut constraint.requests, &gone));
        devices.config.retain_mut(|config| keep(&mut config.requests, &gone));
        claim
    }
}

/// Returns a claim of today for these devices.
pub(super) fn claim_for(claim: Option<&ClassicClaim>, devices: DeviceClaim) -> ResourceClaim {
    let metadata = |claim: &ClassicClaim| ResourceClaimMetadata {
        name: claim.key.name.clone(),
        namespace: claim.key.namespace.clone(),
        uid: ClaimUid::new(&*claim.uid).ok().map(String::from),
        ..ResourceClaimMetadata::default()
    };
    ResourceClaim {
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceClaim".to_owned(),
        metadata: claim.map(metadata).unwrap_or_default(),
        spec: ResourceClaimSpec { devices },
        status: ResourceClaimStatus::default(),
    }
}

/// Removes requests from a list. Returns false for a list that would become empty: an empty list stands for all
/// requests.
fn keep(requests: &mut Vec<String>, gone: &BTreeSet<String>) -> bool {
    let was_for_all = requests.is_empty();
    requests.retain(|request| !gone.contains(request));
    was_for_all || !requests.is_empty()
}

/// Returns requests of parameters as requests of today. `class_of` returns the allocator's name of a request's class.
pub(crate) fn requests(
    asked: &[ParameterRequest],
    mut class_of: impl FnMut(usize, &ParameterRequest) -> Result<String, ParametersMistake>,
) -> Result<Vec<DeviceRequest>, ParametersMistake> {
    let request = |(at, request): (usize, &ParameterRequest)| {
        let device_class_name = class_of(at, request)?;
        let exactly = ExactDeviceRequest { device_class_name, ..request.devices.clone() };
        Ok(DeviceRequest { name: request.name.clone(), exactly: Some(exactly), first_available: Vec::new() })
    };
    asked.iter().enumerate().map(request).collect()
}

/// Applies configurations that are for the controller, and not for the node: 1.31 has no fields for them.
pub(crate) fn heed_request_configs(terms: &mut ClaimTerms, driver: &str) -> Result<(), ParametersMistake> {
    let written = std::mem::take(&mut terms.claim.spec.devices.config);
    for (at, config) in written.into_iter().enumerate() {
        if parameters_of_kind(&config, driver, HANDLE_KIND).is_some() {
            let field = format!("spec.devices.config[{at}].opaque.parameters.kind");
            let problem = format!("{HANDLE_KIND} is what the controller tells nodes; make the claim anew without it");
            return Err(ParametersMistake::new(field, problem));
        }
        match request_config(&config, driver) {
            None => {
                check_own(&config, driver, at)?;
                terms.claim.spec.devices.config.push(config);
            }
            Some(Err(error)) => {
                let field = format!("spec.devices.config[{at}].opaque.parameters");
                return Err(ParametersMistake::new(field, format!("{error}; correct it and make the claim anew")));
            }
            Some(Ok(heeded)) => heed(terms, &config.requests, &heeded),
        }
    }
    Ok(())
}

/// Checks a claim's configuration for the node. No claim can be changed.
fn check_own(config: &DeviceClaimConfiguration, driver: &str, at: usize) -> Result<(), ParametersMistake> {
    let Some(opaque) = config.opaque.as_ref().filter(|opaque| opaque.driver == driver) else { return Ok(()) };
    check_config(&opaque.parameters, &format!("spec.devices.config[{at}].opaque.parameters"))
        .map_err(|wrong| ParametersMistake::new(wrong.field, format!("{}; make the claim anew", wrong.problem)))
}

fn request_config(config: &DeviceClaimConfiguration, driver: &str) -> Option<Result<RequestConfig, serde_json::Error>> {
    parameters_of_kind(config, driver, REQUEST_CONFIG_KIND).map(|parameters| serde_json::from_value(parameters.clone()))
}

/// Returns parameters of a kind of ours, if the configuration has them.
fn parameters_of_kind<'c>(config: &'c DeviceClaimConfiguration, driver: &str, kind: &str) -> Option<&'c Value> {
    let opaque = config.opaque.as_ref().filter(|opaque| opaque.driver == driver)?;
    let is = |field: &str, value: &str| opaque.parameters[field] == value;
    (is("apiVersion", HOSTLER_API_VERSION) && is("kind", kind)).then_some(&opaque.parameters)
}

fn heed(terms: &mut ClaimTerms, names: &[String], config: &RequestConfig) {
    let requests = terms.claim.spec.devices.requests.iter_mut();
    for request in requests.filter(|request| names.is_empty() || names.contains(&request.name)) {
        if config.optional {
            terms.optional.insert(request.name.clone());
        }
        let Some(exactly) = request.exactly.as_mut().filter(|_| !config.capacity.is_empty()) else { continue };
        let capacity = config.capacity.iter().map(|(name, quantity)| (name.as_str(), quantity.clone()));
        exactly.capacity = Some(CapacityRequirements { requests: capacity.collect() });
    }
}
