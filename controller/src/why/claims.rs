//! Claims of a pod: whether each is there, and for each request the devices of the cluster that match.

use std::collections::BTreeSet;

use hostler_allocator::plan::{ClusterFacts, DeviceJudge, PlanOptions, StockDevice};
use hostler_api::{
    ObjectKey,
    core::{Pod, PodResourceClaim},
    hardware::DeviceState,
    resource::{
        DeviceAllocationMode, DeviceClass, DeviceRequest, DeviceSelector, DeviceTaint, DeviceToleration, ResourceClaim,
        ResourceClaimSpec,
    },
    well_known::{HELD_TAINT, TaintReason},
};

use super::world::WhyWorld;
use crate::stock::ClusterStock;

/// A claim of a pod.
#[derive(Debug)]
pub(super) struct ExplainedClaim<'w> {
    /// Name of the claim in the pod.
    pub(super) name: &'w str,
    /// The claim, or the reason why there is none.
    pub(super) found: FoundClaim<'w>,
    /// The requests; none where their spec is not known.
    pub(super) requests: Vec<ClaimRequest>,
}

/// The state of a pod's claim.
#[derive(Debug)]
pub(super) enum FoundClaim<'w> {
    /// The claim is there.
    There(ObjectKey, &'w ResourceClaim),
    /// The pod names a claim that is not there.
    Absent(ObjectKey),
    /// The pod names a template that is not there.
    NoTemplate(ObjectKey),
    /// The template is there, and no claim was made from it yet.
    NotMade(ObjectKey),
}

/// One way to satisfy a request of a claim.
#[derive(Debug, Default)]
pub(super) struct ClaimRequest {
    /// `request`, or `request/subrequest`.
    pub(super) name: String,
    /// The class.
    pub(super) class: String,
    /// Number of devices; `None`: all that match.
    pub(super) wanted: Option<i64>,
    /// True if the class exists.
    pub(super) has_class: bool,
    /// True if there are other ways.
    pub(super) is_alternative: bool,
    selectors: Vec<DeviceSelector>,
    tolerations: Vec<DeviceToleration>,
    /// Number of devices of the class.
    pub(super) of_class: usize,
    /// Devices that match.
    pub(super) devices: Vec<StockDevice>,
}

/// Returns the claims of a pod, with the devices that match.
pub(super) fn claims_of<'w>(
    world: &'w WhyWorld,
    key: &ObjectKey,
    pod: &'w Pod,
    options: &PlanOptions,
    stock: &ClusterStock,
) -> Vec<ExplainedClaim<'w>> {
    let mut claims: Vec<ExplainedClaim<'w>> =
        pod.spec.resource_claims.iter().map(|claim| ExplainedClaim::find(world, key, pod, claim)).collect();
    if world.may_read("resourceslices") {
        let mut requests: Vec<&mut ClaimRequest> = claims.iter_mut().flat_map(|it| &mut it.requests).collect();
        match_devices(&mut requests, world, options, stock);
    }
    claims
}

impl<'w> ExplainedClaim<'w> {
    fn find(world: &'w WhyWorld, pod_key: &ObjectKey, pod: &'w Pod, claim: &'w PodResourceClaim) -> Self {
        let key = |name: &str| ObjectKey::new(&pod_key.namespace, name);
        let made = pod.status.resource_claim_statuses.iter().find(|it| it.name == claim.name);
        let made = made.and_then(|it| it.resource_claim_name.as_deref());
        let template = claim.resource_claim_template_name.as_deref().map(key);
        let spec = template.as_ref().and_then(|template| world.manifests.facts.template(template));
        let name = claim.resource_claim_name.as_deref().or(made);
        let found = match (name.map(key), template) {
            (Some(key), _) => match world.claims.get(&key) {
                Some(found) => FoundClaim::There(key, found),
                None => FoundClaim::Absent(key),
            },
            (None, Some(template)) if spec.is_none() => FoundClaim::NoTemplate(template),
            (None, template) => FoundClaim::NotMade(template.unwrap_or_default()),
        };
        let spec: Option<&ResourceClaimSpec> = match &found {
            FoundClaim::There(_, claim) => Some(&claim.spec),
            _ => spec.map(|spec| &**spec),
        };
        Self { name: &claim.name, found, requests: spec.map(|spec| requests(spec, world)).unwrap_or_default() }
    }

    /// Returns the claim, if it has devices.
    pub(super) fn given(&self) -> Option<&'w ResourceClaim> {
        match self.found {
            FoundClaim::There(_, claim) => Some(claim).filter(|claim| claim.status.allocation.is_some()),
            _ => None,
        }
    }
}

