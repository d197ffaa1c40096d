//! The reason why a pod waits. Pure: the question is asked when a pod is made, and by the leader about each gated pod.

use hostler_api::{
    ObjectKey,
    provisioning::{CONSUME_ANNOTATIONS, ProvisioningConditionType as Type},
    reservation::PLACES_NAMESPACE,
};

use crate::{
    observed::ObservedKind,
    places::{ExpectedPlaces, expected_places},
    requests::{ProvisionClasses, SeenRequest},
    unscheduled_pods::{PodGates, UnscheduledPod},
    view::ClusterView,
};

/// Namespace of the cluster's own pods.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// The reason why a pod waits.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) enum PodWait {
    /// The pod waits for nothing of ours.
    #[default]
    Nothing,
    /// A place of this Reservation, which is open or will be soon.
    Place(String),
    /// This ProvisioningRequest, which is not there yet.
    Request(ObjectKey),
    /// The decision on this ProvisioningRequest.
    Decision(ObjectKey),
}

/// Rules for what pods can wait for in this cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitRules {
    /// True if places are kept for Reservations.
    pub(crate) places: bool,
    /// Classes of requests that are answered; `None` if none is.
    pub(crate) requests: Option<ProvisionClasses>,
    /// The controller's own namespace, whose pods wait for nothing.
    pub(crate) own_namespace: String,
}

/// Returns what a pod waits for that is being made.
pub(crate) fn wait_of_newcomer(
    view: &ClusterView,
    rules: &WaitRules,
    key: &ObjectKey,
    pod: &UnscheduledPod,
) -> PodWait {
    let places = if rules.places { expected_places(view, Some((key, pod))) } else { ExpectedPlaces::new() };
    wait_of(view, rules, &places, key, pod)
}

/// Returns what a pod waits for; `places` are the expected ones of the same view.
pub(super) fn wait_of(
    view: &ClusterView,
    rules: &WaitRules,
    places: &ExpectedPlaces,
    key: &ObjectKey,
    pod: &UnscheduledPod,
) -> PodWait {
    let is_exempt = [SYSTEM_NAMESPACE, PLACES_NAMESPACE, &*rules.own_namespace].contains(&&*key.namespace);
    // Direct mode gives its pods devices and node, and waits until its gate is the only one.
    if is_exempt || pod.gates == PodGates::OwnAndPlacement {
        return PodWait::Nothing;
    }
    let place = || places.get(key).filter(|_| rules.places).cloned().map(PodWait::Place);
    wait_for_request(view, rules, key, pod).or_else(place).unwrap_or_default()
}

/// Returns the request that is not decided, if the pod names one.
fn wait_for_request(view: &ClusterView, rules: &WaitRules, key: &ObjectKey, pod: &UnscheduledPod) -> Option<PodWait> {
    let classes = rules.requests.as_ref()?;
    view.kinds.get(&ObservedKind::ProvisioningRequest).filter(|kind| kind.is_synced && !kind.is_absent)?;
    let named = CONSUME_ANNOTATIONS.iter().find_map(|annotation| pod.owner.annotations.get(*annotation));
    let name = named.filter(|name| !name.is_empty())?;
    let request = ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
    match view.provisioning.requests.get(&request) {
        None => Some(PodWait::Request(request)),
        // Other programs have gates of their own.
        Some(found) => (classes.of(&found.spec).is_some() && !is_decided(found)).then_some(PodWait::Decision(request)),
    }
}

/// True if the request was told yes, or will not be any more.
fn is_decided(request: &SeenRequest) -> bool {
    let decided = [Type::Provisioned, Type::Failed, Type::BookingExpired, Type::CapacityRevoked];
    request.is_going || request.status.is_unknown() || decided.into_iter().any(|kind| request.status.is(kind))
}
