//! Places: parts of nodes that a Reservation keeps beside devices, such as CPU, memory and host ports. A pod of the
//! controller's stands in each of them until owners come.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ReservationSpec, ReservationStatus};
use crate::{
    ExactQuantity,
    core::{PodSpec, PodTemplateSpec, ResourceList},
};

/// Namespace of the pods that stand in places: no tenant's quota, LimitRange or admission policy applies to them.
pub const PLACES_NAMESPACE: &str = "hostler-places";
/// Priority class of these pods, above that of other pods: no pod is scheduled by preempting them.
pub const PLACES_PRIORITY_CLASS: &str = "hostler-place";

/// The part of a node that one replica keeps.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedPlace {
    /// Replica that the place is for, counted from 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub replica: u32,
    /// Number of the pod that stands in the place; it grows with each pod that takes the place of another.
    pub number: u32,
    /// Node of the place; empty before the scheduler has chosen one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// State of the place.
    pub state: ReservedPlaceState,
    /// Amounts that the place has in all.
    pub requests: BTreeMap<String, ExactQuantity>,
    /// Owners that have the place or a part of it, or are being given it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<PlaceOwner>,
    /// Reason why the place is not there, as the scheduler gives it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// State of a place.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservedPlaceState {
    /// The scheduler has not found a node for the place.
    #[default]
    Asking,
    /// The scheduler finds no room on the node of the devices: other devices are chosen.
    Refused,
    /// A pod of the controller's stands in the place.
    Held,
    /// Owners are nominated for the node, and not all of them are bound.
    HandingOver,
    /// Owners have the place.
    HandedOver,
}

/// An owner that has a place or a part of it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlaceOwner {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Amounts of the pod.
    pub requests: BTreeMap<String, ExactQuantity>,
    /// True if the pod is bound to the node.
    #[serde(skip_serializing_if = "is_false")]
    pub bound: bool,
}

impl ReservedPlace {
    /// Returns the amounts that no owner has. Empty if nothing is left.
    pub fn left(&self) -> ResourceList {
        let owned = |name: &str| {
            let parts = self.owners.iter().filter_map(|owner| owner.requests.get(name));
            parts.fold(ExactQuantity::ZERO, |sum, part| sum.plus(*part))
        };
        let left = self.requests.iter().map(|(name, all)| (name.clone(), all.minus(owned(name))));
        left.filter(|(_, left)| left.sign() > 0).collect()
    }

    /// True if a pod with these amounts fits into the part that no owner has. A pod that asks for nothing fits.
    pub fn has_room(&self, requests: &ResourceList) -> bool {
        let left = self.left();
        requests.iter().all(|(name, amount)| {
            amount.sign() <= 0 || left.get(name).is_some_and(|left| left.minus(*amount).sign() >= 0)
        })
    }

    /// True if the place is being given to the pod with this UID.
    pub fn is_given_to(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| !owner.bound && owner.uid == uid)
    }

    /// True if the place is kept, or owners have it.
    pub fn is_kept(&self) -> bool {
        !matches!(self.state, ReservedPlaceState::Asking | ReservedPlaceState::Refused)
    }
}

impl ReservationSpec {
    /// Returns the amounts that a pod of the template sets aside on its node. Empty if it sets nothing aside.
    pub fn place_requests(&self) -> ResourceList {
        let requests = self.template_pod().requests();
        requests.into_iter().filter(|(_, amount)| amount.sign() > 0).collect()
    }

    /// True if devices are asked for.
    pub fn asks_for_devices(&self) -> bool {
        let of_template = self.template["spec"]["resourceClaims"].as_array();
        !self.device_claims.is_empty() || of_template.is_some_and(|claims| !claims.is_empty())
    }

    /// True if a pod of the template takes something of its node besides devices.
    pub fn asks_for_place(&self) -> bool {
        let pod = self.template_pod();
        pod.requests().values().any(|amount| amount.sign() > 0) || !pod.host_ports().is_empty()
    }

    /// Returns the template's pod; an empty one where the template is none.
    fn template_pod(&self) -> PodSpec {
        PodTemplateSpec::deserialize(&self.template).map(|template| template.spec).unwrap_or_default()
    }
}

impl ReservationStatus {
    /// Pods that have places for good: they are bound.
    pub fn place_owners(&self) -> impl Iterator<Item = &PlaceOwner> {
        self.places.iter().flat_map(|place| &place.owners).filter(|owner| owner.bound)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(owners: &[&str]) -> ReservedPlace {
        let owners: Vec<_> = owners.iter().map(|cpu| json!({"name": "p", "requests": {"cpu": cpu}})).collect();
        serde_json::from_value(json!({"requests": {"cpu": "2", "memory": "1Gi"}, "owners": owners})).unwrap()
    }

    fn amounts(cpu: &str) -> ResourceList {
        serde_json::from_value(json!({ "cpu": cpu })).unwrap()
    }

    #[test]
    fn owners_fit_into_what_others_leave() {
        assert_eq!(place(&["500m"]).left(), serde_json::from_value(json!({"cpu": "1500m", "memory": "1Gi"})).unwrap());
        assert!(place(&["500m"]).has_room(&amounts("1500m")));
        assert!(!place(&["500m"]).has_room(&amounts("1501m")));
        assert!(place(&["2"]).has_room(&ResourceList::new()));
        assert!(!place(&[]).has_room(&serde_json::from_value(json!({"example.com/card": "1"})).unwrap()));
    }

    #[test]
    fn a_template_asks_for_a_place_by_requests_or_ports() {
        let asks = |container: serde_json::Value| {
            let template = json!({"spec": {"containers": [container]}});
            ReservationSpec { template, ..ReservationSpec::default() }.asks_for_place()
        };
        assert!(!asks(json!({})));
        assert!(!asks(json!({"resources": {"requests": {"cpu": "0"}}})));
        assert!(asks(json!({"resources": {"requests": {"cpu": "1"}}})));
        assert!(asks(json!({"ports": [{"containerPort": 80, "hostPort": 8080}]})));
    }
}