/// Returns the requests of a spec, each way of a prioritized one by itself.
fn requests(spec: &ResourceClaimSpec, world: &WhyWorld) -> Vec<ClaimRequest> {
    let mut all: Vec<ClaimRequest> = spec.devices.requests.iter().flat_map(ways).collect();
    all.iter_mut().for_each(|it| it.has_class = world.classes.contains_key(&it.class));
    all
}

fn ways(request: &DeviceRequest) -> Vec<ClaimRequest> {
    let wanted = |mode: &DeviceAllocationMode, count: Option<i64>| {
        (*mode != DeviceAllocationMode::All).then(|| count.unwrap_or(1))
    };
    let exactly = request.exactly.iter().map(|it| ClaimRequest {
        name: request.name.clone(),
        class: it.device_class_name.clone(),
        wanted: wanted(&it.allocation_mode, it.count),
        selectors: it.selectors.clone(),
        tolerations: it.tolerations.clone(),
        ..ClaimRequest::default()
    });
    let alternatives = request.first_available.iter().map(|it| ClaimRequest {
        name: format!("{}/{}", request.name, it.name),
        class: it.device_class_name.clone(),
        wanted: wanted(&it.allocation_mode, it.count),
        is_alternative: request.first_available.len() > 1,
        selectors: it.selectors.clone(),
        tolerations: it.tolerations.clone(),
        ..ClaimRequest::default()
    });
    exactly.chain(alternatives).collect()
}

/// Finds the devices that match each request. The judge of devices tells to which classes a device belongs; so each
/// request becomes a class for a moment, under a name that no class can have.
fn match_devices(requests: &mut [&mut ClaimRequest], world: &WhyWorld, options: &PlanOptions, stock: &ClusterStock) {
    let mut facts: ClusterFacts = world.manifests.facts.clone();
    let names: Vec<String> = (0..requests.len()).map(|at| format!("/{at}")).collect();
    for (request, name) in requests.iter().zip(&names) {
        let Some(class) = world.classes.get(&request.class) else { continue };
        let mut own: DeviceClass = class.clone();
        own.metadata.name.clone_from(name);
        own.spec.selectors.extend(request.selectors.iter().cloned());
        facts.add_class(own);
    }
    let mut judge = DeviceJudge::new(&facts, options);
    let pools: Vec<_> = facts.pools().collect();
    for mut device in pools.into_iter().flat_map(|pool| judge.devices(&facts, pool)) {
        let summary = device.node.as_ref().and_then(|node| stock.nodes.get(node));
        if summary.is_some_and(|summary| summary.is_unknown(&device)) {
            device.state = DeviceState::Unknown;
        }
        for (request, name) in requests.iter_mut().zip(&names) {
            let is_of = |class: &str| device.kind.classes.iter().any(|it| **it == *class);
            request.of_class += usize::from(is_of(&request.class));
            if is_of(name) {
                request.devices.push(device.clone());
            }
        }
    }
}

impl ClaimRequest {
    /// True if the request can have the device, or a part of it, as far as its state tells.
    pub(super) fn may_have(&self, device: &StockDevice) -> bool {
        match device.state {
            DeviceState::Free => true,
            DeviceState::Allocated | DeviceState::Blocked => false,
            DeviceState::Held => self.bears(HELD_TAINT, device.held_for.as_deref()),
            DeviceState::Unhealthy => self.bears_reason(TaintReason::Unhealthy, device),
            DeviceState::Drained => self.bears_reason(TaintReason::Drained, device),
            DeviceState::Unknown => self.bears_reason(TaintReason::Unknown, device),
        }
    }

    fn bears_reason(&self, reason: TaintReason, device: &StockDevice) -> bool {
        self.bears(&reason.key(&device.kind.driver), Some(reason.value()))
    }

    /// True if the request tolerates devices with this taint.
    pub(super) fn bears(&self, key: &str, value: Option<&str>) -> bool {
        let taint = DeviceTaint {
            key: key.into(),
            value: value.map(Into::into),
            effect: "NoSchedule".into(),
            ..DeviceTaint::default()
        };
        self.tolerations.iter().any(|toleration| toleration.tolerates(&taint))
    }

    /// Counts the matching devices in a state.
    pub(super) fn count(&self, state: DeviceState) -> usize {
        self.devices.iter().filter(|device| device.state == state).count()
    }

    /// Returns the greatest number of devices that one node, or no single node, has for the request.
    pub(super) fn most_on_a_node(&self, is_meant: impl Fn(&StockDevice) -> bool) -> usize {
        let meant: Vec<&StockDevice> = self.devices.iter().filter(|device| is_meant(device)).collect();
        let of_all = meant.iter().filter(|device| device.node.is_none()).count();
        let nodes: BTreeSet<_> = meant.iter().filter_map(|device| device.node.as_ref()).collect();
        let on = |node| meant.iter().filter(|device| device.node.as_ref() == Some(node)).count();
        nodes.into_iter().map(on).max().unwrap_or_default() + of_all
    }
}
